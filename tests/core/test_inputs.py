"""Inputs: each kind from a file, a line and a request; limits; errors in one line."""

import base64
import io
import json
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.core.inputs import (
    INPUTS,
    LIMITS,
    Document,
    Image,
    Input,
    Music,
    Pair,
    Several,
    Sound,
    Strokes,
    Text,
    Video,
    check_kind,
    kind_name,
    read_file,
    read_line,
    read_request,
    written_kind,
)

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def png(width: int = 3, height: int = 2, mode: str = "RGB", colour: object = (250, 0, 7)) -> bytes:
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.new(mode, (width, height), colour).save(file, "PNG")
    return file.getvalue()


def wav(seconds: float = 0.5, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(b"\x00\x40" * int(seconds * rate))
    return file.getvalue()


def midi() -> bytes:
    symusic = pytest.importorskip("symusic")
    score = symusic.Score(480)
    track = symusic.Track()
    track.notes.append(symusic.Note(480, 240, 64, 90))
    track.notes.append(symusic.Note(0, 480, 60, 80))
    score.tracks.append(track)
    return bytes(score.dumps_midi())


def video(frames: int = 3) -> bytes:
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as writer:
        stream = writer.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for _ in range(frames):
            pixels = torch.zeros(16, 32, 3, dtype=torch.uint8).numpy()
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                writer.mux(packet)
        for packet in stream.encode():
            writer.mux(packet)
    return file.getvalue()


def sound_file() -> bytes:
    pytest.importorskip("soundfile")
    return wav()


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"a cat", "a cat"),
    "document": (lambda: b"a cat\na dog", "a cat\na dog"),
    "pair": (lambda: b"who?\ta cat", "who?\ta cat"),
    "question": (lambda: b"who?\ta cat. a dog.", "who?\ta cat. a dog."),
    "image": (png, "image of 3 x 2 pixels"),
    "sound": (sound_file, "sound of 0.5 seconds"),
    "video": (video, "video of 0.3 seconds, 32 x 16 pixels"),
    "music": (midi, "piece of 2 notes"),
    "strokes": (lambda: b"[[1, 0, 0], [0, 2.5, 1]]", "strokes of 2 points"),
    "several": (
        lambda: json.dumps(
            [
                {"kind": "image", "input": base64.b64encode(png()).decode()},
                {"kind": "text", "input": "what is it?"},
            ]
        ).encode(),
        "image of 3 x 2 pixels; what is it?",
    ),
}
"""A file of each kind, and its title."""


def test_every_kind_has_a_file() -> None:
    assert FILES.keys() == INPUTS.keys()


@pytest.mark.parametrize("name", INPUTS)
def test_a_kind_is_the_same_from_a_file_a_line_and_a_request(name: str, tmp_path: Path) -> None:
    (write, title), kind = FILES[name], INPUTS[name]
    data = write()
    (tmp_path / "file").write_bytes(data)
    written = name in ("text", "document", "pair", "question", "several")
    line = data.decode() if written else f"{tmp_path / 'file'}\n"
    value: object = data.decode() if written else base64.b64encode(data).decode()
    value = json.loads(data) if name == "several" else value
    every: list[Input] = [
        read_file(kind, tmp_path / "file"),
        read_line(kind, line, "line 1"),
        read_request(kind, value, "input"),
    ]
    assert [each.title for each in every] == [title] * 3
    assert all(type(each) is kind for each in every)
    assert kind_name(kind) == name


def test_an_image_has_its_pixels_upright_and_on_white() -> None:
    image = Image.from_bytes(png(), "cat.png")
    assert image.pixels.shape == (3, 2, 3)
    assert image.pixels[:, 0, 0].tolist() == [250, 0, 7]
    clear = Image.from_bytes(png(mode="RGBA", colour=(9, 9, 9, 0)), "cat.png")
    assert clear.pixels.unique().tolist() == [255]
    again = Image.from_bytes(base64.b64decode(image.data_address().partition(",")[2]), "again")
    assert torch.equal(again.pixels, image.pixels)


def test_a_sound_has_samples_between_minus_one_and_one() -> None:
    pytest.importorskip("soundfile")
    sound = Sound.from_bytes(wav(), "a.wav")
    assert sound.samples.shape == (1, 4000)
    assert sound.rate == 8000
    assert sound.samples.unique().tolist() == [0.5]


def test_notes_are_in_the_order_in_which_they_begin() -> None:
    piece = Music.from_bytes(midi(), "a.mid")
    assert [(each.pitch, each.begin, each.length) for each in piece.notes] == [
        (60, 0.0, 1.0),
        (64, 1.0, 0.5),
    ]


def test_a_video_has_its_frames_and_their_rate() -> None:
    film = Video.from_bytes(video(), "a.mkv")
    assert film.frames.shape == (3, 3, 16, 32)
    assert film.rate == 10


LARGE: dict[str, tuple[dict[str, float], str]] = {
    "text": ({"characters": 4}, "a text of 5 characters; at most 4 are allowed"),
    "pair": ({"characters": 8}, "of 9 characters; at most 8 are allowed"),
    "image": ({"pixels": 5}, "an image of 6 pixels; at most 5 are allowed"),
    "sound": ({"seconds": 0.25}, "a sound of 0.50 seconds; at most 0.25 are allowed"),
    "video": ({"frames": 2}, "a video of 3 frames; at most 2 are allowed"),
    "music": ({"points": 1}, "a piece of music of 2 notes; at most 1 are allowed"),
    "strokes": ({"points": 1}, "pen strokes of 2 points; at most 1 are allowed"),
    "several": ({"parts": 1}, "several inputs of 2 parts; at most 1 are allowed"),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_larger_than_allowed_is_refused(name: str, tmp_path: Path) -> None:
    limits, message = LARGE[name]
    (tmp_path / "file").write_bytes(FILES[name][0]())
    with pytest.raises(UserError, match=message):
        read_file(INPUTS[name], tmp_path / "file", replace(LIMITS, **limits))
    with pytest.raises(UserError, match="bytes; at most 3 are allowed"):
        read_file(INPUTS[name], tmp_path / "file", replace(LIMITS, file_bytes=3))


BROKEN: dict[str, tuple[type[Input], bytes, str]] = {
    "bytes as a text": (Text, b"caf\xe9", "here: byte 4 is not UTF-8"),
    "a pair without a tab": (Pair, b"a cat", "here: expected a pair of texts, separated by a tab"),
    "no image": (Image, b"GIF89a", "here: not an image that can be read"),
    "half an image": (Image, png(30, 30)[:60], "here: not an image that can be read"),
    "no sound": (Sound, b"RIFF", "here: not a sound that can be read"),
    "no video": (Video, b"junk", "here: not a video that can be read"),
    "no MIDI": (Music, b"junk", "here: not MIDI that can be read"),
    "no JSON": (Strokes, b"[[1, 2", "here: not a list of"),
    "two numbers": (Strokes, b"[[1, 2]]", "here: each point needs three numbers"),
    "words": (Strokes, b'[["a", "b", "c"]]', "here: not a list of"),
    "several of nothing": (Several, b"{}", "here: expected a list of"),
    "a part without an input": (Several, b'[{"kind": "text"}]', "here, part 1: expected"),
    "an unknown kind": (Several, b'[{"kind": "txt", "input": ""}]', "did you mean 'text'"),
    "several of several": (
        Several,
        b'[{"kind": "several", "input": "[]"}]',
        "part 1: several inputs cannot be a part",
    ),
    "a file in a request": (Several, b'[{"kind": "text", "file": "/etc/passwd"}]', "expected"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_in_one_line(case: str) -> None:
    kind, data, message = BROKEN[case]
    needs = {Image: "PIL", Sound: "soundfile", Video: "av", Music: "symusic"}
    if kind in needs:
        pytest.importorskip(needs[kind])
    with pytest.raises(UserError, match=message) as raised:
        kind.from_bytes(data, "here")
    assert "\n" not in str(raised.value)


@settings(deadline=None, max_examples=60)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_any_damage_to_an_image_is_an_error_or_an_image(place: int, byte: int, cut: int) -> None:
    data = bytearray(png(9, 9))
    data[place % len(data)] = byte
    try:
        found = Image.from_bytes(bytes(data[: len(data) - cut % len(data)]), "cat.png")
    except UserError:
        return
    assert found.pixels.dim() == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.png: cannot be read: No such file"):
        read_line(Image, str(tmp_path / "none.png"), "stdin:1")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_file(Image, tmp_path)


def test_several_inputs_of_a_line_may_name_files(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(png())
    parts = [{"kind": "image", "file": str(tmp_path / "cat.png")}, {"kind": "text", "input": "?"}]
    found = read_line(Several, json.dumps(parts), "stdin:1")
    assert [type(part) for part in found.parts] == [Image, Text]


def test_a_request_has_strings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="input: expected an image as a string, not a int"):
        read_request(Image, 3, "input")
    with pytest.raises(UserError, match="input: expected an image as a file in base 64"):
        read_request(Image, "/etc/passwd!", "input")
    address = "data:image/png;base64," + base64.b64encode(png()).decode()
    assert read_request(Image, address, "input").title == "image of 3 x 2 pixels"


def test_an_input_of_the_wrong_kind_is_named() -> None:
    sound = Sound(torch.zeros(1, 8), 8000)
    with pytest.raises(UserError, match="task translate takes a text, and was given a sound"):
        check_kind(sound, (Text,), "translate")
    check_kind(Document("a\nb"), (Text,), "classify")
    with pytest.raises(UserError, match=r"takes a text or a pair of texts.* was given a sound"):
        check_kind(sound, (Text, Pair), "masked_lm")


def test_a_text_is_a_pair_where_it_can_be_one() -> None:
    assert written_kind((Text, Pair), "a\tb") is Pair
    assert written_kind((Text, Pair), "a b") is Text
    assert written_kind((Text,), "a\tb") is Text
    assert written_kind((Image, Pair), "a b") is Pair
    assert written_kind((Image, Several), "a b") is None


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(UserError, match=r"this needs soundfile: pip install 'regard\[speech\]'"):
        Sound.from_bytes(wav(), "a.wav")
