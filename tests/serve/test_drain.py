"""The command: what it says at the start, and that it ends well when it is told to."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.live import soon

STARTS = 60.0
"""Seconds that importing torch may take on a machine with other things to do."""


@pytest.fixture
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`regard serve` in a process of its own, and where it serves."""
    command = [sys.executable, "-m", "regard", "serve", str(folder / "rnn"), "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert " at http://127.0.0.1:" in line, process.stderr and process.stderr.read()
        yield process, line.split(" at ")[1].split()[0]
        process.kill()


def test_what_has_begun_is_finished_and_nothing_else(
    serving: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = serving
    asked = {"model": "rnn", "prompt": "to", "max_tokens": 1500, "temperature": 0}
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/completions", json=asked, timeout=60))

    thread = threading.Thread(target=ask)
    thread.start()
    assert soon(lambda: "regard_writing 1" in httpx.get(f"{url}/metrics").text, 20)
    process.send_signal(signal.SIGTERM)
    assert soon(lambda: refused(url), 10)
    thread.join(60)
    assert [answer.status_code for answer in answers] == [200]
    assert answers[0].json()["usage"]["completion_tokens"] == 1500
    assert process.wait(20) == 0
    assert process.stderr
    assert process.stderr.read() == ""


def refused(url: str) -> bool:
    """Is no connection taken any more?"""
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 503
    except httpx.TransportError:
        return True


def test_an_idle_server_ends_at_once(serving: tuple[subprocess.Popen[str], str]) -> None:
    process, url = serving
    assert httpx.get(f"{url}/health").status_code == 200
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 10
