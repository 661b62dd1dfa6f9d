"""The pointer-generator with coverage: words are generated or copied (See et al. 2017).

After each step the decoder attends to the source with its new state, and may copy the words that it
attends to (section 2):

    c_t = Σ_t'<t a_t',  e_ti = vᵀ tanh(W_h h_i + W_s s_t + w_c c_ti)                     (10, 11)
    a_t = softmax(e_t),  h*_t = Σ_i a_ti h_i                                               (2, 3)
    P_vocab = softmax(V' (V [s_t; h*_t] + b) + b')                                            (4)
    p_gen = σ(w_h* · h*_t + w_s · s_t + w_x · x_t + b)                                        (8)
    P(w) = p_gen P_vocab(w) + (1 - p_gen) Σ a_ti over all positions i with word w             (9)

Words that the vocabulary lacks have numbers beyond it, counted anew in each source
(`source_extended`, data/text/parallel.py); P_vocab gives them nothing, so they can only be copied.
The decoder reads such a word as <unk>. `step` has a column for each word of the vocabulary and for
as many more as one source of the batch has at most; that number stays while rows come and go.

With λ = `coverage` above zero, the auxiliary loss is λ Σ_t Σ_i min(a_ti, c_ti) (12, 13): repeated
attention to a position costs. The paper trains without it and adds it for a last short while.

Departures: no bias inside the tanh; V makes as many numbers as an embedding has, so that the two
may be tied; w_c is there from the first update on, also while λ is zero (a `score` of "additive" is
without). s_0 is the ReLU of a linear map of both directions' last states, and so is the cell, as in
the authors' program. That program also feeds h*_t-1 into the next step, which is not in the paper;
here nothing is fed, so that one run of the LSTM serves all steps.

>>> import torch
>>> model = PointerGenerator(PointerGenerator.Config(width=4, hidden=8), 10, 12)
>>> source = {"source": torch.tensor([[5, 1, 3]]), "source_lengths": torch.tensor([3])}
>>> source["source_extended"] = torch.tensor([[4, 10, 3]])              # 10 is the unknown word
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 11])
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from regard.attention import START, Attend, Past, score_named
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.recurrent import RecurrentEncoder
from regard.layers.source_memory import SourceMemory
from regard.models.translation.recurrent import RecurrentTranslator, RecurrentTranslatorConfig
from regard.outputs.pointer import ExtendedSoftmax, PointerMixture


@dataclass(frozen=True)
class PointerGeneratorState:
    """The memory of the source and its words, the decoder's state, and past attention weights."""

    source: SourceMemory
    hidden: Hidden
    key_tokens: Int[Tensor, "B S"]
    """The word at each position of the source, in the vocabulary and beyond."""
    extra: int
    """How many words beyond the vocabulary there is room for."""
    past: Past = START

    def select(self, rows: Int[Tensor, "N"]) -> "PointerGeneratorState":
        """The state of the chosen batch rows, in that order."""
        return PointerGeneratorState(
            self.source.select(rows),
            self.hidden.select(rows),
            self.key_tokens.index_select(0, rows),
            self.extra,
            self.past.select(rows),
        )


class PointerGenerator(RecurrentTranslator):
    """A recurrent translator that generates words or copies those that it attends to."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        width: PositiveInt = 128
        """Of the embeddings."""
        hidden: PositiveInt = 256
        """Of the decoder, and of each direction of the encoder."""
        score: str = "coverage"
        """How well a source state matches the decoder's; any of SCORES."""
        coverage: float = Field(0.0, ge=0)
        """λ: the weight of the coverage loss."""
        unk: NonNegativeInt = 1
        """The token that the decoder reads for a word beyond the vocabulary."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        if config.unk >= vocabulary:
            raise UserError(f"unk={config.unk} is outside a vocabulary of {vocabulary}")
        width, hidden = config.width, config.hidden
        encoder = RecurrentEncoder("lstm", width, hidden)
        super().__init__(config, encoder, width, vocabulary, source_vocabulary)
        self.config = config
        self.vocabulary = vocabulary
        self.begin = nn.Linear(2 * hidden, hidden)
        self.begin_cell = nn.Linear(2 * hidden, hidden)
        self.decoder = RecurrentDecoder("lstm", width, hidden)
        self.attend = Attend(score_named(config.score, hidden, 2 * hidden), kind="alignment")
        self.join = nn.Linear(hidden + 2 * hidden, width)
        self.generate = nn.Linear(2 * hidden + hidden + width, 1)

    def forward(self, batch: Batch, carry: Carry | None = None) -> PointerMixture:
        """The next token after each; in training, the coverage loss is the auxiliary loss."""
        state, words = self.start(batch), self.words(self.readable(batch["tokens"]))
        states, _ = self.decoder(words, state.hidden)  # [B,T,D]
        memory, mask = state.source.memories[0], state.source.mask
        weights = self.attend.weights(states[:, None], memory, mask)  # [B,1,T,S]
        contexts = self.attend.read(weights, memory.value).squeeze(1)  # [B,T,W]
        output = self.mixture(states, words, contexts, weights.squeeze(1), state)
        if not self.training or not self.config.coverage:
            return output
        real = batch["targets"] != IGNORE
        coverage = self.config.coverage * (_coverage(weights.squeeze(1)) * real).sum()
        return replace(output, auxiliary=coverage)

    def readable(self, tokens: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Tokens as the decoder reads them: <unk> for those beyond the vocabulary."""
        return torch.where(tokens < self.vocabulary, tokens, self.config.unk)

    def mixture(
        self,
        states: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        contexts: Float[Tensor, "B T W"],
        weights: Float[Tensor, "B T S"],
        state: PointerGeneratorState,
    ) -> PointerMixture:
        """The mixture of generated and copied words."""
        generated = self.words.predict(self.join(torch.cat((states, contexts), dim=2)))
        generate = self.generate(torch.cat((contexts, states, words), dim=2))  # [B,T,1]
        # σ(-z) where 1 - σ(z) would round to zero: a word that can only be copied needs it.
        pointer = (-generate).sigmoid() * weights
        share = generate.sigmoid().squeeze(2)
        return PointerMixture(
            ExtendedSoftmax(generated, state.extra), share, pointer, state.key_tokens
        )

    def start(self, source: Batch) -> PointerGeneratorState:
        """The source states with their words, and s_0 from the last of both directions."""
        key_tokens = self.copyable(source)
        lengths = source["source_lengths"]
        encoded = self.reader(source["source"], lengths)
        states = encoded.states[:, None]  # [B,1,S,W]
        assert encoded.cell is not None
        first = self.begin(encoded.final[-1]).relu()  # [B,D]
        cell = self.begin_cell(encoded.cell[-1]).relu()
        memory = self.attend.remember(states, states)
        return PointerGeneratorState(
            SourceMemory.of(memory, lengths, attends=[self.attend]),
            Hidden((first,), (cell,)),
            key_tokens,
            max(0, int(key_tokens.max()) + 1 - self.vocabulary),
        )

    def copyable(self, source: Batch) -> Int[Tensor, "B S"]:
        """The words of the source as they can be copied."""
        if "source_extended" not in source:
            raise UserError(
                "a pointer-generator copies words of the source, but these batches lack "
                "source_extended; set copies = true in [data]"
            )
        tokens = source["source_extended"]
        if tokens.shape != source["source"].shape:
            raise UserError(
                f"source_extended must have a word for each of the source, "
                f"{list(source['source'].shape)}, not {list(tokens.shape)}"
            )
        return tokens

    def step(
        self, tokens: Int[Tensor, "B"], state: PointerGeneratorState
    ) -> tuple[Float[Tensor, "B V"], PointerGeneratorState]:
        """Log-probabilities of the next tokens after these."""
        words = self.words(self.readable(tokens)[:, None])  # [B,1,C]
        states, hidden = self.decoder(words, state.hidden)  # [B,1,D]
        source, memory = state.source, state.source.memories[0]
        query = source.together(states[:, None])  # [N,1,Q,D]
        weights = self.attend.weights(query, memory, source.mask, state.past)  # [N,1,Q,S]
        contexts = source.apart(self.attend.read(weights, memory.value)).squeeze(1)  # [B,1,W]
        own = source.apart(weights).squeeze(1)  # [B,1,S]
        logits = self.mixture(states, words, contexts, own, state).logits().squeeze(1)
        past = replace(state.past, first=state.past.first + 1)
        if self.attend.carries:
            past = self.attend.after(query, weights, state.past)
        return logits, replace(state, hidden=hidden, past=past)


def _coverage(weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T"]:
    """Σ_i min(a_ti, c_ti): how much attention goes to positions that already had some.

    >>> _coverage(torch.tensor([[[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]])).tolist()
    [[0.0, 0.25, 0.75]]
    """
    before = weights.cumsum(1) - weights
    return torch.minimum(weights, before).sum(2)
