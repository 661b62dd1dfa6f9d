"""Which special token does what: fills rows, begins and ends a text, is unknown, hides a word.

Vocabularies from elsewhere spell them in many ways. Folders of `transformers` say which is which in
special_tokens_map.json; a run keeps such a file beside the tokenizer.json it belongs to. Without
one they are looked for by their usual spellings.

>>> spelled_in({"pad_token": "<p>", "mask_token": {"content": "?"}, "model_max_length": 8})
{'pad_token': '<p>', 'mask_token': '?'}
"""

import json
from collections.abc import Mapping
from pathlib import Path

from regard.core.errors import UserError
from regard.data.text.pipeline import BOS, EOS, MASK, PAD, UNK

SPELLINGS: dict[str, tuple[str, ...]] = {
    PAD: (PAD, "[PAD]", "<|endoftext|>"),
    UNK: (UNK, "[UNK]", "<|endoftext|>"),
    BOS: (BOS, "<s>", "[CLS]", "<|endoftext|>"),
    EOS: (EOS, "</s>", "[SEP]", "<|endoftext|>"),
    MASK: (MASK, "<mask>"),
}
"""How vocabularies from elsewhere spell the same four, and what stands for a hidden word."""

ROLES: dict[str, tuple[str, ...]] = {
    PAD: ("pad_token",),
    UNK: ("unk_token",),
    BOS: ("bos_token", "cls_token"),
    EOS: ("eos_token", "sep_token"),
    MASK: ("mask_token",),
}
"""What `transformers` calls them; the first that is there counts."""

_MAP = "special_tokens_map.json"


def beside(path: Path) -> Path:
    """The file that says which special token does what, of a tokenizer.json.

    >>> beside(Path("run/source.tokenizer.json")).name
    'source.special_tokens_map.json'
    """
    return path.with_name(path.name.removesuffix("tokenizer.json") + _MAP)


def spelled_in(settings: Mapping[str, object]) -> dict[str, str]:
    """The special tokens among some settings of `transformers`."""
    found: dict[str, str] = {}
    for name in (name for names in ROLES.values() for name in names):
        token = settings.get(name)
        token = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(token, str):
            found[name] = token
    return found


def spelled_beside(path: Path) -> dict[str, str]:
    """The special tokens that are named beside a tokenizer.json; none if there is no such file."""
    named = beside(path)
    if not named.exists():
        return {}
    try:
        held = json.loads(named.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{named}: is no JSON: {problem}") from None
    return spelled_in(held) if isinstance(held, Mapping) else {}
