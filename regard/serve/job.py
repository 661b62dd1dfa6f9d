"""Job: what the engine is asked to do, and the way its results go back to who waits for them.

A job is made and awaited in the event loop; the engine's thread does it. Only `left` is looked at
from both sides, and only ever changes from False to True.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regard.decode import GenerationRequest, TextPiece

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class Job(ABC):
    """Something asked for."""

    run: str
    """The name of the run that is asked."""
    left = False
    """Has the client gone? Then nothing more is to be computed for it."""
    unsent = False
    """For the engine: is its large answer in memory?"""
    deadline = float("inf")
    """For the engine: when it must have ended, in seconds of `time.monotonic`."""

    @property
    @abstractmethod
    def cost(self) -> int:
        """How much is to be computed: tokens, times the beam of a search."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Places it takes in a running batch; 0 if it is answered at once."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Tell who waits that nothing will come; called in the event loop."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a request."""

    tokens: Sequence[int]
    request: GenerationRequest


@dataclass(eq=False)
class Writing(Job):
    """Texts that go on from prompts, handed out as they come, or whole to who is patient."""

    run: str
    prompts: Sequence[Prompt]
    stops: Sequence[str]
    patient: bool = False
    """Waking up for every token would cost the event loop more than the rest of a request."""
    pieces: "asyncio.Queue[list[TextPiece] | BaseException]" = field(default_factory=asyncio.Queue)
    state_bytes: int = 0
    """What its texts may keep in memory until they end."""
    held: list[TextPiece] = field(default_factory=list)
    """For the engine alone: what was not handed out yet."""

    @property
    def rows(self) -> int:
        """One for each text."""
        return sum(prompt.request.samples for prompt in self.prompts)

    @property
    def cost(self) -> int:
        """The tokens of its prompts, and those that it may write."""
        return sum(
            len(each.tokens) + each.request.samples * (each.request.max_tokens or 0)
            for each in self.prompts
        )

    def fail(self, error: BaseException) -> None:
        """The last thing in the queue."""
        self.pieces.put_nowait(error)


_Work = Callable[[Sequence[_Question]], Sequence[_Answer]]
"""Answers questions of one kind, all at once. It calls `between_steps` (core/steps.py) now and
then, which raises `Gone` when nobody waits any more."""


class Gone(Exception):  # noqa: N818 (nothing went wrong)
    """Everyone who waited has left."""


@dataclass(eq=False)
class Asking(Job, Generic[_Question, _Answer]):
    """A question that is answered whole, together with others of its kind."""

    run: str
    kind: Hashable
    """Questions of one kind may be answered by one call of `work`."""
    question: _Question
    work: _Work[_Question, _Answer]
    work_size: int = 1
    """Its tokens, times the beam of a search."""
    large: bool = False
    """Is the answer so large that only a few may be in memory at the same time?"""
    answer: "Future[_Answer]" = field(default_factory=Future)

    @property
    def rows(self) -> int:
        """None."""
        return 0

    @property
    def cost(self) -> int:
        """As it was given."""
        return self.work_size

    def fail(self, error: BaseException) -> None:
        """Unless it was answered, or nobody waits."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, answer: _Answer) -> None:
        """Unless nobody waits."""
        if not self.answer.done():
            self.answer.set_result(answer)
