"""Word vectors side by side: ours and gensim's, words a second on the same text and threads.

    python -m venv GENSIM; GENSIM/bin/pip install gensim
    python -m bench.vectors --gensim GENSIM/bin/python                 (about five minutes)
    python -m bench.vectors --gensim GENSIM/bin/python --only skip_gram --words 500000

gensim lives in an environment of its own and is asked by a process of its own. What is compared is
training alone, in seconds that each measures itself: vocabularies are counted before. Both have
vectors of 100, windows of 5, 5 noise words, subsampling at 1e-3 and words that occur five times.
Above 1 means ours is faster. `agreement` is Spearman's correlation, over all pairs of the 1,000
most frequent words, of how alike words are in these vectors and in reference vectors (--reference).
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import torch

from bench.measure import machine, show
from regard.data import source_at
from regard.data.text.vectors import Vectors, read_vectors
from regard.runs.recipe import parse_recipe
from regard.runs.run import create
from regard.tasks.word_vectors import WordVectors, agreement

KINDS = {"skip_gram": "sg=1", "cbow": "sg=0"}
"""Our models, and what gensim calls them."""

RECIPE = """
task = "word_vectors"
[about]
title = "Bench"
paper = "none"
minutes = 1
[data]
train = "text.txt"
validation = 0.001
[model]
kind = "KIND"
[train]
epochs = EPOCHS
optimiser = { name = "adagrad", lr = 0.05 }
schedule = { name = "linear" }
log_every = 100000
"""

GENSIM = """
import sys, time
from gensim.models import Word2Vec
sentences = [line.split() for line in open("text.txt", encoding="utf-8")]
model = Word2Vec(vector_size=100, window=5, min_count=5, negative=5, sample=1e-3, SETTING,
                 workers=THREADS, seed=1)
model.build_vocab(sentences)
start = time.perf_counter()
model.train(sentences, total_examples=len(sentences), epochs=EPOCHS)
print(time.perf_counter() - start)
model.wv.save_word2vec_format("gensim.bin", binary=True)
"""


def text_into(path: Path, source: Path, field: int | None, words: int) -> int:
    """So many words of a text, a record a line; how many they are."""
    whole = source_at(str(source), field)
    text = type(whole)(path=whole.path, form=whole.form, field=field, words="plain", lowercase=True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for record in text.records():
            line = record.text.replace("\n", " ")
            file.write(line + "\n")
            count += len(line.split())
            if count >= words:
                break
    return count


def ours(kind: str, folder: Path, turn: int, epochs: int) -> tuple[float, Vectors]:
    """The seconds of our training, and its vectors."""
    recipe = parse_recipe(RECIPE.replace("KIND", kind).replace("EPOCHS", str(epochs)), "bench")
    run = create(recipe, folder / f"{kind}-{turn}", folder, "cpu")
    assert isinstance(run.task, WordVectors)
    seconds = run.train().seconds
    return seconds, run.task.vectors(run.model)


def gensims(kind: str, folder: Path, python: str, epochs: int) -> tuple[float, Vectors]:
    """The seconds of gensim's training, and its vectors."""
    program = GENSIM.replace("SETTING", KINDS[kind]).replace("EPOCHS", str(epochs))
    program = program.replace("THREADS", str(torch.get_num_threads()))
    done = subprocess.run(
        [python, "-W", "ignore", "-c", program],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout), read_vectors(folder / "gensim.bin")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gensim", required=True, help="a Python that has gensim")
    parser.add_argument("--text", type=Path, help="else IMDb's training reviews in REGARD_DATA")
    parser.add_argument("--field", type=int, help="the column of a TSV that holds the text")
    parser.add_argument("--reference", type=Path, help="vectors to compare with, such as GloVe's")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    data = Path(os.environ.get("REGARD_DATA", "."))
    source = given.text or data / "imdb" / "imdb.train.tsv.xz"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["REGARD_CACHE"] = str(folder / "cache")
        field = given.field if given.text else 4
        words = text_into(folder / "text.txt", source, field, given.words) * given.epochs
        rows = []
        for kind in [given.only] if given.only else KINDS:
            spent: dict[str, list[float]] = {"ours": [], "gensim": []}
            for turn in range(given.repeats):
                mine, vectors = ours(kind, folder, turn, given.epochs)
                other, theirs = gensims(kind, folder, given.gensim, given.epochs)
                spent["ours"].append(mine)
                spent["gensim"].append(other)
            pairs = zip(spent["gensim"], spent["ours"], strict=True)
            ratio = statistics.median(other / mine for other, mine in pairs)
            speeds = [f"{words / statistics.median(each):,.0f}" for each in spent.values()]
            rows.append([kind, *speeds, f"{ratio:.2f}", *compared(given, folder, vectors, theirs)])
    header = ["model", "ours, words/s", "gensim, words/s", "ratio", "agreement", "gensim's"]
    show(f"Word vectors, {words:,} words, {machine()}", header, rows)


def compared(given: argparse.Namespace, folder: Path, *tables: Vectors) -> list[str]:
    """The agreement of each table with the reference vectors, if there are any."""
    if given.reference is None:
        return ["" for _ in tables]
    counts = Counter((folder / "text.txt").read_text(encoding="utf-8").split())
    frequent = [word for word, _ in counts.most_common(3000)]
    reference = read_vectors(given.reference, set(frequent))
    return [f"{agreement(each, reference, frequent):.3f}" for each in tables]


if __name__ == "__main__":
    main()
