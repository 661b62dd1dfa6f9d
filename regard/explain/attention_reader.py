"""Attended: a model of the package, or any whose attention is an Attend, as the tests ask it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Look, intervene, record
from regard.attention.tape import sites_of
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.explain.frozen import held
from regard.explain.head_layers import Stack
from regard.explain.reader import Read, Reader

_PADS = {"parts": -1}
"""What stands at padding, where it is not zero (data/text/encoding.py)."""

_Place = Callable[[Batch], Int[Tensor, "B"]]
"""The position whose prediction is judged, for each row of a batch."""


class Attended(Reader):
    """One site of a model.

    `predict` turns a batch into logits `[B,C]`. Of a site with several heads or queries, one may be
    chosen, a query by its number or by where the prediction stands; without a choice weights are
    the mean, and new ones are given to all.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str,
        embedding: nn.Module,
        predict: Callable[[Batch], Tensor],
        *,
        head: int | None = None,
        query: int | _Place | None = None,
        tokens: str = "tokens",
        lengths: str = "lengths",
        special: Collection[int] = (),
        grouped: str | None = None,
        along: Collection[str] | None = None,
        only: Callable[[Batch], Tensor] | None = None,
        stack: Stack | None = None,
    ) -> None:
        choose("site", site, sites_of(model))
        self.model, self.site, self.embedding, self.predict = model, site, embedding, predict
        self.head, self.query, self.tokens, self.lengths = head, query, tokens, lengths
        self.special = tuple(special)
        """Tokens that every text has, such as one that ends it: never judged, never taken out."""
        self.grouped = grouped
        """What of a batch says which tokens share a sum of one: its sentences, say."""
        self.along = along
        """What of a batch has a value for each token; if not said, whatever has its shape."""
        self.only = only
        """Which tokens may be judged, `[B,T]`; all, if not said."""
        self.stack = stack
        """The layers of self-attention under the prediction, if it has any."""

    def real(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All that is not padding."""
        places = torch.arange(batch[self.tokens].shape[1], device=batch[self.tokens].device)
        return places < batch[self.lengths][:, None]

    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All tokens that are real and not special."""
        special = torch.zeros_like(batch[self.tokens], dtype=torch.bool)
        for each in self.special:
            special |= batch[self.tokens] == each
        judged = self.real(batch) & ~special
        return judged if self.only is None else judged & self.only(batch)

    def groups(self, batch: Batch) -> Int[Tensor, "B T"]:
        """One group, or what the batch says."""
        if self.grouped is None:
            return super().groups(batch)
        return batch[self.grouped].clamp_min(0)

    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What the embedding gave while the model read."""
        seen: list[Tensor] = []

        def keep(module: nn.Module, given: tuple[object, ...], made: Tensor) -> None:
            if self._is_asked(given, batch):
                seen.append(made)

        hook = self.embedding.register_forward_hook(keep)
        try:
            self.predict(batch)
        finally:
            hook.remove()
        if not seen:
            raise UserError("the model read a text without asking its embedding")
        return seen[0]

    def _is_asked(self, given: tuple[object, ...], batch: Batch) -> bool:
        """Is it asked for these tokens? A table that two sides share is asked for others too."""
        first = given[0]
        return (
            not isinstance(first, Tensor)
            or first.is_floating_point()
            or first is batch[self.tokens]
        )

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
                stack.enter_context(self._given_instead(batch, embedded))
            if weights is not None:
                edit = self._instead(weights, batch)
                stack.enter_context(intervene(self.model, {self.site: edit}))
            tape = stack.enter_context(record(self.model, self.site))
            logits = self.predict(batch)
        calls = tape[self.site]
        own = calls[0].weights if len(calls) == 1 else tape.join(self.site)  # [B,H,Q,K]
        return Read(logits.softmax(-1), self.combined(own, batch))

    def looked(self, batch: Batch) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B T"]]:
        """Logits and weights in the graph, for whoever trains a model by where it looks."""
        own: list[Tensor] = []

        def keep(weights: Tensor, look: Look) -> Tensor:
            own.append(weights)
            return weights

        with intervene(self.model, {self.site: keep}):
            logits = self.predict(batch)
        return logits, self.combined(torch.cat(own, dim=2), batch)

    def combined(self, own: Float[Tensor, "B H Q K"], batch: Batch) -> Float[Tensor, "B T"]:
        """One weight for each token: the mean of the heads and queries that are judged."""
        tokens = self.judged(batch).shape[1]
        if own.shape[3] != tokens:
            raise UserError(
                f"site {self.site!r} looks at {own.shape[3]} things, and the text has {tokens} "
                "tokens: it cannot be judged token by token"
            )
        heads = own.mean(1) if self.head is None else own[:, self.head]  # [B,Q,K]
        rows = self.rows(batch, torch.arange(own.shape[2], device=own.device), own.shape[2])
        if self.query is None:
            rows = rows & (heads > 0).any(2)  # one that has nothing to look at has no say
        shares = rows / rows.sum(1, keepdim=True).clamp_min(1)  # [B,Q]
        return (shares[:, None].to(heads) @ heads)[:, 0]

    def rows(self, batch: Batch, positions: Tensor, queries: int) -> Bool[Tensor, "B Q"]:
        """Which queries, of those at these positions, are judged."""
        rows = len(batch[self.tokens])
        if callable(self.query):
            return positions == self.query(batch)[:, None]
        if self.query is not None:
            return (positions == self.query % queries).expand(rows, -1)
        if queries == batch[self.tokens].shape[1]:
            return self.real(batch)[:, positions]
        return torch.ones(rows, len(positions), dtype=torch.bool, device=positions.device)

    def _instead(self, weights: Tensor, batch: Batch) -> Callable[[Tensor, Look], Tensor]:
        def edit(own: Tensor, look: Look) -> Tensor:
            new = weights[:, None, None].expand_as(own).to(own.dtype)
            if self.grouped is not None:
                new = _shared_out(new, own, look)
            positions = look.first + torch.arange(own.shape[2], device=own.device)
            changed = self.rows(batch, positions, own.shape[2])[:, None].expand(own.shape[:3])
            if self.head is not None:
                heads = torch.arange(own.shape[1], device=own.device)
                changed = changed & (heads == self.head % own.shape[1])[:, None]
            return torch.where(changed[..., None], new, own)

        return edit

    def still(self, batch: Batch) -> AbstractContextManager[None]:
        """What comes before the site is computed once."""
        return held(self.model, self.site, lambda: self.predict(batch))

    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The tokens moved together; whatever else the batch has of each token goes with them."""
        keep = (keep & self.judged(batch)) | (self.real(batch) & ~self.judged(batch))
        order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)  # [B,T]; those kept come first
        counts = keep.sum(1)
        longest = max(1, int(counts.max()))
        shape, moved = keep.shape, {}
        for name, value in batch.items():
            if value.shape[:2] != shape or (self.along is not None and name not in self.along):
                moved[name] = value
                continue
            index = order.reshape(*shape, *(1,) * (value.dim() - 2)).expand_as(value)
            closed = value.gather(1, index)[:, :longest]
            real = torch.arange(longest, device=value.device) < counts[:, None]
            real = real.reshape(*real.shape, *(1,) * (value.dim() - 2))
            moved[name] = torch.where(real, closed, torch.full_like(closed, _PADS.get(name, 0)))
        return {**moved, self.lengths: counts.to(batch[self.lengths])}

    @contextmanager
    def _given_instead(self, batch: Batch, value: Tensor) -> Iterator[None]:
        """The embedding gives this for the tokens, whatever it would have given."""
        hook = self.embedding.register_forward_hook(
            lambda module, given, made: value if self._is_asked(given, batch) else made
        )
        try:
            yield
        finally:
            hook.remove()


def _shared_out(new: Tensor, own: Tensor, look: Look) -> Tensor:
    """New weights as each query may use them: those of its own keys, summing to what it had."""
    allowed = new if look.allowed is None else new * look.allowed
    total = allowed.sum(3, keepdim=True)
    return allowed / total.clamp_min(torch.finfo(new.dtype).tiny) * own.sum(3, keepdim=True)
