"""A recurrent language model with attention to its own earlier states (Daniluk et al. 2017).

With h_i the states of the RNN, r_t = Σ α_ti h_i over the `memory` states before t, never t itself,
and both go to the output layer, p = softmax(V h_t + V W r_t + b): the softmax over [h; r], whose
half for r is factored. Any score of the table serves; the paper's is the additive one. The first
token of a text has no earlier state, and r is zero there.

The RNN runs over the whole window, fused; then one attention serves all positions. Only scores that
need the row before (location-aware, coverage) go row by row, and `location`, whose places are
counted from the oldest state in memory, so that they mean the same wherever a text is cut.

Departures: the paper has h* = tanh(W [h; r]) before the output layer (section 2.1). That layer
learns a constant first, and a small model is slow to leave it: after an epoch in the setting of the
recipe ptb-lstm its validation perplexity was 248, that of the LSTM alone 215. States of the window
before are attended to without a gradient.

>>> import torch
>>> config = AttentionRNNLM.Config(width=8, layers=1, memory=2)
>>> output = AttentionRNNLM(config, vocabulary=10)({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape, output.carry["states"].shape
(torch.Size([1, 3, 10]), torch.Size([1, 2, 8]))
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Location, Memory, Past, Score, score_class, window
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carrying, following, recent
from regard.models.language.rnn_lm import RNNLM, RecurrentState
from regard.outputs.next_token import SoftmaxOutput


class AttentionRNNLM(Carrying):
    """An RNN whose predictions also read from its earlier states."""

    class Config(RNNLM.Config):
        """What a recipe may choose: the RNN's settings, and these."""

        score: str = "additive"
        """How well an earlier state matches the present one; any of SCORES."""
        memory: PositiveInt = 35
        """How many earlier states it attends to."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.rnn = RNNLM(config, vocabulary)
        score = _score_over(config.score, config.width, config.memory)
        self.by_row = score.sequential or isinstance(score, Location)
        self.attend = Attend(score, axes=("position", "earlier" if self.by_row else "position"))
        self.mask = window(left=config.memory) & ~window(left=0)
        self.join = nn.Linear(config.width, config.width, bias=False)
        nn.init.zeros_(self.join.weight)  # at first this is the RNN alone

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each, and the states that later tokens may attend to."""
        states, state = self.rnn.read(batch["tokens"], RecurrentState.of(carry))
        known = following(carry, "states", states)  # [B,K,D]
        carried = {**state.carry(), "states": recent(known, self.config.memory)}
        if self.by_row:
            past = Past(
                weights=_carried_past(carry, "weights"), total=_carried_past(carry, "total")
            )
            context, past = self._row_by_row(states, known, past)
            if past.weights is not None and past.total is not None and self.attend.sequential:
                carried["weights"] = past.weights[:, 0, 0].detach()
                carried["total"] = past.total[:, 0, 0].detach()
        else:
            memory = self.attend.remember(known[:, None], known[:, None])
            past = Past(first=known.shape[1] - states.shape[1])
            context = self.attend(states[:, None], memory, self.mask, past).squeeze(1)  # [B,T,D]
        return self.rnn.predict(self.rnn.drop(states + self.join(context)), carried)

    def _row_by_row(
        self, states: Float[Tensor, "B T D"], known: Float[Tensor, "B K D"], past: Past
    ) -> tuple[Float[Tensor, "B T D"], Past]:
        """The same, each row with a memory that ends just before it."""
        whole = self.attend.remember(known[:, None], known[:, None])
        before = known.shape[1] - states.shape[1]
        rows = []
        for position, query in enumerate(states.split(1, dim=1), start=before):
            if position == 0:
                rows.append(torch.zeros_like(query))
                continue
            count = min(position, self.config.memory)
            memory = Memory(
                *(x[:, :, position - count : position] for x in (whole.key, whole.value))
            )
            past = replace(_shifted(past, count - 1), first=count)
            read, past = self.attend.step(query[:, None], memory, None, past)
            rows.append(read.squeeze(1))
        return torch.cat(rows, dim=1), past


def _score_over(name: str, width: int, memory: int) -> Score:
    """The score of that name; one that scores by place has as many places as there is memory."""
    kind = score_class(name)
    return kind(width, longest=memory) if kind is Location else kind.sized(width, width, 1)


def _carried_past(carry: Carry | None, name: str) -> Float[Tensor, "B 1 1 K"] | None:
    """The attention weights of the row before, from the carry."""
    return None if carry is None or name not in carry else carry[name][:, None, None]


def _shifted(past: Past, count: int) -> Past:
    """The past without the keys that have left the memory, which holds so many of the old ones."""

    def last(weights: Tensor | None) -> Tensor | None:
        return None if weights is None else weights[..., max(0, weights.shape[3] - count) :]

    return replace(past, weights=last(past.weights), total=last(past.total))
