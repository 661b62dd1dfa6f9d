"""Config: the settings of a recipe, frozen and checked.

A config is a frozen pydantic model that forbids unknown keys. `parse` reads one from the tables of
a TOML file and turns whatever is wrong into a UserError that names the path, the value, what is
allowed, and the nearest key.

>>> class Settings(Config):
...     clip: float = 1.0
>>> parse(Settings, {"clip": 0.5}, at="train")
Settings(clip=0.5)
>>> parse(Settings, {"clop": 0.5}, at="train")
Traceback (most recent call last):
regard.core.errors.UserError: unknown key 'train.clop': did you mean 'train.clip'? Known: clip
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from regard.core.errors import UserError, nearest


class Config(BaseModel):
    """Settings that cannot be changed and have no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Seed = Annotated[int, Field(ge=0, lt=2**62)]
"""A seed of random numbers; generators take no larger ones."""

_Model = TypeVar("_Model", bound=BaseModel)


def parse(config: type[_Model], given: Mapping[str, object], *, at: str = "") -> _Model:
    """The config with these keys and values; `at` is their place in the recipe, for errors.

    They pass through JSON, so that strictness has one meaning: a list may become a tuple and an
    integer a float, but true is not 1 and "3" is not 3.
    """
    try:
        return config.model_validate_json(json.dumps(given, default=str))
    except ValidationError as error:
        raise _user_error(config, error, at=at) from None


def _user_error(config: type[BaseModel], error: ValidationError, *, at: str = "") -> UserError:
    """The errors of pydantic, one after another."""
    return UserError("; ".join(_line(config, each, at) for each in error.errors()))


def _line(config: type[BaseModel], error: ErrorDetails, at: str) -> str:
    path, models = _place(config, error["loc"], at)
    value, kind, context = error["input"], error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, models)
    if kind == "missing":
        return f"{path} is missing"
    if kind.startswith("union_tag"):
        key = context["discriminator"].strip("'")
        tags = [tag for model in models for tag in get_args(model.model_fields[key].annotation)]
        return _not_among(f"{path}.{key}", context.get("tag"), tags)
    if kind == "literal_error":
        words = context["expected"].replace("'", "").replace(" or ", ", ")
        return _not_among(path, value, words.split(", "))
    if kind == "value_error":
        return f"{path}: {context['error']}" if path else str(context["error"])
    return f"{path}={value!r} {error['msg'].replace('Input should', 'must', 1)}"


def _not_among(path: str, value: object, allowed: Sequence[str]) -> str:
    guess = nearest(str(value), allowed)
    hint = f" did you mean {guess!r}?" if guess else ""
    wrong = f"{path} is missing:" if value is None else f"{path}={value!r} is not known:"
    return f"{wrong}{hint} Allowed: {', '.join(allowed)}"


def _unknown_key(path: str, models: Sequence[type[BaseModel]]) -> str:
    before, dot, key = path.rpartition(".")
    known = sorted({name for model in models for name in model.model_fields})
    guess = nearest(key, known)
    hint = f" did you mean {before + dot + guess!r}?" if guess else ""
    return f"unknown key {path!r}:{hint} Known: {', '.join(known)}"


def _place(
    config: type[BaseModel], location: Sequence[int | str], at: str
) -> tuple[str, Sequence[type[BaseModel]]]:
    """The path as it is in a recipe, and the models that may have its last key.

    The location of pydantic also has the tag of the model that it chose of several; a recipe does
    not.
    """
    path, models = at, _models_in(config)
    for depth, part in enumerate(location):
        tagged = [model for model in models if _has_tag(model, part)]
        if isinstance(part, int):
            path += f"[{part}]"
        elif len(models) > 1 and tagged:
            models = tagged
        else:
            path = f"{path}.{part}" if path else part
            fields = [model.model_fields[part] for model in models if part in model.model_fields]
            if fields or depth + 1 < len(location):
                models = [found for field in fields for found in _models_in(field.annotation)]
    return path, models


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _has_tag(model: type[BaseModel], tag: object) -> bool:
    kinds = (field.annotation for field in model.model_fields.values())
    return any(get_origin(kind) is Literal and tag in get_args(kind) for kind in kinds)
