"""Ready-made ways to ask: torch's multi-head attention, our Attend, and weights from a tape."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import Attend, Mask, Past, padding, record
from regard.attention import causal as causal_mask
from regard.attention import table as table_mask
from regard.attention.past import START
from regard.check.subject import Call
from regard.core.errors import UserError, divides

Model = TypeVar("Model", bound=nn.Module)

Given = Bool[Tensor, "B T"] | Bool[Tensor, "B 1 T T"]
"""Which keys are real, or which each position may look at: the two masks of a check."""

_Cache = tuple[Tensor, Past]
"""Heads of the positions so far, `[B,H,T,E]`, and the past of the next one."""


@dataclass(frozen=True, kw_only=True)
class AsTorchMultihead:
    """Ask a torch.nn.MultiheadAttention of itself; without weights it takes its faster path."""

    causal: bool = False
    weights: bool = True

    def __call__(
        self, module: nn.MultiheadAttention, x: Float[Tensor, "B T D"], mask: Given
    ) -> tuple[Tensor, Tensor | None]:
        """Output, and per-head weights or None; torch's masks are True where one may not look."""
        if not module.batch_first:
            raise UserError(
                "x is [batch, positions, width], but this MultiheadAttention takes positions "
                "first; build it with batch_first=True"
            )
        ahead = None
        if mask.dim() == 4:
            ahead = ~mask.expand(-1, module.num_heads, -1, -1).flatten(0, 1)  # [B*H,T,T]
        elif self.causal:
            length = x.shape[1]
            ahead = ~causal_mask().table(length, length, device=x.device)[0, 0]
        output, weights = module(
            x,
            x,
            x,
            key_padding_mask=~mask if mask.dim() == 2 else None,
            attn_mask=ahead,
            need_weights=self.weights,
            average_attn_weights=False,
        )
        return output, weights


@dataclass(frozen=True, kw_only=True)
class AsAttend:
    """Ask an Attend of itself, x cut into heads: its width per head times `heads` is x's width.

    Keys and values are x itself; the query of a position is x read backwards, or every position
    would match itself best and a hard choice would never look elsewhere.
    """

    heads: int = 1
    causal: bool = False

    def __call__(
        self, attend: Attend, x: Float[Tensor, "B T D"], mask: Given
    ) -> tuple[Tensor, Tensor]:
        """Output, by a fused kernel where it has one, and the weights recorded beside it."""
        heads = self.split(x)
        memory = attend.remember(heads, heads)
        with record(attend) as tape:
            output = attend(heads.flip(3), memory, self.mask(mask))  # [B,H,T,E]
        (call,) = tape
        return output.transpose(1, 2).flatten(2), call.weights

    def step(
        self, attend: Attend, x: Float[Tensor, "B 1 D"], state: _Cache | None
    ) -> tuple[Tensor, _Cache]:
        """One position, over the cache of those before it."""
        heads = self.split(x)
        before, past = (heads[:, :, :0], START) if state is None else state
        known = torch.cat((before, heads), dim=2)
        memory = attend.remember(known, known)
        output, past = attend.step(heads.flip(3), memory, causal_mask(), past)
        return output.transpose(1, 2).flatten(2), (known, past)

    def split(self, x: Tensor) -> Tensor:
        """`[B,T,D]` to `[B,H,T,E]`."""
        each = divides("width", x.shape[2], "heads", self.heads)
        heads: Tensor = x.unflatten(2, (self.heads, each))  # [B,T,H,E]
        return heads.transpose(1, 2)

    def mask(self, given: Given) -> Mask:
        """The mask of a check as a Mask."""
        if given.dim() == 4:
            return table_mask(given)
        return padding(given) & causal_mask() if self.causal else padding(given)


@dataclass(frozen=True)
class Recorded(Generic[Model]):
    """A call that returns only an output, with the weights of the model's sites recorded beside it.

    For any model made of regard's attention. All matching sites must look from the positions of x
    at the positions of x; their heads are put one after another.
    """

    call: Call[Model]
    sites: str = "*"

    def __call__(
        self, model: Model, x: Float[Tensor, "B T D"], mask: Given
    ) -> tuple[object, Tensor]:
        """Output and the weights of all heads of all sites."""
        with record(model, self.sites) as tape:
            output = self.call(model, x, mask)
        weights = {site: tape.join(site) for site in tape.sites}
        square = (x.shape[1], x.shape[1])
        for site, each in weights.items():
            if each.shape[2:] != square:
                raise UserError(
                    f"site {site!r} has {each.shape[2]} queries and {each.shape[3]} keys, but x "
                    f"has {x.shape[1]} positions; choose the sites of self-attention by sites="
                )
        return output, torch.cat(list(weights.values()), dim=1)  # [B,H,T,T]
