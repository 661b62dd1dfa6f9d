"""The blocks of SNAIL: causal dilated convolutions and attention (Mishra et al. 2018, section 3).

A dense block adds g = tanh(W_f * x) ∘ σ(W_g * x), a causal convolution of two positions at a
distance d, to the features of each position. A temporal convolution (TC) block stacks dense blocks
with d = 1, 2, 4, ... until they cover the sequence. An attention block adds what a causal attention
of one head reads. All of them concatenate: nothing is overwritten. Unlike the paper's, queries and
keys start with the same weights; without that, Omniglot takes twice as many updates to begin.

A sequence may end in several alternatives: with `prefix` the first positions are one sequence, and
each position after them is the next one, which sees the prefix and itself. A few-shot episode with
many queries is read once in this way, and the result is that of one sequence for each query.

>>> blocks = SnailBlocks(6, length=5, layout="ATA", filters=4, attention=((8, 3), (8, 3)))
>>> blocks.width, blocks(torch.zeros(2, 7, 6), prefix=4).shape       # 6 + 3 + 3 x 4 + 3
(24, torch.Size([2, 7, 24]))
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attend, ScaledDot
from regard.attention.mask import Mask, causal
from regard.attention.past import Past
from regard.core.errors import UserError, positive


def alternatives(prefix: int) -> Mask:
    """Causal over the prefix; every later position sees the prefix and itself.

    >>> alternatives(1).table(3, 3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    positive("prefix", prefix)
    return Mask(lambda q, k: (k == q) | ((k < q) & (k < prefix)), f"alternatives({prefix})")


def shifted(
    x: Float[Tensor, "B T D"], distance: int, prefix: int | None = None
) -> Float[Tensor, "B T D"]:
    """The features `distance` positions earlier; zeros before the first.

    >>> shifted(torch.tensor([[[1.0], [2.0], [3.0]]]), 1, prefix=2).flatten().tolist()
    [0.0, 1.0, 2.0]
    >>> shifted(torch.tensor([[[1.0], [2.0], [3.0]]]), 1, prefix=1).flatten().tolist()
    [0.0, 1.0, 1.0]
    """
    places = torch.arange(x.shape[1], device=x.device)
    if prefix is not None:
        places = places.clamp_max(prefix)
    padded = torch.cat([x.new_zeros(len(x), 1, x.shape[2]), x], 1)
    return padded[:, (places - distance).clamp_min(-1) + 1]


class DenseBlock(nn.Module):
    """A gated causal convolution of two positions, beside its input."""

    def __init__(self, width: int, filters: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.width = width + filters
        self.convolution = nn.Linear(2 * width, 2 * filters)

    def forward(
        self, x: Float[Tensor, "B T D"], earlier: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T W"]:
        """The input and the new features; `earlier` is the input `dilation` positions before."""
        signal, gate = self.convolution(torch.cat([earlier, x], 2)).chunk(2, dim=2)
        return torch.cat([x, signal.tanh() * gate.sigmoid()], 2)


class SnailAttention(nn.Module):
    """Causal attention of one head, beside its input."""

    def __init__(self, width: int, key_width: int, value_width: int) -> None:
        super().__init__()
        self.width = width + value_width
        self.query = nn.Linear(width, key_width)
        self.key = nn.Linear(width, key_width)
        self.value = nn.Linear(width, value_width)
        nn.init.normal_(self.query.weight, std=width**-0.5)
        with torch.no_grad():  # a position attends at first to those that are like it
            self.key.weight.copy_(self.query.weight)
        self.attend = Attend(ScaledDot(key_width), kind="self")

    def forward(self, x: Float[Tensor, "B T D"], mask: Mask) -> Float[Tensor, "B T W"]:
        """The input and what is read."""
        memory = self.attend.remember(self.key(x)[:, None], self.value(x)[:, None])
        read = self.attend(self.query(x)[:, None], memory, mask)[:, 0]
        return torch.cat([x, read], 2)

    def step(
        self, x: Float[Tensor, "B 1 D"], held: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B 1 W"]:
        """One more position after those `held`, its own among them."""
        memory = self.attend.remember(self.key(held)[:, None], self.value(held)[:, None])
        past = Past(first=held.shape[1] - 1)
        return torch.cat([x, self.attend(self.query(x)[:, None], memory, causal(), past)[:, 0]], 2)


@dataclass(frozen=True)
class SnailState:
    """What every block has read so far; a value."""

    inputs: tuple[Tensor, ...]
    """Of each block, `[B,T,D]`."""

    def select(self, rows: Int[Tensor, "N"]) -> "SnailState":
        """The state of the chosen rows."""
        return SnailState(tuple(each.index_select(0, rows) for each in self.inputs))


class SnailBlocks(nn.Module):
    """Attention (A) and TC (T) blocks in the order of `layout`."""

    def __init__(
        self,
        width: int,
        *,
        length: int,
        layout: str,
        filters: int,
        attention: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__()
        if not layout or set(layout) - {"A", "T"} or layout.count("A") != len(attention):
            raise UserError(
                f"layout={layout!r} must be made of A (attention) and T (temporal convolution), "
                f"with one A for each of the {len(attention)} widths in attention"
            )
        depth = max(1, (positive("length", length) - 1).bit_length())  # ⌈log2 T⌉
        blocks: list[nn.Module] = []
        widths = iter(attention)
        for letter in layout:
            for step in range(depth if letter == "T" else 1):
                block = (
                    DenseBlock(width, filters, 2**step)
                    if letter == "T"
                    else SnailAttention(width, *next(widths))
                )
                width = block.width
                blocks.append(block)
        self.blocks = nn.ModuleList(blocks)
        self.width = width

    def forward(
        self, x: Float[Tensor, "B T D"], prefix: int | None = None
    ) -> Float[Tensor, "B T W"]:
        """The features of every position."""
        mask = causal() if prefix is None else alternatives(prefix)
        for block in self.blocks:
            if isinstance(block, DenseBlock):
                x = block(x, shifted(x, block.dilation, prefix))
            else:
                x = block(x, mask)
        return x

    def step(
        self, x: Float[Tensor, "B D"], state: SnailState | None
    ) -> tuple[Float[Tensor, "B W"], SnailState]:
        """The features of the next position, and the state after it."""
        now, inputs = x[:, None], []
        for number, block in enumerate(self.blocks):
            held = now if state is None else torch.cat([state.inputs[number], now], 1)
            inputs.append(held)
            if isinstance(block, DenseBlock):
                place = held.shape[1] - 1 - block.dilation
                earlier = held[:, place : place + 1] if place >= 0 else torch.zeros_like(now)
                now = block(now, earlier)
            else:
                assert isinstance(block, SnailAttention)
                now = block.step(now, held)
        return now[:, 0], SnailState(tuple(inputs))
