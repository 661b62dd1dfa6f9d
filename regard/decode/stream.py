"""Generation token by token for a batch of rows, with any Stepper.

Finished rows leave the batch, so that the model computes only the others. The text of a row does
not depend on the other rows.

>>> import torch
>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[tokens + 1], self
>>> prompts = torch.tensor([[4], [1]])
>>> request = GenerationRequest(max_tokens=3, stop={6})
>>> for step in Stream(Next(), {"tokens": prompts}, prompts, request):
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
from regard.decode.policy import Greedy, Policy, SampleId

Reason = Literal["stop", "length"]
"""Why a row ended: at a stop token or stop string, or at its maximum length."""

Alternatives = list[tuple[int, float]]
"""The most likely tokens of a step and their log-probabilities, in descending order."""

_GREEDY = Greedy()


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """How to generate: the policy, the length and the stop tokens."""

    policy: Policy = _GREEDY
    """How each token is chosen: Greedy() or Sampling()."""
    max_tokens: int | None = None
    """The maximum number of tokens after the prompt; None fills the model's context."""
    stop: Collection[int] = ()
    """Tokens that end a row; a stop token is the last token of its row."""
    samples: int = 1
    """The number of texts for each prompt."""
    alternatives: int | None = None
    """Return the log-probability of each token, and this many of the most likely tokens at each
    step with theirs, by the model before any rule. None computes neither, which saves a pass over
    the logits.
    """
    max_rows: int = 64
    """The maximum number of rows in a batch."""
    first: int = 0
    """The number of the first prompt. With it, prompts in several calls are sampled as in one."""
    device: torch.device | str = "cpu"
    """The device of the model."""

    def __post_init__(self) -> None:
        positive("samples", self.samples)
        positive("max_rows", self.max_rows)
        if self.max_tokens is not None:
            positive("max_tokens", self.max_tokens)
        if self.alternatives is not None and self.alternatives < 0:
            raise UserError(f"alternatives={self.alternatives} must be 0 or more, or None")


@dataclass(frozen=True)
class StreamStep:
    """One token of every unfinished row; all lists are in the order of `rows`."""

    rows: list[SampleId]
    tokens: list[int]
    reasons: list[Reason | None]
    """Why a row ended with this token; None if it did not."""
    log_probabilities: list[float] | None = None
    alternatives: list[Alternatives] | None = None


class Stream(Generic[State]):
    """An iterator over steps, one per token, until all rows have ended.

    `written` has the tokens before the first step: prompts of equal length, or the token that
    begins a translation. The model should be in eval mode; dropout stays active otherwise.
    """

    def __init__(
        self,
        stepper: Stepper[State],
        source: Batch,
        written: Int[Tensor, "B T"],
        request: GenerationRequest,
        *,
        prompts: Sequence[int] | None = None,
    ) -> None:
        if not written.numel():
            raise UserError(f"prompts [batch, tokens] of {list(written.shape)} are empty")
        numbers = range(len(written)) if prompts is None else prompts
        self.rows = [
            SampleId(each, sample) for each in numbers for sample in range(request.samples)
        ]
        """The unfinished rows, in the order of the next step."""
        self._gone: set[SampleId] = set()
        self._stepper, self._request, self._stop = stepper, request, frozenset(request.stop)
        self._rules, self._chooser = request.policy.rules, request.policy.begin(self.rows)
        self._begun, self._count = written.shape[1], 0
        self._most = check_max_tokens(stepper, self._begun, request.max_tokens)
        with torch.inference_mode():
            self._state = stepper.start(source)
            if request.samples > 1:
                each = torch.arange(len(written), device=written.device)
                places = each.repeat_interleave(request.samples)
                self._state, written = self._state.select(places), written[places]
            self._tokens = written[:, -1]  # [B]
            self._past = written  # [B,T]; extended only if there are rules, which need it

    def __iter__(self) -> Iterator[StreamStep]:
        return self

    def __next__(self) -> StreamStep:
        """The next token of every row."""
        with torch.inference_mode():
            self._remove_finished()
            if not self.rows:
                raise StopIteration
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._check_vocabulary(logits.shape[1])
            self._tokens = self._choose_tokens(logits)  # [B]
            tokens: list[int] = self._tokens.tolist()
            logs, others = self._log_probabilities(logits)
        self._count += 1
        length: Reason | None = "length" if self._count == self._most else None
        reasons: list[Reason | None] = ["stop" if t in self._stop else length for t in tokens]
        rows = self.rows
        self.leave(row for row, reason in zip(rows, reasons, strict=True) if reason)
        return StreamStep(rows, tokens, reasons, logs, others)

    def leave(self, rows: Iterable[SampleId]) -> None:
        """Remove these rows from the next step."""
        self._gone.update(rows)

    def _remove_finished(self) -> None:
        """Remove the rows that have ended."""
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

    def _choose_tokens(self, logits: Tensor) -> Tensor:
        """The next token of each row, after the rules."""
        ruled = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B,V]
        now = self._begun + self._count
        for rule in self._rules:
            ruled = rule(ruled, self._past[:, :now])
        highest: list[float] = ruled.amax(-1).tolist()  # nan if any logit is nan
        if not all(map(isfinite, highest)):
            row = self.rows[[isfinite(each) for each in highest].index(False)]
            raise non_finite_logits_error(f"prompt {row.prompt}", now)
        tokens = self._chooser.choose(ruled)
        if self._rules:
            if self._past.shape[1] == now:  # doubled, so that it is rarely copied
                self._past = F.pad(self._past, (0, now))
            self._past[:, now] = tokens
        return tokens

    def _log_probabilities(
        self, logits: Tensor
    ) -> tuple[list[float] | None, list[Alternatives] | None]:
        """The model's log-probabilities of the chosen and of the most likely tokens."""
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
        """Check stop tokens and alternatives; the first logits show the size of the vocabulary."""
        for token in self._stop:
            if not 0 <= token < size:
                raise UserError(
                    f"stop token {token} is not in the vocabulary, which goes from 0 to {size - 1}"
                )
        count = self._request.alternatives or 0
        if count > size:
            raise UserError(
                f"alternatives={count} is more than the {size} tokens of the vocabulary"
            )


def non_finite_logits_error(row: str, count: int) -> UserError:
    """The error for logits that are not finite, after `count` tokens.

    >>> print(non_finite_logits_error("prompt 2", 5))
    prompt 2: the model's logits after 5 tokens are not finite; it has diverged, or its weights are
    damaged
    """
    return UserError(
        f"{row}: the model's logits after {count} tokens are not finite; "
        "it has diverged, or its weights are damaged"
    )


def check_max_tokens(stepper: object, length: int, wanted: int | None) -> int:
    """The number of tokens to generate after a prompt; a UserError if they do not fit.

    >>> check_max_tokens(object(), 3, 100)
    100
    """
    if not isinstance(stepper, Bounded):
        if wanted is None:
            raise UserError("max_tokens is required: the context of this model has no limit")
        return wanted
    context = stepper.context_limit
    fits = context - length + 1  # the last generated token is not an input of the model
    if fits < 1:
        raise UserError(f"the prompt has {length} tokens, but the context only {context}")
    if wanted is not None and wanted > fits:
        raise UserError(
            f"max_tokens={wanted} is too many: after a prompt of {length} tokens a context of "
            f"{context} leaves {fits}"
        )
    return fits if wanted is None else wanted
