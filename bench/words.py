"""Taggers and classifiers: the CRF against pytorch-crf, training speed, and padding.

    python -m bench.words              (a few minutes on a quiet machine)
    python -m bench.words --quick      (fewer repeats and texts)

A pass is forward and backward. Texts are drawn with lengths like those of the data they stand for:
sentences of news for the tagger, reviews in sentences for the hierarchical network. Padding is what
share of the positions that were computed held no word; the aim is below 15 per cent. The second
level of a hierarchical network reads sentences, one for seventeen words, and pads more. The package
fasttext is measured only if it can be imported; both then learn from the same file on one thread.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from bench.measure import Work, machine, paired_ratio, show
from regard.core.allocation import keep_freed_memory
from regard.core.protocols import Batch
from regard.data.bucket import BucketBatches
from regard.layers.crf import CRF
from regard.layers.sentences import SentenceCut
from regard.models.text.attention_pool import AttentionPooling
from regard.models.text.bag_of_ngrams import BagOfNgrams
from regard.models.text.bilstm_crf import BiLSTMCRF
from regard.models.text.han import HAN
from regard.outputs.output import ModelOutput
from regard.tasks.classification_data import Examples
from regard.tasks.classify import Classification
from regard.train.optimise import Adagrad, build_optimiser

WORDS = 10_000
CRF_SIZES = {"17 tags, CoNLL-2003": (32, 25, 17), "45 tags, CoNLL-2000": (32, 25, 45)}


def crf_passes(rows: int, words: int, tags: int) -> tuple[Work, Work]:
    """A training pass of our field and of theirs, with the same numbers."""
    ours, theirs = CRF(tags), import_module("torchcrf").CRF(tags, batch_first=True)
    lengths = torch.randint(int(0.85 * words), words + 1, (rows,))
    mask = torch.arange(words) < lengths[:, None]
    scores = torch.randn(rows, words, tags, requires_grad=True)
    targets = torch.randint(0, tags, (rows, words))
    return (
        lambda: ours(scores, lengths).nll(targets).backward(),
        lambda: (-theirs(scores, targets, mask)).backward(),
    )


def bench_crf(repeats: int) -> None:
    """Sentences per second in training, and how many times as many as pytorch-crf's."""
    rows = []
    for name, (count, words, tags) in CRF_SIZES.items():
        ours, theirs = crf_passes(count, words, tags)
        ratio = paired_ratio(ours, theirs, repeats)
        began = time.perf_counter()
        for _ in range(repeats):
            ours()
        each = (time.perf_counter() - began) / repeats
        rows.append((name, f"{count / each:,.0f}", f"{ratio:.2f}"))
    show("CRF, loss and gradient", ("size", "sentences/s", "times pytorch-crf"), rows)


def drawn_lengths(count: int, middle: float, spread: float, most: int) -> list[int]:
    """Lengths of texts: log-normal, at least one word."""
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(count, generator=generator) * spread).exp() * middle
    lengths: list[int] = drawn.round().clamp(1, most).long().tolist()
    return lengths


def sentence_batches(count: int) -> BucketBatches:
    """Sentences of news: 14 words or so, some far longer."""
    lengths = drawn_lengths(count, 12.0, 0.65, 110)
    sizes = torch.tensor(lengths)

    def gather(numbers: torch.Tensor) -> Batch:
        held = sizes[numbers]
        real = torch.arange(int(held.max())) < held[:, None]
        tokens = torch.where(real, torch.randint(4, WORDS, real.shape), 0)
        characters = torch.randint(1, 257, (*real.shape, 10)) * real[..., None]
        return {
            "tokens": tokens,
            "lengths": held,
            "characters": characters,
            "tags": torch.randint(0, 17, real.shape),
        }

    return BucketBatches(lengths, gather, seed=0, batch=32)


def document_batches(count: int) -> BucketBatches:
    """Reviews: 190 words or so in sentences of 17."""
    lengths = drawn_lengths(count, 190.0, 0.55, 500)
    sizes = torch.tensor(lengths)

    def gather(numbers: torch.Tensor) -> Batch:
        held = sizes[numbers]
        real = torch.arange(int(held.max())) < held[:, None]
        ends = (torch.rand(real.shape) < 1 / 17).long()
        ends[:, 0] = 0
        return {
            "tokens": torch.where(real, torch.randint(4, WORDS, real.shape), 0),
            "lengths": held,
            "parts": torch.where(real, ends.cumsum(1), -1),
            "classes": torch.randint(0, 2, (len(held),)),
        }

    return BucketBatches(lengths, gather, seed=0, batch=32)


def some(batches: BucketBatches, count: int) -> Iterator[Batch]:
    """The first batches of an epoch."""
    for index in range(min(count, len(batches))):
        yield batches.batch(0, index)


def words_per_second(model: nn.Module, held: list[Batch]) -> float:
    """Of training: loss, gradient and an update of Adam."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    words = began = 0.0
    for number, batch in enumerate(held):
        if number == 1:
            words, began = 0.0, time.perf_counter()  # the first one warms up
        ModelOutput.of(model, batch).loss(batch).backward()
        optimiser.step()
        optimiser.zero_grad()
        words += float(batch["lengths"].sum())
    return words / (time.perf_counter() - began)


def bench_training(batches: int) -> None:
    """Words per second in training, and the padding."""
    tagger = BiLSTMCRF(BiLSTMCRF.Config(width=100, hidden=128), WORDS, 17)
    han = HAN(HAN.Config(width=100, hidden=50), WORDS, 2)
    pool = AttentionPooling(AttentionPooling.Config(width=100, hidden=128), WORDS, 2)
    sentences, documents = sentence_batches(4000), document_batches(2000)
    reviews = list(some(documents, batches))
    cuts = [SentenceCut.of(batch["parts"]).padding_fraction() for batch in reviews]
    within = sum(cuts) / len(cuts)
    counts = [batch["parts"].amax(1) + 1 for batch in reviews]  # sentences of each document
    above = 1 - sum(int(each.sum()) for each in counts) / sum(
        len(each) * int(each.max()) for each in counts
    )
    rows = []
    for name, model, held, waste in (
        (
            "BiLSTM-CRF with characters",
            tagger,
            list(some(sentences, 4 * batches)),
            sentences.padding_fraction(0),
        ),
        ("HAN, rows of documents", han, reviews, documents.padding_fraction(0)),
        ("BiLSTM with attention", pool, reviews, documents.padding_fraction(0)),
    ):
        speed = words_per_second(model.train(), held)
        rows.append((name, f"{speed:,.0f}", f"{waste:.1%}"))
    rows.append(("HAN, words of sentences, in groups", "", f"{within:.1%}"))
    rows.append(("HAN, sentences of documents", "", f"{above:.1%}"))
    show("Training", ("model", "words/s", "padding"), rows)


def labelled_file(folder: Path, count: int) -> Path:
    """Texts of two classes that differ in a few words, as fastText reads them."""
    lengths = drawn_lengths(count, 60.0, 0.5, 300)
    torch.manual_seed(0)
    with (folder / "texts.txt").open("w") as file:
        for number, length in enumerate(lengths):
            drawn = (torch.rand(length) ** 3 * WORDS).long().tolist()
            marks = f" mark{number % 2}" if number % 3 else ""
            file.write(f"__label__{number % 2} {' '.join(f'w{each}' for each in drawn)}{marks}\n")
    return folder / "texts.txt"


def ours_on(path: Path) -> float:
    """Words per second of a bag of bigrams, one epoch, reading and updates included."""
    began = time.perf_counter()
    data = Examples(train=path.name, validation=path.name)
    task = Classification.open(data, path.parent)
    model = BagOfNgrams(BagOfNgrams.Config(width=10), **task.sizes)
    optimiser = build_optimiser(Adagrad(lr=0.1), model)
    batches, words = task.batches(), 0
    for index in range(len(batches)):
        batch = batches.batch(0, index)
        loss = task.loss(model, batch, None)
        (loss.total / loss.items).backward()
        optimiser.step()
        optimiser.zero_grad()
        words += int(batch["lengths"].sum())
    return words / (time.perf_counter() - began)


def theirs_on(path: Path, words: int) -> float | None:
    """The same of the package fasttext on one thread; None if it is not here."""
    if importlib.util.find_spec("fasttext") is None:
        return None
    package = import_module("fasttext")
    began = time.perf_counter()
    package.train_supervised(str(path), epoch=1, wordNgrams=2, dim=10, lr=0.25, thread=1, verbose=0)
    return words / (time.perf_counter() - began)


def bench_bag(count: int) -> None:
    """A bag of bigrams against fastText."""
    with tempfile.TemporaryDirectory() as folder:
        path = labelled_file(Path(folder), count)
        words = sum(len(line.split()) - 1 for line in path.read_text().splitlines())
        ours, theirs = ours_on(path), theirs_on(path, words)
    told = "not installed" if theirs is None else f"{theirs:,.0f}"
    ratio = "" if theirs is None else f"{ours / theirs:.2f}"
    show(
        "Bag of bigrams, one epoch from the file on",
        ("ours words/s", "fasttext words/s", "ratio"),
        [(f"{ours:,.0f}", told, ratio)],
    )


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and texts")
    quick = parser.parse_args().quick
    keep_freed_memory()
    torch.manual_seed(0)
    print(machine())
    bench_crf(5 if quick else 40)
    bench_training(3 if quick else 30)
    bench_bag(1000 if quick else 20_000)


if __name__ == "__main__":
    main()
