"""A place to run commands in, and a way to run them."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from regard.cli import main
from tests.cli.command import Done, Regard
from tests.recipes.test_recipes import SMALL


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text and a recipe, in which the commands run."""
    (tmp_path / "text.txt").write_text("to be or not to be that is the question\n" * 60)
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def regard(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Regard:
    """Run a command in this process: `regard("train", "small.toml")`."""

    def run(*words: str, text: str | bytes = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["regard", *words])
        given = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given), encoding="utf-8"))
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return run
