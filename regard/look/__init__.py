"""Pictures of attention weights, drawn from plain records.

with record(model, "decoder.*.cross") as tape:
    model(batch)
found = payloads(tape, {"*": (target, source)})
alignment(found[0], "alignment.png")                # a picture
draw(found, Path("page.html"))                      # a page to explore
show(found)                                         # the same in a notebook
"""

from regard.look.compact import as_json, pack
from regard.look.measure import rollout
from regard.look.notebook import Looks, show
from regard.look.page import page, save_page
from regard.look.payload import Payload
from regard.look.picture import draw
from regard.look.plot import (
    alignment,
    bars_by_length,
    confusion,
    curves,
    document,
    flow,
    grid,
    growth,
    heat,
    memory,
    positions,
    reach,
    tradeoff,
)
from regard.look.recording import ancestry, follow_hypothesis, join_steps, on_axes, payloads

__all__ = [
    "Looks", "Payload", "alignment", "ancestry", "as_json", "bars_by_length", "confusion",
    "curves", "document", "draw", "flow", "follow_hypothesis", "grid",
    "growth", "heat", "join_steps", "memory",
    "on_axes", "pack", "page", "payloads", "positions", "reach", "rollout", "save_page", "show",
    "tradeoff",
]  # fmt: skip
