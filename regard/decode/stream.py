"""Stream: some rows written one token at a time, by any model that is a Stepper.

Rows that are done leave the batch, so that the model works for the others alone. What a row writes
does not depend on which others are there.

>>> import torch
>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[tokens + 1], self
>>> prompts = torch.tensor([[4], [1]])
>>> for step in Stream(Next(), {"tokens": prompts}, prompts, Request(max_tokens=3, stop={6})):
...     print(step.tokens, step.reasons)
[5, 2] [None, None]
[6, 3] ['stop', None]
[4] ['length']
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Generic, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch, Bounded, State, Stepper
from regard.decode.greedy import Greedy
from regard.decode.policy import Policy, Row

Reason = Literal["stop", "length"]
"""Why a row ended: it wrote what it was to stop at, or it may not become longer."""

Alternatives = list[tuple[int, float]]
"""The likeliest tokens of a step with their log-probabilities, the likeliest first."""

_GREEDY = Greedy()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to write, how long and how."""

    policy: Policy = _GREEDY
    """How each token is chosen: Greedy() or Sampling()."""
    max_tokens: int | None = None
    """The most tokens to write after the prompt; None is as many as the model's context holds."""
    stop: Collection[int] = ()
    """Tokens that end a row; the one that did is the last that the row wrote."""
    samples: int = 1
    """How many texts to write for each prompt."""
    alternatives: int | None = None
    """With each token, its log-probability, and so many of the likeliest ones at that step with
    theirs: the model's own, before any rule. None is neither, which saves a pass over the logits.
    """
    at_once: int = 64
    """The most rows to write at the same time."""
    first: int = 0
    """The number of the first prompt, if it is not the first of all: prompts given in several calls
    then draw what they would draw in one.
    """
    device: torch.device | str = "cpu"
    """Where the model is."""

    def __post_init__(self) -> None:
        positive("samples", self.samples)
        positive("at_once", self.at_once)
        if self.max_tokens is not None:
            positive("max_tokens", self.max_tokens)
        if self.alternatives is not None and self.alternatives < 0:
            raise UserError(f"alternatives={self.alternatives} must be 0 or more, or None")


@dataclass(frozen=True)
class Step:
    """One token of every row that still writes; all lists are in the order of `rows`."""

    rows: list[Row]
    tokens: list[int]
    reasons: list[Reason | None]
    """Why a row ended with this token; None if it goes on."""
    log_probabilities: list[float] | None = None
    alternatives: list[Alternatives] | None = None


class Stream(Generic[State]):
    """Steps of some rows, one for each token, until all have ended.

    `written` are the tokens that are there before the first: prompts of equal length, or the one
    token that begins a translation. The model is to be in eval mode, or its dropout goes on.
    """

    def __init__(
        self,
        stepper: Stepper[State],
        source: Batch,
        written: Int[Tensor, "B T"],
        request: Request,
        *,
        prompts: Sequence[int] | None = None,
    ) -> None:
        if not written.numel():
            raise UserError(
                f"prompts [batch, tokens] of {list(written.shape)} have nothing in them"
            )
        numbers = range(len(written)) if prompts is None else prompts
        self.rows = [Row(each, sample) for each in numbers for sample in range(request.samples)]
        """Those that still write, in the order of the next step."""
        self._gone: set[Row] = set()
        self._stepper, self._request, self._stop = stepper, request, frozenset(request.stop)
        self._rules, self._chooser = request.policy.rules, request.policy.begin(self.rows)
        self._begun, self._count = written.shape[1], 0
        self._most = fitting(stepper, self._begun, request.max_tokens)
        with torch.inference_mode():
            self._state = stepper.start(source)
            if request.samples > 1:
                each = torch.arange(len(written), device=written.device)
                places = each.repeat_interleave(request.samples)
                self._state, written = self._state.select(places), written[places]
            self._tokens = written[:, -1]  # [B]
            self._past = written  # [B,T]; only rules look back, so only for them is it kept up

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        """The next token of every row."""
        with torch.inference_mode():
            self._part()
            if not self.rows:
                raise StopIteration
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._check_vocabulary(logits.shape[1])
            self._tokens = self._chosen(logits)  # [B]
            tokens: list[int] = self._tokens.tolist()
            logs, others = self._likely(logits)
        self._count += 1
        length: Reason | None = "length" if self._count == self._most else None
        reasons: list[Reason | None] = ["stop" if t in self._stop else length for t in tokens]
        rows = self.rows
        self.leave(row for row, reason in zip(rows, reasons, strict=True) if reason)
        return Step(rows, tokens, reasons, logs, others)

    def leave(self, rows: Iterable[Row]) -> None:
        """End these rows: they are not in the next step."""
        self._gone.update(rows)

    def _part(self) -> None:
        """Go on without the rows that have left."""
        if not self._gone:
            return
        places = [place for place, row in enumerate(self.rows) if row not in self._gone]
        self.rows = [self.rows[place] for place in places]
        self._gone.clear()
        if places:
            kept = torch.tensor(places, device=self._tokens.device)
            self._state = self._state.select(kept)
            self._tokens, self._past = self._tokens[kept], self._past[kept]
            self._chooser.keep(places)

    def _chosen(self, logits: Tensor) -> Tensor:
        """The next token of each row, after the rules."""
        ruled = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B,V]
        now = self._begun + self._count
        for rule in self._rules:
            ruled = rule(ruled, self._past[:, :now])
        highest: list[float] = ruled.amax(-1).tolist()  # not a number if a single logit is not
        if not all(map(isfinite, highest)):
            row = self.rows[[isfinite(each) for each in highest].index(False)]
            raise diverged(f"prompt {row.prompt}", now)
        tokens = self._chooser.choose(ruled)
        if self._rules:
            if self._past.shape[1] == now:  # twice the room, so that it is seldom moved
                self._past = F.pad(self._past, (0, now))
            self._past[:, now] = tokens
        return tokens

    def _likely(self, logits: Tensor) -> tuple[list[float] | None, list[Alternatives] | None]:
        """The model's own log-probabilities of the chosen tokens and of the likeliest."""
        count = self._request.alternatives
        if count is None:
            return None, None
        logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)  # [B,V]
        chosen: list[float] = logs.gather(1, self._tokens[:, None]).squeeze(1).tolist()
        if not count:
            return chosen, None
        best, tokens = logs.topk(count)  # [B,C]
        pairs = zip(tokens.tolist(), best.tolist(), strict=True)
        return chosen, [list(zip(*pair, strict=True)) for pair in pairs]

    def _check_vocabulary(self, size: int) -> None:
        """Refuse what this vocabulary cannot give; its size shows in the first logits."""
        for token in self._stop:
            if not 0 <= token < size:
                raise UserError(
                    f"stop token {token} is not in the vocabulary, which goes from 0 to {size - 1}"
                )
        count = self._request.alternatives or 0
        if count > size:
            raise UserError(f"alternatives={count} is more than the {size} tokens there are")


def diverged(row: str, count: int) -> UserError:
    """The error for logits from which nothing can be chosen, after so many tokens.

    >>> print(diverged("prompt 2", 5))
    prompt 2: the model's logits after 5 tokens are not finite; it has diverged, or its weights are
    damaged
    """
    return UserError(
        f"{row}: the model's logits after {count} tokens are not finite; "
        "it has diverged, or its weights are damaged"
    )


def fitting(stepper: object, length: int, wanted: int | None) -> int:
    """How many tokens to write after a prompt of that length; an error if the model cannot.

    >>> fitting(object(), 3, 100)
    100
    """
    if not isinstance(stepper, Bounded):
        if wanted is None:
            raise UserError("max_tokens must be given: this model says of no text that it is full")
        return wanted
    context = stepper.context_limit
    fits = context - length + 1  # the last token that is written is never read
    if fits < 1:
        raise UserError(f"the prompt has {length} tokens, but the context only {context}")
    if wanted is not None and wanted > fits:
        raise UserError(
            f"max_tokens={wanted} is too many: after a prompt of {length} tokens a context of "
            f"{context} leaves {fits}"
        )
    return fits if wanted is None else wanted
