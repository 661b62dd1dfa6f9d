"""Looks: payloads that a notebook shows as the page, in a frame of its own.

    tape.show((target, source))                  # the last line of a cell
    run.look("vendredi 3 mai 1998")

The frame holds the whole page in its `srcdoc` and is sandboxed: the page cannot reach the notebook,
nor its styles the notebook's.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from regard.attention.tape import Call, Tape
from regard.core.errors import UserError
from regard.look.compact import BUDGET
from regard.look.page import page
from regard.look.payload import Payload
from regard.look.picture import draw
from regard.look.recording import (
    LabelPair,
    Labels,
    are_steps,
    join_steps,
    keys_of,
    payloads,
    places_of,
    sites_with_labels,
)

_FRAME = (
    '<iframe title="attention" sandbox="allow-scripts allow-downloads" loading="lazy" '
    'width="100%" height="{height}" style="border:0;border-radius:10px" srcdoc="{page}"></iframe>'
)


class Looks(tuple[Payload, ...]):
    """Payloads to be shown: by a notebook, or elsewhere as a file."""

    title: str
    height: int
    """Pixels in a notebook."""

    def __new__(cls, payloads: Iterable[Payload], title: str = "", height: int = 640) -> "Looks":
        """The payloads, in order."""
        looks = super().__new__(cls, payloads)
        looks.title, looks.height = title, height
        return looks

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """The payloads alone."""
        return tuple(self)

    def __repr__(self) -> str:
        places = ", ".join(each.site or each.kind for each in self.payloads)
        return f"Looks({places}): a notebook shows them; elsewhere, save('page.html')"

    def _repr_html_(self) -> str:
        # Notebooks keep what they show, and most refuse more than this.
        text = page(self.payloads, title=self.title, embedded=True, budget=BUDGET // 2)
        return _FRAME.format(height=self.height, page=escape(text, quote=True))

    def save(self, path: Path | str) -> None:
        """A file: .html is the page, .png, .svg and .pdf are pictures."""
        draw(self.payloads, Path(path), title=self.title)


def show(payloads: Sequence[Payload] | Payload, title: str = "") -> Looks:
    """Payloads as a notebook shows them."""
    several = (payloads,) if isinstance(payloads, Payload) else tuple(payloads)
    if not several:
        raise UserError("there is nothing to show: no payload was given")
    return Looks(several, title)


def of_tape(tape: Tape, labels: Labels | LabelPair | None = None, row: int = 0) -> Looks:
    """What a tape has of one row of the batch; without labels, positions have numbers.

    Labels are axes or texts of queries and keys, or such pairs by glob of sites. The steps of a
    decoder are joined; calls that are not steps of one decoding are shown each for itself.
    """
    if labels is None:
        named: Labels = {site: _numbers(tape[site]) for site in tape.sites}
    else:
        named = labels if isinstance(labels, Mapping) else {"*": labels}
    found: list[Payload] = []
    for site, texts in sites_with_labels(tape, named):
        take = join_steps if are_steps(tape[site]) else payloads
        found += take(tape, {site: texts}, row=row)
    return show(found)


def _numbers(calls: Sequence[Call]) -> tuple[list[str], list[str]]:
    """A number for each query and key of a site."""
    queries = max(places_of(calls)) + 1
    return [str(place) for place in range(queries)], [str(place) for place in range(keys_of(calls))]
