"""A first recipe for a user's own files, as the text of a TOML file with comments.

The task reads the files and chooses the tables (`OpenTask.draft`); here they become a recipe.
"""

from collections.abc import Sequence
from pathlib import Path

import tomli_w

from regard.core.errors import UserError, choose
from regard.runs.recipe import set_value
from regard.tasks import TASKS
from regard.tasks.task import Draft


def draft_recipe(
    task: str,
    files: Sequence[str],
    *,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    changes: Sequence[str] = (),
    absolute: bool = False,
) -> str:
    """The recipe that trains a model of a task on these files.

    `absolute` writes the paths of files so that they hold in any folder.
    """
    kind = choose("task", task, TASKS)
    if not files:
        raise UserError(
            f"--task {task} needs the files to train on: regard train --task {task} FILE"
        )
    chosen: dict[str, object] = {"data": {}}
    for change in changes:
        set_value(chosen, change)
    given = chosen["data"]
    found = kind.draft(files, given if isinstance(given, dict) else {})
    data = dict(found.data)
    for name, paths in (("validation", validation), ("test", test)):
        if paths:
            data[name] = list(paths) if isinstance(data["train"], list) else _one(paths, name)
    for name in ("train", "validation", "test"):
        if absolute and name in data:
            data[name] = _resolved(data[name])
    tables: dict[str, object] = {
        "task": task,
        "about": {"title": f"{found.title} on {' and '.join(Path(each).name for each in files)}"},
        "data": {key: value for key, value in data.items() if value is not None},
        "model": found.model,
        "train": found.train,
    }
    for change in changes:
        set_value(tables, change)
    return _comments(task, found) + tomli_w.dumps(tables)


def _one(paths: Sequence[str], name: str) -> str:
    if len(paths) != 1:
        raise UserError(f"--{name} takes one file for this task, not {len(paths)}")
    return paths[0]


def _resolved(value: object) -> object:
    """Files as absolute paths; a share as it is."""
    if isinstance(value, str):
        return str(Path(value).resolve())
    return [_resolved(each) for each in value] if isinstance(value, list) else value


def _comments(task: str, found: Draft) -> str:
    """The head of the file: what was found, and where all keys are explained."""
    kind = found.model["kind"]
    lines = [
        f"{found.title}, chosen from a look at the training data.",
        "",
        *found.notes,
        "",
        f"Every key with its meaning: regard recipe keys data.{task}, model.{kind}, train",
    ]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"
