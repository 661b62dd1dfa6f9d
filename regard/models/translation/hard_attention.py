"""Hard attention to one sampled annotation at a time (Xu et al. 2015, section 4.1).

Bahdanau's translator (models/translation/bahdanau.py, its soft twin), whose decoder reads one
annotation at each step instead of a mean of all:

    α_t = softmax(e_t),  s_t ~ Categorical(α_t),  c_t = h_(s_t)

The locations s are latent. The objective is a bound, E_s log p(y|s, x) ≤ log p(y|x) (equation 10);
its gradient is estimated with one sample per sentence (equations 11 and 12, REINFORCE):

    ∇ log p(y|s, x) + Σ_t (R_t - b_t) ∇ log α_t(s_t) + λ Σ_t ∇ H(α_t)

The first term is that of the prediction; the others are the `auxiliary` loss of the output in
training. R_t is the log-probability of the targets from step t on, since a sample cannot change
earlier words (the paper has that of the whole sentence), or that of step t alone, which varies less
but leaves out the effect on later steps. b_t is a baseline of R_t: the paper's moving average,
b ← 0.9 b + 0.1 log p(y|s, x), or a linear unit over the state before the sample. Neither changes
the expectation. A share of the sentences, half of them in the paper, have soft attention,
c_t = Σ_j α_tj h_j, and no samples.

In evaluation, and in `step`, the decoder reads the annotation with the largest weight.

Departures: baselines are those of one target token, times the number of tokens to come, so that
short and long sentences can share one; they start at -log V, the value of a uniform prediction. The
rest is as in the twin, whose trained weights `model.soft` can load.

>>> import torch
>>> model = HardAttention(HardAttention.Config(width=4, hidden=8), 10, 12).eval()
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Sample, SampledRead
from regard.core.protocols import Batch, Carry
from regard.layers.reinforce import ReinforceConfig, ReinforcedAttention, SampledAttention
from regard.models.translation.bahdanau import Bahdanau, BahdanauState
from regard.outputs.next_token import SoftmaxOutput


class HardAttention(ReinforcedAttention):
    """A recurrent translator that reads one position of the source before each word."""

    class Config(Bahdanau.Config, ReinforceConfig):
        """What a recipe may choose: the soft twin's settings, and those of the samples."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        soft = Bahdanau(config, vocabulary, source_vocabulary)
        super().__init__(config, config.hidden, vocabulary)
        self.soft = soft

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; in training, the loss of the samples is auxiliary."""
        output, samples = self.read(batch)
        if not self.training:
            return output
        targets = batch["targets"]
        surrogate = self.surrogate(output.log_probability(targets), samples, targets)
        return replace(output, auxiliary=surrogate)

    def read(self, batch: Batch) -> tuple[SoftmaxOutput, SampledAttention]:
        """The prediction, and the samples of attention for it."""
        soft, state = self.soft, self.soft.start(batch)
        words = soft.words(batch["tokens"])  # [B,T,D]
        soft_rows = self.choose_soft_rows(len(words), words.device) if self.training else None
        states, contexts, queries, samples = [], [], [], []
        for entered in soft.decoder.enter(words):
            drawn = self.sample(state, best=not self.training)
            context = drawn.read if soft_rows is None else self.mix(drawn, state, soft_rows)
            queries.append(state.hidden.top)
            samples.append(drawn)
            state = self.advance(entered, context, drawn, state)
            states.append(state.hidden.top)
            contexts.append(context[:, 0, 0])
        readout = soft.readout(torch.stack(states, dim=1), words, torch.stack(contexts, dim=1))
        logs = torch.stack([drawn.log_probability[:, 0, 0] for drawn in samples], dim=1)  # [B,T]
        sampled = SampledAttention(
            torch.stack(queries, dim=1),
            logs if soft_rows is None else torch.where(soft_rows[:, None], 0.0, logs),
            torch.stack([drawn.entropy[:, 0, 0] for drawn in samples], dim=1),
        )
        return soft.words.predict(readout), sampled

    def sample(self, state: BahdanauState, *, best: bool) -> SampledRead:
        """Choose a position with s_t-1: the likeliest, or a sample."""
        sampler, source = Sample(self.soft.attend), state.source
        query = source.together(state.hidden.top[:, None, None])  # [N,1,Q,D]
        inputs = (query, source.memories[0], source.mask, state.past)
        return sampler.best(*inputs) if best else sampler(*inputs)

    def mix(
        self, drawn: SampledRead, state: BahdanauState, soft_rows: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B 1 1 W"]:
        """The sampled annotation; the expected one in rows with soft attention."""
        assert drawn.past.weights is not None
        expected = self.soft.attend.read(drawn.past.weights, state.source.memories[0].value)
        return torch.where(soft_rows[:, None, None, None], expected, drawn.read)

    def advance(
        self,
        entered: Float[Tensor, "B C"],
        context: Float[Tensor, "N 1 Q W"],
        drawn: SampledRead,
        state: BahdanauState,
    ) -> BahdanauState:
        """Take one step with the context."""
        own = state.source.apart(context)[:, 0, 0]  # [B,W]
        hidden = self.soft.decoder.step(entered, own, state.hidden)
        # Where rows share a memory, the weights of all stand in one table and are not needed.
        carries = self.soft.attend.carries
        past = drawn.past if carries else replace(state.past, first=state.past.first + 1)
        return BahdanauState(state.source, hidden, past)

    def start(self, source: Batch) -> BahdanauState:
        """The annotations, and s_0."""
        return self.soft.start(source)

    def step(
        self, tokens: Int[Tensor, "B"], state: BahdanauState
    ) -> tuple[Float[Tensor, "B V"], BahdanauState]:
        """Logits of the next tokens after these, from the likeliest position."""
        soft = self.soft
        words = soft.words(tokens[:, None])  # [B,1,D]
        drawn = self.sample(state, best=True)
        state = self.advance(soft.decoder.enter(words)[0], drawn.read, drawn, state)
        contexts = state.source.apart(drawn.read).squeeze(1)  # [B,1,W]
        readout = soft.readout(state.hidden.top[:, None], words, contexts)
        return soft.words.predict(readout).logits().squeeze(1), state
