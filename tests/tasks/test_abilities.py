"""Which task can do what; a task that cannot is named."""

from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.core.inputs import Image, Sound, Text
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create
from regard.tasks import TASKS
from regard.tasks.abilities import (
    AlignsWords,
    EmbedsWords,
    EncodesTexts,
    Explains,
    Generates,
    HasLabels,
    Predicts,
    ReachesBack,
    Reports,
    ScoresByLength,
    ScoresOutputs,
    ShowsAttention,
    Translates,
)

READS = ("language_model", "masked_lm", "translate", "classify", "tag", "answer")

ABILITIES = {
    Predicts: {*READS, "stories", "few_shot", "algorithm", "caption"},
    ShowsAttention: {*READS, "stories", "few_shot", "algorithm", "caption"},
    Generates: {"language_model"},
    Translates: {"translate", "caption"},
    ScoresOutputs: {"translate"},
    AlignsWords: {"translate"},
    ScoresByLength: {"translate"},
    Reports: {"classify", "tag"},
    HasLabels: {"classify", "tag"},
    EmbedsWords: {"word_vectors"},
    EncodesTexts: {"masked_lm"},
    Explains: {"language_model", "translate", "classify", "tag", "caption"},
    ReachesBack: {"language_model", "translate"},
}
"""The tasks that have each ability."""

ABOUT = '[about]\ntitle = "t"\npaper = "p"\nminutes = 0.1\n'
TRAIN = '[train]\nupdates = 1\noptimiser = { name = "adam", lr = 1e-3 }\n'
RECIPES = {
    "language_model": """
[data]
train = "a.txt"
batch = 2
evaluate_batch = 2
window = 4
[model]
kind = "rnn_lm"
width = 8
""",
    "masked_lm": """
[data]
train = "a.txt"
validation = ["a.txt"]
window = 16
batch = 2
[model]
kind = "bert"
encoder = { width = 8, heads = 2, layers = 1, hidden = 8, context = 16 }
""",
    "translate": """
[data]
generate = { name = "dates", train = 8, validation = 4, test = 4 }
tokeniser = "char"
[model]
kind = "bahdanau"
width = 8
""",
    "word_vectors": """
[data]
train = "a.txt"
min_frequency = 1
learn_from = "counts"
validation = 0.5
[model]
kind = "glove"
width = 4
""",
    "classify": """
[data]
train = "labels.txt"
[model]
kind = "attention_pool"
width = 8
""",
    "tag": """
[data]
train = "tags.txt"
scheme = "none"
[model]
kind = "bilstm_crf"
width = 8
""",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    words = "the cat sat on the mat and the dog ran off\n"
    (tmp_path / "a.txt").write_text((words * 3 + "\n") * 4)
    (tmp_path / "labels.txt").write_text("__label__a the cat\n__label__b a dog\n" * 10)
    (tmp_path / "tags.txt").write_text("the D\ncat N\n\n" * 10)
    return tmp_path


def run_of(name: str, place: Path) -> Run:
    train = TRAIN.replace("adam", "adagrad") if name == "word_vectors" else TRAIN
    text = f'task = "{name}"\n{ABOUT}{RECIPES[name]}{train}'
    return create(parse_recipe(text, name), place / name, place, "cpu")


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda each: each.__name__)
def test_these_tasks_have_the_ability(ability: type) -> None:
    names = {
        each
        for base in ability.__mro__
        for each in (*vars(base), *getattr(base, "__annotations__", ()))
        if not each.startswith("_")
    }
    # Fields of a dataclass without a default, such as labels, are no attributes of the class.
    found = {
        name
        for name, task in TASKS.items()
        if all(hasattr(task, each) or each in task.__dataclass_fields__ for each in names)
    }
    assert found == ABILITIES[ability]


REFUSED = {
    "generation": ("classify", lambda run: list(run.generate("a"))),
    "translation": ("classify", lambda run: run.translate(["a"])),
    "prediction": ("word_vectors", lambda run: run.predict(["a"])),
    "showing attention": ("word_vectors", lambda run: run.look("a")),
}


@pytest.mark.parametrize("ability", REFUSED)
def test_a_task_without_an_ability_is_named(ability: str, place: Path) -> None:
    name, use = REFUSED[ability]
    message = rf"{name}: task {name} does not support {ability}$"
    with pytest.raises(UserError, match=message):
        use(run_of(name, place))


@pytest.mark.parametrize("name", ["language_model", "translate", "classify", "tag", "masked_lm"])
def test_an_input_of_the_wrong_kind_is_named(name: str, place: Path) -> None:
    run = run_of(name, place)
    for given, called in (
        (Sound(torch.zeros(1, 8), 8000), "a sound"),
        (Image(torch.zeros(3, 2, 2, dtype=torch.uint8)), "an image"),
    ):
        message = rf"task {name} takes a text.*, and was given {called}$"
        with pytest.raises(UserError, match=message):
            run.predict([given])
        with pytest.raises(UserError, match=message):
            run.look(given)


def test_a_string_is_parsed_and_an_input_is_taken_as_it_is(place: Path) -> None:
    run = run_of("language_model", place)
    (one,), (other,) = run.predict(["the cat"]), run.predict([Text("the cat")])
    assert one == other
    assert one.tokens == ("the", "cat")
    assert one.text == ""
    assert sum(choice.probability for choice in one.choices) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(UserError, match="the text is empty"):
        run.predict([""])
