"""Decode: texts from any model that writes one token at a time (a Stepper of core.protocols).

`generate` gives whole texts, `Stream` one token of every row at a time, `stream_text` text as it
comes; `Continuous` is a batch that texts join and leave. How a token is chosen is a policy, Greedy
or Sampling; RULES has what Sampling may be told.
`search` looks for the best targets of a batch of sentences, as Beam says; `decode` does so for any
number of them, `completed` as they are done and `in_chunks` as they come.
"""

from regard.decode.beam import Beam
from regard.decode.continuous import Continuous, Writer
from regard.decode.generate import Written, collected, generate, streams
from regard.decode.greedy import Greedy
from regard.decode.greedy_search import Likeliest
from regard.decode.hypothesis import Found, Hypothesis
from regard.decode.penalty import LENGTH_PENALTIES
from regard.decode.policy import Chooser, Policy, Row
from regard.decode.rules import RULES, Rule
from regard.decode.sample import Sampling
from regard.decode.search import Search
from regard.decode.sentences import completed, decode, in_chunks, search
from regard.decode.stream import Alternatives, Reason, Request, Step, Stream
from regard.decode.text_stream import Decoder, Piece, Pieces, stream_text

__all__ = [
    "LENGTH_PENALTIES",
    "RULES",
    "Alternatives",
    "Beam",
    "Chooser",
    "Continuous",
    "Decoder",
    "Found",
    "Greedy",
    "Hypothesis",
    "Likeliest",
    "Piece",
    "Pieces",
    "Policy",
    "Reason",
    "Request",
    "Row",
    "Rule",
    "Sampling",
    "Search",
    "Step",
    "Stream",
    "Writer",
    "Written",
    "collected",
    "completed",
    "decode",
    "generate",
    "in_chunks",
    "search",
    "stream_text",
    "streams",
]
