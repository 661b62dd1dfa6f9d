"""Optimisers: what is decayed, what a step does, and how gradients are scaled."""

from typing import get_args

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.train.optimise import (
    OPTIMISERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Optimiser,
    OptimiserConfig,
    build_optimiser,
    scale_gradients,
)


class Tied(nn.Module):
    """An embedding, a norm, a linear map, and an output tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(4)
        self.hidden = nn.Linear(4, 4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(self.norm(self.table(tokens))))


def rule_named(name: str, **settings: float) -> OptimiserConfig:
    return OPTIMISERS[name].model_validate({"name": name, "lr": 0.01, **settings})


def decayed(rule: OptimiserConfig, model: nn.Module) -> set[str]:
    groups = build_optimiser(rule, model).param_groups
    return {name for group in groups if group["weight_decay"] for name in group["param_names"]}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_biases_and_norms_are_never_decayed_and_embeddings_by_choice(name: str) -> None:
    assert decayed(rule_named(name, weight_decay=0.1), Tied()) == {"table.weight", "hidden.weight"}
    spared = rule_named(name, weight_decay=0.1, decay_embeddings=False)
    assert decayed(spared, Tied()) == {"hidden.weight"}
    assert decayed(rule_named(name), Tied()) == set()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_lowers_a_loss(name: str) -> None:
    model, tokens = Tied(), torch.arange(7)
    optimiser = build_optimiser(rule_named(name, lr=0.02), model)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(tokens), tokens)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.98 * losses[0]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_fused_steps_are_the_steps_of_the_plain_optimiser(name: str) -> None:
    torch.manual_seed(1)
    ours, plain = nn.Linear(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(ours.state_dict())
    rule = rule_named(name, weight_decay=0.1)
    pair = [(ours, build_optimiser(rule, ours))]
    pair += [(plain, rule.create([*_groups(plain, 0.1)], fused=False))]
    for _ in range(5):
        batch = torch.randn(4, 5)
        for model, optimiser in pair:
            optimiser.zero_grad()
            model(batch).square().sum().backward()
            optimiser.step()
    torch.testing.assert_close(ours.weight, plain.weight, atol=1e-6, rtol=1e-6)
    assert pair[0][1].param_groups[0]["fused"]


def _groups(model: nn.Linear, decay: float):
    yield {"params": [("weight", model.weight)], "weight_decay": decay}
    yield {"params": [("bias", model.bias)], "weight_decay": 0.0}


def test_the_table_and_the_choice_of_a_recipe_hold_the_same_rows() -> None:
    union = get_args(get_args(Optimiser)[0])
    assert list(OPTIMISERS.values()) == list(union)
    assert [rule.model_fields["name"].default for rule in union] == list(OPTIMISERS)


def test_frozen_parameters_are_left_out_and_a_model_of_only_those_is_refused() -> None:
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    assert [g["param_names"] for g in build_optimiser(AdamW(lr=0.1), model).param_groups] == [
        ["bias"]
    ]
    model.bias.requires_grad_(False)
    with pytest.raises(UserError, match="Linear has no trainable parameter"):
        build_optimiser(AdamW(lr=0.1), model)


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(UserError, match="nesterov=true needs a momentum"):
        build_optimiser(SGD(lr=0.1, nesterov=True), nn.Linear(2, 2))


@pytest.mark.parametrize("clip", [None, 0.25, 1e9])
def test_scaled_gradients_are_those_of_the_mean_clipped_as_torch_clips(clip: float | None) -> None:
    batch = torch.randn(6, 5)
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    ours(batch).square().sum().backward()
    norm = scale_gradients(ours.parameters(), items=18, clip=clip)
    theirs(batch).square().mean().backward()
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
    assert norm == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


class Looked(nn.Module):
    """A table of which a batch looks up a few rows, and a layer of which it uses all."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(9, 4, sparse=sparse)
        self.out = nn.Linear(4, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(tokens)).square().sum()


@pytest.mark.parametrize("clip", [None, 0.1])
def test_rows_alone_are_followed_as_torch_follows_the_whole_table(clip: float | None) -> None:
    ours, theirs = Looked(sparse=True), Looked(sparse=False)
    optimiser = build_optimiser(Adagrad(lr=0.1), ours)
    plain = torch.optim.Adagrad(theirs.parameters(), 0.1)
    for tokens in torch.randint(9, (5, 6)):
        ours(tokens).backward()
        theirs(tokens).backward()
        norms = [scale_gradients(each.parameters(), items=6, clip=clip) for each in (ours, theirs)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
        for each in (optimiser, plain):
            each.step()
            each.zero_grad()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_an_optimiser_that_would_walk_over_the_whole_table_is_refused() -> None:
    for rule in (Adam(lr=0.1), Adagrad(lr=0.1, weight_decay=0.1)):
        with pytest.raises(UserError, match=r"sparse gradients.*adagrad, without weight_decay"):
            build_optimiser(rule, Looked(sparse=True))


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad"])
def test_the_first_step_is_g_over_g_plus_eps(name: str) -> None:
    model, gradient = nn.Linear(3, 1, bias=False), torch.tensor([[0.25, -1.0, 3.0]])
    before = model.weight.detach().clone()
    optimiser = build_optimiser(rule_named(name, lr=0.1, eps=0.5), model)
    model.weight.grad = gradient.clone()
    optimiser.step()
    expected = before - 0.1 * gradient / (gradient.abs() + 0.5)
    torch.testing.assert_close(model.weight.detach(), expected)
