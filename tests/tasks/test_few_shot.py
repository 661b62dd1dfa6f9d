"""Few-shot episodes: drawn from classes that no other split has, and what is missing is named."""

import base64
import io
import json
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image as Pillow

from regard.core.errors import UserError
from regard.core.inputs import Image, Several
from regard.data.image.classes import (
    EpisodeBatches,
    ImageClasses,
    class_split,
    read_image_classes,
)
from regard.runs.recipe import parse_recipe
from regard.runs.run import create

RECIPE = """
task = "few_shot"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "train"
validation = 0.3
test = "test.npz"
ways = 3
queries = 6
size = 8
batch = 4
steps = 5
evaluate_episodes = 20
[model]
kind = "snail"
channels = [8]
width = 16
filters = 8
layout = "ATA"
attention = [[16, 8], [16, 8]]
[train]
updates = 60
optimiser = { name = "adam", lr = 5e-3 }
log_every = 20
evaluate_every = 60
save_every = 60
"""


def drawn(number: int, image: int) -> numpy.ndarray:
    """A class is a pattern of 3 x 3 tiles; its images have a little noise. True is paper."""
    pattern = [(number + 1) >> bit & 1 for bit in range(9)]
    tiles = numpy.kron(numpy.array(pattern).reshape(3, 3), numpy.ones((4, 4)))
    noise = numpy.random.default_rng((number, image)).random(tiles.shape) < 0.05
    return ~(tiles.astype(bool) ^ noise)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("images")
    for number in range(20):
        folder = top / "train" / f"alphabet{number % 2}" / f"class{number}"
        folder.mkdir(parents=True)
        for image in range(4):
            pixels = (drawn(number, image) * 255).astype(numpy.uint8)
            Pillow.fromarray(pixels).save(folder / f"{image}.png")
    rest = numpy.array([[drawn(n, i) for i in range(4)] for n in range(30, 42)])
    numpy.savez(top / "test.npz", images=rest)
    return top


def test_classes_of_folders_and_of_an_archive_are_read_alike(place: Path, tmp_path: Path) -> None:
    read = read_image_classes(place / "train", 12)
    assert len(read) == 20
    assert read.names[0] == "alphabet0/class0"
    assert read.images[0].shape == (4, 1, 12, 12)
    packed = numpy.array([[drawn(0, i) for i in range(4)]])
    numpy.savez(tmp_path / "one.npz", images=packed)
    again = read_image_classes(tmp_path / "one.npz", 12)
    torch.testing.assert_close(read.images[0], again.images[0])
    assert read_image_classes(place / "train", 5, colours=3).images[0].shape == (4, 3, 5, 5)


def test_an_episode_is_examples_and_queries_of_its_classes() -> None:
    images = tuple(
        torch.full((4, 1, 2, 2), float(n)) + torch.arange(4).view(4, 1, 1, 1) / 10 for n in range(7)
    )
    classes = ImageClasses(images, tuple("abcdefg"))
    batches = EpisodeBatches(classes, ways=3, shots=2, queries=4, batch=5, steps=3, seed=1)
    batch = batches.batch(2, 1)
    again = batches.batch(2, 1)
    assert all(torch.equal(batch[name], again[name]) for name in batch)
    assert not torch.equal(batch["images"], batches.batch(2, 2)["images"])
    numbers = batch["images"][..., 0, 0, 0]  # [B,T]
    for row in range(5):
        kinds = numbers[row].floor()
        examples = {int(k): int(y) for k, y in zip(kinds[:6], batch["labels"][row], strict=True)}
        assert sorted(examples.values()) == [0, 1, 2]
        assert [examples[int(k)] for k in kinds[6:]] == batch["classes"][row].tolist()
        assert len(set(numbers[row].tolist())) == 10, "no image twice"


def test_splits_share_no_class_and_rotations_are_classes(place: Path) -> None:
    read = read_image_classes(place / "train", 8)
    train, apart = class_split(read, 0.3, 0)
    assert len(train) == 14
    assert not set(train.names) & set(apart.names)
    turned = train.rotated()
    assert len(turned) == 56
    assert torch.equal(turned.images[14], train.images[0].rot90(1, (2, 3)))


def test_a_tiny_model_learns_and_predicts(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    run.train()
    figures = run.evaluate("test")
    assert figures["accuracy"] > 50, "chance is 33"
    assert 0 < figures["interval"] < 10
    parts = []
    for number, image in ((30, 0), (33, 0), (37, 0), (33, 1)):
        file = io.BytesIO()
        Pillow.fromarray((drawn(number, image) * 255).astype(numpy.uint8)).save(file, "PNG")
        parts.append({"kind": "image", "input": base64.b64encode(file.getvalue()).decode()})
    given = run.task.parse(json.dumps(parts), "line 1")
    (prediction,) = run.predict([given])
    assert prediction.fields["classes"][0] in ("class 1", "class 2", "class 3")
    payloads = run.look(given)
    assert list(payloads[0].keys) == ["class 1", "class 2", "class 3", "query 1"]


def few(count: int, images: int) -> ImageClasses:
    return ImageClasses((torch.zeros(images, 1, 2, 2),) * count, ("x",) * count)


def test_too_few_classes_or_shots_are_named(as_users_run_it: None) -> None:
    sizes = {"ways": 5, "shots": 2, "queries": 5, "batch": 2, "steps": 1, "seed": 0}
    with pytest.raises(
        UserError, match=r"needs ways=5 classes with 3 images each .* 4 training classes only 4"
    ):
        EpisodeBatches(few(4, 3), **sizes)
    with pytest.raises(UserError, match="of the 9 training classes only 0 have as many"):
        EpisodeBatches(few(9, 2), **sizes)


def test_what_is_no_class_of_images_is_named(
    place: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        read_image_classes(tmp_path / "none", 8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there are no images in its folders"):
        read_image_classes(tmp_path / "empty", 8)
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="no array `images` can be read"):
        read_image_classes(tmp_path / "bad.npz", 8)
    numpy.savez(tmp_path / "flat.npz", images=numpy.zeros((3, 4)))
    with pytest.raises(
        UserError, match=r"must be \[classes, images, height, width\], not \[3, 4\]"
    ):
        read_image_classes(tmp_path / "flat.npz", 8)
    task = create(parse_recipe(RECIPE, "tiny", ["train.updates=1"]), place / "other", place, "cpu")
    one = Image(torch.zeros(1, 4, 4, dtype=torch.uint8))
    with pytest.raises(UserError, match="expected 3 images, 1 of each of 3 classes"):
        task.predict([Several((one, one))])
