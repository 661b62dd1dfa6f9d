"""The Differentiable Neural Computer (Graves et al. 2016, Methods).

A step frees what was read for the last time, writes, links the write to the one before, and reads:

    ψ = Π_i (1 - f_i w_r,i)              u = (u + w - u ∘ w) ∘ ψ                 usage
    w = g_w (g_a a(u) + (1 - g_a) c)     M = M ∘ (1 - w eᵀ) + w vᵀ               write
    L = (1 - w_i - w_j) L + w_i p_j      p = (1 - Σ w) p + w                     links, precedence
    w_r = π₁ Lᵀ w_r + π₂ c + π₃ L w_r    r = Σ w_r(i) M(i)                       read

On the right-hand sides w, w_r, M, L and p are those of the step before where they stand alone; the
diagonal of L is zero. Writing is by content c or allocation a, reading by content or along the
links (attention/addressing.py). Slots start at zero. The cosine is smooth there.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Past
from regard.attention.addressing import Allocation, Content, LinkedContent
from regard.attention.tape import open_contexts
from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.dnc_step import dnc_step
from regard.kernels.memory_step import erase_and_add
from regard.kernels.switch import enabled
from regard.layers.controller import CONTROLLERS, ControllerState
from regard.outputs.bits import Bits


@dataclass(frozen=True)
class DNCState:
    """What a step leaves to the next: a value, no module keeps any of it."""

    controller: ControllerState
    slots: Float[Tensor, "B K W"]
    usage: Float[Tensor, "B K"]
    """How far each slot is in use, from 0 to 1."""
    links: Float[Tensor, "B K K"]
    """`links[i, j]`: how far slot i was written right after slot j."""
    precedence: Float[Tensor, "B K"]
    """How far each slot was the last one written."""
    read_weights: Float[Tensor, "B H K"]
    write_weights: Float[Tensor, "B K"]
    reads: Float[Tensor, "B F"]
    """What all read heads read, side by side."""
    free: Float[Tensor, "B H"]
    """The free gate of each read head: how far what it read before may be written over."""
    steps: int = 0
    """The number of steps so far."""

    def select(self, rows: Tensor) -> "DNCState":
        """The state of the chosen batch rows, in that order."""
        return replace(
            self,
            controller=tuple(each.index_select(0, rows) for each in self.controller),
            slots=self.slots.index_select(0, rows),
            usage=self.usage.index_select(0, rows),
            links=self.links.index_select(0, rows),
            precedence=self.precedence.index_select(0, rows),
            read_weights=self.read_weights.index_select(0, rows),
            write_weights=self.write_weights.index_select(0, rows),
            reads=self.reads.index_select(0, rows),
            free=self.free.index_select(0, rows),
        )


def next_usage(
    usage: Float[Tensor, "B K"],
    write_weights: Float[Tensor, "B K"],
    read_weights: Float[Tensor, "B H K"],
    free: Float[Tensor, "B H"],
) -> Float[Tensor, "B K"]:
    """Usage after the last write, less what the read heads free of what they read last.

    >>> one, none = torch.ones(1, 1), torch.zeros(1, 1)
    >>> next_usage(none, one, none[:, None], none).item()              # written: in use
    1.0
    >>> next_usage(one, none, one[:, None], one).item()                # read and freed
    0.0
    """
    kept = (1 - free.unsqueeze(2) * read_weights).prod(1)  # [B,K]
    return (usage + write_weights - usage * write_weights) * kept


def next_links(
    links: Float[Tensor, "B K K"],
    precedence: Float[Tensor, "B K"],
    write_weights: Float[Tensor, "B K"],
) -> Float[Tensor, "B K K"]:
    """Links after a write: from what was written last to what is written now.

    >>> second, first = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> next_links(torch.zeros(1, 2, 2), first, second)[0].tolist()    # slot 1 after slot 0
    [[0.0, 0.0], [1.0, 0.0]]
    """
    row, column = write_weights.unsqueeze(2), write_weights.unsqueeze(1)
    moved = torch.addcmul(row * precedence.unsqueeze(1), 1 - row - column, links)  # [B,K,K]
    diagonal = torch.eye(links.shape[1], dtype=torch.bool, device=links.device)
    return moved * ~diagonal


class DNC(nn.Module):
    """A controller, a memory with usage and links, one write head and several read heads."""

    class Config(Config):
        """What a recipe may choose."""

        controller: Literal["lstm", "feedforward"] = "lstm"
        """The network that drives the heads."""
        hidden: PositiveInt = 64
        """The width of the controller."""
        slots: PositiveInt = 16
        """How many vectors the memory holds."""
        width: PositiveInt = 16
        """The width of a slot."""
        read_heads: PositiveInt = 4
        """How many heads read the memory."""

    def __init__(self, config: Config, inputs: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        reads = config.read_heads * config.width
        self.controller = CONTROLLERS[config.controller](inputs, reads, config.hidden)
        content = Content(config.width, Allocation.more, above_one=True)
        self.write = Attend(content, Allocation(), kind="memory")
        content = Content(config.width, LinkedContent.more, above_one=True)
        self.read = Attend(content, LinkedContent(), kind="memory")
        self.sizes = (
            self.write.score.width,
            config.width,
            config.width,
            config.read_heads,
            config.read_heads * self.read.score.width,
        )
        self.heads = nn.Linear(config.hidden, sum(self.sizes))
        self.output = nn.Linear(config.hidden + reads, outputs)

    def start(self, batch: int) -> DNCState:
        """The state before the first step."""
        config, like = self.config, self.output.weight
        return DNCState(
            self.controller.start(batch),
            slots=like.new_zeros(batch, config.slots, config.width),
            usage=like.new_zeros(batch, config.slots),
            links=like.new_zeros(batch, config.slots, config.slots),
            precedence=like.new_zeros(batch, config.slots),
            read_weights=like.new_zeros(batch, config.read_heads, config.slots),
            write_weights=like.new_zeros(batch, config.slots),
            reads=like.new_zeros(batch, config.read_heads * config.width),
            free=like.new_zeros(batch, config.read_heads),
        )

    def step(self, drive: Tensor, state: DNCState) -> tuple[Float[Tensor, "B F"], DNCState]:
        """One step: what the output is computed from, and the state after it."""
        hidden, controller = self.controller.step(drive, state.reads, state.controller)
        writing, erase, add, free, reading = self.heads(hidden).split(self.sizes, 1)
        heads = (self.config.read_heads, self.read.score.width)
        state = replace(state, controller=controller)
        if self.fusable:
            after = self._fused(state, writing, erase, add, free, reading.unflatten(1, heads))
        else:
            after = self._write(state, writing, erase.sigmoid(), add, free.sigmoid())
            after = self._read(after, reading.unflatten(1, heads))
        return torch.cat((hidden, after.reads), 1), replace(after, steps=state.steps + 1)

    @property
    def fusable(self) -> bool:
        """Can one kernel take a whole step? Not while weights are edited."""
        return enabled("memory_step") and not any(
            each and each.edits for each in map(open_contexts, (self.read, self.write))
        )

    def _fused(self, state: DNCState, *raw: Tensor) -> DNCState:
        """The whole step in one kernel; its weights are passed to whoever records."""
        slots, usage, links, precedence, reading, writing, reads, free = dnc_step(
            state.slots, state.usage, state.links, state.precedence, state.read_weights,
            state.write_weights, *raw,
        )  # fmt: skip
        for site, weights in ((self.write, writing.unsqueeze(1)), (self.read, reading)):
            contexts = open_contexts(site)
            if contexts is not None:
                site.record_weights(weights.unsqueeze(2), Past(first=state.steps), contexts)
        return replace(
            state, slots=slots, usage=usage, links=links, precedence=precedence,
            read_weights=reading, write_weights=writing, reads=reads.flatten(1), free=free,
        )  # fmt: skip

    def _write(
        self, state: DNCState, writing: Tensor, erase: Tensor, add: Tensor, free: Tensor
    ) -> DNCState:
        """Free slots, write, and link the write to the one before."""
        usage = next_usage(state.usage, state.write_weights, state.read_weights, free)
        slots = state.slots.unsqueeze(1)
        weights = self.write.weights(
            writing[:, None, None],
            self.write.remember(slots, slots),
            past=Past(first=state.steps, state=usage[:, None, None]),
        )[:, 0, 0]  # [B,K]
        links = next_links(state.links, state.precedence, weights)
        left = 1 - weights.sum(1, keepdim=True)
        return replace(
            state,
            slots=erase_and_add(
                state.slots, weights.unsqueeze(1), erase.unsqueeze(1), add.unsqueeze(1)
            ),
            usage=usage,
            links=links,
            precedence=torch.addcmul(weights, left, state.precedence),
            write_weights=weights,
            free=free,
        )

    def _read(self, state: DNCState, reading: Tensor) -> DNCState:
        """Read by content and along the links."""
        behind = state.read_weights @ state.links  # [B,H,K]
        ahead = state.read_weights @ state.links.transpose(1, 2)
        slots = state.slots.unsqueeze(1)
        weights = self.read.weights(
            reading.unsqueeze(2),
            self.read.remember(slots, slots),
            past=Past(first=state.steps, state=torch.cat((behind, ahead), 2).unsqueeze(2)),
        ).squeeze(2)  # [B,H,K]
        return replace(state, read_weights=weights, reads=(weights @ state.slots).flatten(1))

    def forward(self, batch: Batch, carry: Carry | None = None) -> Bits:
        """The bits after each step of `inputs` [B,T,C]."""
        inputs = batch["inputs"]
        state, outputs = self.start(len(inputs)), []
        for drive in self.controller.drive(inputs):
            both, state = self.step(drive, state)
            outputs.append(both)
        return Bits(self.output(torch.stack(outputs, 1)))

    def trace(self, batch: Batch) -> tuple[Bits, dict[str, Tensor]]:
        """The bits, the usage [B,T,K], the free gates [B,T,H] and the last links [B,K,K]."""
        state, outputs, usage, free = self.start(len(batch["inputs"])), [], [], []
        for drive in self.controller.drive(batch["inputs"]):
            both, state = self.step(drive, state)
            outputs.append(both)
            usage.append(state.usage)
            free.append(state.free)
        tables = {
            "usage": torch.stack(usage, 1),
            "free gates": torch.stack(free, 1),
            "links": state.links,
        }
        return Bits(self.output(torch.stack(outputs, 1))), tables
