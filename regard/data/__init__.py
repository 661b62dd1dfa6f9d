"""Text to batches: read it (text), number it (tokenise), keep it (corpus), deal it out (batch).

Nothing here prints, reaches the network or holds a whole text in memory.
"""

from regard.data.batch import IGNORE, ContinuousBatches, Shard, StridedBatches, WindowBatches
from regard.data.bucket import NOBODY, BucketBatches, next_tokens, padded
from regard.data.corpus import WHOLE, Corpus, Part, held_out, prepare
from regard.data.pipeline import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.text import FORMS, LONGEST, Record, Source, jsonl, lines, source_at, tsv
from regard.data.tokenise import TOKENISERS, Tokeniser, load, train

__all__ = [
    "BOS",
    "EOS",
    "FORMS",
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
    "Part",
    "Record",
    "Shard",
    "Source",
    "StridedBatches",
    "Tokeniser",
    "WindowBatches",
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
