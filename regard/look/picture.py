"""One picture for whatever was seen, in the form that is asked for: a drawing, or the page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.errors import UserError, choose
from regard.look.page import save_page
from regard.look.payload import Payload
from regard.look.plot import alignment, flow, grid, heat
from regard.look.rollout import rollout


def single(payloads: Sequence[Payload], view: str) -> Payload:
    """The one payload that a view has room for."""
    if len(payloads) > 1:
        raise UserError(
            f"the view {view!r} shows one site, and there are {len(payloads)}: choose one of "
            f"{', '.join(each.site for each in payloads)} with --site (or look at a .html page)"
        )
    return payloads[0]


DRAWINGS: dict[str, Callable[[Sequence[Payload], Path], None]] = {
    "matrix": lambda payloads, path: alignment(single(payloads, "matrix"), path),
    "heads": lambda payloads, path: grid(payloads, path),
    "links": lambda payloads, path: flow(single(payloads, "links"), path),
    "text": lambda payloads, path: heat(single(payloads, "text"), path),
    "rollout": lambda payloads, path: alignment(rollout(payloads), path),
}
"""What can be drawn of payloads, by the name of the view; the page has all but the last."""


def draw(
    payloads: Sequence[Payload], path: Path, *, title: str = "", view: str | None = None
) -> None:
    """A drawing (.png, .svg, .pdf) or the page (.html), which holds everything it needs.

    Without a `view`, a single head is drawn large with its words, several heads side by side.
    """
    if view is not None:
        choose("view", view, DRAWINGS)
    if path.suffix.lower() == ".html":
        if view == "rollout":
            save_page([rollout(payloads)], path, title=title)
        else:
            save_page(payloads, path, title=title, view=view)
        return
    heads = sum(len(each.weights) for each in payloads)
    DRAWINGS[view or ("matrix" if heads == 1 else "heads")](payloads, path)
