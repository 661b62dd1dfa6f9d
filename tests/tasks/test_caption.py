"""Captioning from files to captions: it learns, describes, shows where it attends, is audited."""

import json
import random
from pathlib import Path

import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from regard.attention import record
from regard.cli import app
from regard.core.errors import UserError
from regard.core.inputs import Image, Text
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load
from regard.tasks.caption import Captioning

COLOURS = {"red": (220, 20, 20), "green": (20, 200, 40), "blue": (20, 40, 230)}
RECIPE = """
task = "caption"
[about]
title = "Squares"
paper = "nobody"
minutes = 0.1
[data]
captions = "captions.tsv"
images = "images"
validation = "validation.txt"
test = "test.txt"
layer = "blocks"
min_frequency = 1
batch = 8
search = { width = 3, max_length = 10, max_per_source = 0.0 }
[model]
kind = "%s"
width = 24
hidden = 32
[train]
epochs = 12
optimiser = { name = "adam", lr = 1e-2 }
"""


def write_squares(folder: Path, count: int = 30) -> None:
    """A coloured square on the left or on the right, and two sentences about it."""
    draw = random.Random(0)
    (folder / "images").mkdir(parents=True)
    rows, names = [], []
    for number in range(count):
        colour, side = draw.choice(list(COLOURS)), draw.choice(("left", "right"))
        image = Pillow.new("RGB", (64, 64), "white")
        image.paste(COLOURS[colour], (4, 16, 28, 48) if side == "left" else (36, 16, 60, 48))
        image.save(folder / "images" / f"{number}.png")
        text = f"{colour} square on the {side} ."
        rows += [f"{number}.png\ta {text}", f"{number}.png\tthe {text}"]
        names.append(f"{number}.png")
    (folder / "captions.tsv").write_text("\n".join(rows))
    (folder / "validation.txt").write_text("\n".join(names[:4]))
    (folder / "test.txt").write_text("\n".join(names[4:8]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("squares")
    write_squares(made)
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    recipe = parse_recipe(RECIPE % "show_attend_tell", "squares")
    create(recipe, folder / "run", folder, "cpu").train()
    return load(folder / "run", "cpu")


def test_it_learns_and_is_scored(run: Run) -> None:
    measured = json.loads((run.folder / "metrics.json").read_text())["test"]
    assert measured["bleu1"] > 70
    assert set(measured) >= {"loss", "perplexity", "bleu4", "rouge_l", "cider"}


def test_a_run_is_whole_without_its_data(run: Run, folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run.folder, tmp_path / "run")
    moved = load(tmp_path / "run", "cpu", data=tmp_path)
    (expected,) = run.translate([str(folder / "images" / "5.png")])
    assert moved.translate([str(folder / "images" / "5.png")]) == [expected]
    assert "square" in expected


def test_words_attend_to_places_of_the_image(run: Run, folder: Path) -> None:
    (payload,) = run.look(str(folder / "images" / "3.png"))
    assert payload.queries[-1] == "<eos>"
    assert payload.weights.shape[-1] == 7 * 7
    assert payload.keys.kind == "patches"
    assert payload.keys.picture.startswith("data:image/png")


def test_captions_by_the_verb(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"<svg onload=alert(1)>")
    runner = CliRunner()
    image = str(folder / "images" / "3.png")
    found = runner.invoke(app, ["caption", str(run.folder), image, str(tmp_path / "broken.png")])
    assert found.exit_code == 1
    name, _, text = found.stdout.strip().partition("\t")
    assert name == image
    assert "square" in text
    assert "not an image that can be read" in found.stderr
    found = runner.invoke(app, ["caption", str(run.folder), image, "--json", "--nbest", "2"])
    row = json.loads(found.stdout)
    assert row["image"] == image
    assert len(row["captions"]) == 2
    found = runner.invoke(app, ["caption", str(run.folder)], input=f"{image}\n")
    assert found.stdout.startswith(image)
    picture = tmp_path / "maps.png"
    found = runner.invoke(app, ["caption", str(run.folder), image, "-o", str(picture)])
    assert found.exit_code == 0
    assert picture.stat().st_size > 1000


def test_a_folder_of_images_is_described(run: Run, folder: Path) -> None:
    found = CliRunner().invoke(
        app, ["caption", str(run.folder), str(folder / "images"), "--beam", "1"]
    )
    assert len(found.stdout.strip().split("\n")) == 30


def test_begins_and_other_inputs(run: Run, folder: Path) -> None:
    task = run.task
    assert isinstance(task, Captioning)
    image = Image.from_bytes((folder / "images" / "3.png").read_bytes(), "3.png")
    (found,) = task.translate(run.model, [image], begins=["the blue"])
    assert found.text.startswith("the blue")
    with pytest.raises(UserError, match="task caption takes an image, and was given a text"):
        task.translate(run.model, [Text("a cat")])


def test_its_attention_can_be_audited(run: Run) -> None:
    """tests/modality runs whole audits over an image; here is what this task gives them."""
    assert isinstance(run.task, Captioning)
    subject = run.task.subject("validation", most=5, seed=0)
    assert sum(len(batch["patches"]) for batch in subject.batches) == 5
    for batch in subject.batches:
        assert subject.predict(run.model, batch).shape == (5, run.task.tokeniser.vocabulary)
        assert (batch["lengths"] == batch["patches"].shape[1]).all()
    with record(run.model) as tape:
        subject.predict(run.model, subject.batches[0])
    assert tape.sites == ("attend",)


def test_hard_attention_trains_too(folder: Path, tmp_path: Path) -> None:
    recipe = parse_recipe(RECIPE % "hard_attend_tell", "hard", ["train.epochs=1"])
    create(recipe, tmp_path / "run", folder, "cpu").train()
    assert load(tmp_path / "run", "cpu").translate([str(folder / "images" / "5.png")])


def opened(folder: Path, *changes: str) -> Captioning:
    recipe = parse_recipe(RECIPE % "show_and_tell", "squares", changes)
    task = recipe.task_class.open(recipe.data, folder)
    assert isinstance(task, Captioning)
    return task


def test_captions_of_images_that_are_not_there(tmp_path: Path) -> None:
    write_squares(tmp_path, 10)
    (tmp_path / "images" / "9.png").unlink()
    with pytest.raises(UserError, match=r"captions.tsv:19: the image '9.png' is not in .*skip"):
        opened(tmp_path)
    task = opened(tmp_path, "data.missing=skip")
    assert task.files.skipped == 1
    assert "images that were not there: 1" in task.notes()


def test_a_share_is_kept_for_validation(tmp_path: Path) -> None:
    write_squares(tmp_path, 10)
    task = opened(tmp_path, "data.validation=0.25", "data.test=")
    sizes = {name: len(some) for name, some in task.files.splits.items()}
    assert sizes == {"validation": 2, "train": 8}
    assert task.splits == ("train", "validation")
