"""Changes to the training of a run that goes on: `regard resume RUN --set train.epochs=20`.

Only keys of `[train]` can change, and of these only such as leave the past of the training valid.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.core.errors import UserError
from regard.core.folder import RECIPE_BYTES, read_text
from regard.runs.digests import remove_digests
from regard.runs.recipe import differences, parse_recipe
from regard.runs.run import Run, write_text

_FIXED = ("optimiser.name", "ema", "accumulate", "seed", "stages", "lora", "monitor", "better")
"""Keys of `[train]` that the checkpoints depend on."""

_LENGTH = re.compile(r"\s*train\.(epochs|updates)\s*=\s*\S")


def with_changes(run: Run, changes: Sequence[str]) -> Run:
    """The run with some settings of its training changed, also in its recipe.toml.

    Epochs replace updates, and updates epochs.
    """
    if not changes:
        return run
    place = Path(run.folder) / "recipe.toml"
    lengths = {match[1] for match in map(_LENGTH.match, changes) if match}
    if len(lengths) == 1:
        other = "updates" if lengths == {"epochs"} else "epochs"
        changes = [*changes, f"train.{other}="]
    recipe = parse_recipe(read_text(place, RECIPE_BYTES), str(place), changes, trusted=False)
    changed = [line.split(" is ")[0] for line in differences(recipe, run.recipe)]
    for key in changed:
        part, _, name = key.partition(".")
        if part != "train":
            raise UserError(
                f"--set {key}: only keys of [train] can change when a training goes on; for "
                f"another {part}, train anew"
            )
        if any(name == each or name.startswith(f"{each}.") for each in _FIXED):
            raise UserError(
                f"--set {key}: the checkpoints of this run depend on it; to change it, train anew"
            )
    remove_digests(Path(run.folder))
    write_text(place, recipe.to_toml())
    return replace(run, recipe=recipe)
