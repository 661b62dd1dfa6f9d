"""Ready-made calls: torch's multi-head attention, an `Attend`, and recorded attention weights."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import Attend, Mask, Past, padding, record
from regard.attention import causal as causal_mask
from regard.attention import table as table_mask
from regard.attention.past import START
from regard.check.subject import CallSubject
from regard.core.errors import UserError, divides

_Model = TypeVar("_Model", bound=nn.Module)

CheckMask = Bool[Tensor, "B T"] | Bool[Tensor, "B 1 T T"]
"""Which keys are real, or to which keys each position may attend: the two masks of a check."""

_Cache = tuple[Tensor, Past]
"""Heads of the positions so far, `[B,H,T,E]`, and the past of the next one."""


@dataclass(frozen=True, kw_only=True)
class AsTorchMultihead:
    """Self-attention by a torch.nn.MultiheadAttention; without weights it takes its fast path."""

    causal: bool = False
    weights: bool = True

    def __call__(
        self, module: nn.MultiheadAttention, x: Float[Tensor, "B T D"], mask: CheckMask
    ) -> tuple[Tensor, Tensor | None]:
        """Output, and weights of each head or None; torch's masks are True at forbidden keys."""
        if not module.batch_first:
            raise UserError(
                "x is [batch, positions, width], but this MultiheadAttention takes [positions, "
                "batch, width]; build it with batch_first=True"
            )
        forbidden = None
        if mask.dim() == 4:
            forbidden = ~mask.expand(-1, module.num_heads, -1, -1).flatten(0, 1)  # [B*H,T,T]
        elif self.causal:
            length = x.shape[1]
            forbidden = ~causal_mask().table(length, length, device=x.device)[0, 0]
        output, weights = module(
            x,
            x,
            x,
            key_padding_mask=~mask if mask.dim() == 2 else None,
            attn_mask=forbidden,
            need_weights=self.weights,
            average_attn_weights=False,
        )
        return output, weights


@dataclass(frozen=True, kw_only=True)
class AsAttend:
    """Self-attention by an Attend, with x split into heads.

    Keys and values are x itself. The query of a position is x with its width reversed: otherwise
    every position would match itself best, and hard attention would choose nothing else.
    """

    heads: int = 1
    causal: bool = False

    def __call__(
        self, attend: Attend, x: Float[Tensor, "B T D"], mask: CheckMask
    ) -> tuple[Tensor, Tensor]:
        """Output, by a fused kernel if there is one, and the recorded weights."""
        heads = self.split(x)
        memory = attend.remember(heads, heads)
        with record(attend) as tape:
            output = attend(heads.flip(3), memory, self.mask(mask))  # [B,H,T,E]
        (call,) = tape
        return output.transpose(1, 2).flatten(2), call.weights

    def step(
        self, attend: Attend, x: Float[Tensor, "B 1 D"], state: _Cache | None
    ) -> tuple[Tensor, _Cache]:
        """One position, with the cache of those before it."""
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

    def mask(self, given: CheckMask) -> Mask:
        """The mask of a check as a Mask."""
        if given.dim() == 4:
            return table_mask(given)
        return padding(given) & causal_mask() if self.causal else padding(given)


@dataclass(frozen=True)
class Recorded(Generic[_Model]):
    """A call that returns only an output, together with the recorded weights of the model's sites.

    For any model with attention of this package. All matching sites must be self-attention over
    the positions of x; their heads are concatenated.
    """

    call: CallSubject[_Model]
    sites: str = "*"

    def __call__(
        self, model: _Model, x: Float[Tensor, "B T D"], mask: CheckMask
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
                    f"has {x.shape[1]} positions; choose the sites of self-attention with sites="
                )
        return output, torch.cat(list(weights.values()), dim=1)  # [B,H,T,T]
