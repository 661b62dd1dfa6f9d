"""A recipe with a mistake gets one line for it: the path, the value, what is allowed."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, ValidationError, model_validator

from regard.core.config import Config, parse
from regard.core.errors import UserError


class Circle(Config):
    name: Literal["circle"] = "circle"
    radius: float = Field(1.0, gt=0)


class Square(Config):
    name: Literal["square"] = "square"
    side: PositiveInt = 1


class Drawing(Config):
    width: PositiveInt
    colour: Literal["red", "green"] = "red"
    size: tuple[int, int] = (1, 1)
    shape: Annotated[Circle | Square, Field(discriminator="name")] = Circle()
    parts: tuple[Circle, ...] = ()

    @model_validator(mode="after")
    def fits(self) -> "Drawing":
        if self.size[0] > self.width:
            raise UserError(f"size[0]={self.size[0]} is above width={self.width}")
        return self


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "typo": ({"widht": 3, "width": 3}, "unknown key 'a.widht': did you mean 'a.width'? Known: "),
    "nothing near": ({"width": 3, "zzz": 3}, "unknown key 'a.zzz': Known: colour, parts, "),
    "missing": ({}, "a.width is missing"),
    "range": ({"width": 0}, "a.width=0 must be greater than 0"),
    "type": ({"width": "3"}, "a.width='3' must be a valid integer"),
    "truth is no number": ({"width": True}, "a.width=True must be a valid integer"),
    "not finite": (
        {"width": 3, "shape": {"name": "circle", "radius": float("nan")}},
        "a.shape.radius=nan must be a finite number",
    ),
    "choice": (
        {"width": 3, "colour": "gren"},
        "a.colour='gren' is not known: did you mean 'green'? Allowed: red, green",
    ),
    "name": (
        {"width": 3, "shape": {"name": "sqare"}},
        "a.shape.name='sqare' is not known: did you mean 'square'? Allowed: circle, square",
    ),
    "no name": (
        {"width": 3, "shape": {"side": 1}},
        "a.shape.name is missing: Allowed: circle, square",
    ),
    "typo under a name": (
        {"width": 3, "shape": {"name": "square", "siede": 1}},
        "unknown key 'a.shape.siede': did you mean 'a.shape.side'? Known: name, side",
    ),
    "value under a name": (
        {"width": 3, "shape": {"name": "square", "side": -1}},
        "a.shape.side=-1 must be greater than 0",
    ),
    "in a list": (
        {"width": 3, "parts": [{}, {"raduis": 2.0}]},
        "unknown key 'a.parts[1].raduis': did you mean 'a.parts[1].radius'? Known: name, radius",
    ),
    "two that disagree": ({"width": 3, "size": [4, 1]}, "a: size[0]=4 is above width=3"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_named_with_its_path_and_what_is_allowed(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        parse(Drawing, given, at="a")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_every_mistake_is_named_on_one_line() -> None:
    with pytest.raises(UserError) as caught:
        parse(Drawing, {"width": 0, "colour": "blue"})
    assert str(caught.value).count(";") == 1
    assert "\n" not in str(caught.value)


def test_what_toml_can_say_becomes_what_the_config_holds() -> None:
    given = {"width": 5, "size": [2, 3], "shape": {"name": "circle", "radius": 2}}
    drawing = parse(Drawing, given)
    assert drawing.size == (2, 3)
    assert drawing.shape == Circle(radius=2.0)


def test_a_config_cannot_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Circle().radius = 2.0
