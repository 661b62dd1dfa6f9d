"""Batches for BERT's pre-training: passages of documents with special tokens and masked words.

A batch has `tokens` [B,T], `lengths` [B], `parts` [B,T] (-1 at padding), `targets` [B,T] (IGNORE
where nothing is masked) and `random_next` [B]: 1 if the second part is from another document. In a
shard, rows also have `batch_targets` and `batch_pairs` [B]: the numbers of targets and pairs in the
whole batch, by which losses are divided.

Passages and masks are sampled again in every epoch (dynamic masking, Liu et al. 2019). With
`copies`, epoch n has those of epoch n modulo `copies` in another order (static masking; BERT's data
has ten copies). Everything depends on seed, epoch and index only.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, divides
from regard.core.protocols import Batch
from regard.data.batch import IGNORE, Shard, ShardableBatches, check_index, random_integers
from regard.data.bucket import EMPTY_ROW, BucketBatches
from regard.data.text.documents import TokenisedDocuments
from regard.data.text.encoding import PADDING_PART
from regard.data.text.masking import Masking
from regard.data.text.sentence_pairs import PassagePairs, make_passage_pairs, make_passages
from regard.data.text.special_tokens import InputTemplate

_PAIR_SEED, _MASK_SEED = 0, 1
"""Separate the random numbers of pairs and of masks."""


@dataclass(frozen=True, kw_only=True)
class PretrainingInputs:
    """How documents are turned into inputs."""

    documents: TokenisedDocuments
    template: InputTemplate
    pad: int
    masking: Masking
    window: int
    """The maximum number of tokens of an input, with special tokens."""
    next_sentence: bool = True
    """Do inputs have two parts, of which the second may be from another document?"""
    short: float = 0.1
    """The fraction of inputs that are shorter than the window."""
    seed: int = 0

    def __post_init__(self) -> None:
        least = self.template.size(2) + 2
        if self.window < least:
            raise UserError(
                f"window={self.window} is too small for special tokens and text: at least {least}"
            )

    def inputs(self, epoch: int) -> PassagePairs:
        """The inputs of an epoch."""
        room = self.window - self.template.size(2 if self.next_sentence else 1)
        if not self.next_sentence:
            return make_passages(self.documents, room)
        return make_passage_pairs(self.documents, room, self.short, self.seed, epoch, _PAIR_SEED)

    def lengths(self, pairs: PassagePairs) -> list[int]:
        """The number of tokens of each input, with special tokens."""
        sizes: list[int] = (
            pairs.sizes + self.template.size(2 if self.next_sentence else 1)
        ).tolist()
        return sizes

    def gather(self, pairs: PassagePairs, epoch: int, numbers: Int[Tensor, "B"]) -> Batch:
        """These inputs as a batch; EMPTY_ROW is a row of padding."""
        there = numbers != EMPTY_ROW
        tokens, lengths, parts = self.framed(pairs.first[numbers], pairs.second[numbers])
        tokens = torch.where(there[:, None], tokens, self.pad)
        width = tokens.shape[1]
        # The random numbers of a row do not depend on its batch.
        drawn = [
            random_integers(3 * width, self.seed, epoch, _MASK_SEED, each)
            for each in numbers.tolist()
        ]
        masked = self.masking.apply(tokens, torch.stack(drawn).view(-1, width, 3))
        return {
            "tokens": masked.tokens,
            "lengths": torch.where(there, lengths, 0),
            "parts": torch.where(there[:, None], parts, PADDING_PART),
            "targets": masked.targets,
            "random_next": torch.where(there, pairs.random_next[numbers].long(), IGNORE),
        }

    def framed(
        self, first: Int[Tensor, "B 2"], second: Int[Tensor, "B 2"]
    ) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"], Int[Tensor, "B T"]]:
        """Tokens with special tokens around both parts, their number, and the part of each."""
        template = self.template
        between = template.between if self.next_sentence else ()
        begin = len(template.before)
        ends = begin + first.diff()  # [B,1] and so on
        goes_on = ends + len(between)
        stops = goes_on + second.diff()
        lengths = stops + len(template.after)
        places = torch.arange(int(lengths.max()))  # [T]
        in_first = (places >= begin) & (places < ends)  # [B,T]
        in_second = (places >= goes_on) & (places < stops)
        numbers = torch.where(in_first, first[:, :1] + places - begin, 0)
        numbers = torch.where(in_second, second[:, :1] + places - goes_on, numbers)
        tokens = self.documents.tokens(numbers)
        marked = torch.full_like(tokens, self.pad)
        for where, marks in ((0 * ends, template.before), (ends, between), (stops, template.after)):
            for number, mark in enumerate(marks):
                marked.scatter_(1, where + number, mark)
        tokens = torch.where(in_first | in_second, tokens, marked)
        later = (places >= goes_on) & bool(between)
        parts = torch.where(later, template.parts[1], template.parts[0])
        parts = torch.where(places < lengths, parts, PADDING_PART)
        return tokens, lengths.squeeze(1), parts


class PretrainingBatches(ShardableBatches):
    """Batches of `batch` inputs of similar length, each once per epoch.

    All epochs have as many batches as the first. Since inputs are sampled, another epoch may have a
    few more, which are dropped, or fewer, and then some occur twice.
    """

    prefetchable = True

    def __init__(self, passages: PretrainingInputs, batch: int, copies: int | None = None) -> None:
        super().__init__(batch)
        self._passages = passages
        self._copies = copies
        self._held: tuple[int, BucketBatches] | None = None
        self._count = len(self._of(0))

    def __len__(self) -> int:
        return self._count

    def _of(self, made: int) -> BucketBatches:
        """The batches of the inputs of an epoch; the last ones are cached."""
        held = self._held
        if held is None or held[0] != made:
            pairs = self._passages.inputs(made)

            def gather(numbers: Int[Tensor, "B"]) -> Batch:
                return self._passages.gather(pairs, made, numbers)

            lengths = self._passages.lengths(pairs)
            batches = BucketBatches(lengths, gather, batch=self.rows, seed=self._passages.seed)
            held = self._held = (made, batches)
        return held[1]

    def batch(self, epoch: int, index: int) -> Batch:
        """The inputs of a batch as tensors."""
        batches = self._of(epoch if self._copies is None else epoch % self._copies)
        numbers = batches.numbers(epoch, check_index(index, len(self)) % len(batches))
        lacking = self.rows - len(numbers)  # in one batch of an epoch; all have the same size
        return batches.gather(torch.cat([numbers, torch.full((lacking,), EMPTY_ROW)]))

    def shard(self, rank: int, world: int) -> Shard:
        """The rows of one process, with the counts of the whole batch."""
        divides("batch", self.rows, "world", world)
        return Shard(CountedBatches(self), rank, world)

    def padding_fraction(self, epoch: int) -> float:
        """The fraction of padding in the batches of an epoch."""
        return self._of(epoch if self._copies is None else epoch % self._copies).padding_fraction(
            epoch
        )


class CountedBatches(ShardableBatches):
    """The same batches, with the numbers of targets and pairs of the batch in every row."""

    prefetchable = True

    def __init__(self, batches: PretrainingBatches) -> None:
        super().__init__(batches.rows)
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def digest(self) -> str:
        """The digest of the batches without the counts."""
        return self._batches.digest

    def batch(self, epoch: int, index: int) -> Batch:
        """The inputs of a batch, and the counts."""
        batch = self._batches.batch(epoch, index)
        targets, pairs = ((batch[name] != IGNORE).sum() for name in ("targets", "random_next"))
        return {
            **batch,
            "batch_targets": targets.expand(self.rows),
            "batch_pairs": pairs.expand(self.rows),
        }
