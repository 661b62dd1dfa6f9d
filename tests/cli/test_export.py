"""regard export for other programs, as people type it."""

from pathlib import Path

import pytest

from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_a_run_is_written_for_ctranslate2_and_found_the_same(place: Path, regard: Regard) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    assert regard("train", "small.toml", "--name", "small").returncode == 0
    done = regard("export", "runs/small", "-o", "out", "--format", "ctranslate2")
    assert done.returncode == 0, done.stderr
    assert "finds texts as likely as the run does, to " in done.stdout
    generator = ctranslate2.Generator(str(place / "out"))
    (written,) = generator.generate_batch([["t", "o"]], max_length=5, sampling_topk=1)
    assert written.sequences[0][:2] == ["t", "o"]


def test_a_format_that_nobody_knows_is_refused(regard: Regard) -> None:
    wrong = regard("export", "runs/none", "-o", "out", "--format", "onxx")
    assert wrong.returncode == 2
    assert "unknown format 'onxx': did you mean 'onnx'" in wrong.stderr
