"""Every command of README.md and docs/: each is one that regard takes, and at night each is run.

At night (`make nightly`) the commands of a page run one after another in one folder, with shipped
recipes of two updates on made-up data, so that a page is followed as a person would follow it.
"""

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import tomli_w
import typer.main
from click import Command, Context, Group

import regard.runs.recipe
import regard.runs.run
from regard.cli import app, main
from regard.runs.recipe import read_recipe, shipped_recipes
from tests.recipes.test_recipes import few_pairs, shortened, write_texts

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NEEDS = {
    "data get": "a network; tests/datasets has its server",
    "serve": "does not end; tests/serve starts it",
    "runs/captions": "an image model, which this page does not train",
    "FOLDER": "a download that only people may make",
    "--data DIR": "a folder of one's own",
    "runs/my-reader": "a run of one's own",
    "people.txt": "alignments made by people",
    "runs/gpt2": "a GPT-2 of one's own; tests/hub imports small ones",
    "runs/mine --ablate": "the run that comes of it",
    "runs/mine --keep": "the run that comes of it",
    "glove.6B.50d.txt": "vectors that are read in full",
    "plot actor": "words that only real reviews have",
}
"""Commands that are not run at night, by a part of them, and what they would need."""


def commands_of(page: Path) -> list[str]:
    """The commands of a page, without what is said about them."""
    lines: list[str] = []
    fenced: str | None = None
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = line[3:].strip() if fenced is None else None
        elif fenced in ("sh", "bash", "text", "") or (fenced is None and line.startswith("    ")):
            lines.append(line)
    kept = [re.split(r"\s{2,}(?=#|[a-z])", line.strip())[0] for line in lines]
    return [line for line in kept if re.search(r"(^|\| )regard [a-z]", line)]


EVERY = [(page.name, line) for page in PAGES for line in commands_of(page)]


def words_of(line: str) -> list[str]:
    """The words after `regard`, without redirections."""
    words = shlex.split(line.rpartition("| ")[2], comments=True)
    for sign in ("<", ">"):
        if sign in words:
            words = words[: words.index(sign)]
    return words[1:]


def parse(command: Command, words: list[str], parent: Context | None = None) -> None:
    """Raise if a command does not take these words."""
    context = command.make_context(command.name, list(words), parent=parent)
    if isinstance(command, Group):
        name, inner, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert name is not None
        assert inner is not None
        parse(inner, rest, context)


@pytest.mark.parametrize(("page", "line"), EVERY)
def test_every_command_of_the_pages_is_one(page: str, line: str) -> None:
    parse(typer.main.get_command(app), words_of(line))


def test_the_pages_have_commands() -> None:
    assert len(EVERY) > 100
    assert {page for page, _ in EVERY} >= {"train.md", "translate.md", "pretrained.md"}


def test_recipes_that_the_pages_name_are_there() -> None:
    for page, line in EVERY:
        words = words_of(line)
        if words[0] in ("train", "reproduce", "compare", "cost") and "--task" not in words:
            name = words[1]
            assert name in shipped_recipes() or ".toml" in name, f"{page}: {line}"


def shortened_recipes(folder: Path) -> dict[str, str]:
    """The shipped recipes, of two updates each."""
    short = {}
    for name in shipped_recipes():
        changes = [*shortened(name), *few_pairs(name)]
        # Whole trainings, unlike two updates, meet batches of so few words that none is left.
        kept = [each for each in changes if "words_per_batch" not in each]
        short[name] = read_recipe(name, kept).to_toml()
    return short


def write_files(folder: Path) -> None:
    """What people have in the folder in which they type."""
    labelled = "label,text\n" + "pos,a fine film\nneg,a dull film\n" * 40
    for name in ("train.csv", "new.csv", "other.csv", "reviews.csv"):
        (folder / name).write_text(labelled)
    (folder / "train.conll").write_text("John B-PER\nsleeps O\n\n" * 40)
    for name in ("train.de", "train.en", "new.de", "new.en", "test.en", "test.de", "in.txt"):
        (folder / name).write_text("a dog runs\nthe fox sleeps\n" * 40)
    for name in ("book.txt", "texts.txt", "mine.txt", "reviews.txt"):
        (folder / name).write_text("the quick brown fox jumps over the lazy dog\n" * 80)
    from tests.hub.folders import bert_folder

    bert_folder(folder / "bert-base-uncased")
    small = tomllib.loads(regard.runs.recipe.shipped_recipes()["shakespeare-gpt-small"])
    small["data"]["test"] = small["data"]["train"]
    (folder / "mine.toml").write_text(tomli_w.dumps(small))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data and recipes, in which all pages are followed."""
    folder = tmp_path_factory.mktemp("pages")
    write_texts(folder)
    with pytest.MonkeyPatch.context() as patch:
        short = shortened_recipes(folder)
        for module in (regard.runs.recipe, regard.runs.run):
            patch.setattr(module, "shipped_recipes", lambda: short)
        patch.chdir(folder)
        patch.setenv("REGARD_DATA", str(folder))
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        write_files(folder)
        yield folder


def run(words: list[str], said: bytes, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command in this process; its exit code and what it wrote to stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["regard", *words])
        patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(said), encoding="utf-8"))
        with pytest.raises(SystemExit) as left:
            main()
    return int(left.value.code or 0), capsys.readouterr().err


@pytest.mark.skipif(not os.environ.get("REGARD_NIGHTLY"), reason="minutes: make nightly")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_followed(
    page: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for line in commands_of(page):
        if any(part in line for part in NEEDS):
            continue
        words = words_of(line)
        for name in re.findall(r"runs/([\w-]+)", line):
            if name in shipped_recipes() and not (place / "runs" / name).exists():
                train_with_sources(name, capsys)
        if words[0] == "train" and (place / "runs" / Path(words[1]).stem).exists():
            words.append("--overwrite")
        if words[:2] == ["recipe", "new"]:
            Path(words[words.index("-o") + 1]).unlink(missing_ok=True)
        before, _, _ = line.rpartition(" | ")
        said = before.split(" ", 1)[-1].strip("'\"").encode().replace(b"\\n", b"\n") + b"\n"
        read = re.search(r"< (\S+)", line)
        if read is not None:
            said = Path(read[1]).read_bytes()
        code, err = run(words, said.replace(b"\\t", b"\t"), capsys)
        if code not in (0, 1) or (code == 1 and words[0] != "reproduce"):
            failed.append(f"{line}\n    {err.strip().splitlines()[-1:]}")
    assert not failed, "\n".join(failed)


def train_with_sources(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Train a shipped recipe, and before it the run that it begins with."""
    source = read_recipe(name).source
    if source is not None and not Path(source).exists():
        train_with_sources(Path(source).name, capsys)
    code, err = run(["train", name], b"", capsys)
    assert code == 0, err
