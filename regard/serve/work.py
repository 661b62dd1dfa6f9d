"""Work: the jobs of requests that are answered whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeVar

from torch import Tensor, nn

from regard.core.errors import UserError, choose
from regard.core.inputs import INPUTS, Input, Text, Written, kind_name, read_request, written_kind
from regard.core.protocols import Batch, Bounded, Selectable, Stepper
from regard.look import Payload
from regard.serve.errors import Refused, too_long, wrong
from regard.serve.job import Asking
from regard.serve.limits import Limits
from regard.serve.schema import Attention, InputRequest, Intervene, Part, Translate
from regard.serve.served_run import Served
from regard.tasks.abilities import Outputs, Prediction

_Check = Callable[[], None]
_Found = TypeVar("_Found")

_MOST_WEIGHTS = 4_000_000
"""Of one head of each site that is shown: 12 layers of 512 tokens have 3.1 million."""


class Interruptible(nn.Module):
    """A Stepper that checks before each step whether a client still waits."""

    def __init__(self, model: nn.Module, check: _Check) -> None:
        super().__init__()
        self.model, self.check = model, check

    def start(self, source: Batch) -> Selectable:
        """The state before the first token."""
        return self._stepper().start(source)

    def step(self, tokens: Tensor, state: Selectable) -> tuple[Tensor, Selectable]:
        """Logits of the next token, unless all clients have left."""
        self.check()
        return self._stepper().step(tokens, state)

    def _stepper(self) -> Stepper[Selectable]:
        if not isinstance(self.model, Stepper):
            raise UserError(
                f"a {type(self.model).__name__} cannot translate: it has no start and step"
            )
        return self.model


class BoundedInterruptible(Interruptible):
    """The same of a model that can read only so many tokens."""

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        assert isinstance(self.model, Bounded)
        return self.model.context_limit


def translating(
    run: Served, request: Translate, limits: Limits
) -> Asking[Sequence[Input], list[Outputs]]:
    """The job of a translation; inputs of several requests are searched together."""
    model, task = run.translator
    given = request.text if request.text is not None else request.input
    count = len(given) if isinstance(given, list) else 1
    if not 0 < count <= limits.lines:
        param = "input" if request.text is None else "text"
        raise wrong(param, f"{count} lines were given; 1 to {limits.lines} are allowed")
    if request.text is not None:
        texts = [request.text] if isinstance(request.text, str) else request.text
        inputs = [_text_input(run, each, limits) for each in texts]
    else:
        values = request.input if isinstance(request.input, list) else [request.input]
        inputs = [_file_input(run, each, request.kind, limits) for each in values]
    for each in inputs:
        _check_length(run, each, limits)
    usual = task.beam
    width = request.beam or max(usual.width, request.n)
    if request.n > width:
        raise wrong("n", f"n={request.n} translations need a beam of as many, not {width}")
    groups = usual.groups if width == usual.width else 1
    beam = replace(usual, width=width, n_best=request.n, groups=groups)

    def work(questions: Sequence[Sequence[Input]], check: _Check) -> list[list[Outputs]]:
        kind = BoundedInterruptible if isinstance(model, Bounded) else Interruptible
        every = [each for question in questions for each in question]
        done = iter(task.translate(kind(model, check), every, beam=beam))
        return [[next(done) for _ in question] for question in questions]

    return Asking(run.name, ("translate", beam), tuple(inputs), work)


def predicting(run: Served, request: InputRequest, limits: Limits) -> Asking[Input, Prediction]:
    """The job of a prediction."""
    given, _ = _input_of(run, request, limits)
    return Asking(run.name, object(), given, _each(lambda each: run.predict(each, ())))


def intervening(
    run: Served, request: Intervene, limits: Limits
) -> Asking[Input, tuple[Prediction, Prediction]]:
    """The job of an intervention: predictions without the changes, and with them."""
    given, _ = _input_of(run, request, limits)
    changes = [edit.change() for edit in request.edits]

    def both(each: Input) -> tuple[Prediction, Prediction]:
        return run.predict(each, ()), run.predict(each, changes)

    return Asking(run.name, object(), given, _each(both))


@dataclass(frozen=True)
class ShownAttention:
    """The attention weights for an input."""

    title: str
    payloads: tuple[Payload, ...]


def showing(run: Served, request: Attention, limits: Limits) -> Asking[Input, ShownAttention]:
    """The job of showing attention weights."""
    given, length = _input_of(run, request, limits)
    if length**2 * max(1, len(run.sites)) > _MOST_WEIGHTS and request.sites is None:
        raise wrong(
            "sites",
            f"{len(run.sites)} sites that attend to {length:,} tokens are too much to show at "
            "once: name some sites, or give a shorter text",
            code="too_much_to_show",
        )
    if length**2 > _MOST_WEIGHTS:
        raise wrong("text", f"{length:,} tokens are too many to show", code="too_much_to_show")
    sites, heads = request.sites, request.heads
    changes = [edit.change() for edit in request.edits]

    def show(each: Input) -> ShownAttention:
        return ShownAttention(each.title, run.look(each, sites, heads, changes))

    return Asking(run.name, object(), given, _each(show))


def _each(answer: Callable[[Input], _Found]) -> Callable[[Sequence[Input], _Check], list[_Found]]:
    """Inputs answered one by one."""

    def work(inputs: Sequence[Input], check: _Check) -> list[_Found]:
        check()
        return [answer(each) for each in inputs]

    return work


def _input_of(run: Served, request: InputRequest, limits: Limits) -> tuple[Input, int]:
    """The input of a request and its length; it must not be empty, nor too long."""
    model = run.trained
    if request.text is not None:
        given = _text_input(run, request.text, limits)
    else:
        given = _file_input(run, request.input, request.kind, limits)
    if isinstance(given, Written) and not given.title.strip():
        raise wrong("text", "the text is empty", code="empty_text")
    bound = model.context_limit if isinstance(model, Bounded) else limits.tokens
    return given, _check_length(run, given, replace(limits, tokens=min(bound, limits.tokens)))


def _text_input(run: Served, text: str, limits: Limits) -> Input:
    """The `text` of a request. It is never the path of a file."""
    if len(text) > limits.characters:
        raise too_long(len(text), limits.characters, "text")
    kind = written_kind(run.opened.takes, text)
    if kind is None:
        raise _wrong_kind(run, "text", Text)
    try:
        return read_request(kind, text, "text", replace(limits.files, characters=limits.characters))
    except UserError as error:
        raise wrong("text", str(error), code="wrong_input") from None


def _file_input(run: Served, value: object, kind: str | None, limits: Limits) -> Input:
    """The `input` of a request: a file in base 64, or the parts of several inputs."""
    takes = {kind_name(each): each for each in run.opened.takes}
    if not takes:
        raise run.unsupported("inputs")
    name = next(iter(takes)) if kind is None else kind
    if name not in takes:
        raise _wrong_kind(run, "kind", choose("kind of input", name, {**INPUTS, **takes}))
    if isinstance(value, list):
        value = [each.model_dump() if isinstance(each, Part) else each for each in value]
    try:
        return read_request(takes[name], value, "input", limits.files)
    except UserError as error:
        raise wrong("input", str(error), code="wrong_input") from None


def _wrong_kind(run: Served, param: str, kind: type[Input]) -> Refused:
    """The answer to an input of a kind that the task does not take."""
    allowed = " or ".join(each.name for each in run.opened.takes) or "no inputs"
    message = f"task {run.task} takes {allowed}, and was given {kind.name}"
    return wrong(param, message, code="wrong_input")


def _check_length(run: Served, given: Input, limits: Limits) -> int:
    """How many tokens an input has, if these are not too many."""
    length = run.opened.length(given)
    if length > limits.tokens:
        raise wrong(
            "text" if isinstance(given, Written) else "input",
            f"the text has {length:,} tokens; at most {limits.tokens:,} can be read",
            code="context_length_exceeded",
        )
    return length


def translation_form(every: Sequence[Outputs]) -> list[dict[str, object]]:
    """Translations as a client reads them."""
    return [
        {
            "text": each.text,
            "score": score_of(each),
            "others": [output.text for output in each.outputs[1:]],
        }
        for each in every
    ]


def score_of(outputs: Outputs) -> float | None:
    """The score of the best output; None for an empty text."""
    found = outputs.outputs[0].hypothesis.score if outputs.outputs else None
    return found if found is None or isfinite(found) else None


def prediction_form(prediction: Prediction) -> dict[str, object]:
    """A prediction as a client reads it."""
    return {
        "tokens": list(prediction.tokens),
        "text": prediction.text or None,
        "choices": [{"text": c.text, "probability": c.probability} for c in prediction.choices],
        "labels": list(prediction.labels),
    }
