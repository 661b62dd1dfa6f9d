"""A user's own model, score, weighing and task: trained, resumed and loaded from a file."""

import sys
import traceback
from pathlib import Path

import pytest
import torch

import regard
from regard.attention import score_named
from regard.cli import main, plugins_first
from regard.core.errors import UserError
from regard.runs.plugins import Plugin, allow_plugin
from regard.runs.recipe import parse_recipe, read_recipe
from regard.runs.run import create, load, open_run

MINE = """
import torch
from torch import nn

from regard.attention import START, Score, Softmax, causal
from regard.core.config import Config
from regard.layers import SelfAttention
from regard.outputs.next_token import SoftmaxOutput
from regard.tasks.language_model import LanguageModelling


class Cubic(Score):
    def forward(self, query, key, past=START):
        return (query @ key.transpose(2, 3)) ** 3


class Cool(Softmax):
    @classmethod
    def sized(cls, width):
        return cls(temperature=2.0)


class MyModel(nn.Module):
    class Config(Config):
        width: int = 8
        score: str = "scaled_dot"
        weigh: str = "softmax"

    def __init__(self, config, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, config.width)
        self.attention = SelfAttention(config.width, 2, score=config.score, weigh=config.weigh)

    def forward(self, batch, carry=None):
        x = self.embed(batch["tokens"])
        return SoftmaxOutput(x + self.attention(x, causal()), self.embed.weight)


class MyTask(LanguageModelling):
    pass
"""

RECIPE = """
task = "mine.py:MyTask"
[about]
title = "Mine"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
tokeniser = "char"
batch = 4
window = 8
order = "random"
steps = 4
[model]
kind = "mine.py:MyModel"
score = "mine.py:Cubic"
weigh = "mine.py:Cool"
[train]
updates = 6
save_every = 2
optimiser = { name = "adamw", lr = 1e-2 }
log_every = 1
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe, a plugin and a text; the working directory is another."""
    monkeypatch.setenv("REGARD_PLUGINS", "")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 20)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(RECIPE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, in which nobody has named a plugin."""
    monkeypatch.setenv("REGARD_PLUGINS", "")


def test_parts_in_a_file_train_resume_and_load(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = read_recipe(str(place / "mine.toml"))
    run = create(recipe, place / "run", place, "cpu")
    attend = run.model.get_submodule("attention.attend")
    assert type(attend.score).__name__ == "Cubic"
    assert attend.weigh.temperature == 2.0
    assert type(run.task).__name__ == "MyTask"
    assert run.train().outcome == "finished"
    for newest in sorted((place / "run" / "state").iterdir())[-1:]:
        newest.rename(place / "last")  # as if it had been stopped before
    (place / "run" / "model.safetensors").unlink()
    forget(monkeypatch)
    needed = f"{place / 'mine.py'}:MyModel"
    again = open_run(place / "run", place, "cpu", plugins=[needed])
    again.train()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name
    forget(monkeypatch)
    loaded = regard.load(place / "run", "cpu", plugins=[needed])
    assert loaded.evaluate() == run.evaluate()


def test_a_run_folder_imports_nothing_by_itself(
    place: Path, monkeypatch: pytest.MonkeyPatch, as_users_run_it: None
) -> None:
    run = create(read_recipe(str(place / "mine.toml")), place / "run", place, "cpu")
    run.train()
    forget(monkeypatch)
    message = rf"made with .*mine\.py:MyModel.* --plugin {place}/mine\.py:MyModel"
    for opened in (
        lambda: load(place / "run"),
        lambda: open_run(place / "run"),
        lambda: read_recipe(str(place / "run" / "recipe.toml")),
    ):
        with pytest.raises(UserError, match=message):
            opened()
    moved = place / "moved"
    moved.mkdir()
    (place / "mine.py").rename(moved / "mine.py")
    allow_plugin(str(moved / "mine.py:MyModel"))  # the file may have another place now
    assert type(load(place / "run", "cpu").model).__name__ == "MyModel"


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_command_line_names_plugins(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_users_run_it: None,
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_DATA", str(place))
    (place / "mine.toml").rename(place / "elsewhere" / "mine.toml")
    text = (place / "elsewhere" / "mine.toml").read_text()
    plain = text.replace("mine.py:MyTask", "language_model").replace(
        'score = "mine.py:Cubic"\n', ""
    )
    plain = plain.replace('weigh = "mine.py:Cool"\n', "").replace("mine.py:MyModel", "rnn_lm")
    (place / "elsewhere" / "mine.toml").write_text(plain)
    kind = "model.kind=mine.py:MyModel"  # of --set, in the working directory
    train = ("train", "elsewhere/mine.toml", "--set", kind, "--name", "x", "--device", "cpu")
    assert command(monkeypatch, *train) == 0
    forget(monkeypatch)
    capsys.readouterr()
    assert command(monkeypatch, "eval", "runs/x", "--device", "cpu") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"--plugin {place / 'mine.py'}:MyModel" in error
    named = ("--plugin", "mine.py:MyModel")
    assert command(monkeypatch, "eval", "runs/x", "--device", "cpu", *named) == 0
    assert "perplexity" in capsys.readouterr().out
    forget(monkeypatch)
    assert command(monkeypatch, *named, "resume", "runs/x", "--device", "cpu") == 0


def test_plugins_come_before_the_verb() -> None:
    assert plugins_first(["a", "--plugin", "x:Y", "b"]) == ["--plugin", "x:Y", "a", "b"]
    assert plugins_first(["a", "--plugin"]) == ["--plugin", "a"]


PLANTED = {
    "an error while it is imported": ("import torch", "import torch\n1 / 0", r"mine.py:3: Zero"),
    "an error of syntax": ("class Cubic(Score):", "class Cubic(Score:", r"mine.py:12: SyntaxError"),
    "a module that is not there": ("import torch\n", "import torhc\n", r"mine.py:2: ModuleNotF"),
    "an exit": ("import torch\n", "raise SystemExit(3)\n", r"mine.py:2: SystemExit: 3"),
    "no Config": ("class Config(Config)", "class Settings(Config)", r"MyModel: .*has no Config"),
    "another class": (
        "class MyModel(",
        "class MyModell(",
        r"has no MyModel; did you mean MyModell",
    ),
    "no module": ("class MyModel(nn.Module)", "class MyModel", r"subclass of torch.nn.*Module"),
    "no class": (
        "class MyTask(LanguageModelling):\n    pass",
        "MyTask = 3",
        r"MyTask: a task must be a subclass of regard.tasks.task.OpenTask, and this is a int",
    ),
    "no score": ("class Cubic(Score)", "class Cubic(nn.Module)", r"subclass of .*score.Score"),
    "no method": ("def forward(self, query", "def forwards(self, query", r"leaves open: forward"),
    "another constructor": (
        "def __init__(self, config, vocabulary)",
        "def __init__(self, config, words)",
        r"MyModel\(config, vocabulary=...\), but this one takes \(config, words\)",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_wrong_with_a_plugin_is_one_line(
    case: str, place: Path, as_users_run_it: None
) -> None:
    right, wrong, message = PLANTED[case]
    assert right in MINE
    (place / "mine.py").write_text(MINE.replace(right, wrong))
    with pytest.raises(UserError, match=message) as raised:
        create(read_recipe(str(place / "mine.toml")), place / "run", place, "cpu")
    assert "\n" not in str(raised.value)
    assert str(place / "mine.py") in str(raised.value)


def test_an_error_in_training_has_the_file_and_the_line(place: Path, as_users_run_it: None) -> None:
    (place / "mine.py").write_text(MINE.replace("x = self.embed(", "x = self.embedding("))
    with pytest.raises(AttributeError, match="embedding") as raised:
        create(read_recipe(str(place / "mine.toml")), place / "run", place, "cpu").train()
    own = [f for f in traceback.extract_tb(raised.tb) if f.filename == str(place / "mine.py")]
    assert own[-1].line == 'x = self.embedding(batch["tokens"])'


WRONG = {
    "an unknown model": ("model.kind=mymodel", r"unknown model 'mymodel'.*your own is named as fi"),
    "an unknown task": ("task=mytask", r"unknown task 'mytask'.*entry point of regard.tasks"),
    "a file that is not there": ("model.kind=their.py:A", r"there is no file .*elsewhere/their.py"),
    "a module that is not there": ("model.kind=their.parts:A", r"there is no module their;.*inst"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_there_is_named(case: str, place: Path, as_users_run_it: None) -> None:
    change, message = WRONG[case]
    with pytest.raises(UserError, match=message):
        read_recipe(str(place / "mine.toml"), [change])
    with pytest.raises(UserError, match=r"--plugin takes file.py:Class"):
        allow_plugin("gpt")


def test_a_package_has_names_for_its_parts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = place / "site"
    (package / "cubes-1.0.dist-info").mkdir(parents=True)
    (package / "cubes-1.0.dist-info" / "METADATA").write_text("Name: cubes\nVersion: 1.0\n")
    (package / "cubes-1.0.dist-info" / "entry_points.txt").write_text(
        "[regard.scores]\ncubes_cubic = cubes:Cubic\n[regard.weighs]\ncubes_cool = cubes:Cool\n"
        "[regard.models]\ncubes_model = cubes:MyModel\n[regard.tasks]\ncubes_task = cubes:MyTask\n"
    )
    (package / "cubes.py").write_text(MINE)
    monkeypatch.syspath_prepend(package)
    text = RECIPE
    for own, name in {
        "MyTask": "task",
        "MyModel": "model",
        "Cubic": "cubic",
        "Cool": "cool",
    }.items():
        text = text.replace(f"mine.py:{own}", f"cubes_{name}")
    run = create(parse_recipe(text, "packaged"), place / "run", place, "cpu")
    assert type(run.model).__module__ == type(run.task).__module__ == "cubes"
    assert type(score_named("cubes_cubic", 4)).__name__ == "Cubic"
    run.train()
    assert load(place / "run", "cpu").recipe.kind == "cubes_model"  # nobody has to name it again


def test_a_module_is_named_by_its_dots(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "parts").mkdir()
    (place / "parts" / "__init__.py").touch()
    (place / "parts" / "own.py").write_text(MINE)
    monkeypatch.syspath_prepend(place)
    recipe = parse_recipe(RECIPE.replace("mine.py", "parts.own"), "modules")
    assert recipe.model_class.__module__ == "parts.own"
    assert Plugin.parse("~/own.py:A", place) == Plugin(str(Path("~/own.py").expanduser()), "A")


def test_a_file_imports_those_beside_it(place: Path) -> None:
    (place / "beside.py").write_text("WIDTH = 12\n")
    wide = MINE.replace("width: int = 8", "width: int = WIDTH")
    (place / "mine.py").write_text("from beside import WIDTH\n" + wide)
    recipe = read_recipe(str(place / "mine.toml"))
    assert recipe.model.model_dump()["width"] == 12
    assert str(place) not in sys.path
