"""Training from Python: `regard.fit("classify", examples)` trains, measures and returns a run.

>>> import tempfile
>>> examples = [("a fine film", "pos"), ("a dull film", "neg")] * 8
>>> with tempfile.TemporaryDirectory() as folder:
...     run = fit_task("classify", examples, folder=f"{folder}/run", changes={"train.epochs": 1})
...     run.predict(["fine"])[0].fields["label"] in ("pos", "neg")
True
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.core.errors import UserError, choose
from regard.runs.draft import draft_recipe
from regard.runs.examples import files_of, write_examples
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, data_folder, remove_run
from regard.tasks import TASKS
from regard.train.display import Display


def fit_task(
    task: str,
    data: object,
    *,
    validation: object = None,
    test: object = None,
    folder: str | Path | None = None,
    changes: Mapping[str, object] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    display: Display | None = None,
) -> Run:
    """Train a model of a task on files or examples, without a recipe; the run is in `folder`.

    `data`, `validation` and `test` are files, lists of examples, data frames or torch data sets.
    `changes` are keys of the recipe: `{"train.epochs": 3, "model.hidden": 64}`.
    """
    choose("task", task, TASKS)
    place = Path(folder or Path("runs") / task)
    if (place / "recipe.toml").exists():
        if not overwrite:
            raise UserError(
                f"{place}: there is a run already; give another folder, or overwrite=True"
            )
        remove_run(place, None)
    fresh = not place.exists()
    try:
        splits = {
            name: [] if given is None else _placed(given, task, place / "data" / name)
            for name, given in (("train", data), ("validation", validation), ("test", test))
        }
        text = draft_recipe(
            task,
            splits["train"],
            validation=splits["validation"],
            test=splits["test"],
            changes=[f"{key}={_value(value)}" for key, value in (changes or {}).items()],
            absolute=True,
        )
        recipe = parse_recipe(text, f"regard.fit({task!r})")
        run = create(recipe, place, data_folder(None), device)
    except BaseException:
        shutil.rmtree(place if fresh else place / "data", ignore_errors=True)
        raise
    run.train(display)
    run.model.eval()
    return run


def _placed(data: object, task: str, path: Path) -> list[str]:
    """The files of a split, written now if the examples are in memory."""
    files = files_of(data)
    if files is not None:
        return files
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_examples(data, task, path)


def _value(value: object) -> str:
    """A value as TOML writes it in one line; None removes the key.

    >>> _value({"name": "sgd", "lr": 0.1}), _value([1, "a"]), _value(True), _value(None)
    ('{name = "sgd", lr = 0.1}', '[1, "a"]', 'true', '')
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
