"""Which slots of a sparse memory to use: those nearest to a query, and those not used for longest.

Both are found in time that does not grow with the number of slots, or with its square root. Their
tensors change with the slots (journal.py), a few entries in each step.

`HashedSlots` is a table by random hyperplanes (Charikar 2002): vectors at a small angle fall into
the same bucket of one of several tables with high probability. A bucket keeps the slots that were
put in last. It is approximate: the slots in the buckets of a query are compared exactly, others are
not seen. `LeastRecent` keeps the smallest time of each block of slots, and is exact.
"""

from math import ceil, log2

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.errors import positive
from regard.layers.journal import RowChange, Version

_LAST, _OLDEST, _BUCKETS, _COUNTS = "last", "oldest", "buckets", "counts"
_NEVER = 2**31 - 1


class LeastRecent:
    """The slots that were read or written least recently: the one with the smallest number first.

    >>> least = LeastRecent(5)
    >>> from regard.layers.journal import journal_of
    >>> version = journal_of(least.tensors(1, torch.device("cpu")))
    >>> least.find(version, 1, 2).tolist()
    [[0, 1]]
    >>> with version.change() as change:
    ...     least.access(change, torch.tensor([[0, 3]]), torch.tensor([[True, True]]), 7)
    >>> least.find(change.after, 1, 3).tolist()
    [[1, 2, 4]]
    """

    def __init__(self, slots: int) -> None:
        self.slots = positive("slots", slots)
        self.size = 2 ** ceil(log2(slots) / 2)
        """Slots of a block."""
        self.blocks = -(-slots // self.size)

    def tensors(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """The tensors before the first step."""
        times = torch.full((self.blocks * self.size,), _NEVER, dtype=torch.int32, device=device)
        times[: self.slots] = torch.arange(-self.slots, 0, dtype=torch.int32, device=device)
        oldest = times.view(self.blocks, self.size).amin(1)
        return {_LAST: times.repeat(batch), _OLDEST: oldest.repeat(batch)}

    def find(self, version: Version, batch: int, count: int) -> Int[Tensor, "B H"]:
        """The `count` slots of each row that were accessed least recently."""
        oldest = version.read(_OLDEST).view(batch, self.blocks)
        blocks = oldest.topk(min(count, self.blocks), largest=False).indices  # [B,n]
        times = version.read(_LAST).view(batch, self.blocks, self.size)
        inside = times.gather(1, blocks.unsqueeze(2).expand(-1, -1, self.size)).flatten(1)
        first = (blocks * self.size).repeat_interleave(self.size, 1)  # [B,n*size]
        chosen = inside.topk(count, largest=False, sorted=True).indices
        found: Tensor = first.gather(1, chosen) + chosen % self.size
        return found

    def access(
        self, change: RowChange, index: Int[Tensor, "B N"], used: Bool[Tensor, "B N"], time: int
    ) -> None:
        """Slots of each row that are used now, where `used` is true."""
        row = torch.arange(len(index), device=index.device)[:, None]
        flat = (index + row * (self.blocks * self.size)).flatten()
        block = flat // self.size
        change.keep(_LAST, flat)
        change.keep(_OLDEST, block)
        times = torch.where(used.flatten(), time, -_NEVER).to(torch.int32)
        change[_LAST].scatter_reduce_(0, flat, times, "amax")
        oldest = change[_LAST].view(-1, self.size).index_select(0, block).amin(1)
        change[_OLDEST].index_copy_(0, block, oldest)


class HashedSlots(nn.Module):
    """Slots by the hash of what is in them; queries find those of the same hash."""

    planes: Tensor
    powers: Tensor

    def __init__(self, slots: int, width: int, *, tables: int = 8, bucket: int = 16) -> None:
        super().__init__()
        self.tables = positive("tables", tables)
        self.bucket = positive("bucket", bucket)
        self.bits = max(1, min(16, ceil(log2(slots)) - 2))
        self.buckets = self.tables * 2**self.bits + 1
        """Of each row of a batch; the last one takes what need not be put anywhere."""
        self.register_buffer("planes", torch.randn(width, tables * self.bits))
        self.register_buffer("powers", 2 ** torch.arange(self.bits), persistent=False)

    def tensors(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """The tensors before the first step: no slot is in any bucket."""
        buckets = batch * self.buckets
        return {
            _BUCKETS: torch.full((buckets * self.bucket,), -1, dtype=torch.int32, device=device),
            _COUNTS: torch.zeros(buckets, dtype=torch.int32, device=device),
        }

    def codes(self, vectors: Float[Tensor, "B N W"]) -> Int[Tensor, "B N P"]:
        """The bucket of each vector in each table."""
        signs = (vectors @ self.planes.to(vectors.dtype) > 0).unflatten(2, (self.tables, self.bits))
        codes = (signs * self.powers).sum(3)  # [B,N,P]
        tables = torch.arange(self.tables, device=codes.device)
        rows = torch.arange(len(vectors), device=codes.device)[:, None, None]
        found: Tensor = codes + tables * 2**self.bits + rows * self.buckets
        return found

    def insert(
        self,
        change: RowChange,
        index: Int[Tensor, "B N"],
        vectors: Float[Tensor, "B N W"],
        used: Bool[Tensor, "B N"],
    ) -> None:
        """Put slots, where `used`, into the buckets of their vectors, unless they are there."""
        codes = self.codes(vectors)
        there = change[_BUCKETS].view(-1, self.bucket)[codes]  # [B,N,P,C]
        slot = index.to(torch.int32)
        needed = used.unsqueeze(2) & ~(there == slot[:, :, None, None]).any(3)  # [B,N,P]
        rows = torch.arange(1, len(index) + 1, device=index.device)[:, None, None]
        bucket = torch.where(needed, codes, rows * self.buckets - 1)
        order = torch.arange(index.shape[1], device=index.device)[:, None]
        place = (change[_COUNTS][bucket] + order) % self.bucket
        flat = (bucket * self.bucket + place).flatten()
        bucket = bucket.flatten()
        change.keep(_BUCKETS, flat)
        change.keep(_COUNTS, bucket)
        change[_BUCKETS].index_copy_(0, flat, slot.unsqueeze(2).expand_as(needed).flatten())
        counts = change[_COUNTS].index_select(0, bucket) + index.shape[1]
        change[_COUNTS].index_copy_(0, bucket, counts)

    def find(self, version: Version, query: Float[Tensor, "B H W"]) -> Int[Tensor, "B H N"]:
        """Slots in the buckets of each query; -1 where a bucket has room."""
        found = version.read(_BUCKETS).view(-1, self.bucket)[self.codes(query)]
        return found.flatten(2).long()
