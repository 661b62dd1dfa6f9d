"""Completions: a request in OpenAI's form made ready for the engine, and what came of it put back.

https://platform.openai.com/docs/api-reference/completions has the form.
"""

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from uuid import uuid4

from regard.core.protocols import Bounded
from regard.core.steps import between_steps
from regard.data import Tokeniser
from regard.decode import GenerationRequest, Greedy, Policy, Sampling, TextPiece
from regard.decode.text_stream import NO_TOKEN
from regard.serve.errors import Refused, too_long, wrong
from regard.serve.job import Asking, Prompt, Writing
from regard.serve.limits import Limits
from regard.serve.schema import Completion
from regard.serve.served_run import Served
from regard.tasks.abilities import ScoresTokens, TokenScores

_NEVER = -9999.0
"""What is said for the logarithm of a chance of zero, which JSON has no number for."""


def policy(asked: Completion) -> Policy:
    """How tokens are to be chosen; a temperature of 0 is the likeliest."""
    if asked.temperature == 0:
        return Greedy(repetition_penalty=asked.repetition_penalty)
    return Sampling(
        seed=time.time_ns() if asked.seed is None else asked.seed,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_k=asked.top_k,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        min_p=asked.min_p,
        repetition_penalty=asked.repetition_penalty,
    )


def _texts_of(asked: Completion) -> list[str | list[int]]:
    """The prompts, whichever way they were given."""
    given = asked.prompt
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        return [[each for each in given if isinstance(each, int)]]
    return [each for each in given if not isinstance(each, int)]


@dataclass(frozen=True)
class Prepared:
    """A request whose values were checked."""

    job: Writing | None
    """What is to be written; None for no tokens."""
    completed: "Completed"
    """Where what comes of it is collected."""
    scoring: Asking[Sequence[Sequence[int]], list[TokenScores]] | None = None
    """The scores of the prompts, if they are to be repeated with log-probabilities."""


def prepared(run: Served, asked: Completion, limits: Limits) -> Prepared:
    """The jobs of a request, and where what comes of them is collected."""
    stepper, tokeniser = run.writer
    given, n = _texts_of(asked), asked.n or 1
    if n > limits.samples:
        raise wrong("n", f"n={n} is more than the {limits.samples} texts there may be")
    if not 0 < len(given) <= limits.prompts:
        raise wrong("prompt", f"{len(given)} prompts were given; 1 to {limits.prompts} may be")
    stops = [asked.stop] if isinstance(asked.stop, str) else list(asked.stop or ())
    if len(stops) > 4 or not all(stops) or max(map(len, stops), default=0) > 1000:
        raise wrong("stop", "stop must be at most 4 texts of 1 to 1,000 characters")
    context = stepper.context_limit if isinstance(stepper, Bounded) else limits.tokens
    how, prompts = policy(asked), []
    scored = asked.echo and asked.logprobs is not None
    for number, each in enumerate(given):
        tokens = _numbered(each, tokeniser, limits, run.special)
        most = _fitting(len(tokens), asked, context)
        request = GenerationRequest(
            policy=how,
            max_tokens=max(1, most),
            samples=n,
            alternatives=asked.logprobs,
            first=number,
            stop=run.ends,
        )
        prompts.append(Prompt(tokens, request))
    echoes = [each if isinstance(each, str) else tokeniser.decode(each) for each in given]
    choices = [
        CompletionText(number * n + sample, echoes[number] if asked.echo else "")
        for number in range(len(given))
        for sample in range(n)
    ]
    read = sum(len(prompt.tokens) for prompt in prompts)
    longest = max(len(each.tokens) + (each.request.max_tokens or 0) for each in prompts)
    kept = run.state_size.of(longest) * n * len(prompts)
    if kept > limits.state_bytes and n * len(prompts) > 1:
        raise wrong(
            "n" if n > 1 else "prompt",
            f"{n * len(prompts)} texts of up to {longest:,} tokens are too many at once for this "
            f"model: they keep {kept:,} bytes, and {limits.state_bytes:,} are allowed; give fewer "
            "prompts, a smaller n, or smaller max_tokens",
            code="too_much_work",
        )
    completed = Completed(asked.model, n, choices, tokeniser, read)
    scoring = _scoring(run, prompts, asked, limits) if scored else None
    if asked.max_tokens == 0:
        for choice in choices:
            choice.reason = "length"
        return Prepared(None, completed, scoring)
    job = Writing(run.name, prompts, stops, patient=not asked.stream, state_bytes=kept)
    return Prepared(job, completed, scoring)


_MOST_SCORES = 2**26
"""Tokens times vocabulary of one prompt whose most probable tokens are asked for."""


def _scoring(
    run: Served, prompts: Sequence[Prompt], asked: Completion, limits: Limits
) -> Asking[Sequence[Sequence[int]], list[TokenScores]]:
    """The job that scores the tokens of prompts."""
    task, model, alternatives = run.opened, run.trained, asked.logprobs or 0
    if not isinstance(task, ScoresTokens):
        raise run.unsupported("log-probabilities of the prompt")
    rows = [prompt.tokens for prompt in prompts]
    longest = max(map(len, rows))
    if alternatives and longest * run.writer[1].vocabulary > _MOST_SCORES:
        raise wrong(
            "logprobs",
            f"the most probable tokens at {longest:,} places are too many to compute: give a "
            "shorter prompt, or logprobs=0 for those of the prompt alone",
            code="too_much_work",
        )

    def work(questions: Sequence[Sequence[Sequence[int]]]) -> list[list[TokenScores]]:
        found = []
        for each in questions:
            some = []
            for tokens in each:
                between_steps()
                some.append(task.token_scores(model, tokens, alternatives))
            found.append(some)
        return found

    return Asking(run.name, object(), rows, work, work_size=sum(map(len, rows)))


def _numbered(
    text: str | list[int], tokeniser: Tokeniser, limits: Limits, special: bool
) -> list[int]:
    """The tokens of a prompt; for an empty one a line's end, after which anything may begin."""
    if isinstance(text, str):
        if len(text) > limits.characters:
            raise too_long(len(text), limits.characters, "prompt")
        encode = tokeniser.encode_with_specials if special else tokeniser.encode_prompt
        return encode(text or "\n") or [tokeniser.eos]
    for token in text:
        if token >= tokeniser.vocabulary:
            raise wrong(
                "prompt",
                f"token {token} is not in the vocabulary, which goes from 0 to "
                f"{tokeniser.vocabulary - 1}",
            )
    return text or [tokeniser.eos]


def _fitting(length: int, asked: Completion, context: int) -> int:
    """How many tokens to write; prompt and answer must fit the context."""
    room = context - length
    most = asked.max_tokens
    if "max_tokens" not in asked.model_fields_set or most is None:
        most = min(16, room)
    if (most < 1 and asked.max_tokens != 0) or most > room:
        raise wrong(
            "prompt" if room < 1 else "max_tokens",
            f"the prompt has {length:,} tokens and max_tokens is {max(most, 1):,}; together they "
            f"may be {context:,}",
            code="context_length_exceeded",
        )
    return most


@dataclass
class CompletionText:
    """One text as it comes."""

    index: int
    pending: str
    """What was not yet handed out: at first the prompt, if it is to be repeated."""
    text: str = ""
    """What was handed out."""
    reason: str | None = None
    tokens: list[str] = field(default_factory=list)
    logs: list[float | None] = field(default_factory=list)
    tops: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def push(self, piece: TextPiece, tokeniser: Tokeniser) -> None:
        """One more token."""
        if piece.log_probability is not None:
            self.tokens.append(tokeniser.decode([piece.token]))
            self.logs.append(_finite(piece.log_probability))
            self.offsets.append(len(self.text) + len(self.pending))
            tops: dict[str, float] = {}
            for token, log in piece.alternatives or ():
                tops.setdefault(tokeniser.decode([token]), _finite(log))
            self.tops.append(tops)
        self.pending += piece.text
        self.reason = piece.reason

    def add_prompt(self, tokens: Sequence[int], scores: TokenScores, tokeniser: Tokeniser) -> None:
        """The scores of the prompt, which is repeated."""
        spans = tokeniser.offsets(self.pending)
        if len(spans) != len(tokens):
            ends = accumulate(len(tokeniser.decode([token])) for token in tokens)
            spans = [(end, end) for end in (0, *ends)][: len(tokens)]
        self.tokens = [tokeniser.decode([token]) for token in tokens]
        self.logs = [None if log is None else _finite(log) for log in scores.logs]
        self.tops = [
            None if some is None else {tokeniser.decode([t]): _finite(log) for t, log in some}
            for some in scores.alternatives
        ]
        self.offsets = [begin for begin, _ in spans]

    def taken(self) -> dict[str, object]:
        """What is new since the last time, as a client reads it."""
        text, self.pending = self.pending, ""
        self.text += text
        logprobs = None
        if self.tokens:
            logprobs = {
                "tokens": self.tokens,
                "token_logprobs": self.logs,
                "top_logprobs": self.tops if any(self.tops) else None,
                "text_offset": self.offsets,
            }
            self.tokens, self.logs, self.tops, self.offsets = [], [], [], []
        return {
            "index": self.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": self.reason,
        }


@dataclass
class Completed:
    """All texts of a request as they come."""

    model: str
    samples: int
    choices: list[CompletionText]
    tokeniser: Tokeniser
    read: int
    written: int = 0
    id: str = field(default_factory=lambda: f"cmpl-{uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def add_scores(self, prompts: Sequence[Sequence[int]], scores: Sequence[TokenScores]) -> None:
        """The scores of all prompts."""
        for choice in self.choices:
            number = choice.index // self.samples
            choice.add_prompt(prompts[number], scores[number], self.tokeniser)

    @property
    def whole(self) -> bool:
        """Have all ended?"""
        return all(choice.reason for choice in self.choices)

    def push(self, piece: TextPiece) -> CompletionText:
        """One more token of one of them."""
        choice = self.choices[piece.row.prompt * self.samples + piece.row.sample]
        choice.push(piece, self.tokeniser)
        self.written += piece.token != NO_TOKEN
        return choice

    def form(self, choices: Sequence[CompletionText], usage: bool) -> dict[str, object]:
        """What is new of these choices."""
        made: dict[str, object] = {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice.taken() for choice in choices],
        }
        if usage:
            made["usage"] = {
                "prompt_tokens": self.read,
                "completion_tokens": self.written,
                "total_tokens": self.read + self.written,
            }
        return made


async def collected(job: Writing | None, completed: Completed) -> dict[str, object]:
    """The whole answer."""
    while job is not None and not completed.whole:
        for piece in _checked(await job.pieces.get()):
            completed.push(piece)
    return completed.form(completed.choices, usage=True)


async def streamed(job: Writing | None, completed: Completed, usage: bool) -> AsyncIterator[str]:
    """Events as they come, several tokens in one if they came faster than they were taken."""
    try:
        for choice in completed.choices if job is None else ():
            yield _event(completed.form([choice], usage=False))
        while job is not None and not completed.whole:
            pieces = _checked(await job.pieces.get())
            while not job.pieces.empty():
                pieces += _checked(job.pieces.get_nowait())
            new = {choice.index: choice for choice in map(completed.push, pieces)}
            for choice in new.values():  # clients read the first choice of an event
                if choice.pending or choice.tokens or choice.reason:
                    yield _event(completed.form([choice], usage=False))
        if usage:
            yield _event(completed.form([], usage=True))
        yield "data: [DONE]\n\n"
    except Refused as refused:
        yield _event(refused.body())


def _checked(pieces: list[TextPiece] | BaseException) -> list[TextPiece]:
    """Pieces; if something went wrong instead, that is raised."""
    if isinstance(pieces, Refused):
        raise pieces
    if isinstance(pieces, BaseException):
        raise Refused(500, "the model failed; the server's log says more", code="failed")
    return pieces


def _event(made: Mapping[str, object]) -> str:
    """One event of a stream, in ASCII."""
    return f"data: {json.dumps(made, separators=(',', ':'))}\n\n"


def _finite(log: float) -> float:
    """A number that JSON has.

    >>> _finite(float("-inf"))
    -9999.0
    """
    return log if isfinite(log) else _NEVER
