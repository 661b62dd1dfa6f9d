"""Axes: what the queries and keys of an attention stand for, with a label for each position.

A site names its two axes (`regard.attention.tape.AXIS_NAMES`), a task gives each name an axis for
one input, and pictures, pages and the API draw attention weights over it: tokens in a row, patches
on their image, frames along their sound, memory slots by time. An axis is a sequence of its labels.

>>> axis = Patches.grid(1, 2, width=16, height=8)
>>> len(axis), axis[1], axis.kind
(2, '0,1', 'patches')
>>> axis_from_json(axis.to_json()) == axis
True
"""

import json
import re
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import ClassVar, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from regard.core.errors import UserError, choose

Box = tuple[float, float, float, float]
"""Left, top, width and height, in pixels. A box of no size belongs to a position without a place in
the image, such as a class token."""

Own = TypeVar("Own", bound="Axis")

_PICTURE = re.compile(r"data:image/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, kw_only=True)
class Axis(Sequence[str], ABC):
    """A label for each position; subclasses add the place of each."""

    labels: tuple[str, ...]

    kind: ClassVar[str]
    per_position: ClassVar[tuple[str, ...]] = ("labels",)
    """The fields with one value for each position."""

    def __post_init__(self) -> None:
        for name in self.per_position:
            count = len(getattr(self, name))
            if count != len(self.labels):
                raise UserError(
                    f"{type(self).__name__}: {count} {name} for {len(self.labels)} labels"
                )
        for label in self.labels:
            if not isinstance(label, str):
                raise UserError(
                    f"labels of an axis must be texts, not {type(label).__name__} "
                    f"{str(label)[:60]!r}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        return self.labels[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def take(self: Own, places: Sequence[int]) -> Own:
        """The axis with only these positions, in this order.

        >>> Tokens(labels=("un", "chat", "noir")).take([2, 0]).labels
        ('noir', 'un')
        """
        values = {name: getattr(self, name) for name in self.per_position}
        return replace(self, **{n: tuple(v[place] for place in places) for n, v in values.items()})

    def to_json(self) -> dict[str, object]:
        """The kind and every field, for the page and the API."""
        own = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        return {"kind": self.kind, **own}


@dataclass(frozen=True, kw_only=True)
class Tokens(Axis):
    """Tokens or words of a text."""

    kind = "tokens"


@dataclass(frozen=True, kw_only=True)
class Characters(Axis):
    """Characters of a text."""

    kind = "characters"


@dataclass(frozen=True, kw_only=True)
class Sentences(Axis):
    """Sentences of a document, or whole texts."""

    kind = "sentences"


@dataclass(frozen=True, kw_only=True)
class Steps(Axis):
    """Steps of a computation: decoder steps without a token, hops, controller steps."""

    kind = "steps"

    @classmethod
    def of(cls, number: int, name: str = "step") -> "Steps":
        """Steps 1 to `number`.

        >>> Steps.of(2, "hop").labels
        ('hop 1', 'hop 2')
        """
        return cls(labels=tuple(f"{name} {each + 1}" for each in range(number)))


@dataclass(frozen=True, kw_only=True)
class Slots(Axis):
    """Slots of a memory."""

    kind = "slots"

    @classmethod
    def of(cls, number: int) -> "Slots":
        """Slots 0 to `number` - 1."""
        return cls(labels=tuple(str(each) for each in range(number)))


@dataclass(frozen=True, kw_only=True)
class Patches(Axis):
    """Parts of an image, each with its place and size; pixels are patches of size one."""

    kind = "patches"
    per_position = ("labels", "boxes")

    boxes: tuple[Box, ...]
    width: int
    """Of the image, in pixels."""
    height: int
    picture: str = ""
    """The image as a `data:` address (`Image.data_address`), drawn under the attention weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1 or self.height < 1:
            raise UserError(f"an image of {self.width} x {self.height} pixels has no patches")
        for label, box in zip(self.labels, self.boxes, strict=True):
            if not all(isfinite(each) for each in box) or min(box[2:]) < 0:
                raise UserError(f"patch {label!r}: {box} is not left, top, width and height")
        _check_picture(self.picture)

    @classmethod
    def grid(cls, rows: int, columns: int, width: int, height: int, picture: str = "") -> "Patches":
        """Equal patches, row by row.

        >>> Patches.grid(1, 2, width=16, height=8).boxes
        ((0.0, 0.0, 8.0, 8.0), (8.0, 0.0, 8.0, 8.0))
        """
        across, down = width / columns, height / rows
        places = [(row, column) for row in range(rows) for column in range(columns)]
        return cls(
            labels=tuple(f"{row},{column}" for row, column in places),
            boxes=tuple((column * across, row * down, across, down) for row, column in places),
            width=width,
            height=height,
            picture=picture,
        )


@dataclass(frozen=True, kw_only=True)
class Frames(Axis):
    """Stretches of a sound or a video, each with its time in seconds."""

    kind = "frames"
    per_position = ("labels", "times")

    times: tuple[tuple[float, float], ...]
    """The beginning and the end of each frame."""
    envelope: tuple[float, ...] = ()
    """The loudness of the sound, at equal distances from its beginning to its end."""
    picture: str = ""
    """A spectrogram or a film strip as a `data:` address."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for label, (begin, end) in zip(self.labels, self.times, strict=True):
            if not (isfinite(begin) and isfinite(end) and begin <= end):
                raise UserError(f"frame {label!r}: {begin} to {end} seconds is no stretch of time")
        for value in self.envelope:
            if not (isfinite(value) and value >= 0):
                raise UserError(f"an envelope must be finite and at least 0, not {value}")
        _check_picture(self.picture)

    @property
    def span(self) -> tuple[float, float]:
        """The beginning of the first frame and the end of the last one."""
        begins, ends = zip(*self.times, strict=True)
        return min(begins), max(ends)

    @classmethod
    def regular(
        cls, count: int, seconds: float, *, envelope: Sequence[float] = (), picture: str = ""
    ) -> "Frames":
        """`count` frames of equal length, each labelled with its beginning.

        >>> Frames.regular(2, 0.5).times
        ((0.0, 0.5), (0.5, 1.0))
        """
        times = tuple((each * seconds, (each + 1) * seconds) for each in range(count))
        return cls(
            labels=tuple(f"{begin:.2f} s" for begin, _ in times),
            times=times,
            envelope=tuple(envelope),
            picture=picture,
        )


@dataclass(frozen=True, kw_only=True)
class Notes(Axis):
    """Notes of a piece of music: pitch (MIDI number), beginning and length in beats."""

    kind = "notes"
    per_position = ("labels", "notes")

    notes: tuple[tuple[int, float, float], ...]


AXES: dict[str, type[Axis]] = {
    each.kind: each
    for each in (Tokens, Characters, Sentences, Steps, Slots, Patches, Frames, Notes)
}
"""Every kind of axis by its name in JSON."""


def as_axis(labels: Axis | Sequence[str]) -> Axis:
    """An axis as it is; a sequence of texts as tokens.

    >>> as_axis(["un", "chat"]).kind
    'tokens'
    """
    return labels if isinstance(labels, Axis) else Tokens(labels=tuple(labels))


def axis_from_json(value: object) -> Axis:
    """The axis that `to_json` wrote; a list of texts becomes tokens.

    >>> axis_from_json({"kind": "frames", "labels": ["0 s"]})
    Traceback (most recent call last):
    regard.core.errors.UserError: an axis of frames: times is missing
    """
    if isinstance(value, list):
        value = {"kind": "tokens", "labels": value}
    if not isinstance(value, Mapping):
        raise UserError(f"an axis must be a JSON object or a list, not a {type(value).__name__}")
    kind = choose("kind of axis", str(value.get("kind")), AXES)
    unknown = value.keys() - {each.name for each in fields(kind)} - {"kind"}
    if unknown:
        raise UserError(f"an axis of {kind.kind} has no {', '.join(sorted(map(str, unknown)))}")
    own = {name: each for name, each in value.items() if name != "kind"}
    try:
        # By way of JSON, so that a list may become a tuple but "3" is not 3.
        return TypeAdapter(kind).validate_json(json.dumps(own), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        wrong = "is missing" if first["type"] == "missing" else first["msg"]
        raise UserError(f"an axis of {kind.kind}: {place} {wrong}") from None


def _plain(value: object) -> object:
    """Tuples as lists, at every depth, as JSON has them."""
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _check_picture(address: str) -> None:
    """A page loads the address, so it must be an image and nothing from elsewhere."""
    if address and not _PICTURE.fullmatch(address):
        raise UserError(
            "the picture of an axis must be a data: address of a PNG, JPEG, WebP or GIF in "
            f"base 64, not {address[:60]!r}"
        )
