"""Predictions for many inputs; one that cannot be answered does not stop the others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from regard.core.errors import UserError
from regard.core.inputs import Input
from regard.core.protocols import Bounded
from regard.data.text.files import STDIN, read_lines_if_any
from regard.runs.run import Run
from regard.tasks.abilities import Prediction, Predicts


@dataclass(frozen=True)
class GivenInput:
    """An input, or why there is none, and where it comes from."""

    where: str
    """What errors call it: a file and a line."""
    given: Input | UserError


def inputs_of(task: Predicts, files: Sequence[str]) -> Iterator[GivenInput]:
    """The inputs of all files; without files, one for each line of stdin as it comes."""
    for path in files:
        for number, each in enumerate(task.inputs(path), start=1):
            yield GivenInput(f"{path}: input {number}", each)
    if files:
        return
    for number, (line,) in read_lines_if_any(STDIN):
        where = f"stdin:{number}"
        try:
            yield GivenInput(where, task.parse(line, where))
        except UserError as error:
            yield GivenInput(where, error)


def predict_each(
    run: Run, inputs: Iterable[GivenInput], *, chunk: int, strict: bool = False
) -> Iterator[tuple[GivenInput, Prediction | UserError]]:
    """A prediction for each input, or why there is none; `strict` refuses inputs that are too long.

    So many inputs are held at a time.
    """
    waiting = iter(inputs)
    while some := list(islice(waiting, chunk)):
        refused: dict[int, UserError] = {}
        for place, each in enumerate(some):
            if isinstance(each.given, UserError):
                refused[place] = each.given
            elif strict and (problem := truncation(run, each)) is not None:
                refused[place] = UserError(f"{problem}; shorten it, or leave --strict out")
        places = [place for place in range(len(some)) if place not in refused]
        answers = _answers(run, [(some[place].where, some[place].given) for place in places])
        found: dict[int, Prediction | UserError] = {
            **refused,
            **dict(zip(places, answers, strict=True)),
        }
        yield from ((each, found[place]) for place, each in enumerate(some))


def truncation(run: Run, given: GivenInput) -> str | None:
    """How much of an input the model reads, if that is not all of it."""
    limit = _longest(run)
    if limit is None or not isinstance(given.given, Input):
        return None
    if len(given.given.title.encode()) <= limit // 2:  # cannot have more tokens than bytes
        return None
    length = run.task.length(given.given)
    if length <= limit:
        return None
    return f"{given.where}: {length:,} tokens, of which the model reads {limit:,}"


def _longest(run: Run) -> int | None:
    """How many tokens of an input are read; None if all are."""
    longest: object = getattr(run.task, "longest", None)
    if isinstance(longest, int):
        return longest
    return run.model.context_limit if isinstance(run.model, Bounded) else None


def _answers(
    run: Run, inputs: Sequence[tuple[str, Input | UserError]]
) -> list[Prediction | UserError]:
    """All predictions at once; if that fails, one by one, to find those that fail."""
    given = [each for _, each in inputs if isinstance(each, Input)]
    try:
        return list(run.predicts.predict(run.model, given))
    except UserError as error:
        if len(given) == 1:
            return [UserError(f"{inputs[0][0]}: {error}")]
    return [answer for each in inputs for answer in _answers(run, [each])]
