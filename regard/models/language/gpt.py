"""A decoder-only Transformer: GPT (Radford et al. 2018) and GPT-2 (Radford et al. 2019).

GPT normalises after each sum, GPT-2 inside each branch and once more at the end; both learn their
positions and use the embedding as output layer. Rotary positions, shared key heads, and any score
or weighing of the tables are set in the config.

>>> import torch
>>> model = GPT(GPT.Config(width=16, heads=2, layers=2, context=8), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape
torch.Size([1, 3, 10])
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention import Mask, causal, padding
from regard.core.config import Config
from regard.core.errors import UserError, divides
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.block import EncoderBlock
from regard.layers.cache import Cache, join
from regard.layers.embedding import TokenEmbedding
from regard.layers.feedforward import FeedForward
from regard.layers.initialise import initialise_from
from regard.layers.key_value_store import KeyValueStore
from regard.layers.multihead import SelfAttention, heads_by_layer
from regard.layers.position import POSITIONS, Rotary
from regard.layers.stepwise import StepwiseDecoder, embed_step, logits_function, row_function
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class GPTState:
    """The keys and values of every layer."""

    caches: tuple[Cache, ...]

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.caches[0].length

    def mask(self) -> Mask:
        """Which keys the tokens of the next call may attend to."""
        empty = self.caches[0].empty
        if empty is None:
            return _CAUSAL
        return padding(torch.arange(self.length + 1, device=empty.device) >= empty[:, None])

    def select(self, rows: Int[Tensor, "N"]) -> "GPTState":
        """The state of the chosen batch rows, in that order."""
        return replace(self, caches=tuple(cache.select(rows) for cache in self.caches))


@dataclass(frozen=True)
class GPTStepState:
    """The same for layers as functions of one position."""

    decoder: StepwiseDecoder
    store: KeyValueStore

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.store.length

    def select(self, rows: Int[Tensor, "N"]) -> "GPTStepState":
        """The state of the chosen batch rows, in that order."""
        return replace(self, store=self.store.select(rows))


class GPT(nn.Module):
    """Predicts the next token from all tokens before it, up to `context`."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 128
        heads: PositiveInt = 4
        layers: PositiveInt = 4
        heads_left: tuple[PositiveInt, ...] | None = None
        """How many heads each layer has, if some were pruned (regard/experiments/heads.py)."""
        context: PositiveInt = 64
        """The most tokens it can read."""
        hidden: PositiveInt | None = None
        """Units of the feed-forward layers; four times the width if not given."""
        key_heads: PositiveInt | None = None
        """Heads of keys and values, fewer than `heads` to share them."""
        activation: str = "gelu"
        norm: Literal["before", "after"] = "before"
        """Normalise before each branch (GPT-2) or after each sum (GPT)."""
        position: Literal["learned", "sinusoidal", "rotary"] = "learned"
        score: str = "scaled_dot"
        weigh: str = "softmax"
        bias: bool = True
        """Biases in attention and feed-forward layers."""
        tied: bool = True
        """Use the embedding as output layer."""
        norm_eps: float = Field(1e-5, gt=0)
        """Added to the variance in each norm."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On the output of each residual branch."""
        embedding_dropout: float | None = Field(None, ge=0, lt=1)
        """On embeddings with their positions; as `dropout` if not given."""
        attention_dropout: float | None = Field(None, ge=0, lt=1)
        """On attention weights; as `dropout` if not given."""
        recompute: bool = False
        """Compute layers again in the backward pass instead of keeping their activations: less
        memory for a third more time (Chen et al. 2016)."""
        source: str | None = None
        """A run of such a model to initialise from; sizes must be the same."""

    def __init__(self, config: Config, vocabulary: int, *, source: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.recompute = config.recompute
        self.embed = TokenEmbedding(vocabulary, config.width)
        self.position = (
            None
            if config.position == "rotary"
            else POSITIONS[config.position](config.width, config.context)
        )
        spared = config.embedding_dropout
        self.drop = Dropout(config.dropout if spared is None else spared)
        every = heads_by_layer(config.heads, config.layers, config.heads_left)
        self.layers = nn.ModuleList(self._block(heads) for heads in every)
        before = config.norm == "before"
        self.norm = nn.LayerNorm(config.width, config.norm_eps) if before else nn.Identity()
        self.output = None if config.tied else nn.Linear(config.width, vocabulary, bias=False)
        self._initialise()
        if source is not None:
            initialise_from(self, source)

    def _block(self, heads: int) -> EncoderBlock:
        c = self.config
        rotary = Rotary(c.width // c.heads, c.context) if c.position == "rotary" else None
        hidden = c.hidden or 4 * c.width
        attention = SelfAttention(
            c.width,
            heads,
            key_heads=c.key_heads,
            head_width=divides("width", c.width, "heads", c.heads),
            score=c.score,
            weigh=c.weigh,
            rotary=rotary,
            dropout=c.dropout if c.attention_dropout is None else c.attention_dropout,
            bias=c.bias,
        )
        feedforward = FeedForward(c.width, hidden, activation=c.activation, bias=c.bias)
        return EncoderBlock(
            c.width,
            c.heads,
            hidden,
            dropout=c.dropout,
            norm_first=c.norm == "before",
            norm_eps=c.norm_eps,
            attention=attention,
            feedforward=feedforward,
        )

    def stages(self) -> list[list[nn.Parameter]]:
        """The embeddings of tokens and positions, each layer, and the output layer.

        A tied output layer is the embedding, in the first stage.
        """
        places = [] if self.position is None else list(self.position.parameters())
        first = [*self.embed.parameters(), *places]
        layers = [list(layer.parameters()) for layer in self.layers]
        top = [*self.norm.parameters(), *([] if self.output is None else self.output.parameters())]
        return [first, *layers, *([top] if top else [])]

    def _initialise(self) -> None:
        """Normal with 0.02, by 1/√(2 layers) less where a branch ends (GPT-2, section 2.3)."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                last = name.endswith(("merge", "narrow"))
                shrink = (2 * self.config.layers) ** -0.5 if last else 1.0
                nn.init.normal_(module.weight, std=0.02 * shrink)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; there is no carry."""
        return self.predicted(self.states(batch["tokens"]))

    def states(
        self, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """The last layer at each token, from that token and those before it; padding is masked."""
        x = self._entered(tokens, 0, 0)
        padded = lengths is not None and int(lengths.min()) < tokens.shape[1]
        mask = _CAUSAL & padding(lengths) if lengths is not None and padded else _CAUSAL
        again = self.recompute and self.training and torch.is_grad_enabled()
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False) if again else layer(x, mask)
        normed: Tensor = self.norm(x)
        return normed

    def predicted(self, states: Float[Tensor, "B T D"]) -> SoftmaxOutput:
        """The next token after each of these states."""
        table = self.embed.table if self.output is None else self.output
        return SoftmaxOutput(states, table.weight)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.config.context

    def start(self, source: Batch) -> GPTState | GPTStepState:
        """The state after a prompt, all but its last token, which the first step reads."""
        tokens = source["tokens"]
        if tokens.shape[1] == 0:
            raise UserError("a prompt needs at least one token")
        room, blocks = self.config.context, self._blocks()
        state, decoder = (
            GPTState(tuple(Cache(room=room) for _ in blocks)),
            StepwiseDecoder.build(blocks),
        )
        if tokens.shape[1] > 1:
            _, state = self._read(tokens[:, :-1], state)
        if decoder is None:
            return state
        store = (
            KeyValueStore.from_caches(state.caches) if state.length else KeyValueStore(by_row=False)
        )
        return GPTStepState(decoder, store)

    def step(
        self, tokens: Int[Tensor, "B"], state: GPTState | GPTStepState
    ) -> tuple[Float[Tensor, "B V"], GPTState | GPTStepState]:
        """Logits of the next tokens after these."""
        if isinstance(state, GPTStepState):
            return self._stepped(tokens, state)
        x, state = self._read(tokens[:, None], state)
        return self._predicted(x).logits().squeeze(1), state

    @torch.no_grad()
    def _stepped(self, tokens: Tensor, state: GPTStepState) -> tuple[Tensor, GPTStepState]:
        """The same without modules."""
        self._check(state.length + 1)
        x = embed_step(tokens, self.embed, self.position, state.store.first)
        x, store = state.decoder(x, state.store)
        logits = logits_function(self.embed, self.output)(row_function(self.norm)(x))
        return logits, GPTStepState(state.decoder, store)

    def join(self, states: Sequence[GPTState | GPTStepState]) -> GPTState | GPTStepState | None:
        """All rows as one batch, of any lengths; None if scores depend on positions of keys."""
        if not all(state.length for state in states):
            return None  # there is nothing to join yet
        if not all(block.attention.attend.by_content for block in self._blocks()):
            return None
        stepped = [state for state in states if isinstance(state, GPTStepState)]
        if len(stepped) == len(states):
            joined = KeyValueStore.concatenate([state.store for state in stepped])
            return GPTStepState(stepped[0].decoder, joined)
        every = [s.store.caches() if isinstance(s, GPTStepState) else s.caches for s in states]
        return GPTState(tuple(join(caches) for caches in zip(*every, strict=True)))

    def _read(self, tokens: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        mask, caches = state.mask(), []
        x = self._entered(tokens, state.caches[0].first, state.length)
        for layer, cache in zip(self._blocks(), state.caches, strict=True):
            x, grown = layer.step(x, cache, mask)
            caches.append(grown)
        return x, replace(state, caches=tuple(caches))

    def _entered(self, tokens: Tensor, first: int | Tensor, length: int) -> Tensor:
        self._check(length + tokens.shape[1])
        x = self.embed(tokens)
        entered: Tensor = self.drop(x if self.position is None else self.position(x, first))
        return entered

    def _check(self, length: int) -> None:
        if length > self.config.context:
            raise UserError(
                f"{length} tokens do not fit a context of {self.config.context}; "
                "raise model.context, or lower data.window to it"
            )

    def _blocks(self) -> list[EncoderBlock]:
        return [layer for layer in self.layers if isinstance(layer, EncoderBlock)]

    def _predicted(self, x: Tensor) -> SoftmaxOutput:
        return self.predicted(self.norm(x))


_CAUSAL = causal()


def with_biases(model: nn.Module) -> nn.Module:
    """The same function with biases of zero, if it is a GPT without biases; else the model itself.

    Formats of other programs have biases.

    >>> plain = GPT(GPT.Config(width=8, heads=2, layers=1, bias=False), vocabulary=5)
    >>> with_biases(plain).layers[0].feedforward.widen.bias.abs().max().item()
    0.0
    """
    if not isinstance(model, GPT) or model.config.bias:
        return model
    full = GPT(model.config.model_copy(update={"bias": True}), model.embed.table.num_embeddings)
    missing, unexpected = full.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected
    assert all(name.endswith(".bias") for name in missing)
    with torch.no_grad():
        for name in missing:
            full.get_parameter(name).zero_()
    return full.to(next(model.parameters()).device).train(model.training)
