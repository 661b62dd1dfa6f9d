"""Can it be told whether a passage follows another? What a real sentence encoder makes of it.

    python -m bench.passages runs/imdb-bert path/to/MiniLM --data DATA [--window 512]

Reads the pairs that a run of BERT's pre-training is measured on, and says how many of them are told
right by the cosine of both passages' vectors, with the best threshold there is for these very
pairs: more than a fair judge would have. The encoder is any folder of a BERT for sentences.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

import regard
from bench.measure import show
from regard.runs.pretrained import sentence_vectors
from regard.runs.run import Run, open_run
from regard.tasks.masked_lm import MaskedLM

TOGETHER, LONGEST = 32, 200
"""Texts in a batch, and words of a passage that are read."""


def vectors(encoder: Run, texts: list[str]) -> Tensor:
    """A vector for each text; texts of about one length are read together."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        short = [" ".join(texts[number].split()[:LONGEST]) or "." for number in some]
        found.update(zip(some, sentence_vectors(encoder, short), strict=True))
    return torch.stack([found[number] for number in range(len(texts))])


def told_right(likeness: Tensor, apart: Tensor) -> float:
    """The most pairs that one threshold can tell right."""
    order = likeness.argsort()
    right = torch.cat((torch.zeros(1), torch.where(apart[order], 1.0, -1.0).cumsum(0)))
    return float((right.max() + (~apart).sum()) / len(apart))


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--window", type=int)
    parser.add_argument("--pairs", type=int, default=1500)
    asked = parser.parse_args()
    task = open_run(asked.run, asked.data).task
    if not isinstance(task, MaskedLM):
        raise SystemExit(f"{asked.run} is no run of BERT's pre-training")
    data = (
        task.data if asked.window is None else task.data.model_copy(update={"window": asked.window})
    )
    passages = MaskedLM(data, task.folder, task.tokeniser).passages("validation")
    pairs = passages.inputs(0)
    torch.manual_seed(0)
    chosen = torch.randperm(len(pairs))[: asked.pairs]
    apart = pairs.random_next[chosen]

    def texts(parts: Tensor) -> list[str]:
        tokens = passages.documents.tokens
        ranges = parts[chosen].tolist()
        return [task.tokeniser.decode(tokens(torch.arange(a, b)).tolist()) for a, b in ranges]

    first, second = texts(pairs.first), texts(pairs.second)
    encoder = regard.from_pretrained(asked.encoder)
    likeness = (vectors(encoder, first) * vectors(encoder, second)).sum(1)
    least = [min(len(a.split()), len(b.split())) for a, b in zip(first, second, strict=True)]
    shorter = torch.tensor(least)  # words of the shorter passage
    rows = []
    for words in (0, 10, 25, 50, 100):
        long = shorter >= words
        if int(long.sum()) < TOGETHER:
            break
        always = max(float(apart[long].float().mean()), 1 - float(apart[long].float().mean()))
        right = told_right(likeness[long], apart[long])
        rows.append((words, int(long.sum()), f"{always:.3f}", f"{right:.3f}"))
    show(
        f"Pairs of passages in {data.window} tokens, told by the cosine of {asked.encoder.name}",
        ["words of the shorter, at least", "pairs", "always the same answer", "told right"],
        rows,
    )


if __name__ == "__main__":
    main()
