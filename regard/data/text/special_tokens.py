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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer

from regard.core.errors import UserError
from regard.core.folder import read_json
from regard.data.text.pipeline import BOS, EOS, MASK, PAD, UNK


@dataclass(frozen=True)
class InputTemplate:
    """The ids of special tokens around one or two texts, and the part of each text."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    parts: tuple[int, int] = (0, 1)
    marks: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    """The parts of the special tokens before, between and after; None is that of the text before
    them."""
    alone: "InputTemplate | None" = None
    """The template of a text alone, if it is not this one without its second text."""

    @property
    def single(self) -> "InputTemplate":
        """The template of a text alone."""
        return self.alone or self

    @property
    def is_empty(self) -> bool:
        """Are there no special tokens at all?"""
        return not (self.size(1) or self.size(2))

    def size(self, texts: int) -> int:
        """The number of special tokens around one text or two."""
        if texts == 1 and self.alone is not None:
            return self.alone.size(1)
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def apply(
        self, texts: Sequence[Sequence[int]], longest: int | None = None
    ) -> tuple[list[int], list[int]]:
        """The ids of one text or two with special tokens, and the part of each id.

        A special token belongs to the part of the text before it, the first ones to the first. An
        input longer than `longest` is truncated at the ends of the texts, the longer one first.
        """
        if len(texts) == 1 and self.alone is not None:
            return self.alone.apply(texts, longest)
        if len(texts) > 2:
            raise UserError(f"a template takes one text or two, not {len(texts)}")
        room = None if longest is None else longest - self.size(len(texts))
        if room is not None and room < len(texts):
            raise UserError(f"a length of {longest} leaves no room for text in the template")
        texts = [list(each) for each in texts]
        if room is not None:
            kept = truncated_lengths([len(each) for each in texts], room)
            texts = [each[:size] for each, size in zip(texts, kept, strict=True)]
        first, second = self.parts
        ends = first if len(texts) == 1 else second
        begin, middle, end = self.marks or (
            [first] * len(self.before),
            [first] * len(self.between),
            [ends] * len(self.after),
        )
        numbers, parts = [*self.before, *texts[0]], [*begin, *[first] * len(texts[0])]
        for text in texts[1:]:
            numbers += [*self.between, *text]
            parts += [*middle, *[second] * len(text)]
        return [*numbers, *self.after], [*parts, *end]


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


def template_of(pipeline: Tokenizer) -> InputTemplate:
    """The template of a pipeline, which may be empty."""
    probe = next(filter(lambda text: _is_read(pipeline, text), _probes(pipeline)), None)
    if probe is None:
        return InputTemplate((), (), ())
    one, two = _frame_of(pipeline, probe, 1), _frame_of(pipeline, probe, 2)
    same = (one.before, one.after, one.marks) == (two.before, two.after, two.marks)
    # The parts after a text alone are the first; after a pair, the second.
    usual = one.before == two.before and one.after == two.after and not one.marks and not two.marks
    alone = None if (same or usual) and one.parts[0] == two.parts[0] else one
    return replace(two, alone=alone)


def _probes(pipeline: Tokenizer) -> Iterator[str]:
    """Texts of which one has a token in any vocabulary."""
    yield "a"
    for _, number in zip(range(_MOST_PROBES), pipeline.get_vocab().values(), strict=False):
        yield pipeline.decode([number], skip_special_tokens=False)


def _is_read(pipeline: Tokenizer, text: str) -> bool:
    """Has a text any token?"""
    return bool(pipeline.encode(text, add_special_tokens=False).ids)


def _frame_of(pipeline: Tokenizer, probe: str, texts: int) -> InputTemplate:
    """What stands around one text or two, found by trying."""
    found = pipeline.encode(probe, probe if texts == 2 else None)
    whose, ids, types = found.sequence_ids, found.ids, found.type_ids
    first, ends = whose.index(0), len(whose) - whose[::-1].index(0)
    begins, last = (ends, ends) if texts == 1 else (whose.index(1), _after(whose, 1))
    text = pipeline.encode(probe, add_special_tokens=False).ids
    if ids[first:ends] != text or (texts == 2 and (begins < ends or ids[begins:last] != text)):
        raise UserError(
            "the post-processor of tokenizer.json repeats, reorders or divides texts, which is not "
            "known here"
        )
    parts = (types[first], types[begins] if texts == 2 else types[first])
    marks = (tuple(types[:first]), tuple(types[ends:begins]), tuple(types[last:]))
    usual = ({parts[0]}, {parts[0]}, {parts[texts - 1]})
    plain = all(set(each) <= known for each, known in zip(marks, usual, strict=True))
    return InputTemplate(
        before=tuple(ids[:first]),
        between=tuple(ids[ends:begins]),
        after=tuple(ids[last:]),
        parts=parts,
        marks=None if plain else marks,
    )


def _after(whose: Sequence[int | None], text: int) -> int:
    """The position after the last token of a text."""
    return len(whose) - whose[::-1].index(text)


_MOST_PROBES = 100

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
    held = read_json(named)
    return special_tokens_in(held) if isinstance(held, Mapping) else {}
