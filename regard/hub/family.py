"""Family: how the checkpoints of one kind of foreign model become ours, and ours become theirs.

A family is two functions over settings: from a config.json to a `ModelPlan`, our model and the
names of its tensors, and from a model of ours to a config.json. A checkpoint is read again before
it is kept, so that a family that cannot hold a model is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError, nearest
from regard.hub.keys import TensorTable
from regard.hub.store import ConfigValues


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What a foreign config means here."""

    kind: str
    """The model's name in MODELS."""
    task: str
    """What such a model is used for: a name in the table of tasks."""
    model: Config
    """Its settings."""
    sizes: Mapping[str, int]
    """What else it is built from: `vocabulary`, `classes`."""
    table: TensorTable
    """Where its tensors stand."""
    labels: tuple[str, ...] = ()
    """Its classes by name."""
    fallback: "ModelPlan | None" = None
    """What it is if tensors are missing that some files do without: a pooler, say."""
    data: Mapping[str, object] = field(default_factory=dict)
    """What the folder says of its task, as the `[data]` table of a recipe has it."""
    ends: tuple[int, ...] = ()
    """The tokens that end its outputs, where these must be that of its tokeniser."""
    notes: tuple[str, ...] = ()
    """What it says besides that is not followed here."""


@dataclass(frozen=True, kw_only=True)
class ModelToWrite:
    """A model of ours that is to be written."""

    kind: str
    model: nn.Module
    sizes: Mapping[str, int]
    labels: tuple[str, ...] = ()
    specials: Mapping[str, int] = field(default_factory=dict)
    """The numbers of special tokens by role: pad, unk, bos, eos."""
    data: Mapping[str, object] = field(default_factory=dict)
    """The `[data]` table of its recipe."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of foreign model."""

    name: str
    """Its `model_type`."""
    kinds: Mapping[str, str]
    """Names in MODELS by the name of each architecture."""
    read: Callable[[ConfigValues, str], ModelPlan]
    """From a config and the name of an architecture to what it means here."""
    write: Callable[[ModelToWrite], dict[str, object]]
    """From a model of ours to a config, `architectures` among it."""
    effective_settings: Callable[[nn.Module], Mapping[str, object]]
    """What the settings of a model of ours come to when it is used, with nothing left unsaid: what
    is read of a config that was written must come to the same."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Names of settings by other names that transformers takes for them."""
    generation: Callable[[ModelToWrite], dict[str, object]] | None = None
    """generation_config.json, for families that write text; nothing for models that do not."""


def architecture_of(settings: ConfigValues, family: Family, given: str | None = None) -> str:
    """The architecture that a config names, or the one that is wanted of it instead."""
    named = settings.strings("architectures")
    name = given or (named[0] if named else next(iter(family.kinds)))
    if name not in family.kinds:
        near = nearest(name, family.kinds)
        order = sorted(family.kinds, key=lambda each: each != near)
        raise UserError(
            f"{settings.path}: the architecture {name!r} of {family.name} is not known here. "
            f"Known: {', '.join(order)}"
        )
    return name
