"""Axes: what the queries and keys of an attention stand for, with a label for each position.

A site names its two axes (`regard.attention.tape.KINDS`), a task gives each name an axis for one
input, and pictures, pages and the API draw weights over it: tokens in a row, patches on their
image, frames along their sound, memory slots by time. An axis is a sequence of its labels.

>>> axis = Patches(labels=("0,0", "0,1"), boxes=((0, 0, 8, 8), (8, 0, 8, 8)), width=16, height=8)
>>> len(axis), axis[1], axis.kind
(2, '0,1', 'patches')
>>> axis_from_json(axis.to_json()) == axis
True
"""

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from regard.core.errors import UserError, choose

Box = tuple[float, float, float, float]
"""Left, top, width and height, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Axis(Sequence[str], ABC):
    """A label for each position; subclasses add where the position is."""

    labels: tuple[str, ...]

    kind: ClassVar[str]
    per_position: ClassVar[tuple[str, ...]] = ("labels",)
    """The fields that hold one value for each position."""

    def __post_init__(self) -> None:
        for name in self.per_position:
            held: Sequence[object] = getattr(self, name)
            if held and len(held) != len(self.labels):
                raise UserError(
                    f"{type(self).__name__}: {len(held)} {name} for {len(self.labels)} labels"
                )
        for label in self.labels:
            if not isinstance(label, str):
                raise UserError(f"labels of an axis must be texts, not {type(label).__name__}")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        return self.labels[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def take(self, places: Sequence[int]) -> Self:
        """The axis with only these positions, in this order."""
        chosen = {
            name: tuple(held[place] for place in places)
            for name in self.per_position
            if (held := getattr(self, name))
        }
        return replace(self, **chosen)

    def to_json(self) -> dict[str, object]:
        """The kind and every field, for the page and the API."""
        return {"kind": self.kind, **{each.name: getattr(self, each.name) for each in fields(self)}}


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
    def count(cls, number: int, name: str = "step") -> "Steps":
        """So many steps, numbered from one."""
        return cls(labels=tuple(f"{name} {each + 1}" for each in range(number)))


@dataclass(frozen=True, kw_only=True)
class Slots(Axis):
    """Slots of a memory."""

    kind = "slots"

    @classmethod
    def count(cls, number: int) -> "Slots":
        """So many slots, numbered from zero."""
        return cls(labels=tuple(str(each) for each in range(number)))


@dataclass(frozen=True, kw_only=True)
class Patches(Axis):
    """Parts of an image, each with its place and size."""

    kind = "patches"
    per_position = ("labels", "boxes")

    boxes: tuple[Box, ...]
    width: int
    """Of the image, in pixels."""
    height: int
    picture: str = ""
    """The image as a `data:` address, for whatever draws weights over it."""

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
    """Where each frame begins and ends."""
    envelope: tuple[float, ...] = ()
    """How loud the sound is, at equal distances from its beginning to its end."""
    picture: str = ""
    """A spectrogram or a film strip as a `data:` address."""

    @classmethod
    def regular(cls, count: int, seconds: float, **more: object) -> "Frames":
        """So many frames of equal length, labelled by when they begin.

        >>> Frames.regular(2, 0.5).times
        ((0.0, 0.5), (0.5, 1.0))
        """
        times = tuple((each * seconds, (each + 1) * seconds) for each in range(count))
        return cls(labels=tuple(f"{begin:.2f} s" for begin, _ in times), times=times, **more)  # type: ignore[arg-type]


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
"""Every kind of axis by the name that JSON gives it."""


def as_axis(labels: "Axis | Sequence[str]") -> Axis:
    """An axis as it is; a sequence of texts as tokens.

    >>> as_axis(["un", "chat"]).kind
    'tokens'
    """
    return labels if isinstance(labels, Axis) else Tokens(labels=tuple(labels))


def axis_from_json(held: object) -> Axis:
    """The axis that `to_json` wrote; a list of texts is taken as tokens."""
    if isinstance(held, list):
        return as_axis(held)
    if not isinstance(held, Mapping):
        raise UserError(f"an axis must be a JSON object or a list, not a {type(held).__name__}")
    kind = choose("kind of axis", str(held.get("kind")), AXES)
    known = {each.name for each in fields(kind)}
    values = {name: _frozen(each) for name, each in held.items() if name in known}
    try:
        return kind(**values)
    except TypeError as error:
        raise UserError(f"an axis of {kind.kind} lacks a field: {error}") from None


def _frozen(value: object) -> object:
    """Lists as tuples, at every depth, as frozen values hold them."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value
