"""Dynamic memory networks: DMN+ (Xiong et al. 2016), and DMN (Kumar et al. 2016) by its options.

A question becomes q, the last state of a GRU over its words. Facts f_i are sentences: sums of word
vectors by position, then a GRU in both directions over the facts ("fusion", DMN+), or the states at
the end of each sentence of a GRU over all words ("words", DMN). Each episode t attends to the facts
with q and the memory m^{t-1} (eqs. 8-10 of DMN+), and m⁰ = q:

    z_i = [f_i∘q; f_i∘m; |f_i - q|; |f_i - m|],   g = softmax(W₂ tanh(W₁ z))

What is read: an attention GRU, whose update gate is g_i (eqs. 11-12); a GRU of the DMN, which keeps
1 - g_i of its state; or Σ g_i f_i. The memory is m^t = ReLU(W^t [m^{t-1}; c^t; q]), with weights of
its own in each episode (eq. 13), or a GRU over the episodes. The answer is softmax(W [q; m^T]).

>>> model = DMN(DMN.Config(width=6, episodes=2), vocabulary=9, slots=5)
>>> facts, question = torch.tensor([[[4, 5], [6, 0]]]), torch.tensor([[7, 8]])
>>> model({"facts": facts, "counts": torch.tensor([2]), "question": question}).logits.shape
torch.Size([1, 9])
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Sigmoid, Softmax, padding
from regard.attention.attend import Memory
from regard.attention.mask import Mask
from regard.attention.past import START, Past
from regard.attention.score import Score
from regard.core.config import Config
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional
from regard.layers.word_bags import with_positions, word_bags
from regard.outputs.classes import Classes


class EpisodeScore(Score):
    """W₂ tanh(W₁ [f∘q; f∘m; |f - q|; |f - m|]); a query is q and m side by side."""

    def __init__(self, width: int) -> None:
        super().__init__(2 * width, width)
        self.hidden = nn.Linear(4 * width, width)
        self.output = nn.Linear(width, 1)

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The scores."""
        question, memory = query[..., None, :].chunk(2, dim=-1)  # [B,H,Q,1,D]
        facts = key[:, :, None]  # [B,H,1,K,D]
        parts = (facts * question, facts * memory, (facts - question).abs(), (facts - memory).abs())
        scores: Tensor = self.output(self.hidden(torch.cat(parts, -1)).tanh())
        return scores[..., 0]


class GatedReader(nn.Module):
    """A GRU over facts that gates control: as its update gate, or on the whole step."""

    def __init__(self, width: int, *, as_update: bool) -> None:
        super().__init__()
        self.as_update = as_update
        gates = 2 if as_update else 3
        self.inputs = nn.Linear(width, gates * width)
        self.states = nn.Linear(width, gates * width)

    def forward(
        self, facts: Float[Tensor, "B K D"], gates: Float[Tensor, "B K"]
    ) -> Float[Tensor, "B D"]:
        """The state after the last fact; a gate of zero keeps the state."""
        given = self.inputs(facts).unbind(1)  # the part of the inputs, for all steps at once
        state = torch.zeros_like(facts[:, 0])
        for at, gate in zip(given, gates[..., None].unbind(1), strict=True):
            held = self.states(state)
            reset, candidate, *update = at.chunk(2 if self.as_update else 3, dim=1)
            own_reset, own_candidate, *own_update = held.chunk(2 if self.as_update else 3, dim=1)
            new = torch.tanh(candidate + torch.sigmoid(reset + own_reset) * own_candidate)
            if not self.as_update:
                new = torch.lerp(new, state, torch.sigmoid(update[0] + own_update[0]))
            state = torch.lerp(state, new, gate)
        return state


class DMN(nn.Module):
    """A dynamic memory network; its defaults are DMN+."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 80
        episodes: PositiveInt = 3
        """How often the facts are read."""
        facts: Literal["fusion", "words"] = "fusion"
        """How facts are read: sums of words and a GRU both ways, or one GRU over all words."""
        read: Literal["attention_gru", "gated_gru", "soft"] = "attention_gru"
        """How an episode reads the facts."""
        gates: Literal["softmax", "sigmoid"] = "softmax"
        """Do the gates of an episode sum to one, or is each by itself?"""
        update: Literal["relu", "gru"] = "relu"
        """How an episode changes the memory: untied layers, or one GRU."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """On facts, questions and before the answer."""
        init_range: float = Field(3**0.5, gt=0)
        """Word vectors are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int, slots: int) -> None:
        super().__init__()
        width = config.width
        self.config, self.vocabulary, self.slots = config, vocabulary, slots
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.question = nn.GRU(width, width, batch_first=True)
        if config.facts == "fusion":
            self.fusion = Bidirectional("gru", width, width)
        else:
            self.reader = nn.GRU(width, width, batch_first=True)
        weigh = Softmax() if config.gates == "softmax" else Sigmoid()
        self.episodes = Attend(EpisodeScore(width), weigh, kind="memory", axes=("step", "sentence"))
        if config.read != "soft":
            self.gated = GatedReader(width, as_update=config.read == "attention_gru")
        if config.update == "relu":
            self.update = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(config.episodes))
        else:
            self.memory_cell = nn.GRUCell(width, width)
        self.output = nn.Linear(2 * width, vocabulary)
        self.drop = Dropout(config.dropout)
        self._initialise()

    def _initialise(self) -> None:
        """Glorot's for matrices, zero for biases; the vectors of padding and unknown words too."""
        for name, each in self.named_parameters():
            if each.dim() > 1 and not name.startswith("words"):
                nn.init.xavier_uniform_(each)
            elif each.dim() == 1:
                nn.init.zeros_(each)
        nn.init.uniform_(self.words.weight, -self.config.init_range, self.config.init_range)
        with torch.no_grad():
            self.words.weight[:2] = 0

    @property
    def reads(self) -> int:
        """How often the facts are read."""
        return self.config.episodes

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The answers."""
        question = self.drop(self._question(batch["question"]))  # [B,D]
        real = real_positions(batch["counts"], batch["facts"].shape[1])
        facts = self._facts(batch["facts"], batch["counts"])  # [B,M,D]
        mask, memory = padding(real), question
        keys = self.episodes.remember(facts[:, None], facts[:, None])
        for episode in range(self.config.episodes):
            context = self._episode(question, memory, keys, mask, episode)
            memory = self._updated(memory, context, question, episode)
        return Classes(self.output(self.drop(torch.cat([question, memory], 1))))

    def _question(self, words: Int[Tensor, "B J"]) -> Float[Tensor, "B D"]:
        """The state of a GRU after the last word."""
        states, _ = self.question(self.words(words))
        last = ((words != 0).sum(1) - 1).clamp_min(0)
        found: Tensor = states[torch.arange(len(words), device=words.device), last]
        return found

    def _facts(
        self, words: Int[Tensor, "B M J"], counts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B M D"]:
        """A vector for each fact."""
        if self.config.facts == "words":
            states: Tensor = self.drop(self._last_words(words, counts))
            return states
        table = with_positions(self.words.weight, positions=True)
        bags = word_bags(words, self.vocabulary, positions=True, dtype=table.dtype)
        sentences = self.drop(bags.flatten(0, 1) @ table).unflatten(0, words.shape[:2])
        both: Tensor = self.fusion(sentences, counts)
        ahead, behind = both.chunk(2, dim=2)
        return ahead + behind

    def _last_words(
        self, words: Int[Tensor, "B M J"], counts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B M D"]:
        """The states at the end of each sentence of a GRU over all words, without padding."""
        lengths = (words != 0).sum(2)  # [B,M]
        flat = _without_padding(words.flatten(1))
        states, _ = self.reader(self.words(flat))
        ends = (lengths.cumsum(1) - 1).clamp_min(0)  # [B,M]
        found: Tensor = states.gather(1, ends[..., None].expand(-1, -1, states.shape[2]))
        return found * real_positions(counts, words.shape[1])[..., None]

    def _episode(
        self,
        question: Float[Tensor, "B D"],
        memory: Float[Tensor, "B D"],
        keys: Memory,
        mask: Mask,
        episode: int,
    ) -> Float[Tensor, "B D"]:
        """What one pass over the facts reads."""
        query = torch.cat([question, memory], 1)[:, None, None]  # [B,1,1,2D]
        past = Past(first=episode)
        if self.config.read == "soft":
            soft: Tensor = self.episodes(query, keys, mask, past)
            return soft[:, 0, 0]
        gates = self.episodes.weights(query, keys, mask, past)[:, 0, 0]  # [B,M]
        read: Tensor = self.gated(keys.value[:, 0], gates)
        return read

    def _updated(
        self,
        memory: Float[Tensor, "B D"],
        context: Float[Tensor, "B D"],
        question: Float[Tensor, "B D"],
        episode: int,
    ) -> Float[Tensor, "B D"]:
        """The memory after an episode."""
        new: Tensor
        if self.config.update == "gru":
            new = self.memory_cell(context, memory)
        else:
            new = self.update[episode](torch.cat([memory, context, question], 1)).relu()
        return new


def _without_padding(words: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """The words of each row moved to its front."""
    order = (words == 0).to(torch.uint8).argsort(dim=1, stable=True)
    return words.gather(1, order)
