"""Show, Attend and Tell with hard attention: each word reads one sampled place (Xu et al. 2015).

The captioner of models/vision/show_attend_tell.py, its soft twin, whose LSTM reads one place of the
image at each step (section 4.1):

    s_t ~ Categorical(α_t),  z_t = β_t a_(s_t)

Samples are trained by REINFORCE with a moving baseline and the entropy of attention
(layers/reinforce.py); half of the captions have soft attention, the expected context. In
evaluation, and in `step`, the place with the largest weight is read.

Departures: rewards and baselines are those of layers/reinforce.py; there is no doubly stochastic
loss unless `doubly` is set, since the paper has it for soft attention alone.

>>> import torch
>>> config = HardAttendTell.Config(width=4, hidden=8, project=6)
>>> model = HardAttendTell(config, 10, features=12).eval()
>>> model({"patches": torch.randn(1, 9, 12), "tokens": torch.tensor([[2, 7]])}).logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from regard.attention import Sample, SampledRead
from regard.core.protocols import Batch, Carry
from regard.layers.reinforce import ReinforceConfig, ReinforcedAttention, SampledAttention
from regard.models.vision.show_attend_tell import (
    CaptionState,
    ShowAttendTell,
    doubly_stochastic,
)
from regard.outputs.next_token import SoftmaxOutput


class HardAttendTell(ReinforcedAttention):
    """An LSTM that reads one place of an image before each word."""

    class Config(ShowAttendTell.Config, ReinforceConfig):
        """What a recipe may choose: the soft twin's settings, and those of the samples."""

        doubly: float = Field(0.0, ge=0)
        """λ of doubly stochastic attention; 0 is without."""

    def __init__(self, config: Config, vocabulary: int, features: int) -> None:
        soft = ShowAttendTell(config, vocabulary, features)
        super().__init__(config, config.hidden, vocabulary)
        self.soft = soft

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; in training, the loss of the samples is auxiliary."""
        soft, state = self.soft, self.soft.start(batch)
        words = soft.words(batch["tokens"])  # [B,T,C]
        soft_rows = self.choose_soft_rows(len(words), words.device) if self.training else None
        states, contexts, queries, samples = [], [], [], []
        for entered in soft.decoder.enter(words):
            queries.append(state.hidden.top)
            sample, context, state = self._advance(entered, state, soft_rows)
            samples.append(sample)
            states.append(state.hidden.top)
            contexts.append(context)
        readout = soft.readout(torch.stack(states, 1), words, torch.stack(contexts, 1))
        output = soft.words.predict(readout)
        if not self.training:
            return output
        return replace(
            output, auxiliary=self._auxiliary(batch, output, queries, samples, soft_rows)
        )

    def _auxiliary(
        self,
        batch: Batch,
        output: SoftmaxOutput,
        queries: list[Tensor],
        samples: list[SampledRead],
        soft_rows: Bool[Tensor, "B"] | None,
    ) -> Float[Tensor, ""]:
        """The loss of the samples, and of doubly stochastic attention if there is one."""
        assert soft_rows is not None
        targets = batch["targets"]
        logs = torch.stack([each.log_probability[:, 0, 0] for each in samples], 1)  # [B,T]
        sampled = SampledAttention(
            torch.stack(queries, 1),
            torch.where(soft_rows[:, None], 0.0, logs),
            torch.stack([each.entropy[:, 0, 0] for each in samples], 1),
        )
        loss = self.surrogate(output.log_probability(targets), sampled, targets)
        doubly = self.soft.config.doubly
        if not doubly:
            return loss
        weights = [each.past.weights[:, 0, 0] for each in samples if each.past.weights is not None]
        return loss + doubly * doubly_stochastic(torch.stack(weights, 1), targets)

    def _advance(
        self,
        entered: Float[Tensor, "B C"],
        state: CaptionState,
        soft_rows: Bool[Tensor, "B"] | None,
    ) -> tuple[SampledRead, Float[Tensor, "B W"], CaptionState]:
        """Choose a place with h_t-1 and take one step with it."""
        soft, source = self.soft, state.source
        query = source.together(state.hidden.top[:, None, None])  # [N,1,Q,D]
        inputs = (query, source.memories[0], source.mask, state.past)
        sampler = Sample(soft.attend)
        sample = sampler(*inputs) if self.training else sampler.best(*inputs)
        read = sample.read
        if soft_rows is not None:
            assert sample.past.weights is not None
            expected = soft.attend.read(sample.past.weights, source.memories[0].value)
            read = torch.where(soft_rows[:, None, None, None], expected, read)
        context = soft.gated(source.apart(read)[:, 0, 0], state.hidden.top)
        hidden = soft.decoder.step(entered, context, state.hidden)
        carries = soft.attend.carries
        past = sample.past if carries else replace(state.past, first=state.past.first + 1)
        return sample, context, CaptionState(source, hidden, past)

    def start(self, source: Batch) -> CaptionState:
        """The places of the image, and h_0."""
        return self.soft.start(source)

    def step(
        self, tokens: Int[Tensor, "B"], state: CaptionState
    ) -> tuple[Float[Tensor, "B V"], CaptionState]:
        """Logits of the next tokens after these, from the likeliest place."""
        soft = self.soft
        words = soft.words(tokens[:, None])  # [B,1,C]
        _, context, state = self._advance(soft.decoder.enter(words)[0], state, None)
        readout = soft.readout(state.hidden.top[:, None], words, context[:, None])
        return soft.words.predict(readout).logits().squeeze(1), state
