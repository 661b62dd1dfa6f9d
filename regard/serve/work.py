"""Work: what the engine does with questions that are answered whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeVar

from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Bounded, Selectable, Stepper
from regard.look import Payload
from regard.serve.errors import too_long, wrong
from regard.serve.job import Asking
from regard.serve.limits import Limits
from regard.serve.schema import Attention, Intervene, Text, Translate
from regard.serve.served_run import Said, Served
from regard.tasks.translate import Translated

_Check = Callable[[], None]
Found = TypeVar("Found")

_MOST_WEIGHTS = 4_000_000
"""Of one head of each site that is looked at: 12 layers of 512 tokens have 3.1 million."""


class Interruptible(nn.Module):
    """A Stepper that asks before each step whether anybody still waits."""

    def __init__(self, model: nn.Module, check: _Check) -> None:
        super().__init__()
        self.model, self.check = model, check

    def start(self, source: Batch) -> Selectable:
        """The state before the first token."""
        return self._stepper().start(source)

    def step(self, tokens: Tensor, state: Selectable) -> tuple[Tensor, Selectable]:
        """Logits of the next token, unless everybody left."""
        self.check()
        return self._stepper().step(tokens, state)

    def _stepper(self) -> Stepper[Selectable]:
        if not isinstance(self.model, Stepper):
            raise UserError(f"a {type(self.model).__name__} cannot write: it has no start and step")
        return self.model


class BoundedInterruptible(Interruptible):
    """The same of a model that can read only so many tokens."""

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        assert isinstance(self.model, Bounded)
        return self.model.context_limit


@dataclass(frozen=True)
class Lines:
    """What one request wants translated."""

    texts: tuple[str, ...]


def translating(run: Served, asked: Translate, limits: Limits) -> Asking[Lines, list[Translated]]:
    """The job of a translation; lines of several requests are searched together."""
    model, task = run.translator
    lines = [asked.text] if isinstance(asked.text, str) else asked.text
    if not 0 < len(lines) <= limits.lines:
        raise wrong("text", f"{len(lines)} lines were given; 1 to {limits.lines} may be")
    for line in lines:
        _fits(line, limits, lambda text: len(task.numbering.source.encode(text)))
    usual = task.beam
    width = asked.beam or max(usual.width, asked.n)
    if asked.n > width:
        raise wrong("n", f"n={asked.n} translations need a beam of as many, not {width}")
    groups = usual.groups if width == usual.width else 1
    beam = replace(usual, width=width, n_best=asked.n, groups=groups)

    def work(questions: Sequence[Lines], check: _Check) -> list[list[Translated]]:
        kind = BoundedInterruptible if isinstance(model, Bounded) else Interruptible
        texts = [text for question in questions for text in question.texts]
        done = iter(task.translate(kind(model, check), texts, beam=beam))
        return [[next(done) for _ in question.texts] for question in questions]

    return Asking(run.name, ("translate", beam), Lines(tuple(lines)), work)


def predicting(run: Served, asked: Text, limits: Limits) -> Asking[str, Said]:
    """The job of a prediction."""
    _check_text(run, asked.text, limits)
    return Asking(run.name, object(), asked.text, _each(lambda text: run.say(text, ())))


def intervening(run: Served, asked: Intervene, limits: Limits) -> Asking[str, tuple[Said, Said]]:
    """The job of an intervention: what is said without the changes, and with them."""
    _check_text(run, asked.text, limits)
    changes = [edit.change() for edit in asked.edits]

    def both(text: str) -> tuple[Said, Said]:
        return run.say(text, ()), run.say(text, changes)

    return Asking(run.name, object(), asked.text, _each(both))


def looking(run: Served, asked: Attention, limits: Limits) -> Asking[str, tuple[Payload, ...]]:
    """The job of looking where a model looks."""
    tokens = _check_text(run, asked.text, limits)
    if tokens**2 * max(1, len(run.sites)) > _MOST_WEIGHTS and asked.sites is None:
        raise wrong(
            "sites",
            f"{len(run.sites)} sites that look at {tokens:,} tokens are too much to show at once: "
            "name some sites, or give a shorter text",
            code="too_much_to_show",
        )
    if tokens**2 > _MOST_WEIGHTS:
        raise wrong("text", f"{tokens:,} tokens are too many to show", code="too_much_to_show")
    heads = asked.heads
    return Asking(
        run.name, object(), asked.text, _each(lambda text: run.look(text, asked.sites, heads))
    )


def _each(answer: Callable[[str], Found]) -> Callable[[Sequence[str], _Check], list[Found]]:
    """Questions answered one by one."""

    def work(questions: Sequence[str], check: _Check) -> list[Found]:
        check()
        return [answer(question) for question in questions]

    return work


def _check_text(run: Served, text: str, limits: Limits) -> int:
    """How many tokens a text has; it must have some, and no more than may be."""
    model = run.trained
    if not text.strip():
        raise wrong("text", "the text is empty", code="empty_text")
    bound = model.context_limit if isinstance(model, Bounded) else limits.tokens
    return _fits(text, replace(limits, tokens=min(bound, limits.tokens)), run.length)


def _fits(text: str, limits: Limits, length: Callable[[str], int]) -> int:
    """How many tokens a text has, if it is not too long: letters are counted first."""
    if len(text) > limits.letters:
        raise too_long(len(text), limits.letters, "text")
    tokens = length(text)
    if tokens > limits.tokens:
        raise wrong(
            "text",
            f"the text has {tokens:,} tokens; at most {limits.tokens:,} can be read",
            code="context_length_exceeded",
        )
    return tokens


def translation_form(lines: Sequence[Translated]) -> list[dict[str, object]]:
    """Translations as a client reads them."""
    return [
        {
            "text": line.text,
            "score": score(line),
            "others": [output.text for output in line.outputs[1:]],
        }
        for line in lines
    ]


def score(line: Translated) -> float | None:
    """How likely the search held its best; nothing for an empty line."""
    found = line.outputs[0].hypothesis.score if line.outputs else None
    return found if found is None or isfinite(found) else None


def said_form(said: Said) -> dict[str, object]:
    """What a model says, as a client reads it."""
    return {
        "tokens": list(said.tokens),
        "text": said.text,
        "choices": [{"text": c.text, "probability": c.probability} for c in said.choices],
        "labels": list(said.labels),
    }
