"""What can be done with a task, as small protocols: whoever uses a run asks for one of these.

Every task trains and is measured (`OpenTask`). Some predict, some generate, some write an output by
beam search, most can show where their models attend, and some can be audited. A task has an ability
by having its methods; command line, server, pictures and audit know no concrete task.

>>> require(object(), Predicts, "predict", "this run")
Traceback (most recent call last):
regard.core.errors.UserError: this run does not support: predict
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.axes import Axis
from regard.core.errors import UserError
from regard.core.inputs import Input
from regard.core.protocols import Batch
from regard.data.text.tokeniser import Tokeniser
from regard.decode import Piece, Request
from regard.decode.beam import Beam
from regard.decode.hypothesis import Hypothesis
from regard.tasks.task import Split


@dataclass(frozen=True)
class Choice:
    """One possible outcome and its probability."""

    text: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model predicts for one input."""

    text: str
    """For people: a label, a translation, or a word and its tag a line."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """For programs: as JSON has it, with probabilities."""
    tokens: tuple[str, ...] = ()
    """The input as the model reads it, where that is a row of tokens."""
    choices: tuple[Choice, ...] = ()
    """The likeliest first: next tokens, classes."""
    labels: tuple[str, ...] = ()
    """One for each token of the output, or of the input where tokens are tagged."""


@runtime_checkable
class Predicts(Protocol):
    """A task whose models predict something for each input."""

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """The kinds of input it takes."""
        ...

    def inputs(self, path: str) -> list[Input]:
        """The inputs in a file."""
        ...

    def parse(self, line: str, where: str) -> Input:
        """The input in a line of text; `where` is what errors call the line."""
        ...

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """A prediction for each input, in their order."""
        ...


@runtime_checkable
class Generates(Protocol):
    """A task whose models continue a prompt."""

    @property
    def tokeniser(self) -> Tokeniser:
        """From text to tokens."""
        ...

    @property
    def ends(self) -> frozenset[int]:
        """The tokens after which nothing more is generated."""
        ...

    def generate(
        self, model: nn.Module, prompt: str, request: Request, stops: Sequence[str] = ()
    ) -> Iterator[Piece]:
        """Continuations of a prompt, piece by piece."""
        ...


@dataclass(frozen=True)
class Output:
    """One output for an input: a translation, a caption, a transcript."""

    text: str
    """One line, without its end."""
    hypothesis: Hypothesis
    """What the search found."""


@dataclass(frozen=True)
class Outputs:
    """All outputs for one input."""

    source: Input
    """As the model read it."""
    outputs: tuple[Output, ...]
    """The best first; none for an empty input, which no model reads."""

    @property
    def text(self) -> str:
        """The best of them."""
        return self.outputs[0].text if self.outputs else ""


@runtime_checkable
class Translates(Protocol):
    """A task whose models write an output for an input by beam search: translations, captions."""

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """The kinds of input it takes."""
        ...

    @property
    def beam(self) -> Beam:
        """The settings of the search."""
        ...

    @property
    def search_batch(self) -> int:
        """How many inputs are searched together."""
        ...

    def parse(self, line: str, where: str) -> Input:
        """The input in a line of text; `where` is what errors call the line."""
        ...

    def length(self, given: Input) -> int:
        """How many positions the model reads of an input."""
        ...

    def translate(
        self,
        model: nn.Module,
        inputs: Sequence[Input],
        *,
        name: str = "input",
        numbers: Sequence[int] | None = None,
        beam: Beam | None = None,
        begins: Sequence[str] | None = None,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> list[Outputs]:
        """The outputs for each input, in their order; see tasks/translate.py."""
        ...

    def pieces(self, outputs: Outputs, number: int = 0) -> list[str]:
        """The text of each token of one output."""
        ...

    def source_axis(self, given: Input) -> Axis:
        """What the decoder attends to."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a model read in one pass over one input, axis by axis."""

    axes: Mapping[str, Axis]
    """By the names that sites give their axes."""
    title: str = ""
    """For people: the input, or what was predicted for it."""
    rows: tuple[int, ...] = ()
    """For the best hypothesis of a beam search: its row of the batch at each step."""
    beams: int = 1
    """How many hypotheses of an input share one memory, at most."""


@runtime_checkable
class ShowsAttention(Protocol):
    """A task that can run a model on one input and label the axes of its attention."""

    def parse(self, line: str, where: str) -> Input:
        """The input in a line of text; `where` is what errors call the line."""
        ...

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one input, for whoever records it, and label what it read."""
        ...


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an audit judges: predictions for batches, and the positions that they are made from."""

    batches: Sequence[Batch]
    """Each row is one prediction."""
    predict: Callable[[Batch], Float[Tensor, "B C"]]
    """Logits of each row."""
    reads: str = "tokens"
    """What of a batch has a value for each position that is judged."""
    lengths: str = "lengths"
    """What of a batch counts the positions of each row."""
    place: Callable[[Batch], Int[Tensor, "B"]] | None = None
    """The query whose weights are judged; without it the mean of all."""
    special: tuple[int, ...] = ()
    """Tokens that every input has: never judged, never taken out."""
    judged: Callable[[Batch], Bool[Tensor, "B T"]] | None = None
    """Which positions may be judged; all, without it."""
    keep: Callable[[Batch, Bool[Tensor, "B T"]], Batch] | None = None
    """A batch with only some positions; without it they are moved together."""
    along: tuple[str, ...] | None = None
    """What of a batch has a value for each position; without it, whatever has that shape."""
    groups: Callable[[Batch], Int[Tensor, "B T"]] | None = None
    """Which positions share a sum of one: the words of a sentence, say."""
    site_kinds: tuple[str, ...] | None = None
    """The kinds of site that can be judged; any, without it."""


@runtime_checkable
class Explains(Protocol):
    """A task whose attention can be audited as an explanation."""

    def subject(
        self, model: nn.Module, split: Split, site: str, *, most: int, seed: int
    ) -> Subject:
        """At most so many predictions of a split, drawn by the seed, and how they are made."""
        ...


@dataclass(frozen=True, kw_only=True)
class LastPrediction:
    """One prediction whose gradient is measured at everything that was read."""

    axis: Axis
    """What was read."""
    tokens: Tensor
    """The tensor that the model's embedding is given for it."""
    log_probability: Callable[[], Float[Tensor, ""]]
    """Runs the model and gives the log-probability of the prediction."""


@runtime_checkable
class ReachesBack(Protocol):
    """A task of which can be measured how far the gradient of a prediction reaches back."""

    def last_prediction(self, model: nn.Module, given: Input) -> LastPrediction:
        """The last thing that the model predicts for an input."""
        ...


Ability = TypeVar("Ability")


def require(task: object, ability: type[Ability], what: str, run: str) -> Ability:
    """The task, if it has an ability; else an error that says what it cannot do."""
    if not isinstance(task, ability):
        raise UserError(f"{run} does not support: {what}")
    return task
