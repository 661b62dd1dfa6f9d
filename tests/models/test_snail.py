"""SNAIL: literal loops over the paper's blocks, and steps that equal the whole sequence."""

from math import exp, sqrt

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.layers.snail import DenseBlock, SnailAttention, SnailBlocks
from regard.models.memory.snail import SNAIL


def blocks(length: int = 6) -> SnailBlocks:
    torch.manual_seed(3)
    made = SnailBlocks(4, length=length, layout="ATA", filters=3, attention=((5, 2), (6, 2)))
    return made.double()


def by_hand(made: SnailBlocks, x: Tensor) -> Tensor:
    """One sequence [T,D], position by position."""
    for block in made.blocks:
        rows = []
        for t in range(len(x)):
            if isinstance(block, DenseBlock):
                before = x[t - block.dilation] if t >= block.dilation else torch.zeros_like(x[t])
                filters = block.width - x.shape[1]
                w, b = block.convolution.weight, block.convolution.bias
                both = w[:, : x.shape[1]] @ before + w[:, x.shape[1] :] @ x[t] + b
                new = torch.tanh(both[:filters]) * torch.sigmoid(both[filters:])
            else:
                query = block.query(x[t])
                scores = [float(query @ block.key(x[s])) / sqrt(len(query)) for s in range(t + 1)]
                total = sum(map(exp, scores))
                new = sum(exp(e) / total * block.value(x[s]) for s, e in enumerate(scores))
            rows.append(torch.cat([x[t], new]))
        x = torch.stack(rows)
    return x


def test_the_equations_of_the_paper() -> None:
    made, x = blocks(), torch.randn(2, 6, 4, dtype=torch.float64)
    with torch.no_grad():
        whole = made(x)
        for row in range(2):
            torch.testing.assert_close(whole[row], by_hand(made, x[row]))


def test_dilations_double_until_they_cover_the_sequence() -> None:
    found = [each.dilation for each in blocks(6).blocks if isinstance(each, DenseBlock)]
    assert found == [1, 2, 4]
    assert len([each for each in blocks(6).blocks if isinstance(each, SnailAttention)]) == 2


def test_alternatives_equal_one_sequence_each() -> None:
    made, x = blocks(), torch.randn(2, 9, 4, dtype=torch.float64)
    with torch.no_grad():
        together = made(x, prefix=5)
        for last in range(5, 9):
            alone = made(x[:, [0, 1, 2, 3, 4, last]])
            torch.testing.assert_close(together[:, last], alone[:, -1])
        torch.testing.assert_close(together[:, :5], made(x[:, :5]))


def test_steps_equal_the_whole_and_states_are_selected() -> None:
    made, x = blocks(), torch.randn(3, 7, 4, dtype=torch.float64)
    with torch.no_grad():
        whole, state = made(x), None
        for t in range(7):
            if t == 4:
                rows = torch.tensor([2, 0])
                state, x, whole = state.select(rows), x[rows], whole[rows]
            now, state = made.step(x[:, t], state)
            torch.testing.assert_close(now, whole[:, t])


def test_the_gradient_is_that_of_differences() -> None:
    made, x = blocks(), torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: made(given, prefix=3), (x,))


def test_a_layout_that_does_not_fit_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="layout='AX' must be made of A"):
        SnailBlocks(4, length=3, layout="AX", filters=2, attention=((2, 2),))
    config = SNAIL.Config(channels=(2, 2), layout="A", attention=((2, 2),))
    with pytest.raises(UserError, match="2 blocks halve an image to nothing"):
        SNAIL(config, ways=2, shots=1, colours=1, size=3)
