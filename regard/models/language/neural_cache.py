"""A neural cache over a language model that is already trained (Grave et al. 2017).

With h_i the inputs of the model's output layer and x_i the words (section 3):

    p_cache(w) ∝ Σ exp(θ h_t·h_i) over the last `size` i < t whose next word x_i+1 is w
    p(w) = (1 - λ) p_vocab(w) + λ p_cache(w)

The model under the cache is a trained run and stays as it is: only θ and λ are learnt, two numbers
for which the held-out text serves as training text (the paper tries them on a grid). The cache
lives in the carry, so evaluation and search use this as any other model. Until a text has two words
the cache is empty, and p = p_vocab.

>>> import torch
>>> from regard.models.language.rnn_lm import RNNLM
>>> lm = RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10)
>>> model = NeuralCache(NeuralCache.Config(source="runs/lm", size=2), vocabulary=10, source=lm)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.key_tokens.tolist(), output.carry["tokens"].tolist()           # h_0 leads to 2, h_1 to 3
([[2, 3]], [[2, 3]])
"""

from dataclasses import dataclass, replace
from math import log

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Dot, Past
from regard.attention import window as sliding_window
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carried, Carrying, following, recent
from regard.outputs.next_token import SoftmaxOutput
from regard.outputs.pointer import PointerMixture

_FROZEN = "frozen."
"""The prefix of the frozen model's own carry in the carry of both."""


@dataclass(frozen=True)
class CachedWindow:
    """A window of text beside the cache."""

    words: SoftmaxOutput
    """What the model predicts without the cache."""
    keys: Float[Tensor, "B K D"]
    """The states whose next word is known: those carried, and all but the last of the window."""
    key_tokens: Int[Tensor, "B K"]
    """The word after each of them."""
    first: int
    """The position of the window's first state among them."""
    carry: Carry


class NeuralCache(Carrying):
    """A frozen language model, and a cache of the words after its recent states."""

    class Config(Config):
        """What a recipe may choose."""

        source: str
        """The run folder of the model under the cache."""
        size: PositiveInt = 500
        """How many states are kept."""
        theta: float = Field(0.3, gt=0)
        """How sharply the cache prefers states that are like the present one: θ, at first."""
        mix: float = Field(0.1, gt=0, lt=1)
        """How much of the probability is the cache's: λ, at first."""

    def __init__(self, config: Config, vocabulary: int, *, source: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.frozen = source.requires_grad_(False)
        self.mask = sliding_window(left=config.size) & ~sliding_window(left=0)
        self.attend = Attend(Dot(_width_of(source)), kind="pointer", axes=("position", "next"))
        self.log_theta = nn.Parameter(torch.tensor(log(config.theta)))
        self.mix_logit = nn.Parameter(torch.tensor(log(config.mix / (1 - config.mix))))

    def train(self, mode: bool = True) -> "NeuralCache":
        """The model under the cache stays in evaluation mode."""
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, batch: Batch, carry: Carry | None = None) -> PointerMixture:
        """The next token after each; the cache is carried."""
        window = self.read(batch["tokens"], carry)
        keys = window.keys[:, None]  # [B,1,K,D]
        weights = self.attend.weights(
            self.log_theta.exp() * window.words.states[:, None],
            self.attend.remember(keys, keys),
            self.mask,
            Past(first=window.first),
        ).squeeze(1)  # [B,T,K]
        pointer = self.mix_logit.sigmoid() * weights
        share = 1 - pointer.sum(2)  # [B,T], one where the cache is empty
        return PointerMixture(window.words, share, pointer, window.key_tokens, carry=window.carry)

    @torch.no_grad()
    def read(self, tokens: Int[Tensor, "B T"], carry: Carry | None) -> CachedWindow:
        """Run the model over a window, and put its states beside those of the cache."""
        own = {
            name.removeprefix(_FROZEN): each
            for name, each in (carry or {}).items()
            if name.startswith(_FROZEN)
        }
        output = self.frozen({"tokens": tokens}, own or None)
        words = _softmax_of(output, self.frozen)
        states = following(carry, "states", words.states)  # [B,K,D]
        tokens_read = following(carry, "tokens", tokens)  # [B,K]
        size = self.config.size
        cache = {"states": recent(states, size), "tokens": recent(tokens_read, size)}
        return CachedWindow(
            words=words,
            keys=states[:, :-1],
            key_tokens=tokens_read[:, 1:],
            first=states.shape[1] - tokens.shape[1],
            carry={
                **cache,
                **{_FROZEN + name: each for name, each in (output.carry or {}).items()},
            },
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: Carried
    ) -> tuple[Float[Tensor, "B V"], Carried]:
        """Logits of the next tokens after these."""
        logits, after = super().step(tokens, state)
        if not any(name.startswith(_FROZEN) for name in after.carry or {}):
            raise UserError(
                f"{type(self.frozen).__name__} has no carry, so "
                "under a neural cache it can be evaluated but cannot generate"
            )
        return logits, after


def _width_of(model: nn.Module) -> int:
    """The width of its output layer's input, from a call with token 0."""
    device = next((each.device for each in model.parameters()), None)
    with torch.no_grad():
        output = model({"tokens": torch.zeros(1, 1, dtype=torch.long, device=device)})
    return _softmax_of(output, model).states.shape[2]


def _softmax_of(output: object, model: nn.Module) -> SoftmaxOutput:
    """The output of a plain output layer, without the gradient of that layer."""
    if not isinstance(output, SoftmaxOutput):
        raise UserError(
            "a neural cache compares the inputs of an output layer, but "
            f"{type(model).__name__} returns {type(output).__name__}"
        )
    bias = None if output.bias is None else output.bias.detach()
    return replace(output, weight=output.weight.detach(), bias=bias)
