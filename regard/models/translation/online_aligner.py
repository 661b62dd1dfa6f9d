"""Hard online alignments: read the source word by word and decide when to speak (Luo et al. 2016).

One recurrent network reads the source from left to right. At each word x_i it also hears whether it
has just spoken and what it said last, and a Bernoulli unit decides whether it speaks now:

    h_i = RNN(h_i-1, [x_i; b_i-1; y]),  b_i ~ Bernoulli(σ(w · h_i))
    p(the next y) = softmax(W h_i)  where b_i = 1

Nothing of the source needs to have come before the first word is said, and no state is looked back
at. All words of the target have to be out before the source ends: where as many words are left as
inputs, the unit must speak. The reward is the log-probability of what was said. REINFORCE climbs
what is still to come of it, R_i, less what a linear unit expects from the state, with a bonus for
undecided units (the paper calls both critical):

    Σ_i (R_i - β(h_i)) ∇ log p(b_i) + λ ∇ H(b_i)  over all inputs where the unit was free

`forward` returns minus that, and the squared error of β, while training. Otherwise, and in `step`,
the unit speaks where σ > 1/2. `step` reads on until it does; the state says how far that was:
`place`, which is the alignment.

Departures. Where the unit must speak, log σ(w · h_i) is part of the reward, and climbed itself:
while it is measured or searches, nobody knows how many words are left, so none is forced, and one
that had relied on being forced would be silent. So what is climbed is a bound of log p without any
force, E_q[log p(y|b) + log p(b) - log q(b)], q being the forced unit. Targets end with <eos> and
may be longer than their source: when it is over, the network goes on with a vector of its own that
stands for the end, and speaks at each step. The paper's output is over there; here that is where
<eos> is learnt (or earlier, if the unit likes) and where words that found no place are said. β
expects the mean of the tokens to come rather than their sum, so that its error weighs alike in
short and long sentences. No Grid LSTM, and no dropout that grows as training goes on.

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
from regard.layers.lexicon import Lexicon
from regard.models.translation.hard_attention import to_come
from regard.models.translation.recurrent import RecurrentTranslatorConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class OnlineState:
    """The source, how far it was read, and the network's own state."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, "B"]
    place: Int[Tensor, "B"]
    """How many inputs were read; past the end of the source, steps are counted on."""
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
    """A whole source, read: the states, and what the unit did at each."""

    states: Float[Tensor, "B N D"]
    asked: Float[Tensor, "B N"]
    """What it was asked: the logit of speaking."""
    spoke: Bool[Tensor, "B N"]
    free: Bool[Tensor, "B N"]
    """Was it the unit that decided?"""
    forced: Bool[Tensor, "B N"]
    """Had it to speak, so that all words would be out before the source ends?"""
    turn: Int[Tensor, "B N"]
    """Which target was next."""

    def said_at(self, targets: int) -> Int[Tensor, "B T"]:
        """The step at which each target was said; 0 for one that never was."""
        steps = torch.arange(self.turn.shape[1], device=self.turn.device).expand_as(self.turn)
        columns = torch.where(self.spoke, self.turn, targets)
        at = self.turn.new_zeros(len(self.turn), targets + 1)
        return at.scatter(1, columns, steps)[:, :targets]


class OnlineAligner(nn.Module):
    """One network that reads the source and, while it reads, writes the target."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        cell: Literal["gru", "lstm"] = "lstm"
        """The recurrent cell."""
        width: PositiveInt = 300
        """Of the embeddings and of every layer."""
        layers: PositiveInt = 2
        """Of the network."""
        entropy: float = Field(0.1, ge=0)
        """λ: how much an undecided unit is worth."""

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
        self.speak = nn.Linear(width, 1)
        self.guess = nn.Linear(width, 1)
        nn.init.uniform_(self.embed.weight, -init_range, init_range)
        nn.init.uniform_(self.over, -init_range, init_range)
        nn.init.constant_(self.guess.bias, -log(vocabulary))

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """What follows each token of the target; while training, the surrogate of the unit too."""
        tokens = batch["tokens"]
        due = tokens.new_full((len(tokens),), tokens.shape[1])
        if self.training:
            due = (batch["targets"] != IGNORE).sum(1).clamp_min(1)
        reading = self.read(self.start(batch), self.words(tokens), due)
        at = reading.said_at(tokens.shape[1])  # [B,T]
        index = at[:, :, None].expand(*at.shape, reading.states.shape[2])
        output = self.words.predict(reading.states.gather(1, index))
        if not self.training:
            return output
        targets = batch["targets"]
        surrogate = self.surrogate(output.log_probability(targets), reading, targets)
        return replace(output, auxiliary=surrogate)

    def read(
        self, state: OnlineState, words: Float[Tensor, "B T D"], due: Int[Tensor, "B"]
    ) -> OnlinePass:
        """Read until all tokens that are due have been said; row by row at most one an input."""
        hidden, turn = state.hidden, torch.zeros_like(due)
        spoke = torch.ones_like(due, dtype=torch.bool)  # <bos> is there before the first input
        rows, last = torch.arange(len(due), device=due.device), words.shape[1] - 1
        entered = self.network.enter(self.inputs(state))  # S + 1 of [B,C]
        states, asked, speaks, free, forced, turns = [], [], [], [], [], []
        step = 0
        while bool((turn < due).any()):
            heard = torch.cat((words[rows, turn.clamp_max(last)], spoke.to(words)[:, None]), dim=1)
            hidden = self.network.step(entered[min(step, len(entered) - 1)], heard, hidden)
            logit = self.speak(hidden.top).squeeze(1)  # [B]
            waits, over = turn < due, state.lengths <= step
            must = ~over & (due - 1 - turn >= state.lengths - step) & self.training
            spoke = waits & (over | must | self.speaks(logit))
            states.append(hidden.top)
            asked.append(logit)
            speaks.append(spoke)
            free.append(waits & ~over & ~must)
            forced.append(waits & must)
            turns.append(turn.clamp_max(last))
            turn, step = turn + spoke, step + 1
        columns = (states, asked, speaks, free, forced, turns)
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

    def speaks(self, logit: Float[Tensor, "B"]) -> Bool[Tensor, "B"]:
        """What the unit decides: by chance while training."""
        if not self.training:
            return logit > 0
        return torch.rand(len(logit), device=logit.device) < logit.detach().sigmoid()

    def surrogate(
        self, said: Float[Tensor, "B T"], reading: OnlinePass, targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        """A loss whose gradient is that of the unit's decisions, from the log p of the targets."""
        real, logit = (targets != IGNORE).to(said.dtype), reading.asked
        # Targets are all said sooner or later: whose turn it is tells which are still to come.
        forced = F.logsigmoid(logit) * reading.forced  # [B,N]
        reward = to_come(said.detach()).gather(1, reading.turn) + to_come(forced.detach())
        counted = to_come(real).gather(1, reading.turn)
        expected: Tensor = self.guess(reading.states.detach()).squeeze(2)  # [B,N]
        advantage = reward - counted * expected.detach()
        chosen = F.logsigmoid(torch.where(reading.spoke, logit, -logit))
        entropy = F.softplus(logit) - logit * logit.sigmoid()
        loss = -(advantage * chosen + self.config.entropy * entropy)
        loss = loss + (reward / counted.clamp_min(1) - expected).square()
        return (loss * (reading.free & (counted > 0)) - forced).sum()

    def start(self, source: Batch) -> OnlineState:
        """Nothing read, nothing said."""
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
        """Read on until the unit speaks, in each row: logits of what it says then."""
        word = self.words(tokens[:, None]).squeeze(1)  # [B,D]
        place, hidden = state.place, state.hidden
        silent = torch.ones_like(tokens, dtype=torch.bool)
        spoken = word.new_ones(len(word), 1)
        while bool(silent.any()):
            over = place >= state.lengths
            token = state.source.gather(1, place.clamp_max(state.source.shape[1] - 1)[:, None])
            entered = self.network.enter(self.input(token, over[:, None]))[0]
            moved = self.network.step(entered, torch.cat((word, spoken), dim=1), hidden)
            hidden = _moved_on(silent, moved, hidden)
            place = place + silent
            silent = silent & ~over & (self.speak(hidden.top).squeeze(1) <= 0)
            spoken = torch.zeros_like(spoken)
        logits = self.words.predict(hidden.top[:, None]).logits().squeeze(1)
        return logits, OnlineState(state.source, state.lengths, place, hidden)


def _moved_on(rows: Bool[Tensor, "B"], new: Hidden, old: Hidden) -> Hidden:
    """The new state in some rows, the old one in the others."""

    def chosen(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        pairs = zip(one, other, strict=True)
        return tuple(torch.where(rows[:, None], mine, yours) for mine, yours in pairs)

    return Hidden(chosen(new.hidden, old.hidden), chosen(new.cell, old.cell))
