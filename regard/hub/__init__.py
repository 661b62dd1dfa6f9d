"""The door to other projects' checkpoints: their folders in, the same folders out.

>>> import tempfile
>>> from regard.models.text.bert import BERT, Encoding
>>> folder = Path(tempfile.mkdtemp())
>>> config = BERT.Config(encoder=Encoding(width=8, heads=2, layers=1, context=9))
>>> model = BERT(config, vocabulary=11)
>>> _ = save_pretrained(Ours(kind="bert", model=model, sizes={"vocabulary": 11}), folder)
>>> loaded = from_pretrained(folder)
>>> loaded.family, loaded.plan.kind, loaded.told
('bert', 'bert', ())
>>> torch.equal(loaded.model.encoder.norm.weight, model.encoder.norm.weight)
True
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from regard.core.errors import UserError, choose, nearest
from regard.hub import bert, distilbert, gpt, gpt2, marian, roberta
from regard.hub.family import Family, Ours, Plan, architecture_of
from regard.hub.keys import Table, to_ours, to_theirs
from regard.hub.store import (
    CONFIG,
    SHARD_BYTES,
    Settings,
    read_settings,
    read_tensors,
    write_folder,
)
from regard.hub.uninitialised import Undrawn
from regard.models import MODELS

FAMILIES: dict[str, Family] = {
    each.name: each
    for each in (
        bert.FAMILY,
        roberta.FAMILY,
        distilbert.FAMILY,
        gpt2.FAMILY,
        gpt.FAMILY,
        marian.FAMILY,
    )
}
"""Every kind of foreign model that is known, by its `model_type`."""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""How weights can be written."""


@dataclass(frozen=True)
class Loaded:
    """A foreign checkpoint as a model of ours."""

    family: str
    plan: Plan
    model: nn.Module
    told: tuple[str, ...]
    """What there is to say of its tensors: tied ones that differ, those left out, their kind; and
    of settings that are not followed."""


def from_pretrained(folder: Path, architecture: str | None = None) -> Loaded:
    """The model of a folder, with its weights; of another architecture than it says, if asked.

    What the config asks for and the weights are, down to the shapes, is compared before anything
    is built.
    """
    settings = read_settings(folder)
    family = family_of(settings)
    plan = planned(family, settings, architecture)
    tensors = read_tensors(folder)
    if plan.otherwise is not None and plan.table.lacks(tensors):
        plan = plan.otherwise
    if architecture is None and not settings.has("architectures") and plan.table.lacks(tensors):
        raise unnamed(family, settings, tensors)
    with blamed(settings.path):
        shapes = {name: each.shape for name, each in empty(plan).state_dict().items()}
    ours, told = to_ours(plan.table, tensors, shapes, str(folder))
    with Undrawn():
        model = MODELS[plan.kind](plan.model, **plan.sizes)
    model.load_state_dict(ours)
    return Loaded(family.name, plan, model.eval(), (*told, *plan.told))


def save_pretrained(
    ours: Ours,
    folder: Path,
    *,
    family: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    dtype: str = "float32",
) -> list[Path]:
    """Write a model as a folder that `transformers` loads, in the first family that can hold it."""
    kind = choose("kind of weights", dtype, DTYPES)
    chosen, config, table = written_as(ours, family)
    tensors = to_theirs(table, ours.model.state_dict())
    tensors = {name: each.to("cpu", kind) for name, each in tensors.items()}
    files = {CONFIG: {**config, "dtype": dtype}}
    generation = {} if chosen.generation is None else chosen.generation(ours)
    if generation:
        files["generation_config.json"] = generation
    return write_folder(folder, files, tensors, shard_bytes=shard_bytes)


def written_as(ours: Ours, family: str | None) -> tuple[Family, dict[str, object], Table]:
    """The family that holds a model, its config there, and where its tensors go."""
    known = {name: each for name, each in FAMILIES.items() if ours.kind in each.kinds.values()}
    if not known:
        held = sorted({kind for each in FAMILIES.values() for kind in each.kinds.values()})
        raise UserError(
            f"a {ours.kind} cannot be written for transformers, which has no such model; "
            f"these can: {', '.join(held)}"
        )
    if family is not None:
        known = {family: choose("family for this model", family, known)}
    reasons = []
    for name, each in known.items():
        config = each.theirs(ours)
        found = differs(each, config, ours)
        if isinstance(found, Table):
            return each, config, found
        reasons.append(f"{name} {found}")
    raise UserError(f"this {ours.kind} cannot be written for transformers: {'; '.join(reasons)}")


def differs(family: Family, config: dict[str, object], ours: Ours) -> Table | str:
    """The table of a config, if it comes to the same model when it is read; else what it cannot."""
    settings = Settings(Path(CONFIG), config)
    plan: Plan | None = planned(family, settings)
    wanted, reason = dict(family.computes(ours.model)), "has other tensors"
    while plan is not None:
        there = family.computes(empty(plan))
        other = [name for name in wanted if there.get(name) != wanted[name]]
        if not other and set(empty(plan).state_dict()) == set(ours.model.state_dict()):
            return plan.table
        if other:
            reason = f"has {other[0]}={there.get(other[0])}, not {wanted[other[0]]}"
        plan = plan.otherwise
    return reason


def planned(family: Family, settings: Settings, architecture: str | None = None) -> Plan:
    """What a config means here; settings that no model of ours can have are refused."""
    with blamed(settings.path):
        return family.ours(settings, architecture_of(settings, family, architecture))


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """What cannot be, told with the file that asks for it, unless one of its folder is named."""
    try:
        yield
    except UserError as problem:
        where = "" if str(path.parent) in str(problem) else f"{path}: "
        raise UserError(f"{where}{problem}") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(each) for each in first["loc"])
        given = f"{place}={first['input']!r} " if place else ""
        said = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
        raise UserError(f"{path}: {given}{said}") from None


def unnamed(family: Family, settings: Settings, tensors: Mapping[str, Tensor]) -> UserError:
    """No architecture is named, and the first of the family is not it: those that would do."""
    fits: dict[str, int] = {}
    for name in family.kinds:
        try:
            table = planned(family, settings, name).table
        except UserError:
            continue  # its settings are not those of this one
        if not table.lacks(tensors):
            fits[name] = len(table.every)
    best = sorted(fits, key=lambda name: -fits[name]) or list(family.kinds)
    return UserError(
        f"{settings.path}: names no architectures; say --architecture, for these weights "
        f"{' or '.join(best)}"
    )


def empty(plan: Plan) -> nn.Module:
    """The model of a plan without memory for its weights: names, shapes and settings."""
    with torch.device("meta"), Undrawn():
        return MODELS[plan.kind](plan.model, **plan.sizes)


def family_of(settings: Settings) -> Family:
    """The family of a config; one that is not known is told which are, the nearest first."""
    name = settings.word("model_type")
    if name not in FAMILIES:
        near = nearest(name, FAMILIES)
        order = sorted(FAMILIES, key=lambda each: (each != near, each))
        said = settings.words("architectures")
        what = f" ({', '.join(said)})" if said else ""
        raise UserError(
            f"{settings.path}: models of the type {name!r}{what} are not known here. "
            f"Known: {', '.join(order)}"
        )
    return FAMILIES[name]
