"""A model as ONNX says what ours says, for other batches and lengths than it was traced with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.export.onnx import export_onnx, onnx_difference
from regard.models.language.rnn_lm import RNNLM
from tests.export.kinds import BUILT, OUTPUTS, V

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ROOT = Path(__file__).parent.parent.parent


def test_a_file_says_what_the_model_says(tmp_path: Path) -> None:
    # In a process of its own, as the type checks of this suite cannot be traced.
    done = subprocess.run(
        [sys.executable, "-m", "tests.export.kinds", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert set(told) == set(BUILT)
    assert max(told.values()) < 1e-5
    assert not done.stderr, "nothing but the answer is said"
    for name, outputs in OUTPUTS.items():
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        assert [each.name for each in session.get_outputs()] == outputs, name


def test_what_it_cannot_hold_is_said(tmp_path: Path, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="encoders of text and for GPT here, not for a RNNLM"):
        export_onnx(RNNLM(RNNLM.Config(width=8), V), tmp_path / "model.onnx")


def test_a_file_of_another_model_is_told_apart(as_users_run_it: None) -> None:
    class Elsewhere:
        """A session that says zeros."""

        def get_inputs(self) -> list[object]:
            return [type("Input", (), {"name": "tokens"})()]

        def run(self, _: None, given: dict[str, object]) -> list[object]:
            return [torch.zeros(2, 5, V).numpy()]

    class Model(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.ones(*tokens.shape, V)

    with pytest.raises(UserError, match="computes something else than the model: off by 1"):
        onnx_difference(Model(), Elsewhere(), 2, 5)
