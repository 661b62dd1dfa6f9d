"""Decode: texts from any model that writes one token at a time (a Stepper of core.protocols).

`generate` gives whole texts, `Stream` one token of every row at a time, `stream_text` text as it
comes. How a token is chosen is a policy, Greedy or Sampling; RULES has what Sampling may be told.
"""

from regard.decode.generate import Written, collected, generate, streams
from regard.decode.greedy import Greedy
from regard.decode.policy import Chooser, Policy, Row
from regard.decode.rules import RULES, Rule
from regard.decode.sample import Sampling
from regard.decode.stream import Alternatives, Reason, Request, Step, Stream
from regard.decode.text import Decoder, Piece, Pieces, stream_text

__all__ = [
    "RULES",
    "Alternatives",
    "Chooser",
    "Decoder",
    "Greedy",
    "Piece",
    "Pieces",
    "Policy",
    "Reason",
    "Request",
    "Row",
    "Rule",
    "Sampling",
    "Step",
    "Stream",
    "Written",
    "collected",
    "generate",
    "stream_text",
    "streams",
]
