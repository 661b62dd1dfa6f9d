"""Averages of weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from regard.core.errors import UserError
from regard.train.average import Ema, average_files, mean_weights


def test_the_mean_of_files_is_exact_where_float32_sums_are_not(tmp_path: Path) -> None:
    values = [1e8, 1.0, 1.0, 1.0, 1.0, -1e8]
    paths = [tmp_path / f"{n}.safetensors" for n in range(len(values))]
    for path, value in zip(paths, values, strict=True):
        save_file({"a": torch.full((3,), value), "steps": torch.tensor([int(value)])}, path)
    average_files(paths, tmp_path / "mean.safetensors")
    back = load_file(tmp_path / "mean.safetensors")
    assert torch.equal(back["a"], torch.full((3,), 4 / 6))
    assert back["steps"].tolist() == [-(10**8)]


def test_models_that_differ_cannot_be_averaged() -> None:
    with pytest.raises(UserError, match="model 1 of 2 differs from the last in its tensors: a"):
        mean_weights([{"a": torch.ones(2)}, {"a": torch.ones(3)}])
    with pytest.raises(UserError, match="there are no models"):
        mean_weights([])


def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no")
    with pytest.raises(UserError, match="x cannot be read as safetensors"):
        average_files([tmp_path / "x"], tmp_path / "out")


def test_a_moving_average_follows_its_recurrence() -> None:
    model = nn.Linear(2, 2)
    ema = Ema(model, 0.9)
    expected = model.weight.detach().clone()
    for update in range(1, 200):
        with torch.no_grad():
            model.weight += torch.randn(2, 2)
        ema.update(update)
        decay = min(0.9, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    torch.testing.assert_close(ema.tensors["weight"], expected)


def test_weights_come_back_bit_for_bit_from_under_the_average() -> None:
    model = nn.Linear(2, 2)
    ema = Ema(model, 0.5)
    with torch.no_grad():
        model.weight.fill_(0.1)
    kept = ema.tensors["weight"].clone()

    def fail() -> None:
        with ema.applied():
            assert torch.equal(model.weight, kept)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert torch.equal(model.weight, torch.full((2, 2), 0.1))
    assert torch.equal(ema.tensors["weight"], kept)


def test_after_every_update_the_average_has_the_decay_of_that_update() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    ema = Ema(model, 0.5)
    with torch.no_grad():
        model.weight.fill_(1.0)
    left, decays = 1.0, [2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5, 0.5]
    for update, decay in enumerate(decays, start=1):
        ema.update(update)
        left *= decay  # of the first weights, which are zero
        assert ema.tensors["weight"].item() == pytest.approx(1 - left, rel=1e-6)
