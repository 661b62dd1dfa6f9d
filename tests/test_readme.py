"""What the README and the tour tell people to type does what it says."""

import re
import shlex
import sys
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard.runs.recipe
from regard.cli import app, main
from regard.runs.recipe import parse_recipe, shipped_recipes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs" / "tour.md").read_text()
ZOO = (ROOT / "docs" / "zoo.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def blocks(language: str, page: str = README + TOUR) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def commands() -> list[str]:
    """Every line of the two pages that runs a verb in this process."""
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if re.search(r"(^|\| )regard ", line)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the commands name: data, and a recipe of one's own."""
    folder = tmp_path_factory.mktemp("readme")
    text = "To be, or not to be, that is the question:\n" * 80
    (folder / "tinyshakespeare").mkdir()
    (folder / "tinyshakespeare" / "input.txt.gz").write_text(text)
    small = shipped_recipes()["shakespeare-gpt-small"].replace("input.txt.gz", "input.txt")
    (folder / "tinyshakespeare" / "input.txt").write_text(text)
    (folder / "mine.toml").write_text(shortened(small))
    return folder


def shortened(recipe: str) -> str:
    """A recipe of two updates on few data."""
    recipe = re.sub(r"^updates = \d+", "updates = 2", recipe, flags=re.MULTILINE)
    recipe = re.sub(r"^(context|window) = \d+", r"\1 = 16", recipe, flags=re.MULTILINE)
    recipe = re.sub(r"train = 40000, validation = \d+, test = \d+", TINY, recipe)
    return recipe.replace("input.txt.gz", "input.txt")


TINY = "train = 300, validation = 20, test = 20"


def test_the_commands_and_the_python_of_the_readme_work(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {name: shortened(text) for name, text in shipped_recipes().items()}
    monkeypatch.setattr(regard.runs.recipe, "shipped_recipes", lambda: short)
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_DATA", str(place))
    monkeypatch.setenv("REGARD_CACHE", str(place / "cache"))
    ran = []
    for line in commands():
        said, _, command = line.rpartition("| ")
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        monkeypatch.setattr(sys, "stdin", StringIO(said.removeprefix("echo ").strip(' "') + "\n"))
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert not left.value.code, f"{line}\n{out}{err}"
        assert out, line
        ran.append(command.split()[1])
    assert {"train", "eval", "translate", "look", "generate", "resume", "zoo"} <= set(ran)
    (python,) = [block for block in blocks("python", README) if "regard.load" in block]
    assert python.count("\n") == 10, "ten lines"
    assert python in TOUR
    exec(compile(python, "README.md", "exec"), {})
    out, _ = capsys.readouterr()
    assert out.count("\n") == 3
    assert Path("alignment.svg").stat().st_size > 3000
    assert Path("attention.html").exists()


def test_the_training_without_a_recipe_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (python,) = [block for block in blocks("python") if "regard.fit" in block]
    exec(compile(python, "README.md", "exec"), {})
    assert "finished 65\ntorch.Size([1, 4, 12, 12])" in capsys.readouterr().out
    assert (tmp_path / "runs" / "sevens" / "model.safetensors").exists()


def test_the_recipe_of_the_readme_is_one() -> None:
    (recipe,) = blocks("toml")
    assert parse_recipe(recipe, "README.md").kind == "transformer"


def test_the_table_of_models_is_that_of_the_zoo() -> None:
    shown = CliRunner().invoke(app, ["zoo", "--markdown"]).output.strip()
    told = ZOO.split("<!-- regard zoo -->\n")[1].split("<!-- end -->")[0].strip()
    assert told == shown, "write it anew: regard zoo --markdown"


def test_the_make_targets_of_the_readme_are_there() -> None:
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_every_file_the_readme_points_to_is_there() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path.replace("\n", " ")).exists(), path
