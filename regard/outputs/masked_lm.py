"""What BERT returns: the word behind each mask, and whether one part follows the other.

>>> words = MaskedWords(torch.randn(1, 3, 4), torch.tanh, torch.zeros(10, 4), torch.zeros(10))
>>> words.at(torch.tensor([[True, False, False]])).logits().shape
torch.Size([1, 1, 10])
>>> round(words.nll(torch.tensor([[IGNORE, 5, IGNORE]])).item(), 4)    # log 10 for one word
2.3026
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch as torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.outputs.next_token import SoftmaxOutput
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class MaskedWords(ModelOutput):
    """A distribution over words at each position, computed where it is needed.

    In training that is one position in seven.
    """

    states: Float[Tensor, "B T D"]
    transform: Callable[[Tensor], Tensor]
    """The layers between a state and the output layer."""
    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, "V"]

    def at(self, where: Bool[Tensor, "B T"]) -> SoftmaxOutput:
        """The distributions at some positions, in one row."""
        return self._of(self.states[where][None])

    def _of(self, states: Tensor) -> SoftmaxOutput:
        return SoftmaxOutput(self.transform(states), self.weight, self.bias)

    def nll(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, excluded: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p of the targets, summed over all that are not `IGNORE`."""
        where = targets != IGNORE
        chosen = targets[where][None]  # [1,T]
        return self.at(where).nll(chosen, smoothing=smoothing, excluded=excluded)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `targets` [B,T]."""
        return self.with_auxiliary(self.nll(batch["targets"]))

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Log p of each target; zero where it is `IGNORE`."""
        return self._of(self.states).log_probability(targets)

    def logits(self) -> Float[Tensor, "B T V"]:
        """Scores of all words at all positions."""
        return self._of(self.states).logits()


@dataclass(frozen=True)
class MaskedLMOutput(ModelOutput):
    """The states of an encoder, and what its heads predict from them."""

    states: Float[Tensor, "B T D"]
    """The last layer."""
    words: MaskedWords | None
    """The word at each position; None without a head for words."""
    pooled: Float[Tensor, "B D"] | None
    """One vector for each text."""
    next_sentence: Float[Tensor, "B 2"] | None
    """Logits of: the second part follows the first, it does not."""

    def masked_words(self) -> MaskedWords:
        """The words, of a model that predicts them."""
        if self.words is None:
            raise UserError("this model predicts no words; set model.words = true")
        return self.words

    def next_sentence_nll(self, targets: Int[Tensor, "B"]) -> Float[Tensor, ""] | None:
        """-log p of whether parts follow, summed; None without a head for it."""
        if self.next_sentence is None:
            return None
        return F.cross_entropy(self.next_sentence, targets, ignore_index=IGNORE, reduction="sum")

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The mean over masked words and that over pairs, times the number of masked words.

        Against `targets` [B,T], and against `random_next` [B] if there is a head for pairs. A batch
        that several processes share has the counts of the whole batch in `batch_targets` and
        `batch_pairs`, so that the losses of all processes add up to the loss of one.
        """
        total = self.masked_words().nll(batch["targets"])
        pairs = pairs_in(batch) if "random_next" in batch else 0
        pair_nll = self.next_sentence_nll(batch["random_next"]) if pairs else None
        if pair_nll is not None:
            total = total + pair_nll / pairs * masked_in(batch)
        return self.with_auxiliary(total)


def masked_in(batch: Batch) -> int:
    """How many words are masked in a batch, over all processes."""
    if "batch_targets" in batch:
        return int(batch["batch_targets"][0])
    return int((batch["targets"] != IGNORE).sum())


def pairs_in(batch: Batch) -> int:
    """How many pairs a batch has, over all processes."""
    if "batch_pairs" in batch:
        return int(batch["batch_pairs"][0])
    return int((batch["random_next"] != IGNORE).sum())
