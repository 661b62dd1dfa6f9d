"""The data sets themselves, for those who have them: their counts are published."""

import os
from pathlib import Path

import pytest

from regard.data import (
    ContinuousBatches,
    prepare_corpus,
    source_at,
    split_held_out,
    train_tokeniser,
)

ROOT = os.environ.get("REGARD_DATA", "")
needs_data = pytest.mark.skipif(
    not ROOT, reason="REGARD_DATA names no folder with the data sets ptb and tinyshakespeare"
)


@needs_data
def test_ptb_has_the_published_number_of_tokens(tmp_path: Path) -> None:
    sources = {
        split: source_at(f"{ROOT}/ptb/ptb.{split}.txt.gz") for split in ("train", "valid", "test")
    }
    words = train_tokeniser("word", (record.text for record in sources["train"].records()))
    # 10,000 words with <unk> and <eos>, and the two of ours that PTB does not use.
    assert words.vocabulary == 10_000 + 2
    counts = {"train": 929_589, "valid": 73_760, "test": 82_430}
    for split, source in sources.items():
        ids = prepare_corpus([source], words, folder=tmp_path).ids
        assert len(ids) == counts[split]
        assert words.unk not in words.encode("no it was n't black monday")
    assert len(ContinuousBatches(ids, batch=10, window=35)) == -(-(82_430 // 10 - 1) // 35)


@needs_data
def test_tiny_shakespeare_splits_as_published(tmp_path: Path) -> None:
    source = source_at(f"{ROOT}/tinyshakespeare/input.txt.gz")
    letters = train_tokeniser("char", (record.text for record in source.records()))
    assert letters.vocabulary == 65 + 4
    training, validation = (
        prepare_corpus([source], letters, part=part, folder=tmp_path) for part in split_held_out()
    )
    assert (len(training.ids), len(validation.ids)) == (1_003_854, 111_540)
    assert letters.decode(training.ids[:14].long()) == "First Citizen:"
    assert letters.decode(validation.ids[-8:].long()) == "waking.\n"
