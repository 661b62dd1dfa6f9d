"""A memory of which a step reads and writes a few slots, whatever their number.

The slots are one tensor that changes in place (journal.py). Forward, a step keeps the rows that it
writes; backward, they are put in again, so that the memory is rolled back to the first version
(Rae et al. 2016, section 3.4) and neither direction copies the memory. The gradient has rows for
the slots that were touched, not for all.

What orders the steps backward is a token: each read and write takes that of the one before.

>>> memory = SparseMemory.of(torch.zeros(1, 3, 2))
>>> added = torch.ones(1, 1, 2, requires_grad=True)
>>> memory = memory.write(torch.tensor([[1]]), added, erased=torch.tensor([[0]]))
>>> rows, memory = memory.read(torch.tensor([[1, 2]]))
>>> rows.tolist()
[[[1.0, 1.0], [0.0, 0.0]]]
>>> rows.sum().backward()
>>> added.grad.tolist()
[[[1.0, 1.0]]]
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.core.errors import UserError
from regard.layers.journal import Version, journal_of

SLOT_ROWS = "slots"


class _Gradient:
    """The gradient of the slots after a certain write, in a backward pass.

    It has a row for each slot that the pass has touched, not for all.
    """

    __slots__ = ("at", "count", "places", "rows")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Before and after a backward pass there is none."""
        self.places: Tensor | None = None
        self.rows: Tensor | None = None
        self.count = 0
        self.at: object = None

    def of(self, slots: Tensor, written: object, index: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the gradient after a certain write, and where those of some slots are."""
        if self.places is None or self.rows is None:
            self.places = torch.full_like(slots[:, 0], -1, dtype=torch.int64)
            self.rows, self.at = slots.new_zeros(4 * len(index), slots.shape[1]), written
        elif self.at is not written:
            raise UserError(
                "two continuations of one sparse memory are in one backward pass; call backward "
                "for each, or go on from a copy, state.select(rows)"
            )
        places = self.places.index_select(0, index)
        new = index[places < 0].unique()
        if not len(new):
            return self.rows, places
        missing = self.count + len(new) - len(self.rows)
        if missing > 0:
            more = self.rows.new_zeros(max(missing, len(self.rows)), slots.shape[1])
            self.rows = torch.cat((self.rows, more))
        numbers = torch.arange(self.count, self.count + len(new), device=index.device)
        self.places.index_copy_(0, new, numbers)
        self.count += len(new)
        return self.rows, self.places.index_select(0, index)


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        token: Tensor,
        added: Tensor,
        index: Tensor,
        erased: Tensor,
        before: "SparseMemory",
        after: list[tuple[Version, object]],
    ) -> Tensor:
        with before.version.change() as change:
            change.keep(SLOT_ROWS, torch.cat((index, erased)))
            slots = change[SLOT_ROWS]
            slots.index_fill_(0, erased, 0.0)
            slots.index_add_(0, index, added)
        after.append((change.after, object()))
        ctx.save_for_backward(index, erased)
        ctx.before, ctx.written = before, after[0][1]  # type: ignore[attr-defined]
        return token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, to_token: Tensor) -> tuple[Tensor | None, ...]:
        index, erased = ctx.saved_tensors  # type: ignore[attr-defined]
        before: SparseMemory = ctx.before  # type: ignore[attr-defined]
        slots, written = before.version.journal.tensors[SLOT_ROWS], ctx.written  # type: ignore[attr-defined]
        both = torch.cat((index, erased))
        to_slots, places = before.gradient.of(slots, written, both)
        to_added = to_slots.index_select(0, places[: len(index)])
        to_slots.index_fill_(0, places[len(index) :], 0.0)
        before.gradient.at = before.written
        before.version.restore()
        if not ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            before.gradient.clear()
        return to_token, to_added, None, None, None, None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, token: Tensor, index: Tensor, memory: "SparseMemory"
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(index)
        ctx.memory = memory  # type: ignore[attr-defined]
        return memory.version.read(SLOT_ROWS).index_select(0, index), token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, to_rows: Tensor, to_token: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors  # type: ignore[attr-defined]
        memory: SparseMemory = ctx.memory  # type: ignore[attr-defined]
        slots = memory.version.journal.tensors[SLOT_ROWS]
        to_slots, places = memory.gradient.of(slots, memory.written, index)
        to_slots.index_add_(0, places, to_rows)
        if not ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            memory.gradient.clear()
        return to_token, None, None


@dataclass(frozen=True)
class SparseMemory:
    """Slots of a batch at one version. It is a value; no module keeps any of it."""

    version: Version
    token: Float[Tensor, "1"]
    gradient: _Gradient
    slots: int
    """The number of slots of each row."""
    written: object = None
    """Which write was the last one."""

    @classmethod
    def of(
        cls, slots: Float[Tensor, "B K W"], more: Mapping[str, Tensor] | None = None
    ) -> "SparseMemory":
        """A memory that takes these slots over, and other tensors that change with them."""
        version = journal_of({SLOT_ROWS: slots.detach().flatten(0, 1), **(more or {})})
        return cls(version, slots.new_zeros(1), _Gradient(), slots.shape[1])

    def select(self, rows: Int[Tensor, "N"]) -> "SparseMemory":
        """A copy of the chosen batch rows, in that order, without their history."""
        self.version.restore()
        tensors = self.version.journal.tensors
        batch = len(tensors[SLOT_ROWS]) // self.slots
        chosen = {
            name: each.unflatten(0, (batch, len(each) // batch)).index_select(0, rows)
            for name, each in tensors.items()
        }
        slots = chosen.pop(SLOT_ROWS)
        return SparseMemory.of(slots, {name: each.flatten(0, 1) for name, each in chosen.items()})

    def flat(self, index: Int[Tensor, "B ..."]) -> Int[Tensor, "F"]:
        """Slots of each row as rows of the one tensor."""
        first = torch.arange(len(index), device=index.device) * self.slots
        return (index + first.view(-1, *[1] * (index.dim() - 1))).flatten()

    def write(
        self, index: Int[Tensor, "B N"], added: Float[Tensor, "B N W"], erased: Int[Tensor, "B H"]
    ) -> "SparseMemory":
        """Erase some slots, then add vectors to some slots, in a few rows of the one tensor."""
        after: list[tuple[Version, object]] = []
        token: Tensor = _Write.apply(  # type: ignore[no-untyped-call]
            self.token, added.flatten(0, 1), self.flat(index), self.flat(erased), self, after
        )
        version, written = after[0]
        return replace(self, version=version, token=token, written=written)

    def read(self, index: Int[Tensor, "B N"]) -> tuple[Float[Tensor, "B N W"], "SparseMemory"]:
        """The vectors in some slots, and the memory to go on with."""
        rows, token = _Read.apply(self.token, self.flat(index), self)  # type: ignore[no-untyped-call]
        return rows.unflatten(0, index.shape), replace(self, token=token)

    def look(self, index: Int[Tensor, "B ..."]) -> Float[Tensor, "B ... W"]:
        """The vectors in some slots, without a gradient."""
        rows = self.version.read(SLOT_ROWS).index_select(0, self.flat(index))
        return rows.view(*index.shape, rows.shape[1])

    def all_slots(self) -> Float[Tensor, "B K W"]:
        """The slots, without a gradient; valid until the memory changes."""
        flat = self.version.read(SLOT_ROWS)
        return flat.view(len(flat) // self.slots, self.slots, flat.shape[1])

    def moved_to(self, version: Version) -> "SparseMemory":
        """The same slots, where other tensors of the journal have changed."""
        return replace(self, version=version)
