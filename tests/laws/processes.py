"""Tiny trainings of every task: `python -m tests.laws.processes DATA RUNS`, in two processes.

Each is trained to its end, and once more from its second checkpoint. At every checkpoint the
processes compare their weights and buffers.
"""

import json
import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from regard.runs.recipe import Recipe, parse_recipe
from regard.runs.run import create, open_run
from regard.train.loop import Loop
from regard.train.parallel.world import process_group
from regard.train.weights import named_weights

UPDATES, RESUMED = 4, 2

RECIPE = """
task = "{task}"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
{data}
[model]
{model}
[train]
updates = 4
optimiser = {{ name = "sgd", lr = 0.5, momentum = 0.9 }}
clip = 1.0
evaluate_every = 100
save_every = 1
log_every = 1
keep = 10
"""

ENCODER = """
[model.encoder]
width = 8
heads = 2
layers = 1
hidden = 8
context = 32
dropout = 0.0
attention_dropout = 0.0
"""
DATES = """
generate = { name = "dates", train = 9, validation = 2, test = 2, seed = 1 }
tokeniser = "char"
batch = 4
scores = []
"""
TEXT = 'train = "text.txt"\nbatch = 4\nwindow = 25\nevaluate_batch = 2\n'
REVIEWS = 'train = "reviews.txt"\nvalidation = "reviews.txt"\nbatch = 4\n'
HARD = 'kind = "hard_attention"\nwidth = 4\nhidden = 6\nreadout = "tanh"\n'

CASES: dict[str, tuple[str, str, str]] = {
    "language_model": ("language_model", TEXT, 'kind = "rnn_lm"\nwidth = 6'),
    "awd_lstm": (
        "language_model",
        TEXT,
        'kind = "awd_lstm"\nwidth = 4\nhidden = 5\nlayers = 2\ndrop_words = 0.0\n'
        "drop_inputs = 0.0\ndrop_layers = 0.0\ndrop_weights = 0.0\ndrop_outputs = 0.0",
    ),
    "bidirectional_lm": (
        "bidirectional_lm",
        TEXT,
        'kind = "elmo"\nwidth = 4\nhidden = 6\ncharacter_width = 3\nfilters = [[1, 4], [2, 4]]\n'
        "dropout = 0.0",
    ),
    "masked_lm": (
        "masked_lm",
        'train = "documents.txt"\nvalidation = "documents.txt"\nwindow = 16\nbatch = 4\nseed = 5',
        f'kind = "bert"\npooled = true\nnext_sentence = true\n{ENCODER}',
    ),
    "translate": ("translate", DATES, 'kind = "bahdanau"\nwidth = 4\nhidden = 6'),
    "hard_attention": ("translate", DATES, HARD),
    # The same with all sentences read softly, which draws nothing.
    "hard_attention_read_softly": ("translate", DATES, f"{HARD}expectation = 1.0"),
    "word_vectors": (
        "word_vectors",
        'train = "text.txt"\nsample = 0\nreach = 2\nwords_per_batch = 96',
        'kind = "skip_gram"\nwidth = 6',
    ),
    "classify": ("classify", REVIEWS, 'kind = "attention_pool"\nwidth = 6\nhidden = 4'),
    "ulmfit": ("classify", REVIEWS, 'kind = "ulmfit"\nsource = "{runs}/awd_lstm"\nhidden = 4'),
    "tag": (
        "tag",
        'train = "tags.txt"\nvalidation = "tags.txt"\nbatch = 4',
        'kind = "bilstm_crf"\nwidth = 6\nhidden = 6\ncharacters = "none"\ndropout = 0.0',
    ),
    "caption": (
        "caption",
        'captions = "captions.tsv"\nimages = "images"\nvalidation = 0.3\nlayer = "middle"\n'
        "min_frequency = 1\nbatch = 4\nscores = []",
        'kind = "show_attend_tell"\nwidth = 4\nhidden = 6\nproject = 5',
    ),
    "answer": (
        "answer",
        'train = "questions.json"\nvalidation = "questions.json"\nwindow = 32\nstride = 8\n'
        "longest_question = 8\nbatch = 4",
        f'kind = "bert_reader"\n{ENCODER}',
    ),
}
"""By name: the task, its data and its model, without dropout."""

UNTRIED = {"algorithm", "bandits", "few_shot", "stories"}
"""Tasks that were not trained by two processes yet."""

DRAWS = {"hard_attention", "ulmfit"}
"""These draw numbers or normalise over the rows of a process, so two are not like one."""


def recipe(name: str, runs: Path) -> Recipe:
    task, data, model = CASES[name]
    # Tables of which a batch has a few rows: their gradients are sparse.
    sparse = ['train.optimiser={ name = "adagrad", lr = 0.1 }'] if task == "word_vectors" else []
    model = model.replace("{runs}", str(runs))
    return parse_recipe(RECIPE.format(task=task, data=data, model=model), name, sparse)


def write_data(folder: Path) -> None:
    """Texts of which the last batch is not full: nine sentences in batches of four."""
    draw = random.Random(0)
    words = ["the", "cat", "dog", "cow", "purrs", "barks", "moos", "and", "then", "once", "more"]
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 7))) for _ in range(60)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    documents = ["\n".join(lines[3 * n : 3 * n + 3]) + "\n" for n in range(5)]
    (folder / "documents.txt").write_text("\n".join(documents))
    reviews = [f"{'good' if n % 2 else 'bad'} {line}\n" for n, line in enumerate(lines[:9])]
    (folder / "reviews.txt").write_text("".join(reviews))
    tagged = [
        "".join(f"{word} {'B-X' if word in ('cat', 'dog') else 'O'}\n" for word in line.split())
        for line in lines[:9]
    ]
    (folder / "tags.txt").write_text("\n".join(tagged))
    asked = [
        {
            "context": f"{line} pink",
            "qas": [
                {
                    "id": str(n),
                    "question": "which colour ?",
                    "answers": [{"text": "pink", "answer_start": len(line) + 1}],
                }
            ],
        }
        for n, line in enumerate(lines[:9])
    ]
    squad = {"version": "1.1", "data": [{"title": "x", "paragraphs": asked}]}
    (folder / "questions.json").write_text(json.dumps(squad))
    write_images(folder, [f"a {line}" for line in lines[:9]])


def write_images(folder: Path, captions: list[str]) -> None:
    """A small image for each caption, and a file of captions."""
    from PIL import Image

    (folder / "images").mkdir(exist_ok=True)
    for number in range(len(captions)):
        colour = (25 * number % 256, 90, 255 - 25 * number % 256)
        Image.new("RGB", (16, 12), colour).save(folder / "images" / f"{number}.png")
    rows = (f"{number}.png\t{caption}\n" for number, caption in enumerate(captions))
    (folder / "captions.tsv").write_text("".join(rows))


def train_all(data: Path, runs: Path, names: Iterable[str] = tuple(CASES)) -> None:
    """Train every case in a folder of its own."""
    for name in names:
        create(recipe(name, runs), runs / name, data, "cpu").train()


def resume_all(data: Path, runs: Path, *, first: bool) -> None:
    """Copy every run as it was at its second checkpoint, and go on from there."""
    for name in CASES:
        again = runs / f"{name}-resumed"
        with process_group(torch.device("cpu")) as world:
            if first:
                shutil.copytree(runs / name, again)
                (again / "model.safetensors").unlink()
                for update in range(RESUMED + 1, UPDATES + 1):
                    shutil.rmtree(again / "state" / f"{update:08d}")
            world.barrier()
        open_run(again, data, "cpu").train()


class Compared(Loop):
    """A loop that compares the weights of all processes before it saves them."""

    def save(self) -> None:
        every = self.world.all_gather(named_weights(self.model))
        for name, tensor in every[0].items():
            for rank, other in enumerate(every):
                assert torch.equal(tensor, other[name]), f"{name} differs in process {rank}"
        super().save()


def main(data: Path, runs: Path) -> None:
    import regard.train.loop

    torch.set_num_threads(1)
    regard.train.loop.Loop = Compared
    with process_group(torch.device("cpu")) as world:
        train_all(data, runs)
        resume_all(data, runs, first=world.is_main)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
