"""A neural cache over a language model that is already trained (Grave et al. 2017).

With h_i the states that the model's output layer sees and x_i the words (section 3):

    p_cache(w) ∝ Σ exp(θ h_t·h_i) over the last `size` i < t whose next word x_i+1 is w
    p(w) = (1 - λ) p_vocab(w) + λ p_cache(w)

Nothing is trained: `tuned` tries θ and λ on held-out text, with the dot products computed once.
The cache lives in the carry, so evaluation and search use this as any other model. Until a text has
two words the cache is empty, and p = p_vocab.

The model is the one that the config describes, or any other whose prediction is a `Vocabulary`:

>>> import torch
>>> lm = RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10)
>>> model = NeuralCache(NeuralCache.Config(size=2), vocabulary=10, frozen=lm)
>>> prediction, carry = model(torch.tensor([[1, 2, 3]]))
>>> prediction.held.tolist(), carry["tokens"].tolist()           # h_0 leads to 2, h_1 to 3
([[2, 3]], [[2, 3]])
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Dot, Past, Softmax, window
from regard.core.config import Config
from regard.core.errors import UserError, above_zero, fraction
from regard.core.protocols import Batch, Carry
from regard.layers.carried import Carried, Carrying, following, recent
from regard.layers.mixture import PointerMixture, log_or_none
from regard.layers.output import IGNORED, Vocabulary
from regard.models.rnn_lm import RNNLM

FROZEN = "frozen."
"""How the names of the frozen model's own carry begin in the carry of both."""


@dataclass(frozen=True)
class Seen:
    """A window as the cache sees it."""

    words: Vocabulary
    """What the model says by itself."""
    keys: Float[Tensor, "B K D"]
    """The states whose next word is known: those carried, and all but the last of the window."""
    held: Int[Tensor, "B K"]
    """The word after each of them."""
    first: int
    """Where the first state of the window stands among them."""
    carry: Carry


class NeuralCache(Carrying):
    """A frozen language model that remembers which words followed its recent states."""

    class Config(Config):
        """What a recipe may choose."""

        frozen: RNNLM.Config = RNNLM.Config.model_validate({})
        """The model under the cache; its weights come from a run of its own."""
        size: PositiveInt = 500
        """How many states are kept."""
        theta: float = Field(0.3, gt=0)
        """How sharply the cache prefers states that are like the present one: θ."""
        mix: float = Field(0.1, ge=0, lt=1)
        """How much of the probability is the cache's: λ."""

    def __init__(self, config: Config, vocabulary: int, *, frozen: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.frozen = RNNLM(config.frozen, vocabulary) if frozen is None else frozen
        self.mask = window(left=config.size) & ~window(left=0)
        width = config.frozen.width if frozen is None else width_of(frozen)
        self.attend = Attend(Dot(width), Softmax(1 / config.theta), kind="pointer")

    @torch.no_grad()
    def forward(
        self, tokens: Int[Tensor, "B T"], carry: Carry | None = None
    ) -> tuple[PointerMixture, Carry]:
        """What follows each token, and the cache to hand on."""
        seen = self.look(tokens, carry)
        keys = seen.keys[:, None]  # [B,1,K,D]
        weights = self.attend.weights(
            seen.words.states[:, None],
            self.attend.remember(keys, keys),
            self.mask,
            Past(first=seen.first),
        ).squeeze(1)  # [B,T,K]
        share = 1 - self.config.mix * weights.sum(2)  # [B,T], one where the cache is empty
        return PointerMixture(seen.words, share, self.config.mix * weights, seen.held), seen.carry

    def look(self, tokens: Int[Tensor, "B T"], carry: Carry | None) -> Seen:
        """Run the model over a window, and put its states beside those of the cache."""
        own = {
            name.removeprefix(FROZEN): each
            for name, each in (carry or {}).items()
            if name.startswith(FROZEN)
        }
        prediction, handed = self.frozen(tokens, own or None)
        words = vocabulary_of(prediction, self.frozen)
        states = following(carry, "states", words.states)  # [B,K,D]
        read = following(carry, "tokens", tokens)  # [B,K]
        size = self.config.size
        cache = {"states": recent(states, size), "tokens": recent(read, size)}
        return Seen(
            words=words,
            keys=states[:, :-1],
            held=read[:, 1:],
            first=states.shape[1] - tokens.shape[1],
            carry={**cache, **{FROZEN + name: each for name, each in (handed or {}).items()}},
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: Carried
    ) -> tuple[Float[Tensor, "B V"], Carried]:
        """Logits of what follows these tokens."""
        logits, after = super().step(tokens, state)
        if not any(name.startswith(FROZEN) for name in after.carry or {}):
            raise UserError(
                f"{type(self.frozen).__name__} hands nothing on from one window to the next, so "
                "under a neural cache it can be evaluated but not stepped"
            )
        return logits, after


def width_of(model: nn.Module) -> int:
    """How wide the states are that its output layer sees: found by asking what follows token 0."""
    device = next((each.device for each in model.parameters()), None)
    with torch.no_grad():
        prediction, _ = model(torch.zeros(1, 1, dtype=torch.long, device=device), None)
    return vocabulary_of(prediction, model).states.shape[2]


def vocabulary_of(prediction: object, model: nn.Module) -> Vocabulary:
    """The prediction, if it is that of a plain output layer, which is not learnt through."""
    if not isinstance(prediction, Vocabulary):
        raise UserError(
            "a neural cache compares the states that an output layer sees, but "
            f"{type(model).__name__} predicts by {type(prediction).__name__}"
        )
    bias = None if prediction.bias is None else prediction.bias.detach()
    return replace(prediction, weight=prediction.weight.detach(), bias=bias)


@dataclass(frozen=True)
class Tuned:
    """The best θ and λ of a grid."""

    config: NeuralCache.Config
    loss: float
    """Nats per word with it."""
    losses: Float[Tensor, "N M"]
    """The same for each θ, a row, and each λ, a column."""


@torch.no_grad()
def tuned(
    model: NeuralCache, windows: Iterable[Batch], thetas: Sequence[float], mixes: Sequence[float]
) -> Tuned:
    """Try every θ with every λ on windows that follow one another, `tokens` and `targets` in each.

    The model runs once and each dot product is computed once, however large the grid is.
    """
    for theta in thetas:
        above_zero("theta", theta)
    for mix in mixes:
        fraction("mix", mix)
    if not thetas or not mixes:
        raise UserError("there is nothing to tune: give at least one theta and one mix")
    total = torch.zeros(len(thetas), len(mixes), dtype=torch.double)
    count, carry = 0, None
    for each in windows:
        targets = each["targets"]
        seen = model.look(each["tokens"], carry)
        total += surprises(model, seen, targets, thetas, mixes)
        count, carry = count + int((targets != IGNORED).sum()), seen.carry
    if not count:
        raise UserError("there is nothing to tune on: the windows hold no word to predict")
    losses = total / count
    row, column = divmod(int(losses.argmin()), len(mixes))
    config = model.config.model_copy(update={"theta": thetas[row], "mix": mixes[column]})
    return Tuned(config, float(losses[row, column]), losses)


def surprises(
    model: NeuralCache, seen: Seen, targets: Tensor, thetas: Sequence[float], mixes: Sequence[float]
) -> Float[Tensor, "N M"]:
    """-log p of the targets of a window, summed, for each θ and each λ."""
    query, key = seen.words.states[:, None], seen.keys[:, None]
    products = model.attend.score(query, key)  # [B,1,T,K]
    allowed = model.mask.table(*products.shape[2:], first=seen.first, device=products.device)
    found = seen.held[:, None, None] == targets[:, None, :, None]  # [B,1,T,K]
    said = seen.words.log_probability(targets).double()  # [B,T]
    full = allowed.any(3).squeeze(1).double()  # [1,T]
    losses = []
    for theta in thetas:
        weights = Softmax(1 / theta)(products, allowed)
        cached = (weights * found).sum(3).squeeze(1).double()  # [B,T]
        for mix in mixes:
            share = 1 - mix * full
            mixed = torch.logaddexp(share.log() + said, log_or_none(mix * cached))
            losses.append(-mixed[targets != IGNORED].sum())
    return torch.stack(losses).view(len(thetas), len(mixes)).cpu()
