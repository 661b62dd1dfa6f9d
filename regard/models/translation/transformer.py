"""The Transformer: an encoder and a decoder of attention alone (Vaswani et al. 2017).

As in the paper: normalised after each sum, sinusoidal positions, embeddings times √width, one table
for the decoder's input and output; each can be set in the config. Normalising inside the branches
adds a last norm to both stacks (Xiong et al. 2020). Weights begin as in fairseq: Xavier, embeddings
normal with width^-½.

>>> import torch
>>> config = Transformer.Config(width=16, heads=2, encoder_layers=1, decoder_layers=1)
>>> model = Transformer(config, vocabulary=10, source_vocabulary=12)
>>> source = {"source": torch.tensor([[4, 5, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import START, Mask, Past, causal, padding
from regard.attention.tape import AxisPair
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.block import DecoderBlock, EncoderBlock
from regard.layers.cache import Cache
from regard.layers.embedding import TokenEmbedding
from regard.layers.feedforward import FeedForward
from regard.layers.initialise import initialise_from
from regard.layers.key_value_store import KeyValueStore
from regard.layers.multihead import CrossAttention, SelfAttention
from regard.layers.position import POSITIONS
from regard.layers.source_memory import SourceMemory
from regard.layers.stepwise import (
    StepSource,
    StepwiseDecoder,
    embed_step,
    logits_function,
    row_function,
)
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class TransformerState:
    """The source, and the keys and values of every layer of the decoder."""

    source: SourceMemory
    """One memory for each layer of the decoder."""
    caches: tuple[Cache, ...]
    pasts: tuple[Past, ...]
    """The past attention weights of each layer, for scores that use them."""

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.caches[0].length

    def select(self, rows: Int[Tensor, "N"]) -> "TransformerState":
        """The state of the chosen batch rows, in that order."""
        return TransformerState(
            self.source.select(rows),
            tuple(cache.select(rows) for cache in self.caches),
            tuple(past.select(rows) for past in self.pasts),
        )


@dataclass(frozen=True)
class TransformerStepState:
    """The same for layers as functions of one position."""

    decoder: StepwiseDecoder
    source: StepSource
    store: KeyValueStore

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.store.length

    def select(self, rows: Int[Tensor, "N"]) -> "TransformerStepState":
        """The state of the chosen batch rows, in that order."""
        return TransformerStepState(self.decoder, self.source.select(rows), self.store.select(rows))


class Transformer(nn.Module):
    """Writes a target token by token, with attention to a source."""

    context_limit: int
    """The most tokens it can read; only learned positions bound it, and only then it is there."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 128
        heads: PositiveInt = 4
        encoder_layers: PositiveInt = 4
        decoder_layers: PositiveInt = 4
        hidden: PositiveInt | None = None
        """Units of the feed-forward layers; four times the width if not given."""
        activation: str = "relu"
        """Of the feed-forward layers."""
        norm: Literal["before", "after"] = "after"
        """Normalise before each branch, and once more at the end, or after each sum."""
        position: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
        context: PositiveInt = 1024
        """Positions to learn, a bound on both sides; of sinusoidal ones, those kept ready."""
        scaled: bool = True
        """Multiply embeddings by √width."""
        shared: Literal["none", "decoder", "all"] = "decoder"
        """One table for the decoder's input and output, or for the encoder's input too."""
        bias: bool = True
        """Biases in attention and feed-forward layers."""
        output_bias: bool = False
        """A bias for each word of the output."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """On the output of each residual branch."""
        embedding_dropout: float | None = Field(None, ge=0, lt=1)
        """On embeddings with their positions; as `dropout` if not given."""
        attention_dropout: float = Field(0.0, ge=0, lt=1)
        """On attention weights."""
        activation_dropout: float = Field(0.0, ge=0, lt=1)
        """Inside the feed-forward layers."""
        encoder_score: str = "scaled_dot"
        """Of the source to itself."""
        encoder_weigh: str = "softmax"
        decoder_score: str = "scaled_dot"
        """Of the target to itself."""
        decoder_weigh: str = "softmax"
        cross_score: str = "scaled_dot"
        """Of the target to the source."""
        cross_weigh: str = "softmax"
        source: str | None = None
        """A run of such a model to initialise from; sizes must be the same."""

    def __init__(
        self,
        config: Config,
        vocabulary: int,
        source_vocabulary: int,
        *,
        source: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if config.shared == "all" and vocabulary != source_vocabulary:
            raise UserError(
                f"shared='all' needs one vocabulary for both sides, but the source has "
                f"{source_vocabulary} words and the target {vocabulary}; use shared='decoder'"
            )
        self.config = config
        width = config.width
        self.embed = TokenEmbedding(vocabulary, width, scaled=config.scaled)
        self.source_embed = (
            None
            if config.shared == "all"
            else TokenEmbedding(source_vocabulary, width, scaled=config.scaled)
        )
        self.source_position = POSITIONS[config.position](width, config.context)
        self.position = POSITIONS[config.position](width, config.context)
        spared = config.embedding_dropout
        self.drop = Dropout(config.dropout if spared is None else spared)
        self.encoder = nn.ModuleList(self._encoder_block() for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(self._decoder_block() for _ in range(config.decoder_layers))
        before = config.norm == "before"
        self.source_norm = nn.LayerNorm(width) if before else nn.Identity()
        self.norm = nn.LayerNorm(width) if before else nn.Identity()
        tied = config.shared != "none"
        self.output = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if config.output_bias else None
        if config.position == "learned":
            self.context_limit = config.context
        self._initialise()
        if source is not None:
            initialise_from(self, source)

    def _encoder_block(self) -> EncoderBlock:
        c = self.config
        return EncoderBlock(
            c.width,
            c.heads,
            self._hidden(),
            dropout=c.dropout,
            norm_first=c.norm == "before",
            attention=self._self_attention(c.encoder_score, c.encoder_weigh, ("source", "source")),
            feedforward=self._feedforward(),
        )

    def _decoder_block(self) -> DecoderBlock:
        c = self.config
        cross = CrossAttention(
            c.width,
            c.heads,
            score=c.cross_score,
            weigh=c.cross_weigh,
            dropout=c.attention_dropout,
            bias=c.bias,
        )
        return DecoderBlock(
            c.width,
            c.heads,
            self._hidden(),
            dropout=c.dropout,
            norm_first=c.norm == "before",
            attention=self._self_attention(c.decoder_score, c.decoder_weigh, ("target", "prefix")),
            cross=cross,
            feedforward=self._feedforward(),
        )

    def _self_attention(self, score: str, weigh: str, axes: AxisPair) -> SelfAttention:
        c = self.config
        return SelfAttention(
            c.width,
            c.heads,
            score=score,
            weigh=weigh,
            dropout=c.attention_dropout,
            bias=c.bias,
            axes=axes,
        )

    def _feedforward(self) -> FeedForward:
        c = self.config
        return FeedForward(
            c.width,
            self._hidden(),
            activation=c.activation,
            dropout=c.activation_dropout,
            bias=c.bias,
        )

    def _hidden(self) -> int:
        return self.config.hidden or 4 * self.config.width

    def _initialise(self) -> None:
        """Xavier for the projections; what belongs to a score or a weighing is left as it is."""
        std = self.config.width**-0.5
        for name, module in self.named_modules():
            gain = _GAINS.get(name.rpartition(".")[2])
            if isinstance(module, nn.Linear) and gain is not None:
                nn.init.xavier_uniform_(module.weight, gain)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=std)
        for position in (self.source_position, self.position):
            for table in position.parameters():
                nn.init.normal_(table, std=std)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=std)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the target, given all before it and the source."""
        states, real = self.encode(batch["source"], batch["source_lengths"])
        x: Tensor = self.drop(self.position(self.embed(batch["tokens"])))
        for layer in self.decoder:
            assert isinstance(layer, DecoderBlock)
            x = layer(x, layer.cross.remember(states), _CAUSAL, real)
        return self._predicted(x)

    def encode(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B S D"], Mask]:
        """A state for each source token, and which of them are real."""
        real = padding(lengths)
        embed = self.embed if self.source_embed is None else self.source_embed
        x: Tensor = self.drop(self.source_position(embed(source)))
        for layer in self.encoder:
            x = layer(x, real)
        return self.source_norm(x), real

    def start(self, source: Batch) -> TransformerState | TransformerStepState:
        """The state before the first token: the source, read once."""
        lengths, blocks = source["source_lengths"], self._decoder()
        states, _ = self.encode(source["source"], lengths)
        crosses = [layer.cross for layer in blocks]
        looked = SourceMemory.of(
            tuple(cross.remember(states) for cross in crosses),
            lengths,
            attends=[cross.attend for cross in crosses],
        )
        decoder = StepwiseDecoder.build(blocks)
        if decoder is not None:
            return TransformerStepState(decoder, StepSource.prepare(looked), KeyValueStore())
        caches = tuple(Cache(room=_ROOM) for _ in crosses)
        return TransformerState(looked, caches, tuple(START for _ in crosses))

    def step(
        self, tokens: Int[Tensor, "B"], state: TransformerState | TransformerStepState
    ) -> tuple[Float[Tensor, "B V"], TransformerState | TransformerStepState]:
        """Logits of the next tokens after these."""
        if isinstance(state, TransformerStepState):
            return self._stepped(tokens, state)
        x: Tensor = self.drop(self.position(self.embed(tokens[:, None]), state.length))
        caches, pasts = [], []
        each = zip(self._decoder(), state.caches, state.pasts, strict=True)
        for number, (layer, cache, past) in enumerate(each):
            x, cache, past = layer.step_shared(x, state.source, number, cache, _CAUSAL, past)
            caches.append(cache)
            pasts.append(past)
        logits = self._predicted(x).logits().squeeze(1)
        return logits, TransformerState(state.source, tuple(caches), tuple(pasts))

    @torch.no_grad()
    def _stepped(
        self, tokens: Tensor, state: TransformerStepState
    ) -> tuple[Tensor, TransformerStepState]:
        """The same without modules."""
        x = embed_step(tokens, self.embed, self.position, state.length)
        x, store = state.decoder(x, state.store, state.source)
        logits = logits_function(self.embed, self.output, self.bias)(row_function(self.norm)(x))
        return logits, TransformerStepState(state.decoder, state.source, store)

    def _decoder(self) -> list[DecoderBlock]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderBlock)]

    def _predicted(self, x: Tensor) -> SoftmaxOutput:
        table = self.embed.table if self.output is None else self.output
        return SoftmaxOutput(self.norm(x), table.weight, self.bias)


_CAUSAL = causal()
_ROOM = 64
"""Positions a cache begins with; most sentences are shorter."""
_GAINS = {
    "project": 1.0,  # query, key and value in one table, which makes it 2^-½ for each
    "query": 2**-0.5,
    "key": 2**-0.5,
    "value": 2**-0.5,
    "merge": 1.0,
    "widen": 1.0,
    "narrow": 1.0,
}
"""Xavier's gain for each projection, as in fairseq."""
