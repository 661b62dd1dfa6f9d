"""The verb: what it refuses before it opens anything, and what goes wrong later."""

import builtins
import socket
from pathlib import Path

import httpx
import pytest
import torch

from regard.runs.run import Run
from regard.serve import Served
from tests.cli.command import Regard
from tests.cli.conftest import place as place
from tests.cli.conftest import regard as regard
from tests.serve.live import Live, soon


def test_other_addresses_need_a_key(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_API_KEY", raising=False)
    done = regard("serve", "runs/none", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "set an API key" in done.stderr


def test_a_run_that_is_missing_is_named(regard: Regard) -> None:
    done = regard("serve", "runs/none")
    assert done.returncode == 2
    assert "runs/none: this is no run folder" in done.stderr


def test_a_run_that_is_half_written_is_named(regard: Regard, folder: Path) -> None:
    half = Path("half")
    half.mkdir()
    (half / "config.json").write_text((folder / "gpt" / "config.json").read_text()[:20])
    done = regard("serve", "half")
    assert done.returncode == 2
    assert "half/config.json: not JSON" in done.stderr


def test_two_runs_of_one_name_are_refused(regard: Regard, folder: Path) -> None:
    gpt = str(folder / "gpt")
    done = regard("serve", gpt, gpt)
    assert done.returncode == 2
    assert "two runs are called 'gpt'" in done.stderr


def test_a_port_that_is_taken_is_said(regard: Regard, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = regard("serve", str(folder / "gpt"), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen at 127.0.0.1" in done.stderr


def test_without_the_extra_the_command_to_install_it_is_said(
    regard: Regard, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object) -> object:
        if name.startswith("regard.serve.server"):
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    done = regard("serve", "runs/none")
    assert done.returncode == 2
    assert "pip install 'regard[serve]'" in done.stderr


def test_a_model_that_fails_ends_its_texts_and_not_the_server(
    live: Live, opened: dict[str, Run], runs: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = next(run for run in runs if run.name == "rnn").trained
    asked = {"model": "rnn", "prompt": "to", "max_tokens": 3}
    assert soon(lambda: live.server.engine.warm, 20)

    def broken(tokens: object, state: object) -> object:
        raise RuntimeError("out of order")

    with monkeypatch.context() as patch:
        patch.setattr(model, "step", broken)
        answer = httpx.post(f"{live.url}/v1/completions", json=asked)
        assert answer.status_code == 500
        assert "out of order" not in answer.text
        stream = httpx.post(f"{live.url}/v1/completions", json={**asked, "stream": True})
        assert '"error"' in stream.text

    def diverged(tokens: torch.Tensor, state: object) -> object:
        return torch.full((len(tokens), 20), torch.nan), state

    with monkeypatch.context() as patch:
        patch.setattr(model, "step", diverged)
        assert httpx.post(f"{live.url}/v1/completions", json=asked).status_code == 500
    assert httpx.post(f"{live.url}/v1/completions", json=asked).status_code == 200
    assert soon(lambda: live.server.engine.writing == 0)
