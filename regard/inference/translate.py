"""Lines in, lines out, in their order, and where the model looked while it wrote.

A chunk of lines is held at a time. To know where a hypothesis looked, attention is recorded during
the search and followed back along the rows that the hypothesis descends from.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import record
from regard.attention.tape import Tape, matching, sites_of
from regard.core.errors import UserError
from regard.decode.beam import Beam
from regard.decode.hypothesis import Hypothesis
from regard.look import Payload, ancestry
from regard.tasks.alignment import hard, merged, pharaoh, words_of
from regard.tasks.translate import Output, Translated, Translation

TO_THE_SOURCE = ("cross", "alignment")
"""The kinds of attention that look from a target at its source."""

Asked = str | tuple[str, str]
"""A source, or one and how its translation is to begin."""


@dataclass(frozen=True)
class Looking:
    """Whose looks are wanted: sites by a glob, and heads by number; all if nothing is said."""

    sites: str | None = None
    heads: tuple[int, ...] | None = None

    def names(self, model: nn.Module) -> list[str]:
        """The sites to listen to: those that look at the source."""
        every = sites_of(model)
        known = {name: site for name, site in every.items() if site.kind in TO_THE_SOURCE}
        if not known:
            raise UserError(f"{type(model).__name__} has no attention to its source")
        return list(matching("*" if self.sites is None else self.sites, known))


@dataclass(frozen=True)
class Seen:
    """A line translated, and where the model looked for each output: heads of each site."""

    translated: Translated
    looks: tuple[dict[str, Float[Tensor, "N ... S"]], ...] = ()
    """For each output by site; as many rows as tokens and one for the end. Empty if not asked."""


@dataclass(frozen=True)
class Said:
    """What is written of one output."""

    text: str
    score: float
    alignment: str | None = None
    """In Pharaoh format, if it was asked for."""


@dataclass(frozen=True)
class Line:
    """What is written of one line: the best output first, none if it was empty."""

    outputs: tuple[Said, ...]

    @property
    def text(self) -> str:
        """The best of them."""
        return self.outputs[0].text if self.outputs else ""


def translations(
    task: Translation,
    model: nn.Module,
    lines: Iterable[Asked],
    *,
    beam: Beam | None = None,
    looking: Looking | None = None,
    chunk: int = 1024,
    name: str = "input",
) -> Iterator[Seen]:
    """Each line translated, in their order, of which no more than a chunk are held."""
    beam, remaining, first = beam or task.beam, iter(lines), 1
    while some := list(islice(remaining, chunk)):
        yield from chunk_of(task, model, numbered(some, first), beam, looking, name)
        first += len(some)


class Numbered(NamedTuple):
    """A line and its number, by which warnings call it."""

    number: int
    text: str
    begins: str = ""
    """How its translation is to begin."""


def numbered(lines: Sequence[Asked], first: int) -> list[Numbered]:
    """Some lines, counted from the first."""
    return [
        Numbered(number, line) if isinstance(line, str) else Numbered(number, *line)
        for number, line in enumerate(lines, start=first)
    ]


def chunk_of(
    task: Translation,
    model: nn.Module,
    lines: Sequence[Numbered],
    beam: Beam,
    looking: Looking | None,
    name: str,
) -> list[Seen]:
    """Some lines translated, and looked at if that was asked for."""
    if looking is None:
        return [Seen(each) for each in _translated(task, model, lines, beam, name)]
    return _seen(task, model, lines, beam, looking, name)


def _translated(
    task: Translation, model: nn.Module, lines: Sequence[Numbered], beam: Beam, name: str
) -> list[Translated]:
    """Each line translated; what covers its source is heard from all attention to it."""
    covers = beam.coverage and any(line.text.strip() for line in lines)
    with record(model, Looking().names(model)) if covers else nullcontext() as tape:
        return task.translate(
            model,
            [line.text for line in lines],
            name=name,
            numbers=[line.number for line in lines],
            beam=beam,
            begins=[line.begins for line in lines],
            weights=None if tape is None else lambda state: _last_look(tape),
        )


def _last_look(tape: Tape) -> Float[Tensor, "B S"]:
    """The weights of the last step, the mean of all sites and heads; earlier steps are let go.

    The beams of a sentence are rows of a batch in some models, and queries of one row in others.
    """
    for calls in tape.calls.values():
        del calls[:-1]
    return torch.stack([call.weights.mean(1).flatten(0, 1) for call in tape]).mean(0)


def _seen(
    task: Translation,
    model: nn.Module,
    lines: Sequence[Numbered],
    beam: Beam,
    looking: Looking,
    name: str,
) -> list[Seen]:
    """The same, one batch after another, so that what is recorded is that of one search."""
    found: dict[int, Seen] = {}
    order = sorted(range(len(lines)), key=lambda place: len(lines[place].text))
    together = task.data.evaluate_batch
    for begin in range(0, len(order), together):
        places = order[begin : begin + together]
        some = [lines[place] for place in places]
        if not any(line.text.strip() for line in some):
            done = [Seen(each) for each in _translated(task, model, some, beam, name)]
        else:
            with record(model, looking.names(model), heads=looking.heads) as tape:
                said = _translated(task, model, some, beam, name)
            steps = {site: [call.weights for call in tape[site]] for site in tape.sites}
            done = [Seen(each, _followed(each, steps, beam.width)) for each in said]
        found.update(zip(places, done, strict=True))
    return [found[place] for place in range(len(lines))]


def _followed(
    line: Translated, steps: dict[str, list[Tensor]], beams: int
) -> tuple[dict[str, Tensor], ...]:
    """For each output, the weights of every site along the rows that it descends from."""
    return tuple(
        {site: ancestry(each, output.hypothesis.rows, beams=beams) for site, each in steps.items()}
        for output in line.outputs
    )


def line_of(task: Translation, line: Seen) -> Line:
    """What is written of a line."""
    return Line(
        tuple(
            Said(
                output.text,
                output.hypothesis.score,
                alignment(task, line, place) if line.looks else None,
            )
            for place, output in enumerate(line.translated.outputs)
        )
    )


def alignment(task: Translation, line: Seen, number: int = 0) -> str:
    """Hard word alignment of an output in Pharaoh format, by the mean of all sites and heads."""
    output = line.translated.outputs[number]
    mean = torch.cat(list(line.looks[number].values())).mean(0)  # [T,S]
    source = words_of(task.numbering.source, line.translated.source)
    target = target_words(task, output.hypothesis, line.translated.source)
    columns = source[: mean.shape[1]]
    return pharaoh(hard(merged(mean, columns, target)))


def target_words(task: Translation, hypothesis: Hypothesis, source: str) -> list[int | None]:
    """For each token of an output the number of its word: where blanks are, a word begins."""
    numbers: list[int | None] = []
    written, count = "", 0
    for place in range(len(hypothesis.tokens)):
        before = written
        written = task.spelled(hypothesis.tokens[: place + 1], source)
        new = written[len(before) :]
        count += bool(new.strip()) and (
            not before.strip() or before[-1:].isspace() or new[0].isspace()
        )
        numbers.append(count - 1 if new.strip() and count else None)
    return numbers


def payloads(task: Translation, line: Seen, number: int = 0) -> tuple[Payload, ...]:
    """What a picture of an output is drawn from: one payload for each site."""
    output: Output = line.translated.outputs[number]
    keys = source_labels(task, line.translated.source)
    queries = [task.spelled([token], line.translated.source) for token in output.hypothesis.tokens]
    return tuple(
        Payload.of(weights, [*queries, _END], keys[: weights.shape[2]], site=site, kind="cross")
        for site, weights in line.looks[number].items()
    )


_END = "<eos>"
"""How the end of a sentence is shown."""


def source_labels(task: Translation, text: str) -> list[str]:
    """The tokens of a source as they stand in its text, and the end."""
    return [*(text[begin:end] for begin, end in task.numbering.source.offsets(text)), _END]
