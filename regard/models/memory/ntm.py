"""The Neural Turing Machine (Graves, Wayne and Danihelka 2014).

A controller reads the input and what the heads read a step ago. Each head emits a key k, strength
β, gate g, shifts s and power γ, and addresses the memory M by content and by place:

    c = softmax(β cos(k, M))            w_g = g c + (1 - g) w₋₁                  (eq. 5 to 7)
    w̃(i) = Σ_j w_g(j) s(i - j)          w = w̃^γ / Σ w̃^γ                        (eq. 8 and 9)
    M = M₋₁ ∘ Π (1 - w eᵀ) + Σ w aᵀ     r = Σ w(i) M₋₁(i)                        (eq. 2 to 4)

All heads address the memory as the step before left it, and the read heads read that memory, as in
the implementations of Collier and Beel (2018) and pytorch-ntm; the paper leaves the order open.
Before the first step every head is on the first slot. The cosine is smooth at zero (addressing.py).
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Past
from regard.attention.addressing import Content, ShiftedContent
from regard.attention.tape import open_contexts
from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.memory_step import erase_and_add
from regard.kernels.ntm_step import ntm_step
from regard.kernels.switch import enabled
from regard.layers.controller import CONTROLLERS, ControllerState
from regard.outputs.bits import Bits

CONSTANT = 1e-6
"""The number in every slot of a constant initial memory."""


@dataclass(frozen=True)
class NTMState:
    """What a step leaves to the next: a value, no module keeps any of it."""

    controller: ControllerState
    slots: Float[Tensor, "B K W"]
    reads: Float[Tensor, "B F"]
    """What all read heads read, side by side."""
    weights: Float[Tensor, "B H K"]
    """Of the read heads, then of the write heads."""
    steps: int = 0
    """The number of steps so far."""

    def select(self, rows: Tensor) -> "NTMState":
        """The state of the chosen batch rows, in that order."""

        return replace(
            self,
            controller=tuple(each.index_select(0, rows) for each in self.controller),
            slots=self.slots.index_select(0, rows),
            reads=self.reads.index_select(0, rows),
            weights=self.weights.index_select(0, rows),
        )


class NTM(nn.Module):
    """A controller, a memory, and heads that read and write it."""

    class Config(Config):
        """What a recipe may choose."""

        controller: Literal["lstm", "feedforward"] = "lstm"
        """The network that drives the heads."""
        hidden: PositiveInt = 100
        """The width of the controller."""
        slots: PositiveInt = 128
        """How many vectors the memory holds."""
        width: PositiveInt = 20
        """The width of a slot."""
        read_heads: PositiveInt = 1
        """How many heads read the memory."""
        write_heads: PositiveInt = 1
        """How many heads write to it."""
        reach: PositiveInt = 1
        """How many slots a head may move in a step, either way."""
        initial: Literal["constant", "learned", "random"] = "constant"
        """The memory before the first step: 1e-6 everywhere, learned, or drawn once with the
        weights of the model."""

    def __init__(self, config: Config, inputs: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        reads = config.read_heads * config.width
        self.controller = CONTROLLERS[config.controller](inputs, reads, config.hidden)
        self.read, self.write = self._head(), self._head()
        parameters = self.read.score.width
        self.sizes = (
            (config.read_heads + config.write_heads) * parameters,
            config.write_heads * config.width,
            config.write_heads * config.width,
        )
        self.heads = nn.Linear(config.hidden, sum(self.sizes))
        nn.init.xavier_uniform_(self.heads.weight, gain=1.4)
        nn.init.normal_(self.heads.bias, std=0.01)
        self.output = nn.Linear(config.hidden + reads, outputs)
        first = torch.full((config.slots, config.width), CONSTANT)
        if config.initial != "constant":
            first.uniform_(-1, 1).mul_(config.width**-0.5)
        if config.initial == "learned":
            self.first_slots = nn.Parameter(first)
        else:
            self.register_buffer("first_slots", first)

    def _head(self) -> Attend:
        weigh = ShiftedContent(self.config.reach)
        return Attend(Content(self.config.width, weigh.more), weigh, kind="memory")

    @property
    def memory_slots(self) -> int:
        """The number of slots."""
        return self.config.slots

    def start(self, batch: int) -> NTMState:
        """The state before the first step."""
        slots = self.first_slots.expand(batch, -1, -1)
        reads = slots.new_zeros(batch, self.config.read_heads * self.config.width)
        heads = self.config.read_heads + self.config.write_heads
        weights = slots.new_zeros(batch, heads, self.config.slots)
        weights[:, :, 0] = 1
        return NTMState(self.controller.start(batch), slots, reads, weights)

    def step(self, drive: Tensor, state: NTMState) -> tuple[Float[Tensor, "B F"], NTMState]:
        """One step: what the output is computed from, and the state after it."""
        config = self.config
        hidden, controller = self.controller.step(drive, state.reads, state.controller)
        raw, erase, add = self.heads(hidden).split(self.sizes, 1)
        raw = raw.unflatten(1, (config.read_heads + config.write_heads, self.read.score.width))
        erase, add = (
            each.unflatten(1, (config.write_heads, config.width)) for each in (erase, add)
        )
        if self.fusable:
            weights, reads, written = ntm_step(state.slots, raw, state.weights, erase, add)
            self._record(weights, state.steps)
        else:
            weights = self._address(raw, state)
            reads = weights[:, : config.read_heads] @ state.slots
            written = erase_and_add(
                state.slots, weights[:, config.read_heads :], erase.sigmoid(), add
            )
        reads = reads.flatten(1)  # [B,H*W]
        return torch.cat((hidden, reads), 1), NTMState(
            controller, written, reads, weights, state.steps + 1
        )

    @property
    def fusable(self) -> bool:
        """Can one kernel take a whole step? Not while weights are edited."""
        config = self.config
        return (
            config.write_heads == 1
            and config.slots > 2 * config.reach
            and enabled("memory_step")
            and not any(each and each.edits for each in map(open_contexts, (self.read, self.write)))
        )

    def _record(self, weights: Tensor, steps: int) -> None:
        """Pass weights that the kernel computed to whoever records."""
        parts = weights.unsqueeze(2).split((self.config.read_heads, self.config.write_heads), 1)
        for site, part in zip((self.read, self.write), parts, strict=True):
            contexts = open_contexts(site)
            if contexts is not None:
                site.record_weights(part, Past(first=steps), contexts)

    def _address(self, raw: Tensor, state: NTMState) -> Tensor:
        """The weights of all heads, `[B,H,K]`."""
        counts = (self.config.read_heads, self.config.write_heads)
        slots = state.slots.unsqueeze(1)
        memory = self.read.remember(slots, slots)
        found = [
            site.weights(
                query.unsqueeze(2),
                memory,
                past=Past(first=state.steps, weights=before.unsqueeze(2)),
            )
            for site, query, before in zip(
                (self.read, self.write),
                raw.split(counts, 1),
                state.weights.split(counts, 1),
                strict=True,
            )
        ]
        return torch.cat(found, 1).squeeze(2)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Bits:
        """The bits after each step of `inputs` [B,T,C]."""
        inputs = batch["inputs"]
        state, outputs = self.start(len(inputs)), []
        for drive in self.controller.drive(inputs):
            both, state = self.step(drive, state)
            outputs.append(both)
        return Bits(self.output(torch.stack(outputs, 1)))
