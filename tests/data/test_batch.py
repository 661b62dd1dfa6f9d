"""Batches: laws over all kinds, and the protocol of each."""

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.data.batch import (
    IGNORE,
    ContinuousBatches,
    Shard,
    ShardableBatches,
    StridedBatches,
    WindowBatches,
    random_integers,
    random_permutation,
)
from regard.data.bucket import BucketBatches, bucket_widths, next_token_collate
from regard.data.text.corpus import prepare_corpus
from regard.data.text.source import TextSource
from regard.data.text.tokeniser import train_tokeniser

IDS = torch.arange(1000, 1603)
LENGTHS = [1 + (number * 37) % 61 for number in range(150)]
SENTENCES = [
    [1000 * number + place for place in range(length + 1)] for number, length in enumerate(LENGTHS)
]

KINDS: dict[str, Callable[[int], ShardableBatches]] = {
    "continuous": lambda seed: ContinuousBatches(IDS, batch=12, window=7),
    "window": lambda seed: WindowBatches(IDS, batch=12, window=7, seed=seed),
    "strided": lambda seed: StridedBatches(IDS, batch=12, window=7),
    "bucket": lambda seed: BucketBatches(
        LENGTHS, next_token_collate(SENTENCES, 0), batch=12, seed=seed
    ),
    "bucket by tokens": lambda seed: BucketBatches(
        LENGTHS, next_token_collate(SENTENCES, 0), tokens_per_batch=256, seed=seed
    ),
}
RANDOM = ["window", "bucket", "bucket by tokens"]


def epoch_of(batches: ShardableBatches | Shard, epoch: int) -> list[dict[str, Tensor]]:
    return [dict(batches.batch(epoch, index)) for index in range(len(batches))]


def alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_tokens_and_targets_one_later(kind: str) -> None:
    for batch in epoch_of(KINDS[kind](0), 0):
        assert batch["tokens"].dtype == batch["targets"].dtype == torch.int64
        assert batch["tokens"].shape == batch["targets"].shape
        counted = batch["targets"] != IGNORE
        assert bool(counted.any())
        assert torch.equal(batch["targets"][counted], batch["tokens"][counted] + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_any_batch_can_be_asked_for_at_any_time(kind: str) -> None:
    """A run that goes on in the middle of its third epoch sees what it would have seen."""
    expected = [epoch_of(KINDS[kind](5), epoch) for epoch in range(3)]
    fresh = KINDS[kind](5)
    for epoch in (2, 0, 1):
        for index in reversed(range(len(fresh))):
            assert alike(dict(fresh.batch(epoch, index)), expected[epoch][index])


@pytest.mark.parametrize("kind", RANDOM)
def test_epochs_and_seeds_differ(kind: str) -> None:
    one = epoch_of(KINDS[kind](0), 0)
    for other in (epoch_of(KINDS[kind](0), 1), epoch_of(KINDS[kind](1), 0)):
        assert len(other) == len(one)
        assert sum(alike(a, b) for a, b in zip(one, other, strict=True)) < len(one) / 2


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(RANDOM)))
def test_epochs_of_what_is_read_in_order_are_the_same(kind: str) -> None:
    assert all(map(alike, epoch_of(KINDS[kind](0), 0), epoch_of(KINDS[kind](1), 3)))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_shards_together_are_the_batch(kind: str, world: int) -> None:
    whole = KINDS[kind](3)
    shards = [whole.shard(rank, world) for rank in range(world)]
    assert {len(shard) for shard in shards} == {len(whole)}
    for epoch in (0, 1):
        for index, batch in enumerate(epoch_of(whole, epoch)):
            parts = [shard.batch(epoch, index) for shard in shards]
            for name, rows in batch.items():
                assert len({part[name].shape for part in parts}) == 1
                dealt = torch.stack([part[name] for part in parts], dim=1).flatten(0, 1)
                assert torch.equal(dealt[: len(rows)], rows)
                # What a batch lacks to come out even counts for nothing.
                assert name != "targets" or bool((dealt[len(rows) :] == IGNORE).all())
            assert len(dealt) - len(rows) < world


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bucket by tokens"}))
def test_a_batch_that_cannot_be_dealt_out_evenly_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match="batch=12 is not divisible by world=5"):
        KINDS[kind](0).shard(0, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_does_not_exist_is_refused(kind: str) -> None:
    for rank in (-1, 2):
        with pytest.raises(UserError, match=f"rank={rank} is not among world=2"):
            KINDS[kind](0).shard(rank, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_data_are_known_again_and_other_data_are_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = KINDS[kind](0).digest
    assert KINDS[kind](0).digest == digest
    assert KINDS[kind](0).shard(0, 2).digest == KINDS[kind](0).shard(1, 2).digest
    monkeypatch.setitem(globals(), "IDS", torch.cat([IDS[:50], IDS[50:51] + 1, IDS[51:]]))
    changed = [[each + 1 for each in sentence] for sentence in SENTENCES]
    monkeypatch.setitem(globals(), "SENTENCES", changed)
    assert KINDS[kind](0).digest != digest


class Sounds(ShardableBatches):
    """One batch of floating-point rows, with the strides of a column that was cut out."""

    def __init__(self, samples: torch.Tensor) -> None:
        super().__init__(rows=2)
        self.samples = samples

    def __len__(self) -> int:
        return 1

    def batch(self, epoch: int, index: int) -> Batch:
        return {"samples": self.samples}


def test_one_changed_float_changes_the_digest() -> None:
    samples = torch.rand(4, 2)[:, :1]
    changed = samples.clone()
    changed[3, 0] = torch.nextafter(changed[3, 0], torch.tensor(2.0))
    assert Sounds(samples).digest == Sounds(samples.clone()).digest
    assert Sounds(changed).digest != Sounds(samples).digest
    assert Sounds(samples[:1].t()).digest  # a row of one, with the stride of a longer one


@pytest.mark.parametrize("kind", KINDS)
def test_only_continuous_batches_go_on_from_one_another(kind: str) -> None:
    for batches in (KINDS[kind](0), KINDS[kind](0).shard(1, 2)):
        assert batches.continues_previous == (kind == "continuous")
        assert batches.resets_carry(0)
        assert batches.resets_carry(1) != batches.continues_previous


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_outside_the_epoch_is_refused(kind: str) -> None:
    batches = KINDS[kind](0)
    for index in (-1, len(batches)):
        with pytest.raises(UserError, match=f"index={index} is outside an epoch"):
            batches.batch(0, index)


@given(length=st.integers(2, 200), batch=st.integers(1, 9), window=st.integers(1, 30))
def test_streams_are_consecutive(length: int, batch: int, window: int) -> None:
    """As batchify and get_batch of pytorch/examples have it, with rows for its columns."""
    if length // batch < 2:
        with pytest.raises(UserError, match=f"{length} tokens are too few for batch={batch}"):
            ContinuousBatches(torch.arange(length), batch, window)
        return
    read = epoch_of(ContinuousBatches(torch.arange(length), batch, window), 0)
    columns = torch.arange(length)[: length // batch * batch].view(batch, -1).t()
    steps = range(0, len(columns) - 1, window)
    assert len(read) == len(steps)
    for first, part in zip(steps, read, strict=True):
        size = min(window, len(columns) - 1 - first)
        assert torch.equal(part["tokens"].t(), columns[first : first + size])
        assert torch.equal(part["targets"].t(), columns[first + 1 : first + 1 + size])


@given(length=st.integers(2, 200), batch=st.integers(1, 9), window=st.integers(1, 30))
def test_evaluation_sees_every_target_once_and_in_order(
    length: int, batch: int, window: int
) -> None:
    read = epoch_of(StridedBatches(torch.arange(length), batch, window, pad=777), 0)
    assert {part["tokens"].shape for part in read} == {(batch, window)}
    tokens = torch.cat([part["tokens"].flatten() for part in read])
    targets = torch.cat([part["targets"].flatten() for part in read])
    assert targets[targets != IGNORE].tolist() == list(range(1, length))
    assert tokens[targets != IGNORE].tolist() == list(range(length - 1))
    assert set(tokens[targets == IGNORE].tolist()) <= {777}
    assert len(targets) - (length - 1) < batch * window


def test_windows_come_from_everywhere() -> None:
    batches = WindowBatches(torch.arange(20), batch=50, window=5, seed=0, steps=20)
    assert len(batches) == 20
    firsts = torch.cat([part["tokens"][:, 0] for part in epoch_of(batches, 0)])
    # Fifteen places can begin a window that still has a target for its last token.
    counts = torch.bincount(firsts, minlength=15)
    assert len(counts) == 15
    # 1000 draws over 15 places: 66.7 each, standard deviation 7.9.
    assert int((counts - 1000 / 15).abs().max()) < 4 * 7.9


def test_an_epoch_of_windows_is_about_the_text_unless_steps_are_given() -> None:
    assert len(WindowBatches(IDS, batch=12, window=7, seed=0)) == (len(IDS) - 1) // 84
    assert len(WindowBatches(IDS[:9], batch=12, window=7, seed=0)) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowBatches(IDS[:7], 2, 7, seed=0), "7 tokens are too few for window=7"),
        (lambda: WindowBatches(IDS, 2, 7, seed=0, steps=0), "steps=0 must be"),
        (lambda: WindowBatches(IDS, 0, 7, seed=0), "batch=0 must be"),
        (lambda: ContinuousBatches(IDS, 2, 0), "window=0 must be"),
        (lambda: StridedBatches(IDS[:1], 2, 7), "1 tokens have nothing to predict"),
        (lambda: StridedBatches(IDS, -1, 7), "batch=-1 must be"),
    ],
)
def test_sizes_that_make_no_batches_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_random_numbers_are_the_same_everywhere() -> None:
    """From the definition of SHAKE-128, so that a run can be repeated on any machine."""
    stream = hashlib.shake_128(b"1,2").digest(16)
    words = [int.from_bytes(stream[at : at + 8], "little") % 2**63 for at in (0, 8)]
    assert random_integers(2, 1, 2).tolist() == words
    assert random_integers(0, 1).tolist() == []
    assert sorted(random_permutation(100, 3).tolist()) == list(range(100))
    assert random_integers(1, 1, 23).tolist() != random_integers(1, 12, 3).tolist()


def test_batches_read_from_a_corpus_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 40)
    tokeniser = train_tokeniser("char", ["to be or not to be"])
    ids = prepare_corpus([TextSource(path=str(tmp_path / "a.txt"))], tokeniser, folder=tmp_path).ids
    assert ids.dtype == torch.uint16
    for make in (
        lambda ids: ContinuousBatches(ids, 4, 9),
        lambda ids: StridedBatches(ids, 4, 9),
        lambda ids: WindowBatches(ids, 4, 9, seed=0),
    ):
        assert all(map(alike, epoch_of(make(ids), 0), epoch_of(make(ids.long()), 0)))


@pytest.mark.parametrize("kind", ["bucket", "bucket by tokens"])
def test_every_sentence_comes_once_an_epoch(kind: str) -> None:
    batches = KINDS[kind](0)
    assert isinstance(batches, BucketBatches)
    for epoch in (0, 1):
        seen = [batches.numbers(epoch, index).tolist() for index in range(len(batches))]
        assert sorted(number for each in seen for number in each) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("kind", ["bucket", "bucket by tokens"])
def test_sentences_have_other_neighbours_in_another_epoch(kind: str) -> None:
    batches = KINDS[kind](0)
    assert isinstance(batches, BucketBatches)
    one, other = (
        {frozenset(batches.numbers(epoch, index).tolist()) for index in range(len(batches))}
        for epoch in (0, 1)
    )
    assert len(one & other) < len(one) / 2


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=80),
    tokens=st.integers(90, 400),
)
def test_batches_by_tokens_keep_to_their_size(lengths: list[int], tokens: int) -> None:
    rows = [[0] * (length + 1) for length in lengths]
    batches = BucketBatches(lengths, next_token_collate(rows, 0), tokens_per_batch=tokens, seed=0)
    sizes = [part["tokens"].numel() for part in epoch_of(batches, 0)]
    assert max(sizes) <= tokens
    assert 1 - sum(lengths) / sum(sizes) == pytest.approx(batches.padding_fraction(0))


def test_buckets_waste_little() -> None:
    lengths = [8 + (number * 7919) % 60 for number in range(5000)]
    rows = [[0] * (length + 1) for length in lengths]
    bucketed = BucketBatches(lengths, next_token_collate(rows, 0), batch=32, seed=0)
    # Widths grow by a tenth or by one, so at most a tenth of a row is padding, and half on average.
    assert 0.0 < bucketed.padding_fraction(0) < 0.08
    shuffled_waste = 1 - sum(lengths) / (max(lengths) * len(lengths))
    assert shuffled_waste > 0.4


@given(longest=st.integers(1, 2000))
def test_buckets_go_up_to_the_longest_sentence(longest: int) -> None:
    widths = bucket_widths(longest)
    assert widths[-1] == longest
    assert widths == sorted(set(widths))
    assert all(b <= max(a + 1, a * 1.1) for a, b in pairwise(widths))


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {"batch": 2}, "no sentences"),
        ([3, 0, 4], {"batch": 2}, "the length of sentence 1=0 must be"),
        ([3], {}, "either batch or tokens_per_batch"),
        ([3], {"batch": 2, "tokens_per_batch": 2}, "either batch or tokens_per_batch"),
        ([3], {"batch": 0}, "batch=0 must be"),
        ([3, 9], {"tokens_per_batch": 8}, "less than the longest sentence, 9 tokens"),
    ],
)
def test_sentences_that_make_no_batches_are_refused(
    lengths: list[int], options: dict[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        BucketBatches(lengths, next_token_collate([], 0), seed=0, **options)
