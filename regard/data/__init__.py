"""Text to batches: read it (text), number it (tokenise), keep it (corpus), deal it out (batch).

Pairs of sentences have their own way (parallel), and some are made up (synthetic). Nothing here
prints or reaches the network. A text is never held whole in memory; pairs are, as numbers.
"""

from regard.data.batch import IGNORE, ContinuousBatches, Shard, StridedBatches, WindowBatches
from regard.data.bucket import EMPTY_ROW, BucketBatches, next_token_collate, pad_rows
from regard.data.text.corpus import WHOLE_TEXT, Corpus, TextPart, prepare_corpus, split_held_out
from regard.data.text.files import MAX_LINE_CHARACTERS, Record, read_jsonl, read_lines, read_tsv
from regard.data.text.parallel import (
    EncodedPairs,
    PairCounts,
    PairTokenisers,
    ParallelText,
    SentencePair,
    encode_pairs,
)
from regard.data.text.pipeline import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.text.source import TEXT_FORMS, TextSource, source_at
from regard.data.text.synthetic import GENERATORS
from regard.data.text.tokeniser import TOKENISERS, Tokeniser, load_tokeniser, train_tokeniser

__all__ = [
    "BOS",
    "EOS",
    "TEXT_FORMS",
    "GENERATORS",
    "IGNORE",
    "MAX_LINE_CHARACTERS",
    "EMPTY_ROW",
    "PAD",
    "SPECIALS",
    "TOKENISERS",
    "UNK",
    "WHOLE_TEXT",
    "BucketBatches",
    "ContinuousBatches",
    "Corpus",
    "EncodedPairs",
    "PairCounts",
    "PairTokenisers",
    "SentencePair",
    "ParallelText",
    "TextPart",
    "Record",
    "Shard",
    "TextSource",
    "StridedBatches",
    "Tokeniser",
    "WindowBatches",
    "encode_pairs",
    "split_held_out",
    "read_jsonl",
    "read_lines",
    "load_tokeniser",
    "next_token_collate",
    "pad_rows",
    "prepare_corpus",
    "source_at",
    "train_tokeniser",
    "read_tsv",
]
