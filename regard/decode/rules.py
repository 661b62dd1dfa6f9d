"""Rules: what the logits of the next token go through before one is chosen.

A rule takes logits `[B,V]`, its value and the tokens so far `[B,T]`, and gives logits in which a
token of -inf can no longer be chosen. RULES has them in the order in which they are applied, which
is that of Hugging Face's transformers, so a setting means the same in both. None of them ever
forbids the likeliest token.

>>> import torch
>>> logits, past = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[2]])
>>> top_k(logits, 2, past).tolist()
[[-inf, 2.0, 3.0]]
>>> repetition_penalty(logits, 2.0, past).tolist()
[[1.0, 2.0, 1.5]]
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import UserError, above_zero

Number = int | float
"""A setting; JSON and people write 1 for 1.0."""

_CANDIDATES = (64, 1024)
"""How many tokens top-p looks at before it sorts all, which can cost more than the model does."""


def repetition_penalty(
    logits: Float[Tensor, "B V"], penalty: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """Tokens that were there before, the prompt's too, are less likely (Keskar et al. 2019, 4.1).

    Their logits are divided by the penalty, or multiplied with it where they are negative, which
    the paper does not say but which alone makes them less likely.
    """
    found = logits.gather(1, past)  # [B,T]
    return logits.scatter(1, past, torch.where(found < 0, found * penalty, found / penalty))


def _temperature(
    logits: Float[Tensor, "B V"], degree: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """e / τ: below one, likely tokens become more likely; above one, less.

    The largest logit is taken off first, which changes no probability, so that a temperature near
    zero leaves the best token instead of infinities.
    """
    known = torch.finfo(logits.dtype)  # a number beyond these would be taken for 0 or infinity
    degree = min(max(degree, known.tiny), known.max)
    return (logits - logits.amax(-1, keepdim=True)) / degree


def top_k(
    logits: Float[Tensor, "B V"], count: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """The k likeliest tokens, and those that tie with the last of them (Fan et al. 2018)."""
    best = logits.topk(min(int(count), logits.shape[1])).values  # [B,C]
    return _cut(logits, best[:, -1:])


def _top_p(
    logits: Float[Tensor, "B V"], share: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """The fewest likeliest tokens that have this share of all chances (Holtzman et al. 2020).

    A token stays if those above it have less than the share. Ties with the last one stay too;
    transformers keeps some of them, as the sort has it.
    """
    chances, vocabulary = logits.softmax(-1), logits.shape[1]
    for size in (*_CANDIDATES, vocabulary):
        best, tokens = logits.topk(min(size, vocabulary))  # [B,C]
        each = chances.gather(1, tokens)  # [B,C]
        inside = each.cumsum(-1) - each < share  # [B,C]
        if size >= vocabulary or not inside[:, -1].any():
            break
    last = inside.sum(-1, keepdim=True) - 1  # [B,1]
    return _cut(logits, best.gather(1, last.clamp_min(0)))


def min_p(
    logits: Float[Tensor, "B V"], share: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """Tokens that have at least this share of the likeliest one's chance (Nguyen et al. 2024)."""
    return _cut(logits, logits.amax(-1, keepdim=True) + math.log(share))


def _cut(logits: Tensor, floor: Tensor) -> Tensor:
    """The logits that are not below the floor of their row; a `where` beats a masked fill here."""
    return torch.where(logits < floor, -math.inf, logits)


def _warm(name: str, value: Number) -> None:
    if not 0.0 < value < math.inf:
        raise UserError(
            f"{name}={value} must be a finite number above zero; "
            "to always take the likeliest token, choose greedily"
        )


def _count(name: str, value: Number) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UserError(f"{name}={value!r} must be a whole number, or 0 for all tokens")


def _share(name: str, value: Number) -> None:
    if not 0.0 < value <= 1.0:
        raise UserError(f"{name}={value} must be above 0 and at most 1, which is all tokens")


def _part(name: str, value: Number) -> None:
    if not 0.0 <= value <= 1.0:
        raise UserError(f"{name}={value} must be from 0, which is all tokens, to 1")


@dataclass(frozen=True)
class Rule:
    """One row of RULES."""

    apply: Callable[[Tensor, Number, Tensor], Tensor]
    """Logits, value and the tokens so far to logits."""
    off: Number
    """The value that changes nothing; then the rule is not applied at all."""
    check: Callable[[str, Number], object]
    """Raises a UserError for a value that makes no sense."""


RULES: dict[str, Rule] = {
    "repetition_penalty": Rule(repetition_penalty, 1.0, above_zero),
    "temperature": Rule(_temperature, 1.0, _warm),
    "top_k": Rule(top_k, 0, _count),
    "top_p": Rule(_top_p, 1.0, _share),
    "min_p": Rule(min_p, 0.0, _part),
}
"""Every rule by its name, in the order in which they are applied."""

Bound = Callable[[Tensor, Tensor], Tensor]
"""A rule with its value: logits `[B,V]` and the tokens so far `[B,T]` to logits."""


def check(values: Mapping[str, Number]) -> None:
    """Refuse values that make no sense.

    >>> check({"top_p": 1.5})
    Traceback (most recent call last):
    regard.core.errors.UserError: top_p=1.5 must be above 0 and at most 1, which is all tokens
    """
    for name, value in values.items():
        RULES[name].check(name, value)


def bound(values: Mapping[str, Number]) -> tuple[Bound, ...]:
    """The rules that these values turn on, in the order of the table.

    >>> len(bound({"top_p": 0.9, "temperature": 0.7, "min_p": 0.0}))
    2
    """
    given = [(rule, values[name]) for name, rule in RULES.items() if name in values]
    return tuple(_bind(rule, value) for rule, value in given if value != rule.off)


def _bind(rule: Rule, value: Number) -> Bound:
    return lambda logits, past: rule.apply(logits, value, past)
