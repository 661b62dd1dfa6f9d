"""The invariants of attention, checked from outside: of any module here, or of your own.

>>> from regard.attention import Attend, ScaledDot
>>> check(Attend(ScaledDot(4)), AsAttend(heads=2), width=8).ok
True
"""

from regard.check.adapters import AsAttend, AsTorchMultihead, Recorded
from regard.check.invariants import CHECKS, Check, check
from regard.check.report import Outcome, Report, Where

__all__ = [
    "CHECKS", "AsAttend", "AsTorchMultihead", "Check", "Outcome", "Recorded", "Report", "Where",
    "check",
]  # fmt: skip
