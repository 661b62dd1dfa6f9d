"""The first hour: from files alone to trained, measured, looked-at and served models.

    python tests/first_hour.py [FOLDER]

writes four small files into an empty folder (CSV, CoNLL, parallel text, plain text) and prints the
commands, three for each model, as a person would type them, and what came of them.
`test_first_hour.py` runs the same.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

QUICK = ("--set", "train.epochs=3")
"""Shorter than the default, for the test; the script trains whole."""


@dataclass(frozen=True)
class Model:
    """The three commands of a model."""

    train: tuple[str, ...]
    look: tuple[str, ...]
    run: str
    text: str
    """A text to predict for, through the server."""


MODELS = (
    Model(
        ("train", "--task", "classify", "train.csv", "--test", "test.csv"),
        ("look", "runs/classify", "the film was warm", "-o", "classify.html"),
        "runs/classify",
        "the film was warm",
    ),
    Model(
        ("train", "--task", "tag", "train.conll"),
        ("look", "runs/tag", "--view", "curves", "-o", "tag.png"),
        "runs/tag",
        "Anna lives in Paris",
    ),
    Model(
        ("train", "--task", "translate", "train.de", "train.en"),
        ("look", "runs/translate", "drei rote Katzen", "-o", "translate.html"),
        "runs/translate",
        "drei rote Katzen",
    ),
    Model(
        ("train", "--task", "language_model", "book.txt"),
        ("look", "runs/book-language_model", "the cat", "-o", "book.html"),
        "runs/book-language_model",
        "the cat",
    ),
)


def write_files(folder: Path) -> None:
    """The files that a person comes with."""
    draw = random.Random(1)
    words = {"pos": ("warm", "fine", "clever"), "neg": ("dull", "cold", "empty")}
    rows = [
        f"the {draw.choice(('film', 'cast', 'plot'))} was {draw.choice(words[label])},{label}"
        for label in ("pos", "neg") * 60
    ]
    (folder / "train.csv").write_text("\n".join(["review,sentiment", *rows[:100]]) + "\n")
    (folder / "test.csv").write_text("\n".join(["review,sentiment", *rows[100:]]) + "\n")
    people, places = ("Anna", "Tom", "Maria"), ("Paris", "Rome", "Oslo")
    sentences = [
        f"{draw.choice(people)} B-PER\nlives O\nin O\n{draw.choice(places)} B-LOC\n"
        for _ in range(60)
    ]
    (folder / "train.conll").write_text("\n".join(sentences))
    numbers = {"zwei": "two", "drei": "three", "vier": "four"}
    colours = {"rote": "red", "blaue": "blue", "alte": "old"}
    things = {"Katzen": "cats", "Hunde": "dogs", "Autos": "cars"}
    pairs = [tuple(draw.choice(list(each.items())) for each in (numbers, colours, things))
             for _ in range(120)]  # fmt: skip
    (folder / "train.de").write_text("".join(" ".join(p[0] for p in each) + "\n" for each in pairs))
    (folder / "train.en").write_text("".join(" ".join(p[1] for p in each) + "\n" for each in pairs))
    (folder / "book.txt").write_text("the cat sat on the mat and the dog lay by the door\n" * 200)


def play(run: Callable[[tuple[str, ...]], str], quick: bool) -> dict[str, dict[str, float]]:
    """The first two commands of each model; the measured figures by run."""
    measured = {}
    for model in MODELS:
        short = () if not quick else QUICK if "language_model" not in model.train else (
            "--set", "train.updates=20", "--set", "train.evaluate_every=10",
        )  # fmt: skip
        run((*model.train, *short))
        figures = json.loads(Path(model.run, "metrics.json").read_text())
        measured[model.run] = figures.get("test", figures["validation"])
        run(model.look)
        assert Path(model.look[-1]).stat().st_size > 1000
    return measured


def served_command() -> list[str]:
    """The third command: all four, behind one address."""
    return ["serve", *(model.run for model in MODELS), "--port", "0"]


if __name__ == "__main__":
    import os

    place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    write_files(place)

    def typed(words: tuple[str, ...]) -> str:
        print("$ regard", *words)
        command = [sys.executable, "-m", "regard", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for name, figures in play(typed, quick=False).items():
        print(name, figures)
    print("$ regard", *served_command())
