"""LoRA: training begins with the model as it is, changes only what it may, and ends merged."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.train.display import SilentDisplay
from regard.train.lora import Lora, adapt_model, merge_model

EXAMPLES = [
    {"x": torch.randn(5, generator=torch.Generator().manual_seed(n)), "y": torch.ones(2)}
    for n in range(12)
]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["x"]), batch["y"])


def fitted(folder: Path, **training: object) -> nn.Sequential:
    model = network()
    regard.fit(
        model, EXAMPLES, loss=loss, folder=folder, batch_size=4, display=SilentDisplay(), lr=0.05,
        lora={"rank": 2, "layers": "[02]", "also": ["3.*"]}, **training,
    )  # fmt: skip
    return model


def test_it_begins_with_the_model_as_it_is_and_merges_exactly() -> None:
    model, x = network(), torch.randn(7, 5)
    before = model(x)
    learns, frozen = adapt_model(model, Lora(rank=2, layers="[02]", also=("3.*",)), seed=0)
    assert (learns, frozen) == (2 * (5 + 4) + 2 * (4 + 4) + 10, 44)
    assert torch.equal(model(x), before)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if name.endswith(".up"):
                each.normal_()
    changed = model(x)
    assert not torch.allclose(changed, before)
    merge_model(model)
    assert torch.allclose(model(x), changed, atol=1e-6)
    assert set(model.state_dict()) == set(network().state_dict())


def test_only_changes_of_low_rank_and_the_new_layers_are_trained(tmp_path: Path) -> None:
    before, after = network().state_dict(), fitted(tmp_path, epochs=3).state_dict()
    for name in ("0.bias", "2.bias"):
        assert torch.equal(before[name], after[name])
    for name in ("0.weight", "2.weight"):
        change = after[name] - before[name]
        assert 1 <= int(torch.linalg.matrix_rank(change, atol=1e-5)) <= 2
    assert not torch.equal(before["3.weight"], after["3.weight"])


def test_a_training_that_goes_on_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = fitted(tmp_path / "whole", epochs=4)
    fitted(tmp_path / "parts", epochs=2)
    parts = fitted(tmp_path / "parts", epochs=4)
    for name, each in whole.state_dict().items():
        assert torch.equal(each, parts.state_dict()[name]), name


def test_a_glob_without_layers_is_refused() -> None:
    with pytest.raises(UserError, match=r"layers='\*attention\*' matches no linear layer"):
        adapt_model(network(), Lora(), seed=0)


def test_a_run_is_fine_tuned_and_loads_as_an_ordinary_one(tmp_path: Path) -> None:
    text = ["to be or not to be"] * 30
    small = {"train.updates": 4, "model.width": 16, "model.heads": 2, "model.layers": 1,
             "data.window": 8, "model.context": 8, "train.evaluate_every": 2}  # fmt: skip
    base = regard.fit(
        "language_model", text, folder=tmp_path / "a", changes=small, display=SilentDisplay()
    )
    tuned = {**small, "model.source": str(tmp_path / "a"), "train.lora": {"rank": 2, "also": []}}
    run = regard.fit(
        "language_model", text, folder=tmp_path / "b", changes=tuned, display=SilentDisplay()
    )
    again = regard.load(tmp_path / "b").model.state_dict()
    assert set(again) == set(base.model.state_dict())
    assert all(torch.equal(each, again[name]) for name, each in run.model.state_dict().items())
    moved = {name for name, each in base.model.state_dict().items() if not each.equal(again[name])}
    assert moved
    assert all("attention" in name and name.endswith("weight") for name in moved)
    wrong = {**tuned, "train.lora": {"layers": "nothing"}}
    with pytest.raises(UserError, match="matches no linear layer"):
        regard.fit("language_model", text, folder=tmp_path / "c", changes=wrong)
    assert not (tmp_path / "c").exists()
