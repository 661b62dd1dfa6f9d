"""Beam search on a device that has no float64."""

import pytest
import torch
from torch import Tensor

from regard.core.protocols import Batch
from regard.decode import search
from tests.decode.fakes import Read
from tests.decode.translators import EOS, beam
from tests.explain.without_float64 import WithoutFloat64

SOURCE = {"source": torch.tensor([[7, 8, 9], [6, 5, 0]]), "source_lengths": torch.tensor([3, 2])}


class Bigrams:
    """The next token depends on the last one alone, and so does where it looks."""

    def __init__(self) -> None:
        self.logits, self.looks = torch.randn(6, 6), torch.randn(6, 3).softmax(1)

    def start(self, source: Batch) -> Read:
        return Read(source["source"][:, :0])

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:
        read = torch.cat((state.tokens, tokens[:, None]), 1)
        return self.logits[tokens], Read(read)

    def weights(self, state: Read) -> Tensor:
        return self.looks[state.tokens[:, -1]]


@pytest.mark.parametrize("groups", [1, 2])
def test_beam_search_with_coverage_runs_without_float64(groups: int) -> None:
    model = Bigrams()
    chosen = beam(
        width=4, n_best=2, max_length=5, coverage=0.3, groups=groups, diversity=0.5 * (groups > 1)
    )
    wanted = search(model, SOURCE, chosen, weights=model.weights)
    with WithoutFloat64():
        found = search(model, SOURCE, chosen, weights=model.weights)
    assert found == wanted
    assert all(EOS not in best.tokens for best, *_ in found)
