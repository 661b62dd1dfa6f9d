"""Payload: attention weights with labelled axes, from which every picture is drawn.

It has numbers and axes and nothing of a model, so that a picture can be drawn on another machine,
from a file, of attention over anything: words of a sentence, patches of an image, frames of a
recording, slots of a memory.

>>> payload = Payload.of([[0.9, 0.1], [0.2, 0.8]], ["a", "cat"], ["un", "chat"])
>>> payload.weights.shape, payload.axes
((1, 2, 2), ('target', 'source'))
>>> payload.strongest
(0, 1)
>>> Payload.from_json(payload.to_json()).keys
Tokens(labels=('un', 'chat'))
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.attention.tape import KINDS, AxisPair
from regard.core.axes import Axis, as_axis, axis_from_json
from regard.core.config import Config, parse
from regard.core.errors import UserError, choose

Numbers = Tensor | np.ndarray | Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]]
"""Weights as people have them: [Q,K] of one head or [H,Q,K] of several."""


def plain_array(numbers: object) -> Float[np.ndarray, "..."]:
    """A copy of the numbers in the memory of the CPU, in 32 bits, that cannot be written to."""
    if isinstance(numbers, Tensor):
        # In float before numpy sees them: it does not know bfloat16.
        numbers = numbers.detach().float().cpu().numpy()
    try:
        array = np.array(numbers, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"a table of numbers with rows of one length is needed, not this {_described(numbers)}"
        ) from error
    array.setflags(write=False)
    return array


def _described(numbers: object) -> str:
    """What was given, in a few words."""
    return f"{type(numbers).__name__} {str(numbers)[:60]!r}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Payload:
    """How much each query attends to each key, head by head, with a label for each of them."""

    weights: Float[np.ndarray, "H Q K"]
    """Finite and at least zero. Rows need not sum to one: not every weighing makes them."""
    queries: Axis
    """What attends: words of the target, steps."""
    keys: Axis
    """What is attended to: words of the source, patches, frames, slots."""
    site: str = ""
    """The name of the place in the model; empty where there is none."""
    kind: str = "cross"
    """A row of `regard.attention.tape.KINDS`."""
    axes: AxisPair = ("", "")
    """The names of the query axis and the key axis; those of the kind, where none are given."""
    heads: tuple[int, ...] | None = None
    """Which heads these are; None where the weights are of no single head."""
    step: int | None = None
    """The step of a decoder; None where all of them are here."""
    rows: tuple[int, ...] = ()
    """For a hypothesis of a beam search: the row of the batch it descends from, at each step."""

    def __post_init__(self) -> None:
        choose("kind of attention", self.kind, KINDS)
        if not any(self.axes):
            object.__setattr__(self, "axes", KINDS[self.kind])
        if not isinstance(self.weights, np.ndarray):
            raise UserError(
                f"a payload holds a numpy array, not a {type(self.weights).__name__}: make it with "
                "Payload.of(weights, queries, keys)"
            )
        shape = tuple(self.weights.shape)
        if len(shape) != 3 or 0 in shape:
            raise UserError(
                f"weights must be [heads, queries, keys] with at least one of each, not "
                f"{list(shape)}"
            )
        check_labels("queries", self.queries, shape[1])
        check_labels("keys", self.keys, shape[2])
        if self.heads is not None and len(self.heads) != shape[0]:
            raise UserError(f"{shape[0]} heads of weights, but heads={self.heads} names others")
        if self.rows and len(self.rows) != shape[1]:
            raise UserError(f"{shape[1]} queries, but rows={self.rows} is an ancestry of others")
        wrong = ~(np.isfinite(self.weights) & (self.weights >= 0))
        if wrong.any():
            head, query, key = (int(each) for each in np.argwhere(wrong)[0])
            raise UserError(
                "weights must be finite and at least 0; the first that is not is "
                f"{self.weights[head, query, key]} (head {head}, query {query}, key {key})"
            )

    @staticmethod
    def of(
        weights: Numbers,
        queries: Axis | Sequence[str],
        keys: Axis | Sequence[str],
        *,
        site: str = "",
        kind: str = "cross",
    ) -> "Payload":
        """A payload of [Q,K] or [H,Q,K] weights, from torch, numpy or lists.

        `queries` and `keys` are axes, or plain texts, which are taken as tokens.
        """
        table = plain_array(weights)
        if table.ndim == 2:
            table, heads = table[None], None  # [1,Q,K]
        else:
            heads = tuple(range(len(table))) if table.ndim else None
        return Payload(
            weights=table,
            queries=as_axis(queries),
            keys=as_axis(keys),
            site=site,
            kind=kind,
            heads=heads,
        )

    @property
    def matrix(self) -> Float[np.ndarray, "Q K"]:
        """The mean of all heads."""
        return np.asarray(self.weights.mean(axis=0))

    @property
    def strongest(self) -> tuple[int, ...]:
        """The key with the largest mean weight over heads, for each query; the first of equals."""
        return tuple(int(key) for key in self.matrix.argmax(axis=1))

    def transpose(self) -> "Payload":
        """With keys down the side and queries along the top, as a memory is shown by time."""
        return replace(
            self,
            weights=self.weights.transpose(0, 2, 1),
            queries=self.keys,
            keys=self.queries,
            axes=(self.axes[1], self.axes[0]),
            rows=(),
        )

    @property
    def title(self) -> str:
        """Where these weights come from, for a person."""
        if self.heads is None:
            heads = ""
        elif len(self.heads) == 1:
            heads = f"head {self.heads[0]}"
        else:
            heads = f"mean of {len(self.heads)} heads"
        step = "" if self.step is None else f"step {self.step}"
        return ", ".join(part for part in (self.site, heads, step) if part)

    def head(self, head: int) -> "Payload":
        """One head alone, by the number it has in the model."""
        if self.heads is None or head not in self.heads:
            known = "none" if self.heads is None else ", ".join(map(str, self.heads))
            raise UserError(f"head {head} is not here; heads: {known}")
        place = self.heads.index(head)
        return replace(self, weights=self.weights[place : place + 1], heads=(head,))

    def to_json(self) -> str:
        """All of it as one JSON object; `from_json` gives back the same numbers, bit for bit.

        JSON has no half of a surrogate pair; in a label one becomes the sign for an unknown letter.
        """
        # By way of texts, so that 0.1 in 32 bits is written 0.1 and not with the digits of 64.
        short = self.weights.astype(str).astype(float).tolist()
        return _PayloadJson(
            weights=short,
            queries=_axis_json(self.queries),
            keys=_axis_json(self.keys),
            site=self.site,
            kind=self.kind,
            axes=self.axes,
            heads=None if self.heads is None else list(self.heads),
            step=self.step,
            rows=list(self.rows),
        ).model_dump_json()

    @staticmethod
    def from_json(text: str) -> "Payload":
        """The payload that `to_json` wrote."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UserError(f"a payload must be JSON: {error}") from error
        if not isinstance(value, dict):
            raise UserError(f"a payload must be a JSON object, not a {type(value).__name__}")
        read = parse(_PayloadJson, value)
        return Payload(
            weights=plain_array(read.weights),
            queries=axis_from_json(read.queries),
            keys=axis_from_json(read.keys),
            site=read.site,
            kind=read.kind,
            axes=read.axes,
            heads=None if read.heads is None else tuple(read.heads),
            step=read.step,
            rows=tuple(read.rows),
        )


def whole_letters(text: str) -> str:
    """The text with � for every half of a surrogate pair.

    >>> whole_letters("half: " + chr(0xD800))
    'half: �'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _axis_json(axis: Axis) -> dict[str, object]:
    """An axis as JSON has it."""
    return {**axis.to_json(), "labels": [whole_letters(label) for label in axis]}


class _PayloadJson(Config):
    """A payload as JSON has it."""

    weights: list[list[list[float]]]
    queries: dict[str, object] | list[str]
    keys: dict[str, object] | list[str]
    site: str
    kind: str
    axes: AxisPair = ("", "")
    heads: list[int] | None
    step: int | None
    rows: list[int]


def check_labels(name: str, labels: Sequence[str], count: int) -> None:
    """There must be a label for each of `count` positions."""
    if len(labels) != count:
        raise UserError(f"{len(labels)} labels for {count} {name}: give one text for each of them")
