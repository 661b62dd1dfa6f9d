"""Edits for `intervene`: uniform, permuted, frozen, without.

An edit takes weights `[B,H,Q,K]` and a `Look`, and returns weights of the same shape. These give no
weight to forbidden keys; one of your own may.

>>> import torch
>>> allowed = torch.tensor([[[[True, True, False]]]])
>>> look = Look(site="cross", kind="cross", first=0, allowed=allowed)
>>> uniform(torch.tensor([[[[0.9, 0.1, 0.0]]]]), look).tolist()
[[[[0.5, 0.5, 0.0]]]]
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.tape import Edit, Look
from regard.core.errors import UserError


def uniform(weights: Tensor, look: Look) -> Tensor:
    """The same weight for every allowed key."""
    allowed = allowed_keys(weights, look).to(weights.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp_min(1)


def permuted(seed: int = 0) -> Edit:
    """The weights of each row shuffled among its allowed keys, differently at each call."""
    draws = torch.Generator().manual_seed(seed)

    def edit(weights: Tensor, look: Look) -> Tensor:
        allowed = allowed_keys(weights, look)
        noise = torch.rand(weights.shape, generator=draws).to(weights.device)
        shuffled = noise.masked_fill(~allowed, 2.0).argsort(-1)  # allowed keys first
        ordered = (
            (~allowed).to(torch.uint8).argsort(dim=-1, stable=True)
        )  # allowed keys first, in order
        return torch.zeros_like(weights).scatter(-1, ordered, weights.gather(-1, shuffled))

    return edit


def frozen(weights: Tensor) -> Edit:
    """These weights in place of those that the model computes."""

    def edit(own: Tensor, look: Look) -> Tensor:
        if weights.shape != own.shape:
            raise UserError(
                f"frozen weights are {list(weights.shape)}, "
                f"but site {look.site!r} has {list(own.shape)}"
            )
        return weights.to(own)

    return edit


def without(*heads: int) -> Edit:
    """These heads have no weights and read zeros."""

    def edit(weights: Tensor, look: Look) -> Tensor:
        count = weights.shape[1]
        wrong = [head for head in heads if not -count <= head < count]
        if wrong:
            raise UserError(f"site {look.site!r} has heads 0 to {count - 1}, not {wrong[0]}")
        keep = torch.ones(count, 1, 1, device=weights.device, dtype=weights.dtype)
        keep[list(heads)] = 0
        return weights * keep

    return edit


def only_rows(rows: Sequence[int], edit: Edit) -> Edit:
    """An edit of some query rows of each call; the others stay as they are."""

    def only(weights: Tensor, look: Look) -> Tensor:
        changed = weights.clone()
        changed[:, :, list(rows)] = edit(weights, look)[:, :, list(rows)]
        return changed

    return only


def allowed_keys(weights: Tensor, look: Look) -> Tensor:
    """The allowed keys, at the full shape of the weights."""
    if look.allowed is None:
        return torch.ones_like(weights, dtype=torch.bool)
    return look.allowed.expand_as(weights)
