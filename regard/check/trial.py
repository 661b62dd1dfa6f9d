"""One seed's input to an attention under test, and the ways in which answers are compared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.check.report import Where
from regard.check.subject import Subject, described_dtype
from regard.core.errors import UserError, above_zero, positive

MORE = 5
"""Positions of padding that are added to see whether they matter."""

_LOUD = 1e5
"""How much larger than usual a changed input is in the second try: what a mask of -10,000 or a
maximum over forbidden keys lets through is heard only then."""


_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
"""How far an output may move, as a share of the largest, for what rounding does alone."""


@dataclass(frozen=True)
class Found:
    """The largest deviation of something, and where it is."""

    deviation: float
    where: Where | None = None


@dataclass(frozen=True)
class Skip:
    """Why a check does not apply."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Input for one seed. What belongs to the test is drawn from its own generator."""

    subject: Subject
    seed: int
    x: Float[Tensor, "B T D"]
    real: Bool[Tensor, "B T"]
    quiet: Float[Tensor, "B S D"]
    """Other content, of x's size and longer by MORE."""
    holes: Bool[Tensor, "B 1 T T"]
    """Where a subject that takes tables is forbidden to look besides."""

    @property
    def everywhere(self) -> Bool[Tensor, "B T"]:
        """A mask with no padding."""
        return torch.ones_like(self.real)

    @property
    def others(self) -> dict[str, Tensor]:
        """What x is changed into, as long as x and its padding: the usual size, and loud."""
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
        """What may be looked at: for a subject that takes tables, with holes."""
        allowed = self.subject.allowed(real)
        return allowed & ~self.holes if self.subject.mask == "table" else allowed

    def moved(
        self,
        before: Float[Tensor, "B T W"],
        after: Float[Tensor, "#B T W"],
        held: Bool[Tensor, "B T"],
        case: str,
    ) -> Found:
        """How far the held outputs moved, as a share of the largest of them."""
        size = before[held].abs().amax().item()
        off = (after - before).abs().amax(2) / (size or 1.0)  # [B,T]
        return self.largest(off, held, ("row", "position"), case)

    def largest(
        self, off: Tensor, held: Tensor, axes: Sequence[str], case: str | None = None
    ) -> Found:
        """The largest of the held deviations; what is no number counts as infinite."""
        held = held.expand_as(off)
        # On the CPU first: not every device has float64.
        off = torch.where(held, off.detach(), 0.0).cpu().double().nan_to_num(nan=inf, posinf=inf)
        deviation = off.amax().item()
        if deviation == 0.0:
            return Found(0.0)
        index = torch.unravel_index(off.argmax(), off.shape)
        places = dict(zip(axes, (int(each) for each in index), strict=True))
        return Found(deviation, self.place(places, case))

    def infinite(
        self, tensor: Tensor, axes: Sequence[str], case: str, parameter: str | None = None
    ) -> Found:
        """How many numbers are not finite, and where the first of them is."""
        bad = ~tensor.detach().isfinite()
        count = int(bad.sum())
        if not count:
            return Found(0.0)
        # Axes that have no name, such as the width, come last and are not told.
        index = torch.unravel_index(bad.flatten().int().argmax(), bad.shape)
        places = dict(zip(axes, (int(each) for each in index), strict=False))
        return Found(float(count), self.place(places, case, parameter))

    def place(
        self, places: dict[str, int], case: str | None, parameter: str | None = None
    ) -> Where:
        """A place in this trial."""
        return Where(
            seed=self.seed,
            row=places.get("row"),
            head=places.get("head"),
            position=places.get("position"),
            key=places.get("key"),
            parameter=parameter,
            case=case,
        )


def trial(subject: Subject, lengths: Sequence[int], width: int, seed: int) -> Trial:
    """The input of this seed: sequences of these lengths, padded to the longest."""
    generator = torch.Generator().manual_seed(seed)
    batch, length = len(lengths), max(lengths)

    def drawn(positions: int) -> Tensor:
        shape = (batch, positions, width)
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return numbers.to(subject.dtype).to(subject.device)

    holes = torch.rand(batch, 1, length, length, generator=generator) < 0.3
    holes[lengths.index(length), 0, length // 2] = True  # a real position that may look nowhere
    return Trial(
        subject=subject,
        seed=seed,
        x=drawn(length),
        real=(torch.arange(length) < torch.tensor(lengths)[:, None]).to(subject.device),
        quiet=drawn(length + MORE),
        holes=holes.to(subject.device),
    )


def settled(lengths: Sequence[int], seeds: Sequence[int]) -> tuple[int, ...]:
    """The lengths, if they can show anything: neighbours, padding, and something to look at."""
    rows = tuple(positive("a length", length) for length in lengths)
    if len(rows) < 2 or min(rows) == max(rows):
        raise UserError(
            f"lengths={list(rows)} must be at least two, and not all alike: with one sequence "
            "there are no batch mates, and with one length no padding"
        )
    if not len(seeds):
        raise UserError("seeds=[] leaves nothing to try; give at least one")
    return rows


def contact(first: Trial, tolerance: float | None) -> float:
    """Ask twice before anything is tested; gives the tolerance of what is answered."""
    answers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        answers.append(first.subject.ask(first.x, first.real).output)
    dtype = answers[0].dtype
    if tolerance is None and dtype not in _TOLERANCES:
        known = " and ".join(described_dtype(each) for each in _TOLERANCES)
        raise UserError(
            f"{first.subject.name} answers in {described_dtype(dtype)}; tolerances are known for "
            f"{known}: pass tolerance=, the largest share by which an output may move"
        )
    limit = above_zero("tolerance", _TOLERANCES[dtype] if tolerance is None else tolerance)
    moved = (answers[1] - answers[0]).abs().nan_to_num(nan=0.0)
    size = answers[0].nan_to_num(nan=0.0).abs().amax().item()
    if moved.amax().item() > limit * (size or 1.0):
        raise UserError(
            f"{first.subject.name} gives two answers to one question, {moved.amax().item():.2g} "
            "apart: switch off what is random (a function that calls a module in train mode? pass "
            "the module, or call eval() on it)"
        )
    return limit


def worst(found: Iterable[Found]) -> Found:
    """The one with the largest deviation; the first of them where several are."""
    return max(found, key=lambda each: each.deviation)


def earliest(found: Iterable[Found]) -> Found:
    """The first with any deviation: for counts, where the simplest case tells most."""
    return next((each for each in found if each.deviation), Found(0.0))
