"""Every kernel can be switched off, alone or with all others, and the laws hold either way."""

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Thread

import pytest
import torch
from torch import nn

from regard import kernels
from regard.attention import Attend, ScaledDot, Score, causal, record, score_named
from regard.core.errors import UserError
from regard.kernels import additive, dropout, linear, packed_linear, switch
from regard.kernels.int8 import Int8Linear, Int8Weights, QuantisedLinear
from regard.kernels.switch import KERNELS, disabled, enabled, parse_switches
from regard.layers import DecoderBlock, stepwise
from regard.layers.cache import Cache
from regard.layers.key_value_store import KeyValueStore
from regard.layers.stepwise import StepSource, StepwiseDecoder, row_function
from regard.models.memory import ntm
from tests.kernels import test_dropout, test_int8, test_linear
from tests.laws import (
    test_attention,
    test_fused,
    test_language_models,
    test_memory_machines,
    test_translators,
)
from tests.layers import test_stepwise, test_taken_apart

ALL = "all of them"
PAIRS = [("scaled_dot", "softmax"), ("additive", "softmax"), ("coverage", "sparsemax")]
"""A score that can be fused, one in tiles, and one that goes row by row."""


def hold_laws_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    for score, weigh in PAIRS:
        for law in (
            test_attention.test_forbidden_keys_weigh_exactly_nothing_and_rows_sum_to_one,
            test_attention.test_an_empty_row_reads_zeros_and_nothing_is_ever_nan,
            test_attention.test_the_read_is_the_weighted_sum,
            test_attention.test_stepping_equals_the_whole_sequence,
            test_attention.test_batch_mates_and_padding_never_matter,
            test_attention.test_recording_changes_not_a_bit,
        ):
            law(score, weigh)
    test_attention.test_gradients_of_every_score("additive")
    test_fused.test_fused_equals_explicit("scaled_dot", "causal padding", 2)
    test_fused.test_dropout_falls_on_the_weights_in_training_alone()


def hold_laws_of_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for many in (0, 256):
        test_stepwise.test_steps_are_those_of_the_modules_also_when_rows_are_chosen(
            True, "relu", [7, 3, 1], many, monkeypatch
        )
        for beams in (1, 3):
            test_stepwise.test_recording_hears_the_weights_and_changes_nothing(
                beams, many, monkeypatch
            )
    test_stepwise.test_edits_are_obeyed("*.cross")
    for kind in ("before", "shared keys"):
        kinds = test_taken_apart.KINDS
        test_taken_apart.test_a_layer_taken_apart_steps_as_the_whole_one(kinds[kind])


def hold_laws_of_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    test_language_models.test_steps_equal_the_whole("gpt", 3)
    test_translators.test_steps_equal_the_whole("transformer")


def hold_laws_of_linear_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    test_linear.test_the_product_and_its_gradients_are_torchs((4, 64, 512), bias=True)
    test_linear.test_a_gradient_has_a_gradient()


def hold_laws_of_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Int8Linear, Int8Weights):
        test_int8.test_a_row_is_what_it_would_be_alone_however_large_the_others_are(kind)
        test_int8.test_rows_of_zeros_and_any_shape_pass(kind, (2, 3, 7))


def hold_laws_of_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    test_dropout.test_elements_are_dropped_or_scaled((64, 1024), 0.5, torch.float32)
    test_dropout.test_a_seed_tells_what_is_dropped((64, 1024))
    test_dropout.test_gradients_pass_where_something_was_left((64, 1024))
    test_dropout.test_added_is_the_sum((64, 1024), True, 0.3)


def hold_laws_of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ntm", "dnc", "sam"):
        test_memory_machines.test_steps_equal_the_whole_and_a_state_is_a_value(name)
        test_memory_machines.test_every_parameter_learns(name)


ATTENTION, STEPS = hold_laws_of_attention, hold_laws_of_single_steps
LAWS: dict[str, list[Callable[[pytest.MonkeyPatch], None]]] = {
    "fused_attention": [ATTENTION, STEPS],
    "additive_tiles": [ATTENTION],
    "single_query": [STEPS],
    "stepwise": [hold_laws_of_generation],
    "onednn": [hold_laws_of_linear_layers],
    "packed_linear": [STEPS, hold_laws_of_generation],
    "int8": [hold_laws_of_int8],
    "memory_step": [hold_laws_of_machines],
    "fast_dropout": [hold_laws_of_dropout],
    ALL: [ATTENTION, hold_laws_of_generation, hold_laws_of_linear_layers, hold_laws_of_int8],
}
"""Laws that compute with each kernel."""


@pytest.mark.parametrize("name", [*KERNELS, ALL])
def test_the_laws_hold_with_a_kernel_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with disabled(*([] if name == ALL else [name])):
        for law in LAWS[name]:
            law(monkeypatch)


class Planted(Exception):
    """Raised in place of a kernel."""


def planted(*_: object, **__: object) -> None:
    raise Planted


WHERE = {
    "fused_attention": (torch.nn.functional, "scaled_dot_product_attention"),
    "additive_tiles": (additive, "_tiles"),
    "single_query": (stepwise, "attend_beams"),
    "stepwise": (stepwise, "_LayerStep"),
    "onednn": (linear, "_multiply"),
    "packed_linear": (packed_linear, "_split_for_threads"),
    "int8": (Int8Linear, "multiply_rows"),
    "memory_step": (ntm, "ntm_step"),
    "fast_dropout": (dropout, "dropout_mask"),
}
"""What runs for each kernel, and only for it."""


def use_kernel(name: str) -> None:
    """Something that the kernel computes."""
    key = torch.randn(2, 4, 5, 8)
    if name in ("fused_attention", "additive_tiles"):
        score: Score = ScaledDot(8) if name == "fused_attention" else score_named("additive", 8)
        attend = Attend(score)
        attend(key, attend.remember(key, key), causal())
    elif name in ("single_query", "stepwise"):
        take_a_step()
    elif name == "onednn":
        linear.Linear(512, 520)(torch.randn(256, 512))
    elif name == "packed_linear":
        row_function(nn.Linear(4, 6))(torch.randn(1, 4))
    elif name == "int8":
        Int8Linear.quantise(torch.randn(4, 6), None)(torch.randn(2, 6))
    elif name == "memory_step":
        test_memory_machines.made("ntm")({"inputs": torch.randn(1, 2, 4)})
    else:
        dropout.Dropout(0.5)(torch.ones(64, 64))


@torch.inference_mode()
def take_a_step() -> None:
    """One step of two sentences with two beams each, stepwise where that is on."""
    layers = test_stepwise.blocks()
    source = test_stepwise.source_of(layers, [7, 3]).select(torch.tensor([0, 0, 1, 1]))
    decoder = StepwiseDecoder.build(layers)
    if decoder is None:
        test_stepwise.by_modules(layers, torch.randn(4, 16), source, [Cache() for _ in layers])
    else:
        decoder(torch.randn(4, 16), KeyValueStore(), StepSource.prepare(source))


@pytest.mark.parametrize("name", KERNELS)
def test_a_switch_leaves_out_its_kernel_and_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "onednn" and not linear.has_onednn():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(*WHERE[name], planted)
    others = [each for each in KERNELS if each != name]
    if name == "single_query":
        others.remove("stepwise")  # it is used by steps alone
    with disabled(*others), pytest.raises(Planted):
        use_kernel(name)
    with disabled(name):
        use_kernel(name)


@pytest.mark.parametrize("kind", [Int8Linear, Int8Weights])
def test_quantised_layers_give_the_same_numbers_without_their_kernel(
    kind: type[QuantisedLinear],
) -> None:
    layer, x = kind.quantise(torch.randn(40, 70), torch.randn(40)), torch.randn(6, 70)
    exact = nn.functional.linear(x, layer.weight, layer.bias)
    fast = layer(x)
    with disabled("int8"):
        plain = layer(x)
    close = 1e-4 if kind is Int8Linear else 0.1  # its kernel rounds sums of about 20 to bfloat16
    torch.testing.assert_close(plain, fast, atol=close, rtol=1e-4)
    assert (plain - exact).abs().max() > 1e-3, "the input is rounded too"


def test_a_switch_reaches_neither_other_threads_nor_beyond_its_block() -> None:
    seen: list[bool] = []
    with disabled("int8"), disabled("stepwise"):
        thread = Thread(target=lambda: seen.extend(enabled(each) for each in ("int8", "stepwise")))
        thread.start()
        thread.join()
        assert not enabled("int8")
        assert not enabled("stepwise")
        assert enabled("onednn")
    assert seen == [True, True]
    assert all(enabled(name) for name in KERNELS)
    with disabled():
        assert not any(enabled(name) for name in KERNELS)


def test_a_decoder_built_before_a_switch_obeys_it(monkeypatch: pytest.MonkeyPatch) -> None:
    block = DecoderBlock(16, 4, 24).eval()
    with torch.inference_mode():
        decoder = StepwiseDecoder.build([block])
        assert decoder is not None
        monkeypatch.setattr(packed_linear, "_split_for_threads", planted)
        with disabled("packed_linear"):
            decoder.layers[0].self_attention(torch.randn(2, 16), 0, new_step(decoder))


def new_step(decoder: StepwiseDecoder) -> stepwise._Step:
    store = KeyValueStore()
    buffer = store.reserve(torch.randn(2, 16), heads=decoder.heads, width=decoder.width)
    return stepwise._Step(store, buffer)


def test_kernels_that_do_not_exist_are_named(as_users_run_it: None) -> None:
    with (
        pytest.raises(UserError, match="unknown kernel 'stepwize': did you mean 'stepwise'"),
        disabled("stepwize"),
    ):
        pass
    with pytest.raises(UserError, match="unknown kernel in REGARD_KERNELS 'int9'"):
        parse_switches("-int9")
    with pytest.raises(UserError, match="either list the kernels to use, or those to leave out"):
        parse_switches("int8,-onednn")


def test_the_environment_switches_for_a_whole_process() -> None:
    assert parse_switches("") == parse_switches("on") == frozenset()
    assert parse_switches("off") == frozenset(KERNELS)
    assert parse_switches("-int8,-onednn") == {"int8", "onednn"}
    assert parse_switches("int8, onednn") == set(KERNELS) - {"int8", "onednn"}
    code = (
        "from threading import Thread\nfrom regard import kernels\n"
        "show = lambda: print(*(name for name in kernels.KERNELS if kernels.enabled(name)))\n"
        "show(); thread = Thread(target=show); thread.start(); thread.join()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "REGARD_KERNELS": "stepwise,int8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "stepwise int8\n" * 2


def test_the_switches_of_the_package_are_those_of_the_module() -> None:
    assert kernels.disabled is switch.disabled
    assert kernels.KERNELS is KERNELS


def test_a_fused_attention_that_is_off_is_recorded_all_the_same() -> None:
    attend, key = Attend(ScaledDot(8)), torch.randn(2, 4, 5, 8)
    memory = attend.remember(key, key)
    with record(attend) as fused:
        attend(key, memory, causal())
    with disabled("fused_attention"), record(attend) as plain:
        attend(key, memory, causal())
    torch.testing.assert_close(
        fused.weights("attend"), plain.weights("attend"), atol=1e-6, rtol=1e-5
    )
