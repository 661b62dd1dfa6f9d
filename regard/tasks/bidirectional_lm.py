"""Language modelling both ways, over words that are read from their characters: what ELMo learns.

The text is dealt out as for language_model. Every word is read as it is spelled, however rare;
only the `predicted` most frequent tokens are predicted, the others count as unknown. The loss is
the mean over both directions: -log p of the next word, and -log p of the word before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data import IGNORE, ContinuousBatches, Tokeniser
from regard.data.batch import ShardableBatches
from regard.data.text.characters import (
    BEGIN_WORD,
    CHARACTER_COUNT,
    END_SENTENCE,
    END_WORD,
    LONGEST_WORD,
    character_ids,
)
from regard.outputs.both_directions import BothDirections, previous_tokens
from regard.tasks.language_model import LanguageModelling, Texts, metrics
from regard.tasks.task import OpenTask, Split


class SpelledTexts(Texts):
    """The `[data]` table of a recipe: that of language_model, read from characters."""

    predicted: PositiveInt = 10_000
    """How many tokens the output layer knows, the most frequent ones."""

    @model_validator(mode="after")
    def _in_words(self) -> "SpelledTexts":
        if self.tokeniser != "word" or self.order != "continuous":
            raise UserError(
                'a bidirectional_lm reads words one after another: tokeniser="word" and '
                'order="continuous"'
            )
        return self


@dataclass(frozen=True)
class BidirectionalLM(OpenTask):
    """-log p of the word after and the word before; batches have `characters` too."""

    Data = SpelledTexts
    output = BothDirections
    usage = "model.source = {run} in a recipe of classify or tag"

    text: LanguageModelling

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "BidirectionalLM":
        """The task on a text."""
        assert isinstance(data, SpelledTexts)
        return cls(LanguageModelling.open(data, folder, saved))

    def save(self, folder: Path) -> None:
        """Leave the vocabulary."""
        self.text.save(folder)

    @property
    def sizes(self) -> dict[str, int]:
        """What is predicted, and what is read."""
        return {"vocabulary": self.predicted, "characters": CHARACTER_COUNT}

    @property
    def predicted(self) -> int:
        """How many tokens the output layer knows."""
        assert isinstance(self.text.data, SpelledTexts)
        return min(self.text.data.predicted, self.text.tokeniser.vocabulary)

    def data_kept(self, data: Config) -> Config:
        """With the file that a text on stdin was copied to."""
        return self.text.data

    @property
    def splits(self) -> tuple[Split, ...]:
        """Those of the text."""
        return self.text.splits

    @property
    def reads(self) -> Tokeniser:
        """The words of its text."""
        return self.text.tokeniser

    @property
    def lowercases(self) -> bool:
        """As its recipe has it."""
        return self.text.lowercases

    def batches(self) -> ShardableBatches:
        """The training batches."""
        batches = self.text.batches()
        assert isinstance(batches, ContinuousBatches)
        return self._spelled(batches)

    def evaluation(self, split: Split) -> Batches:
        """Every word once."""
        batches = self.text.evaluation(split)
        assert isinstance(batches, ContinuousBatches)
        return self._spelled(batches)

    def _spelled(self, batches: ContinuousBatches) -> "SpelledBatches":
        return SpelledBatches(batches, self._spellings, self.predicted, self.reads.unk)

    @cached_property
    def _spellings(self) -> Tensor:
        return spellings(self.reads)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of both directions; a word at the edge of a window has one neighbour."""
        output = BothDirections.of(model, batch, carry)
        both = batch["targets"], previous_tokens(batch["tokens"])
        return Loss(
            total=output.loss(batch),
            items=sum(int((targets != IGNORE).sum()) for targets in both),
            carry=output.carry,
        )

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """What people call the mean loss; ELMo's perplexity is over both directions too."""
        return metrics(totals["loss"])


def spellings(tokeniser: Tokeniser) -> Tensor:
    """The characters of every token, one row each; the end of a sentence is a mark."""
    table = torch.zeros(tokeniser.vocabulary, LONGEST_WORD, dtype=torch.int16)
    for number in range(tokeniser.vocabulary):
        characters = character_ids(tokeniser.decode([number]))
        if number == tokeniser.eos:
            characters = [BEGIN_WORD, END_SENTENCE, END_WORD]
        table[number, : len(characters)] = torch.tensor(characters, dtype=torch.int16)
    table[tokeniser.pad] = 0
    return table


class SpelledBatches(ShardableBatches):
    """Windows of a text with `characters` [B,T,C]; a rare token has only its spelling."""

    continues_previous = True

    def __init__(
        self, batches: ContinuousBatches, characters: Tensor, predicted: int, unknown: int
    ) -> None:
        super().__init__(batches.rows)
        self._batches, self._characters = batches, characters
        self._predicted, self._unknown = predicted, unknown

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def digest(self) -> str:
        """The text."""
        return self._batches.digest

    def batch(self, epoch: int, index: int) -> Batch:
        """The window, spelled."""
        read = self._batches.batch(epoch, index)
        characters = self._characters[read["tokens"]].long()  # [B,T,C]
        used = int((characters != 0).flatten(0, 1).any(0).sum())
        known = {
            name: torch.where(each < self._predicted, each, self._unknown)
            for name, each in read.items()
        }
        return {**known, "characters": characters[..., : max(1, used)]}
