"""GPT as a classifier of texts and pairs, from the last state (Radford et al. 2018, section 3.2).

GPT reads the text between special tokens, `start a delimiter b extract`, and one layer over the
state of the last of them scores the classes. In training, the loss of the next token may be added
with a weight λ (equation 5). GPT-2's classifiers take the state of the last token, whatever it is,
and have no bias: the same with nothing around the text.

>>> config = GPTClassifier.Config(body=GPT.Config(width=8, heads=2, layers=1))
>>> model = GPTClassifier(config, vocabulary=10, classes=3)
>>> model({"tokens": torch.tensor([[2, 4, 3]]), "lengths": torch.tensor([3])}).logits.shape
torch.Size([1, 3])
"""

from copy import deepcopy

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.initialise import initialise_from
from regard.models.language.gpt import GPT
from regard.outputs.classes import Classes


class GPTClassifier(nn.Module):
    """A GPT and one layer over its last state."""

    class Config(Config):
        """What a recipe may choose."""

        body: GPT.Config | None = None
        """The settings of the GPT; those of the source, if there is one."""
        source: str | None = None
        """The run folder of a GPT, or of such a classifier, to initialise from."""
        fresh: bool = False
        """Take its settings and tokens with new weights: a baseline without pre-training."""
        padding: int | None = None
        """A token that does not count at the end of a text: the last of the others is scored."""
        bias: bool = False
        """A bias for each class."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """Before the classes."""
        next_token_weight: float = Field(0.0, ge=0)
        """λ: the weight of the next-token loss in training."""
        recompute: bool = False
        """Compute layers again in the backward pass: less memory for a third more time."""

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.body = _body_from(config.body, vocabulary, source)
        if config.fresh:
            self.body = GPT(self.body.config, vocabulary)
        self.body.recompute = config.recompute
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(self.body.config.width, classes, bias=config.bias)
        nn.init.normal_(self.output.weight, std=0.02)
        if config.bias:
            nn.init.zeros_(self.output.bias)
        taken = source if isinstance(source, GPTClassifier) and not config.fresh else None
        if taken is not None and taken.output.weight.shape[0] == classes:
            initialise_from(self.output, taken.output)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.body.context_limit

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        states = self.body.states(batch["tokens"], batch["lengths"])
        logits = self._scored(states, batch)
        learns = self.training and self.config.next_token_weight > 0 and states.shape[1] > 1
        return Classes(logits, auxiliary=self._language_loss(states, batch) if learns else None)

    def _language_loss(self, states: Float[Tensor, "B T D"], batch: Batch) -> Float[Tensor, ""]:
        """λ times the mean -log p of a text's tokens, summed over the texts."""
        tokens, lengths = batch["tokens"], batch["lengths"]
        real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]  # [B,T]
        targets = torch.where(real, tokens[:, 1:], IGNORE)
        logs = self.body.predicted(states[:, :-1]).log_probability(targets)  # [B,T]
        each = -logs.sum(1) / real.sum(1).clamp_min(1)
        return self.config.next_token_weight * each.sum()

    def _scored(self, states: Tensor, batch: Batch) -> Tensor:
        rows = torch.arange(len(states), device=states.device)
        last = states[rows, self._last(batch)]  # [B,D]
        scored: Tensor = self.output(self.drop(last))
        return scored

    def _last(self, batch: Batch) -> Int[Tensor, "B"]:
        """The position of each text's last token that counts; 0 if there is none."""
        tokens, lengths = batch["tokens"], batch["lengths"]
        if self.config.padding is None:
            return (lengths - 1).clamp_min(0)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        counts = (places < lengths[:, None]) & (tokens != self.config.padding)  # [B,T]
        return (places * counts).amax(1)

    def stages(self) -> list[list[nn.Parameter]]:
        """The embeddings of tokens and positions, each layer, the rest."""
        below = self.body.stages()[: len(self.body.layers) + 1]
        in_stages = {id(each) for stage in below for each in stage}
        return [*below, [each for each in self.parameters() if id(each) not in in_stages]]


def _body_from(given: GPT.Config | None, vocabulary: int, source: nn.Module | None) -> GPT:
    """A new GPT, or a trained one; a larger vocabulary gets new vectors behind the known ones.

    Those are the special tokens around texts, which the source did not have.
    """
    if source is None:
        return GPT(given or GPT.Config(), vocabulary)
    source = source.body if isinstance(source, GPTClassifier) else source
    if not isinstance(source, GPT):
        raise UserError(f"model.source is a {type(source).__name__}; a gpt was expected")
    if given is not None and given != source.config:
        raise UserError("model.body is that of model.source; leave it out")
    known = source.embed.table.num_embeddings
    if vocabulary < known:
        raise UserError(f"the source has {known} tokens, these data have {vocabulary}")
    if vocabulary == known:
        return deepcopy(source)
    body = GPT(source.config, vocabulary)
    theirs = source.state_dict()
    with torch.no_grad():
        for name, each in body.state_dict().items():
            each[: len(theirs[name])].copy_(theirs[name])
    return body
