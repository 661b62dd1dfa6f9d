"""Every model has one signature and returns a frozen, typed output that computes its loss."""

from dataclasses import FrozenInstanceError, fields
from inspect import Parameter, signature

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.models import MODELS
from regard.outputs.classes import Classes
from regard.outputs.next_token import NextTokens
from regard.outputs.output import ModelOutput
from regard.outputs.tags import Tags
from tests.laws.test_devices import ROWS

TARGETS = {
    "targets": lambda batch: batch["tokens"].clone(),
    "classes": lambda batch: torch.zeros(len(batch["tokens"]), dtype=torch.long),
    "tags": lambda batch: torch.zeros_like(batch["tokens"]),
    "first": lambda batch: torch.zeros(len(batch["tokens"]), dtype=torch.long),
    "last": lambda batch: torch.ones(len(batch["tokens"]), dtype=torch.long),
}
"""What losses are computed against, for batches that lack it."""


def labelled(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    if "characters" in batch and "tokens" not in batch:
        batch = {**batch, "tokens": torch.randint(10, batch["characters"].shape[:2])}
    if "tokens" not in batch:
        return batch
    return {name: make(batch) for name, make in TARGETS.items()} | batch


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_the_one_signature(name: str) -> None:
    given = signature(MODELS[name].forward)
    assert list(given.parameters) == ["self", "batch", "carry"]
    assert given.parameters["batch"].default is Parameter.empty
    assert given.parameters["carry"].default is None
    assert issubclass(given.return_annotation, ModelOutput)


@pytest.mark.parametrize("row", ROWS)
def test_every_output_computes_a_finite_loss_with_a_gradient(row: str) -> None:
    torch.manual_seed(3)
    model, (batch,) = ROWS[row]()
    batch = labelled(dict(batch))
    output = ModelOutput.of(model.train(), batch)
    loss = output.loss(batch)
    assert loss.shape == ()
    assert loss.isfinite()
    loss.backward()
    assert any(each.grad is not None for each in model.parameters())
    with pytest.raises(FrozenInstanceError):
        setattr(output, fields(output)[0].name, None)


@pytest.mark.parametrize("row", ROWS)
def test_a_carry_is_detached_and_taken_back(row: str) -> None:
    model, (batch,) = ROWS[row]()
    batch = labelled(dict(batch))
    carry = ModelOutput.of(model.eval(), batch).carry
    assert all(not each.requires_grad for each in (carry or {}).values())
    after = ModelOutput.of(model, batch, carry).carry
    assert (carry is None) == (after is None)
    assert set(carry or {}) == set(after or {})


def test_a_model_of_another_kind_is_refused() -> None:
    model, (batch,) = ROWS["gpt"]()
    assert isinstance(NextTokens.of(model, batch), NextTokens)
    with pytest.raises(
        UserError, match="this task needs a model that returns Tags; GPT returns SoftmaxOutput"
    ):
        Tags.of(model, batch)


def test_a_model_that_returns_a_tensor_is_refused() -> None:
    class Bare(nn.Module):
        def forward(self, batch: dict[str, Tensor], carry: None = None) -> Tensor:
            return torch.zeros(1, 2)

    with pytest.raises(UserError, match="returns Classes; Bare returns Tensor"):
        Classes.of(Bare(), {})


def test_the_auxiliary_loss_is_added_once() -> None:
    batch = {"classes": torch.tensor([0, IGNORE])}
    plain = Classes(torch.zeros(2, 4))
    more = Classes(torch.zeros(2, 4), auxiliary=torch.tensor(7.0))
    assert (more.loss(batch) - plain.loss(batch)).item() == pytest.approx(7.0)
    assert more.nll(batch["classes"]).item() == plain.nll(batch["classes"]).item()
