"""Translators that are as small as they can be, and a beam search that is as plain as it can be."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from regard.core.protocols import Batch
from regard.decode import LENGTH_PENALTIES, Beam, Hypothesis

BOS, EOS = 0, 1
Tokens = tuple[int, ...]


NUMBERS = [3, 14, 15, 9, 2, 6, 5]
"""Sentences."""


def beam(**given: int | float | str | bool) -> Beam:
    """Settings for translators; lengths that do not depend on the source unless they are given."""
    return Beam(**{"bos": BOS, "eos": EOS, "max_per_source": 0, **given})  # type: ignore[arg-type]


def tokens_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[each.tokens for each in hypotheses] for hypotheses in found]


def sources(numbers: Sequence[int], lengths: Sequence[int] | None = None) -> Batch:
    """A batch of sentences that are numbers; what a translator writes depends on them alone."""
    sizes = [1] * len(numbers) if lengths is None else list(lengths)
    return {"source": torch.tensor(numbers)[:, None], "source_lengths": torch.tensor(sizes)}


@dataclass(frozen=True)
class Reading:
    """The sentence that each row translates, and what it has read so far."""

    source: Tensor
    tokens: Tensor

    def select(self, rows: Tensor) -> "Reading":
        return Reading(self.source[rows], self.tokens[rows])


@dataclass
class Translator:
    """Logits that depend on the sentence and on every token, in its order; as unlike as can be.

    It notes what each step read and what it said.
    """

    vocabulary: int = 5
    spread: float = 3.0
    calls: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def start(self, source: Batch) -> Reading:
        number = source["source"][:, 0].double()
        return Reading(number, torch.zeros(len(number), 0, dtype=torch.int64))

    def step(self, tokens: Tensor, state: Reading) -> tuple[Tensor, Reading]:
        read = torch.cat((state.tokens, tokens[:, None]), 1)
        logits = self.after(state.source, read)
        self.calls.append((tokens.clone(), logits))
        return logits, Reading(state.source, read)

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        weights = torch.arange(1, read.shape[1] + 1, dtype=torch.float64).sqrt()
        seeds = ((read + 1.3) * weights).sum(1, keepdim=True) + 7.7 * source[:, None]
        waves = torch.sin(seeds * torch.arange(2, self.vocabulary + 2) * 1.7 + seeds)
        return (self.spread * waves).float()

    def logs(self, number: int, tokens: Tokens) -> Tensor:
        """Log-probabilities of what comes after these tokens, from the beginning."""
        read = torch.tensor([[BOS, *tokens]])
        return self.after(torch.tensor([float(number)]).double(), read)[0].log_softmax(-1)

    def weights(self, state: Reading) -> Tensor:
        """Where each row looks in a source of three tokens, at its last step."""
        seeds = (state.tokens.double() + 1).cumsum(1)[:, -1:] + state.source[:, None]
        return torch.sin(seeds * torch.arange(1, 4)).exp().float().softmax(-1)

    def looks(self, number: int, tokens: Tokens) -> Tensor:
        """The sums of those weights over all steps of a hypothesis."""
        read = torch.tensor([[BOS, *tokens]])
        source = torch.tensor([float(number)]).double()
        steps = [self.weights(Reading(source, read[:, : n + 1])) for n in range(len(tokens) + 1)]
        return torch.cat(steps).sum(0)


def all_targets(vocabulary: int, most: int) -> Iterator[Tokens]:
    """Everything that can be written with so many tokens."""
    others = [token for token in range(vocabulary) if token != EOS]
    for length in range(most + 1):
        yield from product(others, repeat=length)


def log_probability(model: Translator, number: int, tokens: Tokens) -> float:
    """Of the tokens and the end, one token after the other."""
    steps = enumerate((*tokens, EOS))
    return sum(float(model.logs(number, tokens[:at])[token]) for at, token in steps)


@dataclass
class Plain:
    """Beam search of one sentence, written down without any regard for speed."""

    logs: Callable[[Tokens], Tensor]
    beam: Beam
    most: int
    prefix: Tokens = ()

    def __post_init__(self) -> None:
        self.known: dict[Tokens, list[float]] = {}

    def penalty(self, length: int) -> float:
        return LENGTH_PENALTIES[self.beam.length_penalty](length, self.beam.alpha)

    def chances(self, tokens: Tokens) -> dict[int, float]:
        """The tokens that may come next, with their log-probabilities."""
        if tokens not in self.known:
            self.known[tokens] = self.logs(tokens).tolist()
        every, done = dict(enumerate(self.known[tokens])), len(tokens)
        if done < len(self.prefix):
            return {self.prefix[done]: every[self.prefix[done]]}
        if done == self.most:
            return {EOS: every[EOS]}
        if done < self.beam.min_length:
            del every[EOS]
        size = self.beam.no_repeat
        there = {tokens[at : at + size] for at in range(done - size + 1)} if size else set()
        last = tokens[done - size + 1 :]
        return {token: log for token, log in every.items() if (*last, token) not in there}

    def search(self) -> list[tuple[Tokens, float]]:
        """The best hypotheses with their scores."""
        groups, size = self.beam.groups, self.beam.width // self.beam.groups
        wanted = -(-self.beam.n_best // groups)
        live: list[list[tuple[Tokens, float]]] = [[((), 0.0)]] * groups
        ended: list[list[tuple[Tokens, float]]] = [[] for _ in range(groups)]
        for _ in range(self.most + 1):
            taken: Counter[int] = Counter()
            for group in range(groups):
                ranked = self.ranked(live[group], taken)[: 2 * size]
                for tokens, log in ranked[:size]:
                    if tokens[-1] == EOS:
                        ended[group].append((tokens[:-1], log / self.penalty(len(tokens))))
                live[group] = [each for each in ranked if each[0][-1] != EOS][:size]
                taken.update(tokens[-1] for tokens, _ in live[group])
                scores = sorted((score for _, score in ended[group]), reverse=True)
                most = max((log for _, log in live[group]), default=-torch.inf)
                enough = len(scores) >= wanted
                if enough and scores[wanted - 1] >= most / self.penalty(self.most + 1):
                    live[group] = []
                if self.beam.early and len(scores) >= size:
                    live[group] = []
        best = [sorted(each, key=lambda end: -end[1])[:wanted] for each in ended]
        joined = {tokens: score for each in best for tokens, score in each}
        return sorted(joined.items(), key=lambda end: -end[1])[: self.beam.n_best]

    def ranked(
        self, live: list[tuple[Tokens, float]], taken: Counter[int]
    ) -> list[tuple[Tokens, float]]:
        """All that a group can go on with, the best first, and those after what others took."""
        found = [
            (log + more - self.beam.diversity * taken[token], (*tokens, token), log + more)
            for tokens, log in live
            for token, more in self.chances(tokens).items()
        ]
        return [(tokens, log) for _, tokens, log in sorted(found, key=lambda each: -each[0])]
