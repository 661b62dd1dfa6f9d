"""Contract: what training asks of a task and of data, in a form that can be checked when called.

A plain Protocol cannot be checked with isinstance, which the tests' type checks need; these can.
"""

from typing import Protocol, runtime_checkable

from regard.core import protocols
from regard.core.protocols import Batch, Carry, Loss


@runtime_checkable
class Task(protocols.Task, Protocol):
    """A batch in, a loss out."""


@runtime_checkable
class Batches(protocols.Batches, Protocol):
    """A data set in batches; their order depends on seed, epoch and index alone."""


__all__ = ["Batch", "Batches", "Carry", "Loss", "Task"]
