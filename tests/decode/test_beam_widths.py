"""Beam search of every width over vocabularies of every size, against plain references."""

import pytest
import torch
from torch import Tensor

from regard.decode import search
from regard.decode.top_k import chunk_size, top_candidates
from tests.decode.translators import (
    BOS,
    EOS,
    Tokens,
    Translator,
    all_targets,
    beam,
    log_probability,
    sources,
)

WIDTHS = (1, 2, 4, 16, 17, 20, 51, 64, 130)
VOCABULARIES = (5, 11, 100, 2047, 2048, 2059, 3000, 4185, 10_000)
"""Those around 2,048, where rows begin to be cut into parts, and some with few parts."""


def test_the_table_has_cases_with_fewer_parts_than_candidates() -> None:
    parts = {size: size // chunk_size(size) for size in VOCABULARIES if size >= 2048}
    assert parts[2059] < 2 * 16, "a width that the server allows"
    assert all(parts[size] < 2 * max(WIDTHS) for size in parts)
    assert any(parts[size] > 2 * width for size in parts for width in WIDTHS)


@pytest.mark.parametrize("size", VOCABULARIES)
def test_the_top_is_that_of_the_whole_table_at_every_width(size: int) -> None:
    for width in WIDTHS:
        for rows in {1, min(width, 3)}:  # the first step has one row for each sentence
            logs, scores = torch.randn(2, rows, size), torch.randn(2, rows)
            values, beams, tokens = top_candidates(logs, scores, 2 * width)
            joined = (logs + scores[:, :, None]).flatten(1)  # [N,WV]
            expected = joined.sort(1, descending=True).values[:, : 2 * width]
            assert torch.from_numpy(values).equal(expected)
            places = torch.from_numpy(beams * size + tokens)
            assert joined.gather(1, places).equal(expected)
            assert all(len(set(row)) == len(row) for row in places.tolist())


class Normal(Translator):
    """Logits as if drawn from a normal distribution: the likeliest tokens are far from ties."""

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        weights = torch.arange(1, read.shape[1] + 1, dtype=torch.float64).sqrt()
        seeds = ((read + 1.3) * weights).sum(1, keepdim=True) + 7.7 * source[:, None]
        uniform = (torch.sin(seeds + torch.arange(self.vocabulary)) * 43_758.5453) % 1
        logits = self.spread * torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
        return logits.index_fill(1, torch.tensor([EOS]), 6.0).float()  # likely, but not the most


def whole_table(model: Translator, number: int, width: int, most: int) -> dict[Tokens, float]:
    """Ended hypotheses with their log-probabilities; every step sorts all beams and tokens."""
    live, logs = torch.full((1, 1), BOS), torch.zeros(1, dtype=torch.float64)
    ended: dict[Tokens, float] = {}
    for step in range(most + 1):
        source = torch.full((len(live),), float(number), dtype=torch.float64)
        table = model.after(source, live).double().log_softmax(1) + logs[:, None]  # [W,V]
        if step == most:
            table[:, :EOS], table[:, EOS + 1 :] = -torch.inf, -torch.inf
        values, order = table.flatten().sort(descending=True)
        values, order = values[: 2 * width], order[: 2 * width]
        rows, tokens = order // model.vocabulary, order % model.vocabulary
        ends = (tokens == EOS) & (values > -torch.inf)
        for place in ends[:width].nonzero().flatten().tolist():
            ended[tuple(live[rows[place], 1:].tolist())] = float(values[place])
        rest = (~ends).nonzero().flatten()[:width]
        live, logs = torch.cat((live[rows[rest]], tokens[rest, None]), 1), values[rest]
    return ended


@pytest.mark.parametrize("size", VOCABULARIES)
def test_it_finds_what_sorting_the_whole_table_finds(size: int) -> None:
    model, most, numbers = Normal(size), 2, [3, 8]
    for width in WIDTHS[1:]:  # a beam of one ends where greedy search does
        chosen = beam(width=width, n_best=width, max_length=most, length_penalty="none")
        every = search(model, sources(numbers), chosen)
        for number, found in zip(numbers, every, strict=True):
            logs = whole_table(model, number, width, most)
            best = sorted(logs.items(), key=lambda each: -each[1])[:width]
            assert [tuple(each.tokens) for each in found] == [tokens for tokens, _ in best]
            scores = [log for _, log in best]
            assert [each.log_probability for each in found] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(("size", "most"), [(5, 3), (11, 2), (100, 1)])
def test_a_beam_of_130_finds_all_that_can_be_written(size: int, most: int) -> None:
    model = Translator(size, spread=1.0)
    targets = list(all_targets(size, most))
    wide = beam(width=130, n_best=len(targets), max_length=most)
    (found,) = search(model, sources([4]), wide)
    scores = {
        tokens: log_probability(model, 4, tokens) / wide.penalty(len(tokens) + 1)
        for tokens in targets
    }
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    assert [tuple(each.tokens) for each in found] == best
    assert [each.score for each in found] == pytest.approx([scores[each] for each in best])
