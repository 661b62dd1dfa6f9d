"""Ten losses of every shipped recipe: `python -m tests.recipes.ten_updates`.

Prints one JSON object, from the name of a recipe to its ten losses, on made-up texts and with one
thread. Two versions of the package that print the same bits train the same. Names of recipes may be
given; without them all are run.
"""

import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file

from regard.runs.recipe import read_recipe, shipped_recipes
from regard.runs.run import Run
from regard.train.display import SilentDisplay
from regard.train.evaluate import FirstBatch
from regard.train.loop import train
from tests.recipes.test_recipes import made, write_texts

UPDATES = 10

LARGER = {"masked_lm": ["data.batch=16"], "word_vectors": ["data.words_per_batch=400"]}
"""Changes by task, so that every batch of the made-up texts holds something to predict."""


def ten_losses(run: Run) -> list[float]:
    """The losses that the loop writes into the log of a run."""
    changes = {"updates": UPDATES, "epochs": None, "log_every": 1, "weights": "last"}
    settings = run.recipe.train.model_copy(update=changes)
    first = FirstBatch(run.task.evaluation("validation"))
    train(
        run.model,
        run.task,
        run.task.batches(),
        settings,
        run.folder,
        validate=lambda: run.measured(first),
        display=SilentDisplay(),
    )
    lines = (run.folder / "log.jsonl").read_text().splitlines()
    return [held["loss"] for held in map(json.loads, lines) if "lr" in held]


def losses_of(names: list[str], folder: Path) -> dict[str, list[float]]:
    """The losses of some recipes, each trained in a folder of its own."""
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    texts = write_texts(folder / "texts")

    @cache
    def source(name: str) -> Path:
        run = made(name, texts, folder / "sources" / name, source)
        save_file(run.model.state_dict(), run.folder / "model.safetensors")
        return run.folder

    found = {}
    for name in names:
        larger = LARGER.get(read_recipe(name).task, ())
        found[name] = ten_losses(made(name, texts, folder / name, source, *larger))
        print(name, found[name][-1], file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(losses_of(sys.argv[1:] or list(shipped_recipes()), Path(place)), indent=1))
