"""Terminals of any width, streams that cannot be written to, and what is told on them."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from select import select

import pytest

from regard.train.display import BarDisplay
from tests.cli.command import Regard
from tests.cli.test_long_texts import TRANSLATOR

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parent.parent.parent
LONG = "update 350: 0:12:34 left, epoch 0.0123, loss 4.123, accuracy 0.5123, lr 0.001, norm 1.234, "


def on_terminal(width: int, command: list[str], folder: Path, text: str = "") -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    written: list[bytes] = []

    def read() -> None:
        while True:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:
                return
            if not some:
                return
            written.append(some)

    reader = threading.Thread(target=read)
    reader.start()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
    )
    os.write(ours, text.encode())
    process.wait(120)
    os.close(theirs)
    reader.join(10)
    os.close(ours)
    return b"".join(written).decode()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_bar_stays_on_terminals_of_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as stream:
        display = BarDisplay(stream)
        display.begin(0, 20_000)
        display.tick(399)
        display.show(LONG * 2, transient=True)
        display.end()
        written = b""
        while b"399/20000" not in written:
            written += os.read(ours, 1 << 16)
        written += os.read(ours, 1 << 16) if select([ours], [], [], 0.5)[0] else b""
    os.close(ours)
    (last,) = [line for line in written.decode().split("\r") if "399/20000" in line][-1:]
    assert "━" in last
    assert "0:12:34 left" in last or width < 80


@pytest.mark.parametrize("width", [80, 200])
def test_the_zoo_cuts_no_recipe(width: int, place: Path) -> None:
    written = on_terminal(width, [sys.executable, "-m", "regard", "zoo"], place)
    assert "multi30k-encoder-decoder" in written
    assert "bidirectional_lm" in written or width > 100
    assert "…" not in written


def test_a_person_who_types_is_answered_line_by_line(place: Path, regard: Regard) -> None:
    (place / "a.txt").write_text("a b c\n" * 16)
    (place / "b.txt").write_text("x y z\n" * 16)
    (place / "pairs.toml").write_text(TRANSLATOR)
    assert regard("train", "pairs.toml").returncode == 0
    for verb in ("translate", "predict"):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "regard", verb, "runs/pairs"],
            cwd=place,
            stdin=theirs,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        assert process.stdout is not None
        try:
            for text in ("a b\n", "b c\n"):  # the second is typed after the first was answered
                os.write(ours, text.encode())
                ready, _, _ = select([process.stdout], [], [], 60)
                assert ready, "no answer before the end of the input"
                assert process.stdout.readline().endswith("\n")
        finally:
            process.kill()
            process.communicate()
            os.close(theirs)
            os.close(ours)


def test_every_extra_of_the_doctor_is_used(regard: Regard) -> None:
    rows = {line.split()[0] for line in regard("doctor").stdout.splitlines()}
    assert {"look", "serve", "export", "track"} <= rows
    assert "sweep" not in rows, "nothing uses optuna"


def test_the_modules_of_the_package_are_there_at_once() -> None:
    code = "import regard; print(regard.look.draw, regard.attention.Attend, regard.explain)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "draw" in done.stdout


def test_suggested_commands_quote_their_paths(place: Path, regard: Regard) -> None:
    done = regard("train", "small.toml", "--name", "my run")
    assert "try: regard generate 'runs/my run' --prompt" in done.stdout
    again = regard("train", "small.toml", "--name", "my run")
    assert "`regard resume 'runs/my run'`" in again.stderr


def test_the_zoo_by_task_and_by_word(regard: Regard) -> None:
    rows = [
        json.loads(line)
        for line in regard("zoo", "--task", "tag", "--json").stdout.split("\n")
        if line
    ]
    assert {row["task"] for row in rows} == {"tag"}
    assert {row["recipe"] for row in rows} >= {"conll2003-crf", "conll2003-bert"}
    found = regard("zoo", "ELMo", "--task", "tag").stdout
    assert "conll2003-elmo" in found
    assert "conll2003-bert" not in found
    wrong = regard("zoo", "--task", "tagg")
    assert (wrong.returncode, "did you mean 'tag'" in wrong.stderr) == (2, True)


def test_the_version(regard: Regard) -> None:
    assert regard("--version").stdout == "regard 0.1.0\n"


def run_in_shell(
    command: str, place: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        f"{sys.executable} -m regard {command}",
        shell=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("zoo > /dev/full", "regard: stdout: No space left on device\n"),
        ("zoo --json > /dev/full", "regard: stdout: No space left on device\n"),
        ("train small.toml --runs /proc/none", "regard: /proc/none/small: cannot be written: "),
        (
            "train small.toml --set train.seed=123456789012345678901",
            "regard: small.toml: train.seed",
        ),
        ("train small.toml --set data.seed=-1", "regard: small.toml: data.seed=-1 must be "),
    ],
)
def test_what_cannot_be_written_ends_in_one_line(command: str, message: str, place: Path) -> None:
    done = run_in_shell(command, place)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_an_output_that_holds_ascii_alone_is_named(place: Path, regard: Regard) -> None:
    (place / "text.txt").write_text("café crème\n" * 60)
    assert regard("train", "small.toml").returncode == 0
    words = "generate runs/small --prompt café"
    done = run_in_shell(words, place, PYTHONIOENCODING="ascii")
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "regard: this output cannot hold '\\xe9', since its encoding is ascii; set "
        "PYTHONIOENCODING=utf-8\n"
    )
    assert run_in_shell(words, place).stdout.startswith("café")
