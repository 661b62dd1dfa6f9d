"""The keys and values of all layers of a decoder in one tensor, written position by position.

A value like a Cache: several stores may share a buffer, as long as only one of them grows. Beams
that change places are copied row by row, so their buffer has each row in one piece; a long text
reads the keys of one head at a time, so its buffer has those side by side.

>>> import torch
>>> token = torch.ones(2, 2, 3, 4)                             # keys and values of two rows
>>> store = KeyValueStore()
>>> buffer = store.reserve(token, heads=(3,), width=4)
>>> buffer.write(0, store.length, token)
>>> store = store.advance(buffer)
>>> store.length, store.select(torch.tensor([1, 1, 0])).caches()[0].memory.key.shape
(1, torch.Size([3, 3, 1, 4]))
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.cache import Cache, Room, join

FIRST_SIZE = 32
"""Positions of a new buffer; the size doubles when they are used up."""


class KeyValueBuffer:
    """Positions of each row for all layers, and views of them.

    `heads` has the number of heads of each layer; the buffer has as many as the largest for all.
    """

    __slots__ = ("by_row", "every", "heads", "keys", "places", "tensor", "values", "written")

    def __init__(self, tensor: Tensor, heads: tuple[int, ...], *, by_row: bool) -> None:
        self.tensor, self.heads, self.by_row, self.written = tensor, heads, by_row, 0
        # [B,R,L,2,G,E] or [L,2,B,G,R,E]; `every` is always a view of the second form
        self.every = tensor.permute(2, 3, 0, 4, 1, 5) if by_row else tensor
        self.keys, self.values = self.every[:, 0].unbind(0), self.every[:, 1].unbind(0)
        self.places = self.every.transpose(1, 2).unbind(0)  # each [B,2,G,R,E]
        if min(heads) < max(heads):
            self.keys, self.values = (self._narrow(each, 1) for each in (self.keys, self.values))
            self.places = self._narrow(self.places, 2)

    def _narrow(self, layers: tuple[Tensor, ...], dim: int) -> tuple[Tensor, ...]:
        """As many heads of each layer as it has."""
        return tuple(x.narrow(dim, 0, own) for x, own in zip(layers, self.heads, strict=True))

    @staticmethod
    def allocate(
        like: Tensor, *, rows: int, size: int, heads: tuple[int, ...], width: int, by_row: bool
    ) -> "KeyValueBuffer":
        """An empty buffer with the dtype and device of a tensor."""
        layers, most = len(heads), max(heads)
        shape = (
            (rows, size, layers, 2, most, width) if by_row else (layers, 2, rows, most, size, width)
        )
        return KeyValueBuffer(like.new_empty(shape), heads, by_row=by_row)

    def allocate_like(self, rows: int, size: int) -> "KeyValueBuffer":
        """An empty buffer of the same kind, with this many rows and positions."""
        return KeyValueBuffer.allocate(
            self.tensor,
            rows=rows,
            size=size,
            heads=self.heads,
            width=self.tensor.shape[-1],
            by_row=self.by_row,
        )

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.every.shape[4]

    def write(self, layer: int, position: int, new: Float[Tensor, "B 2 G E"]) -> None:
        """Write a layer's keys and values of one position."""
        self.places[layer].select(3, position).copy_(new)


@dataclass(frozen=True, kw_only=True)
class KeyValueStore:
    """The keys and values of the positions so far: the first `length` positions of a buffer."""

    by_row: bool = True
    """Is each row of the buffer in one piece?"""
    length: int = 0
    empty: Int[Tensor, "B"] | None = None
    """How many positions of each row are before its first; None where there are none."""
    buffer: KeyValueBuffer | None = field(default=None, repr=False)

    @staticmethod
    def from_caches(caches: Sequence[Cache]) -> "KeyValueStore":
        """The positions in the caches of all layers."""
        length, old = caches[0].length, caches[0].memory.key
        buffer = KeyValueBuffer.allocate(
            old,
            rows=old.shape[0],
            size=max(caches[0].room, length),
            heads=tuple(cache.memory.key.shape[1] for cache in caches),
            width=old.shape[3],
            by_row=False,
        )
        for key, value, cache in zip(buffer.keys, buffer.values, caches, strict=True):
            key.narrow(2, 0, length).copy_(cache.memory.key)
            value.narrow(2, 0, length).copy_(cache.memory.value)
        buffer.written = length
        return KeyValueStore(by_row=False, length=length, empty=caches[0].empty, buffer=buffer)

    @staticmethod
    def concatenate(stores: Sequence["KeyValueStore"]) -> "KeyValueStore":
        """The rows of all stores as one batch, whatever their lengths."""
        every = zip(*(each.caches() for each in stores), strict=True)
        return KeyValueStore.from_caches([join(caches) for caches in every])

    @property
    def first(self) -> int | Int[Tensor, "B"]:
        """The place of the next position in its own row."""
        return self.length if self.empty is None else self.length - self.empty

    def reserve(
        self, like: Float[Tensor, "B *D"], *, heads: tuple[int, ...], width: int
    ) -> KeyValueBuffer:
        """A buffer with a free place for the next position."""
        buffer, rows, length = self.buffer, like.shape[0], self.length
        if buffer is None:
            return KeyValueBuffer.allocate(
                like, rows=rows, size=FIRST_SIZE, heads=heads, width=width, by_row=self.by_row
            )
        if buffer.written == length < buffer.size:
            return buffer
        fresh = buffer.allocate_like(rows, max(buffer.size, 2 * length))
        fresh.every.narrow(4, 0, length).copy_(buffer.every.narrow(4, 0, length))
        return fresh

    def advance(self, buffer: KeyValueBuffer) -> "KeyValueStore":
        """The store with the position that all layers have written into the buffer."""
        buffer.written = self.length + 1
        return replace(self, length=self.length + 1, buffer=buffer)

    def select(self, rows: Int[Tensor, "N"]) -> "KeyValueStore":
        """The store of the chosen batch rows, in that order."""
        if self.buffer is None:
            return self
        if self.empty is not None:
            return KeyValueStore.from_caches([cache.select(rows) for cache in self.caches()])
        old, count, length = self.buffer, len(rows), self.length
        fresh = old.allocate_like(count, old.size)
        if self.by_row:
            used = length * old.tensor[0, 0].numel()  # in each row, one after another
            flat, into = old.tensor.flatten(1), fresh.tensor.flatten(1)
            torch.index_select(flat.narrow(1, 0, used), 0, rows, out=into.narrow(1, 0, used))
        else:
            chosen = old.every.narrow(4, 0, length).index_select(2, rows)
            fresh.every.narrow(4, 0, length).copy_(chosen)
        fresh.written = length
        return replace(self, buffer=fresh)

    def caches(self) -> tuple[Cache, ...]:
        """The same positions as a cache for each layer."""
        if self.buffer is None:
            return ()
        return tuple(
            Cache(
                room=self.buffer.size,
                length=self.length,
                empty=self.empty,
                store=Room(key, value, self.buffer.written),
            )
            for key, value in zip(self.buffer.keys, self.buffer.values, strict=True)
        )
