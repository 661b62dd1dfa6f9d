"""What can be done with a task, as small protocols.

Every task trains and is measured (`OpenTask`). Some predict, some generate, some write an output by
beam search, most can show where their models attend, and some can be audited. A task has an ability
by having its methods. Commands, server, pictures and audit use these protocols and import no task.

>>> isinstance(object(), Predicts)
False
>>> print(unsupported("runs/words", "word_vectors", "prediction"))
runs/words: task word_vectors does not support prediction
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.axes import Axis
from regard.core.errors import UserError
from regard.core.inputs import Input
from regard.core.protocols import Batch
from regard.data.text.alignment import Links
from regard.data.text.tokeniser import Tokeniser
from regard.data.text.vectors import Vectors
from regard.decode import GenerationRequest, TextPiece
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
    """For people: a label, a translation, or a word and its tag a line; "" if choices are all."""
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

    def inputs(self, path: str) -> Sequence[Input]:
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
        self, model: nn.Module, prompt: str, request: GenerationRequest, stops: Sequence[str] = ()
    ) -> Iterator[TextPiece]:
        """Continuations of a prompt, piece by piece."""
        ...


@dataclass(frozen=True)
class TokenScores:
    """How probable each token of a text is after those before it; the first has none before it."""

    logs: tuple[float | None, ...]
    """Log-probabilities."""
    alternatives: tuple[tuple[tuple[int, float], ...] | None, ...]
    """The most probable tokens at each place, with theirs."""


@runtime_checkable
class ScoresTokens(Protocol):
    """A task whose models give a probability to each token of a text."""

    def token_scores(
        self, model: nn.Module, tokens: Sequence[int], alternatives: int = 0
    ) -> TokenScores:
        """The scores of the tokens of a text."""
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
    """The best first; none for an empty text, which is not given to the model."""

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
        """The outputs for each input, in their order.

        `name` and `numbers` are what warnings call the inputs and their lines. `beam` replaces the
        search of the recipe. Each output starts with its text in `begins`. A search with coverage
        needs `weights`, see decode/search.py.
        """
        ...

    def pieces(self, outputs: Outputs, number: int = 0) -> list[str]:
        """The text of each token of one output."""
        ...

    def source_axis(self, given: Input) -> Axis:
        """What the decoder attends to."""
        ...

    def read(
        self,
        model: nn.Module,
        given: Input,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> "Reading":
        """`ShowsAttention.read` by a search; `weights` are those of `translate`."""
        ...


@runtime_checkable
class ScoresOutputs(Protocol):
    """A task that scores whole outputs, whoever computes them: worker processes, say."""

    def score_outputs(
        self, translate: Callable[[Sequence[Input]], Sequence[str]], split: Split
    ) -> dict[str, float]:
        """The scores of what a function writes for the inputs of a split."""
        ...


@runtime_checkable
class AlignsWords(Protocol):
    """A task whose attention can link words of a source with words of its translation."""

    def pair_batches(
        self, pairs: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[Sequence[int], Batch]]:
        """Sources and their translations in batches of similar length, with their numbers.

        A pair with an empty side is in no batch.
        """
        ...

    def link_words(self, weights: Float[Tensor, "T S"], source: str, target: str) -> Links:
        """Links between the words of a pair, from attention weights between their tokens."""
        ...

    def link_output(
        self, weights: Float[Tensor, "T S"], outputs: Outputs, number: int = 0
    ) -> Links:
        """The same between a source and one of the outputs for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers from 0 to 1 that a model computes beside its attention, such as usages of slots."""

    values: Float[Tensor, "Q K"]
    queries: Axis
    keys: Axis


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
    tables: Mapping[str, Table] = field(default_factory=dict)
    """What else is to be drawn beside the attention, by name."""


@runtime_checkable
class ShowsAttention(Protocol):
    """A task that can run a model on one input and label the axes of its attention."""

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """The kinds of input it takes."""
        ...

    def parse(self, line: str, where: str) -> Input:
        """The input in a line of text; `where` is what errors call the line."""
        ...

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one input, for whoever records it, and label what it read."""
        ...


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an audit judges: predictions for the rows of batches, and the positions they depend on.

    The defaults are those of a text: integer `tokens` [B,T] and `lengths` [B]. A floating tensor
    [B,T,...] is judged in the same way: patches of an image, frames of a sound. For an input of
    another shape, such as pixels [B,C,H,W], `real`, `embedding` and `keep` are needed.
    """

    batches: Sequence[Batch] = ()
    """Each row is one prediction."""
    predict: Callable[[nn.Module, Batch], Float[Tensor, "B C"]]
    """The logits of each row."""
    axis: str = "position"
    """The axis that is judged, as sites name it (`regard.attention.tape.AXIS_NAMES`)."""
    inputs: str = "tokens"
    """The tensor of a batch that is judged: [B,T] integers, or [B,T,...] vectors."""
    lengths: str = "lengths"
    """The tensor with the number of positions of each row; all are real if a batch has none."""
    real: Callable[[Batch], Bool[Tensor, "B T"]] | None = None
    """Which positions are not padding, where inputs and lengths do not tell."""
    embedding: Callable[[nn.Module], nn.Module] | None = None
    """The module that returns the vectors [B,T,D] of the positions. By default the one that embeds
    integer inputs; floating inputs are vectors themselves."""
    special: tuple[int, ...] = ()
    """Tokens that are in every input, such as an end token: never judged, never removed."""
    judged: Callable[[Batch], Bool[Tensor, "B T"]] | None = None
    """Which positions are judged; by default all that are real and not special."""
    keep: Callable[[Batch, Bool[Tensor, "B T"]], Batch] | None = None
    """Remove all but some positions; by default the others move together, and lengths shrink."""
    along: tuple[str, ...] | None = None
    """The tensors that move with the positions; by default all of shape [B,T,...]."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """The value at padding of tensors in which it is not zero."""
    pointers: tuple[str, ...] = ()
    """Tensors of positions, such as the word that is tagged: they follow that position."""
    queries: Mapping[str, Callable[[Batch], Int[Tensor, "B"]]] = field(default_factory=dict)
    """The query at which the prediction is made, by the name of the query axis. Of sites with other
    queries the mean is judged."""
    units: Mapping[str, Callable[[Batch], Int[Tensor, "B T"]]] = field(default_factory=dict)
    """Larger units, such as sentences, by the name of their axis: the unit of each position, -1 for
    none. A site over units is judged by them; one with a query for each unit sums to one in it."""
    segments: Callable[[Batch], Int[Tensor, "B T"]] | None = None
    """The segment of each position, such as the part of a pair. A segment to which the site does
    not attend is not judged."""
    top: Callable[[Batch], Float[Tensor, "B T"]] | None = None
    """The share of each position of the top layer in the prediction. By default the query of the
    prediction, the weights of a pooling site, or the first position."""
    targets: str | None = None
    """The tensor with the class of each row [B], in training batches too; None if there is none."""


@runtime_checkable
class Explains(Protocol):
    """A task whose attention can be audited as an explanation."""

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """At most `most` predictions of a split, sampled by the seed."""
        ...


@dataclass(frozen=True, kw_only=True)
class LastPrediction:
    """One prediction, and the input in which its gradient is measured."""

    axis: Axis
    """The positions of the input."""
    inputs: Tensor
    """The tensor that the model is given: integer tokens [1,T], or floating [1,T,...]."""
    log_probability: Callable[[], Float[Tensor, ""]]
    """Runs the model on these inputs and returns the log-probability of the prediction."""


@runtime_checkable
class ReachesBack(Protocol):
    """A task whose models predict something last, after the whole input."""

    def last_prediction(self, model: nn.Module, given: Input) -> LastPrediction:
        """The last prediction of a model for an input."""
        ...


@dataclass(frozen=True, kw_only=True)
class Report:
    """How well a model does, class by class."""

    table: str
    """Precision, recall and F1 of each class, for people."""
    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """`counts[i][j]`: how many items of class i were predicted as class j."""
    items: str
    """What is counted: "texts", "words"."""


@runtime_checkable
class Reports(Protocol):
    """A task with classes, each of which has a precision and a recall."""

    def report(self, model: nn.Module, split: Split) -> Report:
        """How well a model does on a split."""
        ...


@dataclass(frozen=True)
class LengthBand:
    """The score of outputs for inputs of similar length."""

    first: int
    """The length of the shortest input, in words."""
    last: int | None
    """The length of the longest one; None is without end."""
    sentences: int
    value: float


@runtime_checkable
class ScoresByLength(Protocol):
    """A task whose outputs can be scored for inputs of similar length."""

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of its scores, those of the recipe first."""
        ...

    def by_length(
        self, model: nn.Module, split: Split, name: str, bands: Sequence[int]
    ) -> list[LengthBand]:
        """The score of each band of lengths, the shortest first."""
        ...


@runtime_checkable
class EmbedsWords(Protocol):
    """A task whose models have a vector for each word."""

    def vectors(self, model: nn.Module, more: Sequence[str] = ()) -> Vectors:
        """Every word of the vocabulary with its vector, and those of `more` if there are any."""
        ...


@runtime_checkable
class HasLabels(Protocol):
    """A task whose models predict one of some labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """By name, in the order of the logits."""
        ...


@runtime_checkable
class EncodesTexts(Protocol):
    """A task that turns any texts into a batch, without labels."""

    def encode(self, inputs: Sequence[Input]) -> Batch:
        """The inputs as one batch that its models read."""
        ...


def unsupported(run: object, task: str, ability: str) -> UserError:
    """The error for a run whose task lacks an ability."""
    return UserError(f"{run}: task {task} does not support {ability}")
