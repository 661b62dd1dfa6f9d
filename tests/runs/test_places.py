"""Where the files of a recipe are looked for, and what a recipe may leave out."""

import tomllib
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.runs.places import find_data
from regard.runs.recipe import build_recipe, parse_recipe, read_recipe
from regard.tasks.task import OpenTask
from tests.cli.malformed import BASES, FILES
from tests.recipes.test_recipes import SMALL

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("recipe", "here", "data")}
    for folder in made.values():
        folder.mkdir()
    (made["recipe"] / "small.toml").write_text(SMALL)
    monkeypatch.chdir(made["here"])
    monkeypatch.setenv("REGARD_DATA", str(made["data"]))
    return made


def test_files_are_found_beside_the_recipe_then_here_then_in_the_data(
    folders: dict[str, Path],
) -> None:
    recipe = read_recipe("../recipe/small.toml")
    for name in ("data", "here", "recipe"):
        (folders[name] / "text.txt").write_text(name)
        same, place = find_data(recipe, None)
        assert (place / "text.txt").read_text() == name
        assert same.data == recipe.data
    assert find_data(recipe, folders["data"])[1] == folders["data"], "--data comes before all"


def test_files_may_be_in_several_places(folders: dict[str, Path]) -> None:
    recipe = read_recipe("../recipe/small.toml", ["data.validation=other.txt"])
    (folders["recipe"] / "text.txt").write_text("beside")
    (folders["data"] / "other.txt").write_text("of the data")
    placed, place = find_data(recipe, None)
    values = placed.data.model_dump()
    assert (place / values["train"]).read_text() == "beside"
    assert (place / values["validation"]).read_text() == "of the data"


def test_a_missing_file_names_all_places(folders: dict[str, Path]) -> None:
    message = (
        r"text\.txt: no such file\. It was looked for beside the recipe \(\.\./recipe\), in the "
        r"current folder, in REGARD_DATA \(.*data\)"
    )
    with pytest.raises(UserError, match=message):
        find_data(read_recipe("../recipe/small.toml"), None)


def test_what_describes_a_recipe_may_be_left_out_and_the_task_may_not() -> None:
    text = SMALL.replace('[about]\ntitle = "Tiny"\npaper = "nobody"\nminutes = 0.1\n', "")
    assert "[about]" not in text
    recipe = parse_recipe(text, "mine")
    assert recipe.about.title
    assert parse_recipe(recipe.to_toml(), "again") == recipe
    with pytest.raises(UserError, match="mine: task is missing; it is one of language_model,"):
        parse_recipe(text.replace('task = "language_model"', ""), "mine")


def test_the_best_weights_are_kept_unless_a_recipe_chooses_others() -> None:
    here = Path()
    assert parse_recipe(SMALL, "mine", folder=here).train.weights == "best"
    last = parse_recipe(SMALL, "mine", ["train.weights=last"], folder=here)
    assert last.train.weights == "last"
    assert parse_recipe(SMALL, "shipped").train.weights == "last", "as its figure was measured"


SEVERAL = {
    "classify": ["films.csv"],
    "tag": ["tags.conll"],
    "language": ["text.txt"],
    "words": ["text.txt"],
    "masked": ["talk.txt"],
    "translate": [["a.txt", "b.txt"]],
}


@pytest.mark.parametrize("base", SEVERAL)
def test_every_kind_of_data_takes_several_files(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    for name, content in FILES.items():
        assert isinstance(content, str)
        (tmp_path / name).write_text(content)
    tables = tomllib.loads(BASES[base])
    lengths = []
    for times in (1, 2):
        tables["data"]["train"] = SEVERAL[base] * times
        tables["data"]["validation"] = SEVERAL[base] * times if base != "words" else 0.5
        tables["data"] |= {"words_per_batch": 64} if base == "words" else {}
        recipe = build_recipe(tables)
        assert parse_recipe(recipe.to_toml(), "again") == recipe
        task = recipe.task_class.open(recipe.data, tmp_path)
        lengths.append(len(task.batches()))
    assert lengths[1] > lengths[0] or base in ("classify", "tag", "translate")
    if base in ("classify", "tag", "translate"):
        assert rows_in(task) == 2 * {"classify": 24, "tag": 12, "translate": 16}[base]


def rows_in(task: OpenTask) -> int:
    """How many examples an epoch has."""
    batches = task.batches()
    first = "source_lengths" if "source_lengths" in batches.batch(0, 0) else "lengths"
    return sum(int((batches.batch(0, n)[first] > 0).sum()) for n in range(len(batches)))


def test_names_with_a_pattern_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data/babi").mkdir(parents=True)
    story = "1 Ann slept.\n2 Where is Ann?\tbed\t1\n"
    (tmp_path / "data/babi/qa1_x_train.txt").write_text(story)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    changes = ["data.train=babi/qa{task}_*_train.txt", "data.test="]
    _, place = find_data(read_recipe("babi-memn2n", changes), None)
    assert place == tmp_path / "data"
    with pytest.raises(UserError, match="no such file"):
        find_data(read_recipe("babi-memn2n", ["data.train=babi/qa{task}_*.tsv"]), None)
