"""Text to batches: read it (text), number it (tokenise), keep it (corpus), deal it out (batch).

Pairs of sentences have their own way (parallel), and some are made up (synthetic). Nothing here
prints or reaches the network. A text is never held whole in memory; pairs are, as numbers.
"""

from regard.data.batch import IGNORE, ContinuousBatches, Shard, StridedBatches, WindowBatches
from regard.data.bucket import NOBODY, BucketBatches, next_tokens, padded
from regard.data.text.corpus import WHOLE, Corpus, Part, held_out, prepare
from regard.data.text.files import LONGEST, Record, jsonl, lines, tsv
from regard.data.text.parallel import EncodedPairs, Kept, Numbering, Pair, ParallelText, encoded
from regard.data.text.pipeline import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.text.source import FORMS, Source, source_at
from regard.data.text.synthetic import GENERATORS
from regard.data.text.tokeniser import TOKENISERS, Tokeniser, load, train

__all__ = [
    "BOS",
    "EOS",
    "FORMS",
    "GENERATORS",
    "IGNORE",
    "LONGEST",
    "NOBODY",
    "PAD",
    "SPECIALS",
    "TOKENISERS",
    "UNK",
    "WHOLE",
    "BucketBatches",
    "ContinuousBatches",
    "Corpus",
    "EncodedPairs",
    "Kept",
    "Numbering",
    "Pair",
    "ParallelText",
    "Part",
    "Record",
    "Shard",
    "Source",
    "StridedBatches",
    "Tokeniser",
    "WindowBatches",
    "encoded",
    "held_out",
    "jsonl",
    "lines",
    "load",
    "next_tokens",
    "padded",
    "prepare",
    "source_at",
    "train",
    "tsv",
]
