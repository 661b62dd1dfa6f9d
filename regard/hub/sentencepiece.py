"""SentencePiece's model files (.spm), read and written without its package.

A file is one protobuf message: pieces with a score and a kind, how it was trained, and the rules
that clean a text. Only the fields that change what a text becomes are read; all others are left.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import UserError
from regard.core.folder import VOCABULARY_BYTES, read_bytes

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of pieces; CHOSEN are the symbols that whoever trained it had chosen."""

UNIGRAM, BPE = 1, 2
"""Kinds of models."""


@dataclass(frozen=True)
class ScoredPiece:
    """A piece of words."""

    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class SentencePiece:
    """What there is to a model."""

    pieces: tuple[ScoredPiece, ...]
    kind: int
    rules: bytes
    """How a text is cleaned, for data/text/normalise.py."""

    @property
    def found(self) -> dict[str, float]:
        """The pieces that a text may hold, with their scores.

        A chosen symbol is worth more than any other way to cut the same characters.
        """
        best = max((each.score for each in self.pieces if each.kind == NORMAL), default=0.0)
        scores = {each.text: each.score for each in self.pieces if each.kind == NORMAL}
        for each in self.pieces:
            if each.kind == USER_DEFINED:
                scores[each.text] = len(each.text.encode()) * best - 0.1
        return scores


def read_sentencepiece(path: Path) -> SentencePiece:
    """The model in a file."""
    data = read_bytes(path, VOCABULARY_BYTES)
    try:
        model = _model(data)
    except (IndexError, ValueError, struct.error) as problem:
        raise UserError(f"{path}: is no SentencePiece model, or a torn one: {problem}") from None
    if not model.pieces:
        raise UserError(f"{path}: is no SentencePiece model: it has no pieces")
    return model


def _model(data: bytes) -> SentencePiece:
    pieces: list[ScoredPiece] = []
    kind, rules = UNIGRAM, b""
    for field, value in _fields(data):
        if field == 1:
            pieces.append(_piece(_bytes(value)))
        elif field == 2:
            kind = next((_int(each) for f, each in _fields(_bytes(value)) if f == 3), UNIGRAM)
        elif field == 3:
            spec = dict(_fields(_bytes(value)))
            rules = _bytes(spec.get(2, b""))
            for number, name in ((3, "add_dummy_prefix"), (4, "remove_extra_whitespaces")):
                if spec.get(number, 1) != 1:
                    raise UserError(f"a SentencePiece model with {name}=false is not known here")
    return SentencePiece(tuple(pieces), kind, rules)


def _piece(data: bytes) -> ScoredPiece:
    held = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(held.get(2, b"\0\0\0\0")))
    return ScoredPiece(_bytes(held.get(1, b"")).decode(), score, _int(held.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: their numbers and values, in order.

    >>> list(_fields(bytes([8, 150, 1, 18, 2, 104, 105])))
    [(1, 150), (2, b'hi')]
    """
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        field, form = tag >> 3, tag & 7
        if form == 0:
            value, place = _varint(data, place)
            yield field, value
            continue
        if form == 2:
            size, place = _varint(data, place)
        elif form in (1, 5):
            size = 8 if form == 1 else 4
        else:
            raise ValueError(f"byte {place} has the unknown form {form}")
        if place + size > len(data):
            raise ValueError(f"it ends within a field of {size} bytes")
        yield field, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError(f"byte {place} is in a number that never ends")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes should")
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number should")
    return value


def sentencepiece_bytes(model: SentencePiece) -> bytes:
    """The file of a model.

    >>> model = SentencePiece((ScoredPiece("a", -1.0),), UNIGRAM, b"")
    >>> _model(sentencepiece_bytes(model)) == model
    True
    """
    out = bytearray()
    for each in model.pieces:
        held = _field(1, each.text.encode()) + b"\x15" + struct.pack("<f", each.score)
        out += _field(1, held + (b"" if each.kind == NORMAL else _field(3, each.kind)))
    out += _field(2, _field(3, model.kind))
    out += _field(3, _field(2, model.rules))
    return bytes(out)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])
