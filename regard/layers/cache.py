"""The keys and values of past tokens: a value to append to, select rows of, and branch from.

A cache behaves as an immutable value, yet appending a token writes one row into memory that is
already allocated. Two caches may share that memory as long as only one of them grows: the one that
would overwrite positions of the other makes a copy first. So a beam search, a server that tries
several continuations of one prompt and a plain loop all use it alike.

>>> import torch
>>> cache = Cache(room=8)
>>> token = Memory(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))
>>> once = cache.append(token)
>>> twice = once.append(token)
>>> (cache.length, once.length, twice.length)
(0, 1, 2)

Rows of different lengths go on together once they are joined. They end at the same position, so
that the next one has one place for all; empty positions come before the first.

>>> both = join([once, twice])
>>> both.length, both.empty.tolist(), both.first.tolist()
(2, [1, 0], [1, 2])
>>> both.select(torch.tensor([0])).length
1
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from regard.attention import START, Memory, Past
from regard.core.errors import UserError, positive

_SLACK = 8
"""Positions to set aside when rows are selected. A beam search selects at every step: in much room
its few positions would lie far apart, and touching new pages takes longer than the copy."""


@dataclass
class Room:
    """Tensors with more positions than are used, and how many of them any cache has written."""

    key: Tensor
    value: Tensor
    written: int

    @property
    def size(self) -> int:
        """How many positions there are."""
        return self.key.shape[2]


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The keys and values of `length` positions, and the past weights."""

    room: int = 256
    """Positions to set aside at first; it doubles when they are used up."""
    length: int = 0
    past: Past = START
    """For attention that depends on its past weights."""
    empty: Int[Tensor, "B"] | None = None
    """How many positions of each row are before its first; None where there are none."""
    store: Room | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        positive("room", self.room)

    @property
    def first(self) -> int | Int[Tensor, "B"]:
        """Where the next position stands in its own row."""
        return self.length if self.empty is None else self.length - self.empty

    @property
    def memory(self) -> Memory:
        """All positions so far, as a view."""
        if self.store is None:
            raise UserError("an empty cache has no memory yet: append to it first")
        return Memory(
            self.store.key.narrow(2, 0, self.length), self.store.value.narrow(2, 0, self.length)
        )

    def append(self, new: Memory) -> "Cache":
        """The cache with these positions after its own."""
        if self.store is not None and new.key.shape[:2] != self.store.key.shape[:2]:
            raise UserError(
                f"the cache holds batch and heads {tuple(self.store.key.shape[:2])}, "
                f"the new keys have {tuple(new.key.shape[:2])}"
            )
        length = self.length + new.key.shape[2]
        if torch.is_grad_enabled() and (new.key.requires_grad or self._needs_gradient()):
            return replace(self, length=length, store=self._joined(new, length))
        store = self.store
        if store is None or store.size < length or store.written != self.length:
            store = self._moved(new, length)
        store.key[:, :, self.length : length] = new.key
        store.value[:, :, self.length : length] = new.value
        store.written = length
        return replace(self, length=length, store=store)

    def select(self, rows: Int[Tensor, "N"]) -> "Cache":
        """The cache of the chosen batch rows, in that order, with a little room to grow."""
        if self.store is None:
            return self
        if self.empty is not None:
            return self._select_joined(self.empty.index_select(0, rows), rows)
        old = self.memory
        if torch.is_grad_enabled() and self._needs_gradient():
            chosen = old.select(rows)
            store = Room(chosen.key, chosen.value, self.length)
        else:
            store = self._emptied(old, len(rows), self.length + _SLACK)
            for source, room in ((old.key, store.key), (old.value, store.value)):
                torch.index_select(source, 0, rows, out=room.narrow(2, 0, self.length))
        return replace(self, past=self.past.select(rows), store=store)

    def _select_joined(self, empty: Tensor, rows: Tensor) -> "Cache":
        """The same of rows of several lengths, without the positions that none of them needs."""
        spare = int(empty.min())
        length = self.length - spare
        chosen = self.memory.select(rows)
        store = Room(chosen.key[:, :, spare:], chosen.value[:, :, spare:], length)
        left = None if int(empty.max()) == spare else empty - spare
        return replace(self, length=length, empty=left, store=store)

    def _needs_gradient(self) -> bool:
        return self.store is not None and self.store.key.requires_grad

    def _joined(self, new: Memory, length: int) -> Room:
        """Writing in place would spoil what the backward pass needs: join copies instead."""
        if self.store is None:
            return Room(new.key, new.value, length)
        old = self.memory
        return Room(torch.cat((old.key, new.key), 2), torch.cat((old.value, new.value), 2), length)

    def _moved(self, like: Memory, length: int) -> Room:
        """Our positions in room of their own for at least so many."""
        size = self.room
        while size < length:
            size *= 2
        fresh = self._emptied(like, like.key.shape[0], size)
        if self.store is not None:
            fresh.key[:, :, : self.length] = self.memory.key
            fresh.value[:, :, : self.length] = self.memory.value
        return fresh

    def _emptied(self, like: Memory, batch: int, size: int) -> Room:
        """Room for so many positions, of which ours are taken as written."""

        def emptied(tensor: Tensor) -> Tensor:
            return tensor.new_empty(batch, tensor.shape[1], size, tensor.shape[3])

        return Room(emptied(like.key), emptied(like.value), self.length)


def join(caches: Sequence[Cache]) -> Cache:
    """The rows of all, in order, as one cache that has the length of the longest.

    For attention that does not mind where keys stand, as what it carried on is not joined. Empty
    positions are zeros: nobody may look at them, but what weighs nothing must still be a number.
    """
    length = max(cache.length for cache in caches)
    keys, values, empty = [], [], []
    for cache in caches:
        missing, old = length - cache.length, cache.memory
        keys.append(F.pad(old.key, (0, 0, missing, 0)))
        values.append(F.pad(old.value, (0, 0, missing, 0)))
        none = torch.zeros(len(old.key), dtype=torch.long, device=old.key.device)
        empty.append((none if cache.empty is None else cache.empty) + missing)
    lacking = torch.cat(empty)
    return Cache(
        room=max(cache.room for cache in caches),
        length=length,
        empty=lacking if lacking.any() else None,
        store=Room(torch.cat(keys), torch.cat(values), length),
    )
