"""Limits of a tokenizer.json, checked before the `tokenizers` library is given the file.

A chain of `Replace` normalisers can make a text exponentially longer: thirty that each double it
turn one letter into a billion. The library then runs out of memory and aborts the whole process,
which no error handler can prevent. So the growth of such chains is bounded, and so are the ids.

>>> doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
>>> chain = {"type": "Sequence", "normalizers": [doubling] * 30}
>>> check_tokenizer_file(json.dumps({"normalizer": chain}), "tokenizer.json")
Traceback (most recent call last):
regard.core.errors.UserError: tokenizer.json: the normalizer can make a text 1,073,741,824 times
longer; at most 64 times is allowed
"""

import json
from collections.abc import Iterator

from regard.core.errors import UserError
from regard.core.folder import check_depth

_MOST_GROWTH = 64
"""How many times longer a normaliser or decoder may make a text: ▁ for a blank is 3 bytes for 1."""
_MOST_PARTS = 64
"""Normalisers, pre-tokenisers, decoders and pieces of a template in one file, of each kind."""
_MOST_LETTERS = 10_000
"""Of all texts in such a part."""
_MOST_GAPS = 2**16
"""Ids without a token."""
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


def check_tokenizer_file(text: str, name: str) -> None:
    """Raise a UserError if a tokenizer.json could make the library run out of memory."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{name}: is not a valid tokenizer: {str(problem)[:200]}") from None
    if not isinstance(whole, dict):
        raise UserError(f"{name}: is not a valid tokenizer: not a JSON object")
    _check_ids(whole, name)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        check_depth(whole.get(part), name)
        steps = list(_steps(whole.get(part)))
        if len(steps) > _MOST_PARTS or any(len(_pieces(step)) > _MOST_PARTS for step in steps):
            raise UserError(f"{name}: the {part} has more than {_MOST_PARTS} parts")
        letters = sum(len(str(value)) for step in steps for value in _texts(step))
        if letters > _MOST_LETTERS:
            raise UserError(
                f"{name}: the texts of the {part} have {letters:,} characters; at most "
                f"{_MOST_LETTERS:,} are allowed"
            )
        growth = 1.0
        for step in steps:
            growth = min(growth * _growth(step), 1e18)
        if growth > _MOST_GROWTH:
            raise UserError(
                f"{name}: the {part} can make a text {growth:,.0f} times longer; at most "
                f"{_MOST_GROWTH} times is allowed"
            )


def _check_ids(whole: dict[str, object], name: str) -> None:
    """Raise if ids are far larger than the vocabulary: the library counts up to the largest."""
    model, added = whole.get("model"), whole.get("added_tokens")
    held = model.get("vocab") if isinstance(model, dict) else None
    ids = list(held.values()) if isinstance(held, dict) else []
    if isinstance(added, list):
        ids += [each.get("id") for each in added if isinstance(each, dict)]
    largest = max((each for each in ids if isinstance(each, int)), default=0)
    if largest > len(ids) + _MOST_GAPS:
        raise UserError(
            f"{name}: has an id of {largest:,} in a vocabulary of {len(ids):,} tokens; at most "
            f"{_MOST_GAPS:,} ids may be without a token"
        )


def _steps(part: object) -> Iterator[dict[str, object]]:
    """The parts of a part, without sequences; they may be nested up to `check_depth`."""
    if not isinstance(part, dict):
        return
    inner = [part[name] for name in _LISTS if isinstance(part.get(name), list)]
    if not inner:
        yield part
    for some in inner:
        for each in some:
            yield from _steps(each)


def _growth(step: dict[str, object]) -> float:
    """How many times longer a `Replace` makes a text at most, in bytes; 1 for other steps."""
    if step.get("type") != "Replace":
        return 1.0
    content, pattern = step.get("content"), step.get("pattern")
    size = len(content.encode("utf-8", "replace")) if isinstance(content, str) else 0
    found = pattern.get("String") if isinstance(pattern, dict) else pattern
    if isinstance(found, str) and found:
        return max(1.0, size / len(found.encode("utf-8", "replace")))
    return 1.0 + size  # an expression may match nothing between any two letters


def _texts(step: dict[str, object]) -> Iterator[object]:
    """The texts of a step that end up in tokens."""
    return (step[name] for name in ("content", "prepend", "prefix", "suffix") if name in step)


def _pieces(step: dict[str, object]) -> list[object]:
    """The longer template of a post-processor."""
    given = [step.get(name) for name in ("single", "pair")]
    return max((each for each in given if isinstance(each, list)), key=len, default=[])
