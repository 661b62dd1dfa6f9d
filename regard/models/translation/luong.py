"""Translation by global and local attention (Luong et al. 2015).

A stacked LSTM reads the source, another one writes the target from the last state of the first. The
decoder attends with its present top state h_t and predicts from both (sections 3 and 3.1):

    α_t = align(h_t, h̄_1 ... h̄_S),  c_t = Σ_s α_ts h̄_s
    h̃_t = tanh(W_c [c_t; h_t]),  p(y_t) = softmax(W_s h̃_t)

The paper's scores are called here dot, bilinear (general), additive (concat) and location; any of
SCORES can be used. The weighing softmax is global attention; local_m and local_p attend to `reach`
positions around t, and around a predicted position (section 3.2). With `feeding`, h̃_t-1 enters the
first layer beside the word (section 3.3); without, the recurrence is independent of attention, so
the decoder is one fused call and all positions attend at once.

Departures: the encoder may be bidirectional, each direction half as wide, so that its states are as
wide as the decoder's; the cell may be a GRU. local_m attends around the last word where the target
is longer than the source; there the paper's window is empty.

>>> import torch
>>> model = Luong(Luong.Config(width=8, layers=2), vocabulary=10, source_vocabulary=12)
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.attention import (
    START,
    Attend,
    LocalMonotonic,
    LocalPredictive,
    Past,
    Weigh,
    score_named,
    weigh_named,
)
from regard.core.errors import divides
from regard.core.protocols import Batch, Carry
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.recurrent import RecurrentEncoder
from regard.layers.source_memory import SourceMemory
from regard.models.translation.recurrent import RecurrentTranslator, RecurrentTranslatorConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class LuongState:
    """The memory of the source, the decoder's state, its fed input, and past attention weights."""

    source: SourceMemory
    hidden: Hidden
    attentional: Float[Tensor, "B D"]
    """h̃ of the step before; zeros at first."""
    past: Past = START

    def select(self, rows: Int[Tensor, "N"]) -> "LuongState":
        """The state of the chosen batch rows, in that order."""
        return LuongState(
            self.source.select(rows),
            self.hidden.select(rows),
            self.attentional.index_select(0, rows),
            self.past.select(rows),
        )


class Luong(RecurrentTranslator):
    """A recurrent translator with attention to the source after each step."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        cell: Literal["gru", "lstm"] = "lstm"
        """The recurrent cell."""
        width: PositiveInt = 1000
        """Of the embeddings, of every layer, and of the attentional vector."""
        layers: PositiveInt = 4
        """Of the encoder, and of the decoder."""
        bidirectional: bool = False
        """Read the source both ways, each half as wide."""
        reverse: bool = False
        """Read the source from its end; its positions are then counted from there."""
        score: str = "bilinear"
        """How well a source state matches the decoder's; any of SCORES."""
        weigh: str = "softmax"
        """How scores become weights; any of WEIGHS."""
        reach: PositiveInt = 10
        """How far local_m and local_p attend to either side."""
        feeding: bool = True
        """Feed the attentional vector into the next step."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        width, layers, dropout = config.width, config.layers, config.dropout
        encoder = RecurrentEncoder(
            config.cell,
            width,
            divides("width", width, "directions", 2 if config.bidirectional else 1),
            layers=layers,
            bidirectional=config.bidirectional,
            dropout=dropout,
        )
        super().__init__(
            config, encoder, width, vocabulary, source_vocabulary, reverse=config.reverse
        )
        self.config = config
        self.decoder = RecurrentDecoder(
            config.cell,
            width,
            width,
            fed=width if config.feeding else 0,
            layers=layers,
            dropout=dropout,
        )
        self.attend = Attend(score_named(config.score, width), _weighing(config), kind="alignment")
        self.join = nn.Linear(2 * width, width, bias=False)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the target."""
        words, state = self.words(batch["tokens"]), self.start(batch)
        if not self.config.feeding:
            return self.words.predict(self.at_once(words, state))
        rows = []
        for entered in self.decoder.enter(words):
            state = self.advance(entered, state)
            rows.append(state.attentional)
        return self.words.predict(torch.stack(rows, dim=1))

    def start(self, source: Batch) -> LuongState:
        """The source states, and the last of them as first state."""
        lengths = source["source_lengths"]
        encoded = self.reader(source["source"], lengths)
        states = encoded.states[:, None]  # [B,1,S,D]
        memory = self.attend.remember(states, states)
        return LuongState(
            SourceMemory.of(memory, lengths, attends=[self.attend]),
            Hidden.of(encoded),
            torch.zeros_like(encoded.final[0]),
        )

    def at_once(self, words: Float[Tensor, "B T D"], state: LuongState) -> Float[Tensor, "B T D"]:
        """h̃ of all steps from the first: one run of the decoder, and one attention for all."""
        states, _ = self.decoder(words, state.hidden)  # [B,T,D]
        source = state.source
        context = self.attend(states[:, None], source.memories[0], source.mask).squeeze(1)
        return self.joined(context, states)

    def advance(self, entered: Float[Tensor, "B C"], state: LuongState) -> LuongState:
        """Take one step with h̃_t-1, then attend with the new state."""
        hidden = self.decoder.step(entered, state.attentional, state.hidden)
        return self.attend_from(replace(state, hidden=hidden))

    def attend_from(self, state: LuongState) -> LuongState:
        """Attend with h_t; h̃_t is fed to the next step."""
        query = state.hidden.top[:, None, None]  # [B,1,1,D]
        read, past = state.source.step(self.attend, query, past=state.past)
        attentional = self.joined(read[:, 0, 0], state.hidden.top)
        return replace(state, attentional=attentional, past=past)

    def joined(
        self, context: Float[Tensor, "*B D"], states: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "*B D"]:
        """h̃ = tanh(W_c [c; h])."""
        joined: Tensor = self.join(torch.cat((context, states), dim=-1))
        return joined.tanh()

    def step(
        self, tokens: Int[Tensor, "B"], state: LuongState
    ) -> tuple[Float[Tensor, "B V"], LuongState]:
        """Logits of the next tokens after these."""
        words = self.words(tokens[:, None])  # [B,1,D]
        if self.config.feeding:
            state = self.advance(self.decoder.enter(words)[0], state)
        else:
            state = self.attend_from(replace(state, hidden=self.decoder(words, state.hidden)[1]))
        return self.words.predict(state.attentional[:, None]).logits().squeeze(1), state


def _weighing(config: Luong.Config) -> Weigh:
    """Global or local: the weighing of that name, with the reach that the local ones have."""
    if config.weigh == "local_m":
        return LocalMonotonic(config.reach)
    if config.weigh == "local_p":
        return LocalPredictive(config.width, config.reach)
    return weigh_named(config.weigh, config.width)
