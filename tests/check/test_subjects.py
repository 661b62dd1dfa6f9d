"""Attention of torch, of this package and of users is checked in a few lines, and not changed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.attention import (
    SCORES,
    WEIGHS,
    Attend,
    ScaledDot,
    Sigmoid,
    causal,
    padding,
    score_named,
    weigh_named,
)
from regard.check import CHECKS, AsAttend, AsTorchMultihead, Recorded, check
from regard.layers import Cache, CrossAttention, SelfAttention

D, H = 8, 2
SCORES_AND_WEIGHS = [
    *((score, "softmax") for score in SCORES),
    *(("scaled_dot", weigh) for weigh in WEIGHS if weigh != "softmax"),
]
"""Every score and every weighing once: the two meet only in Attend."""


def attend_of(score: str, weigh: str) -> Attend:
    return Attend(score_named(score, D // H, heads=H), weigh_named(weigh, D // H))


def left_out(attend: Attend) -> list[str]:
    return [] if attend.weigh.normalised else ["rows_sum_to_one"]


@pytest.mark.usefixtures("as_users_run_it")  # thousands of calls: three times as fast
@pytest.mark.parametrize(("score", "weigh"), SCORES_AND_WEIGHS)
def test_every_score_and_every_weighing_holds_every_invariant(score: str, weigh: str) -> None:
    call = AsAttend(heads=H, causal=True)
    attend = attend_of(score, weigh)
    report = check(
        attend,
        call,
        width=D,
        causal=True,
        step=call.step,
        without=left_out(attend),
        lengths=(3, 2),
        seeds=(0,),
    )
    assert report.ok, str(report)
    skipped = {each.check for each in report.outcomes if each.status == "skipped"}
    assert skipped == {"left_padding_is_ignored", *left_out(attend)}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("mask", ["padding", "table"])
@pytest.mark.parametrize(("score", "weigh"), SCORES_AND_WEIGHS)
def test_attention_both_ways_holds_every_invariant(score: str, weigh: str, mask: str) -> None:
    attend = attend_of(score, weigh)
    report = check(
        attend,
        AsAttend(heads=H),
        width=D,
        mask=mask,
        without=left_out(attend),
        lengths=(4, 1),
        seeds=(1, 2),
    )
    assert report.ok, str(report)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(
    ("score", "weigh"),
    [*((score, "softmax") for score in SCORES), *(("dot", weigh) for weigh in WEIGHS)],
)
def test_only_attention_that_carries_something_on_minds_padding_at_the_start(
    score: str, weigh: str, ahead: bool
) -> None:
    attend = attend_of(score, weigh)
    report = check(
        attend,
        AsAttend(heads=H, causal=not ahead),
        width=D,
        causal=not ahead,
        left_padding=True,
        only=["left_padding_is_ignored", "empty_rows"],
        lengths=(5, 3),
        seeds=(0, 1),
    )
    # A causal query before the first real key has no allowed keys, so it has no weights to carry.
    hands_on_weights = attend.score.sequential or attend.weigh.sequential
    carries = weigh == "mixture_window" or (ahead and hands_on_weights)
    assert (report["left_padding_is_ignored"].status == "failed") == carries
    assert report["empty_rows"].status == "passed"


def test_weights_that_are_no_distribution_are_seen() -> None:
    report = check(Attend(ScaledDot(D), Sigmoid()), AsAttend(), width=D)
    assert {each.check for each in report.failures} == {"rows_sum_to_one"}


def test_torchs_attention_with_weights_is_nan_on_a_padded_row_and_spoils_all_gradients() -> None:
    layer = nn.MultiheadAttention(D, H, batch_first=True)
    report = check(layer, AsTorchMultihead(), width=D)
    assert {each.check for each in report.failures} == {"empty_rows", "empty_rows_gradient"}
    where = report["empty_rows"].where
    assert where is not None
    assert (where.row, where.case) == (0, "with a gradient")
    # Even of a loss that leaves the padded row out.
    assert "loss over real" in str(report["empty_rows_gradient"].where)


def test_torchs_attention_without_weights_is_nan_on_a_padded_row_in_its_inference_path() -> None:
    """In torch 2.13: finite with a gradient, NaN in eval mode under no_grad."""
    layer = nn.MultiheadAttention(D, H, batch_first=True)
    report = check(layer, AsTorchMultihead(weights=False), width=D)
    assert {each.check for each in report.failures} == {"empty_rows"}
    assert "under no_grad" in str(report["empty_rows"].where)


@pytest.mark.parametrize("mask", ["padding", "table"])
@pytest.mark.parametrize("weights", [True, False])
def test_torchs_attention_holds_all_else(weights: bool, mask: str) -> None:
    layer = nn.MultiheadAttention(D, H, batch_first=True)
    call = AsTorchMultihead(causal=True, weights=weights)
    empty = ["empty_rows", "empty_rows_gradient"]
    report = check(layer, call, width=D, causal=True, mask=mask, without=empty)
    assert report.ok, str(report)
    assert (report["forbidden_keys"].status == "passed") == weights


@pytest.mark.parametrize("weigh", ["softmax", "sparsemax"])
def test_our_layer_holds_every_invariant_with_weights_from_a_tape(weigh: str) -> None:
    def call(layer: SelfAttention, x: Tensor, real: Tensor) -> Tensor:
        return layer(x, causal() & padding(real))

    def step(layer: SelfAttention, x: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        return layer.step(x, cache or Cache(room=2), causal())

    layer = SelfAttention(D, H, weigh=weigh, key_heads=1)
    report = check(layer, Recorded(call), width=D, causal=True, left_padding=True, step=step)
    assert [each.status for each in report.outcomes] == ["passed"] * len(CHECKS), str(report)


def test_cross_attention_is_checked_over_one_sequence() -> None:
    def call(layer: CrossAttention, x: Tensor, real: Tensor) -> Tensor:
        return layer(x, layer.remember(x), padding(real))

    assert check(CrossAttention(D, H), Recorded(call), width=D).ok


class Habits(nn.Module):
    """A user's module with all that a careless test could disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention(D, H, dropout=0.5)
        self.norm = nn.BatchNorm1d(D)
        self.frozen = nn.Linear(D, D)
        self.frozen.requires_grad_(False)
        self.calls = 0

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        self.calls += 1
        normed = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.frozen(self.attention(normed, padding(real)))


def trained_a_little() -> Habits:
    module = Habits()
    real = torch.ones(3, 5, dtype=torch.bool)
    module(torch.randn(3, 5, D), real).sum().backward()
    module.attention.eval()  # modes that differ between parts are kept, too
    return module


def test_a_module_and_the_random_state_are_left_as_they_were() -> None:
    module = trained_a_little()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    gradients = {name: each.grad for name, each in module.named_parameters()}
    copies = {name: each.clone() for name, each in gradients.items() if each is not None}
    modes = [each.training for each in module.modules()]
    random = torch.random.get_rng_state()
    report = check(module, width=D)
    assert report.ok, str(report)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert [each.training for each in module.modules()] == modes
    assert module.calls == 1
    for name, each in module.state_dict().items():
        assert each.dtype == before[name].dtype
        assert torch.equal(each, before[name])
    for name, parameter in module.named_parameters():
        assert parameter.grad is gradients[name]
        if parameter.grad is not None:
            assert torch.equal(parameter.grad, copies[name])


def test_gradients_of_what_a_function_closes_over_are_left_alone() -> None:
    layer = SelfAttention(D, H)
    report = check(lambda x, real: layer(x, padding(real)), width=D, dtype=torch.float32)
    assert report.ok
    assert all(each.grad is None for each in layer.parameters())


def test_a_check_is_deterministic_whatever_the_global_seed() -> None:
    module = trained_a_little()
    first = check(module, width=D)
    torch.manual_seed(99)
    assert check(module, width=D) == first


def test_a_check_works_under_no_grad_and_in_inference_mode() -> None:
    layer = SelfAttention(D, H)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            report = check(layer, lambda layer, x, real: layer(x, padding(real)), width=D)
        assert report.ok
        assert report["empty_rows_gradient"].status == "passed"


def test_a_parameter_whose_gradient_is_not_finite_is_named() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor, real: Tensor) -> Tensor:
            fresh = x.detach().cumsum(1) * (self.gain + 1)
            return fresh + (self.gain**0.5).where(~real.any(1)[:, None, None], self.gain * 0)

    found = check(Scaled(), width=D, only=["empty_rows_gradient"])["empty_rows_gradient"]
    assert found.status == "failed"
    assert str(found.where) == "parameter gain (loss over real, seed 0)"


def test_what_is_written_into_the_input_harms_no_later_trial() -> None:
    def overwriting(x: Tensor, real: Tensor) -> Tensor:
        with torch.no_grad():
            x *= real.unsqueeze(2)
        real.fill_(True)
        return x.sum(1, keepdim=True) + x

    assert check(overwriting, width=D, without=["empty_rows_gradient"]).ok


def test_half_precision_is_checked_with_a_tolerance_of_the_users() -> None:
    call: Callable[[Attend, Tensor, Tensor], object] = AsAttend(heads=H)
    report = check(Attend(ScaledDot(4)), call, width=D, dtype=torch.bfloat16, tolerance=0.05)
    assert report.ok
    assert report["batch_mates"].tolerance == 0.05
