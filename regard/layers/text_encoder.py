"""The encoder of BERT and its kin (Devlin et al. 2019): a text in, a vector for each token out.

Tokens, positions and segments are added up, normalised, and go through layers in which every token
attends to all others. RoBERTa and DistilBERT are the same with other settings (`Encoding`). A batch
holds `tokens` [B,T] and, where some are padding, `lengths` [B] or, if that stands on either side,
`allowed` [B,T], True where a token is real; `parts` [B,T] where there are segments.

Layers are called by their number alone, so that the attention of the fourth is found as
`encoder.3.attention` in whatever model has this as its `encoder`.

>>> encoder = TextEncoder(Encoding(width=8, heads=2, layers=2, hidden=16), vocabulary=10)
>>> encoder({"tokens": torch.tensor([[4, 5, 0]]), "lengths": torch.tensor([2])}).shape
torch.Size([1, 3, 8])
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention import Mask, padding, sinusoid
from regard.core.config import Config
from regard.core.errors import UserError, choose, divides
from regard.core.padding import real_positions
from regard.core.protocols import Batch
from regard.kernels.dropout import Dropout
from regard.layers.block import EncoderBlock
from regard.layers.embedding import SegmentEmbedding, TokenEmbedding
from regard.layers.feedforward import ACTIVATIONS, FeedForward
from regard.layers.multihead import SelfAttention, heads_by_layer
from regard.layers.position import Learned

_INIT_RANGE = 0.02
"""The standard deviation of initial weights (Devlin et al. 2019, as in their code)."""


class Encoding(Config):
    """The settings of an encoder in a recipe."""

    width: PositiveInt = 128
    heads: PositiveInt = 4
    layers: PositiveInt = 4
    heads_left: tuple[PositiveInt, ...] | None = None
    """How many heads each layer has, where some were taken out (regard/experiments/heads.py)."""
    hidden: PositiveInt | None = None
    """Units of the feed-forward layers; four times the width if not given."""
    activation: str = "gelu"
    context: PositiveInt = 512
    """The largest number of tokens."""
    segments: NonNegativeInt = 2
    """The number of segment embeddings; 0 for none."""
    uncounted: NonNegativeInt | None = None
    """The padding token, if positions skip padding and begin after this id, as RoBERTa's do;
    otherwise positions count every token from zero."""
    norm: Literal["after", "before"] = "after"
    """Normalise after each sum, or before each branch and once more at the end."""
    norm_eps: PositiveFloat = 1e-12
    init_range: PositiveFloat = _INIT_RANGE
    """The standard deviation of the vectors of tokens and of positions at first."""
    waves: bool = False
    """Initialise positions as sines and cosines, so that near ones are similar from the start."""
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    """On the weights of attention."""

    @model_validator(mode="after")
    def _agree(self) -> "Encoding":
        divides("width", self.width, "heads", self.heads)
        choose("activation", self.activation, ACTIVATIONS)
        heads_by_layer(self.heads, self.layers, self.heads_left)
        return self


class TextEncoder(nn.Module):
    """Embeddings of tokens, positions and segments; layers with attention in both directions."""

    def __init__(self, config: Encoding, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        """Compute layers once more on the way back instead of holding what they made: a third more
        time, and memory for one layer instead of all (Chen et al. 2016)."""
        self.embed = TokenEmbedding(vocabulary, config.width)
        self.position = Learned(config.width, self._first + config.context)
        self.segment = SegmentEmbedding(config.segments, config.width) if config.segments else None
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.drop = Dropout(config.dropout)
        for number in range(config.layers):
            self.add_module(str(number), self._block(number))
        before = config.norm == "before"
        self.last_norm = nn.LayerNorm(config.width, eps=config.norm_eps) if before else None
        initialise_normal(self)
        self._begin_tables()

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.config.context

    @torch.no_grad()
    def _begin_tables(self) -> None:
        """Scale tokens and positions to `init_range`; positions may be waves."""
        std, places = self.config.init_range, self.position.table
        if places.is_meta:  # there are no numbers to scale
            return
        self.embed.table.weight.mul_(std / _INIT_RANGE)
        if not self.config.waves:
            places.mul_(std / _INIT_RANGE)
            return
        positions = torch.arange(len(places), device=places.device, dtype=places.dtype)
        waves = sinusoid(positions, places.shape[1])  # [T,D]
        places.copy_(waves * (std * 2**0.5))  # the deviation of a sine is √½

    def _block(self, number: int) -> EncoderBlock:
        c = self.config
        hidden = c.hidden or 4 * c.width
        attention = SelfAttention(
            c.width,
            heads_by_layer(c.heads, c.layers, c.heads_left)[number],
            head_width=c.width // c.heads,
            dropout=c.attention_dropout,
        )
        return EncoderBlock(
            c.width,
            c.heads,
            hidden,
            dropout=c.dropout,
            norm_first=c.norm == "before",
            norm_eps=c.norm_eps,
            attention=attention,
            feedforward=FeedForward(c.width, hidden, activation=c.activation),
        )

    @property
    def _first(self) -> int:
        """The number of the first position."""
        return 0 if self.config.uncounted is None else self.config.uncounted + 1

    @property
    def blocks(self) -> list[EncoderBlock]:
        """The layers, from the first to the last."""
        return [each for each in self.children() if isinstance(each, EncoderBlock)]

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""
        return self.embed.table.num_embeddings

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """A vector for each token; vectors at padding have no meaning."""
        return self.every(batch)[-1]

    def every(self, batch: Batch) -> list[Float[Tensor, "B T D"]]:
        """The input of the first layer, and the output of each."""
        mask = _real_tokens(batch)
        made = [self.entered(batch)]
        for block in self.blocks:
            made.append(self._through(block, made[-1], mask))
        if self.last_norm is not None:
            made[-1] = self.last_norm(made[-1])
        return made

    def _through(self, block: EncoderBlock, x: Tensor, mask: Mask | None) -> Tensor:
        again = self.recompute and self.training and torch.is_grad_enabled()
        made: Tensor = checkpoint(block, x, mask, use_reentrant=False) if again else block(x, mask)
        return made

    def entered(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The sum of token, position and segment embeddings, normalised."""
        tokens = batch["tokens"]
        if tokens.shape[1] > self.config.context:
            raise UserError(
                f"{tokens.shape[1]} tokens do not fit a context of {self.config.context}; "
                "cut the text, or read it in pieces"
            )
        x = self.embed(tokens)  # [B,T,D]
        if self.segment is not None:
            parts = batch.get("parts", torch.zeros_like(tokens))
            x = self.segment(x, parts.clamp(0, self.config.segments - 1))
        entered: Tensor = self.drop(self.norm(self._placed(x, tokens)))
        return entered

    def _placed(self, x: Tensor, tokens: Int[Tensor, "B T"]) -> Tensor:
        if self.config.uncounted is None:
            placed: Tensor = self.position(x)
            return placed
        counted = (tokens != self.config.uncounted).long()  # [B,T]
        places = counted.cumsum(1) * counted + self.config.uncounted
        return x + self.position.table[places]

    def layers_of(self, batch: Batch) -> Float[Tensor, "L B T D"]:
        """The input of the first layer and the output of each; zero at padding."""
        every = torch.stack(self.every(batch))
        real = real_of(batch)
        return every if real is None else every * real[..., None]

    def stages(self) -> list[list[nn.Parameter]]:
        """The parameters of the first layer, and of each layer from the first to the last."""
        blocks = self.blocks
        inner = [list(block.parameters()) for block in blocks]
        held = {id(each) for stage in inner for each in stage}
        first = [each for each in self.parameters() if id(each) not in held]
        return [first, *inner]


def real_of(batch: Batch) -> Bool[Tensor, "B T"] | None:
    """True where a token is not padding; None in a batch without padding."""
    if "allowed" in batch:
        return batch["allowed"].bool()
    if "lengths" in batch:
        return real_positions(batch["lengths"], batch["tokens"].shape[1])
    return None


def _real_tokens(batch: Batch) -> Mask | None:
    """The mask that lets tokens look at those that are real."""
    if "allowed" in batch:
        return padding(batch["allowed"].bool())
    return padding(batch["lengths"]) if "lengths" in batch else None


def encoder_of(source: nn.Module, vocabulary: int, given: Encoding | None) -> TextEncoder:
    """The encoder of a trained model that another begins with; settings, if given, must agree."""
    found: object = dict(source.named_children()).get("encoder")
    if not isinstance(found, TextEncoder):
        raise UserError(
            f"this model begins with the encoder of a bert, not with a {type(source).__name__}; "
            "set model.source to a run of one, or to a folder that `regard import` wrote"
        )
    if found.vocabulary != vocabulary:
        raise UserError(
            f"model.source reads {found.vocabulary} tokens, and the data have {vocabulary}; they "
            "must be in the tokeniser of that run"
        )
    ours, theirs = {} if given is None else given.model_dump(), found.config.model_dump()
    for name, value in ours.items():
        if value != theirs[name]:
            raise UserError(
                f"model.encoder.{name}={value}, but that of model.source is {theirs[name]}; leave "
                "model.encoder out to have its settings"
            )
    return found


def initialise_normal(model: nn.Module) -> None:
    """Weights normal with a small deviation, biases zero."""
    for each in model.modules():
        if isinstance(each, nn.Linear):
            nn.init.normal_(each.weight, std=_INIT_RANGE)
            if each.bias is not None:
                nn.init.zeros_(each.bias)
