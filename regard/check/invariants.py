"""The invariants of attention, checked from outside for any implementation.

    report = check(attention, width=64, causal=True)
    print(report)
    report.require()

Every invariant is one function over a Trial and one row of CHECKS. Some change what must not matter
and measure whether the output changes; others measure the attention weights, if the subject returns
them. Causality is checked by perturbation, not by gradients: hard attention can leak without one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import torch

from regard.check.report import CheckReport, Outcome
from regard.check.subject import (
    MASKS,
    CallSubject,
    StateT,
    StepSubject,
    SubjectError,
    SubjectT,
    prepare_subject,
)
from regard.check.trial import (
    MORE,
    Deviation,
    Skip,
    Trial,
    find_tolerance,
    first_deviation,
    largest_deviation,
    make_trial,
    validate_lengths,
)
from regard.core.errors import UserError, choose, positive

_NO_WEIGHTS = Skip("the subject returns no weights; return (output, weights) to check them")


def rows_sum_to_one(trial: Trial) -> Deviation | Skip:
    """The sums of the weights of each real position with allowed keys."""
    table = trial.table(trial.real)
    weights = trial.subject.run(trial.x, trial.real, table).weights
    if weights is None:
        return _NO_WEIGHTS
    chosen = table.any(3) & trial.real.unsqueeze(1)  # [B,1,T]
    return trial.largest((weights.sum(3) - 1).abs(), chosen, ("row", "head", "position"))


def forbidden_keys(trial: Trial) -> Deviation | Skip:
    """The weights of real positions on forbidden keys, empty rows included."""
    table = trial.table(trial.real)
    weights = trial.subject.run(trial.x, trial.real, table).weights
    if weights is None:
        return _NO_WEIGHTS
    # NaN in an empty row is reported by empty_rows.
    empty = ~table.any(3, keepdim=True) & ~weights.isfinite()  # [B,H,T,T]
    chosen = ~table & trial.real[:, None, :, None] & ~empty  # [B,H,T,T]
    return trial.largest(weights.abs(), chosen, ("row", "head", "position", "key"))


def causality(trial: Trial) -> Deviation | Skip:
    """Outputs before each position, when everything from that position on changes."""
    if not trial.subject.causal:
        return Skip("causal=False: the subject may attend to later positions")
    everywhere, length = trial.everywhere, trial.x.shape[1]
    before = trial.subject.run(trial.x, everywhere).output
    found = []
    for cut in range(1, length):
        earlier = torch.arange(length, device=trial.x.device) < cut  # [T]
        for kind, other in trial.others.items():
            x = torch.where(earlier[:, None], trial.x, other[:, :length])
            after = trial.subject.run(x, everywhere).output
            case = f"{kind} content from position {cut} on"
            found.append(trial.change(before, after, everywhere & earlier, case))
    return largest_deviation(found)


def padding_is_ignored(trial: Trial) -> Deviation:
    """Outputs at real positions, with other padding and with more of it."""
    length, real = trial.x.shape[1], trial.real
    before = trial.subject.run(trial.x, real).output
    found = []
    for kind, other in trial.others.items():
        for more in (0, 1, MORE):
            x = torch.where(real.unsqueeze(2), trial.x, other[:, :length])
            x = torch.cat((x, other[:, length : length + more]), dim=1)
            after = trial.subject.run(x, torch.nn.functional.pad(real, (0, more))).output
            case = f"{kind} padding" + (f" and {more} more of it" if more else "")
            found.append(trial.change(before, after[:, :length], real, case))
    return largest_deviation(found)


def left_padding_is_ignored(trial: Trial) -> Deviation | Skip:
    """Outputs at real positions after other padding of the same length."""
    if not trial.subject.left_padding:
        return Skip("pass left_padding=True if sequences may be padded at the start")
    real, length = trial.late, trial.x.shape[1]
    before = trial.subject.run(trial.x, real).output
    found = []
    for kind, other in trial.others.items():
        x = torch.where(real.unsqueeze(2), trial.x, other[:, :length])
        after = trial.subject.run(x, real).output
        found.append(trial.change(before, after, real, f"{kind} padding"))
    return largest_deviation(found)


def batch_mates(trial: Trial) -> Deviation:
    """Outputs of each sequence with other neighbours, in another order, and alone."""
    length, real = trial.x.shape[1], trial.real
    before = trial.subject.run(trial.x, real).output
    turned = trial.subject.run(trial.x.flip(0), real.flip(0)).output.flip(0)
    found = [trial.change(before, turned, real, "in another order")]
    for row in range(len(real)):
        own = torch.zeros_like(real)
        own[row] = real[row]
        for kind, other in trial.others.items():
            x = other[:, :length].clone()
            x[row] = trial.x[row]
            after = trial.subject.run(x, real).output
            found.append(trial.change(before, after, own, f"{kind} neighbours"))
        alone = trial.subject.run(trial.x[[row]], real[[row]]).output  # [1,T,W]
        found.append(trial.change(before, alone, own, "alone"))
    return largest_deviation(found)


def empty_rows(trial: Trial) -> Deviation:
    """Values that are not finite where some or all positions have no allowed keys.

    With and without a gradient: torch uses different kernels.
    """
    found = []
    masks = [trial.without_row(0), trial.without_row(-1), torch.zeros_like(trial.real)]
    for real in [*masks, trial.late] if trial.subject.left_padding else masks:
        for with_gradient in (True, False):
            x = trial.x.clone().requires_grad_(with_gradient)
            result = trial.subject.run(x, real, trial.table(real), with_gradient=with_gradient)
            case = "with a gradient" if with_gradient else "under no_grad"
            found.append(trial.infinite(result.output, ("row", "position"), case))
            if result.weights is not None:
                axes = ("row", "head", "position", "key")
                found.append(trial.infinite(result.weights, axes, case))
    return first_deviation(found)


def empty_rows_gradient(trial: Trial) -> Deviation | Skip:
    """Gradients that are not finite, of a loss over real positions and of one over all."""
    real = trial.without_row(-1)
    x = trial.x.clone().requires_grad_()
    output = trial.subject.run(x, real, trial.table(real), with_gradient=True).output
    if not output.requires_grad:
        return Skip("the output has no gradient, neither to x nor to a parameter")
    inputs = {"": x, **trial.subject.parameters}
    factors = torch.arange(output.numel(), device=output.device).cos().view_as(output)
    found = []
    for case, chosen in (("loss over real", real), ("loss over all", trial.everywhere)):
        gradients = torch.autograd.grad(
            output,
            list(inputs.values()),
            factors.to(output.dtype) * chosen.unsqueeze(2),
            retain_graph=True,
            allow_unused=True,
        )
        for name, gradient in zip(inputs, gradients, strict=True):
            if gradient is not None:
                axes = () if name else ("row", "position")
                found.append(trial.infinite(gradient, axes, case, name or None))
    return first_deviation(found)


def cached_equals_whole(trial: Trial) -> Deviation | Skip:
    """Outputs of one position after another with a cache, against the whole sequence."""
    stepped = trial.subject.step(trial.x)
    if stepped is None:
        return Skip("there is no step function: step=lambda subject, x, state: (output, state)")
    whole = trial.subject.run(trial.x, trial.everywhere).output
    if stepped.shape != whole.shape:
        raise SubjectError(
            f"the steps return an output of {list(stepped.shape)}, the whole sequence one of "
            f"{list(whole.shape)}"
        )
    return trial.change(whole, stepped, trial.everywhere, "step by step")


def other_positions_matter(trial: Trial) -> Deviation:
    """One if the last output of no sequence changes when all other positions change.

    Not an invariant but a guard: a subject that attends to nothing passes all other checks.
    """
    everywhere, length = trial.everywhere, trial.x.shape[1]
    last = torch.arange(length, device=trial.x.device) == length - 1
    before = trial.subject.run(trial.x, everywhere).output
    for kind, other in trial.others.items():
        x = torch.where(last[:, None], trial.x, other[:, :length])
        after = trial.subject.run(x, everywhere).output
        if trial.change(before, after, everywhere & last, kind).value:
            return Deviation(0.0)
    return Deviation(1.0, trial.place({"position": length - 1}, "other content everywhere else"))


@dataclass(frozen=True)
class Check:
    """An invariant: how it is measured, what must hold, and what to do if it fails."""

    measure: Callable[[Trial], Deviation | Skip]
    law: str
    advice: str
    exact: bool = False
    """Must the deviation be zero, whatever the tolerance?"""


CHECKS: dict[str, Check] = {
    "rows_sum_to_one": Check(
        rows_sum_to_one,
        "The weights of every position with allowed keys sum to one.",
        "The weights of a position do not sum to one: normalise after masking, over the allowed "
        "keys; if they are not meant to be a distribution, skip this check with without=.",
    ),
    "forbidden_keys": Check(
        forbidden_keys,
        "The weights of forbidden keys are exactly zero.",
        "A forbidden key has a weight: mask the scores before the softmax, and multiply the "
        "weights by the mask, which also gives zero weights to positions without allowed keys.",
        exact=True,
    ),
    "causality": Check(
        causality,
        "No output depends on a later position.",
        "An output changes when later positions change: allow only keys up to the position of the "
        "query (key <= query), and mix positions nowhere else.",
    ),
    "padding_is_ignored": Check(
        padding_is_ignored,
        "Real outputs depend neither on the content of padding nor on its length.",
        "A real output changes with the padding: mask padded keys by -inf or the lowest finite "
        "number before the softmax, and exclude padding from all other means and norms.",
    ),
    "left_padding_is_ignored": Check(
        left_padding_is_ignored,
        "Real outputs do not depend on the content of padding at the start.",
        "A real output changes with the padding before it, as in a batch of prompts: a causal mask "
        "does not hide that padding, so mask padded keys as well.",
    ),
    "batch_mates": Check(
        batch_mates,
        "No sequence depends on the others of its batch.",
        "A sequence changes with its batch mates: look for sums or norms over the batch axis, for "
        "masks that are repeated in another order than heads, and for swapped axes.",
    ),
    "empty_rows": Check(
        empty_rows,
        "The outputs and weights of a position without allowed keys are finite.",
        "This many numbers are NaN or infinite where a position has no allowed keys: a softmax "
        "of only -inf is 0/0; fill with the lowest finite number and multiply by the mask.",
        exact=True,
    ),
    "empty_rows_gradient": Check(
        empty_rows_gradient,
        "A position without allowed keys leaves all gradients finite.",
        "This many gradients are NaN or infinite because of a position without allowed keys; one "
        "update would ruin the model. Replacing NaN after the softmax does not help, since zero "
        "times NaN is NaN in the backward pass: keep the scores finite before it.",
        exact=True,
    ),
    "cached_equals_whole": Check(
        cached_equals_whole,
        "Steps with a cache return the outputs of the whole sequence.",
        "Steps differ from the whole sequence: append the new key before attending, and count "
        "positions from the length of the cache.",
    ),
    "other_positions_matter": Check(
        other_positions_matter,
        "Outputs depend on other positions.",
        "No output changes when every other position changes, so the other checks prove nothing: "
        "the mask may be inverted (True means allowed), or x may be unused.",
        exact=True,
    ),
}
"""Every check by name, in the order of the report."""


def check(
    subject: SubjectT,
    call: CallSubject[SubjectT] | None = None,
    *,
    width: int,
    causal: bool = False,
    mask: str = "padding",
    left_padding: bool = False,
    step: StepSubject[SubjectT, StateT] | None = None,
    lengths: Sequence[int] = (6, 4, 1),
    only: Iterable[str] | None = None,
    without: Iterable[str] = (),
    dtype: torch.dtype = torch.float64,
    tolerance: float | None = None,
    seeds: Sequence[int] = (0, 1, 2),
) -> CheckReport:
    """Check the invariants of an attention; the report has places and advice for those that fail.

    The subject is called as `subject(x, mask)`, or by `call(subject, x, mask)`, with x
    `[B,T,width]`. It returns an output `[B,T,W]` or (output, weights `[B,H,T,T]`). With
    mask="padding" the mask is `[B,T]`, True where a position is real; with mask="table" it is
    `[B,1,T,T]`, True where attention is allowed. A causal subject applies the causal mask itself
    (a table contains it already). `step(subject, x, state)` returns the output of one position and
    the next state; the first state is None. Sequences are padded at the end, with
    left_padding=True also at the start.

    A module is checked as a copy in eval mode and in `dtype`; yours does not change. The copy of a
    module on MPS, which has no float64, is on the CPU unless `dtype` is another.

    >>> report = check(lambda x, real: x, width=4, without=["other_positions_matter"])
    >>> report.ok, report["causality"].message
    (True, 'causal=False: the subject may attend to later positions')
    """
    names = _choose_checks(only, without)
    choose("mask", mask, MASKS)
    rows = validate_lengths(lengths, seeds)
    positive("width", width)
    if step is not None and not causal:
        raise UserError("a step function is for a causal subject: pass causal=True as well")
    if not dtype.is_floating_point:
        raise UserError(f"dtype={dtype} must be a floating-point dtype")
    with torch.inference_mode(False):
        prepared = prepare_subject(
            subject, call, step, causal=causal, mask=mask, left_padding=left_padding, dtype=dtype
        )
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            trials = [make_trial(prepared, rows, width, seed) for seed in seeds]
            limit = find_tolerance(trials[0], tolerance)
            outcomes = [_outcome(name, CHECKS[name], trials, limit, names) for name in CHECKS]
    return CheckReport(prepared.name, tuple(outcomes))


def _choose_checks(only: Iterable[str] | None, without: Iterable[str]) -> frozenset[str]:
    """The checks that run."""
    for given in (only, without):
        if isinstance(given, str):
            raise UserError(f"only= and without= take several names: [{given!r}], not {given!r}")
    wanted, left_out = set(CHECKS if only is None else only), set(without)
    for name in sorted(wanted | left_out):
        choose("check", name, CHECKS)
    if not wanted - left_out:
        raise UserError(f"no check is left to run; there are {', '.join(CHECKS)}")
    return frozenset(wanted - left_out)


def _outcome(
    name: str, check: Check, trials: Sequence[Trial], tolerance: float, names: frozenset[str]
) -> Outcome:
    """The outcome of one check over all seeds."""
    if name not in names:
        return Outcome(check=name, status="skipped", message="excluded by only= or without=")
    limit = 0.0 if check.exact else tolerance
    found = []
    for each in trials:
        try:
            measured = check.measure(each)
        except SubjectError as error:
            return Outcome(
                check=name, status="failed", measured=inf, tolerance=limit, message=str(error)
            )
        if isinstance(measured, Skip):
            return Outcome(check=name, status="skipped", message=measured.reason)
        found.append(measured)
    most = largest_deviation(found)
    failed = most.value > limit
    return Outcome(
        check=name,
        status="failed" if failed else "passed",
        measured=most.value,
        tolerance=limit,
        where=most.where,
        message=check.advice if failed else check.law,
    )
