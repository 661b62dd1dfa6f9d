"""Check the invariants of attention, for any module of this package or of your own.

>>> from regard.attention import Attend, ScaledDot
>>> check(Attend(ScaledDot(4)), AsAttend(heads=2), width=8).ok
True
"""

from regard.check.adapters import AsAttend, AsTorchMultihead, Recorded
from regard.check.invariants import CHECKS, Check, check
from regard.check.report import CheckReport, DeviationPlace, Outcome

__all__ = [
    "CHECKS", "AsAttend", "AsTorchMultihead", "Check", "CheckReport", "DeviationPlace", "Outcome",
    "Recorded", "check",
]  # fmt: skip
