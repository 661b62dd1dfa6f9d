"""Generation of complete texts for prompts of any lengths, with any Stepper.

Prompts of equal length are batched together. The result has the order of the prompts.

>>> import torch
>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[tokens + 1], self
>>> texts = generate(Next(), [[1, 2, 3], [7], [5]], GenerationRequest(max_tokens=3, stop={8}))
>>> [(text.tokens, text.reason) for (text,) in texts]
[([4, 5, 6], 'length'), ([8], 'stop'), ([6, 7, 8], 'stop')]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.core.errors import UserError
from regard.core.protocols import State, Stepper
from regard.decode.policy import SampleId
from regard.decode.stream import Alternatives, GenerationRequest, Reason, Stream, check_max_tokens


@dataclass(frozen=True)
class GeneratedText:
    """The text of one prompt and sample."""

    tokens: list[int]
    """Without the prompt, but with the stop token if there is one."""
    reason: Reason
    log_probabilities: list[float] | None = None
    """Of each token, by the model before any rule; None unless requested."""
    alternatives: list[Alternatives] | None = None


def generate(
    stepper: Stepper[State], prompts: Sequence[Sequence[int]], request: GenerationRequest
) -> list[list[GeneratedText]]:
    """The texts of each prompt, `request.samples` of them."""
    texts: dict[SampleId, GeneratedText] = {}
    for stream in open_streams(stepper, prompts, request):
        texts.update(collect_texts(stream))
    numbers = range(request.first, request.first + len(prompts))
    return [[texts[SampleId(n, sample)] for sample in range(request.samples)] for n in numbers]


def collect_texts(stream: Stream[State]) -> dict[SampleId, GeneratedText]:
    """Run a stream to its end; return the texts of its rows."""
    texts: dict[SampleId, GeneratedText] = {}
    tokens: dict[SampleId, list[int]] = {row: [] for row in stream.rows}
    logs: dict[SampleId, list[float]] = {row: [] for row in stream.rows}
    others: dict[SampleId, list[Alternatives]] = {row: [] for row in stream.rows}
    for step in stream:
        for place, row in enumerate(step.rows):
            tokens[row].append(step.tokens[place])
            if step.log_probabilities is not None:
                logs[row].append(step.log_probabilities[place])
            if step.alternatives is not None:
                others[row].append(step.alternatives[place])
            reason = step.reasons[place]
            if reason is not None:
                texts[row] = GeneratedText(
                    tokens[row], reason, logs[row] or None, others[row] or None
                )
    return texts


def open_streams(
    stepper: Stepper[State], prompts: Sequence[Sequence[int]], request: GenerationRequest
) -> Iterator[Stream[State]]:
    """Streams for all prompts, one for each length of prompt and `max_rows` rows.

    All prompts are checked before the first stream starts.
    """
    lengths: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts):
        if not len(prompt):
            raise UserError(
                f"prompt {number + request.first} is empty: it needs at least one token, "
                "such as the token that begins every text"
            )
        lengths.setdefault(len(prompt), []).append(number)
    for length in lengths:
        check_max_tokens(stepper, length, request.max_tokens)
    together = max(1, request.max_rows // request.samples)
    for numbers in lengths.values():
        for begin in range(0, len(numbers), together):
            part = numbers[begin : begin + together]
            tokens = torch.tensor([list(prompts[each]) for each in part], device=request.device)
            called = [each + request.first for each in part]
            yield Stream(stepper, {"tokens": tokens}, tokens, request, prompts=called)
