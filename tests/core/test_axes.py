"""Axes: one label for each position, the same after JSON, and only pictures a page may load."""

import json
from dataclasses import replace

import pytest

from regard.core.axes import (
    AXES,
    Axis,
    Characters,
    Frames,
    Notes,
    Patches,
    Sentences,
    Slots,
    Steps,
    Tokens,
    as_axis,
    axis_from_json,
)
from regard.core.errors import UserError

DOTS = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nG"
    "M4wcDAxRUFAAVDATeKhVV/AAAAAElFTkSuQmCC"
)
"""Two pixels."""

EXAMPLES: dict[str, Axis] = {
    "tokens": Tokens(labels=("un", "chat", "")),
    "characters": Characters(labels=("a", "\n", "<b>")),
    "sentences": Sentences(labels=("One.", "Two.", "Three.")),
    "steps": Steps.of(3),
    "slots": Slots.of(3),
    "patches": Patches.grid(1, 3, width=12, height=4, picture=DOTS),
    "frames": Frames.regular(3, 0.25, envelope=(0.0, 0.5, 1.0, 0.5), picture=DOTS),
    "notes": Notes(
        labels=("C4", "E4", "G4"), notes=((60, 0.0, 1.0), (64, 1.0, 0.5), (67, 2.0, 4.0))
    ),
}


def test_every_kind_has_an_example() -> None:
    assert EXAMPLES.keys() == AXES.keys()


@pytest.mark.parametrize("axis", EXAMPLES.values(), ids=EXAMPLES)
def test_an_axis_is_the_same_after_json(axis: Axis) -> None:
    again = axis_from_json(json.loads(json.dumps(axis.to_json())))
    assert again == axis
    assert type(again) is type(axis)
    assert hash(again) == hash(axis)


@pytest.mark.parametrize("axis", EXAMPLES.values(), ids=EXAMPLES)
def test_taking_positions_takes_everything_that_belongs_to_them(axis: Axis) -> None:
    taken = axis.take([2, 0])
    for name in axis.per_position:
        whole = getattr(axis, name)
        assert getattr(taken, name) == (whole[2], whole[0])
    for name in axis.to_json().keys() - set(axis.per_position) - {"kind"}:
        assert getattr(taken, name) == getattr(axis, name)


def test_an_axis_is_a_sequence_of_its_labels() -> None:
    axis = as_axis("abc")
    assert (len(axis), axis[1], axis[1:], [*axis], "c" in axis) == (
        *(3, "b", ("b", "c"), ["a", "b", "c"], True),
    )
    assert as_axis(axis) is axis


def test_patches_lie_on_their_image_row_by_row() -> None:
    axis = Patches.grid(2, 3, width=30, height=10)
    assert axis.labels == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    assert axis.boxes[4] == (10.0, 5.0, 10.0, 5.0)


def test_frames_have_a_span_of_time() -> None:
    assert Frames.regular(4, 0.25).span == (0.0, 1.0)
    assert Frames(labels=("b", "a"), times=((1.0, 2.0), (0.5, 0.75))).span == (0.5, 2.0)


WRONG: dict[str, tuple[object, str]] = {
    "a text": ("tokens", "must be a JSON object or a list, not a str"),
    "a number in a list": (["a", 3], "labels.1 .*valid string"),
    "no kind": ({"labels": ["a"]}, "kind of axis"),
    "an unknown kind": ({"kind": "token", "labels": ["a"]}, "did you mean 'tokens'"),
    "an unknown field": ({"kind": "tokens", "labels": [], "src": ""}, "of tokens has no src"),
    "a missing field": ({"kind": "frames", "labels": ["a"]}, "times is missing"),
    "a number as label": ({"kind": "slots", "labels": [1]}, "labels.0 .*valid string"),
    "a text as number": (
        {"kind": "patches", "labels": ["a"], "boxes": [[0, 0, "1", 1]], "width": 1, "height": 1},
        "boxes.0.2 .*valid number",
    ),
    "three numbers of a box": (
        {"kind": "patches", "labels": ["a"], "boxes": [[0, 0, 1]], "width": 1, "height": 1},
        "boxes.0.3 is missing",
    ),
    "fewer boxes than labels": (
        {"kind": "patches", "labels": ["a"], "boxes": [], "width": 1, "height": 1},
        "0 boxes for 1 labels",
    ),
    "no labels but times": (
        {"kind": "frames", "labels": [], "times": [[0, 1]]},
        "1 times for 0 labels",
    ),
    "an image of nothing": (
        {"kind": "patches", "labels": [], "boxes": [], "width": 0, "height": 1},
        "0 x 1 pixels",
    ),
    "a negative size": (
        {"kind": "patches", "labels": ["a"], "boxes": [[0, 0, -1, 1]], "width": 1, "height": 1},
        "is not left, top, width and height",
    ),
    "an end before its beginning": (
        {"kind": "frames", "labels": ["a"], "times": [[1, 0]]},
        "1.0 to 0.0 seconds",
    ),
    "an endless loudness": (
        {"kind": "frames", "labels": [], "times": [], "envelope": [float("nan")]},
        "must be finite",
    ),
    "a picture from elsewhere": (
        {"kind": "frames", "labels": [], "times": [], "picture": "https://example.org/a.png"},
        "must be a data: address",
    ),
    "a picture that is markup": (
        {"kind": "frames", "labels": [], "times": [], "picture": "data:image/svg+xml,<svg/>"},
        "must be a data: address",
    ),
}


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_axis_is_refused(value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        axis_from_json(value)


def test_a_picture_is_checked_wherever_an_axis_comes_from() -> None:
    with pytest.raises(UserError, match="must be a data: address"):
        replace(EXAMPLES["patches"], picture="javascript:alert(1)")  # type: ignore[call-arg]
