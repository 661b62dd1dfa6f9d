"""Generate: whole texts for prompts of any lengths, from any model that is a Stepper.

Prompts of equal length are written together. The answer has the order of the prompts.

>>> import torch
>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[tokens + 1], self
>>> texts = generate(Next(), [[1, 2, 3], [7], [5]], Request(max_tokens=3, stop={8}))
>>> [(text.tokens, text.reason) for (text,) in texts]
[([4, 5, 6], 'length'), ([8], 'stop'), ([6, 7, 8], 'stop')]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.core.errors import UserError
from regard.core.protocols import State, Stepper
from regard.decode.policy import Row
from regard.decode.stream import Alternatives, Reason, Request, Stream, fitting


@dataclass(frozen=True)
class Written:
    """What a row wrote."""

    tokens: list[int]
    """Without the prompt; if a stop token ended it, that is the last."""
    reason: Reason
    log_probabilities: list[float] | None = None
    """Of each token, by the model alone, if they were asked for."""
    alternatives: list[Alternatives] | None = None


def generate(
    stepper: Stepper[State], prompts: Sequence[Sequence[int]], request: Request
) -> list[list[Written]]:
    """For each prompt its texts, as many as `samples` says."""
    found: dict[Row, Written] = {}
    for stream in streams(stepper, prompts, request):
        found.update(collected(stream))
    numbers = range(request.first, request.first + len(prompts))
    return [[found[Row(n, sample)] for sample in range(request.samples)] for n in numbers]


def collected(stream: Stream[State]) -> dict[Row, Written]:
    """All that the rows of a stream write from here on."""
    texts: dict[Row, Written] = {}
    tokens: dict[Row, list[int]] = {row: [] for row in stream.rows}
    logs: dict[Row, list[float]] = {row: [] for row in stream.rows}
    others: dict[Row, list[Alternatives]] = {row: [] for row in stream.rows}
    for step in stream:
        for place, row in enumerate(step.rows):
            tokens[row].append(step.tokens[place])
            if step.log_probabilities is not None:
                logs[row].append(step.log_probabilities[place])
            if step.alternatives is not None:
                others[row].append(step.alternatives[place])
            reason = step.reasons[place]
            if reason is not None:
                texts[row] = Written(tokens[row], reason, logs[row] or None, others[row] or None)
    return texts


def streams(
    stepper: Stepper[State], prompts: Sequence[Sequence[int]], request: Request
) -> Iterator[Stream[State]]:
    """One stream after the other for prompts that continue a text, each for one length.

    All prompts are checked before the first is read.
    """
    lengths: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts):
        if not len(prompt):
            raise UserError(
                f"prompt {number + request.first} is empty: it needs at least one token, "
                "such as the one that begins every text"
            )
        lengths.setdefault(len(prompt), []).append(number)
    for length in lengths:
        fitting(stepper, length, request.max_tokens)
    together = max(1, request.at_once // request.samples)
    for numbers in lengths.values():
        for begin in range(0, len(numbers), together):
            part = numbers[begin : begin + together]
            tokens = torch.tensor([list(prompts[each]) for each in part], device=request.device)
            called = [each + request.first for each in part]
            yield Stream(stepper, {"tokens": tokens}, tokens, request, prompts=called)
