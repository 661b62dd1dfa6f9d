"""Pictures of where a model looked, drawn from plain records.

with record(model, "decoder.*.cross") as tape:
    model(batch)
seen = payloads(tape, {"*": (target, source)})
alignment(seen[0], "alignment.png")
"""

from regard.look.payload import Payload
from regard.look.picture import draw
from regard.look.plot import alignment, bars_by_length, curves, flow, grid, heat, positions
from regard.look.rollout import rollout
from regard.look.taped import ancestry, followed, joined, payloads

__all__ = [
    "Payload", "alignment", "ancestry", "bars_by_length", "curves", "draw", "flow", "followed",
    "grid", "heat", "joined", "payloads", "positions", "rollout",
]  # fmt: skip
