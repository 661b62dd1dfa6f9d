"""A recipe is checked whole before anything is written: a refused start leaves no folder."""

from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.experiments.compare import Comparison, parse_vary, run_comparison
from regard.models import MODELS
from regard.runs.recipe import Recipe, build_recipe, config_values, read_recipe, shipped_recipes
from regard.runs.run import create
from regard.tasks import TASKS
from tests.recipes.test_recipes import few_pairs, shortened, write_texts

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def short(name: str, *changes: str) -> Recipe:
    return read_recipe(name, [*shortened(name), *few_pairs(name), *changes])


def first_recipes() -> tuple[dict[str, Recipe], dict[str, Recipe]]:
    """A shipped recipe of each task, and of each model."""
    tasks: dict[str, Recipe] = {}
    models: dict[str, Recipe] = {}
    for name in shipped_recipes():
        recipe = short(name)
        models.setdefault(recipe.kind, recipe)
        if recipe.source is None and getattr(recipe.data, "tokeniser", "") != "source":
            tasks.setdefault(recipe.task, recipe)
    return tasks, models


TASK_RECIPES, MODEL_RECIPES = first_recipes()


@pytest.mark.parametrize("task", TASK_RECIPES)
def test_every_model_of_another_task_is_refused_in_one_line(
    task: str, texts: Path, tmp_path: Path
) -> None:
    of_task, refused = TASK_RECIPES[task], {}
    for kind in MODELS:
        model = MODEL_RECIPES[kind].model if kind in MODEL_RECIPES else MODELS[kind].Config()
        tables = {
            "task": task,
            "about": config_values(of_task.about),
            "data": config_values(of_task.data),
            "model": {"kind": kind, **config_values(model)},
            "train": config_values(of_task.train),
        }
        try:
            create(build_recipe(tables), tmp_path / kind, texts, "cpu")
        except UserError as error:
            refused[kind] = str(error)
            assert not (tmp_path / kind).exists()
    assert len(refused) >= 20
    assert not any("\n" in line for line in refused.values())
    for kind, line in refused.items():
        other = MODEL_RECIPES.get(kind, of_task).task
        if not issubclass(TASKS[other].output, TASKS[task].output):
            assert f"model.kind={kind!r} is no model for task {task!r}" in line
            assert f" {of_task.kind}" in line.partition("models for it:")[2]


REFUSED = {
    "an optimiser that takes no sparse gradients": (
        "imdb-cbow",
        ["train.optimiser={name='adam',lr=0.1}"],
        "CBOW has embeddings with sparse gradients; the optimisers that support them are adagrad",
    ),
    "stages of a model without layers": (
        "dates",
        ["train.stages={unfreeze=1}"],
        r"train.stages needs a model with the method stages\(\); Bahdanau has none",
    ),
    "fewer checkpoints than are averaged": (
        "imdb-gpt",
        ["train.updates=100", "train.save_every=50", "train.weights=average", "train.average=3"],
        'weights = "average" needs 3 checkpoints, but 2 are saved in 100 updates',
    ),
    "weights of other classes": (
        "sst-cnn",
        ["data.class_weights={a=1.0,b=2.0}"],
        "class_weights are for a, b; the classes are",
    ),
    "nesterov without momentum": (
        "imdb-gpt",
        ["train.optimiser={name='sgd',lr=0.1,nesterov=true}"],
        "nesterov=true needs a momentum above zero",
    ),
    "a metric that there is not": (
        "imdb-gpt",
        ["train.monitor=perplexty"],
        "unknown metric 'perplexty': did you mean 'perplexity'",
    ),
    "a figure that nothing measures": (
        "imdb-gpt",
        ["figure.metric=perplexty"],
        "unknown metric of figure 'perplexty'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_fail_later_is_refused_and_leaves_no_folder(
    case: str, texts: Path, tmp_path: Path
) -> None:
    name, changes, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        create(short(name, *changes), tmp_path / "run", texts, "cpu")
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_before_anything_is_written(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.runs.checks.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package tensorboard: pip install 'regard\["):
        create(short("imdb-gpt", "train.tensorboard=true"), tmp_path / "run", texts, "cpu")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_could_not_be_filled_is_removed(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("regard.runs.run.write_text", full)
    with pytest.raises(UserError, match="full"):
        create(short("imdb-gpt"), tmp_path / "run", texts, "cpu")
    assert not (tmp_path / "run").exists()


def test_every_value_of_a_comparison_is_checked_before_one_is_trained(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr("regard.experiments.compare._train_all", never)
    changes = (*shortened("imdb-gpt"), "train.optimiser={name='sgd',lr=0.1}")
    vary = parse_vary(["train.optimiser.nesterov=false,true"])
    with pytest.raises(UserError, match=r"^train.optimiser.nesterov=true: nesterov=true needs"):
        run_comparison(
            Comparison(recipe="imdb-gpt", vary=vary, changes=changes), tmp_path / "c", texts
        )
    width = Comparison(
        recipe="imdb-gpt",
        vary=parse_vary(["model.dropout=0.0,0.1"]),
        changes=changes,
        metric="perplexty",
    )
    with pytest.raises(UserError, match="unknown metric 'perplexty'"):
        run_comparison(width, tmp_path / "c", texts)
    assert not (tmp_path / "c").exists()
