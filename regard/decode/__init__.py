"""Generation and beam search with any model that predicts token by token (core.protocols.Stepper).

`generate` returns complete texts, `Stream` one token per row at a time and `stream_text` text as it
is generated; texts can join and leave a `ContinuousBatch` at any time. A policy chooses the tokens:
Greedy or Sampling, whose settings are in RULES. `search` runs a beam search on one batch of
sentences with the settings of a `Beam`; `decode` does so for any number of sentences,
`decode_unordered` yields them as they finish, and `decode_in_chunks` reads from an iterator.
"""

from regard.decode.beam import LENGTH_PENALTIES, Beam
from regard.decode.beam_search import BeamSearch
from regard.decode.continuous import ContinuousBatch, Writer
from regard.decode.generate import GeneratedText, collect_texts, generate, open_streams
from regard.decode.greedy_search import GreedySearch
from regard.decode.hypothesis import Hypothesis, SentenceHypotheses
from regard.decode.policy import Greedy, Policy, SampleId, Sampling, TokenChooser
from regard.decode.rules import RULES, SamplingRule
from regard.decode.sentences import decode, decode_in_chunks, decode_unordered, search
from regard.decode.stream import Alternatives, GenerationRequest, Reason, Stream, StreamStep
from regard.decode.text_stream import IncrementalText, TextPiece, TokenDecoder, stream_text

__all__ = [
    "LENGTH_PENALTIES",
    "RULES",
    "Alternatives",
    "Beam",
    "BeamSearch",
    "ContinuousBatch",
    "GeneratedText",
    "GenerationRequest",
    "Greedy",
    "GreedySearch",
    "Hypothesis",
    "IncrementalText",
    "Policy",
    "Reason",
    "SampleId",
    "Sampling",
    "SamplingRule",
    "SentenceHypotheses",
    "Stream",
    "StreamStep",
    "TextPiece",
    "TokenChooser",
    "TokenDecoder",
    "Writer",
    "collect_texts",
    "decode",
    "decode_in_chunks",
    "decode_unordered",
    "generate",
    "open_streams",
    "search",
    "stream_text",
]
