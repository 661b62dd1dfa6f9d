"""regard quantise, and --weights, as people type them."""

import json

import pytest

from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")

WIDE = ("--set", "model.width=32")


def test_the_cost_of_rounding_is_measured_and_rounded_runs_write(regard: Regard) -> None:
    done = regard("train", "small.toml", "--name", "small", *WIDE)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in regard("quantise", "runs/small").stdout.splitlines()]
    assert [row["weights"] for row in told] == ["float32", "int8", "int8_weights"]
    exact, int8, alone = told
    assert 0 < abs(int8["change"]["loss"]) < 0.05
    assert int8["change"]["loss"] == pytest.approx(int8["loss"] - exact["loss"])
    assert alone["megabytes"] < exact["megabytes"]
    same = regard("eval", "runs/small", "--weights", "int8")
    assert json.loads(same.stdout)["loss"] == pytest.approx(int8["loss"])
    wrote = regard(
        "generate", "runs/small", "--prompt", "to be", "--max-tokens", "3", "--weights", "int8"
    )
    assert wrote.stdout.startswith("to be")


def test_weights_that_nobody_knows_are_refused(regard: Regard) -> None:
    assert regard("train", "small.toml", "--name", "small").returncode == 0
    for verb in (("quantise", "runs/small"), ("generate", "runs/small", "--prompt", "to")):
        wrong = regard(*verb, "--weights", "int4")
        assert wrong.returncode == 2
        assert "unknown weights 'int4': did you mean 'int8'" in wrong.stderr
