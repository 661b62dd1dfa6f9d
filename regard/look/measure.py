"""How a head looks, in a number: how widely, how far, and whether it goes along with its queries.

By these the page sorts heads. Rows are made to sum to one first; a row that weighs nothing says
nothing and is left out.

>>> import numpy as np
>>> everywhere, straight = np.full((2, 4), 0.25), np.eye(3)
>>> entropy(everywhere), entropy(straight)
(2.0, 0.0)
>>> distance(straight), distance(straight[::-1])
(0.0, 1.3333333333333333)
>>> alignment(straight), alignment(straight[::-1]), alignment(everywhere)
(1.0, -1.0, 0.0)
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def _shares(matrix: Float[np.ndarray, "Q K"]) -> tuple[Float[np.ndarray, "R K"], np.ndarray]:
    """The rows that weigh anything, each summing to one, and their places."""
    table = matrix.astype(np.float64)
    sums = table.sum(axis=1)
    places = np.flatnonzero(sums > 0)
    return table[places] / sums[places, None], places


def entropy(matrix: Float[np.ndarray, "Q K"]) -> float:
    """Bits of an average row: 0 looks at one key, log2 of their number looks at all alike."""
    rows, _ = _shares(matrix)
    bits = -(rows * np.log2(np.where(rows > 0, rows, 1.0))).sum(axis=1)
    return float(bits.mean()) + 0.0 if len(rows) else 0.0


def distance(matrix: Float[np.ndarray, "Q K"]) -> float:
    """How many keys away from the diagonal an average look goes.

    In a text that looks at itself, that is how many tokens lie between a query and what it looks
    at. Of two texts the diagonal goes from corner to corner.
    """
    rows, places = _shares(matrix)
    queries, keys = matrix.shape
    straight = places * ((keys - 1) / max(queries - 1, 1))
    away = np.abs(np.arange(keys)[None] - straight[:, None])
    return float((rows * away).sum(axis=1).mean()) if len(rows) else 0.0


def alignment(matrix: Float[np.ndarray, "Q K"]) -> float:
    """Do later queries look at later keys? From -1, backwards, to 1, in step.

    Pearson's correlation of the place of a query and the mean place it looks at; 0 where all look
    at the same place.
    """
    rows, places = _shares(matrix)
    means = rows @ np.arange(matrix.shape[1])
    if len(rows) < 2 or np.ptp(means) < 1e-9:
        return 0.0
    return round(float(np.corrcoef(places, means)[0, 1]), 12)


MEASURES: dict[str, Callable[[np.ndarray], float]] = {
    "entropy": entropy,
    "distance": distance,
    "alignment": alignment,
}
"""What heads can be sorted by, in the order in which the page offers them."""
