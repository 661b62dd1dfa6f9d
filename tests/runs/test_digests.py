"""A finished run carries digests: one flipped bit is found, and the file is named."""

import random
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.runs.digests import DIGESTS, begin_check, write_digests
from regard.runs.run import Run, create, load
from tests.runs.test_sizes import RECIPE, parse_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("digests")
    made = create(parse_recipe(RECIPE, "tiny"), folder / "tiny", folder, "cpu")
    made.train()
    return made


@pytest.mark.parametrize(
    "name", ["model.safetensors", "recipe.toml", "tokenizer.json", "source.tokenizer.json"]
)
def test_every_flipped_bit_is_found_and_its_file_is_named(name: str, run: Run) -> None:
    path = run.folder / name
    whole, draw = path.read_bytes(), random.Random(name)
    try:
        for _ in range(25):
            place = draw.randrange(8 * len(whole))
            changed = bytearray(whole)
            changed[place // 8] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(UserError, match=f"{name}: has changed since the run was finished"):
                load(run.folder, "cpu")
    finally:
        path.write_bytes(whole)
    load(run.folder, "cpu")


def test_the_digests_are_sealed(run: Run) -> None:
    path = run.folder / DIGESTS
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"a", b"b", 1))
    with pytest.raises(UserError, match=r"digests\.json"):
        load(run.folder, "cpu")
    path.unlink()
    load(run.folder, "cpu")  # a run of an earlier version has none
    path.write_bytes(whole)


def test_large_files_are_compared_while_the_model_is_built(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(20_000_000))
    write_digests(tmp_path)
    begin_check(tmp_path)()
    with weights.open("r+b") as file:
        file.seek(19_000_000)
        file.write(b"\1")
    with pytest.raises(UserError, match=r"model\.safetensors: has changed"):
        begin_check(tmp_path)()


def test_a_training_that_goes_on_has_no_digests_of_its_past(run: Run, tmp_path: Path) -> None:
    again = create(parse_recipe(RECIPE, "tiny"), tmp_path / "again", tmp_path, "cpu")
    again.train()
    (again.folder / "recipe.toml").write_text((again.folder / "recipe.toml").read_text() + "\n")
    again.train()  # what is there is what was wanted
    load(again.folder, "cpu")
