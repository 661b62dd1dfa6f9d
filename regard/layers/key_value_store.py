"""The keys and values of all layers in one tensor, as decoders write them that step.

A value to go on from, like a Cache: several of them may share a shelf, as long as only one grows.
Beams that change places are copied row by row, so their shelf holds each row in one piece; a long
text reads the keys of one head at a time, so in its shelf these lie side by side.

>>> import torch
>>> token = torch.ones(2, 2, 3, 4)                             # keys and values of two rows
>>> begun = Written.begun()
>>> shelf = begun.opened(token, heads=(3,), width=4)
>>> shelf.put(0, begun.length, token)
>>> written = begun.grown(shelf)
>>> written.length, written.select(torch.tensor([1, 1, 0])).caches()[0].memory.key.shape
(1, torch.Size([3, 3, 1, 4]))
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.cache import Cache, Room, join

ROOM = 32
"""Positions that are set aside at first; they double when they are used up."""


class Shelf:
    """Room for positions of each row, and views of it.

    `heads` are those of each layer; all have room for as many as the layer with most of them.
    """

    __slots__ = ("by_row", "every", "heads", "keys", "places", "tensor", "values", "written")

    def __init__(self, tensor: Tensor, heads: tuple[int, ...], *, by_row: bool) -> None:
        self.tensor, self.heads, self.by_row, self.written = tensor, heads, by_row, 0
        # [B,R,L,2,G,E] or [L,2,B,G,R,E], and always seen as the latter
        self.every = tensor.permute(2, 3, 0, 4, 1, 5) if by_row else tensor
        self.keys, self.values = self.every[:, 0].unbind(0), self.every[:, 1].unbind(0)
        self.places = self.every.transpose(1, 2).unbind(0)  # each [B,2,G,R,E]
        if min(heads) < max(heads):
            self.keys, self.values = (self._own(each, 1) for each in (self.keys, self.values))
            self.places = self._own(self.places, 2)

    def _own(self, layers: tuple[Tensor, ...], dim: int) -> tuple[Tensor, ...]:
        """Of each layer only as many heads as it has."""
        return tuple(x.narrow(dim, 0, own) for x, own in zip(layers, self.heads, strict=True))

    @staticmethod
    def of(
        like: Tensor, *, rows: int, room: int, heads: tuple[int, ...], width: int, by_row: bool
    ) -> "Shelf":
        """An empty one, with numbers such as these."""
        layers, most = len(heads), max(heads)
        shape = (
            (rows, room, layers, 2, most, width) if by_row else (layers, 2, rows, most, room, width)
        )
        return Shelf(like.new_empty(shape), heads, by_row=by_row)

    def emptied(self, rows: int, room: int) -> "Shelf":
        """An empty one of the same kind, for so many rows and positions."""
        return Shelf.of(
            self.tensor,
            rows=rows,
            room=room,
            heads=self.heads,
            width=self.tensor.shape[-1],
            by_row=self.by_row,
        )

    @property
    def room(self) -> int:
        """How many positions there are."""
        return self.every.shape[4]

    def put(self, layer: int, position: int, new: Float[Tensor, "B 2 G E"]) -> None:
        """Write a layer's keys and values of one position."""
        self.places[layer].select(3, position).copy_(new)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the decoder has seen: so many positions of a shelf."""

    by_row: bool = True
    """Does the shelf hold each row in one piece?"""
    length: int = 0
    empty: Int[Tensor, "B"] | None = None
    """How many positions of each row are before its first; None where there are none."""
    shelf: Shelf | None = field(default=None, repr=False)

    @staticmethod
    def begun(*, by_row: bool = True) -> "Written":
        """Nothing yet."""
        return Written(by_row=by_row)

    @staticmethod
    def of(caches: Sequence[Cache]) -> "Written":
        """What the modules of each layer have written into their caches."""
        length, old = caches[0].length, caches[0].memory.key
        shelf = Shelf.of(
            old,
            rows=old.shape[0],
            room=max(caches[0].room, length),
            heads=tuple(cache.memory.key.shape[1] for cache in caches),
            width=old.shape[3],
            by_row=False,
        )
        for key, value, cache in zip(shelf.keys, shelf.values, caches, strict=True):
            key.narrow(2, 0, length).copy_(cache.memory.key)
            value.narrow(2, 0, length).copy_(cache.memory.value)
        shelf.written = length
        return Written(by_row=False, length=length, empty=caches[0].empty, shelf=shelf)

    @staticmethod
    def joined(several: Sequence["Written"]) -> "Written":
        """The rows of all as one batch, however long each is."""
        every = zip(*(each.caches() for each in several), strict=True)
        return Written.of([join(caches) for caches in every])

    @property
    def first(self) -> int | Int[Tensor, "B"]:
        """Where the next position stands in its own row."""
        return self.length if self.empty is None else self.length - self.empty

    def opened(self, like: Float[Tensor, "B *D"], *, heads: tuple[int, ...], width: int) -> Shelf:
        """A shelf with a place for the next position, which nobody else has written."""
        shelf, rows, length = self.shelf, like.shape[0], self.length
        if shelf is None:
            return Shelf.of(
                like, rows=rows, room=ROOM, heads=heads, width=width, by_row=self.by_row
            )
        if shelf.written == length < shelf.room:
            return shelf
        fresh = shelf.emptied(rows, max(shelf.room, 2 * length))
        fresh.every.narrow(4, 0, length).copy_(shelf.every.narrow(4, 0, length))
        return fresh

    def grown(self, shelf: Shelf) -> "Written":
        """With the position that all layers have put on the shelf."""
        shelf.written = self.length + 1
        return replace(self, length=self.length + 1, shelf=shelf)

    def select(self, rows: Int[Tensor, "N"]) -> "Written":
        """That of the chosen batch rows, in that order."""
        if self.shelf is None:
            return self
        if self.empty is not None:
            return Written.of([cache.select(rows) for cache in self.caches()])
        old, count, length = self.shelf, len(rows), self.length
        fresh = old.emptied(count, old.room)
        if self.by_row:
            used = length * old.tensor[0, 0].numel()  # in each row, one after another
            flat, into = old.tensor.flatten(1), fresh.tensor.flatten(1)
            torch.index_select(flat.narrow(1, 0, used), 0, rows, out=into.narrow(1, 0, used))
        else:
            chosen = old.every.narrow(4, 0, length).index_select(2, rows)
            fresh.every.narrow(4, 0, length).copy_(chosen)
        fresh.written = length
        return replace(self, shelf=fresh)

    def caches(self) -> tuple[Cache, ...]:
        """The same as a cache for each layer."""
        if self.shelf is None:
            return ()
        return tuple(
            Cache(
                room=self.shelf.room,
                length=self.length,
                empty=self.empty,
                store=Room(key, value, self.shelf.written),
            )
            for key, value in zip(self.shelf.keys, self.shelf.values, strict=True)
        )
