"""Batches for pre-training: passages of documents, framed, with some of their words hidden.

A batch holds `tokens` [B,T], `lengths` [B], `parts` [B,T] (-1 at padding), `targets` [B,T] (IGNORE
where nothing was hidden) and `apart` [B]: 1 where the second part is from another document. The
rows of one process of several have `batch_targets` and `batch_pairs` [B] besides: how many targets
and pairs the batch of all processes has, which losses are averaged over.

Passages are drawn anew for every epoch, and so is what is hidden in them (dynamic masking, Liu et
al. 2019); with `copies`, epoch n has those of epoch n modulo `copies` in another order (static
masking; BERT's data have ten copies). All is a function of seed, epoch and index.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, divides
from regard.core.protocols import Batch
from regard.data.batch import IGNORE, Shard, WholeBatches, draws, within
from regard.data.bucket import NOBODY, BucketBatches
from regard.data.text.documents import TokenisedDocuments
from regard.data.text.encoding import PADDED
from regard.data.text.masking import Masking
from regard.data.text.sentence_pairs import Pairs, pairs_of, passages_of
from regard.data.text.special_tokens import Frame

PAIRED, HIDDEN = 0, 1
"""What is drawn belongs to one of these."""


@dataclass(frozen=True, kw_only=True)
class Passages:
    """How documents become inputs."""

    documents: TokenisedDocuments
    frame: Frame
    pad: int
    masking: Masking
    window: int
    """The most tokens of an input, marks included."""
    next_sentence: bool = True
    """Have inputs two parts, of which the second may be from another document?"""
    short: float = 0.1
    """How many inputs aim at fewer tokens than there is room for."""
    seed: int = 0

    def __post_init__(self) -> None:
        least = self.frame.size(2) + 2
        if self.window < least:
            raise UserError(
                f"window={self.window} is too small for marks and text: at least {least}"
            )

    def made(self, epoch: int) -> Pairs:
        """The inputs of an epoch."""
        room = self.window - self.frame.size(2 if self.next_sentence else 1)
        if not self.next_sentence:
            return passages_of(self.documents, room)
        return pairs_of(self.documents, room, self.short, self.seed, epoch, PAIRED)

    def lengths(self, pairs: Pairs) -> list[int]:
        """How many tokens inputs have, marks included."""
        sizes: list[int] = (pairs.sizes + self.frame.size(2 if self.next_sentence else 1)).tolist()
        return sizes

    def gather(self, pairs: Pairs, epoch: int, numbers: Int[Tensor, "B"]) -> Batch:
        """These inputs as a batch; NOBODY is an empty row."""
        there = numbers != NOBODY
        tokens, lengths, parts = self.framed(pairs.first[numbers], pairs.second[numbers])
        tokens = torch.where(there[:, None], tokens, self.pad)
        width = tokens.shape[1]
        # A row's draws are its own, whatever batch it is in.
        drawn = [draws(3 * width, self.seed, epoch, HIDDEN, each) for each in numbers.tolist()]
        hidden = self.masking.hide(tokens, torch.stack(drawn).view(-1, width, 3))
        return {
            "tokens": hidden.tokens,
            "lengths": torch.where(there, lengths, 0),
            "parts": torch.where(there[:, None], parts, PADDED),
            "targets": hidden.targets,
            "apart": torch.where(there, pairs.apart[numbers].long(), IGNORE),
        }

    def framed(
        self, first: Int[Tensor, "B 2"], second: Int[Tensor, "B 2"]
    ) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"], Int[Tensor, "B T"]]:
        """Tokens with marks around both parts, how many there are, and the part of each."""
        frame = self.frame
        between = frame.between if self.next_sentence else ()
        begin = len(frame.before)
        ends = begin + first.diff()  # [B,1] and so on
        goes_on = ends + len(between)
        stops = goes_on + second.diff()
        lengths = stops + len(frame.after)
        places = torch.arange(int(lengths.max()))  # [T]
        in_first = (places >= begin) & (places < ends)  # [B,T]
        in_second = (places >= goes_on) & (places < stops)
        numbers = torch.where(in_first, first[:, :1] + places - begin, 0)
        numbers = torch.where(in_second, second[:, :1] + places - goes_on, numbers)
        tokens = self.documents.tokens(numbers)
        marked = torch.full_like(tokens, self.pad)
        for where, marks in ((0 * ends, frame.before), (ends, between), (stops, frame.after)):
            for number, mark in enumerate(marks):
                marked.scatter_(1, where + number, mark)
        tokens = torch.where(in_first | in_second, tokens, marked)
        later = (places >= goes_on) & bool(between)
        parts = torch.where(later, frame.parts[1], frame.parts[0])
        parts = torch.where(places < lengths, parts, PADDED)
        return tokens, lengths.squeeze(1), parts


class PretrainingBatches(WholeBatches):
    """Inputs of about one length in batches of `batch`; each comes once an epoch.

    Epochs have the batches of the first; since inputs are drawn, another may have a few more, which
    are left out, or fewer, and then some come twice.
    """

    prefetchable = True

    def __init__(self, passages: Passages, batch: int, copies: int | None = None) -> None:
        super().__init__(batch)
        self._passages = passages
        self._copies = copies
        self._held: tuple[int, BucketBatches] | None = None
        self._count = len(self._of(0))

    def __len__(self) -> int:
        return self._count

    def _of(self, made: int) -> BucketBatches:
        """The batches of what was made for an epoch; those of the last one asked for are kept."""
        held = self._held
        if held is None or held[0] != made:
            pairs = self._passages.made(made)

            def gather(numbers: Int[Tensor, "B"]) -> Batch:
                return self._passages.gather(pairs, made, numbers)

            lengths = self._passages.lengths(pairs)
            batches = BucketBatches(lengths, gather, batch=self.rows, seed=self._passages.seed)
            held = self._held = (made, batches)
        return held[1]

    def batch(self, epoch: int, index: int) -> Batch:
        """The inputs of a batch as tensors."""
        batches = self._of(epoch if self._copies is None else epoch % self._copies)
        numbers = batches.numbers(epoch, within(index, len(self)) % len(batches))
        lacking = self.rows - len(numbers)  # in one batch of an epoch; all have as many rows
        return batches.gather(torch.cat([numbers, torch.full((lacking,), NOBODY)]))

    def shard(self, rank: int, world: int) -> Shard:
        """The rows of one process, with the counts of the whole batch."""
        divides("batch", self.rows, "world", world)
        return Shard(CountedBatches(self), rank, world)

    def waste(self, epoch: int) -> float:
        """How much of the batches of an epoch is padding."""
        return self._of(epoch if self._copies is None else epoch % self._copies).waste(epoch)


class CountedBatches(WholeBatches):
    """The same batches; every row has the number of targets and of pairs in its batch."""

    prefetchable = True

    def __init__(self, batches: PretrainingBatches) -> None:
        super().__init__(batches.rows)
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def digest(self) -> str:
        """That of the batches without the counts."""
        return self._batches.digest

    def batch(self, epoch: int, index: int) -> Batch:
        """The inputs of a batch, and the counts."""
        batch = self._batches.batch(epoch, index)
        targets, pairs = ((batch[name] != IGNORE).sum() for name in ("targets", "apart"))
        return {
            **batch,
            "batch_targets": targets.expand(self.rows),
            "batch_pairs": pairs.expand(self.rows),
        }
