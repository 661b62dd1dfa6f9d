"""Record where a model looks, and make it look elsewhere.

    with record(model, sites="decoder.*", heads=[0], rows=[-1]) as tape:
        model(batch)
    tape.weights("decoder.3.cross")                       # [B,1,1,K]

    with intervene(model, {"encoder.*": uniform}):
        model(batch)

Both act in `Attend`, where every model attends, through a context variable: no hooks to leak, no
argument to thread through models, and safe in a server with threads, since a new thread starts with
nothing open. Recording changes no output, not in a single bit: a fused kernel stays in use, and
only the sites, heads and rows that were requested are computed again beside it.

Under torch.compile both work. While anything is open, compiled models are compiled a second time
with one graph break per attention, and that version serves all later recordings; when nothing is
open, nothing is paid. A model compiled with fullgraph=True cannot be broken and fails: record the
module it was compiled from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core.errors import UserError, choose, unknown

AXIS_NAMES: dict[str, str] = {
    "position": "what the model reads, in order: tokens of a text, or of question and passage",
    "earlier": "the positions before the query; the last key is the one right before it",
    "next": "the position after each one but the last: what followed a state in a cache",
    "sentinel": "a sentinel, then every position",
    "source": "what an encoder reads: tokens of a source sentence",
    "target": "what a decoder writes: the tokens of the output, and the end",
    "prefix": "what a decoder reads: a start token, then the target without its end",
    "sentence": "sentences of a document",
    "text": "the whole input: one query that pools",
    "patch": "parts of an image",
    "frame": "stretches of a sound or a video",
    "note": "notes of a piece of music",
    "step": "steps of a computation, without a label of their own",
    "slot": "slots of a memory",
}
"""What the axes of the package's sites are called. A site names two, a task gives each an axis with
labels (`regard.core.axes`). A model may use other names, if its task has labels for them."""

AxisPair = tuple[str, str]
"""The names of the query axis and the key axis."""

KINDS: dict[str, AxisPair] = {
    "self": ("position", "position"),
    "cross": ("target", "source"),
    "memory": ("step", "slot"),
    "pointer": ("step", "position"),
    "glimpse": ("step", "patch"),
    "alignment": ("target", "source"),
    "pool": ("text", "position"),
}
"""Each kind of attention, with the names of its query and key axes where a site names no others."""


class Site(nn.Module):
    """A module in which attention happens: what `record` and `intervene` find by name."""

    def __init__(self, kind: str, axes: AxisPair | None = None) -> None:
        super().__init__()
        choose("kind of attention", kind, KINDS)
        self.kind = kind
        self.axes = KINDS[kind] if axes is None else axes
        if len(self.axes) != 2:
            raise UserError(f"axes={axes!r} must name two axes, of the queries and of the keys")


@dataclass(frozen=True, kw_only=True)
class Look:
    """What an edit may know of the weights it is given."""

    site: str
    kind: str
    first: int
    """The position of the first query row."""
    allowed: Bool[Tensor, "#B #H #Q K"] | None
    """Which keys may be looked at; None is all."""


Edit = Callable[[Tensor, Look], Tensor]
"""Weights [B,H,Q,K] in, weights of the same shape out; edit.py has some ready made."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One attention that happened: the chosen heads and rows of one call of one site."""

    site: str
    kind: str
    weights: Float[Tensor, "B N Q K"]
    """Detached from the graph; on the model's device."""
    heads: tuple[int, ...]
    """Which heads of the site these are."""
    rows: tuple[int, ...]
    """The positions of these queries in the sequence."""
    axes: AxisPair
    """The names of the last two axes of the weights."""


_Texts = tuple[Sequence[str], Sequence[str]]
"""The labels of queries and of keys: texts, or an `Axis`, which is a sequence of them."""


@runtime_checkable
class Shown(Protocol):
    """What a notebook shows, and what can be kept as a file."""

    def _repr_html_(self) -> str: ...

    def save(self, path: Path | str) -> None:
        """A file: .html is a page, .png, .svg and .pdf are pictures."""
        ...


@dataclass
class Tape:
    """What was recorded: for each site the calls it made, in order."""

    known: tuple[str, ...]
    heads: tuple[int, ...] | None
    rows: tuple[int, ...] | slice | None
    calls: dict[str, list[Call]] = field(default_factory=dict)

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were heard, in the order of their first call."""
        return tuple(self.calls)

    def __getitem__(self, site: str) -> list[Call]:
        if site in self.known and site not in self.calls:
            raise UserError(
                f"site {site!r} was listened to but made no call; heard: {', '.join(self.calls)}"
            )
        return choose("site", site, self.calls)

    def __iter__(self) -> Iterator[Call]:
        return (call for calls in self.calls.values() for call in calls)

    def __len__(self) -> int:
        return sum(len(calls) for calls in self.calls.values())

    def __repr__(self) -> str:
        heard = ", ".join(f"{site} x {len(calls)}" for site, calls in self.calls.items())
        return f"Tape({heard or 'nothing yet'})"

    def weights(self, site: str) -> Float[Tensor, "B N Q K"]:
        """The weights of a site that made one call."""
        calls = self[site]
        if len(calls) > 1:
            raise UserError(
                f"site {site!r} made {len(calls)} calls: join them, tape.join({site!r}), or take "
                f"one of them, tape[{site!r}][0].weights"
            )
        return calls[0].weights

    def join(self, site: str) -> Float[Tensor, "B N Q K"]:
        """The calls of a site one under another, as a decoder made them step by step.

        Keys that an earlier step had not seen yet weigh zero in it.
        """
        parts = [call.weights for call in self[site]]
        shapes = {part.shape[:2] for part in parts}
        if len(shapes) > 1:
            raise UserError(
                f"the calls of site {site!r} cannot be joined: their batch and heads differ "
                f"({', '.join(str(tuple(shape)) for shape in sorted(shapes))})"
            )
        keys = max(part.shape[3] for part in parts)
        return torch.cat([nn.functional.pad(p, (0, keys - p.shape[3])) for p in parts], dim=2)

    def show(self, labels: _Texts | Mapping[str, _Texts] | None = None, *, row: int = 0) -> Shown:
        """One row of the batch as a page, for a notebook or to save.

        `labels` are the texts of queries and keys, for all sites or by glob; without them,
        positions have numbers.
        """
        # The one import of pictures in this layer: a door, which only hands
        # itself on (tests/test_arrows.py).
        from regard.look.notebook import of_tape

        return of_tape(self, labels, row)

    def _repr_html_(self) -> str | None:
        return self.show()._repr_html_() if self.calls else None

    def add(self, call: Call) -> None:
        """Append a call."""
        self.calls.setdefault(call.site, []).append(call)

    def chosen_heads(self, site: str, heads: int) -> tuple[int, ...]:
        """The heads to keep of so many."""
        return _within(self.heads, heads, "head", site)

    def chosen_rows(self, site: str, queries: int) -> tuple[int, ...]:
        """The query rows to keep of so many."""
        if isinstance(self.rows, slice):
            return tuple(range(queries))[self.rows]
        return _within(self.rows, queries, "row", site)


def _within(chosen: tuple[int, ...] | None, count: int, what: str, site: str) -> tuple[int, ...]:
    """Indices made positive; all of them where none were chosen."""
    if chosen is None:
        return tuple(range(count))
    for index in chosen:
        if not -count <= index < count:
            raise UserError(
                f"{what} {index} is out of range: site {site!r} has {count} "
                f"({what}s 0 to {count - 1}, or -{count} to -1 from the end)"
            )
    return tuple(index % count for index in chosen)


@dataclass(frozen=True)
class Listener:
    """One open `record` or `intervene`: the sites of its model, and what it wants of which."""

    names: Mapping[int, str]
    """The name of every site of the model, by the module's id."""
    tape: Tape | None
    edits: Mapping[str, Edit]
    """The edit of each site that has one."""
    listens: frozenset[str]


class _Switch:
    """Is anything open in any thread? A plain value, so that compiled code can guard on it."""

    on = False
    count = 0
    lock = Lock()


_OPEN: ContextVar[tuple[Listener, ...]] = ContextVar("regard_open", default=())


@dataclass(frozen=True)
class OpenContexts:
    """The open `record` and `intervene` blocks of a site, each with the name of the site in it."""

    tapes: tuple[tuple[str, Tape], ...]
    edits: tuple[tuple[str, Edit], ...]


def open_contexts(site: Site) -> OpenContexts | None:
    """The open `record` and `intervene` blocks of this site; None if there are none.

    Raises if the site belongs to none of their models.
    """
    if not _Switch.on:
        return None
    return _contexts_of(site)


def _contexts_of(site: Site) -> OpenContexts | None:
    listeners = [each for each in _OPEN.get() if id(site) in each.names]
    if not listeners:
        if _OPEN.get():
            raise UserError(
                f"attention of kind {site.kind!r} happened outside the models being recorded or "
                "edited; record the model that has it, or run it outside the `with` block"
            )
        return None
    named = [(each.names[id(site)], each) for each in listeners]
    tapes = tuple(
        (name, each.tape) for name, each in named if each.tape is not None and name in each.listens
    )
    edits = tuple((name, each.edits[name]) for name, each in named if name in each.edits)
    return OpenContexts(tapes, edits) if tapes or edits else None


def sites_of(model: nn.Module) -> dict[str, Site]:
    """Every site of a model by name: its path, without a closing `attend`.

    >>> from regard.attention import Attend, Dot
    >>> list(sites_of(nn.ModuleDict({"cross": nn.ModuleDict({"attend": Attend(Dot(4))})})))
    ['cross']
    """
    compiled = getattr(model, "_orig_mod", model)
    found = {
        name.removesuffix("attend").removesuffix(".") or "attend": module
        for name, module in compiled.named_modules()
        if isinstance(module, Site)
    }
    if not found:
        raise UserError(f"{type(compiled).__name__} has no attention built from regard.attention")
    return found


def matching(pattern: str | Sequence[str], names: Mapping[str, Site]) -> tuple[str, ...]:
    """The names that a glob, or one of several, matches; a glob that matches none is an error."""
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    for each in patterns:
        if not any(fnmatchcase(name, each) for name in names):
            raise unknown("site", each, names)
    return tuple(name for name in names if any(fnmatchcase(name, each) for each in patterns))


@contextmanager
def _listening(listener: Listener) -> Iterator[None]:
    token = _OPEN.set((*_OPEN.get(), listener))
    with _Switch.lock:
        _Switch.count += 1
        _Switch.on = True
    try:
        yield
    finally:
        with _Switch.lock:
            _Switch.count -= 1
            _Switch.on = _Switch.count > 0
        _OPEN.reset(token)


@contextmanager
def record(
    model: nn.Module,
    sites: str | Sequence[str] = "*",
    *,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | slice | None = None,
) -> Iterator[Tape]:
    """Keep the weights of the sites that a glob matches, of these heads and query rows (or all).

    Weights are what the model used: after any edit, before dropout. Raises at the end if nothing
    happened.
    """
    names = sites_of(model)
    listens = matching(sites, names)
    tape = Tape(
        listens,
        None if heads is None else tuple(heads),
        rows if rows is None or isinstance(rows, slice) else tuple(rows),
    )
    by_id = {id(module): name for name, module in names.items()}
    with _listening(Listener(by_id, tape, {}, frozenset(listens))):
        yield tape
    if not tape.calls:
        raise UserError(
            "nothing was recorded: no attention of the chosen sites ran inside the `with` block "
            f"(sites: {', '.join(listens)})"
        )


@contextmanager
def intervene(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Replace the weights of the sites that each glob matches by what its edit makes of them.

    Where several globs match a site, the last one in the mapping counts. Nested edits apply from
    the outside in.
    """
    names = sites_of(model)
    per_site = {name: edit for glob, edit in edits.items() for name in matching(glob, names)}
    by_id = {id(module): name for name, module in names.items()}
    with _listening(Listener(by_id, None, per_site, frozenset())):
        yield


def apply_edits(
    weights: Tensor, contexts: OpenContexts, kind: str, first: int, allowed: Tensor | None
) -> Tensor:
    """The weights after all edits, each held to the shape and dtype it was given."""
    for name, edit in contexts.edits:
        look = Look(site=name, kind=kind, first=first, allowed=allowed)
        changed = edit(weights, look)
        if changed.shape != weights.shape or changed.dtype != weights.dtype:
            raise UserError(
                f"the edit of site {look.site!r} was given {weights.dtype} weights of "
                f"{list(weights.shape)} and returned {changed.dtype} of {list(changed.shape)}"
            )
        weights = changed
    return weights
