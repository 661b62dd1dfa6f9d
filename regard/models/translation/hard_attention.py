"""Hard attention: one annotation is looked at, drawn at random (Xu et al. 2015, section 4.1).

Bahdanau's translator (models/translation/bahdanau.py, its soft twin) whose decoder sees one annotation at each
step instead of a mean of all:

    α_t = softmax(e_t),  s_t ~ Categorical(α_t),  c_t = h_(s_t)

The locations s are latent. What is climbed is a bound, E_s log p(y|s, x) ≤ log p(y|x) (equation
10), along a gradient estimated with one draw per sentence (equations 11 and 12, REINFORCE):

    ∇ log p(y|s, x) + Σ_t (R_t - b_t) ∇ log α_t(s_t) + λ Σ_t ∇ H(α_t)

The first term is that of the prediction; the others are the second thing that `forward` returns
while training. R_t is the log-probability of the targets from step t on, since a look cannot change
what was said before it (the paper has that of the whole sentence), or that of step t alone, which
varies less but knows nothing of what the look does to later steps. b_t is what R_t is on average:
the paper's moving average, b ← 0.9 b + 0.1 log p(y|s, x), or what a linear unit makes of the state
before the look. Neither changes the expectation. A share of the sentences, half of them in the
paper, are read softly, c_t = Σ_j α_tj h_j, and have no draws.

Where it is not training, and in `step`, the decoder looks at the likeliest place.

Departures: baselines are those of one target token, and count as often as there are tokens to come,
so that short and long sentences can share one; it begins at -log V, which is what someone gets who
knows nothing. The rest is as in the twin, whose trained weights `model.soft` can load.

>>> import torch
>>> model = HardAttention(HardAttention.Config(width=4, hidden=8), 10, 12).eval()
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass, replace
from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from regard.attention import Sample, SampledRead
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry
from regard.models.translation.bahdanau import Bahdanau, BahdanauState
from regard.outputs.next_token import SoftmaxOutput

_KEPT = 0.9
"""What the moving average keeps of itself at each batch."""


@dataclass(frozen=True)
class SampledAttention:
    """Where the decoder looked while it read a target, as REINFORCE needs it."""

    states: Float[Tensor, "B T D"]
    """The states that looked."""
    log_probability: Float[Tensor, "B T"]
    """Of each draw; zero in sentences that are read softly."""
    entropy: Float[Tensor, "B T"]
    """Of each distribution that was drawn from."""


class HardAttention(nn.Module):
    """A recurrent translator that looks at one place of the source before each word."""

    class Config(Bahdanau.Config):
        """What a recipe may choose: the soft twin's settings, and these."""

        reward: Literal["future", "step"] = "future"
        """What a look is praised for: all targets from its step on, or that of its step."""
        baseline: Literal["none", "average", "learned"] = "average"
        """What is expected anyway: nothing, a moving average, or what the state says."""
        entropy: float = Field(0.01, ge=0)
        """λ: how much undecided looks are worth."""
        expectation: float = Field(0.5, ge=0, le=1)
        """The share of sentences that are read softly while training."""

    average: Tensor
    """The moving average, where that is the baseline: a buffer, saved with the weights."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.soft = Bahdanau(config, vocabulary, source_vocabulary)
        self.guess = nn.Linear(config.hidden, 1) if config.baseline == "learned" else None
        if self.guess is not None:
            nn.init.constant_(self.guess.bias, -log(vocabulary))
        if config.baseline == "average":
            self.register_buffer("average", torch.tensor(-log(vocabulary)))

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """What follows each token of the target; while training, the surrogate of the draws too."""
        output, looks = self.read(batch)
        if not self.training:
            return output
        targets = batch["targets"]
        surrogate = self.surrogate(output.log_probability(targets), looks, targets)
        return replace(output, auxiliary=surrogate)

    def read(self, batch: Batch) -> tuple[SoftmaxOutput, SampledAttention]:
        """The prediction, and where the decoder looked for it."""
        soft, state = self.soft, self.soft.start(batch)
        words = soft.words(batch["tokens"])  # [B,T,D]
        softly = self.read_softly(len(words), words.device) if self.training else None
        states, contexts, asked, draws = [], [], [], []
        for entered in soft.decoder.enter(words):
            drawn = self.look(state, best=not self.training)
            context = drawn.read if softly is None else self.mixed(drawn, state, softly)
            asked.append(state.hidden.top)
            draws.append(drawn)
            state = self.go_on(entered, context, drawn, state)
            states.append(state.hidden.top)
            contexts.append(context[:, 0, 0])
        readout = soft.readout(torch.stack(states, dim=1), words, torch.stack(contexts, dim=1))
        logs = torch.stack([drawn.log_probability[:, 0, 0] for drawn in draws], dim=1)  # [B,T]
        looks = SampledAttention(
            torch.stack(asked, dim=1),
            logs if softly is None else torch.where(softly[:, None], 0.0, logs),
            torch.stack([drawn.entropy[:, 0, 0] for drawn in draws], dim=1),
        )
        return soft.words.predict(readout), looks

    def read_softly(self, sentences: int, device: torch.device) -> Bool[Tensor, "B"]:
        """Which sentences are, this time."""
        return torch.rand(sentences, device=device) < self.config.expectation

    def look(self, state: BahdanauState, *, best: bool) -> SampledRead:
        """Choose a place with s_t-1: the likeliest, or one that is drawn."""
        sample, source = Sample(self.soft.attend), state.source
        query = source.together(state.hidden.top[:, None, None])  # [N,1,Q,D]
        asked = (query, source.memories[0], source.mask, state.past)
        return sample.best(*asked) if best else sample(*asked)

    def mixed(
        self, drawn: SampledRead, state: BahdanauState, softly: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B 1 1 W"]:
        """What was drawn; in some sentences what could be expected of it."""
        assert drawn.past.weights is not None
        expected = self.soft.attend.read(drawn.past.weights, state.source.memories[0].value)
        return torch.where(softly[:, None, None, None], expected, drawn.read)

    def go_on(
        self,
        entered: Float[Tensor, "B C"],
        context: Float[Tensor, "N 1 Q W"],
        drawn: SampledRead,
        state: BahdanauState,
    ) -> BahdanauState:
        """Take one step with what was seen."""
        seen = state.source.apart(context)[:, 0, 0]  # [B,W]
        hidden = self.soft.decoder.step(entered, seen, state.hidden)
        # Where rows share a memory, the weights of all stand in one table and are not needed.
        carries = self.soft.attend.carries
        past = drawn.past if carries else replace(state.past, first=state.past.first + 1)
        return BahdanauState(state.source, hidden, past)

    def surrogate(
        self, said: Float[Tensor, "B T"], looks: SampledAttention, targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        """A loss whose gradient is that of the draws, from the log p of the targets."""
        real, said = (targets != IGNORE).to(said.dtype), said.detach()
        if self.config.reward == "future":
            reward, counted = to_come(said), to_come(real)
        else:
            reward, counted = said, real
        expected = self.expected(looks)  # [B,T], of one token
        advantage = reward - counted * expected.detach()
        loss = -(advantage * looks.log_probability + self.config.entropy * looks.entropy * real)
        if self.guess is not None:
            loss = loss + (reward / counted.clamp_min(1) - expected).square() * real
        if self.config.baseline == "average" and bool(real.any()):
            self.average.mul_(_KEPT).add_((1 - _KEPT) * said.sum() / real.sum())
        return loss.sum()

    def expected(self, looks: SampledAttention) -> Float[Tensor, "B T"]:
        """b: what the log-probability of a target token would be anyway."""
        if self.guess is not None:
            # Guessing must not change what is guessed from.
            guessed: Tensor = self.guess(looks.states.detach()).squeeze(2)
            return guessed
        if self.config.baseline == "none":
            return torch.zeros_like(looks.entropy)
        return self.average.to(looks.entropy, copy=True).expand_as(looks.entropy)

    def start(self, source: Batch) -> BahdanauState:
        """The annotations, and s_0."""
        return self.soft.start(source)

    def step(
        self, tokens: Int[Tensor, "B"], state: BahdanauState
    ) -> tuple[Float[Tensor, "B V"], BahdanauState]:
        """Logits of what follows these tokens, looking at the likeliest place."""
        soft = self.soft
        words = soft.words(tokens[:, None])  # [B,1,D]
        drawn = self.look(state, best=True)
        state = self.go_on(soft.decoder.enter(words)[0], drawn.read, drawn, state)
        contexts = state.source.apart(drawn.read).squeeze(1)  # [B,1,W]
        readout = soft.readout(state.hidden.top[:, None], words, contexts)
        return soft.words.predict(readout).logits().squeeze(1), state


def to_come(each: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The sum from each step on.

    >>> to_come(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[6.0, 5.0, 3.0]]
    """
    return each.flip(1).cumsum(1).flip(1)
