"""What a check refuses, what it skips, and its reports."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attend, ScaledDot, padding
from regard.check import CHECKS, AsAttend, AsTorchMultihead, CheckReport, Outcome, Recorded, check
from regard.core.errors import UserError
from regard.layers import CrossAttention, SelfAttention

D = 4


def mean(x: Tensor, real: Tensor) -> Tensor:
    share = real.to(x.dtype).unsqueeze(2)
    return x + (x * share).sum(1, keepdim=True) / share.sum(1, keepdim=True).clamp_min(1)


BAD_OUTPUTS: dict[str, tuple[Callable[[Tensor, Tensor], object], str]] = {
    "flat": (lambda x, real: x.flatten(1), r"\[3, 6, width\], but it is a float64 tensor of \[3"),
    "swapped": (lambda x, real: x.transpose(0, 1), r"\[3, 6, width\].*\[6, 3, 4\]"),
    "whole numbers": (lambda x, real: x.long(), "floating-point .*int64"),
    "nothing": (lambda x, real: None, "output tensor or .*NoneType"),
    "three": (lambda x, real: (x, x, x), r"\(output, weights\), but it returned \(a float64"),
    "weights of one row": (lambda x, real: (x, x), r"\[3, heads, 6, 6\] or \[3, 6, 6\].*\[3, 6, 4"),
    "weights of no tensor": (lambda x, real: (x, "w"), "weights of .* a str"),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", BAD_OUTPUTS)
def test_an_output_of_the_wrong_shape_is_refused(name: str) -> None:
    subject, message = BAD_OUTPUTS[name]
    with pytest.raises(UserError, match=message):
        check(subject, width=D)


BAD_ARGUMENTS: dict[str, tuple[Callable[[], CheckReport], str]] = {
    "check": (lambda: check(mean, width=D, only=["causalty"]), "did you mean 'causality'"),
    "without": (lambda: check(mean, width=D, without=["batchmates"]), "mean 'batch_mates'"),
    "one name": (lambda: check(mean, width=D, only="causality"), r"\['causality'\], not"),
    "none left": (lambda: check(mean, width=D, without=CHECKS), "no check is left"),
    "mask": (lambda: check(mean, width=D, mask="tables"), "unknown mask 'tables'.*'table'"),
    "width": (lambda: check(mean, width=0), "width=0 must be"),
    "one sequence": (lambda: check(mean, width=D, lengths=[4]), "at least two"),
    "one length": (lambda: check(mean, width=D, lengths=[4, 4]), "not all equal"),
    "no length": (lambda: check(mean, width=D, lengths=[4, 0]), "a length=0 must be"),
    "seeds": (lambda: check(mean, width=D, seeds=()), "at least one"),
    "dtype": (lambda: check(mean, width=D, dtype=torch.int64), "must be a floating-point dtype"),
    "half": (lambda: check(mean, width=D, dtype=torch.bfloat16), "bfloat16; .*pass tolerance="),
    "tolerance": (lambda: check(mean, width=D, tolerance=0.0), "tolerance=0.0 must be"),
    "not callable": (lambda: check(3, width=D), "not a int; or pass call="),
    "both ways": (
        lambda: check(mean, width=D, step=lambda subject, x, state: (x, state)),
        "pass causal=True",
    ),
    "positions first": (
        lambda: check(nn.MultiheadAttention(D, 1), AsTorchMultihead(), width=D),
        "build it with batch_first=True",
    ),
    "heads": (
        lambda: check(Attend(ScaledDot(D)), AsAttend(heads=3), width=D),
        "width=4 is not divisible by heads=3",
    ),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_what_cannot_be_checked_is_refused_with_what_to_do(name: str) -> None:
    run, message = BAD_ARGUMENTS[name]
    with pytest.raises(UserError, match=message):
        run()


def test_the_error_for_a_module_of_another_dtype_has_advice() -> None:
    layer = nn.Linear(D, D)
    with pytest.raises(UserError, match=r"raised RuntimeError.*\n.*Checks run in float64.*dtype="):
        check(lambda x, real: layer(x), width=D)


def test_a_random_subject_is_refused() -> None:
    with pytest.raises(UserError, match=r"with the same input differ by.*eval\(\)"):
        check(lambda x, real: nn.functional.dropout(mean(x, real)), width=D)


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = nn.Linear(D, D)
    module.lazily = (name for name in "ab")  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"cannot be copied: .*generator.*pass a function"):
        check(module, lambda module, x, real: module(x), width=D)


def test_sites_that_are_no_self_attention_are_refused_by_name() -> None:
    def halved(layer: CrossAttention, x: Tensor, real: Tensor) -> Tensor:
        return layer(x, layer.remember(x[:, :2]))

    with pytest.raises(UserError, match=r"site .* has 6 queries and 2 keys, but x has 6"):
        check(CrossAttention(D, 1), Recorded(halved), width=D)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_step_that_raises_or_answers_wrongly_fails_its_check_and_no_other() -> None:
    def running(x: Tensor, real: Tensor) -> Tensor:
        return (x * real.unsqueeze(2)).cumsum(1)

    def raising(subject: object, x: Tensor, state: None) -> tuple[Tensor, None]:
        raise KeyError("cache")

    steps = {
        "raised KeyError: 'cache'": raising,
        r"must return \(output .* returned \(a float64 tensor": lambda s, x, state: (x, x, x),
        r"\[3, 1, width\], but it returned .*\[3, 2, 4\]": lambda s, x, state: (x.tile(1, 2, 1), 0),
        r"output of \[3, 6, 8\], the whole": lambda s, x, state: (x.tile(1, 1, 2), 0),
    }
    for message, step in steps.items():
        report = check(running, width=D, causal=True, step=step)
        (failed,) = report.failures
        assert failed.check == "cached_equals_whole"
        with pytest.raises(UserError, match=message):
            report.require()


def test_what_does_not_apply_is_skipped_with_the_reason() -> None:
    report = check(mean, width=D, without=["batch_mates"])
    skipped = {each.check: each.message for each in report.outcomes if each.status == "skipped"}
    assert skipped.keys() == {
        "rows_sum_to_one",
        "forbidden_keys",
        "causality",
        "left_padding_is_ignored",
        "batch_mates",
        "cached_equals_whole",
    }
    assert "no weights" in skipped["forbidden_keys"]
    assert "causal=False" in skipped["causality"]
    assert "left_padding=True" in skipped["left_padding_is_ignored"]
    assert "excluded" in skipped["batch_mates"]
    assert "no step" in skipped["cached_equals_whole"]
    assert report.ok


def test_an_output_without_gradient_is_skipped() -> None:
    report = check(lambda x, real: mean(x, real).detach(), width=D)
    assert report["empty_rows_gradient"].message.startswith("the output has no gradient")


def test_a_report_of_skips_alone_is_not_ok() -> None:
    report = check(mean, width=D, only=["causality"])
    assert not report.failures
    assert not report.ok
    with pytest.raises(UserError, match="nothing was checked"):
        report.require()


def test_a_report_reads_as_a_table_in_the_order_of_the_checks() -> None:
    report = check(nn.MultiheadAttention(D, 1, batch_first=True), AsTorchMultihead(), width=D)
    lines = str(report).splitlines()
    assert lines[0] == "MultiheadAttention: 5 passed, 2 failed, 3 skipped"
    assert [line.split()[1] for line in lines[1:] if line[2] != " "] == list(CHECKS)
    assert "  FAILED   empty_rows               24 (at most 0) at batch row 0, position 0" in str(
        report
    )
    with pytest.raises(UserError, match="violates invariants\nMultiheadAttention: 5 passed"):
        report.require()


def test_reports_are_values_with_outcomes_by_name() -> None:
    report = check(SelfAttention(D, 1), lambda s, x, real: s(x, padding(real)), width=D)
    assert isinstance(report["batch_mates"], Outcome)
    with pytest.raises(UserError, match="did you mean 'batch_mates'"):
        report["batch_mate"]
    with pytest.raises(AttributeError):
        report.subject = "other"  # type: ignore[misc]
