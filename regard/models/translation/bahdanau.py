"""Translation by attention to the source: jointly align and translate (Bahdanau et al. 2015).

A bidirectional RNN makes an annotation h_j of each source word; at each step the decoder attends to
them with its last state, and the context enters the next one (section 3 and appendix A):

    e_tj = vᵀ tanh(W s_t-1 + U h_j),  α_t = softmax(e_t),  c_t = Σ_j α_tj h_j
    s_0 = tanh(W_s h←_1),  s_t = GRU(s_t-1, [E y_t-1; c_t])
    m_t = max of pairs of (U_o s_t + V_o E y_t-1 + C_o c_t),  p(y_t) = softmax(W_o m_t)

The score is any of SCORES, the weighing any of WEIGHS. Per step only the score, the read and two
products with the state and with the context are computed: keys are projected once per source, the
words' share of the gates once per target, and readout and output layer run over all steps after the
last.

Departures: the readout takes s_t, as equation 4 has it, where the appendix writes s_t-1; it is as
wide as the embedding, so that the two may be tied; the reset gate acts on U s (layers/decoder.py);
the cell may be an LSTM, whose first cell state is zero.

>>> import torch
>>> model = Bahdanau(Bahdanau.Config(width=4, hidden=8), vocabulary=10, source_vocabulary=12)
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.attention import START, Attend, Past, score_named, weigh_named
from regard.core.protocols import Batch, Carry
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.recurrent import RecurrentEncoder
from regard.layers.source_memory import SourceMemory
from regard.models.translation.recurrent import RecurrentTranslator, RecurrentTranslatorConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class BahdanauState:
    """The memory of the source, the decoder's own state, and its past attention weights."""

    source: SourceMemory
    hidden: Hidden
    past: Past = START

    def select(self, rows: Int[Tensor, "N"]) -> "BahdanauState":
        """The state of the chosen batch rows, in that order."""
        return BahdanauState(
            self.source.select(rows), self.hidden.select(rows), self.past.select(rows)
        )


class Bahdanau(RecurrentTranslator):
    """A recurrent translator with attention to the source before each word."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        cell: Literal["gru", "lstm"] = "gru"
        """The recurrent cell."""
        width: PositiveInt = 620
        """Of the embeddings and of the readout."""
        hidden: PositiveInt = 1000
        """Of the decoder, and of each direction of the encoder."""
        score: str = "additive"
        """How well an annotation matches the decoder's state; any of SCORES."""
        weigh: str = "softmax"
        """How scores become weights; any of WEIGHS."""
        readout: Literal["maxout", "tanh"] = "maxout"
        """The activation of the last layer before the output."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        width, hidden = config.width, config.hidden
        encoder = RecurrentEncoder(config.cell, width, hidden)
        super().__init__(config, encoder, width, vocabulary, source_vocabulary)
        self.config = config
        self.attend = Attend(
            score_named(config.score, hidden, 2 * hidden),
            weigh_named(config.weigh, hidden),
            kind="alignment",
        )
        self.begin = nn.Linear(hidden, hidden)
        self.decoder = RecurrentDecoder(config.cell, width, hidden, fed=2 * hidden)
        pieces = 2 if config.readout == "maxout" else 1
        self.join = nn.Linear(hidden + width + 2 * hidden, pieces * width)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the target."""
        words = self.words(batch["tokens"])  # [B,T,D]
        state, states, contexts = self.start(batch), [], []
        for entered in self.decoder.enter(words):
            context, state = self.advance(entered, state)
            states.append(state.hidden.top)
            contexts.append(context)
        readout = self.readout(torch.stack(states, dim=1), words, torch.stack(contexts, dim=1))
        return self.words.predict(readout)

    def start(self, source: Batch) -> BahdanauState:
        """The annotations, and s_0 from the backward state of the first word."""
        lengths = source["source_lengths"]
        encoded = self.reader(source["source"], lengths)
        annotations = encoded.states[:, None]  # [B,1,S,W]
        memory = self.attend.remember(annotations, annotations)
        first = self.begin(encoded.final[-1, :, self.config.hidden :]).tanh()  # [B,D]
        cell = (torch.zeros_like(first),) if self.config.cell == "lstm" else ()
        return BahdanauState(
            SourceMemory.of(memory, lengths, attends=[self.attend]), Hidden((first,), cell)
        )

    def advance(
        self, entered: Float[Tensor, "B C"], state: BahdanauState
    ) -> tuple[Float[Tensor, "B W"], BahdanauState]:
        """Attend with s_t-1, then take one step with the context: c_t and the next state."""
        query = state.hidden.top[:, None, None]  # [B,1,1,D]
        read, past = state.source.step(self.attend, query, past=state.past)
        context = read[:, 0, 0]  # [B,W]
        hidden = self.decoder.step(entered, context, state.hidden)
        return context, BahdanauState(state.source, hidden, past)

    def readout(
        self,
        states: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        contexts: Float[Tensor, "B T W"],
    ) -> Float[Tensor, "B T C"]:
        """The last layer before the output."""
        joined: Tensor = self.join(torch.cat((states, words, contexts), dim=2))
        if self.config.readout == "tanh":
            return joined.tanh()
        return torch.maximum(*joined.chunk(2, dim=2))

    def step(
        self, tokens: Int[Tensor, "B"], state: BahdanauState
    ) -> tuple[Float[Tensor, "B V"], BahdanauState]:
        """Logits of the next tokens after these."""
        words = self.words(tokens[:, None])  # [B,1,D]
        context, state = self.advance(self.decoder.enter(words)[0], state)
        readout = self.readout(state.hidden.top[:, None], words, context[:, None])
        return self.words.predict(readout).logits().squeeze(1), state
