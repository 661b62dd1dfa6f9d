"""The one legend of dimension letters.

Public signatures carry them as jaxtyping annotations, `Float[Tensor, "B H Q K"]`; inside a body
each line that changes a shape ends in a comment, `# [B,H,Q,K]`. A test holds every letter in the
package to this table.

>>> LEGEND["Q"]
'query positions'
"""

LEGEND: dict[str, str] = {
    "A": "hidden units inside an additive score",
    "B": "batch",
    "C": "channels, filters or chosen columns",
    "D": "width of the model",
    "E": "width per head",
    "F": "width of a prepared key",
    "G": "query heads that share one key-value head",
    "H": "heads",
    "J": "words of a sentence",
    "K": "key positions",
    "L": "layers",
    "M": "components of a mixture; facts of a story",
    "N": "heads or rows that were chosen to be recorded; items of a data set",
    "P": "parts of a weight, one for each thread",
    "Q": "query positions",
    "R": "relative positions, from the farthest key behind to the farthest ahead; copies",
    "S": "source positions",
    "T": "target positions, or positions of a sequence that attends to itself",
    "V": "vocabulary",
    "W": "width of a value",
}
