"""One writer for a folder, whoever it is and however it ends."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.core.lock import LOCK, one_writer

HOLD = """
import sys
from pathlib import Path
from regard.core.lock import one_writer
with one_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Another process that has the lock of a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_another_process_is_named_and_its_death_releases_the_lock(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        message = rf"process {process.pid} on .* since .*--name"
        with pytest.raises(UserError, match=message), one_writer(tmp_path):
            pass
    finally:
        ended(process)  # as kill -9 does
    with one_writer(tmp_path):
        assert (tmp_path / LOCK).exists()


def test_another_thread_is_refused_and_the_same_one_is_not(tmp_path: Path) -> None:
    refused: list[str] = []

    def enter() -> None:
        try:
            with one_writer(tmp_path):
                pass
        except UserError as error:
            refused.append(str(error))

    with one_writer(tmp_path), one_writer(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(refused) == 1  # it is free again


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = r"file.*cannot be written: "
    with pytest.raises(UserError, match=message), one_writer(tmp_path / "file"):
        pass
