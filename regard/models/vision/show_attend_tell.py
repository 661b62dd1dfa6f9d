"""Show, Attend and Tell: each word attends to the places of an image (Xu et al. 2015).

The features a_i of the places of an image are the memory. Before each word the LSTM attends to them
with its last state (equations 1 to 7, soft attention of section 4.2):

    e_ti = vᵀ tanh(W h_t-1 + U a_i),  α_t = softmax(e_t),  z_t = β_t Σ_i α_ti a_i,  β_t = σ(f h_t-1)
    h_0, c_0 = tanh of linear layers over the mean of all a_i
    h_t = LSTM([E y_t-1; z_t], h_t-1),  p(y_t) ∝ exp(L_o (E y_t-1 + L_h h_t + L_z z_t))

Doubly stochastic attention (section 4.2.1) adds λ Σ_i (1 - Σ_t α_ti)² to the loss of a caption, so
that every place is attended to at some time. β, the gate, is the paper's too.

Per step only the score, the read and two products are computed: keys are projected once per image,
the words' share of the gates once per caption, and the deep output runs over all steps at once.

Departures: `project` brings wide features down to that width before they are attended to (the paper
attends to the 512 channels of VGG as they are); h_0 and c_0 have one layer.

>>> import torch
>>> model = ShowAttendTell(ShowAttendTell.Config(width=4, hidden=8, project=6), 10, features=12)
>>> image = {"patches": torch.randn(1, 9, 12)}
>>> model.eval()({**image, "tokens": torch.tensor([[2, 7]])}).logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt
from torch import Tensor, nn

from regard.attention import START, Attend, Past, score_named, weigh_named
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.source_memory import SourceMemory
from regard.models.vision.captioner import Captioner, CaptionerConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class CaptionState:
    """The memory of the image, the LSTM's state, and its past attention weights."""

    source: SourceMemory
    hidden: Hidden
    past: Past = START

    def select(self, rows: Int[Tensor, "N"]) -> "CaptionState":
        """The state of the chosen batch rows, in that order."""
        return CaptionState(
            self.source.select(rows), self.hidden.select(rows), self.past.select(rows)
        )


class ShowAttendTell(Captioner):
    """An LSTM that attends to places of an image before each word."""

    class Config(CaptionerConfig):
        """What a recipe may choose."""

        project: NonNegativeInt = 512
        """The width to which features are projected first; 0 leaves them as they are."""
        score: str = "additive"
        """How well a place matches the state; any of SCORES."""
        weigh: str = "softmax"
        """How scores become weights; any of WEIGHS."""
        gate: bool = True
        """Multiply the context by β, a number between 0 and 1 from the state."""
        doubly: float = Field(1.0, ge=0)
        """λ of doubly stochastic attention; 0 is without."""

    def __init__(self, config: Config, vocabulary: int, features: int) -> None:
        super().__init__(config, vocabulary)
        self.config = config
        hidden, places = config.hidden, config.project or features
        self.project = nn.Linear(features, places) if config.project else None
        self.attend = Attend(
            score_named(config.score, hidden, places),
            weigh_named(config.weigh, hidden),
            kind="alignment",
            axes=("target", "patch"),
        )
        self.begin = nn.Linear(places, 2 * hidden)
        self.gate = nn.Linear(hidden, 1) if config.gate else None
        self.decoder = RecurrentDecoder("lstm", config.width, hidden, fed=places)
        self.from_state = nn.Linear(hidden, config.width)
        self.from_context = nn.Linear(places, config.width, bias=False)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the caption."""
        words = self.words(batch["tokens"])  # [B,T,C]
        state, states, contexts, weights = self.start(batch), [], [], []
        for entered in self.decoder.enter(words):
            context, state = self.advance(entered, state, whole=True)
            states.append(state.hidden.top)
            contexts.append(context)
            assert state.past.weights is not None
            weights.append(state.past.weights[:, 0, 0])  # [B,N]
        output = self.words.predict(
            self.readout(torch.stack(states, 1), words, torch.stack(contexts, 1))
        )
        if not self.training or not self.config.doubly:
            return output
        penalty = doubly_stochastic(torch.stack(weights, 1), batch["targets"])
        return replace(output, auxiliary=self.config.doubly * penalty)

    def start(self, source: Batch) -> CaptionState:
        """The places of the image, and h_0 and c_0 from their mean."""
        patches = source["patches"]
        places = patches if self.project is None else self.project(patches)  # [B,N,W]
        memory = self.attend.remember(places[:, None], places[:, None])
        count = torch.full((len(places),), places.shape[1], device=places.device)
        first, cell = self.begin(places.mean(1)).tanh().chunk(2, dim=1)  # [B,D]
        return CaptionState(
            SourceMemory.of(memory, count, attends=[self.attend]), Hidden((first,), (cell,))
        )

    def advance(
        self, entered: Float[Tensor, "B C"], state: CaptionState, *, whole: bool = False
    ) -> tuple[Float[Tensor, "B W"], CaptionState]:
        """Attend with h_t-1, then take one step with the context: z_t and the next state.

        With `whole`, the past holds the weights of the step, which only training needs.
        """
        top = state.hidden.top
        query, source = top[:, None, None], state.source  # [B,1,1,D]
        if whole:
            read, past = self.attend.step(query, source.memories[0], source.mask, state.past)
        else:
            read, past = source.step(self.attend, query, past=state.past)
        context = self.gated(read[:, 0, 0], top)
        hidden = self.decoder.step(entered, context, state.hidden)
        return context, CaptionState(source, hidden, past)

    def gated(
        self, context: Float[Tensor, "B W"], state: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B W"]:
        """β z, where there is a gate."""
        return context if self.gate is None else self.gate(state).sigmoid() * context

    def readout(
        self,
        states: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        contexts: Float[Tensor, "B T W"],
    ) -> Float[Tensor, "B T C"]:
        """The deep output: a sum of the word before, the state and the context."""
        out: Tensor = words + self.from_state(states) + self.from_context(contexts)
        return out

    def step(
        self, tokens: Int[Tensor, "B"], state: CaptionState
    ) -> tuple[Float[Tensor, "B V"], CaptionState]:
        """Logits of the next tokens after these."""
        words = self.words(tokens[:, None])  # [B,1,C]
        context, state = self.advance(self.decoder.enter(words)[0], state)
        readout = self.readout(state.hidden.top[:, None], words, context[:, None])
        return self.words.predict(readout).logits().squeeze(1), state


def doubly_stochastic(
    weights: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Σ_i (1 - Σ_t α_ti)² over all captions of a batch; padding is no step.

    >>> weights = torch.tensor([[[0.5, 0.5], [0.5, 0.5]]])
    >>> doubly_stochastic(weights, torch.tensor([[4, 5]])).item()
    0.0
    >>> doubly_stochastic(weights, torch.tensor([[4, IGNORE]])).item()
    0.5
    """
    real = (targets != IGNORE).to(weights.dtype)[:, :, None]
    there = (targets != IGNORE).any(1, keepdim=True).to(weights.dtype)
    return ((1 - (weights * real).sum(1)).square() * there).sum()
