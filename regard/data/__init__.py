"""Text to batches: reading files, tokenising, caching corpora, batching.

Nothing here prints or uses the network. A text is never completely in memory; sentence pairs are,
as token ids.
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
    "EMPTY_ROW",
    "EOS",
    "GENERATORS",
    "IGNORE",
    "MAX_LINE_CHARACTERS",
    "PAD",
    "SPECIALS",
    "TEXT_FORMS",
    "TOKENISERS",
    "UNK",
    "WHOLE_TEXT",
    "BucketBatches",
    "ContinuousBatches",
    "Corpus",
    "EncodedPairs",
    "PairCounts",
    "PairTokenisers",
    "ParallelText",
    "Record",
    "SentencePair",
    "Shard",
    "StridedBatches",
    "TextPart",
    "TextSource",
    "Tokeniser",
    "WindowBatches",
    "encode_pairs",
    "load_tokeniser",
    "next_token_collate",
    "pad_rows",
    "prepare_corpus",
    "read_jsonl",
    "read_lines",
    "read_tsv",
    "source_at",
    "split_held_out",
    "train_tokeniser",
]
