"""The weights of a training that was interrupted, from its checkpoints."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter
from torch import Tensor

from regard.train.checkpoint import Checkpoints
from regard.train.plan import Plan
from regard.train.settings import Training
from regard.train.state import CheckpointFacts


def unfinished_weights(folder: Path, settings: Training) -> tuple[Mapping[str, Tensor], str] | None:
    """The weights that `settings.weights` selects so far, and a description of them.

    None if the folder of a run has no checkpoints.
    """
    checkpoints = Checkpoints(folder / "state")
    newest = checkpoints.newest()
    if newest is None:
        return None
    facts = TypeAdapter(CheckpointFacts).validate_python(newest.checkpoint.facts)
    return Plan(settings, facts.batches).final_weights(checkpoints, facts.progress)
