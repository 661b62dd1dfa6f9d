"""The first hour, played: four kinds of files, three commands each (first_hour.py)."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from regard.cli import main
from tests.first_hour import MODELS, play, served_command, write_files

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_from_files_alone_to_served_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGARD_DATA", raising=False)
    write_files(tmp_path)

    def run(words: tuple[str, ...]) -> str:
        monkeypatch.setattr(sys, "argv", ["regard", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert not left.value.code, (words, err)
        return out

    measured = play(run, quick=True)
    assert measured["runs/classify"]["accuracy"] > 0.4
    assert set(measured) == {model.run for model in MODELS}
    answers = _served(tmp_path)
    assert set(answers) == set(measured)
    assert all(answers.values())


def _served(place: Path) -> dict[str, object]:
    """What each run answers through one server."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "regard", *served_command()]
    with subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            return {model.run: _predicted(address[0], model.run, model.text) for model in MODELS}
        finally:
            server.terminate()


def _predicted(url: str, run: str, text: str) -> object:
    body = json.dumps({"model": Path(run).name, "text": text}).encode()
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/predict", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())
