"""Rules that change the logits before sampling: temperature, top-k, top-p and others.

A rule takes logits `[B,V]`, its value and the tokens so far `[B,T]`, and returns logits; -inf
excludes a token. RULES has them in the order of application, which is that of Hugging Face's
transformers, so that a setting means the same in both. No rule excludes the most likely token.

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
"""The value of a setting; 1 is accepted for 1.0."""

_CANDIDATES = (64, 1024)
"""The numbers of tokens that top-p sorts first; sorting all can cost more than the model."""


def repetition_penalty(
    logits: Float[Tensor, "B V"], penalty: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """Makes earlier tokens, including the prompt's, less likely (Keskar et al. 2019, 4.1).

    Their logits are divided by the penalty, or multiplied by it if negative. The paper does not
    mention the second case, but a division would make those tokens more likely.
    """
    earlier = logits.gather(1, past)  # [B,T]
    return logits.scatter(1, past, torch.where(earlier < 0, earlier * penalty, earlier / penalty))


def _temperature(
    logits: Float[Tensor, "B V"], degree: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """e / τ: below 1, likely tokens become more likely; above 1, less.

    The largest logit is subtracted first, which changes no probability, so that a temperature near
    zero results in the best token instead of infinities.
    """
    limits = torch.finfo(logits.dtype)  # values beyond these would be rounded to 0 or infinity
    degree = min(max(degree, limits.tiny), limits.max)
    return (logits - logits.amax(-1, keepdim=True)) / degree


def top_k(
    logits: Float[Tensor, "B V"], count: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """Keeps the k most likely tokens, and ties with the last of them (Fan et al. 2018)."""
    best = logits.topk(min(int(count), logits.shape[1])).values  # [B,C]
    return _cut(logits, best[:, -1:])


def _top_p(
    logits: Float[Tensor, "B V"], share: Number, past: Int[Tensor, "B T"]
) -> Float[Tensor, "B V"]:
    """Keeps the smallest set of tokens with this total probability (Holtzman et al. 2020).

    A token stays if the more likely ones have a lower total. Ties with the last one stay too;
    transformers keeps some of them, depending on its sort.
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
    """Keeps tokens with at least this fraction of the largest probability (Nguyen et al. 2024)."""
    return _cut(logits, logits.amax(-1, keepdim=True) + math.log(share))


def _cut(logits: Tensor, floor: Tensor) -> Tensor:
    """-inf for logits below the floor of their row; `where` is faster than a masked fill here."""
    return torch.where(logits < floor, -math.inf, logits)


def _warm(name: str, value: Number) -> None:
    if not 0.0 < value < math.inf:
        raise UserError(
            f"{name}={value} must be a finite number above zero; "
            "to always take the most likely token, use greedy decoding"
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
class SamplingRule:
    """An entry of RULES."""

    apply: Callable[[Tensor, Number, Tensor], Tensor]
    """A function from logits, value and the tokens so far to logits."""
    off: Number
    """The value with which the rule is not applied."""
    check: Callable[[str, Number], object]
    """Raises a UserError for an invalid value."""


RULES: dict[str, SamplingRule] = {
    "repetition_penalty": SamplingRule(repetition_penalty, 1.0, above_zero),
    "temperature": SamplingRule(_temperature, 1.0, _warm),
    "top_k": SamplingRule(top_k, 0, _count),
    "top_p": SamplingRule(_top_p, 1.0, _share),
    "min_p": SamplingRule(min_p, 0.0, _part),
}
"""The rules by name, in the order of application."""

BoundRule = Callable[[Tensor, Tensor], Tensor]
"""A rule with its value: logits `[B,V]` and the tokens so far `[B,T]` to logits."""


def check_rules(values: Mapping[str, Number]) -> None:
    """Raise a UserError for invalid values.

    >>> check_rules({"top_p": 1.5})
    Traceback (most recent call last):
    regard.core.errors.UserError: top_p=1.5 must be above 0 and at most 1, which is all tokens
    """
    for name, value in values.items():
        RULES[name].check(name, value)


def active_rules(values: Mapping[str, Number]) -> tuple[BoundRule, ...]:
    """The rules that these values turn on, in the order of RULES.

    >>> len(active_rules({"top_p": 0.9, "temperature": 0.7, "min_p": 0.0}))
    2
    """
    given = [(rule, values[name]) for name, rule in RULES.items() if name in values]
    return tuple(_bind(rule, value) for rule, value in given if value != rule.off)


def _bind(rule: SamplingRule, value: Number) -> BoundRule:
    return lambda logits, past: rule.apply(logits, value, past)
