"""MemN2N: several reads of a memory of sentences answer a question (Sukhbaatar et al. 2015).

A sentence of words x_1 .. x_J is m = Σ_j l_j ∘ A x_j + T_A(age), and likewise c with C and T_C; a
question is u = Σ_j l_j ∘ B q_j. Each hop reads the memory, and the answer is a word:

    p_i = softmax(uᵀ m_i),  o = Σ p_i c_i,  u ← u + o  (or H u + o),  â = softmax(W u)   (eqs. 1-3)

Position encoding l_kj (section 4.1; layers/word_bags.py) is twice the paper's, as in the authors'
code, so that words weigh one on average; without the factor the error of task 4 of bAbI is 16 per
cent. All sentences times all tables are one matrix product. Tying: "adjacent" has A^{k+1} = C^k,
B = A^1, Wᵀ = C^K; "layerwise" has one A and one C for all hops, and H. `linear` in a batch removes
the softmax, as the paper does at the start of a training; the random noise of ages is the data's.

A memory has a fixed number of slots, and the empty ones, whose vectors are zero, take part in the
softmax, as in the authors' code: a read may be of nothing. They are one key here, with the weight
of all. Without them the error of task 6 of bAbI is 21 per cent instead of 7.

`copies` networks with different initial weights train side by side, as the heads of one attention.
The one with the lowest training loss predicts: the paper's "10 runs, chosen by training error".

>>> model = MemN2N(MemN2N.Config(width=4, hops=2), vocabulary=9, slots=5)
>>> facts, question = torch.tensor([[[4, 5], [6, 0]]]), torch.tensor([[7, 8]])
>>> ages, counts = torch.tensor([[2, 1]]), torch.tensor([2])
>>> model({"facts": facts, "ages": ages, "counts": counts, "question": question}).logits.shape
torch.Size([1, 9])
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Dot, padding
from regard.attention.past import Past
from regard.attention.weigh import Identity
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.layers.word_bags import with_positions, word_bags
from regard.outputs.classes import Classes
from regard.outputs.copies import Copies, losses_of_copies

_MEAN = 0.02
"""The share of the newest batch in the running mean of each copy's loss."""


class MemN2N(nn.Module):
    """A memory of sentences, read several times."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 20
        hops: PositiveInt = 3
        """How often the memory is read."""
        tying: Literal["adjacent", "layerwise"] = "adjacent"
        """Which embeddings are shared: those of neighbouring hops, or of all hops."""
        encoding: Literal["position", "bag"] = "position"
        """How the words of a sentence are summed: by their positions, or all alike."""
        temporal: bool = True
        """Does a memory hold the age of its fact?"""
        empty_slots: bool = True
        """Do the empty slots of a memory take part in the softmax?"""
        copies: PositiveInt = 1
        """How many networks train side by side; the one with the lowest training loss predicts."""
        init_range: float = Field(0.1, gt=0)
        """The standard deviation of initial weights."""

    losses: Tensor
    """The running mean of the training loss of each copy."""

    def __init__(self, config: Config, vocabulary: int, slots: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary, self.slots = vocabulary, slots
        self.copies = config.copies

        def drawn(*shape: int) -> nn.Parameter:
            """Normal initial weights of every copy."""
            return nn.Parameter(torch.randn(config.copies, *shape) * config.init_range)

        tables = config.hops + 1 if config.tying == "adjacent" else 2
        rows = vocabulary + (slots if config.temporal else 0)
        self.tables = drawn(tables, rows, config.width)  # A and C: words, then ages
        if config.tying == "layerwise":
            self.question = drawn(vocabulary, config.width)
            self.output = drawn(vocabulary, config.width)
            self.between = drawn(config.width, config.width)
        with torch.no_grad():
            self.tables[:, :, :2] = 0  # padding, and unknown words
        width = config.width + (1 if config.empty_slots else 0)
        axes = ("step", "slot" if config.empty_slots else "sentence")
        self.hops = Attend(Dot(width), kind="memory", axes=axes)
        self.linear = Attend(Dot(width), Identity(), kind="memory", axes=axes)
        self.register_buffer("losses", torch.zeros(config.copies))

    @property
    def reads(self) -> int:
        """How often the memory is read."""
        return self.config.hops

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The answers: of the chosen copy, or of all while they train."""
        chosen = int(self.losses.argmin()) if self.copies > 1 else 0
        rows = slice(None) if self.training else slice(chosen, chosen + 1)
        every = self._answers(batch, rows)  # [R,B,V]
        if not self.training or self.copies == 1:
            return Classes(every[0])
        if "classes" in batch:
            with torch.no_grad():
                self.losses.lerp_(losses_of_copies(every, batch["classes"]), _MEAN)
        return Copies.of_all(every, chosen)

    def _answers(self, batch: Batch, rows: slice) -> Float[Tensor, "R B V"]:
        """The logits of these copies."""
        tables = self.tables[rows]  # [R,N,F,D]
        first = self.question[rows] if self.config.tying == "layerwise" else tables[:, 0]
        query = self._embedded(batch["question"], first[:, None])[:, :, 0, 0]  # [B,R,D]
        memories = self._memories(batch, tables)  # [B,R,N,M,D]
        empty = self.slots - batch["counts"]  # [B]
        mask = padding(_visible(batch, empty if self.config.empty_slots else None))
        linear = "linear" in batch and bool(batch["linear"].any())
        attend = self.linear if linear else self.hops
        for hop in range(self.config.hops):
            key = hop if self.config.tying == "adjacent" else 0
            keys, values, asks = memories[:, :, key], memories[:, :, key + 1], query[:, :, None]
            if self.config.empty_slots:
                keys, asks = _with_empty_key(keys, empty), F.pad(asks, (0, 1), value=1.0)
                values = F.pad(values, (0, 0, 1, 0))
            memory = attend.remember(keys, values)
            read = attend(asks, memory, mask, Past(first=hop))[:, :, 0]  # [B,R,D]
            if self.config.tying == "layerwise":
                query = torch.einsum("brd,rde->bre", query, self.between[rows])
            query = query + read
        last = self.output[rows] if self.config.tying == "layerwise" else tables[:, -1]
        return query.transpose(0, 1) @ last[:, : self.vocabulary].transpose(1, 2)

    def _memories(self, batch: Batch, tables: Float[Tensor, "R N F D"]) -> Tensor:
        """Every fact in every table, `[B,R,N,M,D]`."""
        facts, ages = batch["facts"], batch["ages"]
        if ages.numel() and int(ages.max()) > self.slots and self.config.temporal:
            raise UserError(
                f"a story of {int(ages.max())} facts; this model has slots for {self.slots}: drop "
                "the oldest"
            )
        return self._embedded(facts, tables, ages if self.config.temporal else None)

    def _embedded(
        self,
        words: Int[Tensor, "B *M J"],
        tables: Float[Tensor, "R N F D"],
        ages: Int[Tensor, "B M"] | None = None,
    ) -> Tensor:
        """Sentences in each table, `[B,R,N,M,D]`; M is 1 for questions."""
        copies, count, _, width = tables.shape
        positions = self.config.encoding == "position"
        bags = word_bags(words, self.vocabulary, positions=positions, dtype=tables.dtype)
        weights = [with_positions(tables[:, :, : self.vocabulary], positions=positions)]
        if ages is not None:
            bags = torch.cat([bags, _one_hot(ages, self.slots, bags.dtype)], -1)
            weights.append(tables[:, :, self.vocabulary :])
        flat = torch.cat(weights, 2).permute(2, 0, 1, 3).flatten(1)  # [F,R*N*D]
        made = bags.flatten(0, -2) @ flat  # [B*M,R*N*D]
        made = made.view(len(words), -1, copies, count, width)
        return made.permute(0, 2, 3, 1, 4)


def _visible(batch: Batch, empty: Int[Tensor, "B"] | None) -> Bool[Tensor, "B K"]:
    """Which keys are there: the facts of each story, and before them the empty slots if any."""
    facts = real_positions(batch["counts"], batch["facts"].shape[1])
    return facts if empty is None else torch.cat([(empty > 0)[:, None], facts], 1)


def _with_empty_key(
    keys: Float[Tensor, "B R M D"], empty: Int[Tensor, "B"]
) -> Float[Tensor, "B R K E"]:
    """Keys with one more dimension, and a first key whose score is log(number of empty slots).

    Queries have a one there. An empty slot has score 0, so its share of the softmax is exp(0).
    """
    wide = F.pad(keys, (0, 1, 1, 0))  # [B,R,1+M,D+1]
    score = empty.clamp_min(1).to(keys.dtype).log()
    wide[:, :, 0, -1] = score[:, None]
    return wide


def _one_hot(ages: Int[Tensor, "B M"], slots: int, dtype: torch.dtype) -> Float[Tensor, "B M T"]:
    """One at the age of each fact, from 1; all zero for age 0."""
    steps = torch.arange(1, slots + 1, device=ages.device)
    return (ages[..., None] == steps).to(dtype)
