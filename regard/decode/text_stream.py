"""Text: pieces of text as the tokens come, up to a stop string.

What is given out is final. Half a character of several bytes is held back until the rest is there,
and so is what may yet become a stop string. All pieces together are the text of all tokens, up to
the stop string that is complete first.

>>> class Letters:
...     def decode(self, ids): return "".join(chr(each) for each in ids)
>>> pieces = Pieces(Letters(), stops=["cab"])
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
from regard.decode.generate import streams
from regard.decode.policy import Row
from regard.decode.stream import Alternatives, Reason, Request, Step

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for bytes that are no character, or not yet."""

_PENDING = 3
"""The most bytes of a character that can be there without its last."""

_WINDOW = 16
"""Tokens before the newest ones that are decoded again with them, as what a token looks like may
depend on those before it.
"""


@runtime_checkable
class Decoder(Protocol):
    """A tokeniser, as far as it is needed here.

    The text of some tokens is to begin with the text of fewer of them, but for what stands for
    incomplete characters at its end.
    """

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens."""
        ...


class Spelling:
    """Tokens to text that will not change any more; the prompt, `after`, is not repeated."""

    def __init__(self, decoder: Decoder, after: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._ids = list(after)
        self._shown = len(_final(decoder.decode(self._ids))) if self._ids else 0
        self._mark = 0

    def push(self, token: int) -> str:
        """What this token adds to the text."""
        self._ids.append(token)
        text = self._decoder.decode(self._ids)
        final = _final(text)
        piece, self._shown = final[self._shown :], max(self._shown, len(final))
        if final == text and len(self._ids) - self._mark >= _WINDOW:
            self._forget(text)
        return piece

    def end(self) -> str:
        """What was held back."""
        text = self._decoder.decode(self._ids) if self._ids else ""
        piece, self._shown = text[self._shown :], max(self._shown, len(text))
        return piece

    def _forget(self, text: str) -> None:
        """Drop tokens whose text is out, up to the mark, which is between two characters.

        Each token would otherwise cost as much as all before it.
        """
        tail = self._decoder.decode(self._ids[self._mark :])
        # A token that shows nothing cannot stand for those before it: a blank may be due after it.
        if tail and text.endswith(tail):
            self._ids, self._shown = self._ids[self._mark :], len(tail)
        self._mark = len(self._ids)


def _final(text: str) -> str:
    """The text without an end that may yet become another character."""
    end = len(text)
    while end > max(0, len(text) - _PENDING) and text[end - 1] == BROKEN:
        end -= 1
    return text[:end]


class Cut:
    """Text up to the first stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise UserError(f"stop strings must be a list of texts that are not empty: {stops!r}")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False
        """Was a stop string found? Then nothing follows."""

    def push(self, text: str) -> str:
        """What of the text so far is before any stop string, and new."""
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
        """What was held back."""
        text, self._held = self._held, ""
        return text


def _begun(text: str, stop: str) -> int:
    """How much of the stop string the text ends with.

    >>> _begun("cab", "aba")
    2
    """
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)


class Pieces:
    """The text of one row, piece by piece, up to a stop string."""

    def __init__(
        self, decoder: Decoder, *, stops: Sequence[str] = (), after: Sequence[int] = ()
    ) -> None:
        self._cut = Cut(stops)
        self._spelling = Spelling(decoder, after)

    @property
    def stopped(self) -> bool:
        """Was a stop string found? Then nothing follows."""
        return self._cut.stopped

    def push(self, token: int) -> str:
        """The text that this token completes; often a piece of it, sometimes nothing yet."""
        return "" if self.stopped else self._cut.push(self._spelling.push(token))

    def end(self) -> str:
        """The rest, when no more tokens come."""
        return "" if self.stopped else self._cut.push(self._spelling.end()) + self._cut.end()


@dataclass(frozen=True)
class Piece:
    """One token of one row, and the text that it completed."""

    row: Row
    token: int
    text: str
    reason: Reason | None
    """Why the row ended with this token; None if it goes on."""
    log_probability: float | None = None
    alternatives: Alternatives | None = None


def stream_text(
    stepper: Stepper[State],
    prompts: Sequence[Sequence[int]],
    decoder: Decoder,
    request: Request,
    *,
    stops: Sequence[str] = (),
) -> Iterator[Piece]:
    """Texts that continue the prompts, piece by piece, each up to a stop string or stop token.

    >>> import torch
    >>> class Next:                                # a model: after each letter comes the next one
    ...     def select(self, rows): return self
    ...     def start(self, source): return self
    ...     def step(self, tokens, state): return torch.eye(128)[tokens + 1], self
    >>> class Letters:
    ...     def decode(self, ids): return "".join(chr(each) for each in ids)
    >>> request = Request(max_tokens=20)
    >>> pieces = list(stream_text(Next(), [[ord("a")]], Letters(), request, stops=["fg"]))
    >>> [piece.text for piece in pieces], pieces[-1].reason
    (['b', 'c', 'd', 'e', '', ''], 'stop')
    """
    Cut(stops)  # refuse them before the model reads a prompt
    for stream in streams(stepper, prompts, request):
        texts = {
            row: Pieces(decoder, stops=stops, after=prompts[row.prompt - request.first])
            for row in stream.rows
        }
        for step in stream:
            pieces = [_piece(step, place, texts[row]) for place, row in enumerate(step.rows)]
            stream.leave(piece.row for piece in pieces if piece.reason)
            yield from pieces


def _piece(step: Step, place: int, text: Pieces) -> Piece:
    token, reason = step.tokens[place], step.reasons[place]
    # A token that says "stop" is no text.
    out = "" if reason == "stop" else text.push(token)
    if reason is not None:
        out += text.end()
    return Piece(
        step.rows[place],
        token,
        out,
        "stop" if text.stopped else reason,
        None if step.log_probabilities is None else step.log_probabilities[place],
        None if step.alternatives is None else step.alternatives[place],
    )
