"""Stories: facts in order, a question about them and its answer, as numbers and in batches.

The reader is that of bAbI (questions.py). A sentence is its words in lower case, without
punctuation. Each distinct sentence is kept once, and a story is a row of sentence numbers. If a
story has more facts than the memory, the oldest are dropped.

>>> story = Story("Where is Mary?", ("Mary went to the garden.",), "garden")
>>> sentence_words(story.question), answer_token(story.answer)
(['where', 'is', 'mary'], 'garden')
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.data.batch import random_integers
from regard.data.bucket import EMPTY_ROW, BucketBatches, pad_rows
from regard.data.text.questions import babi_questions
from regard.data.text.segment import plain_words
from regard.data.text.tokeniser import Tokeniser

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")


@dataclass(frozen=True)
class Story:
    """The facts before a question, the question and its answer."""

    question: str
    facts: tuple[str, ...]
    answer: str | None = None
    where: str = "story"
    """Its position in error messages."""
    source: str = ""
    """The file it comes from, without folder and ending."""


def sentence_words(text: str) -> list[str]:
    """The words of a sentence in lower case, without punctuation.

    >>> sentence_words("Mary, the cook, isn't here.")
    ['mary', 'the', 'cook', "isn't", 'here']
    """
    return [word for word in plain_words(text) if word[0].isalnum()]


def answer_token(answer: str) -> str:
    """An answer as one token: in lower case, with _ between its words.

    >>> answer_token("Milk, football"), answer_token("n,w")
    ('milk,_football', 'n,w')
    """
    return "_".join(answer.lower().split())


def split_story(text: str) -> tuple[str, ...]:
    """The facts of a running text: a sentence ends with . ! or ? and a blank, or with its line.

    >>> split_story("Mary went out. John slept.")
    ('Mary went out.', 'John slept.')
    """
    parts = (each.strip() for each in _SENTENCE_END.split(text))
    return tuple(each for each in parts if sentence_words(each))


def story_files(folder: Path, pattern: str, origin: str = "") -> list[Path]:
    """The files that a pattern such as `babi/en/qa1_*_train.txt` names, numbers in their order."""
    paths = [Path(each) for each in glob(str(folder / pattern))]
    if not paths and not has_magic(pattern) and (folder / pattern).exists():
        paths = [folder / pattern]
    if not paths:
        source = f" They come from: {origin}." if origin else ""
        raise UserError(
            f"{folder / pattern}: no such files. The data folder is {folder} (set it with --data "
            f"or REGARD_DATA).{source}"
        )
    return sorted(paths, key=lambda each: (_first_number(each.name), each.name))


def _first_number(name: str) -> int:
    """The first number in a name.

    >>> _first_number("qa12_conjunction_train.txt"), _first_number("stories.txt")
    (12, 0)
    """
    digits = "".join(each if each.isdecimal() else " " for each in name).split()
    return int(digits[0]) if digits else 0


def read_stories(path: Path) -> Iterator[Story]:
    """Every question of a bAbI file with the facts before it; one without facts is an error."""
    name = path.name.split("_")[0].split(".")[0]
    for each in babi_questions(str(path)):
        if not each.sentences:
            raise UserError(
                f"{each.where}: the question {each.question!r} has no fact before it; a story "
                "needs at least one sentence"
            )
        if not each.answer:
            raise UserError(f"{each.where}: the question {each.question!r} has no answer")
        facts = tuple(each.sentences.values())
        yield Story(each.question, facts, each.answer, each.where, name)


@dataclass(frozen=True)
class EncodedStories:
    """Stories as numbers."""

    sentences: Int[Tensor, "S J"]
    """Every distinct sentence; the first is empty."""
    facts: Int[Tensor, "N M"]
    """The sentence of each fact, oldest first; 0 beyond the last."""
    counts: Int[Tensor, "N"]
    """The facts of each story."""
    questions: Int[Tensor, "N"]
    """The sentence of each question."""
    answers: Int[Tensor, "N"]
    """The token of each answer; IGNORE if there is none, the unknown token if it is not known."""
    sources: Int[Tensor, "N"]
    """The file of each story, by its place in `names`."""
    names: tuple[str, ...]
    dropped: int
    """How many facts were more than the memory holds."""
    unknown: int
    """How many words of stories and questions are not in the vocabulary."""
    unseen: int
    """How many answers are not in the vocabulary."""

    def __len__(self) -> int:
        return len(self.questions)

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These stories as a batch, with the age of each fact: 1 is the newest, 0 no fact."""
        real = (numbers != EMPTY_ROW).long()
        counts = self.counts[numbers] * real
        width = max(1, int(counts.max()))
        facts = self.facts[numbers, :width] * real[:, None]  # [B,M]
        ages = (counts[:, None] - torch.arange(width)).clamp_min(0)
        questions = self.sentences[self.questions[numbers] * real]
        return {
            "facts": _trimmed(self.sentences[facts]),
            "ages": ages,
            "counts": counts,
            "question": _trimmed(questions),
            "classes": torch.where(real.bool(), self.answers[numbers], IGNORE),
            "sources": self.sources[numbers],
        }


def _trimmed(words: Int[Tensor, "*B J"]) -> Int[Tensor, "*B T"]:
    """Without the columns that are padding in every sentence."""
    used = (words != 0).flatten(0, -2).any(0).nonzero()
    return words[..., : int(used[-1]) + 1 if len(used) else 1]


def encode_stories(stories: Sequence[Story], tokeniser: Tokeniser, memory: int) -> EncodedStories:
    """Stories in the vocabulary of a tokeniser, with the newest `memory` facts of each."""
    known: dict[str, int] = {"": 0}
    rows: list[list[int]] = [[]]

    def number(sentence: str) -> int:
        if sentence not in known:
            known[sentence] = len(rows)
            rows.append(tokeniser.encode(" ".join(sentence_words(sentence))))
        return known[sentence]

    names = list(dict.fromkeys(each.source for each in stories))
    facts = [[number(fact) for fact in each.facts[-memory:]] for each in stories]
    questions = [number(each.question) for each in stories]
    answers = [
        IGNORE if each.answer is None else _answer_number(each.answer, tokeniser)
        for each in stories
    ]
    used = [*questions, *(one for row in facts for one in row)]
    bad = torch.tensor([row.count(tokeniser.unk) for row in rows])
    return EncodedStories(
        sentences=pad_rows(rows, tokeniser.pad) if any(rows) else torch.zeros(len(rows), 1).long(),
        facts=pad_rows(facts, 0),
        counts=torch.tensor([len(row) for row in facts]),
        questions=torch.tensor(questions),
        answers=torch.tensor(answers),
        sources=torch.tensor([names.index(each.source) for each in stories]),
        names=tuple(names),
        dropped=sum(max(0, len(each.facts) - memory) for each in stories),
        unknown=int(bad[torch.tensor(used)].sum()) if used else 0,
        unseen=sum(each == tokeniser.unk for each in answers),
    )


def _answer_number(answer: str, tokeniser: Tokeniser) -> int:
    numbers = tokeniser.encode(answer_token(answer))
    return numbers[0] if len(numbers) == 1 else tokeniser.unk


class StoryBatches(BucketBatches):
    """Training batches of stories, with gaps of random length between facts.

    Sukhbaatar et al. (2015) add up to a tenth of empty memories to a story, so that a model cannot
    learn the ages of facts by heart ("random noise"); no age is more than `slots`. For
    `linear_epochs` the batches ask for a linear read ("linear start"): `linear` [B] is true then.
    """

    def __init__(
        self,
        stories: EncodedStories,
        *,
        batch: int,
        seed: int,
        by_length: bool,
        noise: float,
        linear_epochs: int,
        slots: int,
    ) -> None:
        counts = stories.counts.clamp_min(1).tolist() if by_length else [1] * len(stories)
        super().__init__(counts, stories.gather, seed=seed, batch=batch)
        self._noise = noise
        self._linear_epochs = linear_epochs
        self._noise_seed = seed
        self._slots = slots

    def batch(self, epoch: int, index: int) -> Batch:
        """The stories of a batch; ages are drawn anew in each epoch."""
        made = dict(super().batch(epoch, index))
        ages, counts = made["ages"], made["counts"]
        if self._noise:
            noisy = _with_gaps(ages, counts, self._noise, self._noise_seed, epoch, index)
            made["ages"] = noisy.clamp_max(self._slots)
        if self._linear_epochs:
            made["linear"] = torch.full_like(counts, epoch < self._linear_epochs).bool()
        return made


def _with_gaps(
    ages: Int[Tensor, "B M"],
    counts: Int[Tensor, "B"],
    noise: float,
    seed: int,
    epoch: int,
    index: int,
) -> Int[Tensor, "B M"]:
    """Ages with random gaps: a random choice of `count` out of `count` + gaps ages, in order."""
    rows, width = ages.shape
    limit = (counts * noise).ceil().long()  # [B]: the most gaps of each story
    most = int(limit.max()) if rows else 0
    if not most:
        return ages
    drawn = random_integers(rows * (width + most + 1), seed, epoch, index, 7).view(rows, -1)
    gaps = drawn[:, 0] % (limit + 1)  # [B]
    places = torch.arange(width + most)
    order = drawn[:, 1:] >> 1
    outside = places >= (counts + gaps)[:, None]
    order = torch.where(outside, torch.full_like(order, 2**62), order)
    rank = order.argsort(dim=1, stable=True).argsort(dim=1, stable=True)  # [B,M+G]
    chosen = (rank < counts[:, None]) & ~outside  # exactly `count` of each row
    sorted_ages = torch.where(chosen, places + 1, 0).sort(1, descending=True).values[:, :width]
    return torch.where(ages > 0, sorted_ages, 0)
