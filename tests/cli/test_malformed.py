"""Malformed recipes and files: one line each, no traceback, no folder left."""

from pathlib import Path

import pytest

from tests.cli.command import Regard
from tests.cli.malformed import BASES, CASES, FILES

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_the_bases_work(regard: Regard, place: Path) -> None:
    """Else the cases would be refused for another reason."""
    for name, content in FILES.items():
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for name, text in BASES.items():
        (place / f"{name}.toml").write_text(text)
        done = regard("train", f"{name}.toml")
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_there_are_a_hundred() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_work_is_one_line_and_leaves_nothing(
    name: str, regard: Regard, place: Path
) -> None:
    case = CASES[name]
    for file, content in {**FILES, **case.files}.items():
        if content is None:
            (place / file).unlink(missing_ok=True)
            continue
        (place / file).write_bytes(content.encode() if isinstance(content, str) else content)
    text = BASES[case.base]
    assert case.replaced[0] in text
    (place / "mine.toml").write_text(text.replace(*case.replaced) if case.replaced[0] else text)
    changes = [word for each in case.changes for word in ("--set", each)]
    done = regard("train", "mine.toml", *changes)
    assert done.returncode == 2, f"{name}: {done.stdout}{done.stderr}"
    assert done.stderr.startswith("regard: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "runs").exists()
