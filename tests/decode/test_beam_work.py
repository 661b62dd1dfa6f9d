"""The work of a search: which rows it chooses and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.core.protocols import Batch
from regard.decode import GreedySearch, search
from tests.decode.translators import EOS, NUMBERS, Reading, Translator, beam, sources


@dataclass(frozen=True)
class Watched(Reading):
    """Notes which rows were chosen."""

    chosen: list[list[int]] = field(default_factory=list)

    def select(self, rows: Tensor) -> "Watched":
        self.chosen.append(rows.tolist())
        return Watched(self.source[rows], self.tokens[rows], self.chosen)


@dataclass
class Scripted(Translator):
    """Says what each sentence is told to say, and the second best is far behind."""

    lengths: Sequence[int] = ()
    chosen: list[list[int]] = field(default_factory=list)

    def start(self, source: Batch) -> Watched:
        reading = super().start(source)
        return Watched(reading.source, reading.tokens, self.chosen)

    def step(self, tokens: Tensor, state: Reading) -> tuple[Tensor, Reading]:
        logits, after = super().step(tokens, state)
        return logits, Watched(after.source, after.tokens, self.chosen)

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        logits = torch.tensor([0.0, -30.0, 9.0, -20.0]).repeat(len(read), 1)
        logits[:, 0] -= read.shape[1]  # the sooner, the better: no two are worth the same
        wanted = torch.tensor(self.lengths)[source.long()]
        logits[read.shape[1] > wanted, EOS] = 40.0
        return logits


def test_rows_are_only_chosen_when_their_order_changes() -> None:
    model = Scripted(lengths=[6])
    search(model, sources([0]), beam(width=2, n_best=1, length_penalty="none"))
    assert model.chosen[0] == [0, 0], "one row becomes two"
    assert all(rows != [0, 1] for rows in model.chosen)
    assert len(model.chosen) < len(model.calls) - 1


def test_sentences_that_are_done_leave_with_the_rows_in_the_order_of_sentences() -> None:
    model = Scripted(lengths=[1, 3, 2])
    found = search(model, sources([0, 1, 2]), beam(width=2, length_penalty="none"))
    assert [best.tokens for (best,) in found] == [[2], [2, 2, 2], [2, 2]]
    assert [len(logits) for _, logits in model.calls] == [3, 6, 4, 2]


def test_greedy_chooses_rows_only_when_a_quarter_has_ended() -> None:
    model = Scripted(lengths=[1, 2, 3, 4, 5, 6, 7, 8])
    steps = [
        [number for number, _ in step]
        for step in GreedySearch(model, sources(range(8)), beam(width=1, max_length=20))
    ]
    assert [len(logits) for _, logits in model.calls] == [8, 8, 8, 6, 6, 4, 3, 2, 1]
    assert steps == [[], [], [0, 1], [], [2, 3], [4], [5], [6], [7]]
    assert model.chosen == [[2, 3, 4, 5, 6, 7], [2, 3, 4, 5], [1, 2, 3], [1, 2], [1]]


class Rising(Translator):
    """Ends at once with some chance, or goes on with certainty once it has gone on."""

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        if read.shape[1] == 1:
            return torch.tensor([[0.0, 0.6, 0.4, 0.0]] * len(read)).log()
        if read.shape[1] <= 4:
            return torch.tensor([[0.0, 0.0, 1.0, 0.0]] * len(read)).log()
        return torch.tensor([[0.0, 1.0, 0.0, 0.0]] * len(read)).log()


def test_the_search_goes_on_exactly_as_long_as_something_better_may_come() -> None:
    """Of four tokens and chance 0.4, or none and 0.6: the first is better per token."""
    average = {"length_penalty": "average", "alpha": 1}
    ((late,),) = search(model := Rising(), sources([1]), beam(width=2, **average))
    assert late.tokens == [2, 2, 2, 2]
    assert len(model.calls) == 5
    ((soon,),) = search(model := Rising(), sources([1]), beam(width=2, length_penalty="none"))
    assert soon.tokens == []
    assert len(model.calls) == 1, "what costs more now never costs less"
    # log 0.4 / 2 > log 0.6, but only if a text of one token and its end is allowed to be so long
    ((near,),) = search(model := Rising(), sources([1]), beam(width=2, max_length=0, **average))
    assert near.tokens == []
    assert len(model.calls) == 1


def test_early_ends_when_as_many_as_there_are_beams_have_ended() -> None:
    for number in NUMBERS:
        exact, early = Translator(), Translator()
        best = search(exact, sources([number]), beam(width=3, early=False, alpha=1.5))
        first = search(early, sources([number]), beam(width=3, early=True, alpha=1.5))
        assert len(early.calls) <= len(exact.calls)
        assert first[0][0].score <= best[0][0].score
