"""Hard online alignments: read the source word by word, emit targets on the way (Luo et al. 2016).

One recurrent network reads the source from left to right. Its other inputs at each word x_i are the
last target y and whether it was emitted just before; a Bernoulli unit decides whether to emit now:

    h_i = RNN(h_i-1, [x_i; b_i-1; y]),  b_i ~ Bernoulli(σ(w · h_i))
    p(the next y) = softmax(W h_i)  where b_i = 1

The target can start before the source ends, and there is no attention to earlier states. All
targets must be emitted before the source ends: where as many targets are left as inputs, the unit
is forced to emit. The reward is the log-probability of the targets. REINFORCE maximises the reward
that is still to come, R_i, less a baseline, a linear unit over the state, with a bonus for the
entropy of the unit (the paper calls both critical):

    Σ_i (R_i - β(h_i)) ∇ log p(b_i) + λ ∇ H(b_i)  over all inputs where the unit is free

The auxiliary loss in training is minus that, and the squared error of β. In evaluation, and in
`step`, the unit emits where σ > 1/2. `step` reads on until it does; `place` of the state is how far
that was, which is the alignment.

Departures. Where the unit is forced, log σ(w · h_i) is part of the reward, and is maximised itself:
in evaluation and search the number of targets left is unknown, so that no unit is forced, and one
that relied on it would never emit. The objective is then a bound of log p without any force,
E_q[log p(y|b) + log p(b) - log q(b)], q being the forced unit. Targets end with <eos> and may be
longer than their source: behind the source the input is a vector of its own, and the network emits
at each step. In the paper the output is over there; here <eos> is emitted there (or earlier), and
so are targets that are left. β is the mean of the tokens to come rather than their sum, so that its
error weighs alike in short and long sentences. There is no Grid LSTM, and no dropout that grows in
training.

>>> import torch
>>> model = OnlineAligner(OnlineAligner.Config(width=8, layers=1), 10, 12).eval()
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass, replace
from math import log
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.embedding import Lexicon
from regard.layers.reinforce import to_come
from regard.models.translation.recurrent import RecurrentTranslatorConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class OnlineState:
    """The source, how far it was read, and the network's own state."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, "B"]
    place: Int[Tensor, "B"]
    """How many inputs were read, with the steps past the end of the source."""
    hidden: Hidden

    def select(self, rows: Int[Tensor, "N"]) -> "OnlineState":
        """The state of the chosen batch rows, in that order."""
        return OnlineState(
            self.source.index_select(0, rows),
            self.lengths.index_select(0, rows),
            self.place.index_select(0, rows),
            self.hidden.select(rows),
        )


@dataclass(frozen=True)
class OnlinePass:
    """A pass over a source: the states, and the decision of the unit at each."""

    states: Float[Tensor, "B N D"]
    logits: Float[Tensor, "B N"]
    """Of emitting a target."""
    emitted: Bool[Tensor, "B N"]
    free: Bool[Tensor, "B N"]
    """Did the unit decide?"""
    forced: Bool[Tensor, "B N"]
    """Was it forced, so that all targets are emitted before the source ends?"""
    next_target: Int[Tensor, "B N"]
    """Which target was next."""

    def emission_steps(self, targets: int) -> Int[Tensor, "B T"]:
        """The step at which each target was emitted; 0 for one that never was."""
        steps = torch.arange(self.next_target.shape[1], device=self.next_target.device)
        columns = torch.where(self.emitted, self.next_target, targets)
        at = self.next_target.new_zeros(len(columns), targets + 1)
        return at.scatter(1, columns, steps.expand_as(columns))[:, :targets]


class OnlineAligner(nn.Module):
    """One network that reads the source and emits the target on the way."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        cell: Literal["gru", "lstm"] = "lstm"
        """The recurrent cell."""
        width: PositiveInt = 300
        """Of the embeddings and of every layer."""
        layers: PositiveInt = 2
        """Of the network."""
        entropy: float = Field(0.1, ge=0)
        """λ: the weight of the entropy of the unit."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        width, dropout, init_range = config.width, config.dropout, config.init_range
        self.embed = nn.Embedding(source_vocabulary, width)
        self.over = nn.Parameter(torch.empty(width))
        self.drop = Dropout(dropout)
        self.words = Lexicon(
            vocabulary, width, tied=config.tied, dropout=dropout, init_range=init_range
        )
        self.network = RecurrentDecoder(
            config.cell, width, width, fed=width + 1, layers=config.layers, dropout=dropout
        )
        self.emit = nn.Linear(width, 1)
        self.value = nn.Linear(width, 1)
        nn.init.uniform_(self.embed.weight, -init_range, init_range)
        nn.init.uniform_(self.over, -init_range, init_range)
        nn.init.constant_(self.value.bias, -log(vocabulary))

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; in training, the loss of the unit is auxiliary."""
        tokens = batch["tokens"]
        due = tokens.new_full((len(tokens),), tokens.shape[1])
        if self.training:
            due = (batch["targets"] != IGNORE).sum(1).clamp_min(1)
        online = self.read(self.start(batch), self.words(tokens), due)
        at = online.emission_steps(tokens.shape[1])  # [B,T]
        index = at[:, :, None].expand(*at.shape, online.states.shape[2])
        output = self.words.predict(online.states.gather(1, index))
        if not self.training:
            return output
        targets = batch["targets"]
        surrogate = self.surrogate(output.log_probability(targets), online, targets)
        return replace(output, auxiliary=surrogate)

    def read(
        self, state: OnlineState, words: Float[Tensor, "B T D"], due: Int[Tensor, "B"]
    ) -> OnlinePass:
        """Read until all tokens that are due are emitted; at most one at each input of a row."""
        hidden, turn = state.hidden, torch.zeros_like(due)
        emitted = torch.ones_like(due, dtype=torch.bool)  # <bos> comes before the first input
        rows, last = torch.arange(len(due), device=due.device), words.shape[1] - 1
        entered = self.network.enter(self.inputs(state))  # S + 1 of [B,C]
        states, logits, emissions, free, forced, turns = [], [], [], [], [], []
        step = 0
        while bool((turn < due).any()):
            last_word = words[rows, turn.clamp_max(last)]
            fed = torch.cat((last_word, emitted.to(words)[:, None]), dim=1)
            hidden = self.network.step(entered[min(step, len(entered) - 1)], fed, hidden)
            logit = self.emit(hidden.top).squeeze(1)  # [B]
            waits, over = turn < due, state.lengths <= step
            must = ~over & (due - 1 - turn >= state.lengths - step) & self.training
            emitted = waits & (over | must | self.decide(logit))
            states.append(hidden.top)
            logits.append(logit)
            emissions.append(emitted)
            free.append(waits & ~over & ~must)
            forced.append(waits & must)
            turns.append(turn.clamp_max(last))
            turn, step = turn + emitted, step + 1
        columns = (states, logits, emissions, free, forced, turns)
        return OnlinePass(*(torch.stack(each, dim=1) for each in columns))

    def inputs(self, state: OnlineState) -> Float[Tensor, "B K D"]:
        """The source as vectors, and one place more; beyond the end of a row, that of the end."""
        source = F.pad(state.source, (0, 1))
        place = torch.arange(source.shape[1], device=source.device)  # [S+1]
        return self.input(source, place >= state.lengths[:, None])

    def input(
        self, tokens: Int[Tensor, "B K"], over: Bool[Tensor, "B K"]
    ) -> Float[Tensor, "B K D"]:
        """Vectors of source tokens, and of the end where the source is over."""
        vectors: Tensor = self.drop(self.embed(tokens))
        joined: Tensor = torch.where(over[..., None], self.over, vectors)
        return joined

    def decide(self, logit: Float[Tensor, "B"]) -> Bool[Tensor, "B"]:
        """The decision of the unit; a sample in training."""
        if not self.training:
            return logit > 0
        return torch.rand(len(logit), device=logit.device) < logit.detach().sigmoid()

    def surrogate(
        self, logs: Float[Tensor, "B T"], online: OnlinePass, targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        """A loss whose gradient is that of the unit's decisions, from the log p of the targets."""
        real, logit = (targets != IGNORE).to(logs.dtype), online.logits
        # Every target is emitted at some step: the next one shows which are still to come.
        forced = F.logsigmoid(logit) * online.forced  # [B,N]
        reward = to_come(logs.detach()).gather(1, online.next_target) + to_come(forced.detach())
        counted = to_come(real).gather(1, online.next_target)
        expected: Tensor = self.value(online.states.detach()).squeeze(2)  # [B,N]
        advantage = reward - counted * expected.detach()
        chosen = F.logsigmoid(torch.where(online.emitted, logit, -logit))
        entropy = F.softplus(logit) - logit * logit.sigmoid()
        loss = -(advantage * chosen + self.config.entropy * entropy)
        loss = loss + (reward / counted.clamp_min(1) - expected).square()
        return (loss * (online.free & (counted > 0)) - forced).sum()

    def start(self, source: Batch) -> OnlineState:
        """Before the first input."""
        tokens, lengths = source["source"], source["source_lengths"]
        rows, longest = tokens.shape
        if lengths.shape != (rows,) or bool(((lengths < 1) | (lengths > longest)).any()):
            raise UserError(
                f"each of the {rows} sources needs a length of 1 to {longest}, the token that ends "
                f"it counted; the lengths are {lengths.tolist()}"
            )
        zero = self.over.new_zeros(rows, self.config.width)
        blank = (zero,) * self.config.layers
        hidden = Hidden(blank, blank if self.config.cell == "lstm" else ())
        return OnlineState(tokens, lengths, torch.zeros_like(lengths), hidden)

    def step(
        self, tokens: Int[Tensor, "B"], state: OnlineState
    ) -> tuple[Float[Tensor, "B V"], OnlineState]:
        """Read on until the unit emits, in each row: logits of the next target there."""
        word = self.words(tokens[:, None]).squeeze(1)  # [B,D]
        place, hidden = state.place, state.hidden
        waiting = torch.ones_like(tokens, dtype=torch.bool)
        just_emitted = word.new_ones(len(word), 1)
        while bool(waiting.any()):
            over = place >= state.lengths
            token = state.source.gather(1, place.clamp_max(state.source.shape[1] - 1)[:, None])
            entered = self.network.enter(self.input(token, over[:, None]))[0]
            moved = self.network.step(entered, torch.cat((word, just_emitted), dim=1), hidden)
            hidden = _moved_on(waiting, moved, hidden)
            place = place + waiting
            waiting = waiting & ~over & (self.emit(hidden.top).squeeze(1) <= 0)
            just_emitted = torch.zeros_like(just_emitted)
        logits = self.words.predict(hidden.top[:, None]).logits().squeeze(1)
        return logits, OnlineState(state.source, state.lengths, place, hidden)


def _moved_on(rows: Bool[Tensor, "B"], new: Hidden, old: Hidden) -> Hidden:
    """The new state in some rows, the old one in the others."""

    def chosen(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        pairs = zip(one, other, strict=True)
        return tuple(torch.where(rows[:, None], mine, yours) for mine, yours in pairs)

    return Hidden(chosen(new.hidden, old.hidden), chosen(new.cell, old.cell))
