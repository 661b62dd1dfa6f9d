"""Outputs for many inputs, in their order, with attention weights on request.

A chunk of inputs is held at a time. The attention of a hypothesis is recorded during the search and
followed back along the rows that the hypothesis descends from.
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
from regard.core.inputs import Input, Text
from regard.data.text.alignment import pharaoh
from regard.decode.beam import Beam
from regard.look import ancestry
from regard.tasks.abilities import AlignsWords, Outputs, Translates

TO_THE_SOURCE = ("cross", "alignment")
"""The kinds of attention from a target to its source."""

Source = str | Input | tuple[str, str]
"""A line, an input, or a line and the beginning of its output."""


@dataclass(frozen=True)
class SiteChoice:
    """Sites by a glob, and heads by number; None is all."""

    sites: str | None = None
    heads: tuple[int, ...] | None = None

    def names(self, model: nn.Module) -> list[str]:
        """The chosen sites among those that attend to the source."""
        every = sites_of(model)
        known = {name: site for name, site in every.items() if site.kind in TO_THE_SOURCE}
        if not known:
            raise UserError(f"{type(model).__name__} has no attention to its source")
        return list(matching("*" if self.sites is None else self.sites, known))


@dataclass(frozen=True)
class RecordedOutputs:
    """The outputs for an input, and the attention weights of each."""

    outputs: Outputs
    weights: tuple[dict[str, Float[Tensor, "N ... S"]], ...] = ()
    """For each output by site: a row for each token and one for the end. Empty if not recorded."""


@dataclass(frozen=True)
class OutputLine:
    """What is written for one output."""

    text: str
    score: float
    alignment: str | None = None
    """In Pharaoh format, if it was recorded."""


@dataclass(frozen=True)
class OutputLines:
    """What is written for one input: the best output first, none for an empty text."""

    outputs: tuple[OutputLine, ...]

    @property
    def text(self) -> str:
        """The best of them."""
        return self.outputs[0].text if self.outputs else ""


def translations(
    task: Translates,
    model: nn.Module,
    sources: Iterable[Source],
    *,
    beam: Beam | None = None,
    choice: SiteChoice | None = None,
    chunk: int = 1024,
    name: str = "input",
) -> Iterator[RecordedOutputs]:
    """The outputs for each input, in their order; no more than a chunk is held at a time."""
    beam, remaining, first = beam or task.beam, iter(sources), 1
    while some := list(islice(remaining, chunk)):
        yield from translate_chunk(task, model, with_numbers(some, first), beam, choice, name)
        first += len(some)


class NumberedSource(NamedTuple):
    """A source with the number of its line, which warnings name."""

    number: int
    source: str | Input
    begins: str = ""
    """The beginning of its output."""

    def parse(self, task: Translates, name: str) -> Input:
        """The input; a line is parsed by the task."""
        if isinstance(self.source, Input):
            return self.source
        return task.parse(self.source, f"{name}:{self.number}")


def with_numbers(sources: Sequence[Source], first: int) -> list[NumberedSource]:
    """Some sources, counted from the first."""
    return [
        NumberedSource(number, *each) if isinstance(each, tuple) else NumberedSource(number, each)
        for number, each in enumerate(sources, start=first)
    ]


def translate_chunk(
    task: Translates,
    model: nn.Module,
    sources: Sequence[NumberedSource],
    beam: Beam,
    choice: SiteChoice | None,
    name: str,
) -> list[RecordedOutputs]:
    """The outputs for some inputs; their attention is recorded if sites are chosen."""
    inputs = [each.parse(task, name) for each in sources]
    if choice is None:
        return [RecordedOutputs(each) for each in _search(task, model, sources, inputs, beam, name)]
    return _record_search(task, model, sources, inputs, beam, choice, name)


def is_empty(given: Input) -> bool:
    """Is it a text without any word? It has no output."""
    return isinstance(given, Text) and not given.text.strip()


def _search(
    task: Translates,
    model: nn.Module,
    sources: Sequence[NumberedSource],
    inputs: Sequence[Input],
    beam: Beam,
    name: str,
) -> list[Outputs]:
    """The outputs for some inputs; coverage is that of all attention to the source."""
    covers = beam.coverage and not all(map(is_empty, inputs))
    with record(model, SiteChoice().names(model)) if covers else nullcontext() as tape:
        return task.translate(
            model,
            inputs,
            name=name,
            numbers=[each.number for each in sources],
            beam=beam,
            begins=[each.begins for each in sources],
            weights=None if tape is None else lambda state: last_weights(tape),
        )


def last_weights(tape: Tape) -> Float[Tensor, "B S"]:
    """The attention weights of the last step, the mean of all sites and heads.

    Earlier steps are dropped. The beams of a sentence are rows of a batch in some models, and
    queries of one row in others.
    """
    for calls in tape.calls.values():
        del calls[:-1]
    return torch.stack([call.weights.mean(1).flatten(0, 1) for call in tape]).mean(0)


def _record_search(
    task: Translates,
    model: nn.Module,
    sources: Sequence[NumberedSource],
    inputs: Sequence[Input],
    beam: Beam,
    choice: SiteChoice,
    name: str,
) -> list[RecordedOutputs]:
    """The same, one batch after another, so that each recording is that of one search."""
    found: dict[int, RecordedOutputs] = {}
    order = sorted(range(len(inputs)), key=lambda place: size_of(task, inputs[place]))
    together = task.search_batch
    for begin in range(0, len(order), together):
        places = order[begin : begin + together]
        some, given = [sources[place] for place in places], [inputs[place] for place in places]
        if all(map(is_empty, given)):
            done = [RecordedOutputs(each) for each in _search(task, model, some, given, beam, name)]
        else:
            with record(model, choice.names(model), heads=choice.heads) as tape:
                outputs = _search(task, model, some, given, beam, name)
            steps = {site: [call.weights for call in tape[site]] for site in tape.sites}
            done = [RecordedOutputs(each, _follow(each, steps, beam.width)) for each in outputs]
        found.update(zip(places, done, strict=True))
    return [found[place] for place in range(len(inputs))]


def size_of(task: Translates, given: str | Input) -> int:
    """By what inputs are sorted: the characters of a text, the positions of other kinds."""
    if isinstance(given, str):
        return len(given)
    return len(given.text) if isinstance(given, Text) else task.length(given)


def _follow(
    outputs: Outputs, steps: dict[str, list[Tensor]], beams: int
) -> tuple[dict[str, Tensor], ...]:
    """For each output, the weights of every site along the rows that it descends from."""
    return tuple(
        {site: ancestry(each, output.hypothesis.rows, beams=beams) for site, each in steps.items()}
        for output in outputs.outputs
    )


def lines_of_outputs(task: Translates, recorded: RecordedOutputs) -> OutputLines:
    """What is written for an input."""
    return OutputLines(
        tuple(
            OutputLine(
                output.text,
                output.hypothesis.score,
                output_alignment(task, recorded, place) if recorded.weights else None,
            )
            for place, output in enumerate(recorded.outputs.outputs)
        )
    )


def output_alignment(task: Translates, recorded: RecordedOutputs, number: int = 0) -> str:
    """Hard word alignment of an output in Pharaoh format, by the mean of all sites and heads."""
    if not isinstance(task, AlignsWords):
        raise UserError("this task has no words to align")
    mean = torch.cat(list(recorded.weights[number].values())).mean(0)  # [T,S]
    return pharaoh(task.link_output(mean, recorded.outputs, number))


def source_labels(task: Translates, text: str) -> list[str]:
    """The tokens of a source, and the end."""
    return list(task.source_axis(Text(text)))
