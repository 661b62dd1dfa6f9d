"""The conditional random field against enumeration of all paths, and against another package."""

from itertools import pairwise, product
from math import inf

import pytest
import torch
from torch import Tensor
from torchcrf import CRF as Theirs

from regard.core.errors import UserError
from regard.layers.crf import CRF
from regard.outputs.crf import SPAN, ChainTags
from regard.outputs.tags import LegalTags

LENGTHS = torch.tensor([4, 2, 0, 1])
B, T, C = 4, 4, 3


def chain(factor: float = 1.0, dtype: torch.dtype = torch.double) -> ChainTags:
    """Random scores; with a large factor, transitions are too far apart for products."""
    torch.manual_seed(3)
    field = CRF(C, init_range=1.0).to(dtype)
    scores = torch.randn(B, T, C, dtype=dtype)
    made = ChainTags(scores, LENGTHS, factor * field.transitions.detach(), field.start, field.end)
    assert bool(made.transitions.max() - made.transitions.min() < SPAN) == (factor == 1.0)
    return made


def paths(said: ChainTags, row: int) -> dict[tuple[int, ...], float]:
    """The score of every path of a sentence, added up word by word."""
    length = int(said.lengths[row])
    found: dict[tuple[int, ...], float] = {}
    for path in product(range(C), repeat=length):
        score = 0.0
        for place, tag in enumerate(path):
            score += said.scores[row, place, tag].item()
            if place:
                score += said.transitions[path[place - 1], tag].item()
        if path:
            score += said.start[path[0]].item() + said.end[path[-1]].item()
        found[path] = score
    return found


FACTORS = (1.0, 60.0)


@pytest.mark.parametrize("factor", FACTORS)
def test_log_z_the_score_of_a_path_and_the_best_one_are_those_of_enumeration(
    factor: float,
) -> None:
    said = chain(factor)
    totals, best = said.log_partition(), said.best()
    for row, length in enumerate(LENGTHS.tolist()):
        every = paths(said, row)
        total = torch.tensor(list(every.values()), dtype=torch.double).logsumexp(0)
        torch.testing.assert_close(totals[row].detach(), total)
        assert tuple(best[row, :length].tolist()) == max(every, key=lambda path: every[path])
        assert not best[row, length:].any()
        for path, score in every.items():
            tags = torch.full((B, T), 2)
            tags[row, :length] = torch.tensor(path, dtype=torch.long)
            assert said.score(tags)[row].item() == pytest.approx(score)


@pytest.mark.parametrize("factor", FACTORS)
def test_probabilities_are_those_of_enumeration(factor: float) -> None:
    said = chain(factor)
    found = said.probabilities()
    for row, length in enumerate(LENGTHS.tolist()):
        every = paths(said, row)
        whole = torch.tensor(list(every.values()), dtype=torch.double).softmax(0)
        expected = torch.zeros(T, C, dtype=torch.double)
        for path, share in zip(every, whole.tolist(), strict=True):
            for place, tag in enumerate(path):
                expected[place, tag] += share
        torch.testing.assert_close(found[row], expected)
        assert not found[row, length:].any()


@pytest.mark.parametrize("factor", FACTORS)
def test_the_gradient_is_that_of_finite_differences(factor: float) -> None:
    said = chain(factor)
    targets = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]])

    def surprise(scores: Tensor, passing: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return ChainTags(scores, LENGTHS, passing, start, end).nll(targets)

    given = [said.scores, said.transitions, said.start.detach(), said.end.detach()]
    assert torch.autograd.gradcheck(surprise, [each.requires_grad_() for each in given])


def test_loss_gradient_and_best_tags_are_those_of_pytorch_crf() -> None:
    ours, theirs = CRF(7, init_range=0.5), Theirs(7, batch_first=True)
    with torch.no_grad():
        theirs.transitions.copy_(ours.transitions)
        theirs.start_transitions.copy_(ours.start)
        theirs.end_transitions.copy_(ours.end)
    lengths = torch.tensor([9, 5, 1])
    mask = torch.arange(9) < lengths[:, None]
    targets = torch.randint(0, 7, (3, 9))
    scores = torch.randn(2, 3, 9, 7)
    mine, other = (each.clone().requires_grad_() for each in (scores[0], scores[0]))
    said = ours(mine, lengths)
    loss, reference = said.nll(targets), -theirs(other, targets, mask)
    torch.testing.assert_close(loss, reference)
    loss.backward()
    reference.backward()
    torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(ours.transitions.grad, theirs.transitions.grad)
    torch.testing.assert_close(ours.start.grad, theirs.start_transitions.grad)
    torch.testing.assert_close(ours.end.grad, theirs.end_transitions.grad)
    best = [row[:length] for row, length in zip(said.best().tolist(), lengths, strict=True)]
    assert best == theirs.decode(other, mask)


def test_a_forbidden_transition_is_never_taken_and_leaves_gradients_finite() -> None:
    field = CRF(C)
    with torch.no_grad():
        field.transitions[0, 1] = -inf
    scores = torch.tensor([[[9.0, 0.0, 0.0], [0.0, 9.0, 8.0]]]).requires_grad_()
    said = field(scores, torch.tensor([2]))
    assert said.best().tolist() == [[0, 2]]
    assert said.probabilities().isfinite().all()
    said.nll(torch.tensor([[0, 2]])).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_very_large_scores_stay_finite_in_single_precision() -> None:
    scores = torch.tensor([[[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]]]).requires_grad_()
    loss = CRF(C)(scores, torch.tensor([2])).nll(torch.tensor([[1, 0]]))
    loss.backward()
    assert loss.item() == pytest.approx(4e4, rel=1e-3)
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_no_tags_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="tags=0 must be a whole number above zero"):
        CRF(0)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_legal_tags_are_those_of_a_search_over_all(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, transitions = (torch.randn(*size, generator=generator) for size in ((2, 4, 3), (3, 3)))
    start, end = (torch.randn(3, generator=generator) for _ in range(2))
    lengths = torch.tensor([4, 2])
    legal = LegalTags(
        pairs=torch.tensor([[True, True, False], [True, False, True], [True, True, True]]),
        start=torch.tensor([True, True, False]),
        end=torch.tensor([True, False, True]),
    )
    output = ChainTags(scores, lengths, transitions, start, end)
    for row, length in enumerate(lengths.tolist()):
        allowed = [
            tags
            for tags in product(range(3), repeat=length)
            if legal.start[tags[0]]
            and legal.end[tags[-1]]
            and all(legal.pairs[a, b] for a, b in pairwise(tags))
        ]
        values = {
            tags: float(
                ChainTags(
                    scores[row : row + 1, :length], torch.tensor([length]), transitions, start, end
                ).score(torch.tensor([tags]))
            )
            for tags in allowed
        }
        best = max(values, key=values.__getitem__)
        assert output.best(legal)[row, :length].tolist() == list(best)
