"""A picture of attention weights as a drawing or as a page, by the name of the file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.axes import Frames, Notes, Patches, Slots
from regard.core.errors import UserError, choose
from regard.look.measure import rollout
from regard.look.page import save_page
from regard.look.payload import Payload
from regard.look.plot import alignment, document, flow, grid, heat, memory


def _single(payloads: Sequence[Payload], view: str) -> Payload:
    """The one payload that a view has room for."""
    if len(payloads) > 1:
        raise UserError(
            f"the view {view!r} shows one site, and there are {len(payloads)}: choose one of "
            f"{', '.join(each.site for each in payloads)} with --site, or draw a .html page"
        )
    return payloads[0]


def _levels(payloads: Sequence[Payload]) -> tuple[Payload, Payload]:
    """Words and sentences of a document: two sites that pool, the second over the first."""
    if not _two_levels(payloads):
        raise UserError(
            "the view 'document' shows the words and the sentences of a document, which only a "
            "model of two levels attends to; choose another view"
        )
    return payloads[0], payloads[1]


def _two_levels(payloads: Sequence[Payload]) -> bool:
    """Do sentences attend to words here, and one query to the sentences?"""
    if len(payloads) != 2 or any(each.kind != "pool" for each in payloads):
        return False
    words, sentences = payloads
    return len(sentences.queries) == 1 and words.queries == sentences.keys


_PLACED = (Patches, Frames, Notes, Slots)
"""Axes with places to draw on."""


def _over_input(payloads: Sequence[Payload], path: Path) -> None:
    """Attention over the input itself."""
    payload = _single(payloads, "input")
    if not isinstance(payload.keys, _PLACED):
        raise UserError(
            f"the view 'input' draws over an image, a sound or a memory, and {payload.site!r} "
            f"attends to {payload.keys.kind}; choose another view"
        )
    alignment(payload, path)


def default_view(payloads: Sequence[Payload]) -> str:
    """The view that fits best, where none is given."""
    if _two_levels(payloads):
        return "document"
    if len(payloads) == 1 and isinstance(payloads[0].keys, _PLACED):
        return "input"
    if all(each.kind == "memory" for each in payloads):
        return "memory"
    if len(payloads) == 1 and payloads[0].kind == "pool":
        return "text"
    return "matrix" if sum(len(each.weights) for each in payloads) == 1 else "heads"


DRAWINGS: dict[str, Callable[[Sequence[Payload], Path], None]] = {
    "matrix": lambda payloads, path: alignment(_single(payloads, "matrix"), path),
    "heads": lambda payloads, path: grid(payloads, path),
    "links": lambda payloads, path: flow(_single(payloads, "links"), path),
    "text": lambda payloads, path: heat(_single(payloads, "text"), path),
    "input": _over_input,
    "rollout": lambda payloads, path: alignment(rollout(payloads), path),
    "document": lambda payloads, path: document(*_levels(payloads), path),
    "memory": lambda payloads, path: memory(payloads, path),
}
"""What can be drawn of payloads, by the name of the view; the page has all but the last three,
and shows a memory as it shows an input."""


def draw(
    payloads: Sequence[Payload], path: Path, *, title: str = "", view: str | None = None
) -> None:
    """A drawing (.png, .svg, .pdf) or the page (.html), which holds everything it needs.

    Without a `view`, a single head is drawn large with its words, several heads side by side, and
    what was pooled as shades under the words.
    """
    if view is not None:
        choose("view", view, DRAWINGS)
    if path.suffix.lower() == ".html":
        if view == "rollout":
            save_page([rollout(payloads)], path, title=title)
        elif view == "document":
            save_page(_levels(payloads), path, title=title, view="text")
        else:
            save_page(payloads, path, title=title, view="input" if view == "memory" else view)
        return
    DRAWINGS[view or default_view(payloads)](payloads, path)
