"""Black-box tests of any attention here, or of your own.

`check` asks whether it keeps what attention must keep, `explanation` whether where a model looks
explains what it says.

>>> from regard.attention import Attend, ScaledDot
>>> check(Attend(ScaledDot(4)), AsAttend(heads=2), width=8).ok
True
"""

from regard.audit.adapters import AsAttend, AsTorchMultihead, Recorded
from regard.audit.attended import Attended
from regard.audit.explanation import TESTS, Explanation, Settings, Verdict, explanation
from regard.audit.heads import Stack
from regard.audit.invariants import CHECKS, Check, check
from regard.audit.reader import Read, Reader
from regard.audit.report import Outcome, Report, Where

__all__ = [
    "CHECKS", "TESTS", "AsAttend", "AsTorchMultihead", "Attended", "Check", "Explanation",
    "Outcome", "Read", "Reader", "Recorded", "Report", "Settings", "Stack", "Verdict", "Where",
    "check", "explanation",
]  # fmt: skip
