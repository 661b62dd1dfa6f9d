"""ULMFiT: a language model, fine-tuned as a classifier (Howard and Ruder 2018).

A trained AWD-LSTM (`source`) reads the text; its last state, the maximum and the mean of all its
states (section 3.3, concat pooling) go through two layers with normalisation and dropout. A text
is read in windows of `window` words with the state carried over, and gradients reach into the
last `windows` of them (BPT3C). With `[train.stages]` in the recipe, layers are unfrozen one after
another and have learning rates of their own: the words, each LSTM, and the new layers on top.

With `fresh` the network has the source's sizes and vocabulary and none of its weights: a baseline
without pre-training.

>>> from regard.models.language.awd_lstm import AWDLSTM
>>> lm = AWDLSTM(AWDLSTM.Config(width=8, hidden=12), vocabulary=10)
>>> model = ULMFiT(ULMFiT.Config(source="runs/lm"), vocabulary=10, classes=2, source=lm).eval()
>>> batch = {"tokens": torch.tensor([[4, 5, 6], [7, 0, 0]]), "lengths": torch.tensor([3, 1])}
>>> model(batch).logits.shape
torch.Size([2, 2])
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.weight_drop import CellState
from regard.outputs.classes import Classes


@runtime_checkable
class RecurrentLM(Protocol):
    """A language model in layers: an embedding and recurrent cells."""

    embed: nn.Embedding
    cells: nn.ModuleList

    def read_layers(
        self, tokens: Int[Tensor, "B T"], states: list[CellState] | None = None
    ) -> tuple[list[Tensor], list[CellState]]:
        """The state of every layer after each token, and the last state of each layer."""
        ...


class ULMFiT(nn.Module):
    """A language model, pooled, and two layers on top."""

    class Config(Config):
        """What a recipe may choose."""

        source: str
        """The run folder of the language model: an awd_lstm."""
        fresh: bool = False
        """Initialise the weights of the language model anew."""
        hidden: PositiveInt = 50
        """Of the first new layer."""
        dropout: float = Field(0.2, ge=0, lt=1)
        """On the pooled states; half of it before the last layer."""
        window: PositiveInt = 70
        """Words that are read at a time."""
        windows: PositiveInt = 4
        """How many of the last windows have gradients."""

    def __init__(self, config: Config, vocabulary: int, classes: int, *, source: nn.Module) -> None:
        super().__init__()
        if not isinstance(source, RecurrentLM):
            raise UserError(
                f"ULMFiT is initialised from an awd_lstm, not from a {type(source).__name__}; set "
                "model.source to a run of one"
            )
        self.config = config
        self.reader = source
        if config.fresh:
            _reinitialise(source)
        for each in source.parameters():
            each.requires_grad_(False)  # the output layer is not used here
        for part in (source.embed, source.cells):
            part.requires_grad_(True)
        width = source.embed.embedding_dim
        self.top = nn.Sequential(
            TextBatchNorm(3 * width),
            Dropout(config.dropout),
            nn.Linear(3 * width, config.hidden),
            nn.ReLU(),
            TextBatchNorm(config.hidden),
            Dropout(config.dropout / 2),
            nn.Linear(config.hidden, classes),
        )

    def stages(self) -> list[list[nn.Parameter]]:
        """Words, each LSTM, the layers on top."""
        assert isinstance(self.reader, RecurrentLM)
        parts = [self.reader.embed, *self.reader.cells, self.top]
        return [list(part.parameters()) for part in parts]

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        tokens, lengths = batch.get("source_tokens", batch["tokens"]), batch["lengths"]
        return Classes(self.top(pooled(self.states(tokens), lengths)))

    def states(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The last layer at each word, window by window; only the last few have gradients."""
        assert isinstance(self.reader, RecurrentLM)
        pieces = tokens.split(self.config.window, dim=1)
        states: list[CellState] | None = None
        tops: list[Tensor] = []
        for left, piece in zip(range(len(pieces), 0, -1), pieces, strict=True):
            learns = torch.is_grad_enabled() and left <= self.config.windows
            with torch.set_grad_enabled(learns):
                layers, states = self.reader.read_layers(piece, states)
            tops.append(layers[-1])
        return torch.cat(tops, dim=1)


class TextBatchNorm(nn.BatchNorm1d):
    """Batch normalisation that normalises a batch of one text with the running statistics."""

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Each feature by its mean and deviation over the texts."""
        if self.training and len(features) > 1:
            return super().forward(features)
        return nn.functional.batch_norm(
            features, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


def pooled(states: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B C"]:
    """The last state, the maximum and the mean of each text; zeros for an empty one.

    >>> pooled(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2])).tolist()
    [[3.0, 3.0, 2.0]]
    """
    real = real_positions(lengths, states.shape[1])[..., None]  # [B,T,1]
    some = (lengths > 0)[:, None]
    end = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, states.shape[2])
    last = states.gather(1, end).squeeze(1)  # [B,D]
    most = torch.where(real, states, torch.finfo(states.dtype).min).amax(1)
    mean = torch.where(real, states, 0.0).sum(1) / lengths.clamp_min(1)[:, None]
    return torch.where(some, torch.cat((last, most, mean), dim=1), 0.0)


def _reinitialise(model: nn.Module) -> None:
    """New random weights, each tensor uniform within its own fan-in."""
    for each in model.parameters():
        reach = each.shape[-1] ** -0.5 if each.dim() > 1 else 0.0
        nn.init.uniform_(each, -reach, reach)
