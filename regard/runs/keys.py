"""Every key that a recipe may have: its type, default and meaning, from the configs themselves.

A table is `about`, `figure`, `train`, `data.TASK` or `model.KIND`. The meaning is the docstring
below the field; keys that mean the same in every table have theirs here.

>>> next(key for key in config_keys(Training, "train") if key.path == "train.clip").default
'none'
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.core.errors import unknown
from regard.models import MODELS
from regard.runs.plugins import config_of
from regard.runs.recipe import About, Figure
from regard.tasks import TASKS
from regard.train.settings import Training

_SHARED = {
    "activation": "The function between the two layers of a feed-forward block.",
    "alpha": "The exponent.",
    "batch": "Rows of a batch.",
    "betas": "The decay rates of the first and second moment.",
    "better": "Whether lower or higher values of the metric are better.",
    "cell": "The recurrent cell.",
    "cell_clip": "The largest absolute value of the cell's state.",
    "character_width": "The width of a character's vector.",
    "characters": "How the spelling of a word is read: by a CNN, an LSTM, or not at all.",
    "cross_weigh": "How scores become weights where the decoder attends to the source.",
    "decoder_layers": "Layers of the decoder.",
    "decoder_weigh": "How scores become weights where the decoder attends to itself.",
    "divide": "The divisor of the learning rate.",
    "dropout": "The share of values that is set to zero in training.",
    "encoder_layers": "Layers of the encoder.",
    "encoder_weigh": "How scores become weights where the encoder attends to itself.",
    "eps": "Added to a denominator, so that it is never zero.",
    "evaluate_batch": "Rows of a batch when measuring.",
    "heads": "Attention heads of a layer; they divide the width.",
    "highways": "Highway layers above the characters.",
    "init_range": "Word vectors begin uniformly between minus this and this.",
    "layers": "Layers, one above the other.",
    "beta2_decay": "The exponent of the decay of the second moment.",
    "length_penalty": "How the score of an output depends on its length.",
    "norm_eps": "Added to the variance in each norm.",
    "longest_question": "The most tokens of a question.",
    "lowercase": "Read everything in lower case.",
    "metric": "The name of the metric.",
    "min_frequency": "Rarer tokens are left out of the vocabulary.",
    "mix": "How the layers of the source run are mixed into one vector for each word.",
    "momentum": "The share of the last step that is added to the next.",
    "name": "Which one it is.",
    "nesterov": "Use Nesterov's momentum.",
    "optimiser": "The optimiser, a table with a name and its settings.",
    "position": "How positions are marked.",
    "schedule": "The learning rate over the training, a table with a name and its settings.",
    "score": "How well a key matches a query.",
    "seed": "The seed of the order of the data.",
    "shortest": "The fewest characters of a subword.",
    "source": "Where the figure comes from.",
    "split": "The split that is measured.",
    "test": "What to test on; without it there is no test split.",
    "title": "A line of description.",
    "tokeniser": "What a text is divided into; the vocabulary is learnt from the training data.",
    "validation": "What to validate on.",
    "warmup": "Updates in which the learning rate rises from zero.",
    "weigh": "How scores become weights.",
    "weight_decay": "How much matrices shrink in each step.",
    "width": "The width of a vector.",
    "words_dropout": "The share of words whose whole vector is set to zero in training.",
}
"""Keys that have one meaning wherever they have no docstring of their own."""


class Key(NamedTuple):
    """A key of a recipe."""

    path: str
    type: str
    default: str
    """"required" if there is none."""
    meaning: str


def tables_of_recipes() -> dict[str, type[BaseModel]]:
    """Every table that a recipe may have, by the name that `regard recipe keys` takes."""
    return {
        "about": About,
        "figure": Figure,
        "train": Training,
        **{f"data.{name}": config_of("task", name) for name in TASKS},
        **{f"model.{name}": config_of("model", name) for name in MODELS},
    }


def keys_in(table: str) -> list[Key]:
    """The keys of a table, inner tables included."""
    tables = tables_of_recipes()
    if table not in tables:
        bare = {name.partition(".")[2]: name for name in tables if "." in name}
        if table not in bare:
            raise unknown("table of recipes", table, tables)
        table = bare[table]
    return list(config_keys(tables[table], table.split(".")[0]))


def config_keys(config: type[BaseModel], at: str) -> Iterator[Key]:
    """The keys of a config; `at` is the path of its table in a recipe."""
    meanings = _docstrings(config)
    for name, field in config.model_fields.items():
        path = f"{at}.{name}"
        inner = _models_of(field.annotation)
        meaning = meanings.get(name) or _SHARED.get(name, "")
        yield Key(path, _type_of(field), _default_of(field), meaning)
        yield from _keys_of_either(inner, path)


def _keys_of_either(models: Sequence[type[BaseModel]], at: str) -> Iterator[Key]:
    """The keys of an inner table; of several that `name` selects from, each with those names."""
    names: dict[Key, list[str]] = {}
    for model in models:
        for key in config_keys(model, at):
            if not (_tag_of(model) and key.path == f"{at}.name"):
                names.setdefault(key, []).append(_tag_of(model))
    for key, some in names.items():
        each = ", ".join(filter(None, some))
        all_have_it = len(some) == len(models) or not each
        yield key if all_have_it else key._replace(meaning=f"({each}) {key.meaning}")


@cache
def _docstrings(config: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field, those of base classes included."""
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        if not (issubclass(each, BaseModel) and each.__module__.startswith("regard")):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(node, ast.ClassDef)
        for field, below in zip(node.body, node.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found


def _models_of(annotation: object) -> list[type[BaseModel]]:
    """The configs in a type, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_of(part)]


def _tag_of(model: type[BaseModel]) -> str:
    """The value of `name` that selects one config of several; "" if nothing does."""
    field = model.model_fields.get("name")
    values = () if field is None else get_args(field.annotation)
    return str(values[0]) if len(values) == 1 else ""


def _type_of(field: FieldInfo) -> str:
    """The type of a field with its bounds."""
    bounds = [
        f"{sign} {getattr(each, key)}"
        for each in field.metadata
        for key, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
        if getattr(each, key, None) is not None
    ]
    return " ".join([_written(field.annotation), *bounds])


def _written(annotation: object) -> str:
    """A type in the words of TOML.

    >>> _written(int | None), _written(Literal["a", "b"]), _written(tuple[str, ...])
    ('integer', '"a" | "b"', 'list of text')
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        field = FieldInfo.from_annotation(annotation)  # type: ignore[arg-type]
        return _type_of(field)
    if origin is Literal:
        return " | ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in parts)
    if origin in (Union, UnionType):
        some = dict.fromkeys(_written(each) for each in parts if each is not NoneType)
        tables = [each for each in parts if _models_of(each)]
        return "table" if len(tables) == len(parts) else " | ".join(some)
    if origin in (tuple, list):
        some = dict.fromkeys(_written(each) for each in parts if each is not Ellipsis)
        many = "" if Ellipsis in parts or origin is list else f"{len(parts)} "
        return f"list of {many}{' | '.join(some)}"
    if origin is dict:
        return f"table of {_written(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    names = {int: "integer", float: "number", str: "text", bool: "true | false"}
    return next((name for kind, name in names.items() if annotation is kind), _bare(annotation))


def _bare(annotation: object) -> str:
    """A type that has no name in TOML, as Python writes it."""
    return re.sub(r"[\w.]*\.", "", getattr(annotation, "__name__", str(annotation)))


def _default_of(field: FieldInfo) -> str:
    """The default as a recipe would write it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return _toml(value)


def _toml(value: object) -> str:
    """A value as TOML.

    >>> _toml(True), _toml(("a", 1)), _toml(None)
    ('true', '["a", 1]', 'none')
    """
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case BaseModel():
            held = value.model_dump(exclude_none=True)
            return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in held.items()) + " }"
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return str(value)


def reference() -> str:
    """All keys of all tables as a page of Markdown."""
    parts = [
        "# Every key of a recipe",
        "",
        "Made by `regard recipe keys --markdown` from the docstrings of the package.",
        "",
    ]
    for table in tables_of_recipes():
        parts += [f"## {table}", "", "| key | type | default | meaning |", "| --- " * 4 + "|"]
        parts += [
            f"| `{key.path}` | {_cell(key.type)} | {_cell(key.default)} | {_cell(key.meaning)} |"
            for key in keys_in(table)
        ]
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    """A text as a cell of a table: bars and angle brackets are not markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
