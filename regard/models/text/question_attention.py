"""Answers from a text by attention with a question as query (Jain and Wallace 2019).

Two bidirectional LSTMs read the text and the question; the question's last states are q. Section 2
of the paper, with the decoder of its code:

    α = softmax(vᵀ tanh(W h_t + U q)),  c = Σ α_t h_t,  p = softmax(W_o tanh(W_c c + W_q q))

With `score = "dot"` it is α = softmax(h_tᵀ q / √D). A text and its question are the two
parts of a pair; the separator between them ends the text.

>>> model = QuestionAttention(QuestionAttention.Config(width=8, hidden=6), vocabulary=9, classes=3)
>>> tokens, parts = torch.tensor([[4, 5, 3, 6, 7]]), torch.tensor([[0, 0, 0, 1, 1]])
>>> model({"tokens": tokens, "lengths": torch.tensor([5]), "parts": parts}).logits.shape
torch.Size([1, 3])
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, padding, score_named
from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional
from regard.layers.word_features import WordFeatures
from regard.outputs.classes import Classes


class QuestionAttention(nn.Module):
    """A text and a question, whose state is the query of attention to the text."""

    class Config(Config):
        """What a recipe may choose."""

        cell: Literal["elman", "gru", "lstm"] = "lstm"
        width: PositiveInt = 50
        """Of the vector of a word, one for texts and one for questions."""
        hidden: PositiveInt = 32
        """Of each direction."""
        score: Literal["additive", "dot", "even"] = "additive"
        """How well a word matches the question; "even" weighs all alike."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On words and before the answer."""
        init_range: float = Field(0.1, gt=0)
        """Embeddings are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.words, self.question_words = (
            WordFeatures(
                vocabulary, config.width, dropout=config.dropout, init_range=config.init_range
            )
            for _ in range(2)
        )
        self.encoder, self.question_encoder = (
            Bidirectional(config.cell, config.width, config.hidden) for _ in range(2)
        )
        width = self.encoder.width
        score = "additive" if config.score == "additive" else "scaled_dot"
        self.attend = Attend(score_named(score, width), kind="pool")
        self.text_layer = nn.Linear(width, width // 2)
        self.question_layer = nn.Linear(width, width // 2)
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(width // 2, classes)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The answers as classes."""
        text, question = batch["parts"] == 0, batch["parts"] > 0  # [B,T]
        states = self.encoder(self.words(batch), text.sum(1))  # [B,T,D]
        summary = self.read_question(batch, question)  # [B,D]
        memory = self.attend.remember(states[:, None], states[:, None])
        query = torch.zeros_like(summary) if self.config.score == "even" else summary
        read = self.attend(query[:, None, None], memory, padding(text))[:, 0, 0]  # [B,D]
        joined = (self.text_layer(read) + self.question_layer(summary)).tanh()
        return Classes(self.output(self.drop(joined)))

    def read_question(self, batch: Batch, question: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
        """The last states over the question, which is moved to the front of its row."""
        order = (~question).to(torch.uint8).argsort(dim=1, stable=True)  # [B,T]
        counts = question.sum(1)
        longest = max(1, int(counts.max()))
        moved = {"tokens": batch["tokens"].gather(1, order)[:, :longest], "lengths": counts}
        states = self.question_encoder(self.question_words(moved), counts)
        return self.question_encoder.last(states, counts)
