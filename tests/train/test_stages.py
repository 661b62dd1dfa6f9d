"""Stages: every layer at its own rate, learning in its turn, also after a stop."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Loss
from regard.train.display import SilentDisplay
from regard.train.loop import train
from regard.train.optimise import SGD, AdamW, build_optimiser
from regard.train.plan import Plan
from regard.train.schedule import SchedulePoint, SlantedTriangular
from regard.train.settings import Training
from regard.train.stages import Stages
from regard.train.state import TrainingProgress


class Tower(nn.Module):
    """Three layers, one on the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x

    def stages(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.layers]


class Squares:
    """Bring everything to zero."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        return Loss(total=model(batch["x"]).square().sum(), items=len(batch["x"]))


class Rows:
    """Two batches an epoch."""

    def __len__(self) -> int:
        return 2

    def batch(self, epoch: int, index: int) -> Batch:
        return {"x": torch.randn(4, 3, generator=torch.Generator().manual_seed(index))}


def settings(**changes: object) -> Training:
    return Training(
        **{
            "epochs": 3,
            "optimiser": AdamW(lr=0.1, weight_decay=0.1),
            "stages": Stages(unfreeze=1),
            **changes,
        }
    )


def test_rates_fall_from_the_last_layer_to_the_first() -> None:
    model = Tower()
    groups = build_optimiser(AdamW(lr=0.1, weight_decay=0.1), model, Stages(divide=2)).param_groups
    shares = {name: group["lr_scale"] for group in groups for name in group["param_names"]}
    for depth, share in enumerate((0.25, 0.5, 1.0)):
        assert shares[f"layers.{depth}.weight"] == shares[f"layers.{depth}.bias"] == share
    decays = {name: group["weight_decay"] for group in groups for name in group["param_names"]}
    assert (decays["layers.0.weight"], decays["layers.0.bias"]) == (0.1, 0.0)


def test_a_step_of_sgd_is_the_layers_share_of_the_plain_step(tmp_path: Path) -> None:
    whole, shared = Tower(), Tower()
    for model, stages in ((whole, None), (shared, Stages(divide=2))):
        rule = settings(epochs=None, updates=1, optimiser=SGD(lr=0.1), stages=stages)
        train(model, Squares(), Rows(), rule, tmp_path / str(stages), display=SilentDisplay())
    begun = Tower()
    for depth, share in enumerate((0.25, 0.5, 1.0)):
        start = begun.layers[depth].weight
        plain, own = whole.layers[depth].weight - start, shared.layers[depth].weight - start
        torch.testing.assert_close(own, share * plain)


def test_layers_begin_to_learn_one_after_another(tmp_path: Path) -> None:
    begun = Tower()
    for epochs, moved in ((1, [False, False, True]), (2, [False, True, True]), (3, [True] * 3)):
        model = Tower()
        train(model, Squares(), Rows(), settings(epochs=epochs), tmp_path / str(epochs))
        pairs = zip(begun.layers, model.layers, strict=True)
        assert [not torch.equal(a.weight, b.weight) for a, b in pairs] == moved


def test_the_schedule_runs_anew_in_each_stage() -> None:
    shape = SlantedTriangular(cut=0.5, ratio=4)
    plan = Plan(settings(epochs=5, schedule=shape), batches=4)
    opens = {0, 1, 2}
    found = [
        plan.factor(TrainingProgress(update=n, epoch=n // 4), opens) for n in range(plan.updates)
    ]

    def alone(updates: int) -> list[float]:
        moments = (
            SchedulePoint(update=n + 1, updates=updates, per_epoch=4) for n in range(updates)
        )
        return [shape.factor(moment) for moment in moments]

    assert found == [*alone(4), *alone(4), *alone(12)]


def test_a_training_that_stops_between_stages_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, parted = Tower(), Tower()
    train(whole, Squares(), Rows(), settings(epochs=None, updates=6), tmp_path / "whole")
    for updates in (3, 6):
        again = Tower()
        changed = settings(epochs=None, updates=updates)
        train(again, Squares(), Rows(), changed, tmp_path / "parts")
        parted = again
    for one, other in zip(whole.parameters(), parted.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_without_stages_is_refused() -> None:
    with pytest.raises(UserError, match=r"Linear has none"):
        build_optimiser(SGD(lr=0.1), nn.Linear(2, 2), Stages())
