"""A reader: a model that predicts from texts, and whose attention can be seen and replaced.

The tests of whether attention explains a prediction ask four things of a model, and nothing else.
`Attended` answers them for any model whose attention is an Attend; for a model of your own, write a
class with these four methods (docs/audit.md shows one for plain torch.nn).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import Look, intervene, record
from regard.attention.tape import sites_of
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch


@dataclass(frozen=True)
class Read:
    """What a reader makes of some texts."""

    probabilities: Float[Tensor, "B C"]
    weights: Float[Tensor, "B T"]
    """How much it looked at each token; a row sums to one over what it may look at."""


class Reader(ABC):
    """What the tests ask of a model."""

    @abstractmethod
    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """The tokens whose weights are judged: real ones, not those that every text has."""

    @abstractmethod
    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The vectors of the tokens, before anything has mixed them."""

    @abstractmethod
    def read(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        embedded: Float[Tensor, "B T D"] | None = None,
    ) -> Read:
        """The prediction, with other weights or other vectors than its own where they are given."""

    @abstractmethod
    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The texts with only these tokens in them, closed up."""


class Attended(Reader):
    """A model of the package: one site of it, or any with the same contract.

    `predict` turns a batch into logits `[B,C]`. Of a site with several heads or queries, one may be
    chosen; without a choice weights are the mean, and new ones are given to all.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str,
        embedding: nn.Module,
        predict: Callable[[Batch], Tensor],
        *,
        head: int | None = None,
        query: int | None = None,
        tokens: str = "tokens",
        lengths: str = "lengths",
    ) -> None:
        choose("site", site, sites_of(model))
        self.model, self.site, self.embedding, self.predict = model, site, embedding, predict
        self.head, self.query, self.tokens, self.lengths = head, query, tokens, lengths

    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All tokens that are real."""
        places = torch.arange(batch[self.tokens].shape[1], device=batch[self.tokens].device)
        return places < batch[self.lengths][:, None]

    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What the embedding gave while the model read."""
        seen: list[Tensor] = []
        hook = self.embedding.register_forward_hook(lambda _, given, made: seen.append(made))
        try:
            self.predict(batch)
        finally:
            hook.remove()
        if not seen:
            raise UserError("the model read a text without asking its embedding")
        return seen[0]

    def read(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        embedded: Float[Tensor, "B T D"] | None = None,
    ) -> Read:
        """One pass, recorded; edited where that is asked for."""
        with ExitStack() as stack:
            if embedded is not None:
                stack.enter_context(given_instead(self.embedding, embedded))
            if weights is not None:
                edit = self._instead(weights)
                stack.enter_context(intervene(self.model, {self.site: edit}))
            tape = stack.enter_context(record(self.model, self.site))
            logits = self.predict(batch)
        (call,) = tape[self.site]
        own = call.weights if self.head is None else call.weights[:, [self.head]]
        own = own if self.query is None else own[:, :, [self.query]]
        return Read(logits.softmax(-1), own.mean((1, 2)))

    def _instead(self, weights: Tensor) -> Callable[[Tensor, Look], Tensor]:
        def edit(own: Tensor, look: Look) -> Tensor:
            new = weights[:, None, None].expand_as(own).to(own.dtype)
            if self.head is None and self.query is None:
                return new
            changed = torch.zeros(own.shape[1:3], dtype=torch.bool, device=own.device)
            heads = slice(None) if self.head is None else self.head
            queries = slice(None) if self.query is None else self.query
            changed[heads, queries] = True
            return torch.where(changed[None, :, :, None], new, own)

        return edit

    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The tokens moved together; whatever else the batch has of each token goes with them."""
        keep = keep & self.judged(batch)
        order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)  # [B,T]; those kept come first
        counts = keep.sum(1)
        longest = max(1, int(counts.max()))
        shape, moved = keep.shape, {}
        for name, value in batch.items():
            if value.shape[:2] != shape:
                moved[name] = value
                continue
            index = order.reshape(*shape, *(1,) * (value.dim() - 2)).expand_as(value)
            closed = value.gather(1, index)[:, :longest]
            real = torch.arange(longest, device=value.device) < counts[:, None]
            real = real.reshape(*real.shape, *(1,) * (value.dim() - 2))
            moved[name] = torch.where(real, closed, torch.zeros_like(closed))
        return {**moved, self.lengths: counts.to(batch[self.lengths])}


@contextmanager
def given_instead(module: nn.Module, value: Tensor) -> Iterator[None]:
    """The module gives this value, whatever it is asked."""
    hook = module.register_forward_hook(lambda _, given, made: value)
    try:
        yield
    finally:
        hook.remove()
