"""The clockwork RNN against a literal loop over Koutník et al. 2014."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from regard.core.config import parse
from regard.core.errors import UserError
from regard.models.language.clockwork_rnn import ClockworkRNN

B, T, V, M = 2, 17, 7, 3


def built(periods: tuple[int, ...]) -> ClockworkRNN:
    config = ClockworkRNN.Config(width=M * len(periods), periods=periods)
    model = ClockworkRNN(config, V).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def matrices(model: ClockworkRNN) -> tuple[Tensor, Tensor, Tensor]:
    """W, U and b of the paper: one hidden layer, whose U is block upper triangular."""
    width = model.config.width
    enter, again, bias = (torch.zeros(width, n).double() for n in (width, width, 1))
    for index, clock in enumerate(model.clocks):
        rows = slice(index * M, (index + 1) * M)
        enter[rows] = clock.weight_ih_l0[:, :width]
        again[rows, rows] = clock.weight_hh_l0
        again[rows, (index + 1) * M :] = clock.weight_ih_l0[:, width:]
        bias[rows, 0] = clock.bias_ih_l0 + clock.bias_hh_l0
    return enter, again, bias.squeeze(1)


@torch.no_grad()
def literal(model: ClockworkRNN, tokens: Tensor) -> Tensor:
    """One row, step by step; a module whose time it is not keeps its state."""
    enter, again, bias = matrices(model)
    state, states = torch.zeros(model.config.width).double(), []
    for t, token in enumerate(tokens):
        new = torch.tanh(enter @ model.words.embed.weight[token] + again @ state + bias)
        ticks = torch.tensor([t % period == 0 for period in model.config.periods])
        state = torch.where(ticks.repeat_interleave(M), new, state)
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("periods", [(1,), (1, 2, 4, 8), (1, 3, 4, 7), (2, 5), (1, 40)])
def test_it_is_the_equation(periods: tuple[int, ...]) -> None:
    model, tokens = built(periods), torch.randint(V, (B, T))
    states = model({"tokens": tokens}).states
    for row in range(B):
        torch.testing.assert_close(states[row], literal(model, tokens[row]))


def test_slow_modules_never_hear_fast_ones() -> None:
    _, again, _ = matrices(built((1, 2, 4)))
    blocks = again.unflatten(0, (3, M)).unflatten(2, (3, M)).abs().amax((1, 3)) > 0
    assert blocks.tolist() == [[True, True, True], [False, True, True], [False, False, True]]


def test_a_module_holds_its_state_between_ticks() -> None:
    model, tokens = built((1, 2, 4)), torch.randint(V, (1, T))
    states, carry = [], None
    for token in tokens.split(1, dim=1):
        carry = model({"tokens": token}, carry).carry
        states.append(carry["hidden"])
    assert carry is not None
    assert carry["time"].item() == T
    moved = [
        [not torch.equal(*pair) for pair in zip(before.split(M, 1), after.split(M, 1), strict=True)]
        for before, after in pairwise(states)
    ]
    assert moved == [[t % period == 0 for period in (1, 2, 4)] for t in range(1, T)]


def test_one_module_that_always_ticks_is_an_elman_network() -> None:
    model, tokens = built((1,)), torch.randint(V, (B, T))
    want, _ = model.clocks[0](model.words.embed(tokens))
    torch.testing.assert_close(model({"tokens": tokens}).states, want)


@pytest.mark.parametrize("periods", [[], [2, 1], [1, 1, 2]])
def test_periods_must_increase(periods: list[int], as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"model.periods: \[.*\] must be whole numbers, each above"):
        parse(ClockworkRNN.Config, {"periods": periods}, at="model")


def test_modules_have_equal_shares(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"width=10 is not divisible by modules .*=3"):
        ClockworkRNN(ClockworkRNN.Config(width=10, periods=(1, 2, 4)), V)
