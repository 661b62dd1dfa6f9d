"""Incremental text from a stream of tokens, up to a stop string.

Text that has been returned does not change. An incomplete multi-byte character is held back until
it is complete, and so is the beginning of a possible stop string. All pieces together are the text
of all tokens, up to the first complete stop string.

>>> class Characters:
...     def decode(self, ids): return "".join(chr(each) for each in ids)
>>> pieces = IncrementalText(Characters(), stops=["cab"])
>>> [pieces.push(ord(letter)) for letter in "acacabac"]
['a', '', '', 'ca', '', '', '', '']
>>> pieces.stopped
True
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from regard.core.errors import UserError
from regard.core.protocols import State, Stepper
from regard.decode.generate import open_streams
from regard.decode.policy import SampleId
from regard.decode.stream import Alternatives, GenerationRequest, Reason, StreamStep

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What a decoder returns for bytes that are not a character, or not yet."""

_PENDING = 3
"""The maximum number of bytes of an incomplete character."""

_WINDOW = 16
"""The number of previous tokens that are decoded together with new ones, because the text of a
token may depend on those before it.
"""


@runtime_checkable
class TokenDecoder(Protocol):
    """The method of a tokeniser that is needed here.

    The text of a prefix of some tokens must be a prefix of their text, except for replacement
    characters at its end.
    """

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens."""
        ...


class IncrementalDecoder:
    """Decodes tokens to text that does not change; the text of the prompt, `after`, is omitted."""

    def __init__(self, decoder: TokenDecoder, after: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._ids = list(after)
        self._shown = len(_final(decoder.decode(self._ids))) if self._ids else 0
        self._mark = 0

    def push(self, token: int) -> str:
        """The text that this token adds."""
        self._ids.append(token)
        text = self._decoder.decode(self._ids)
        final = _final(text)
        piece, self._shown = final[self._shown :], max(self._shown, len(final))
        if final == text and len(self._ids) - self._mark >= _WINDOW:
            self._forget(text)
        return piece

    def end(self) -> str:
        """The text that was held back."""
        text = self._decoder.decode(self._ids) if self._ids else ""
        piece, self._shown = text[self._shown :], max(self._shown, len(text))
        return piece

    def _forget(self, text: str) -> None:
        """Drop tokens whose text was returned, up to the mark, which is between two characters.

        Otherwise the cost of a token would grow with the number of tokens before it.
        """
        tail = self._decoder.decode(self._ids[self._mark :])
        # A token without text cannot replace those before it: a space may follow it.
        if tail and text.endswith(tail):
            self._ids, self._shown = self._ids[self._mark :], len(tail)
        self._mark = len(self._ids)


def _final(text: str) -> str:
    """The text without an end that may become another character."""
    end = len(text)
    while end > max(0, len(text) - _PENDING) and text[end - 1] == REPLACEMENT_CHARACTER:
        end -= 1
    return text[:end]


class StopStrings:
    """Passes text through up to the first stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise UserError(f"stop strings must be a list of non-empty strings: {stops!r}")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False
        """Was a stop string found? Then nothing follows."""

    def push(self, text: str) -> str:
        """The new text that is certainly before any stop string."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        out = len(text) - max((_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[out:]
        return text[:out]

    def end(self) -> str:
        """The text that was held back."""
        text, self._held = self._held, ""
        return text


def _begun(text: str, stop: str) -> int:
    """The length of the longest prefix of the stop string that the text ends with.

    >>> _begun("cab", "aba")
    2
    """
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)


class IncrementalText:
    """The text of one row in pieces, up to a stop string."""

    def __init__(
        self, decoder: TokenDecoder, *, stops: Sequence[str] = (), after: Sequence[int] = ()
    ) -> None:
        self._cut = StopStrings(stops)
        self._spelling = IncrementalDecoder(decoder, after)

    @property
    def stopped(self) -> bool:
        """Was a stop string found? Then nothing follows."""
        return self._cut.stopped

    def push(self, token: int) -> str:
        """The text that this token completes, which may be empty."""
        return "" if self.stopped else self._cut.push(self._spelling.push(token))

    def end(self) -> str:
        """The rest of the text after the last token."""
        return "" if self.stopped else self._cut.push(self._spelling.end()) + self._cut.end()


NO_TOKEN = -1
"""The token of a piece that only ends a text, which was cut off from outside."""


@dataclass(frozen=True)
class TextPiece:
    """One token of one row, and the text that it completes."""

    row: SampleId
    token: int
    text: str
    reason: Reason | None
    """Why the row ended with this token; None if it did not."""
    log_probability: float | None = None
    alternatives: Alternatives | None = None


def stream_text(
    stepper: Stepper[State],
    prompts: Sequence[Sequence[int]],
    decoder: TokenDecoder,
    request: GenerationRequest,
    *,
    stops: Sequence[str] = (),
) -> Iterator[TextPiece]:
    """Stream continuations of the prompts, each up to a stop string or stop token.

    >>> import torch
    >>> class Next:                                # a model: after each letter comes the next one
    ...     def select(self, rows): return self
    ...     def start(self, source): return self
    ...     def step(self, tokens, state): return torch.eye(128)[tokens + 1], self
    >>> class Characters:
    ...     def decode(self, ids): return "".join(chr(each) for each in ids)
    >>> request = GenerationRequest(max_tokens=20)
    >>> pieces = list(stream_text(Next(), [[ord("a")]], Characters(), request, stops=["fg"]))
    >>> [piece.text for piece in pieces], pieces[-1].reason
    (['b', 'c', 'd', 'e', '', ''], 'stop')
    """
    StopStrings(stops)  # checked before the model reads a prompt
    for stream in open_streams(stepper, prompts, request):
        texts = {
            row: IncrementalText(decoder, stops=stops, after=prompts[row.prompt - request.first])
            for row in stream.rows
        }
        for step in stream:
            pieces = [_piece(step, place, texts[row]) for place, row in enumerate(step.rows)]
            stream.leave(piece.row for piece in pieces if piece.reason)
            yield from pieces


def _piece(step: StreamStep, place: int, text: IncrementalText) -> TextPiece:
    token, reason = step.tokens[place], step.reasons[place]
    # A stop token has no text.
    out = "" if reason == "stop" else text.push(token)
    if reason is not None:
        out += text.end()
    return TextPiece(
        step.rows[place],
        token,
        out,
        "stop" if text.stopped else reason,
        None if step.log_probabilities is None else step.log_probabilities[place],
        None if step.alternatives is None else step.alternatives[place],
    )
