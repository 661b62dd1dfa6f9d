"""One site of a model under audit, for any model whose attention is an `Attend`.

    subject = Subject(predict=lambda model, batch: model(batch).logits)
    AuditedSite(model, "pool", subject, embedding=model.words)

The subject (`regard.tasks.abilities`) names the tensors of a batch, and which positions are judged.
Gradients are those of the output of the embedding, for integer inputs. Floating inputs are vectors
themselves: patches of an image, frames of a sound.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Look, intervene, record
from regard.attention.tape import sites_of
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.explain.audited_model import AuditedModel, WeightedPrediction
from regard.explain.head_layers import LayerStack
from regard.explain.replay import replay_before
from regard.tasks.abilities import Subject


class AuditedSite(AuditedModel):
    """One site of a model.

    `head` chooses one of its heads and `query` one of its queries; otherwise weights are the mean
    over heads and queries, and other weights replace those of all. By default the query is the one
    that the subject names for the query axis of the site. `unit` is the axis of units, such as
    sentences, within which weights sum to a constant. Only the segments in `segments` are judged,
    if it is given. `layers` are the layers of self-attention below the prediction.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str,
        subject: Subject,
        *,
        embedding: nn.Module | None = None,
        head: int | None = None,
        query: int | None = None,
        unit: str | None = None,
        segments: tuple[int, ...] | None = None,
        layers: LayerStack | None = None,
    ) -> None:
        self.query_axis, self.key_axis = choose("site", site, sites_of(model)).axes
        self.model, self.site, self.subject, self.embedding = model, site, subject, embedding
        self.head, self.query, self.unit, self.segments = head, query, unit, segments
        self.layers = layers

    def logits(self, batch: Batch) -> Float[Tensor, "B C"]:
        """The logits of the predictions."""
        return self.subject.predict(self.model, batch)

    # positions ----------------------------------------------------------------------------------

    def real(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All positions that are not padding."""
        if self.subject.real is not None:
            return self.subject.real(batch)
        inputs = batch[self.subject.inputs]
        if self.subject.lengths not in batch:
            return torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        places = torch.arange(inputs.shape[1], device=inputs.device)
        return places < batch[self.subject.lengths][:, None]

    def positions(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All that are real, not special, and that the subject and the segments allow."""
        found = self.real(batch)
        for token in self.subject.special:
            found = found & (batch[self.subject.inputs] != token)
        if self.subject.judged is not None:
            found = found & self.subject.judged(batch)
        if self.segments is None or self.subject.segments is None:
            return found
        own = self.subject.segments(batch)
        return found & torch.isin(own, torch.tensor(self.segments, device=own.device))

    def groups(self, batch: Batch) -> Int[Tensor, "B T"]:
        """The units of the positions where each has its own query, else one group."""
        if self.unit is None:
            return super().groups(batch)
        return self.subject.units[self.unit](batch).clamp_min(0)

    def select(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """Move the positions that stay together, with all tensors that belong to them."""
        positions, subject = self.positions(batch), self.subject
        keep = (keep & positions) | (self.real(batch) & ~positions)
        if subject.keep is not None:
            return subject.keep(batch, keep)
        order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)  # [B,T]; those that stay first
        counts = keep.sum(1)
        longest = max(1, int(counts.max()))
        found = dict(batch)
        for name, value in batch.items():
            if name in subject.pointers:
                pointers = value[:, None] if value.dim() == 1 else value
                found[name] = (keep.cumsum(1).gather(1, pointers) - 1).view_as(value)
            elif value.shape[:2] == keep.shape and (subject.along is None or name in subject.along):
                found[name] = _select_rows(value, order, counts, longest, subject.padding.get(name))
        real = torch.arange(longest, device=counts.device) < counts[:, None]
        if subject.lengths not in batch and not bool(real.all()):
            raise UserError(
                "positions cannot be removed from a batch without lengths; give the subject `keep`"
            )
        if subject.lengths in batch:
            found[subject.lengths] = counts.to(batch[subject.lengths])
        return found

    # vectors ------------------------------------------------------------------------------------

    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The output of the embedding, or the floating inputs themselves."""
        if self.embedding is None:
            return self._floating(batch).flatten(2)
        outputs: list[Tensor] = []

        def keep(module: nn.Module, given: tuple[object, ...], output: Tensor) -> None:
            if self._is_for_inputs(given, batch):
                outputs.append(output)

        hook = self.embedding.register_forward_hook(keep)
        try:
            self.logits(batch)
        finally:
            hook.remove()
        if not outputs:
            raise UserError(
                f"{type(self.model).__name__} predicts without its {type(self.embedding).__name__}"
            )
        return outputs[0]

    def _floating(self, batch: Batch) -> Float[Tensor, "B T ..."]:
        """The inputs, if they are vectors."""
        inputs = batch[self.subject.inputs]
        if not inputs.is_floating_point() or inputs.dim() < 3:
            raise UserError(
                f"{self.subject.inputs!r} is a {inputs.dtype} tensor of {list(inputs.shape)}: name "
                "the module that returns vectors [batch, positions, width] of it, embedding="
            )
        return inputs

    def _is_for_inputs(self, given: tuple[object, ...], batch: Batch) -> bool:
        """Is this call for the judged inputs? An encoder and a decoder may share a table."""
        first = given[0]
        return (
            not isinstance(first, Tensor)
            or first.is_floating_point()
            or first is batch[self.subject.inputs]
        )

    @contextmanager
    def _replace_vectors(self, embedding: nn.Module, batch: Batch, value: Tensor) -> Iterator[None]:
        """Let the embedding return this for the inputs."""
        hook = embedding.register_forward_hook(
            lambda module, given, output: value if self._is_for_inputs(given, batch) else output
        )
        try:
            yield
        finally:
            hook.remove()

    # predictions --------------------------------------------------------------------------------

    def predict(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        vectors: Float[Tensor, "B T D"] | None = None,
    ) -> WeightedPrediction:
        """One pass with the site recorded, and edited where other weights are given."""
        with ExitStack() as stack:
            if weights is not None:
                edit = self._replacement(weights, batch)
                stack.enter_context(intervene(self.model, {self.site: edit}))
            tape = stack.enter_context(record(self.model, self.site))
            if vectors is None:
                logits = self.logits(batch)
            elif self.embedding is None:
                inputs = vectors.view_as(self._floating(batch))
                logits = self.logits({**batch, self.subject.inputs: inputs})
            else:
                stack.enter_context(self._replace_vectors(self.embedding, batch, vectors))
                logits = self.logits(batch)
        calls = tape[self.site]
        own = calls[0].weights if len(calls) == 1 else tape.join(self.site)  # [B,H,Q,K]
        return WeightedPrediction(logits.softmax(-1), self.combine(own, batch))

    def differentiable(self, batch: Batch) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B T"]]:
        """Logits and weights in the graph, for a loss that depends on the weights."""
        own: list[Tensor] = []

        def keep(weights: Tensor, look: Look) -> Tensor:
            own.append(weights)
            return weights

        with intervene(self.model, {self.site: keep}):
            logits = self.logits(batch)
        return logits, self.combine(torch.cat(own, dim=2), batch)

    def combine(self, own: Float[Tensor, "B H Q K"], batch: Batch) -> Float[Tensor, "B T"]:
        """One weight for each position: the mean over the judged heads and queries."""
        positions = self.positions(batch).shape[1]
        if own.shape[3] != positions:
            raise UserError(
                f"site {self.site!r} has {own.shape[3]} keys ({self.key_axis}), and the examples "
                f"have {positions} positions ({self.subject.axis}): it cannot be judged by them"
            )
        heads = own.mean(1) if self.head is None else own[:, self.head]  # [B,Q,K]
        rows = self.query_rows(batch, torch.arange(own.shape[2], device=own.device), own.shape[2])
        if self.query is None and self.query_axis not in self.subject.queries:
            rows = rows & (heads > 0).any(2)  # a query without allowed keys does not count
        shares = rows / rows.sum(1, keepdim=True).clamp_min(1)  # [B,Q]
        return (shares[:, None].to(heads) @ heads)[:, 0]

    def query_rows(self, batch: Batch, places: Tensor, queries: int) -> Bool[Tensor, "B Q"]:
        """Which of the queries at these places are judged."""
        rows = len(batch[self.subject.inputs])
        if self.query is not None:
            return (places == self.query % queries).expand(rows, -1)
        if self.query_axis in self.subject.queries:
            return places == self.subject.queries[self.query_axis](batch)[:, None]
        if self.query_axis == self.key_axis:
            return self.real(batch)[:, places]
        return torch.ones(rows, len(places), dtype=torch.bool, device=places.device)

    def _replacement(self, weights: Tensor, batch: Batch) -> Callable[[Tensor, Look], Tensor]:
        """An edit that replaces the weights of the judged heads and queries."""

        def edit(own: Tensor, look: Look) -> Tensor:
            new = weights[:, None, None].expand_as(own).to(own.dtype)
            if self.unit is not None:
                new = _normalise_within_queries(new, own, look)
            places = look.first + torch.arange(own.shape[2], device=own.device)
            judged = self.query_rows(batch, places, own.shape[2])[:, None].expand(own.shape[:3])
            if self.head is not None:
                heads = torch.arange(own.shape[1], device=own.device)
                judged = judged & (heads == self.head % own.shape[1])[:, None]
            return torch.where(judged[..., None], new, own)

        return edit

    def reuse(self, batch: Batch) -> AbstractContextManager[None]:
        """Compute what comes before the site once."""
        return replay_before(self.model, self.site, lambda: self.logits(batch))


class AuditedUnits(AuditedSite):
    """A site over units, such as the sentences of a document, each of which is removed as a whole.

    `embedding` returns the vectors of the units.
    """

    def __init__(self, within: AuditedSite, unit: str, embedding: nn.Module) -> None:
        super().__init__(
            within.model, within.site, within.subject, embedding=embedding, head=within.head
        )
        self.within, self.number = within, within.subject.units[unit]

    def real(self, batch: Batch) -> Bool[Tensor, "B S"]:
        """The units that have a position."""
        own = self.number(batch)
        numbers = torch.arange(max(1, int(own.max()) + 1), device=own.device)
        return (own[:, None] == numbers[:, None]).any(2)

    def positions(self, batch: Batch) -> Bool[Tensor, "B S"]:
        """All of them."""
        return self.real(batch)

    def select(self, batch: Batch, keep: Bool[Tensor, "B S"]) -> Batch:
        """The positions of these units."""
        own = self.number(batch)
        return self.within.select(batch, keep.gather(1, own.clamp_min(0)) & (own >= 0))


def _select_rows(
    value: Tensor,
    order: Int[Tensor, "B T"],
    counts: Int[Tensor, "B"],
    longest: int,
    pad: int | None,
) -> Tensor:
    """The first positions of each row in this order, and padding after so many of them."""
    trailing = (1,) * (value.dim() - 2)
    index = order.reshape(*order.shape, *trailing).expand_as(value)
    moved = value.gather(1, index)[:, :longest]
    real = torch.arange(longest, device=value.device) < counts[:, None]
    return torch.where(
        real.reshape(*real.shape, *trailing), moved, torch.full_like(moved, pad or 0)
    )


def _normalise_within_queries(new: Tensor, own: Tensor, look: Look) -> Tensor:
    """New weights on the allowed keys of each query, with the sum that its own weights have."""
    allowed = new if look.allowed is None else new * look.allowed
    total = allowed.sum(3, keepdim=True)
    return allowed / total.clamp_min(torch.finfo(new.dtype).tiny) * own.sum(3, keepdim=True)
