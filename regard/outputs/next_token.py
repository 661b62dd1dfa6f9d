"""The distribution of the next token at each position.

A loss needs the probability of the targets, a search needs logits. Neither depends on how the model
computes them, and the table of all logits is never held where only the targets matter.

>>> import torch
>>> output = SoftmaxOutput(torch.zeros(1, 2, 4), torch.randn(10, 4))
>>> round(output.nll(torch.tensor([[3, 5]])).item() / 2, 4)      # log 10 for each of two
2.3026
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.padding import IGNORE
from regard.core.precision import in_float32
from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput

PIECE = 2**24
"""Logits that are held at a time, 64 MiB: more would not fit a cache either way ..."""

ROWS = 512
"""... but the weights of a large vocabulary are read and their gradient written once a piece, so
that a piece has this many positions, if there is room."""

LARGEST_PIECE = 2**26
"""The most logits of a piece: 256 MiB."""


@dataclass(frozen=True)
class NextTokens(ModelOutput):
    """A distribution over the vocabulary at each position of each sequence."""

    @abstractmethod
    def nll(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, excluded: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p of the targets, summed over all that are not `IGNORE`.

        `smoothing` is the share of the loss that is the mean over all tokens; `excluded` is left
        out of that mean: a token that is never a target, such as padding, would otherwise learn to
        be a little likely everywhere.
        """

    @abstractmethod
    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Log p of each target; zero where it is `IGNORE`."""

    @abstractmethod
    def logits(self) -> Float[Tensor, "B T V"]:
        """Log-probabilities of all tokens, up to a constant for each position."""

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `targets` [B,T]."""
        return self.with_auxiliary(self.nll(batch["targets"]))


@dataclass(frozen=True)
class SoftmaxOutput(NextTokens):
    """softmax(W h + b): the usual output layer."""

    states: Float[Tensor, "B T D"]
    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, "V"] | None = None

    def nll(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, excluded: int | None = None
    ) -> Float[Tensor, ""]:
        """Projection and cross-entropy in one, a few positions at a time.

        Label smoothing is -(1-s) log p(y) - s mean log p. That is -log p(y) plus s times the
        difference of the target's logit and the mean logit; and since logits are linear in the
        weights, the mean logit is that of the mean row.
        """
        states, tokens = self._counted(targets)
        total = self._cross_entropy(states, tokens, "sum")
        if smoothing == 0.0:
            return total
        above = F.embedding(tokens.clamp_min(0), self.weight) - _mean_without(self.weight, excluded)
        gain = (states * above).sum(1)
        if self.bias is not None:
            gain = gain + self.bias[tokens.clamp_min(0)] - _mean_without(self.bias, excluded)
        return total + smoothing * (gain * (tokens != IGNORE)).sum()

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """The same, position by position."""
        states = self.states.flatten(0, 1)
        return -self._cross_entropy(states, targets.flatten(), "none").view_as(targets)

    def _counted(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """States and targets in one row; on a CPU without those that are `IGNORE`.

        A tenth of a batch is padding, whose logits cost as much as any. On other devices it would
        cost more to wait for how many there are.
        """
        states, tokens = self.states.flatten(0, 1), targets.flatten()
        if tokens.device.type != "cpu":
            return states, tokens
        real = (tokens != IGNORE).nonzero().squeeze(1)
        if len(real) in (0, len(tokens)):
            return states, tokens
        return states.index_select(0, real), tokens.index_select(0, real)

    def _cross_entropy(self, states: Tensor, tokens: Tensor, reduction: str) -> Tensor:
        pieces = self._pieces(len(tokens))
        return F.linear_cross_entropy(
            # In pieces the loss has the dtype of the states: a sum in bfloat16 has three digits.
            states if pieces is None else in_float32(states),
            self.weight,
            tokens,
            linear_bias=self.bias,
            reduction=reduction,
            ignore_index=IGNORE,
            options=pieces,
        )

    def _pieces(self, positions: int) -> nn.LinearCrossEntropyOptions | None:
        """How many positions at a time; None is all at once, where they are few."""
        vocabulary = self.weight.shape[0]
        if positions * vocabulary <= PIECE:
            return None
        rows = max(16, PIECE // vocabulary, min(ROWS, LARGEST_PIECE // vocabulary))
        return nn.LinearCrossEntropyOptions(
            batch_chunk_size=rows, chunking_method=None, allow_retain_graph=True
        )

    def logits(self) -> Float[Tensor, "B T V"]:
        """W h + b."""
        return F.linear(self.states, self.weight, self.bias)


def _mean_without(rows: Float[Tensor, "V ..."], excluded: int | None) -> Float[Tensor, "..."]:
    """The mean of all rows but one.

    >>> import torch
    >>> _mean_without(torch.tensor([7.0, 1.0, 3.0]), 0)
    tensor(2.)
    """
    return rows.mean(0) if excluded is None else (rows.sum(0) - rows[excluded]) / (len(rows) - 1)
