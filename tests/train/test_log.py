"""The log and what is shown of it."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from regard.core.errors import UserError
from regard.train.display import BarDisplay, LineDisplay, SilentDisplay, display_for
from regard.train.log import Log, truncate_log
from tests.train.tiny import run


def test_every_line_is_strict_json_with_its_update(tmp_path: Path) -> None:
    with Log(tmp_path, SilentDisplay(), after=0) as log:
        log.log_training(5, {"loss": float("nan"), "lr": 0.1}, seconds_left=3.0)
        log.log_validation(5, {"perplexity": float("inf")}, best=True)
        log.note(6, 'a "note"')
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"update": 5, "loss": None, "lr": 0.1},
        {"update": 5, "validation": {"perplexity": None}},
        {"update": 6, "note": 'a "note"'},
    ]


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b"", 3),
        (b'{"update": 3}\n', 3),
        (b'{"update": 2}', 3),
        (b"not json\n", 3),
        (b"[]\n", 3),
        (b'{"note": 1}\n', 3),
        (b"\xff\xfe\n", 3),
        (b'{"update": 2}\n', 4),
    ],
)
def test_lines_after_an_update_or_not_whole_are_forgotten(
    tail: bytes, kept: int, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"update": 1}\n{"update": 2}\n{"update": 2}\n' + tail)
    truncate_log(path, 2)
    assert len(path.read_bytes().splitlines()) == kept
    assert path.read_bytes().endswith(b"\n")


def test_lines_for_a_pipe_say_speed_and_time_left(tmp_path: Path) -> None:
    stream = (tmp_path / "shown").open("w+")
    display = display_for(stream)
    assert isinstance(display, LineDisplay)
    with Log(tmp_path, display, after=0) as log:
        display.begin(0, 100)
        display.tick(50)
        log.log_training(50, {"loss": 2.5, "items_per_second": 12345.0}, seconds_left=75.4)
        log.log_validation(50, {"loss": 2.25}, best=True)
    stream.close()
    assert (tmp_path / "shown").read_text().splitlines() == [
        "update 50: 0:01:15 left, loss 2.5, items_per_second 12,345",
        "update 50: validation loss 2.25, best",
    ]


class Terminal(io.TextIOWrapper):
    mode = "w"

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_is_taken_down_at_the_end(tmp_path: Path) -> None:
    stream = Terminal((tmp_path / "shown").open("wb"))
    display = display_for(stream)
    assert isinstance(display, BarDisplay)
    with Log(tmp_path, display, after=0) as log:
        display.begin(10, 100)
        display.tick(50)
        log.log_training(50, {"loss": 2.5}, seconds_left=75.0)
        log.log_validation(50, {"loss": 2.25}, best=False)
    stream.close()
    shown = (tmp_path / "shown").read_text()
    assert "50/100" in shown
    assert "validation loss 2.25" in shown
    assert not display.progress.live.is_started


def test_the_display_knows_nothing_of_torch_or_rich_until_it_must() -> None:
    code = (
        "import sys, regard.train.display as d; d.LineDisplay(); "
        "print(sorted({'rich', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_full_disk_gives_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, SilentDisplay(), after=0)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError) as caught:
        log.note(1, "text")
    assert str(caught.value) == f"cannot write {tmp_path}/log.jsonl: No space left on device"


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/log\.jsonl"):
        Log(tmp_path / "file", SilentDisplay(), after=0)


def test_tensorboard_that_is_missing_is_said_before_any_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[track\]'"):
        run(tmp_path, tensorboard=True)


def test_tensorboard_gets_every_number_of_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[tuple[str, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == (str(tmp_path / "tensorboard"), 1)

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            points.append((tag, global_step))

        def close(self) -> None:
            points.append(("closed", 0))

    fake = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    run(tmp_path, tensorboard=True)
    assert ("train/loss", 12) in points
    assert ("validation/perplexity", 8) in points
    assert points[-1] == ("closed", 0)
