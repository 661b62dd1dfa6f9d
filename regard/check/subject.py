"""The attention under test, and how it is asked.

A subject is asked `subject(x, mask)`: x is `[B,T,D]`, and the mask is True where one may look. It
answers with an output `[B,T,W]`, or with that and its weights `[B,H,T,T]`.
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

Thing = TypeVar("Thing")
State = TypeVar("State")

Call = Callable[[Thing, Tensor, Tensor], object]
"""How a thing is asked: (thing, x, mask) to an output, or to (output, weights or None)."""

Step = Callable[[Thing, Tensor, State | None], tuple[Tensor, State]]
"""How it is asked for one position `[B,1,D]`: (thing, x, state) to (output, next state)."""

MASKS = {"padding": "[batch, positions]", "table": "[batch, 1, positions, positions]"}
"""The masks that a subject may be given, and their shapes."""


class AnswerError(UserError):
    """The subject raised, or answered with something that is no answer."""


@dataclass(frozen=True)
class Answer:
    """What the subject gave back."""

    output: Float[Tensor, "B T W"]
    weights: Float[Tensor, "B H T T"] | None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A thing that can be asked, however it wants to be called."""

    name: str
    call: Callable[[Tensor, Tensor], object]
    run: Callable[[Tensor], Tensor] | None
    """A whole sequence, one position at a time through the cache."""
    causal: bool
    mask: str
    left_padding: bool
    dtype: torch.dtype
    device: torch.device
    parameters: Mapping[str, Tensor]
    """What can be trained, by name."""

    def allowed(self, real: Bool[Tensor, "B T"]) -> Bool[Tensor, "B 1 T T"]:
        """Which keys each position may look at: real ones, and none ahead if it is causal."""
        length = real.shape[1]
        mask = padding(real) & causal() if self.causal else padding(real)
        return mask.table(length, length, device=real.device).expand(-1, -1, length, -1)

    def ask(
        self,
        x: Float[Tensor, "B T D"],
        real: Bool[Tensor, "B T"],
        table: Bool[Tensor, "B 1 T T"] | None = None,
        *,
        with_gradient: bool = False,
    ) -> Answer:
        """The answer to these; a table of its own is only for a subject that takes tables."""
        mask = real
        if self.mask == "table":
            mask = self.allowed(real) if table is None else table
        asked = f"asked with x {describe_value(x)} and a {self.mask} mask, {describe_value(mask)}"
        with self.answering(asked), torch.set_grad_enabled(with_gradient):
            # Copies, so that a subject that writes into what it is given harms no later trial.
            given = self.call(x.clone(), mask.clone())
        return answer(given, self.name, asked, x.shape[0], x.shape[1])

    def step(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T W"] | None:
        """The outputs of one position after another through the cache; None if there is none."""
        if self.run is None:
            return None
        asked = f"asked step by step for x {describe_value(x)}"
        with self.answering(asked), torch.no_grad():
            return self.run(x)

    @contextmanager
    def answering(self, asked: str) -> Iterator[None]:
        """Whatever the subject raises, told with what it was asked."""
        try:
            yield
        except AnswerError:
            raise
        except Exception as error:
            raise AnswerError(
                f"{self.name} raised {type(error).__name__}: {error}\nIt was {asked}. A check runs "
                f"in {describe_value_dtype(self.dtype)}: pass the module itself and a call that uses "
                "the module it is given, or choose dtype=torch.float32"
            ) from error


def prepared(
    thing: Thing,
    call: Call[Thing] | None,
    step: Step[Thing, State] | None,
    *,
    causal: bool,
    mask: str,
    left_padding: bool,
    dtype: torch.dtype,
) -> Subject:
    """The thing made ready. Of a module a copy is tested, so that yours is left as it is."""
    own = _deepcopied(thing, dtype)
    parameters = dict(own.named_parameters()) if isinstance(own, nn.Module) else {}
    first = next(iter(parameters.values()), None)

    def ask(x: Tensor, given: Tensor) -> object:
        return _called(own, x, given) if call is None else call(own, x, given)

    return Subject(
        name=getattr(thing, "__name__", type(thing).__name__),
        call=ask,
        run=None if step is None else lambda x: _stepped(own, step, x),
        causal=causal,
        mask=mask,
        left_padding=left_padding,
        dtype=dtype,
        device=torch.device("cpu") if first is None else first.device,
        parameters={name: each for name, each in parameters.items() if each.requires_grad},
    )


def _deepcopied(thing: Thing, dtype: torch.dtype) -> Thing:
    """A copy of a module in this dtype and in eval mode; anything else as it is.

    MPS has no float64: there the copy is tested on the CPU.
    """
    if not isinstance(thing, nn.Module):
        return thing
    try:
        own = deepcopy(thing)
    except Exception as error:
        raise UserError(
            f"{type(thing).__name__} is tested as a copy, but cannot be copied: {error}; pass a "
            "function that calls it instead, with dtype= that of its parameters"
        ) from error
    first = next(own.parameters(), None)
    if first is not None and _lacks(dtype, first.device):
        own.cpu()
    own.to(dtype).eval()
    return own


def _lacks(dtype: torch.dtype, device: torch.device) -> bool:
    """Does this device lack this dtype?

    >>> _lacks(torch.float64, torch.device("mps")), _lacks(torch.float64, torch.device("cpu"))
    (True, False)
    """
    return device.type == "mps" and dtype == torch.float64


def _called(thing: object, x: Tensor, mask: Tensor) -> object:
    """thing(x, mask): how a thing is asked that comes without a call."""
    if not callable(thing):
        raise UserError(
            f"check needs something that can be called as subject(x, mask), not a "
            f"{type(thing).__name__}; or say how it is asked: call=lambda subject, x, mask: ..."
        )
    given: object = thing(x, mask)
    return given


def _stepped(thing: Thing, step: Step[Thing, State], x: Tensor) -> Tensor:
    """The outputs of one position after another, joined."""
    outputs: list[Tensor] = []
    state: State | None = None
    for position in x.split(1, dim=1):
        given = step(thing, position, state)
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Tensor):
            raise AnswerError(
                f"step must return (output [batch, 1, width], state), but it returned {_told(given)}"
            )
        output, state = given
        if output.dim() != 3 or output.shape[:2] != position.shape[:2]:
            raise AnswerError(
                f"step was given one position, {describe_value(position)}, and must return an output of "
                f"[{position.shape[0]}, 1, width], but it returned {describe_value(output)}"
            )
        outputs.append(output)
    return torch.cat(outputs, dim=1)  # [B,T,W]


def answer(given: object, name: str, asked: str, batch: int, length: int) -> Answer:
    """What was given back, held to the contract."""
    pair = given if isinstance(given, tuple) else (given, None)
    if len(pair) != 2 or not isinstance(pair[0], Tensor):
        raise AnswerError(
            f"{name} must return an output tensor or (output, weights), but it returned "
            f"{_told(given)}"
        )
    output, weights = pair
    if output.dim() != 3 or output.shape[:2] != (batch, length) or not output.is_floating_point():
        raise AnswerError(
            f"the output of {name} must be floating-point [{batch}, {length}, width], but it is "
            f"{describe_value(output)}; {asked}"
        )
    if weights is None:
        return Answer(output, None)
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
        raise AnswerError(
            f"the weights of {name} must be floating-point [{batch}, heads, {length}, {length}] or "
            f"[{batch}, {length}, {length}], but they are {describe_value(weights)}; {asked}"
        )
    return Answer(output, weights)


def _told(given: object) -> str:
    """What was given, part by part if it is a tuple."""
    if isinstance(given, tuple):
        return f"({', '.join(describe_value(part) for part in given)})"
    return describe_value(given)


def describe_value_dtype(dtype: torch.dtype) -> str:
    """The dtype without its prefix."""
    return str(dtype).removeprefix("torch.")
