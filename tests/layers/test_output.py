"""The output layer says the same whether logits are made at once or a few positions at a time."""

import pytest
import torch
import torch.nn.functional as F

from regard.core.padding import IGNORE
from regard.outputs import next_token as output
from regard.outputs.next_token import SoftmaxOutput

B, T, D, V = 3, 25, 6, 40


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("piece", [2**22, 20 * V, V])
def test_surprise_and_its_gradients_are_those_of_the_logits(
    piece: int, smoothing: float, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "PIECE", piece)
    monkeypatch.setattr(output, "ROWS", 1)
    states = torch.randn(B, T, D, dtype=torch.double, requires_grad=True)
    weight = torch.randn(V, D, dtype=torch.double, requires_grad=True)
    bias = torch.randn(V, dtype=torch.double, requires_grad=True) if biased else None
    targets = torch.randint(V, (B, T))
    targets[1, 20:] = targets[2] = IGNORE
    words = SoftmaxOutput(states, weight, bias)
    got = words.nll(targets, smoothing=smoothing)
    want = F.cross_entropy(
        words.logits().flatten(0, 1),
        targets.flatten(),
        reduction="sum",
        label_smoothing=smoothing,
    )
    torch.testing.assert_close(got, want)
    each = words.log_probability(targets)
    torch.testing.assert_close(each.sum(), -words.nll(targets))
    inputs = [states, weight] + ([] if bias is None else [bias])
    slopes = torch.autograd.grad(got, inputs, retain_graph=True)
    torch.testing.assert_close(slopes, torch.autograd.grad(want, inputs))
    torch.testing.assert_close(slopes, torch.autograd.grad(got, inputs), msg="a second time")


@pytest.mark.parametrize(
    ("positions", "words", "rows"),
    [(900, 10_000, None), (4096, 10_000, 1677), (3072, 50_257, 512), (3072, 250_000, 268)],
)
def test_pieces_are_as_large_as_there_is_room(positions: int, words: int, rows: int | None) -> None:
    few = SoftmaxOutput(torch.zeros(1, 1, 1), torch.zeros(words, 1))._pieces(positions)
    assert (None if few is None else few.batch_chunk_size) == rows


def test_nothing_to_predict_is_no_surprise() -> None:
    words = SoftmaxOutput(torch.randn(1, 3, D), torch.randn(V, D))
    assert words.nll(torch.full((1, 3), IGNORE), smoothing=0.1) == 0


def test_smoothing_gives_nothing_to_a_word_that_is_never_said() -> None:
    states = torch.randn(B, T, D, dtype=torch.double, requires_grad=True)
    weight = torch.randn(V, D, dtype=torch.double, requires_grad=True)
    bias = torch.randn(V, dtype=torch.double, requires_grad=True)
    targets = torch.randint(1, V, (B, T))
    targets[1, 20:] = IGNORE
    words = SoftmaxOutput(states, weight, bias)
    got = words.nll(targets, smoothing=0.2, excluded=0)
    wanted = torch.full((B, T, V), 0.2 / (V - 1), dtype=torch.double)  # in the words of the loss
    wanted[:, :, 0] = 0
    wanted.scatter_add_(2, targets.clamp_min(0)[..., None], torch.full_like(wanted[..., :1], 0.8))
    wanted[targets == IGNORE] = 0
    want = -(wanted * words.logits().log_softmax(2)).sum()
    torch.testing.assert_close(got, want)
    inputs = [states, weight, bias]
    torch.testing.assert_close(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs))
