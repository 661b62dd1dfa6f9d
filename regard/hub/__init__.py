"""The door to other projects' checkpoints: their folders in, the same folders out.

>>> import tempfile
>>> from regard.models.text.bert import BERT, Encoding
>>> folder = Path(tempfile.mkdtemp())
>>> config = BERT.Config(encoder=Encoding(width=8, heads=2, layers=1, context=9))
>>> model = BERT(config, vocabulary=11)
>>> _ = write_checkpoint(ModelToWrite(kind="bert", model=model, sizes={"vocabulary": 11}), folder)
>>> loaded = read_checkpoint(folder)
>>> loaded.family, loaded.plan.kind, loaded.notes
('bert', 'bert', ())
>>> torch.equal(loaded.model.encoder.norm.weight, model.encoder.norm.weight)
True
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from regard.core.errors import UserError, choose, nearest
from regard.hub import bert, distilbert, gpt, gpt2, marian, roberta
from regard.hub.family import Family, ModelPlan, ModelToWrite, architecture_of
from regard.hub.keys import TensorTable, tensors_to_ours, tensors_to_theirs
from regard.hub.store import (
    CONFIG_FILE,
    SHARD_BYTES,
    ConfigValues,
    ShapesOnly,
    SkipInitialisation,
    read_config,
    read_tensors,
    write_folder,
)
from regard.models import MODELS
from regard.models.language.gpt import with_biases

FAMILIES: dict[str, Family] = {
    each.name: each
    for each in (
        bert.BERT_FAMILY,
        roberta.ROBERTA_FAMILY,
        roberta.XLM_ROBERTA_FAMILY,
        roberta.CAMEMBERT_FAMILY,
        distilbert.DISTILBERT_FAMILY,
        gpt2.GPT2_FAMILY,
        gpt.OPENAI_GPT_FAMILY,
        marian.MARIAN_FAMILY,
    )
}
"""Every kind of foreign model that is known, by its `model_type`."""

WEIGHT_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""How weights can be written."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A foreign checkpoint as a model of ours."""

    family: str
    plan: ModelPlan
    model: nn.Module
    notes: tuple[str, ...]
    """What there is to say of its tensors: tied ones that differ, those left out, their kind; and
    of settings that are not followed."""


def read_checkpoint(folder: Path, architecture: str | None = None) -> LoadedCheckpoint:
    """The model of a folder, with its weights; of another architecture than it says, if asked.

    What the config asks for and the weights are, down to the shapes, is compared before anything
    is built.
    """
    settings = read_config(folder)
    family = family_of(settings)
    plan = plan_of(family, settings, architecture)
    tensors = read_tensors(folder)
    plan, tensors, untied = untie(family, settings, plan, tensors, architecture)
    if plan.fallback is not None and plan.table.missing(tensors):
        plan = plan.fallback
    if architecture is None and not settings.has("architectures") and plan.table.missing(tensors):
        raise missing_architecture_error(family, settings, tensors)
    with errors_with_file(settings.path):
        shapes = {
            name: each.shape for name, each in model_without_weights(plan).state_dict().items()
        }
    ours, notes = tensors_to_ours(plan.table, tensors, shapes, str(folder))
    with SkipInitialisation():
        model = MODELS[plan.kind](plan.model, **plan.sizes)
    model.load_state_dict(ours)
    return LoadedCheckpoint(family.name, plan, model.eval(), (*untied, *notes, *plan.notes))


def untie(
    family: Family,
    settings: ConfigValues,
    plan: ModelPlan,
    tensors: dict[str, Tensor],
    architecture: str | None,
) -> tuple[ModelPlan, dict[str, Tensor], tuple[str, ...]]:
    """The plan of a file whose tied tensors differ: both are used, as transformers does.

    A file that holds tensors twice, with different numbers, is that of a model without ties,
    whatever its config says.
    """
    differing = plan.table.differing(tensors)
    if not differing:
        return plan, tensors, ()
    name, first = next(iter(differing.items()))
    where = f"{name} is not {first}, though the config ties them (tie_word_embeddings)"
    try:
        loose = ConfigValues(settings.path, {**settings.values, "tie_word_embeddings": False})
        new = plan_of(family, loose, architecture)
    except UserError:
        raise UserError(
            f"{settings.path}: {where}, and this model cannot be read without the tie; remove the "
            "one that is wrong from the weights"
        ) from None
    held = plan.table.renamed(tensors)
    copies = {one: tensors[held[two]] for one, two in plan.table.tied.items() if one not in held}
    return new, {**tensors, **copies}, (f"{where}; both are used",)


def write_checkpoint(
    ours: ModelToWrite,
    folder: Path,
    *,
    family: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    dtype: str = "float32",
) -> list[Path]:
    """Write a model as a folder that `transformers` loads, in the first family that can hold it."""
    kind = choose("kind of weights", dtype, WEIGHT_DTYPES)
    ours = replace(ours, model=with_biases(ours.model))
    chosen, config, table = choose_family(ours, family)
    tensors = tensors_to_theirs(table, ours.model.state_dict())
    tensors = {name: each.to("cpu", kind) for name, each in tensors.items()}
    files = {CONFIG_FILE: {**config, "dtype": dtype}}
    generation = {} if chosen.generation is None else chosen.generation(ours)
    if generation:
        files["generation_config.json"] = generation
    return write_folder(folder, files, tensors, shard_bytes=shard_bytes)


def choose_family(
    ours: ModelToWrite, family: str | None
) -> tuple[Family, dict[str, object], TensorTable]:
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
        config = each.write(ours)
        try:
            found = match_family(each, config, ours)
        except UserError as problem:  # a setting that this family cannot have
            found = f"cannot hold it: {str(problem).removeprefix(f'{CONFIG_FILE}: ')}"
        if isinstance(found, TensorTable):
            return each, config, found
        reasons.append(f"{name} {found}")
    raise UserError(f"this {ours.kind} cannot be written for transformers: {'; '.join(reasons)}")


def match_family(
    family: Family, config: dict[str, object], ours: ModelToWrite
) -> TensorTable | str:
    """The table of a config, if it comes to the same model when it is read; else what it cannot."""
    settings = ConfigValues(Path(CONFIG_FILE), config)
    plan: ModelPlan | None = plan_of(family, settings)
    wanted, reason = dict(family.effective_settings(ours.model)), "has other tensors"
    while plan is not None:
        there = family.effective_settings(model_without_weights(plan))
        other = [name for name in wanted if there.get(name) != wanted[name]]
        if not other and set(model_without_weights(plan).state_dict()) == set(
            ours.model.state_dict()
        ):
            return plan.table
        if other:
            reason = f"has {other[0]}={there.get(other[0])}, not {wanted[other[0]]}"
        plan = plan.fallback
    return reason


def plan_of(family: Family, settings: ConfigValues, architecture: str | None = None) -> ModelPlan:
    """What a config means here; settings that no model of ours can have are refused."""
    with errors_with_file(settings.path):
        settings = settings.renamed(family.aliases)
        settings.require("quantization_config", None)
        return family.read(settings, architecture_of(settings, family, architecture))


@contextmanager
def errors_with_file(path: Path) -> Iterator[None]:
    """What cannot be, notes with the file that asks for it, unless one of its folder is named."""
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


def missing_architecture_error(
    family: Family, settings: ConfigValues, tensors: Mapping[str, Tensor]
) -> UserError:
    """No architecture is named, and the first of the family is not it: those that would do."""
    fits: dict[str, int] = {}
    for name in family.kinds:
        try:
            table = plan_of(family, settings, name).table
        except UserError:
            continue  # its settings are not those of this one
        if not table.missing(tensors):
            fits[name] = len(table.all_rows)
    best = sorted(fits, key=lambda name: -fits[name]) or list(family.kinds)
    return UserError(
        f"{settings.path}: names no architectures; say --architecture, for these weights "
        f"{' or '.join(best)}"
    )


def model_without_weights(plan: ModelPlan) -> nn.Module:
    """The model of a plan without memory for its weights: names, shapes and settings."""
    with torch.device("meta"), ShapesOnly():
        return MODELS[plan.kind](plan.model, **plan.sizes)


def family_of(settings: ConfigValues) -> Family:
    """The family of a config; one that is not known is notes which are, the nearest first."""
    if not settings.has("model_type"):
        raise missing_type_error(settings)
    name = settings.string("model_type")
    if name not in FAMILIES:
        near = nearest(name, FAMILIES)
        order = sorted(FAMILIES, key=lambda each: (each != near, each))
        said = settings.strings("architectures")
        what = f" ({', '.join(said)})" if said else ""
        raise UserError(
            f"{settings.path}: models of the type {name!r}{what} are not known here. "
            f"Known: {', '.join(order)}"
        )
    return FAMILIES[name]


def missing_type_error(settings: ConfigValues) -> UserError:
    """A config without a model type: what to add, from its architecture if it names one."""
    named = settings.strings("architectures")
    fits = [name for name, each in FAMILIES.items() if set(named) & set(each.kinds)]
    add = f'"model_type": "{fits[0]}"' if fits else f"model_type, one of {', '.join(FAMILIES)}"
    return UserError(
        f"{settings.path}: model_type is missing, so the kind of model is not known; add {add}"
    )
