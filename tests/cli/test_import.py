"""regard import and regard export: a checkpoint becomes a run, and a run a checkpoint."""

from pathlib import Path

import pytest

from tests.cli.command import Regard
from tests.hub.folders import bert_folder


def test_a_checkpoint_is_imported_used_and_exported(regard: Regard, place: Path) -> None:
    bert_folder(place / "bert")
    done = regard("import", "bert", "-o", "runs/mine")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bert of ")
    assert "| regard predict runs/mine" in done.stdout
    assert regard("predict", "runs/mine", text="the [MASK] sat .\n").returncode == 0
    assert regard("look", "runs/mine", "the [MASK] sat .", "-o", "page.html").returncode == 0
    done = regard("look", "runs/mine", "the [MASK] sat .", "--view", "rollout", "-o", "flow.png")
    assert done.returncode == 0, done.stderr
    done = regard("export", "runs/mine", "-o", "back", "--dtype", "float16", "--shard", "1e-6")
    assert done.returncode == 0, done.stderr
    assert (place / "back" / "model.safetensors.index.json").exists()
    assert (place / "back" / "tokenizer_config.json").exists()
    assert regard("import", "back").stdout.splitlines()[1].endswith("kept there as float16")


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_imported_or_exported_is_one_line(regard: Regard, place: Path) -> None:
    done = regard("import", "someone/model")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "say --download" in done.stderr
    assert regard("train", "small.toml").returncode == 0
    done = regard("export", "runs/small", "-o", "out", "--format", "hugingface")
    assert done.stderr.startswith("regard: unknown format 'hugingface': did you mean 'huggingface'")
    assert not (place / "out").exists()
