"""What is not finite is named, with the batch and the rows that made it so."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Loss
from regard.train.display import SilentDisplay
from regard.train.loop import train
from tests.train.tiny import Apart, NextToken, Regress, Rows, recurrent, settings


def rows(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(4, 3, generator=generator),
        "y": torch.randn(4, 2, generator=generator),
    }


class RootError:
    """A loss that is finite at zero while its gradient is not."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        return Loss(total=model(batch["x"]).abs().sum(1).sqrt().sum(), items=len(batch["x"]))


class Logarithm:
    """A loss that is not finite where a target is not above zero."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        total = (model(batch["x"]).square().sum(1) - batch["y"][:, 0].log()).sum()
        return Loss(total=total, items=len(batch["x"]))


class HandsOn:
    """A loss over what was handed on, which is not finite after the third batch."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        state = carry["state"] if carry else torch.zeros(4, 2)
        new = state + model(batch["x"]).detach()
        broken = torch.where(batch["y"][:, :1] > 5, new / 0, new)
        return Loss(
            total=(model(batch["x"]) + state).square().sum(), items=4, carry={"state": broken}
        )


def failure(
    task: object,
    batches: list[dict[str, Tensor]],
    folder: Path,
    model: nn.Module | None = None,
    **changes: object,
) -> str:
    given = {"updates": len(batches), **changes}
    with pytest.raises(UserError) as caught:
        train(
            model or linear(),
            task,
            Rows(tuple(batches)),
            settings(**given),
            folder,
            display=SilentDisplay(),
        )
    return str(caught.value)


def linear(bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 2, bias=bias)


def test_an_input_that_is_not_finite_is_named_with_its_rows(tmp_path: Path) -> None:
    wrong = rows(2)
    wrong["x"][1, 2] = float("nan")
    wrong["x"][3, 0] = float("inf")
    said = failure(Regress(), [rows(0), rows(1), wrong], tmp_path)
    assert said == (
        "update 3: the input x is not finite in batch 2 of epoch 0, because of rows 1, 3"
    )


def test_a_loss_that_is_not_finite_is_named_with_the_row_that_causes_it(tmp_path: Path) -> None:
    good, wrong = rows(0), rows(1)
    for batch in (good, wrong):
        batch["y"].abs_()
    wrong["y"][2, 0] = 0.0
    said = failure(Logarithm(), [good, wrong], tmp_path)
    assert said == "update 2: the loss is not finite in batch 1 of epoch 0, because of row 2"


def test_a_gradient_that_is_not_finite_is_named_though_the_loss_is(tmp_path: Path) -> None:
    wrong = rows(1)
    wrong["x"][0] = 0.0
    said = failure(RootError(), [rows(0), wrong], tmp_path, model=linear(bias=False))
    assert said == (
        "update 2: the gradient of weight is not finite in batch 1 of epoch 0, because of row 0"
    )


def test_among_accumulated_batches_the_guilty_one_is_named(tmp_path: Path) -> None:
    wrong = rows(5)
    wrong["y"][3] = float("nan")
    batches = [rows(n) for n in range(4)] + [wrong, rows(6)]
    said = failure(Regress(), batches, tmp_path, updates=2, accumulate=3)
    assert said == "update 2: the input y is not finite in batch 4 of epoch 0, because of row 3"


def test_what_was_handed_on_is_named(tmp_path: Path) -> None:
    wrong = rows(1)
    wrong["y"][:, 0] = 9.0
    said = failure(HandsOn(), [rows(0), wrong, rows(2)], tmp_path)
    assert said.startswith("update 3: the input state is not finite in batch 2 of epoch 0, in all")


def test_nothing_is_carried_into_a_batch_that_begins_anew(tmp_path: Path) -> None:
    """Neither when the update is taken nor when it is taken again."""

    class Third(NextToken):
        """Not finite in the third batch; an exception if anything is carried."""

        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            assert carry is None
            loss = super().loss(model, batch, None)
            third = torch.equal(batch["tokens"], Apart().batch(0, 2)["tokens"])
            return replace(loss, total=loss.total / 0) if third else loss

    with pytest.raises(UserError, match="the loss is not finite in batch 2 of epoch 0"):
        train(
            recurrent(), Third(), Apart(), settings(accumulate=3), tmp_path,
            validate=lambda: {"loss": 0.0}, display=SilentDisplay(),
        )  # fmt: skip


def test_a_weight_that_has_grown_beyond_all_bounds_is_named(tmp_path: Path) -> None:
    said = failure(
        Regress(),
        [rows(0)] * 9,
        tmp_path,
        clip=None,
        optimiser={"name": "sgd", "lr": 1e30},
    )
    assert "is not finite" in said
    assert "lower the learning rate" in said or "learning rate before the data" in said


def test_the_checkpoint_before_the_failure_stays_and_the_bad_update_is_not_in_it(
    tmp_path: Path,
) -> None:
    wrong = rows(3)
    wrong["x"][0] = float("nan")
    failure(Regress(), [rows(0), rows(1), wrong], tmp_path, save_every=1)
    names = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert names == ["00000001", "00000002"]


def test_the_draws_of_dropout_are_drawn_again_to_find_the_culprit(tmp_path: Path) -> None:
    """A loss that fails only where dropout has dropped: seen again only from the same state."""

    class Dropping:
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            kept = nn.functional.dropout(torch.ones(4), 0.02)
            return Loss(total=(model(batch["x"]).sum(1) / kept).square().sum(), items=4)

    wrong = failure(Dropping(), [rows(n) for n in range(400)], tmp_path, clip=None, save_every=500)
    assert "the loss is not finite in batch" in wrong


def test_a_group_of_batches_without_items_is_refused(tmp_path: Path) -> None:
    class Nothing:
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            return Loss(total=model(batch["x"]).sum() * 0, items=0)

    assert (
        failure(Nothing(), [rows(0)], tmp_path) == "batch 0 of epoch 0 has no items to learn from"
    )
