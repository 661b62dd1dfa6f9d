"""Stories: answer a question about facts in order, as in bAbI.

The files are read by data/text/stories.py. A batch has `facts` [B,M,J], their `ages` [B,M],
`counts` [B], `question` [B,J] and `classes` [B], the answers as tokens of the vocabulary; a model
returns `Classes` over it. One file is one task; several files, as `*` in a name, are learnt
together, and the error of each is measured.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import nn

from regard.core.axes import Sentences, Steps
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.inputs import Input, Question, check_kind
from regard.core.mode import eval_mode
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry, Loss
from regard.data import BucketBatches, load_tokeniser, train_tokeniser
from regard.data.text.stories import (
    EncodedStories,
    Story,
    StoryBatches,
    answer_token,
    encode_stories,
    read_stories,
    sentence_words,
    split_story,
    story_files,
)
from regard.outputs.classes import Classes
from regard.tasks.abilities import Choice, Prediction, Reading
from regard.tasks.classification_data import divided
from regard.tasks.over_texts import placed_with
from regard.tasks.task import (
    TOKENISER,
    FileOrShare,
    Split,
    parts_of,
    read_labels,
    write_labels,
)
from regard.tasks.tokenised import Tokenised

_log = logging.getLogger(__name__)

SLOTS = "slots.json"
"""The file of a run that holds the size of its memory."""

_TASK = "{task}"
"""What stands for the number of a task in the name of a file."""


@runtime_checkable
class ReadsOften(Protocol):
    """A model that reads its memory a fixed number of times."""

    @property
    def reads(self) -> int:
        """How many times."""
        ...


class StoryData(Config):
    """The `[data]` table of a recipe: which stories, how many facts, and their batches."""

    train: str
    """The stories to learn from, in bAbI's format: a file in the data folder; `*` matches several,
    and `{task}` stands for `task`."""
    validation: FileOrShare = 0.1
    """Other files, or the share of the training questions to keep for it."""
    test: str | None = None
    task: int | str = "*"
    """The number of a task of bAbI; `*` is all of them together."""
    origin: str = ""
    """Where a user gets these files; part of the error if they are missing."""
    memory: PositiveInt = 50
    """The most facts of a story; of a longer one the oldest are dropped."""
    noise: float = Field(0.0, ge=0, lt=1)
    """The share of empty memories that are added to a story at random while training."""
    linear_epochs: NonNegativeInt = 0
    """The epochs in which models read their memory without a softmax, from the start."""
    by_length: bool = False
    """Batches of stories of similar length: less padding, and a less random order."""
    batch: PositiveInt = 32
    evaluate_batch: PositiveInt = 250
    seed: int = 0


@dataclass(frozen=True)
class StoryAnswering(Tokenised):
    """-log p of the answer to each question, summed."""

    Data = StoryData
    usage = (
        "printf 'Where is Mary?\\tMary went to the garden. John slept.\\n' | regard predict {run}"
    )

    data: StoryData
    slots: int
    """The facts that a memory holds: those of the longest training story, at most data.memory."""

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "StoryAnswering":
        """The task on these stories; its vocabulary is made now if there is none yet."""
        assert isinstance(data, StoryData)
        if saved is not None:
            (slots,) = read_labels(saved / SLOTS)
            return cls(data, folder, load_tokeniser(saved / TOKENISER), int(slots))
        stories = _read(data, folder, data.train)
        sentences = {each for story in stories for each in (*story.facts, story.question)}
        texts = [" ".join(sentence_words(each)) for each in sorted(sentences)]
        answers = [answer_token(str(story.answer)) for story in stories]
        tokeniser = train_tokeniser("word", [*texts, *answers], None, 1)
        longest = max(len(story.facts) for story in stories)
        return cls(data, folder, tokeniser, min(data.memory, longest))

    def save(self, folder: Path) -> None:
        """Leave the tokeniser and the size of the memory."""
        super().save(folder)
        write_labels(folder / SLOTS, [str(self.slots)])

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary, and how many facts a memory holds."""
        return {**super().sizes, "slots": self.slots}

    @cached_property
    def _stories(self) -> dict[Split, list[Story]]:
        return {}

    def stories(self, split: Split) -> list[Story]:
        """The questions of a split with their facts, read once."""
        if split not in self._stories:
            self._stories[split] = self._read_split(split)
        return self._stories[split]

    def _read_split(self, split: Split) -> list[Story]:
        data = self.data
        path = {"train": data.train, "validation": data.validation, "test": data.test}[split]
        if path is None:
            raise UserError(f"this recipe has no {split} stories; set data.{split}")
        if split != "train" and isinstance(path, str):
            return _read(data, self.folder, path)
        every = _read(data, self.folder, data.train)
        apart, rest = divided(len(every), data.validation, None, data.seed)
        return [every[each] for each in (rest if split == "train" else apart)]

    @cached_property
    def _encoded(self) -> dict[Split, EncodedStories]:
        return {}

    def encoded(self, split: Split) -> EncodedStories:
        """The stories of a split as numbers; what is lost is counted in the log."""
        if split not in self._encoded:
            made = encode_stories(self.stories(split), self.tokeniser, self.slots)
            self._warn(made, split)
            self._encoded[split] = made
        return self._encoded[split]

    def _warn(self, made: EncodedStories, what: str) -> None:
        if made.dropped:
            _log.warning(
                "%s: %d facts dropped, the oldest of stories with more than %d, which is what the "
                "memory holds: the longest training story, at most data.memory",
                *(what, made.dropped, self.slots),
            )
        if made.unknown:
            _log.warning(
                "%s: %d words are not in the vocabulary and are left out", what, made.unknown
            )
        if made.unseen:
            _log.warning(
                "%s: %d answers do not occur in the training data; they count as errors",
                *(what, made.unseen),
            )

    def batches(self) -> StoryBatches:
        """The training batches."""
        data = self.data
        return StoryBatches(
            self.encoded("train"),
            batch=data.batch,
            seed=data.seed,
            by_length=data.by_length,
            noise=data.noise,
            linear_epochs=data.linear_epochs,
            slots=self.slots,
        )

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every question once."""
        held = self.encoded(split)
        counts = held.counts.clamp_min(1).tolist()
        return BucketBatches(counts, held.gather, seed=0, batch=self.data.evaluate_batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """Cross-entropy; when measuring, also the errors of each file."""
        output = Classes.of(model, batch, carry)
        classes = batch["classes"]
        known = classes.where(classes != self.tokeniser.unk, IGNORE)  # unseen: cannot be learnt
        nll = output.nll(known)
        total = output.with_auxiliary(nll) if model.training else nll
        wrong = (output.logits.argmax(1) != known) & (classes != IGNORE)
        counts = {"error": 100.0 * float(wrong.sum())}
        if not model.training:
            counts |= self._by_file(batch, wrong)
        return Loss(total=total, items=int((classes != IGNORE).sum()), counts=counts)

    def _by_file(self, batch: Batch, wrong: torch.Tensor) -> dict[str, float]:
        """How many questions of each file there are, and how many were answered wrong."""
        sources, asked = batch["sources"], batch["classes"] != IGNORE
        found: dict[str, float] = {}
        for number in sources[asked].unique().tolist():
            here = asked & (sources == number)
            found[f"asked_{number}"] = float(here.sum())
            found[f"wrong_{number}"] = float((wrong & here).sum())
        return found

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss, and the error in per cent; with several files that of each, and the number
        of files above 5 per cent, which bAbI calls failed."""
        figures = {"loss": totals["loss"], "error": totals["error"]}
        names = self._file_names
        if len(names) < 2:
            return figures
        errors = {
            f"error_{name}": 100 * totals[f"wrong_{number}"] / totals[f"asked_{number}"]
            for number, name in enumerate(names)
            if totals.get(f"asked_{number}")
        }
        return {**figures, **errors, "failed": float(sum(each > 5 for each in errors.values()))}

    @cached_property
    def _file_names(self) -> tuple[str, ...]:
        pattern = self.data.train.replace(_TASK, str(self.data.task))
        files = story_files(self.folder, pattern, self.data.origin)
        return tuple(each.name.split("_")[0].split(".")[0] for each in files)

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """A question and its story."""
        return (Question,)

    def inputs(self, path: str) -> list[Input]:
        """The questions of a bAbI file, or lines of question, tab and story."""
        if not path.endswith(".txt"):
            return list(super().inputs(path))
        stories = read_stories(Path(path))
        return [Question(each.question, "\n".join(each.facts)) for each in stories]

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The answer to each question, and the probability of the likeliest answers."""
        if not inputs:
            return []
        stories = [_story_of(each) for each in inputs]
        encoded = encode_stories(stories, self.tokeniser, self.slots)
        self._warn(encoded, "input")
        batch = placed_with(model, encoded.gather(torch.arange(len(stories))))
        with eval_mode(model), torch.no_grad():
            logits = Classes.of(model, batch).logits
        logits[:, self.tokeniser.special.to(logits.device)] = torch.finfo(logits.dtype).min
        best = logits.softmax(1).topk(min(5, logits.shape[1]), dim=1)
        rows = zip(stories, best.values.tolist(), best.indices.tolist(), strict=True)
        return [self._prediction(*row) for row in rows]

    def _prediction(
        self, story: Story, probabilities: Sequence[float], tokens: Sequence[int]
    ) -> Prediction:
        names = [self.tokeniser.token(each).replace("_", " ") for each in tokens]
        choices = tuple(map(Choice, names, probabilities))
        fields = {
            "question": story.question,
            "answer": names[0],
            "probabilities": {each.text: round(each.probability, 6) for each in choices},
        }
        return Prediction(
            text=f"{names[0]}\t{probabilities[0]:.4f}", fields=fields, choices=choices
        )

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one story; hops are the queries, facts the keys."""
        story = _story_of(given)
        encoded = encode_stories([story], self.tokeniser, self.slots)
        self._warn(encoded, "input")
        with eval_mode(model), torch.no_grad():
            output = Classes.of(model, placed_with(model, encoded.gather(torch.tensor([0]))))
        answer = self.tokeniser.token(int(output.logits[0].argmax())).replace("_", " ")
        facts = story.facts[-self.slots :]
        hops = {"step": Steps.of(model.reads, "hop")} if isinstance(model, ReadsOften) else {}
        slots = Sentences(labels=("(empty)", *facts))
        axes = {"sentence": Sentences(labels=facts), "slot": slots, **hops}
        return Reading(title=f"{story.question} {answer}", axes=axes)

    def notes(self) -> list[str]:
        """How many questions there are, and which facts were dropped."""
        train = self.encoded("train")
        dropped = f"; {train.dropped} of the oldest facts dropped" if train.dropped else ""
        return [f"{len(train):,} questions to learn from{dropped}"]


def _read(data: StoryData, folder: Path, pattern: str) -> list[Story]:
    """The stories of all files that a pattern names."""
    if pattern == "-":
        raise UserError("stdin can be read only once, and stories are read several times")
    files = story_files(folder, pattern.replace(_TASK, str(data.task)), data.origin)
    stories = [story for file in files for story in read_stories(file)]
    if not stories:
        raise UserError(f"{files[0]}: there are no questions in it")
    return stories


def _story_of(given: Input) -> Story:
    """A question with its facts, and without an answer."""
    check_kind(given, (Question,), "stories")
    question, text = parts_of(given)
    facts = split_story(text)
    if not facts:
        raise UserError(
            f"the question {question!r} has no story: give at least one sentence after the tab"
        )
    if not sentence_words(question):
        raise UserError("the question is empty: give it before the tab, and the story after it")
    return Story(question, facts)
