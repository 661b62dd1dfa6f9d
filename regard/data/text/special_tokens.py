"""Special tokens: the template around a text or a pair, and the role of each special token.

The input of BERT is `[CLS] a [SEP] b [SEP]` (Devlin et al. 2019, figure 2), of RoBERTa
`<s> a </s></s> b </s>`, of GPT's classifiers `start a delimiter b extract` (Radford et al. 2018,
figure 1). In a tokenizer.json the template is the post-processor.

Vocabularies of other projects spell special tokens in many ways. Folders of `transformers` have
their roles in special_tokens_map.json; a run keeps such a file beside its tokenizer.json. Without
one, the usual spellings are tried.

>>> bert = InputTemplate(before=(2,), between=(3,), after=(3,), parts=(0, 1))
>>> bert.apply([[7, 8], [9]])
([2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1])
>>> bert.apply([[7, 8, 9], [5]], longest=6)                     # the longer part is cut
([2, 7, 8, 3, 5, 3], [0, 0, 0, 0, 1, 1])
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from regard.core.errors import UserError
from regard.data.text.pipeline import BOS, EOS, MASK, PAD, UNK


@dataclass(frozen=True)
class InputTemplate:
    """The ids of special tokens around one or two texts, and the part of each text."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    parts: tuple[int, int] = (0, 1)

    def size(self, texts: int) -> int:
        """The number of special tokens around one text or two."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def apply(
        self, texts: Sequence[Sequence[int]], longest: int | None = None
    ) -> tuple[list[int], list[int]]:
        """The ids of one text or two with special tokens, and the part of each id.

        A special token belongs to the part of the text before it, the first ones to the first. An
        input longer than `longest` is truncated at the ends of the texts, the longer one first.
        """
        if len(texts) > 2:
            raise UserError(f"a template takes one text or two, not {len(texts)}")
        room = None if longest is None else longest - self.size(len(texts))
        if room is not None and room < len(texts):
            raise UserError(f"a length of {longest} leaves no room for text in the template")
        texts = [list(each) for each in texts]
        if room is not None:
            kept = truncated_lengths([len(each) for each in texts], room)
            texts = [each[:size] for each, size in zip(texts, kept, strict=True)]
        held = [self.before, texts[0]]
        for text in texts[1:]:
            held += [self.between, text]
        held.append(self.after)
        whose = [self.parts[0]] * 2 if len(texts) == 1 else [self.parts[0]] * 3 + [self.parts[1]]
        whose.append(whose[-1])
        numbers = [number for each in held for number in each]
        parts = [part for each, part in zip(held, whose, strict=True) for _ in each]
        return numbers, parts


def truncated_lengths(sizes: Sequence[int], room: int) -> list[int]:
    """The lengths of one text or two, truncated to `room` tokens in total.

    As in BERT's code the longer text is truncated first, and of equal texts the second.

    >>> truncated_lengths([10, 3], 9), truncated_lengths([10, 10], 9), truncated_lengths([2, 10], 9)
    ([6, 3], [5, 4], [2, 7])
    """
    if len(sizes) == 1:
        return [min(sizes[0], room)]
    first, second = sizes
    stays = min(first, max(room - second, room - room // 2))
    return [stays, min(second, room - stays)]


def template_of(pipeline: Tokenizer) -> InputTemplate | None:
    """The template of a pipeline; None if it adds no special tokens."""
    one, two = pipeline.encode("a"), pipeline.encode("a", "a")
    whose = two.sequence_ids
    if len(one.ids) == one.sequence_ids.count(0) or 0 not in whose or 1 not in whose:
        return None
    first, last = whose.index(0), len(whose) - whose[::-1].index(1)
    ends, begins = len(whose) - whose[::-1].index(0), whose.index(1)
    return InputTemplate(
        before=tuple(two.ids[:first]),
        between=tuple(two.ids[ends:begins]),
        after=tuple(two.ids[last:]),
        parts=(two.type_ids[first], two.type_ids[begins]),
    )


SPECIAL_SPELLINGS: dict[str, tuple[str, ...]] = {
    PAD: (PAD, "[PAD]", "<|endoftext|>"),
    UNK: (UNK, "[UNK]", "<|endoftext|>"),
    BOS: (BOS, "<s>", "[CLS]", "<|endoftext|>"),
    EOS: (EOS, "</s>", "[SEP]", "<|endoftext|>"),
    MASK: (MASK, "<mask>"),
}
"""The usual spellings of each special token in other vocabularies."""

SPECIAL_ROLES: dict[str, tuple[str, ...]] = {
    PAD: ("pad_token",),
    UNK: ("unk_token",),
    BOS: ("bos_token", "cls_token"),
    EOS: ("eos_token", "sep_token"),
    MASK: ("mask_token",),
}
"""The names of `transformers` for them; the first that exists is used."""

_MAP = "special_tokens_map.json"


def special_tokens_file(path: Path) -> Path:
    """The special_tokens_map.json of a tokenizer.json.

    >>> special_tokens_file(Path("run/source.tokenizer.json")).name
    'source.special_tokens_map.json'
    """
    return path.with_name(path.name.removesuffix("tokenizer.json") + _MAP)


def special_tokens_in(settings: Mapping[str, object]) -> dict[str, str]:
    """The special tokens among some settings of `transformers`.

    >>> special_tokens_in({"pad_token": "<p>", "mask_token": {"content": "?"}})
    {'pad_token': '<p>', 'mask_token': '?'}
    """
    found: dict[str, str] = {}
    for name in (name for names in SPECIAL_ROLES.values() for name in names):
        token = settings.get(name)
        token = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(token, str):
            found[name] = token
    return found


def read_special_tokens(path: Path) -> dict[str, str]:
    """The special tokens in the file beside a tokenizer.json; empty if there is no such file."""
    named = special_tokens_file(path)
    if not named.exists():
        return {}
    try:
        held = json.loads(named.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{named}: is not JSON: {problem}") from None
    return special_tokens_in(held) if isinstance(held, Mapping) else {}
