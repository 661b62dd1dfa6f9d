"""A recipe that names a larger model than its weights are is refused before it is built."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load, open_run
from regard.runs.sizes import check_model_size, limited_modules, weights_fingerprint

RECIPE = """
task = "translate"
[about]
title = "Tiny dates"
paper = "nobody"
minutes = 0.1
[data]
generate = { name = "dates", train = 40, validation = 4, test = 4 }
tokeniser = "char"
batch = 8
scores = ["exact"]
search = { width = 2, max_length = 6, max_per_source = 0.0 }
[model]
kind = "transformer"
width = 16
heads = 2
hidden = 32
encoder_layers = 1
decoder_layers = 1
[train]
updates = 1
optimiser = { name = "adam", lr = 1e-3 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("sizes")
    made = create(parse_recipe(RECIPE, "tiny"), folder / "tiny", folder, "cpu")
    made.train()
    return made


WRONG = {
    "hidden = 32": ("hidden = 100000000", r"model\.safetensors is of another model: .*100000000"),
    "encoder_layers = 1": ("encoder_layers = 100000000", r"more than 1\d,\d\d\d parts"),
    "width = 16": ("width = 160", r"model\.safetensors is of another model"),
    "width = 2,": ("width = 100000,", r"search\.width=100000 must be less than or equal to 1000"),
    "max_length = 6": ("max_length = 1000000000", r"search\.max_length=1000000000 must be less"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", WRONG)
def test_a_recipe_that_is_too_large_is_refused_in_one_line(
    name: str, run: Run, tmp_path: Path, as_users_run_it: None
) -> None:
    changed, message = WRONG[name]
    folder = tmp_path / "altered"
    folder.mkdir()
    for each in run.folder.iterdir():
        if each.is_file() and each.name != "digests.json":
            (folder / each.name).write_bytes(each.read_bytes())
    kept = (folder / "recipe.toml").read_text()
    line = f"{name.rstrip(',')}\n"
    assert line in kept
    (folder / "recipe.toml").write_text(kept.replace(line, f"{changed.rstrip(',')}\n"))
    with pytest.raises(UserError, match=message) as caught:
        load(folder, "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["hidden = 100000000000", "encoder_layers = 100000000"])
def test_a_run_that_is_not_trained_is_refused_too(
    change: str, run: Run, tmp_path: Path, as_users_run_it: None
) -> None:
    new = create(parse_recipe(RECIPE, "tiny"), tmp_path / "new", tmp_path, "cpu")
    name = change.partition(" = ")[0]
    lines = (new.folder / "recipe.toml").read_text().splitlines()
    changed = [change if each.startswith(f"{name} = ") else each for each in lines]
    (new.folder / "recipe.toml").write_text("\n".join(changed))
    with pytest.raises(
        UserError, match=r"bytes, and this machine|more than 100,000 parts|no model"
    ):
        open_run(new.folder, device="cpu")


def test_the_header_has_every_shape(run: Run) -> None:
    found = weights_fingerprint(run.folder / "model.safetensors")
    for name, tensor in run.model.state_dict().items():
        if name in found:
            assert found[name] == ("float32", tuple(tensor.shape))
    assert found


def test_tables_that_no_file_holds_count_too(run: Run) -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.zeros(100_000, 100_000), persistent=False)

    weights = run.folder / "model.safetensors"
    (weights.with_name("empty.safetensors")).write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(UserError, match="40,000,000,000 bytes"):
        check_model_size(Tables, weights.with_name("empty.safetensors"), Path("recipe.toml"))


def test_parts_are_counted_only_inside() -> None:
    with pytest.raises(UserError, match="more than 3 parts"), limited_modules(3):
        nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert len(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))) == 2
