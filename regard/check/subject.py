"""The attention under test, and how it is called.

It is called as `subject(x, mask)`: x is `[B,T,D]`, and the mask is True where attention is allowed.
It returns an output `[B,T,W]`, or (output, attention weights `[B,H,T,T]`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.mask import causal, describe_value, padding
from regard.core.errors import UserError

SubjectT = TypeVar("SubjectT")
StateT = TypeVar("StateT")

CallSubject = Callable[[SubjectT, Tensor, Tensor], object]
"""How a subject is called: (subject, x, mask) -> output, or (output, weights or None)."""

StepSubject = Callable[[SubjectT, Tensor, StateT | None], tuple[Tensor, StateT]]
"""How it is called for one position `[B,1,D]`: (subject, x, state) -> (output, next state)."""

MASKS = {"padding": "[batch, positions]", "table": "[batch, 1, positions, positions]"}
"""The kinds of mask, and their shapes."""


class SubjectError(UserError):
    """The subject raised an error, or returned something else than an output."""


@dataclass(frozen=True)
class SubjectOutput:
    """What the subject returned."""

    output: Float[Tensor, "B T W"]
    weights: Float[Tensor, "B H T T"] | None


@dataclass(frozen=True, kw_only=True)
class CheckedSubject:
    """The attention under test, ready to be called."""

    name: str
    call: Callable[[Tensor, Tensor], object]
    steps: Callable[[Tensor], Tensor] | None
    """A whole sequence, one position at a time, with a cache."""
    causal: bool
    mask: str
    left_padding: bool
    dtype: torch.dtype
    device: torch.device
    parameters: Mapping[str, Tensor]
    """Parameters that require a gradient, by name."""

    def allowed(self, real: Bool[Tensor, "B T"]) -> Bool[Tensor, "B 1 T T"]:
        """Which keys each position may attend to: real ones, and no later ones if it is causal."""
        length = real.shape[1]
        mask = padding(real) & causal() if self.causal else padding(real)
        return mask.table(length, length, device=real.device).expand(-1, -1, length, -1)

    def run(
        self,
        x: Float[Tensor, "B T D"],
        real: Bool[Tensor, "B T"],
        table: Bool[Tensor, "B 1 T T"] | None = None,
        *,
        with_gradient: bool = False,
    ) -> SubjectOutput:
        """Call it; `table` replaces the default mask of a subject that takes tables."""
        mask = real
        if self.mask == "table":
            mask = self.allowed(real) if table is None else table
        call = f"called with x {describe_value(x)} and a {self.mask} mask, {describe_value(mask)}"
        with self.report_errors(call), torch.set_grad_enabled(with_gradient):
            # Copies: a subject may write into its arguments.
            returned = self.call(x.clone(), mask.clone())
        return validate_output(returned, self.name, call, x.shape[0], x.shape[1])

    def step(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T W"] | None:
        """The outputs of one position after another with a cache; None without a step function."""
        if self.steps is None:
            return None
        with self.report_errors(f"called step by step for x {describe_value(x)}"), torch.no_grad():
            return self.steps(x)

    @contextmanager
    def report_errors(self, call: str) -> Iterator[None]:
        """Report whatever the subject raises, with the call."""
        try:
            yield
        except SubjectError:
            raise
        except Exception as error:
            raise SubjectError(
                f"{self.name} raised {type(error).__name__}: {error}\nIt was {call}. Checks run in "
                f"{dtype_name(self.dtype)}: pass the module itself and a call that uses its first "
                "argument, or choose dtype=torch.float32"
            ) from error


def prepare_subject(
    subject: SubjectT,
    call: CallSubject[SubjectT] | None,
    step: StepSubject[SubjectT, StateT] | None,
    *,
    causal: bool,
    mask: str,
    left_padding: bool,
    dtype: torch.dtype,
) -> CheckedSubject:
    """Make a subject ready for checks. A module is copied, so that yours does not change."""
    own = _copy_module(subject, dtype)
    parameters = dict(own.named_parameters()) if isinstance(own, nn.Module) else {}
    first = next(iter(parameters.values()), None)

    def run(x: Tensor, given: Tensor) -> object:
        return _call_directly(own, x, given) if call is None else call(own, x, given)

    return CheckedSubject(
        name=getattr(subject, "__name__", type(subject).__name__),
        call=run,
        steps=None if step is None else lambda x: _run_steps(own, step, x),
        causal=causal,
        mask=mask,
        left_padding=left_padding,
        dtype=dtype,
        device=torch.device("cpu") if first is None else first.device,
        parameters={name: each for name, each in parameters.items() if each.requires_grad},
    )


def _copy_module(subject: SubjectT, dtype: torch.dtype) -> SubjectT:
    """A copy of a module in this dtype and in eval mode; anything else as it is.

    MPS has no float64: there the copy is on the CPU.
    """
    if not isinstance(subject, nn.Module):
        return subject
    try:
        own = deepcopy(subject)
    except Exception as error:
        raise UserError(
            f"{type(subject).__name__} is checked as a copy, but cannot be copied: {error}; pass a "
            "function that calls it instead, and the dtype of its parameters as dtype="
        ) from error
    first = next(own.parameters(), None)
    if first is not None and _is_missing(dtype, first.device):
        own.cpu()
    own.to(dtype).eval()
    return own


def _is_missing(dtype: torch.dtype, device: torch.device) -> bool:
    """Does this device lack this dtype?

    >>> _is_missing(torch.float64, torch.device("mps"))
    True
    """
    return device.type == "mps" and dtype == torch.float64


def _call_directly(subject: object, x: Tensor, mask: Tensor) -> object:
    """subject(x, mask): the default call."""
    if not callable(subject):
        raise UserError(
            f"check needs a subject that can be called as subject(x, mask), not a "
            f"{type(subject).__name__}; or pass call=lambda subject, x, mask: ..."
        )
    returned: object = subject(x, mask)
    return returned


def _run_steps(
    subject: SubjectT, step: StepSubject[SubjectT, StateT], x: Tensor
) -> Float[Tensor, "B T W"]:
    """The outputs of one position after another, joined."""
    outputs: list[Tensor] = []
    state: StateT | None = None
    for position in x.split(1, dim=1):
        pair = step(subject, position, state)
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], Tensor):
            raise SubjectError(
                "step must return (output [batch, 1, width], state), but it returned "
                f"{_describe(pair)}"
            )
        output, state = pair
        if output.dim() != 3 or output.shape[:2] != position.shape[:2]:
            raise SubjectError(
                f"step was called with one position, {describe_value(position)}, and must return "
                f"an output of [{position.shape[0]}, 1, width], but it returned "
                f"{describe_value(output)}"
            )
        outputs.append(output)
    return torch.cat(outputs, dim=1)  # [B,T,W]


def validate_output(
    returned: object, name: str, call: str, batch: int, length: int
) -> SubjectOutput:
    """What a subject returned, with its shapes checked."""
    pair = returned if isinstance(returned, tuple) else (returned, None)
    if len(pair) != 2 or not isinstance(pair[0], Tensor):
        raise SubjectError(
            f"{name} must return an output tensor or (output, weights), but it returned "
            f"{_describe(returned)}"
        )
    output, weights = pair
    if output.dim() != 3 or output.shape[:2] != (batch, length) or not output.is_floating_point():
        raise SubjectError(
            f"the output of {name} must be floating-point [{batch}, {length}, width], but it is "
            f"{describe_value(output)}; it was {call}"
        )
    if weights is None:
        return SubjectOutput(output, None)
    square = (length, length)
    if isinstance(weights, Tensor) and weights.shape == (batch, *square):
        weights = weights.unsqueeze(1)  # [B,1,T,T]
    right = (
        isinstance(weights, Tensor)
        and weights.is_floating_point()
        and weights.dim() == 4
        and (weights.shape[0], *weights.shape[2:]) == (batch, *square)
    )
    if not right:
        raise SubjectError(
            f"the weights of {name} must be floating-point [{batch}, heads, {length}, {length}] or "
            f"[{batch}, {length}, {length}], but they are {describe_value(weights)}; it was {call}"
        )
    return SubjectOutput(output, weights)


def _describe(returned: object) -> str:
    """A value for a message; a tuple part by part."""
    if isinstance(returned, tuple):
        return f"({', '.join(describe_value(part) for part in returned)})"
    return describe_value(returned)


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype, without its prefix."""
    return str(dtype).removeprefix("torch.")
