"""Recipes: every shipped one builds and steps, and what is wrong with a recipe is named."""

import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from regard.core.errors import UserError
from regard.runs.recipe import Recipe, parse_recipe, read_recipe, shipped_recipes
from regard.runs.run import Run, create, load, open_run
from regard.train.evaluate import FirstBatch, evaluate
from regard.train.optimise import build_optimiser

TAGS = ("I-LOC", "O", "I-PER", "O", "O")
WORDS = ("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "runs", "far", "away")

SMALL = """
task = "language_model"
[about]
title = "Tiny"
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
kind = "gpt"
width = 8
heads = 2
layers = 1
context = 8
[train]
updates = 4
optimiser = { name = "adamw", lr = 1e-3 }
log_every = 1
"""


def files_in(held: object) -> Iterator[str]:
    """Every name of a file in a `[data]` table."""
    if isinstance(held, str) and "/" in held and " " not in held:
        yield held
    elif isinstance(held, dict | list):
        for each in held.values() if isinstance(held, dict) else held:
            yield from files_in(each)


PHOTOS = 9


def photographs(path: Path) -> None:
    """A .zip file with a few small images."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(PHOTOS):
            file = io.BytesIO()
            Image.new("RGB", (8, 8), (28 * number, 90, 200)).save(file, "PNG")
            archive.writestr(f"{number}.png", file.getvalue())


def captions_for(name: str, lines: list[str]) -> str:
    """Captions of these images, or a list of some of them."""
    if "Images" in name:
        first = {"train": 0, "dev": 5, "test": 7}[name.split("_8k.")[1].split("Images")[0]]
        return "\n".join(f"{number}.jpg" for number in range(first, min(first + 5, PHOTOS)))
    rows = ((n, k) for n in range(PHOTOS) for k in range(2))
    return "".join(f"{n}.jpg#{k}\t{lines[2 * n + k]}\n" for n, k in rows)


def written_for(recipe: Recipe, name: str, lines: list[str]) -> str:
    """Text in the form that a recipe's data have."""
    if recipe.task == "caption":
        return captions_for(name, lines)
    if recipe.task == "tag" and "glove" not in name:
        return "".join(
            "".join(f"{w} x {t}\n" for w, t in zip(line.split(), TAGS, strict=False)) + "\n"
            for line in lines
        ).replace("I-", "B-" if recipe.data.model_dump()["scheme"] == "iob2" else "I-")
    if "glove" in name:
        return "".join(f"{word} {' '.join(['0.5'] * 50)}\n" for word in WORDS)
    if "babi" in name:
        story = "1 Mary went to the garden.\n2 John is here.\n3 Where is Mary? \tgarden\t1\n"
        return (story + story.replace("garden", "office")) * 10
    if ".tsv" in name:
        ended = (line.replace("fox", "fox. A") for line in lines)  # in sentences
        return "".join(f"{n % 2}\t7\t{n}\t{line}\n" for n, line in enumerate(ended))
    return "\n".join(lines)


def archived(path: Path, lines: list[str]) -> None:
    """An archive with a document in each file."""
    with tarfile.open(path, "w:xz") as archive:
        for first in range(0, len(lines), 10):
            text = "\n".join(lines[first : first + 10]).encode()
            member = tarfile.TarInfo(f"texts/{first}.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))


OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def write_texts(folder: Path) -> Path:
    """A data folder with text in every place that a shipped recipe reads one from."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [" ".join(draw.choices(WORDS, k=12)) for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(lines))
    for text in shipped_recipes().values():
        recipe = parse_recipe(text, "shipped")
        for name in files_in(recipe.data.model_dump(mode="json")):
            path = folder / name.replace("{task}", "1").replace("*", "x")
            path.parent.mkdir(exist_ok=True, parents=True)
            if path.suffix == ".npz":
                numpy.savez(path, images=numpy.random.default_rng(0).random((450, 3, 4, 4)) < 0.5)
                continue
            if ".tar" in name:
                archived(path, lines)
                continue
            if name.endswith(".zip"):
                photographs(path)
                continue
            with OPENERS.get(path.suffix, open)(path, "wt") as file:
                file.write(written_for(recipe, name, lines))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def small(texts: Path, tmp_path: Path, *changes: str) -> Recipe:
    return parse_recipe(SMALL, "small.toml", changes)


SMALLER = {
    "batch": 2,
    "window": 8,
    "evaluate_batch": 2,
    "longest_question": 2,
    "stride": 2,
    "tokens_per_batch": 200,
    "words_per_batch": 48,
    "record": "line",
}
"""What a recipe's data become for a test."""


def shortened(name: str) -> list[str]:
    """Changes that make a shipped recipe one of two updates."""
    recipe = read_recipe(name)
    data = recipe.data.model_dump(exclude_none=True)
    length = "train.updates=2" if recipe.train.updates is not None else "train.epochs=1"
    smaller = [f"data.{key}={value}" for key, value in SMALLER.items() if key in data]
    if data.get("learn_from") == "counts":
        smaller.append("data.validation=0.5")  # of a few texts, a fiftieth holds no counts
    if recipe.train.weights == "average":
        smaller.append("train.average=1")  # two updates leave fewer checkpoints than a whole run
    return [length, "train.log_every=1", *smaller]


@pytest.fixture(scope="module")
def sources(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run of a shipped recipe that others begin with, as if it were trained."""
    folder = tmp_path_factory.mktemp("sources")

    @cache
    def source(name: str) -> Path:
        run = made(name, texts, folder / name, source)
        save_file(run.model.state_dict(), run.folder / "model.safetensors")
        return run.folder

    return source


def made(name: str, texts: Path, folder: Path, sources: Callable[[str], Path], *more: str) -> Run:
    """A new run of a shipped recipe, with further changes."""
    changes = [*shortened(name), *more]
    if (source := read_recipe(name).source) is not None:
        changes.append(f"model.source={sources(Path(source).name)}")
    return create(read_recipe(name, changes), folder, texts, "cpu")


FEW_PAIRS = ("train=200", "validation=20", "test=20")
"""How many pairs to generate: making the thousands of a shipped recipe takes seconds."""


def few_pairs(name: str) -> list[str]:
    """Changes that make a recipe generate fewer pairs, if it generates any."""
    data = read_recipe(name).data.model_dump(exclude_none=True)
    return [f"data.generate.{each}" for each in FEW_PAIRS] if "generate" in data else []


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_builds_and_takes_two_steps(
    name: str, texts: Path, tmp_path: Path, sources: Callable[[str], Path]
) -> None:
    run = made(name, texts, tmp_path / "run", sources, *few_pairs(name))
    learns = [each for each in run.model.parameters() if each.requires_grad]
    before = [each.clone() for each in learns]
    batches, carry = run.task.batches(), None
    optimiser = build_optimiser(run.recipe.train.optimiser, run.model)
    for index in range(2):
        loss = run.task.loss(run.model, batches.batch(0, index), carry)
        (loss.total / loss.items).backward()
        optimiser.step()
        optimiser.zero_grad()
        carry = loss.carry
    moved = [not torch.equal(a, b) for a, b in zip(before, learns, strict=True)]
    assert all(moved), "a parameter that no loss reaches"
    if run.recipe.train.monitor != "loss":
        found = evaluate(
            run.model, run.task, FirstBatch(run.task.evaluation("validation"))
        ).metrics()
        assert run.recipe.train.monitor in run.task.metrics(found)


def test_a_source_that_is_not_trained_yet_is_said_with_its_recipe(
    texts: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    recipe = read_recipe("ptb-cache", [f"model.source={tmp_path / 'ptb-lstm'}"])
    with pytest.raises(UserError, match=r"begins with the run.*regard train ptb-lstm"):
        create(recipe, tmp_path / "run", texts, "cpu")


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_says_what_it_is(name: str) -> None:
    recipe, text = read_recipe(name), shipped_recipes()[name]
    assert text.startswith("# ")
    assert f"regard train {name}" in text
    assert recipe.about.paper
    assert (recipe.about.minutes or 0) > 0
    if any(files_in(recipe.data.model_dump(mode="json"))):
        assert vars(recipe.data)["origin"]
    assert recipe.figure is not None
    assert recipe.figure.source


def test_a_run_trains_is_loaded_and_measures_the_same(texts: Path, tmp_path: Path) -> None:
    recipe = small(texts, tmp_path)
    run = create(recipe, tmp_path / "run", texts, "cpu")
    assert run.train().outcome == "finished"
    again = load(tmp_path / "run", "cpu")
    assert again.recipe == recipe
    assert again.evaluate() == run.evaluate()
    for name in ("recipe.toml", "config.json", "tokenizer.json", "model.safetensors"):
        assert (tmp_path / "run" / name).exists()
    assert "validation" in (tmp_path / "run" / "metrics.json").read_text()
    assert "# Tiny" in (tmp_path / "run" / "README.md").read_text()


def test_a_figure_to_watch_that_there_is_not_is_named_before_training(
    texts: Path, tmp_path: Path
) -> None:
    recipe = parse_recipe(SMALL, "small.toml", ["train.monitor=perplexty"])
    with pytest.raises(UserError, match="unknown metric 'perplexty': did you mean 'perplexity'"):
        create(recipe, tmp_path / "run", texts, "cpu")
    assert not (tmp_path / "run").exists()


def test_the_resolved_recipe_reads_back_as_itself() -> None:
    for name, text in {**shipped_recipes(), "small": SMALL}.items():
        recipe = parse_recipe(text, name)
        assert parse_recipe(recipe.to_toml(), name) == recipe


def test_changes_reach_the_recipe() -> None:
    recipe = parse_recipe(
        SMALL, "small", ["model.width=16", "data.train=other.txt", "train.clip=0.5"]
    )
    assert recipe.model.model_dump()["width"] == 16
    assert (recipe.data.train, recipe.train.clip) == ("other.txt", 0.5)


def test_a_change_to_nothing_takes_a_value_out() -> None:
    plain = parse_recipe(SMALL, "small")
    assert parse_recipe(SMALL, "small", ["train.clip=0.5", "train.clip="]) == plain
    assert parse_recipe(SMALL, "small", ["train.clip=", "train.clip=3"]).train.clip == 3


def test_what_another_kind_does_not_know_can_be_taken_out() -> None:
    changes = ["model.kind=rnn_lm", "model.heads=", "model.context="]
    assert parse_recipe(SMALL, "small", changes).model.model_dump()["layers"] == 1
    with pytest.raises(UserError, match=r"small: unknown key 'heads'"):
        parse_recipe(SMALL, "small", [*changes, "model.heads="])


BAD = {
    "an unknown part": ("[modle]\n", [], "unknown part of a recipe 'modle': did you mean 'model'"),
    "an unknown key": ("", ["train.clop=1"], r"small.toml: unknown key 'train.clop'.*'train.clip'"),
    "an unknown model": ("", ["model.kind=gtp"], "unknown model 'gtp': did you mean 'gpt'"),
    "a wrong type": ("", ["model.width=wide"], r"model.width='wide' must be a valid integer"),
    "paragraphs of a table": (
        "",
        ["data.record=paragraph", "data.field=a"],
        'record="paragraph" is for plain texts',
    ),
    "a value of less than nothing": ("", ["data.batch=0"], "data.batch=0 must be greater than 0"),
    "a share of more than all": (
        "",
        ["data.validation=1.5"],
        "data.validation: 1.5 must be a file",
    ),
    "no TOML": ("width = = 3", [], "small.toml: not TOML: .*line"),
    "a change without a value": (
        "",
        ["train.clip"],
        "--set takes part.key=value, not 'train.clip'",
    ),
    "a key to take out that there is not": (
        "",
        ["train.clop="],
        "small.toml: unknown key 'clop': did you mean 'clip'",
    ),
    "a value to take out that must be there": ("", ["data.train="], "data.train"),
    "a change inside a value": ("", ["task.name=3"], "task is a value, not a table"),
    "steps for a continuous text": ("", ["data.order=continuous"], "steps is for order="),
    "a text without turns": (
        "",
        ["model.kind=hred", "model.heads=", "model.layers="],
        r"model.end=3 \(<eos>\), which closes a turn, is nowhere in text.txt: .* such as",
    ),
    "heads that do not divide": ("", ["model.heads=3"], "width=8 is not divisible by heads=3"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_recipe_is_named(
    case: str, texts: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    more, changes, message = BAD[case]
    with pytest.raises(UserError, match=message):
        create(parse_recipe(SMALL + more, "small.toml", changes), tmp_path / "run", texts, "cpu")


def test_a_folder_of_its_name_does_not_hide_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ptb-lstm").mkdir()
    assert read_recipe("ptb-lstm").kind


@pytest.mark.parametrize("change", ["data.tokeniser=word", "model.end=4"])
def test_a_text_with_turns_is_trained_on(change: str, texts: Path, tmp_path: Path) -> None:
    changes = ["model.kind=hred", "model.heads=", "model.layers=", change]
    create(small(texts, tmp_path, *changes), tmp_path / "run", texts, "cpu")


def test_unknown_recipes_and_missing_files_are_named(tmp_path: Path, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown recipe 'ptb-elmen': did you mean 'ptb-elman'"):
        read_recipe("ptb-elmen")
    with pytest.raises(UserError, match=r"nowhere\.toml: no such recipe file"):
        read_recipe(str(tmp_path / "nowhere.toml"))
    (tmp_path / "texts.txt").write_text("a")
    with pytest.raises(
        UserError, match=r"text\.txt: no such file; did you mean .*texts\.txt\?.*--data"
    ):
        create(parse_recipe(SMALL, "small"), tmp_path / "run", tmp_path, "cpu")
    with pytest.raises(UserError, match="It comes from: Mikolov's"):
        create(read_recipe("ptb-lstm"), tmp_path / "run", tmp_path, "cpu")


def test_runs_that_cannot_be_opened_are_named(
    texts: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    folder = tmp_path / "run"
    recipe = small(texts, tmp_path)
    create(recipe, folder, texts, "cpu")
    with pytest.raises(UserError, match="there is a run already; go on with `regard resume"):
        create(recipe, folder, texts, "cpu")
    with pytest.raises(UserError, match="not trained yet"):
        load(folder)
    with pytest.raises(UserError, match=r"this is no run folder .*; did you mean .*run\?"):
        open_run(tmp_path / "rum")
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file"):
        load(folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(UserError, match="format 99 is newer than this regard knows"):
        open_run(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recipe.toml", b"task = 1 # \xff", r"recipe\.toml: byte 12, 0xff, is not UTF-8"),
        ("config.json", b"\xff", r"config\.json: byte 1, 0xff, is not UTF-8"),
        ("config.json", b"{", r"config\.json: not JSON"),
        ("config.json", b"[]", r"config\.json: not a JSON object"),
        ("config.json", b"null", r"config\.json: not a JSON object"),
        ("config.json", b"3", r"config\.json: not a JSON object"),
        ("config.json", b"{}", r"config\.json: format is None, which regard does not write"),
        ("config.json", b'{"format": "1"}', r"config\.json: format is '1', which regard does not"),
        ("config.json", b'{"format": 1}', r"config\.json: names no data folder; give .* --data"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(
    name: str, content: bytes, message: str, texts: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    create(small(texts, tmp_path), tmp_path / "run", texts, "cpu")
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_run(tmp_path / "run")
    if name == "recipe.toml":
        with pytest.raises(UserError, match=message):
            read_recipe(str(tmp_path / "run" / name))


def test_a_checkpoint_of_another_shape_is_refused(
    texts: Path, tmp_path: Path, as_users_run_it: None
) -> None:
    run = create(small(texts, tmp_path), tmp_path / "one", texts, "cpu")
    run.train()
    create(small(texts, tmp_path, "model.width=16"), tmp_path / "two", texts, "cpu")
    weights = (tmp_path / "one" / "model.safetensors").read_bytes()
    (tmp_path / "two" / "model.safetensors").write_bytes(weights)
    with pytest.raises(UserError, match=r"embed\.table\.weight"):
        load(tmp_path / "two")
