"""A planted fault of each kind is caught, by the check that is meant for it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from regard.check import CHECKS, CheckReport, check

D, LENGTHS = 8, (6, 4, 1)
Answered = Tensor | tuple[Tensor, Tensor]
Attention = Callable[[Tensor, Tensor], Answered]
Cache = Tensor | None


def scored(x: Tensor) -> Tensor:
    """[B,T,T], not symmetric."""
    return x.roll(1, 2) @ x.transpose(1, 2) / math.sqrt(x.shape[2])


def table(real: Tensor, ahead: int = 0) -> Tensor:
    """Real keys, up to so many positions ahead of the query."""
    length = real.shape[1]
    return real[:, None, :] & torch.ones(length, length, dtype=torch.bool).tril(ahead)


def weighed(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed


def right(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    weights = weighed(scored(x), table(real))
    return weights @ x, weights


def right_step(attention: object, x: Tensor, before: Cache) -> tuple[Tensor, Tensor]:
    known = x if before is None else torch.cat((before, x), 1)
    real = torch.ones(known.shape[:2], dtype=torch.bool)
    return right(known, real)[0][:, -1:], known


def unnormalised(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    output, weights = right(x, real)
    return 1.1 * output, 1.1 * weights


def leaking(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    output, weights = right(x, real)
    return output, weights + 1e-15 * ~table(real)


def one_ahead(x: Tensor, real: Tensor) -> Tensor:
    return weighed(scored(x), table(real, ahead=1)) @ x


def one_ahead_through_a_hard_choice(x: Tensor, real: Tensor) -> Tensor:
    """Blind to gradients: only which key wins depends on the next position."""
    best = weighed(scored(x), table(real, ahead=1)).argmax(-1, keepdim=True)
    louder = torch.zeros_like(scored(x)).scatter(2, best, 1.0)
    return weighed(scored(x) + louder, table(real)) @ x


def padding_in_the_softmax(x: Tensor, real: Tensor) -> Tensor:
    """Padded keys are read as nothing, but still take their share of the softmax."""
    return (scored(x).softmax(-1) * real[:, None, :]) @ x


def padding_barely_masked(x: Tensor, real: Tensor) -> Tensor:
    return (scored(x) - 1e4 * ~real[:, None, :]).softmax(-1) @ x


def padding_hidden_by_causality(x: Tensor, real: Tensor) -> Tensor:
    """Right as long as padding comes last, which real positions cannot see anyway."""
    return right(x, torch.ones_like(real))[0]


def mean_over_padding(x: Tensor, real: Tensor) -> Tensor:
    """Divided by the padded length: what stands there does not matter, but how much does."""
    return right(x, real)[0] / real.shape[1]


def batch_normed(x: Tensor, real: Tensor) -> Tensor:
    output = right(x, real)[0] * real.unsqueeze(2)
    return output - output.sum(0) / real.sum(0).clamp_min(1).unsqueeze(1)


def nan_forward(x: Tensor, real: Tensor) -> Tensor:
    """Not a number at empty rows on the way forward; nothing of it flows back."""
    return right(x, real)[0].masked_fill(~real.any(1)[:, None, None], math.nan)


def nan_throughout(x: Tensor, real: Tensor) -> Tensor:
    """The everyday one: a softmax over nothing but -inf."""
    return scored(x).masked_fill(~table(real), -math.inf).softmax(-1) @ x


def nan_beside_padding(x: Tensor, real: Tensor) -> Tensor:
    """Padded positions at the start have nothing to look at, though no sequence is empty."""
    output, some = right(x, real)[0], real.any(1)[:, None]
    return output.masked_fill((some & ~table(real).any(2)).unsqueeze(2), math.nan)


def nan_under_no_grad(x: Tensor, real: Tensor) -> Tensor:
    """As a kernel for inference may do that is not the one of training."""
    return right(x, real)[0] if torch.is_grad_enabled() else nan_throughout(x, real)


def nan_backward(x: Tensor, real: Tensor) -> Tensor:
    """Replaced after the softmax: finite forward, and zero times NaN on the way back."""
    allowed = table(real)
    barred = torch.zeros_like(scored(x)).masked_fill(~allowed, -math.inf)
    weights = (scored(x) + barred).softmax(-1)
    return torch.where(allowed.any(-1, keepdim=True), weights, 0.0) @ x


def raising(x: Tensor, real: Tensor) -> Tensor:
    if not real.any(1).all():
        raise ValueError("a sequence has no length")
    return right(x, real)[0]


def late_step(attention: object, x: Tensor, before: Cache) -> tuple[Tensor, Tensor]:
    """Looks before the new key is appended."""
    output, known = right_step(attention, x, before)
    if before is None:
        return output, known
    weights = (x.roll(1, 2) @ before.transpose(1, 2) / math.sqrt(x.shape[2])).softmax(-1)
    return weights @ before, known


def attends_to_nothing(x: Tensor, real: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Fault:
    caught_by: set[str]
    attention: Attention = right
    step: Callable[[object, Tensor, Cache], tuple[Tensor, Tensor]] | None = None
    row: int | None = None
    """The batch row where it must be found."""
    case: str = ""
    """What the place must contain."""
    causal: bool = True
    """A causal attention sees no padding at the end, whatever it does to it."""


FAULTS = {
    "rows do not sum to one": Fault({"rows_sum_to_one"}, unnormalised),
    "a forbidden key weighs 1e-15": Fault({"forbidden_keys"}, leaking),
    "one position ahead": Fault({"causality"}, one_ahead, case="content from position"),
    "ahead by a hard choice": Fault({"causality"}, one_ahead_through_a_hard_choice),
    "padding in the softmax": Fault({"padding_is_ignored"}, padding_in_the_softmax, causal=False),
    "a mask of -10,000": Fault(
        {"padding_is_ignored"}, padding_barely_masked, case="loud", causal=False
    ),
    "divided by padded length": Fault({"padding_is_ignored"}, mean_over_padding, case="5 more"),
    "padding before it not masked": Fault({"left_padding_is_ignored"}, padding_hidden_by_causality),
    "normalised over the batch": Fault({"batch_mates"}, batch_normed),
    "NaN forward": Fault({"empty_rows"}, nan_forward, row=0, case="with a gradient"),
    "NaN before a sequence": Fault({"empty_rows"}, nan_beside_padding, row=1),
    "NaN without gradient": Fault({"empty_rows"}, nan_under_no_grad, row=0, case="no_grad"),
    # The gradient of what is no number is none either, so this one cannot be caught once.
    "NaN both ways": Fault({"empty_rows", "empty_rows_gradient"}, nan_throughout),
    "NaN backward": Fault({"empty_rows_gradient"}, nan_backward, row=2, case="loss over real"),
    "raises": Fault({"empty_rows", "empty_rows_gradient"}, raising),
    "a cache late by one": Fault({"cached_equals_whole"}, step=late_step),
    "attends to nothing": Fault({"other_positions_matter"}, attends_to_nothing),
}


def checked(fault: Fault, dtype: torch.dtype = torch.float64) -> CheckReport:
    return check(
        fault.attention,
        width=D,
        causal=fault.causal,
        left_padding=fault.causal,  # both ways, padding on either side is one fault
        step=fault.step,
        lengths=LENGTHS,
        dtype=dtype,
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_by_the_check_that_is_meant_for_it_and_by_no_other(name: str) -> None:
    fault = FAULTS[name]
    report = checked(fault)
    assert {each.check for each in report.failures} == fault.caught_by
    assert not report.ok
    for each in report.failures:
        assert each.measured is not None
        assert each.tolerance is not None
        assert each.measured > each.tolerance
        if fault.row is not None:
            assert each.where is not None
            assert each.where.row == fault.row
        assert fault.case in str(each.where)


def test_every_check_has_a_fault_that_only_it_catches() -> None:
    alone = {min(each.caught_by) for each in FAULTS.values() if len(each.caught_by) == 1}
    assert alone == set(CHECKS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_attention_without_fault_passes_every_check(dtype: torch.dtype) -> None:
    report = checked(Fault(set(), right, right_step), dtype)
    assert [each.status for each in report.outcomes] == ["passed"] * len(CHECKS)
    assert report.ok
    report.require()


@pytest.mark.parametrize(
    "name", [name for name in FAULTS if name != "a forbidden key weighs 1e-15"]
)
def test_single_precision_catches_the_same_faults(name: str) -> None:
    report = checked(FAULTS[name], torch.float32)
    assert {each.check for each in report.failures} == FAULTS[name].caught_by


def test_the_place_of_a_leak_has_its_key() -> None:
    def leaks_once(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = right(x, real)
        heads = torch.stack((weights, weights), 1)
        if len(x) > 1:
            heads[1, 1, 2, 5] = 0.25
        return output, heads

    found = check(leaks_once, width=D, causal=True, lengths=LENGTHS)["forbidden_keys"]
    assert found.measured == 0.25
    assert str(found.where) == "batch row 1, head 1, position 2, key 5 (seed 0)"


def test_an_empty_row_that_looks_anywhere_is_caught_where_its_position_is_real() -> None:
    """softmax over a constant is uniform: harmless for padding, wrong for a real position."""

    def evenly(x: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        scores = scored(x).masked_fill(~allowed, torch.finfo(x.dtype).min)
        return scores.softmax(-1) @ x, scores.softmax(-1)

    by_padding = check(lambda x, real: evenly(x, table(real)), width=D, causal=True)
    by_table = check(lambda x, given: evenly(x, given.squeeze(1)), width=D, mask="table")
    assert by_padding.ok
    assert {each.check for each in by_table.failures} == {"forbidden_keys"}
    assert by_table["forbidden_keys"].measured == pytest.approx(1 / 6)


def test_a_mask_repeated_in_the_wrong_order_for_heads_is_caught() -> None:
    def tiled(x: Tensor, real: Tensor) -> Tensor:
        heads = x.unflatten(2, (2, D // 2)).transpose(1, 2).flatten(0, 1)  # [B*H,T,E]
        weights = weighed(scored(heads), real[:, None, :].repeat(2, 1, 1))
        return (weights @ heads).unflatten(0, (len(x), 2)).transpose(1, 2).flatten(2)

    report = check(tiled, width=D)
    assert {"padding_is_ignored", "batch_mates"} <= {each.check for each in report.failures}
