"""Encoded questions and passages; long passages are split into overlapping windows.

As in BERT's run_squad (Devlin et al. 2019, section 4.2): `[CLS] question [SEP] passage [SEP]`, with
windows of the passage every `stride` tokens. The targets are the positions of the first and the
last token of the answer; both are 0, the position of [CLS], if the window does not contain it.

A batch has `tokens` [B,T], `lengths` [B], `parts` [B,T], `passage` [B,T] (True where an answer may
be), and `first` and `last` [B].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import IGNORE
from regard.data.bucket import EMPTY_ROW
from regard.data.text.encoding import PADDING_PART, pack_rows
from regard.data.text.parallel import PackedSequences
from regard.data.text.questions import PassageQuestion
from regard.data.text.special_tokens import InputTemplate
from regard.data.text.tokeniser import Tokeniser

_Spans = list[tuple[int, int]]
"""The first and last character (exclusive) of each token."""


@dataclass(frozen=True)
class PassageWindow:
    """A question and a part of its passage."""

    question: int
    """The index of the question."""
    tokens: list[int]
    parts: list[int]
    begin: int
    """The position of the first token of the passage."""
    spans: _Spans
    """The characters of the tokens of the passage."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How questions are split into windows."""

    tokeniser: Tokeniser
    template: InputTemplate
    window: int
    """The maximum number of tokens, with special tokens."""
    stride: int
    """The number of tokens between the starts of windows."""
    longest_question: int
    """The maximum number of tokens of a question; the rest is dropped."""

    def __post_init__(self) -> None:
        room = self.window - self.template.size(2) - self.longest_question
        if positive("stride", self.stride) > room:
            raise UserError(
                f"window={self.window} leaves {room} tokens for a passage after a question of "
                f"{self.longest_question} and special tokens; stride={self.stride} would skip some"
            )
        if not self.template.before:
            raise UserError("the template needs a token before the question, for no answer")

    def windows(self, asked: Sequence[PassageQuestion]) -> list[PassageWindow]:
        """All windows of all questions, in order."""

        @lru_cache(8)  # several questions are about one passage
        def passage(text: str) -> tuple[list[int], _Spans]:
            return self.tokeniser.encode_each([text])[0], self.tokeniser.offsets(text)

        rows = self.tokeniser.encode_each([each.text for each in asked])
        return [
            window
            for number, (each, row) in enumerate(zip(asked, rows, strict=True))
            for window in self._cut(
                number, each, row[: self.longest_question], *passage(each.passage)
            )
        ]

    def _cut(
        self,
        number: int,
        asked: PassageQuestion,
        question: list[int],
        tokens: list[int],
        spans: _Spans,
    ) -> list[PassageWindow]:
        room = self.window - self.template.size(2) - len(question)
        begin = len(self.template.before) + len(question) + len(self.template.between)
        answer = answer_span(asked.answers[0], spans) if asked.answers else None
        found = []
        for start in range(0, max(1, len(tokens)), self.stride):
            held = tokens[start : start + room]
            framed, parts = self.template.apply([question, held])
            first = last = 0
            if answer and start <= answer[0] and answer[1] < start + len(held):
                first, last = (begin + place - start for place in answer)
            here = spans[start : start + room]
            found.append(PassageWindow(number, framed, parts, begin, here, first, last))
            if start + room >= len(tokens):
                break
        return found


def answer_span(answer: tuple[int, str], spans: _Spans) -> tuple[int, int] | None:
    """The first and the last token of an answer; None if it has no token.

    >>> answer_span((4, "b c"), [(0, 3), (4, 5), (6, 7), (8, 9)])
    (1, 2)
    """
    begin, end = answer[0], answer[0] + len(answer[1])
    within = [place for place, span in enumerate(spans) if span[1] > begin and span[0] < end]
    return (within[0], within[-1]) if within else None


class EncodedWindows:
    """Encoded windows, packed into flat tensors."""

    def __init__(self, windows: Sequence[PassageWindow], pad: int) -> None:
        self.windows = windows
        self._pad = pad
        self._tokens: PackedSequences = pack_rows([each.tokens for each in windows])
        self._parts: PackedSequences = pack_rows([each.parts for each in windows])
        ends = [(each.begin, each.begin + len(each.spans)) for each in windows]
        self._passage = torch.tensor(ends).view(-1, 2)  # [N,2]
        self._answer = torch.tensor([(each.first, each.last) for each in windows]).view(-1, 2)

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each window."""
        lengths: list[int] = self._tokens.lengths.tolist()
        return lengths

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These windows as a batch; EMPTY_ROW is a row of padding."""
        there = numbers != EMPTY_ROW
        tokens = self._tokens.rows(numbers, self._pad)
        places = torch.arange(tokens.shape[1])
        begin, end = self._passage[numbers, None].unbind(2)  # [B,1]
        first, last = torch.where(there[:, None], self._answer[numbers], IGNORE).unbind(1)
        return {
            "tokens": tokens,
            "lengths": torch.where(there, self._tokens.lengths[numbers].long(), 0),
            "parts": self._parts.rows(numbers, PADDING_PART),
            "passage": (places >= begin) & (places < end) & there[:, None],
            "first": first,
            "last": last,
        }
