"""A decoder's two ways to run, and what it is fed with."""

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.decoder import STACKS, Hidden, RecurrentDecoder

B, T, C, D, W = 3, 5, 4, 6, 7


def built(kind: str, layers: int, fed: int) -> RecurrentDecoder:
    return RecurrentDecoder(kind, C, D, fed=fed, layers=layers).double()


def begun(kind: str, layers: int) -> Hidden:
    def some() -> tuple[Tensor, ...]:
        return torch.randn(layers, B, D).double().unbind(0)

    return Hidden(some(), some() if kind == "lstm" else ())


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("layers", [1, 3])
def test_fed_with_nothing_but_zeros_its_steps_are_the_fused_run(kind: str, layers: int) -> None:
    fed, fused = built(kind, layers, W), built(kind, layers, 0)
    fused.load_state_dict(fed.state_dict(), strict=False)
    x, state = torch.randn(B, T, C).double(), begun(kind, layers)
    want, last = fused(x, state)
    for position, entered in enumerate(fed.enter(x)):
        state = fed.step(entered, torch.zeros(B, W).double(), state)
        torch.testing.assert_close(state.top, want[:, position])
    torch.testing.assert_close((state.hidden, state.cell), (last.hidden, last.cell))


@pytest.mark.parametrize("kind", STACKS)
def test_being_fed_is_a_wider_input(kind: str) -> None:
    """What is fed stands beside the input, and the two have one matrix."""
    fed, wide = built(kind, 2, W), RecurrentDecoder(kind, C + W, D, layers=2).double()
    weights = {name: each for name, each in fed.state_dict().items() if name != "feed.weight"}
    both = torch.cat((weights["cells.weight_ih_l0"], fed.feed.weight), dim=1)
    wide.load_state_dict({**weights, "cells.weight_ih_l0": both})
    x, given = torch.randn(B, T, C).double(), torch.randn(B, T, W).double()
    state = begun(kind, 2)
    want, _ = wide(torch.cat((x, given), dim=2), state)
    for position, entered in enumerate(fed.enter(x)):
        state = fed.step(entered, given[:, position], state)
        torch.testing.assert_close(state.top, want[:, position])


@pytest.mark.parametrize("kind", STACKS)
def test_its_gradients_are_right(kind: str) -> None:
    decoder, state = built(kind, 2, W), begun(kind, 2)

    def top(x: Tensor, fed: Tensor, *parts: Tensor) -> Tensor:
        now = Hidden(parts[:2], parts[2:])
        for entered in decoder.enter(x):
            now = decoder.step(entered, fed, now)
        return now.top

    given = (torch.randn(B, 2, C).double(), torch.randn(B, W).double(), *state.hidden, *state.cell)
    assert torch.autograd.gradcheck(top, [each.clone().requires_grad_() for each in given])


def test_dropout_falls_between_layers_and_only_in_training() -> None:
    decoder = RecurrentDecoder("gru", C, D, fed=W, layers=2, dropout=0.5)
    nn.init.zeros_(decoder.cells.all_weights[1][1])
    x, fed = torch.randn(1, 1, C).expand(200, 1, C), torch.zeros(200, W)
    state = Hidden((torch.ones(200, D), torch.zeros(200, D)))
    training = decoder.step(decoder.enter(x)[0], fed, state)
    assert (training.hidden[0] == training.hidden[0][0]).all(), "the recurrence is never dropped"
    assert training.top.std(0).min() > 0.01
    decoder.eval()
    rest = decoder.step(decoder.enter(x)[0], fed, state)
    torch.testing.assert_close(rest.top, rest.top[:1].expand_as(rest.top))


def test_a_state_can_be_reordered_like_a_beam() -> None:
    state, rows = begun("lstm", 2), torch.tensor([2, 0, 0])
    chosen = state.select(rows)
    assert all(
        torch.equal(one, other[rows])
        for one, other in zip(chosen.hidden + chosen.cell, state.hidden + state.cell, strict=True)
    )


def test_an_unknown_cell_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown recurrent cell 'gruu': did you mean 'gru'"):
        RecurrentDecoder("gruu", C, D)
