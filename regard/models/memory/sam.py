"""Sparse access memory (Rae et al. 2016): a Neural Turing Machine whose steps touch few slots.

Each head reads the K slots most like its query, and writes to those that it read a step ago and to
the slot that was not used for longest, u, which is erased first:

    w_r = softmax of β cos(q, M) over the K best slots     r = Σ w_r(i) M(i)           (eq. 4)
    w_w = α (γ w_r₋₁ + (1 - γ) 1_u)                        M = (1 - 1_u) M₋₁ + w_w aᵀ  (eq. 5, 3)

A slot is used when its read or write weight is above δ = 0.005 (eq. 6). The write comes before the
read. The slots change in place and are rolled back by the backward pass (layers/sparse_memory.py),
so a step costs the same time and memory for any number of slots, if the K best come from an
approximate index (layers/slot_index.py); the exact one compares all slots, without a gradient.

While weights are edited, or with the kernel `memory_step` off, heads attend to all slots through
`Attend`, and only the weights are sparse.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from regard.attention import Attend, Past
from regard.attention.addressing import Content, LeastRecentOrRead
from regard.attention.score import Even
from regard.attention.tape import open_contexts
from regard.attention.weigh import TopK, masked_softmax
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.kernels.switch import enabled
from regard.layers.controller import CONTROLLERS, ControllerState
from regard.layers.slot_index import HashedSlots, LeastRecent
from regard.layers.sparse_memory import SparseMemory
from regard.outputs.bits import Bits

USED = 0.005
"""δ: a larger weight counts as use."""


@dataclass(frozen=True)
class SAMState:
    """What a step leaves to the next: a value, no module keeps any of it."""

    controller: ControllerState
    memory: SparseMemory
    index: Int[Tensor, "B H N"]
    """The slots that each head read."""
    weights: Float[Tensor, "B H N"]
    """The read weights of these slots."""
    reads: Float[Tensor, "B F"]
    """What all heads read, side by side."""
    steps: int = 0
    """The number of steps so far."""

    def select(self, rows: Tensor) -> "SAMState":
        """A copy of the chosen batch rows, in that order, without their history."""
        return replace(
            self,
            controller=tuple(each.index_select(0, rows) for each in self.controller),
            memory=self.memory.select(rows),
            index=self.index.index_select(0, rows),
            weights=self.weights.index_select(0, rows),
            reads=self.reads.index_select(0, rows),
        )


class SAM(nn.Module):
    """A controller and heads that each read and write a few of many slots."""

    class Config(Config):
        """What a recipe may choose."""

        controller: Literal["lstm", "feedforward"] = "lstm"
        """The network that drives the heads."""
        hidden: PositiveInt = 100
        """The width of the controller."""
        slots: PositiveInt = 1024
        """How many vectors the memory holds."""
        width: PositiveInt = 32
        """The width of a slot."""
        heads: PositiveInt = 4
        """Each head reads and writes."""
        nearest: PositiveInt = 4
        """K: the slots that a head reads."""
        index: Literal["exact", "hashed"] = "exact"
        """How the nearest slots are found: by comparing all, or in hash tables."""

        @model_validator(mode="after")
        def _fits(self) -> "SAM.Config":
            if self.heads > self.slots:
                raise UserError(
                    f"heads={self.heads} write to as many unused slots in a step, but there are "
                    f"slots={self.slots}"
                )
            return self

    def __init__(self, config: Config, inputs: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.nearest = min(config.nearest, config.slots)
        reads = config.heads * config.width
        self.controller = CONTROLLERS[config.controller](inputs, reads, config.hidden)
        self.read = Attend(Content(config.width), TopK(self.nearest), kind="memory")
        self.rule = LeastRecentOrRead()
        self.write = Attend(Even(2, config.width), self.rule, kind="memory")
        self.least = LeastRecent(config.slots)
        self.hashed = HashedSlots(config.slots, config.width) if config.index == "hashed" else None
        self.sizes = (config.width + 1, 2, config.width)
        self.heads = nn.Linear(config.hidden, config.heads * sum(self.sizes))
        self.output = nn.Linear(config.hidden + reads, outputs)

    def start(self, batch: int) -> SAMState:
        """The state before the first step: every slot is zero, and none has been used."""
        config, like = self.config, self.output.weight
        more = self.least.tensors(batch, like.device)
        if self.hashed is not None:
            more |= self.hashed.tensors(batch, like.device)
        memory = SparseMemory.of(like.new_zeros(batch, config.slots, config.width), more)
        index = torch.zeros(
            batch, config.heads, self.nearest, dtype=torch.int64, device=like.device
        )
        weights = like.new_zeros(batch, config.heads, self.nearest)
        reads = like.new_zeros(batch, config.heads * config.width)
        return SAMState(self.controller.start(batch), memory, index, weights, reads)

    @property
    def sparse(self) -> bool:
        """Do heads attend to a few slots only? Not while weights are edited."""
        return enabled("memory_step") and not any(
            each and each.edits for each in map(open_contexts, (self.read, self.write))
        )

    def step(self, drive: Tensor, state: SAMState) -> tuple[Float[Tensor, "B F"], SAMState]:
        """One step: what the output is computed from, and the state after it."""
        hidden, controller = self.controller.step(drive, state.reads, state.controller)
        raw = self.heads(hidden).unflatten(1, (self.config.heads, sum(self.sizes)))
        query, gates, add = raw.split(self.sizes, 2)
        unused = self.least.find(state.memory.version, len(raw), self.config.heads)  # [B,H]
        written, writing = self._write_weights(gates, unused, state)
        added = (writing.unsqueeze(3) * add.unsqueeze(2)).flatten(1, 2)  # [B,H*N,W]
        memory = state.memory.write(written.flatten(1), added, unused)
        memory = self._insert(memory, written, writing)
        index, weights, rows, memory = self._read(query, unused, replace(state, memory=memory))
        with memory.version.change() as change:
            both = torch.cat((written.flatten(1), index.flatten(1)), 1)
            used = torch.cat((writing.flatten(1), weights.flatten(1)), 1) > USED
            self.least.access(change, both, used, state.steps)
        reads = (weights.unsqueeze(2) @ rows).flatten(1)  # [B,H*W]
        after = SAMState(
            controller, memory.moved_to(change.after), index, weights, reads, state.steps + 1
        )
        return torch.cat((hidden, reads), 1), after

    def _write_weights(
        self, gates: Tensor, unused: Tensor, state: SAMState
    ) -> tuple[Int[Tensor, "B H N"], Float[Tensor, "B H N"]]:
        """The slots that each head writes to, and how much."""
        past = Past(first=state.steps)
        if self.sparse:
            parts = self.rule.shares(gates)
            weights = torch.cat((state.weights * parts[0], parts[1]), 2)  # [B,H,K+1]
            index = torch.cat((state.index, unused.unsqueeze(2)), 2)
            self._record(self.write, index, weights, state.steps)
            return index, weights
        before = self._dense(state.index, state.weights)
        target = self._dense(unused.unsqueeze(2), torch.ones_like(before[:, :, :1]))
        slots = state.memory.all_slots().unsqueeze(1)
        weights = self.write.weights(
            gates.unsqueeze(2),
            self.write.remember(slots, slots),
            past=replace(past, weights=before.unsqueeze(2), state=target.unsqueeze(2)),
        ).squeeze(2)
        return self._every_slot(weights), weights

    def _read(
        self, query: Tensor, unused: Tensor, state: SAMState
    ) -> tuple[Tensor, Tensor, Tensor, SparseMemory]:
        """The slots that each head reads, their weights, what is in them, and the memory."""
        if self.sparse:
            index, there = self._find(query.detach(), unused, state)
            rows, memory = state.memory.read(index.flatten(1))
            rows = rows.unflatten(1, index.shape[1:])  # [B,H,K,W]
            scores = self.read.score(query.unsqueeze(2), self.read.score.prepare(rows))
            weights = masked_softmax(scores, there.unsqueeze(2)).squeeze(2)  # [B,H,K]
            self._record(self.read, index, weights, state.steps)
            return index, weights, rows, memory
        every = torch.arange(self.config.slots, device=query.device).expand(len(query), -1)
        rows, memory = state.memory.read(every)
        held = rows.unsqueeze(1)  # [B,1,K,W]
        weights = self.read.weights(
            query.unsqueeze(2), self.read.remember(held, held), past=Past(first=state.steps)
        ).squeeze(2)
        return self._every_slot(weights), weights, held.expand(-1, weights.shape[1], -1, -1), memory

    @torch.no_grad()
    def _find(
        self, query: Tensor, unused: Tensor, state: SAMState
    ) -> tuple[Int[Tensor, "B H N"], Bool[Tensor, "B H N"]]:
        """The nearest slots of each query, and which of them there are."""
        score = self.read.score
        if self.hashed is None:
            key = score.prepare(state.memory.all_slots().unsqueeze(1))
            scores = score(query.unsqueeze(2), key.expand(-1, query.shape[1], -1, -1)).squeeze(2)
            best = scores.topk(self.nearest, 2).indices
            return best, torch.ones_like(best, dtype=torch.bool)
        found = self.hashed.find(state.memory.version, query[:, :, : score.key_width])
        more = (state.index, unused.unsqueeze(1).expand(-1, query.shape[1], -1))
        ordered = torch.cat((found, *more), 2).sort(dim=2).values  # [B,H,n]
        there = ordered >= 0
        there[:, :, 1:] &= ordered[:, :, 1:] != ordered[:, :, :-1]
        index = ordered.clamp_min(0)
        rows = state.memory.look(index)  # [B,H,n,W]
        scores = score(query.unsqueeze(2), score.prepare(rows)).squeeze(2)
        best = torch.where(there, scores, -torch.inf).topk(self.nearest, 2).indices
        return index.gather(2, best), there.gather(2, best)

    def _insert(self, memory: SparseMemory, index: Tensor, weights: Tensor) -> SparseMemory:
        """Put what was written into the hash tables, if there are any."""
        if self.hashed is None:
            return memory
        flat, used = index.flatten(1), weights.detach().flatten(1) > USED
        vectors = memory.look(flat)
        with memory.version.change() as change:
            self.hashed.insert(change, flat, vectors, used)
        return memory.moved_to(change.after)

    def _dense(self, index: Tensor, weights: Tensor) -> Tensor:
        """Weights of some slots as weights of all, `[B,H,K]`."""
        every = weights.new_zeros(*weights.shape[:2], self.config.slots)
        return every.scatter_add(2, index, weights)

    def _every_slot(self, weights: Tensor) -> Tensor:
        return torch.arange(self.config.slots, device=weights.device).expand_as(weights)

    def _record(self, site: Attend, index: Tensor, weights: Tensor, steps: int) -> None:
        """Pass the weights of a few slots to whoever records, as weights of all."""
        contexts = open_contexts(site)
        if contexts is not None:
            site.record_weights(
                self._dense(index, weights).unsqueeze(2), Past(first=steps), contexts
            )

    def forward(self, batch: Batch, carry: Carry | None = None) -> Bits:
        """The bits after each step of `inputs` [B,T,C]."""
        inputs = batch["inputs"]
        state, outputs = self.start(len(inputs)), []
        for drive in self.controller.drive(inputs):
            both, state = self.step(drive, state)
            outputs.append(both)
        return Bits(self.output(torch.stack(outputs, 1)))
