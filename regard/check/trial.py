"""The input of one seed for an attention under test, and the measures of how outputs deviate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.check.report import DeviationPlace
from regard.check.subject import CheckedSubject, dtype_name
from regard.core.errors import UserError, above_zero, positive

MORE = 5
"""Positions of padding that are added to test whether they matter."""

_LOUD = 1e5
"""The factor of the second change of an input: only a large change passes a mask of -10,000, or a
maximum over forbidden keys."""

_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
"""The largest relative deviation of an output that rounding alone may cause."""


@dataclass(frozen=True)
class Deviation:
    """The largest deviation of something, and where it is."""

    value: float
    where: DeviationPlace | None = None


@dataclass(frozen=True)
class Skip:
    """Why a check does not apply."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The input for one seed, from a random generator of its own."""

    subject: CheckedSubject
    seed: int
    x: Float[Tensor, "B T D"]
    real: Bool[Tensor, "B T"]
    quiet: Float[Tensor, "B S D"]
    """Other content of the same magnitude, longer by MORE positions."""
    holes: Bool[Tensor, "B 1 T T"]
    """Further forbidden keys, for a subject that takes tables."""

    @property
    def everywhere(self) -> Bool[Tensor, "B T"]:
        """A mask with no padding."""
        return torch.ones_like(self.real)

    @property
    def others(self) -> dict[str, Tensor]:
        """What x is replaced with, of the same magnitude and of a much larger one."""
        return {"other": self.quiet, "loud": _LOUD * self.quiet}

    @property
    def late(self) -> Bool[Tensor, "B T"]:
        """The mask in which sequences are padded at the start."""
        return self.real.flip(1)

    def without_row(self, row: int) -> Bool[Tensor, "B T"]:
        """The mask in which this sequence has no real position."""
        real = self.real.clone()
        real[row] = False
        return real

    def table(self, real: Bool[Tensor, "B T"]) -> Bool[Tensor, "B 1 T T"]:
        """The allowed keys; for a subject that takes tables, with holes."""
        allowed = self.subject.allowed(real)
        return allowed & ~self.holes if self.subject.mask == "table" else allowed

    def change(
        self,
        before: Float[Tensor, "B T W"],
        after: Float[Tensor, "#B T W"],
        chosen: Bool[Tensor, "B T"],
        case: str,
    ) -> Deviation:
        """How far the chosen outputs changed, relative to the largest of them."""
        size = before[chosen].abs().amax().item()
        deviations = (after - before).abs().amax(2) / (size or 1.0)  # [B,T]
        return self.largest(deviations, chosen, ("row", "position"), case)

    def largest(
        self, deviations: Tensor, chosen: Tensor, axes: Sequence[str], case: str | None = None
    ) -> Deviation:
        """The largest of the chosen deviations; NaN counts as infinite."""
        found = torch.where(chosen.expand_as(deviations), deviations.detach(), 0.0)
        # On the CPU first: not every device has float64.
        found = found.cpu().double().nan_to_num(nan=inf, posinf=inf)
        largest = found.amax().item()
        if largest == 0.0:
            return Deviation(0.0)
        index = torch.unravel_index(found.argmax(), found.shape)
        places = dict(zip(axes, (int(each) for each in index), strict=True))
        return Deviation(largest, self.place(places, case))

    def infinite(
        self, tensor: Tensor, axes: Sequence[str], case: str, parameter: str | None = None
    ) -> Deviation:
        """The number of values that are not finite, and where the first of them is."""
        bad = ~tensor.detach().isfinite()
        count = int(bad.sum())
        if not count:
            return Deviation(0.0)
        # The last axes, such as the width, have no name and are not reported.
        index = torch.unravel_index(bad.flatten().int().argmax(), bad.shape)
        places = dict(zip(axes, (int(each) for each in index), strict=False))
        return Deviation(float(count), self.place(places, case, parameter))

    def place(
        self, places: dict[str, int], case: str | None, parameter: str | None = None
    ) -> DeviationPlace:
        """A place in this trial."""
        return DeviationPlace(
            seed=self.seed,
            row=places.get("row"),
            head=places.get("head"),
            position=places.get("position"),
            key=places.get("key"),
            parameter=parameter,
            case=case,
        )


def make_trial(subject: CheckedSubject, lengths: Sequence[int], width: int, seed: int) -> Trial:
    """The input of this seed: sequences of these lengths, padded to the longest."""
    generator = torch.Generator().manual_seed(seed)
    batch, length = len(lengths), max(lengths)

    def random(positions: int) -> Tensor:
        shape = (batch, positions, width)
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return numbers.to(subject.dtype).to(subject.device)

    holes = torch.rand(batch, 1, length, length, generator=generator) < 0.3
    holes[lengths.index(length), 0, length // 2] = True  # a real position without allowed keys
    return Trial(
        subject=subject,
        seed=seed,
        x=random(length),
        real=(torch.arange(length) < torch.tensor(lengths)[:, None]).to(subject.device),
        quiet=random(length + MORE),
        holes=holes.to(subject.device),
    )


def validate_lengths(lengths: Sequence[int], seeds: Sequence[int]) -> tuple[int, ...]:
    """The lengths, if they make a batch with several sequences and padding."""
    rows = tuple(positive("a length", length) for length in lengths)
    if len(rows) < 2 or min(rows) == max(rows):
        raise UserError(
            f"lengths={list(rows)} must be at least two, and not all equal: a single sequence has "
            "no batch mates, and equal lengths have no padding"
        )
    if not len(seeds):
        raise UserError("seeds=[] is empty; give at least one")
    return rows


def find_tolerance(first: Trial, tolerance: float | None) -> float:
    """Call the subject twice; the tolerance for the dtype of its output if none is given."""
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        outputs.append(first.subject.run(first.x, first.real).output)
    dtype = outputs[0].dtype
    if tolerance is None and dtype not in _TOLERANCES:
        known = " and ".join(dtype_name(each) for each in _TOLERANCES)
        raise UserError(
            f"{first.subject.name} returns {dtype_name(dtype)}; there are default tolerances for "
            f"{known}: pass tolerance=, the largest relative deviation of an output"
        )
    limit = above_zero("tolerance", _TOLERANCES[dtype] if tolerance is None else tolerance)
    difference = (outputs[1] - outputs[0]).abs().nan_to_num(nan=0.0).amax().item()
    size = outputs[0].nan_to_num(nan=0.0).abs().amax().item()
    if difference > limit * (size or 1.0):
        raise UserError(
            f"two calls of {first.subject.name} with the same input differ by {difference:.2g}: "
            "switch off what is random (if a function calls a module in train mode, pass the "
            "module, or call eval() on it)"
        )
    return limit


def largest_deviation(found: Iterable[Deviation]) -> Deviation:
    """The largest of them; the first if several are equal."""
    return max(found, key=lambda each: each.value)


def first_deviation(found: Iterable[Deviation]) -> Deviation:
    """The first that is not zero: for counts, where the simplest case explains most."""
    return next((each for each in found if each.value), Deviation(0.0))
