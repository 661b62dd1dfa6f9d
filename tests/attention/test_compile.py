"""torch.compile: one graph when nothing is open; recording, editing and switches work all the same.

In a process of its own: the shape checks of the test suite wrap every function, and dynamo cannot
trace through the wrappers.
"""

import subprocess
import sys

import pytest

MODEL = """
import torch
from torch import nn
from regard.attention import causal, intervene, padding, record, uniform
from regard.layers import EncoderBlock

torch.manual_seed(0)
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(EncoderBlock(16, 4, 24) for _ in range(2))

    def forward(self, x, real=None):
        for layer in self.layers:
            x = layer(x, causal() & real if real is not None else causal())
        return x

model, x = Model().eval(), torch.randn(2, 5, 16)
"""

ONE_GRAPH = """
whole = torch.compile(model, backend="eager", fullgraph=True)
torch.testing.assert_close(whole(x), model(x))
masked = torch.compile(model, backend="eager")
real = padding(torch.tensor([5, 2]))
torch.testing.assert_close(masked(x, real), model(x, real))
try:
    with record(whole):
        whole(x)
except Exception as error:
    assert "graph" in str(error).lower() or "Unsupported" in type(error).__name__, error
else:
    raise AssertionError("a full graph cannot be broken, so recording it must say so")
torch.testing.assert_close(whole(x), model(x))
"""

LISTENING = """
compiled = torch.compile(model, backend="aot_eager")
close = dict(atol=1e-5, rtol=1e-5)
for training in (False, True):
    with torch.set_grad_enabled(training):
        plain, expected = compiled(x), model(x)
        with record(model) as reference:
            model(x)
        for again in range(2):
            with record(compiled, heads=[1]) as tape:
                recorded = compiled(x)
        with intervene(compiled, {"layers.1.*": uniform}):
            edited = compiled(x)
        with intervene(model, {"layers.1.*": uniform}):
            expected_edit = model(x)
        torch.testing.assert_close(plain, expected, **close)
        torch.testing.assert_close(recorded, expected, **close)
        torch.testing.assert_close(edited, expected_edit, **close)
        assert not torch.allclose(edited, plain)
        assert torch.equal(plain, compiled(x))
        assert tape.sites == ("layers.0.attention", "layers.1.attention")
        for site in tape.sites:
            torch.testing.assert_close(tape.weights(site), reference.weights(site)[:, 1:2], **close)
"""

SWITCHED = """
from regard import kernels

whole = torch.compile(model, backend="eager", fullgraph=True)
with torch.no_grad():
    fused = whole(x)
    with kernels.disabled():
        off = whole(x)
    torch.testing.assert_close(off, fused, atol=1e-5, rtol=1e-5)
    assert torch.equal(whole(x), fused)
"""


@pytest.mark.parametrize(
    "script", [ONE_GRAPH, LISTENING, SWITCHED], ids=["one graph", "recorded", "kernels off"]
)
def test_compiled(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODEL + script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
