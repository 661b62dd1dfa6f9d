"""Inputs: what a person gives a model, whatever its kind.

A text, a pair, a document, an image, a sound, a video, a piece of music, pen strokes, or several of
these. Each is read from a file, from a line of stdin or from the JSON of a request, is checked
against limits, and has a short title for people. Tasks name the kinds that they take.

>>> read_line(Pair, "Who came?\\tAnn came.", "line 1")
Pair(first='Who came?', second='Ann came.')
>>> Text("a cat").title
'a cat'
>>> check_kind(Sound(torch.zeros(1, 8), 8000), (Text,), "translate")
Traceback (most recent call last):
regard.core.errors.UserError: task translate takes a text, and was given a sound
"""

import base64
import io
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.core.errors import UserError, choose


@dataclass(frozen=True, kw_only=True)
class InputLimits:
    """The most that one input may hold, so that nobody can fill the memory of a server."""

    characters: int = 100_000
    pixels: int = 16_000_000
    seconds: float = 600.0
    frames: int = 10_000
    """Of a video."""
    points: int = 100_000
    """Of pen strokes; also notes of a piece."""
    parts: int = 16
    """Of an input that consists of several."""
    file_bytes: int = 50_000_000


LIMITS = InputLimits()
"""For inputs from elsewhere, such as requests."""

LOCAL_LIMITS = replace(LIMITS, characters=2**31, file_bytes=2**31)
"""For the files and the stdin of whoever runs a command."""

Kind = TypeVar("Kind", bound="Input")
WrittenKind = TypeVar("WrittenKind", bound="Written")
TextKind = TypeVar("TextKind", bound="Text")
SeveralKind = TypeVar("SeveralKind", bound="Several")


class Input(ABC):
    """Something that a model reads."""

    name: ClassVar[str]
    """What messages call it, with its article: "a text"."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A few words for people: the text itself, or what it is and how large."""

    @abstractmethod
    def check(self, limits: InputLimits = LIMITS) -> None:
        """Refuse it if it is larger than allowed."""

    @classmethod
    @abstractmethod
    def from_bytes(cls: type[Kind], data: bytes, where: str, limits: InputLimits = LIMITS) -> Kind:
        """From the content of a file; `where` is what errors call it."""


_Number = int | float


def _within(name: str, value: _Number, most: _Number, unit: str) -> None:
    if value > most:
        given, limit = (f"{each:,.2f}".removesuffix(".00") for each in (value, most))
        raise UserError(f"{name} of {given} {unit}; at most {limit} are allowed")


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save it as UTF-8") from None


def _json(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON: {error}") from None
    return value


class Written(Input):
    """An input that is written as text, so that a line can hold it."""

    @classmethod
    @abstractmethod
    def from_text(cls: type[WrittenKind], text: str, where: str) -> WrittenKind:
        """From a line or the text of a file; `where` is what errors call it."""

    @classmethod
    def from_bytes(
        cls: type[WrittenKind], data: bytes, where: str, limits: InputLimits = LIMITS
    ) -> WrittenKind:
        """UTF-8."""
        return cls.from_text(_decoded(data, where), where)


@dataclass(frozen=True)
class Text(Written):
    """One text."""

    text: str
    name = "a text"

    @property
    def title(self) -> str:
        """The text."""
        return self.text

    def check(self, limits: InputLimits = LIMITS) -> None:
        """Its length in characters."""
        _within(self.name, len(self.text), limits.characters, "characters")

    @classmethod
    def from_text(cls: type[TextKind], text: str, where: str) -> TextKind:
        """The text as it is."""
        return cls(text)


@dataclass(frozen=True)
class Document(Text):
    """A text of several lines or sentences, such as a whole file."""

    name = "a document"


@dataclass(frozen=True)
class Pair(Written):
    """Two texts: a premise and a hypothesis, a question and its passage."""

    first: str
    second: str
    name = "a pair of texts, separated by a tab"

    @property
    def title(self) -> str:
        """Both, separated by a tab."""
        return f"{self.first}\t{self.second}"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """The length of both together."""
        _within(self.name, len(self.first) + len(self.second), limits.characters, "characters")

    @classmethod
    def from_text(cls, text: str, where: str) -> "Pair":
        """Split at the first tab."""
        parts = text.split("\t", 1)
        if len(parts) != 2:
            raise UserError(f"{where}: expected {cls.name}")
        return cls(*parts)


@dataclass(frozen=True)
class Question(Pair):
    """A question and the story or document that it is about.

    >>> read_line(Question, "Where is Ann?\\tAnn went out. Bob slept.", "line 1").second
    'Ann went out. Bob slept.'
    """

    name = "a question and its story, separated by a tab"

    @classmethod
    def from_text(cls, text: str, where: str) -> "Question":
        """Split at the first tab."""
        pair = super().from_text(text, where)
        return cls(pair.first, pair.second)


_BROKEN_IMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error)
"""What Pillow raises for files that are no image, or only half of one."""


@dataclass(frozen=True, eq=False)
class Image(Input):
    """An image."""

    pixels: UInt8[Tensor, "C H W"]
    """One channel (grey) or three (red, green, blue)."""
    name = "an image"

    @property
    def title(self) -> str:
        """Its size."""
        return f"image of {self.pixels.shape[2]} x {self.pixels.shape[1]} pixels"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """Its size in pixels."""
        _within(self.name, self.pixels[0].numel(), limits.pixels, "pixels")

    @classmethod
    def from_bytes(cls, data: bytes, where: str, limits: InputLimits = LIMITS) -> "Image":
        """PNG, JPEG, WebP or GIF, rotated by its EXIF orientation; transparency becomes white."""
        pillow, operations = _package("PIL.Image", "vision"), _package("PIL.ImageOps", "vision")
        try:
            with pillow.open(io.BytesIO(data)) as file:
                _within(cls.name, file.width * file.height, limits.pixels, "pixels")
                turned = operations.exif_transpose(file).convert("RGBA")
        except (*_BROKEN_IMAGE, pillow.DecompressionBombError, RuntimeWarning) as error:
            raise UserError(f"{where}: not an image that can be read: {error}") from None
        paper = pillow.new("RGBA", turned.size, "white")
        paper.alpha_composite(turned)
        values = torch.frombuffer(bytearray(paper.convert("RGB").tobytes()), dtype=torch.uint8)
        return cls(values.view(turned.height, turned.width, 3).permute(2, 0, 1).contiguous())

    def data_address(self) -> str:
        """The image as a `data:` address of a PNG, for a page."""
        pillow = _package("PIL.Image", "vision")
        rows = self.pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous()
        picture = pillow.frombytes("RGB", (rows.shape[1], rows.shape[0]), rows.numpy().tobytes())
        file = io.BytesIO()
        picture.save(file, "PNG")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@dataclass(frozen=True, eq=False)
class Sound(Input):
    """A recording."""

    samples: Float[Tensor, "C N"]
    """Between -1 and 1, a row for each channel."""
    rate: int
    """Samples a second."""
    name = "a sound"

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.samples.shape[1] / self.rate

    @property
    def title(self) -> str:
        """Its length."""
        return f"sound of {self.seconds:.1f} seconds"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """Its length in seconds."""
        _within(self.name, self.seconds, limits.seconds, "seconds")

    @classmethod
    def from_bytes(cls, data: bytes, where: str, limits: InputLimits = LIMITS) -> "Sound":
        """WAV, FLAC or Ogg."""
        soundfile = _package("soundfile", "speech")
        try:
            with soundfile.SoundFile(io.BytesIO(data)) as file:
                _within(cls.name, len(file) / file.samplerate, limits.seconds, "seconds")
                samples, rate = file.read(dtype="float32", always_2d=True), file.samplerate
        except soundfile.LibsndfileError as error:
            raise UserError(f"{where}: not a sound that can be read: {error}") from None
        return cls(torch.from_numpy(samples.T.copy()), rate)


@dataclass(frozen=True, eq=False)
class Video(Input):
    """Images in time."""

    frames: UInt8[Tensor, "T C H W"]
    rate: float
    """Frames a second."""
    name = "a video"

    @property
    def title(self) -> str:
        """Its length and size."""
        count, _, height, width = self.frames.shape
        return f"video of {count / self.rate:.1f} seconds, {width} x {height} pixels"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """Frames, and pixels of each."""
        _within(self.name, len(self.frames), limits.frames, "frames")
        _within(self.name, self.frames[0, 0].numel(), limits.pixels, "pixels a frame")

    @classmethod
    def from_bytes(cls, data: bytes, where: str, limits: InputLimits = LIMITS) -> "Video":
        """Any container and codec that PyAV reads."""
        av = _package("av", "vision")
        frames: list[Tensor] = []
        try:
            with av.open(io.BytesIO(data)) as file:
                rate = float(file.streams.video[0].average_rate or 25)
                for frame in file.decode(video=0):
                    _within(cls.name, len(frames) + 1, limits.frames, "frames")
                    _within(cls.name, frame.width * frame.height, limits.pixels, "pixels a frame")
                    frames.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
        except (av.FFmpegError, IndexError) as error:
            raise UserError(f"{where}: not a video that can be read: {error}") from None
        if not frames:
            raise UserError(f"{where}: a video without frames")
        return cls(torch.stack(frames).permute(0, 3, 1, 2).contiguous(), rate)


@dataclass(frozen=True)
class Note:
    """One note."""

    pitch: int
    """As MIDI counts: 60 is middle C."""
    begin: float
    """In beats."""
    length: float
    velocity: int = 64


@dataclass(frozen=True)
class Music(Input):
    """A piece of music, as notes."""

    notes: tuple[Note, ...]
    name = "a piece of music"

    @property
    def title(self) -> str:
        """How many notes there are."""
        return f"piece of {len(self.notes):,} notes"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """How many notes there are."""
        _within(self.name, len(self.notes), limits.points, "notes")

    @classmethod
    def from_bytes(cls, data: bytes, where: str, limits: InputLimits = LIMITS) -> "Music":
        """MIDI: the notes of all tracks, in the order in which they begin."""
        symusic = _package("symusic", "music")
        try:
            score = symusic.Score.from_midi(data).to("quarter")
        except RuntimeError as error:
            raise UserError(f"{where}: not MIDI that can be read: {error}") from None
        every = (
            Note(each.pitch, each.time, each.duration, each.velocity)
            for track in score.tracks
            for each in track.notes
        )
        piece = cls(tuple(sorted(every, key=lambda each: (each.begin, each.pitch))))
        piece.check(limits)
        return piece


@dataclass(frozen=True, eq=False)
class Strokes(Input):
    """Points of a pen: how far right and down since the last point, and whether it is lifted."""

    points: Float[Tensor, "N 3"]
    name = "pen strokes"

    @property
    def title(self) -> str:
        """How many points there are."""
        return f"strokes of {len(self.points):,} points"

    def check(self, limits: InputLimits = LIMITS) -> None:
        """How many points there are."""
        _within(self.name, len(self.points), limits.points, "points")

    @classmethod
    def from_bytes(cls, data: bytes, where: str, limits: InputLimits = LIMITS) -> "Strokes":
        """JSON: a list of [right, down, lifted]."""
        try:
            points = torch.tensor(json.loads(_decoded(data, where)), dtype=torch.float32)
        except (ValueError, TypeError) as error:
            raise UserError(f"{where}: not a list of [right, down, lifted]: {error}") from None
        if points.dim() != 2 or points.shape[1] != 3:
            raise UserError(f"{where}: each point needs three numbers: right, down, lifted")
        strokes = cls(points)
        strokes.check(limits)
        return strokes


@dataclass(frozen=True)
class Several(Input):
    """Inputs that belong together, such as an image and a question about it."""

    parts: tuple[Input, ...]
    name = "several inputs"

    @property
    def title(self) -> str:
        """The titles of all parts."""
        return "; ".join(part.title for part in self.parts)

    def check(self, limits: InputLimits = LIMITS) -> None:
        """How many parts there are, and each of them."""
        _within(self.name, len(self.parts), limits.parts, "parts")
        for part in self.parts:
            part.check(limits)

    @classmethod
    def from_bytes(
        cls: type[SeveralKind], data: bytes, where: str, limits: InputLimits = LIMITS
    ) -> SeveralKind:
        """JSON: a list of `{"kind": "image", "input": ...}`; files are in base 64."""
        return cls.from_json(_json(_decoded(data, where), where), where, limits)

    @classmethod
    def from_json(
        cls: type[SeveralKind],
        value: object,
        where: str,
        limits: InputLimits = LIMITS,
        *,
        files: bool = False,
    ) -> SeveralKind:
        """From such a list; with `files`, a part may have the path of a file instead: `"file"`."""
        if not isinstance(value, list):
            raise UserError(f'{where}: expected a list of {{"kind": ..., "input": ...}}')
        _within(cls.name, len(value), limits.parts, "parts")
        parts: list[Input] = []
        for number, part in enumerate(value, start=1):
            place = f"{where}, part {number}"
            source = "file" if files and isinstance(part, dict) and "file" in part else "input"
            if not isinstance(part, dict) or {"kind", source} - part.keys():
                raise UserError(f'{place}: expected {{"kind": ..., "input": ...}}')
            kind = choose("kind of input", str(part["kind"]), INPUTS)
            if kind is Several:
                raise UserError(f"{place}: several inputs cannot be a part of several inputs")
            if source == "file":
                parts.append(read_file(kind, str(part["file"]), limits))
            else:
                parts.append(read_request(kind, part["input"], place, limits))
        return cls(tuple(parts))


INPUTS: dict[str, type[Input]] = {
    "text": Text,
    "document": Document,
    "pair": Pair,
    "question": Question,
    "image": Image,
    "sound": Sound,
    "video": Video,
    "music": Music,
    "strokes": Strokes,
    "several": Several,
}
"""Every kind of input by the name that a request gives it."""


def kind_name(kind: type[Input]) -> str:
    """What a request calls a kind: its name in `INPUTS`, or that of its class.

    >>> kind_name(Image)
    'image'
    """
    return next((name for name, each in INPUTS.items() if each is kind), kind.__name__.lower())


def written_kind(kinds: Sequence[type[Input]], text: str) -> type[Written] | None:
    """The kind that a text is, among some: a pair if it has a tab; None if none is written.

    >>> written_kind((Text, Pair), "a\\tb"), written_kind((Image,), "a")
    (<class 'regard.core.inputs.Pair'>, None)
    """
    written = [kind for kind in kinds if issubclass(kind, Written)]
    fitting = [kind for kind in written if issubclass(kind, Pair) == ("\t" in text)]
    return next(iter(fitting or written), None)


def read_file(kind: type[Kind], path: Path | str, limits: InputLimits = LIMITS) -> Kind:
    """The input in a file."""
    place = Path(path)
    try:
        size = place.stat().st_size
        _within(f"{place}: {kind.name}", size, limits.file_bytes, "bytes")
        data = place.read_bytes()
    except OSError as error:
        raise UserError(f"{place}: cannot be read: {error.strerror or error}") from None
    found = kind.from_bytes(data, str(place), limits)
    found.check(limits)
    return found


def read_line(kind: type[Kind], line: str, where: str, limits: InputLimits = LIMITS) -> Kind:
    """The input in a line: a text or a pair itself, of any other kind the path of a file.

    Several inputs are a JSON list, whose parts may name files.
    """
    if issubclass(kind, Several):
        several = kind.from_json(_json(line, where), where, limits, files=True)
        several.check(limits)
        return several
    if not issubclass(kind, Written):
        return read_file(kind, line.strip(), limits)
    found = kind.from_text(line, where)
    found.check(limits)
    return found


def read_request(kind: type[Kind], value: object, where: str, limits: InputLimits = LIMITS) -> Kind:
    """The input of a request: a text as a string, several as a list, all else as base 64."""
    if issubclass(kind, Several):
        several = kind.from_json(value, where, limits)
        several.check(limits)
        return several
    if not isinstance(value, str):
        raise UserError(f"{where}: expected {kind.name} as a string, not a {type(value).__name__}")
    if issubclass(kind, Written):
        return read_line(kind, value, where, limits)
    _within(f"{where}: {kind.name}", len(value) * 3 / 4, limits.file_bytes, "bytes")
    try:
        data = base64.b64decode(value.rpartition(",")[2], validate=True)
    except ValueError:
        raise UserError(f"{where}: expected {kind.name} as a file in base 64") from None
    found = kind.from_bytes(data, where, limits)
    found.check(limits)
    return found


def check_kind(given: Input, kinds: Sequence[type[Input]], task: str) -> None:
    """Refuse an input of a kind that a task does not take."""
    if not isinstance(given, tuple(kinds)):
        allowed = " or ".join(each.name for each in kinds)
        raise UserError(f"task {task} takes {allowed}, and was given {given.name}")


def _package(name: str, extra: str) -> ModuleType:
    """A module of a package that an extra of regard installs."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"this needs {name}: pip install 'regard[{extra}]'") from None
