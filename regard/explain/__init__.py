"""Is this attention an explanation? Tests of one site of a model, and what they find."""

from regard.explain.attention_reader import Attended
from regard.explain.explanation import TESTS, Explanation, Settings, Verdict, explanation
from regard.explain.head_layers import Stack
from regard.explain.reader import Read, Reader

__all__ = [
    "TESTS", "Attended", "Explanation", "Read", "Reader", "Settings", "Stack", "Verdict",
    "explanation",
]  # fmt: skip
