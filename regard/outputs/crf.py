"""Tags of a sentence as a whole: a linear-chain conditional random field (Lafferty et al. 2001).

s(x, y) = start(y_1) + Σ_t e_t(y_t) + Σ_t A(y_t-1, y_t) + end(y_T), and p(y | x) = exp(s(x, y) - log
Z). log Z is the forward algorithm, the best tags are Viterbi's, both in log space, over padded
batches; a sentence without words has log Z = 0 and no tags. All of it is computed in float32, also
under autocast: a sum over many words has no digits to spare. The transitions are parameters of
layers/crf.py.

The gradient of log Z is written by hand: the probability of each tag and of each pair of tags, by
the forward-backward algorithm. A step log Σ_i exp(α_i + A_ij) is then a product of matrices, not a
table [B,C,C] of exponentials. That is exact as long as transitions differ by less than SPAN; where
they differ by more, as forbidden ones do, the table is made.

>>> zero = torch.zeros(3)
>>> output = ChainTags(torch.zeros(1, 2, 3), torch.tensor([2]), torch.zeros(3, 3), zero, zero)
>>> round(output.nll(torch.tensor([[0, 1]])).item() / 2, 4)          # log 3 for each word
1.0986
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.core.padding import real_positions
from regard.core.precision import without_autocast
from regard.outputs.tags import LegalTags, Tags

SPAN = 40.0
"""e^-40 of the largest term is lost in the last digit of float32, and e^-87 is still a number."""


@dataclass(frozen=True)
class ChainTags(Tags):
    """Tags of a sentence as a whole."""

    transitions: Float[Tensor, "C C"]
    """From the row's tag to the column's."""
    start: Float[Tensor, "C"]
    end: Float[Tensor, "C"]

    def nll(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """log Z - s(x, y), summed over sentences."""
        return (self.log_partition() - self.score(targets)).sum()

    def score(self, tags: Int[Tensor, "B T"]) -> Float[Tensor, "B"]:
        """The score s(x, y) of these tags; what stands at padding does not count."""
        real = real_positions(self.lengths, tags.shape[1])  # [B,T]
        tags = torch.where(real, tags, 0)
        emitted = self.scores.gather(2, tags[..., None]).squeeze(2)  # [B,T]
        passed = self.transitions[tags[:, :-1], tags[:, 1:]]  # [B,T-1]
        last = tags.gather(1, (self.lengths - 1).clamp_min(0)[:, None]).squeeze(1)  # [B]
        ends = torch.where(self.lengths > 0, self.start[tags[:, 0]] + self.end[last], 0.0)
        return (emitted * real).sum(1) + (passed * real[:, 1:]).sum(1) + ends

    def log_partition(self) -> Float[Tensor, "B"]:
        """log Z: the forward algorithm."""
        if self._moderate():
            given = (self.scores, self.transitions, self.start, self.end)
            total: Tensor = _LogPartition.apply(*given, self.lengths)  # type: ignore[no-untyped-call]
            return total
        ahead = _forward(self.scores, self.lengths, _TableStep(self.transitions), self.start)
        return _closed(ahead, self.end, self.lengths)

    def _moderate(self) -> bool:
        """Do transitions differ by so little that exponentials of them are safe?"""
        low, high = self.transitions.detach().aminmax()
        return bool(high - low < SPAN)

    @torch.no_grad()
    def probabilities(self) -> Float[Tensor, "B T C"]:
        """p(y_t = c | x): forward times backward."""
        step = _ProductStep(self.transitions) if self._moderate() else _TableStep(self.transitions)
        ahead = _forward(self.scores, self.lengths, step, self.start)
        behind = _backward(self.scores, self.lengths, step, self.end)
        total = _closed(ahead, self.end, self.lengths)
        return _marginals(ahead, behind, total, self.lengths)

    @torch.no_grad()
    def best(self, legal: LegalTags | None = None) -> Int[Tensor, "B T"]:
        """Viterbi: the tags of the highest score among those that are legal; 0 at padding."""
        if legal is not None:
            return self._limited_to(legal).best()
        words = self.scores.shape[1]
        reached = self.start + self.scores[:, 0]  # [B,C]
        before: list[Tensor] = []
        for t in range(1, words):
            candidates, from_tag = (reached[:, :, None] + self.transitions).max(1)  # [B,C]
            goes_on = (self.lengths > t)[:, None]
            reached = torch.where(goes_on, candidates + self.scores[:, t], reached)
            # Past the end of a sentence the path stays where it is.
            stays = torch.arange(from_tag.shape[1], device=from_tag.device)
            before.append(torch.where(goes_on, from_tag, stays))
        tag = (reached + self.end).argmax(1, keepdim=True)  # [B,1]
        path = [tag]
        for from_tag in reversed(before):
            tag = from_tag.gather(1, tag)
            path.append(tag)
        tags = torch.cat(path[::-1], dim=1)  # [B,T]
        return torch.where(real_positions(self.lengths, words), tags, 0)

    def _limited_to(self, legal: LegalTags) -> "ChainTags":
        """The same chain, in which what is not legal is never on the best path."""
        here = self.transitions.device
        return replace(
            self,
            transitions=torch.where(legal.pairs.to(here), self.transitions, -torch.inf),
            start=torch.where(legal.start.to(here), self.start, -torch.inf),
            end=torch.where(legal.end.to(here), self.end, -torch.inf),
        )


class _TableStep:
    """log Σ_i exp(x_i + A_ij), by writing all i and j out."""

    def __init__(self, transitions: Float[Tensor, "C C"]) -> None:
        self._transitions = transitions

    def ahead(self, x: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """From every tag to the next one."""
        return (x[:, :, None] + self._transitions).logsumexp(1)

    def behind(self, x: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """From every next tag back."""
        return (x[:, None, :] + self._transitions).logsumexp(2)


class _ProductStep:
    """The same, as a product of matrices, for transitions that differ by less than SPAN."""

    def __init__(self, transitions: Float[Tensor, "C C"]) -> None:
        self.most = transitions.max()
        self.factors = (transitions - self.most).exp()  # [C,C]
        self._turned = self.factors.t().contiguous()

    def ahead(self, x: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """From every tag to the next one."""
        return self._through(x, self.factors)

    def behind(self, x: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """From every next tag back."""
        return self._through(x, self._turned)

    def _through(self, x: Tensor, factors: Tensor) -> Tensor:
        peak = x.amax(1, keepdim=True)  # [B,1]
        with without_autocast(x):
            sums = (x - peak).exp() @ factors  # [B,C]
        return sums.log() + (peak + self.most)


def _forward(
    scores: Float[Tensor, "B T C"],
    lengths: Int[Tensor, "B"],
    step: _TableStep | _ProductStep,
    start: Float[Tensor, "C"],
) -> Float[Tensor, "T B C"]:
    """α_t: all ways to each tag of each word; behind the last word it stays as it is."""
    reached = [start + scores[:, 0]]
    shortest = int(lengths.min())
    for t in range(1, scores.shape[1]):
        following = step.ahead(reached[-1]) + scores[:, t]
        if t >= shortest:
            following = torch.where((lengths > t)[:, None], following, reached[-1])
        reached.append(following)
    return torch.stack(reached)


def _backward(
    scores: Float[Tensor, "B T C"],
    lengths: Int[Tensor, "B"],
    step: _TableStep | _ProductStep,
    end: Float[Tensor, "C"],
) -> Float[Tensor, "T B C"]:
    """β_t: all ways from each tag of each word to the end."""
    left = [end.expand(len(scores), len(end))]
    shortest = int(lengths.min())
    for t in range(scores.shape[1] - 1, 0, -1):
        preceding = step.behind(left[-1] + scores[:, t])
        if t >= shortest:
            preceding = torch.where((lengths > t)[:, None], preceding, left[-1])
        left.append(preceding)
    return torch.stack(left[::-1])


def _closed(
    ahead: Float[Tensor, "T B C"], end: Float[Tensor, "C"], lengths: Int[Tensor, "B"]
) -> Float[Tensor, "B"]:
    """log Z from the last α; zero for a sentence without words."""
    return torch.where(lengths > 0, (ahead[-1] + end).logsumexp(1), 0.0)


def _marginals(
    ahead: Float[Tensor, "T B C"],
    behind: Float[Tensor, "T B C"],
    total: Float[Tensor, "B"],
    lengths: Int[Tensor, "B"],
) -> Float[Tensor, "B T C"]:
    """The probability of each tag at each word; 0 at padding."""
    real = real_positions(lengths, len(ahead)).t()[..., None]  # [T,B,1]
    likely = torch.where(real, ahead + behind - total[:, None], -torch.inf).exp()
    return likely.transpose(0, 1)


class _LogPartition(torch.autograd.Function):
    """log Z, and its gradient: what the field expects of tags and of pairs of tags."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        scores: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        ahead = _forward(scores, lengths, _ProductStep(transitions), start)
        total = _closed(ahead, end, lengths)
        ctx.save_for_backward(scores, transitions, end, lengths, ahead, total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        saved: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        scores, transitions, end, lengths, ahead, total = saved
        step = _ProductStep(transitions)
        behind = _backward(scores, lengths, step, end)
        tags = _marginals(ahead, behind, total, lengths) * grad[:, None, None]  # [B,T,C]
        pairs = _expected_pairs(scores, lengths, step, ahead, behind, total, grad)
        last = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, len(end))
        ends = tags.gather(1, last).sum((0, 1))
        return tags, pairs, tags[:, 0].sum(0), ends, None


def _expected_pairs(
    scores: Float[Tensor, "B T C"],
    lengths: Int[Tensor, "B"],
    step: _ProductStep,
    ahead: Float[Tensor, "T B C"],
    behind: Float[Tensor, "T B C"],
    total: Float[Tensor, "B"],
    grad: Float[Tensor, "B"],
) -> Float[Tensor, "C C"]:
    """Σ over words of p(y_t-1 = i, y_t = j), by one product over all of them."""
    first = ahead[:-1]  # [T-1,B,C]
    second = scores.transpose(0, 1)[1:] + behind[1:]
    peaks = first.amax(2), second.amax(2)  # [T-1,B]
    real = real_positions(lengths, len(ahead)).t()[1:]
    scale = torch.where(real, peaks[0] + peaks[1] + step.most - total, -torch.inf).exp() * grad
    left = (first - peaks[0][..., None]).exp() * scale[..., None]
    right = (second - peaks[1][..., None]).exp()
    with without_autocast(left):
        return step.factors * (left.flatten(0, 1).t() @ right.flatten(0, 1))
