"""The report of a check: one outcome for each invariant, with a number and a place.

>>> bad = Outcome(check="padding_is_ignored", status="failed", measured=0.25, tolerance=1e-10,
...               where=DeviationPlace(seed=0, row=1, position=2), message="Mask it.")
>>> print(CheckReport("Mine", (bad,)))
Mine: 0 passed, 1 failed, 0 skipped
  FAILED   padding_is_ignored       0.25 (at most 1e-10) at batch row 1, ...
           Mask it.
"""

from dataclasses import dataclass
from typing import Literal

from regard.core.errors import UserError, choose


@dataclass(frozen=True, kw_only=True)
class DeviationPlace:
    """The place of the largest deviation, as far as it is known."""

    seed: int
    row: int | None = None
    """The batch row."""
    head: int | None = None
    position: int | None = None
    """Of the output, the weights, or the gradient of the input."""
    key: int | None = None
    """The position that is attended to."""
    parameter: str | None = None
    """The parameter whose gradient deviates."""
    case: str | None = None
    """What was changed."""

    def __str__(self) -> str:
        parts = {
            "batch row": self.row,
            "head": self.head,
            "position": self.position,
            "key": self.key,
            "parameter": self.parameter,
        }
        place = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        case = "" if self.case is None else f"{self.case}, "
        return f"{place} ({case}seed {self.seed})".lstrip()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one check."""

    check: str
    status: Literal["passed", "failed", "skipped"]
    measured: float | None = None
    """The largest deviation of all trials; None where nothing was measured."""
    tolerance: float | None = None
    """The largest deviation that passes."""
    where: DeviationPlace | None = None
    """None if there is no deviation."""
    message: str
    """The invariant; for a failure what to do, for a skip the reason."""

    def __str__(self) -> str:
        status = "FAILED" if self.status == "failed" else self.status
        head = f"  {status:<8} {self.check:<24} "
        if self.status == "skipped":
            return f"{head}{self.message}"
        number = "" if self.measured is None else format_number(self.measured)
        if self.status == "passed":
            return f"{head}{number}"
        limit = "" if self.tolerance is None else f" (at most {format_number(self.tolerance)})"
        place = "" if self.where is None else f" at {self.where}"
        return f"{head}{number}{limit}{place}\n{'':<11}{self.message}"


def format_number(number: float) -> str:
    """Integers in full, other numbers with two digits.

    >>> format_number(144.0), format_number(0.0123)
    ('144', '0.012')
    """
    return str(int(number)) if number.is_integer() else f"{number:.2g}"


@dataclass(frozen=True)
class CheckReport:
    """All outcomes for one subject, in the order of CHECKS."""

    subject: str
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Did nothing fail, and at least one check pass?"""
        return not self.failures and any(each.status == "passed" for each in self.outcomes)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that failed."""
        return tuple(each for each in self.outcomes if each.status == "failed")

    def __getitem__(self, check: str) -> Outcome:
        return choose("check", check, {each.check: each for each in self.outcomes})

    def __str__(self) -> str:
        counts = ", ".join(
            f"{sum(each.status == status for each in self.outcomes)} {status}"
            for status in ("passed", "failed", "skipped")
        )
        return "\n".join((f"{self.subject}: {counts}", *map(str, self.outcomes)))

    def require(self) -> None:
        """Raise the report as an error unless it is ok: one line in a test suite."""
        if not self.failures and not self.ok:
            raise UserError(f"nothing was checked: every check was skipped\n{self}")
        if not self.ok:
            raise UserError(f"the attention violates invariants\n{self}")
