"""Quantised layers stay within the error of rounding, row by row, and load from a file."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.decode import GenerationRequest, Greedy, generate
from regard.kernels.int8 import (
    LARGEST,
    Int8Linear,
    Int8Weights,
    QuantisedLinear,
    input_levels,
    require_operators,
)
from regard.layers.quantise import WEIGHTS, quantise_model
from regard.layers.stepwise import StepwiseDecoder
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from regard.models.text.bert import BERT, Encoding
from regard.models.translation.transformer import Transformer

KINDS: dict[str, type[QuantisedLinear]] = {"dynamic": Int8Linear, "weights": Int8Weights}


def bound(linear: nn.Linear, x: Tensor, kind: type[QuantisedLinear]) -> Tensor:
    """The most by which each output may be off: half a step of each weight and each input."""
    weight = linear.weight.abs()
    of_weights = weight.amax(1) / LARGEST / 2  # [N]
    total = x.abs().sum(-1, keepdim=True)  # [R,1]
    if kind is Int8Weights:
        return total * of_weights + 2**-7 * (x.abs() @ weight.t()) + 1e-4
    span = x.amax(-1, keepdim=True).clamp_min(0) - x.amin(-1, keepdim=True).clamp_max(0)
    of_inputs = span / input_levels()  # the zero is rounded too
    rounding = of_inputs * (weight + of_weights[:, None]).sum(1)
    return total * of_weights + rounding + 1e-4


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(deadline=None, max_examples=40)
@given(
    rows=some.integers(1, 9),
    width=some.integers(1, 70),
    outputs=some.integers(1, 70),
    spread=some.floats(0.01, 100.0),
    shift=some.floats(-5.0, 5.0),
    bias=some.booleans(),
    seed=some.integers(0, 10_000),
)
def test_no_output_is_further_off_than_rounding_explains(
    kind: type[QuantisedLinear],
    rows: int,
    width: int,
    outputs: int,
    spread: float,
    shift: float,
    bias: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    linear = nn.Linear(width, outputs, bias=bias)
    x = torch.randn(rows, width) * spread + shift
    with torch.no_grad():
        off = (kind.quantise(linear.weight, linear.bias)(x) - linear(x)).abs()
        assert (off <= bound(linear, x, kind)).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_is_what_it_would_be_alone_however_large_the_others_are(
    kind: type[QuantisedLinear],
) -> None:
    torch.manual_seed(0)
    layer = kind.quantise(torch.randn(40, 64), torch.randn(40))
    x = torch.randn(6, 64) * torch.logspace(-2, 3, 6)[:, None]
    with torch.no_grad():
        together = layer(x)
        alone = torch.cat([layer(row[None]) for row in x])
        pairs = torch.cat([layer(two) for two in x.split(2)])
    assert torch.equal(pairs, together)
    # A single row is rounded by the kernel itself: what is halfway may go the other way.
    step = (x.amax(1) - x.amin(1)) / input_levels()
    assert ((alone - together).abs().amax(1) < 8 * step).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 7), (1, 1, 7), (2, 7)])
def test_rows_of_zeros_and_any_shape_pass(
    kind: type[QuantisedLinear], shape: tuple[int, ...]
) -> None:
    bias = torch.randn(5)
    layer = kind.quantise(torch.randn(5, 7), bias)
    with torch.no_grad():
        out = layer(torch.zeros(shape))
        assert out.shape == (*shape[:-1], 5)
        torch.testing.assert_close(out, bias.expand_as(out))
        nothing = kind.quantise(torch.zeros(5, 7), bias)(torch.randn(shape))
        torch.testing.assert_close(nothing, bias.expand_as(nothing))


def gpt() -> GPT:
    torch.manual_seed(1)
    return GPT(GPT.Config(width=64, heads=4, layers=2, context=32), vocabulary=50).eval()


@pytest.mark.parametrize("weights", [name for name, kind in WEIGHTS.items() if kind])
def test_a_rounded_model_writes_and_says_nearly_the_same(weights: str) -> None:
    model, tokens = gpt(), torch.randint(50, (3, 20))
    with torch.inference_mode():
        exact = model({"tokens": tokens}).logits()
        assert quantise_model(model, weights) == 2 * 4 + 1
        near = model({"tokens": tokens}).logits()
        assert StepwiseDecoder.build(model._blocks()) is not None
        state = model.start({"tokens": tokens})
        stepped, _ = model.step(tokens[:, -1], state)
    assert 0 < (near - exact).std() < 0.1 * exact.std()
    assert (stepped - exact[:, -1]).std() < 0.1 * exact.std()
    prompts = tokens[:, :4].tolist()
    written = generate(model, prompts, GenerationRequest(policy=Greedy(), max_tokens=9))
    assert [len(each.tokens) for (each,) in written] == [9, 9, 9]


@pytest.mark.parametrize("weights", [name for name, kind in WEIGHTS.items() if kind])
def test_encoders_and_translators_are_rounded_too(weights: str) -> None:
    torch.manual_seed(0)
    bert = BERT(BERT.Config(encoder=Encoding(width=64, heads=4, layers=2, context=32)), 50).eval()
    batch = {"tokens": torch.randint(50, (2, 9)), "lengths": torch.tensor([9, 4])}
    config = Transformer.Config(width=64, heads=4, encoder_layers=1, decoder_layers=1)
    translator = Transformer(config, 50, 40).eval()
    source = {"source": torch.randint(40, (2, 9)), "source_lengths": torch.tensor([9, 4])}
    with torch.no_grad():
        exact = bert.encoder(batch)
        assert quantise_model(bert, weights) == 2 * 4
        assert 0 < (bert.encoder(batch) - exact).std() < 0.1 * exact.std()
        exact, _ = translator.encode(source["source"], source["source_lengths"])
        assert quantise_model(translator, weights) == 4 + 8 + 1
        near, _ = translator.encode(source["source"], source["source_lengths"])
        assert 0 < (near - exact).std() < 0.1 * exact.std()
        logits, _ = translator.step(torch.tensor([2, 2]), translator.start(source))
        assert logits.isfinite().all()


@pytest.mark.parametrize("weights", [name for name, kind in WEIGHTS.items() if kind])
def test_a_rounded_model_comes_back_from_a_file(weights: str, tmp_path: Path) -> None:
    model, other, tokens = gpt(), gpt(), torch.randint(50, (2, 8))
    quantise_model(model, weights)
    for each in other.parameters():
        nn.init.constant_(each, 0.5)
    quantise_model(other, weights)
    with torch.no_grad():
        before = other({"tokens": tokens}).logits()
        save_file(model.state_dict(), tmp_path / "model.safetensors")
        other.load_state_dict(load_file(tmp_path / "model.safetensors"))
        after, wanted = other({"tokens": tokens}).logits(), model({"tokens": tokens}).logits()
    assert torch.equal(after, wanted)
    assert not torch.equal(before, after)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size < 0.6 * 4 * sum(math.prod(each.shape) for each in gpt().parameters())


def test_what_cannot_be_rounded_is_said(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="for Transformers: RNNLM has no such layers"):
        quantise_model(RNNLM(RNNLM.Config(width=8), 11), "int8")
    with pytest.raises(UserError, match="unknown weights 'int9': did you mean 'int8'"):
        quantise_model(gpt(), "int9")
    with pytest.raises(UserError, match=r"nonsense is missing.*use weights='float32'"):
        require_operators("aten", "nonsense")
