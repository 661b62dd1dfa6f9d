"""What any attention should hold, tested from outside: yours as well as ours.

    report = check(attention, width=64, causal=True)
    print(report)
    report.require()

Every invariant is one function over a Trial and one row of CHECKS. Each is tested by changing what
must not matter and measuring whether the answer moves, or by looking at the weights where the
subject gives them. Causality is tested by perturbation alone: it also sees leaks through hard
choices, to which a gradient is blind.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import torch

from regard.check.report import Outcome, Report
from regard.check.subject import (
    MASKS,
    AnswerError,
    Call,
    State,
    Step,
    Thing,
    prepared,
)
from regard.check.trial import MORE, Found, Skip, Trial, contact, earliest, settled, trial, worst
from regard.core.errors import UserError, choose, positive

_NO_WEIGHTS = Skip("the subject returns no weights; return (output, weights) to have them checked")


def rows_sum_to_one(trial: Trial) -> Found | Skip:
    """The weights of each real position that may look somewhere, added up."""
    table = trial.table(trial.real)
    weights = trial.subject.ask(trial.x, trial.real, table).weights
    if weights is None:
        return _NO_WEIGHTS
    held = table.any(3) & trial.real.unsqueeze(1)  # [B,1,T]
    return trial.largest((weights.sum(3) - 1).abs(), held, ("row", "head", "position"))


def forbidden_keys(trial: Trial) -> Found | Skip:
    """The weights of real positions on keys that they may not look at, empty rows included."""
    table = trial.table(trial.real)
    weights = trial.subject.ask(trial.x, trial.real, table).weights
    if weights is None:
        return _NO_WEIGHTS
    # What is no number in an empty row is for empty_rows to say.
    empty = ~table.any(3, keepdim=True) & ~weights.isfinite()  # [B,H,T,T]
    held = ~table & trial.real[:, None, :, None] & ~empty  # [B,H,T,T]
    return trial.largest(weights.abs(), held, ("row", "head", "position", "key"))


def causality(trial: Trial) -> Found | Skip:
    """Outputs before each position, when everything from there on is changed."""
    if not trial.subject.causal:
        return Skip("causal=False: the subject may look ahead")
    everywhere, length = trial.everywhere, trial.x.shape[1]
    before = trial.subject.ask(trial.x, everywhere).output
    found = []
    for cut in range(1, length):
        earlier = torch.arange(length, device=trial.x.device) < cut  # [T]
        for kind, other in trial.others.items():
            x = torch.where(earlier[:, None], trial.x, other[:, :length])
            after = trial.subject.ask(x, everywhere).output
            case = f"{kind} content from position {cut} on"
            found.append(trial.moved(before, after, everywhere & earlier, case))
    return worst(found)


def padding_is_ignored(trial: Trial) -> Found:
    """Outputs at real positions, with other padding and with more of it."""
    length, real = trial.x.shape[1], trial.real
    before = trial.subject.ask(trial.x, real).output
    found = []
    for kind, other in trial.others.items():
        for more in (0, 1, MORE):
            x = torch.where(real.unsqueeze(2), trial.x, other[:, :length])
            x = torch.cat((x, other[:, length : length + more]), dim=1)
            after = trial.subject.ask(x, torch.nn.functional.pad(real, (0, more))).output
            case = f"{kind} padding" + (f" and {more} more of it" if more else "")
            found.append(trial.moved(before, after[:, :length], real, case))
    return worst(found)


def left_padding_is_ignored(trial: Trial) -> Found | Skip:
    """Outputs at real positions behind other padding; how much there is moves them, so it stays."""
    if not trial.subject.left_padding:
        return Skip("pass left_padding=True if sequences may be padded at the start")
    real, length = trial.late, trial.x.shape[1]
    before = trial.subject.ask(trial.x, real).output
    found = []
    for kind, other in trial.others.items():
        x = torch.where(real.unsqueeze(2), trial.x, other[:, :length])
        after = trial.subject.ask(x, real).output
        found.append(trial.moved(before, after, real, f"{kind} padding"))
    return worst(found)


def batch_mates(trial: Trial) -> Found:
    """Outputs of each sequence with other neighbours, in another order, and alone."""
    length, real = trial.x.shape[1], trial.real
    before = trial.subject.ask(trial.x, real).output
    turned = trial.subject.ask(trial.x.flip(0), real.flip(0)).output.flip(0)
    found = [trial.moved(before, turned, real, "in another order")]
    for row in range(len(real)):
        own = torch.zeros_like(real)
        own[row] = real[row]
        for kind, other in trial.others.items():
            x = other[:, :length].clone()
            x[row] = trial.x[row]
            after = trial.subject.ask(x, real).output
            found.append(trial.moved(before, after, own, f"{kind} neighbours"))
        alone = trial.subject.ask(trial.x[[row]], real[[row]]).output  # [1,T,W]
        found.append(trial.moved(before, alone, own, "alone"))
    return worst(found)


def empty_rows(trial: Trial) -> Found:
    """Numbers that are not finite where some positions, or all, have nothing to look at.

    With and without a gradient: torch takes another kernel without one.
    """
    found = []
    masks = [trial.without_row(0), trial.without_row(-1), torch.zeros_like(trial.real)]
    for real in [*masks, trial.late] if trial.subject.left_padding else masks:
        for with_gradient in (True, False):
            x = trial.x.clone().requires_grad_(with_gradient)
            answer = trial.subject.ask(x, real, trial.table(real), with_gradient=with_gradient)
            case = "with a gradient" if with_gradient else "under no_grad"
            found.append(trial.infinite(answer.output, ("row", "position"), case))
            if answer.weights is not None:
                axes = ("row", "head", "position", "key")
                found.append(trial.infinite(answer.weights, axes, case))
    return earliest(found)


def empty_rows_gradient(trial: Trial) -> Found | Skip:
    """Gradients that are not finite, of a loss over real positions and of one over all."""
    real = trial.without_row(-1)
    x = trial.x.clone().requires_grad_()
    output = trial.subject.ask(x, real, trial.table(real), with_gradient=True).output
    if not output.requires_grad:
        return Skip("the output carries no gradient, neither to x nor to a parameter")
    inputs = {"": x, **trial.subject.parameters}
    slope = torch.arange(output.numel(), device=output.device).cos().view_as(output)
    found = []
    for case, held in (("loss over real", real), ("loss over all", trial.everywhere)):
        gradients = torch.autograd.grad(
            output,
            list(inputs.values()),
            slope.to(output.dtype) * held.unsqueeze(2),
            retain_graph=True,
            allow_unused=True,
        )
        for name, gradient in zip(inputs, gradients, strict=True):
            if gradient is not None:
                axes = () if name else ("row", "position")
                found.append(trial.infinite(gradient, axes, case, name or None))
    return earliest(found)


def cached_equals_whole(trial: Trial) -> Found | Skip:
    """Outputs of one position after another through the cache, against the whole sequence."""
    stepped = trial.subject.step(trial.x)
    if stepped is None:
        return Skip("no step function was given: step=lambda subject, x, state: (output, state)")
    whole = trial.subject.ask(trial.x, trial.everywhere).output
    if stepped.shape != whole.shape:
        raise AnswerError(
            f"stepping gave an output of {list(stepped.shape)}, the whole sequence one of "
            f"{list(whole.shape)}"
        )
    return trial.moved(whole, stepped, trial.everywhere, "step by step")


def others_are_seen(trial: Trial) -> Found:
    """One if the last position moves in no sequence when all others change: then nothing looks.

    Not an invariant but a guard: something that looks at nothing holds all the others.
    """
    everywhere, length = trial.everywhere, trial.x.shape[1]
    last = torch.arange(length, device=trial.x.device) == length - 1
    before = trial.subject.ask(trial.x, everywhere).output
    for kind, other in trial.others.items():
        x = torch.where(last[:, None], trial.x, other[:, :length])
        after = trial.subject.ask(x, everywhere).output
        if trial.moved(before, after, everywhere & last, kind).deviation:
            return Found(0.0)
    return Found(1.0, trial.place({"position": length - 1}, "other content everywhere else"))


@dataclass(frozen=True)
class Check:
    """An invariant: how it is measured, what it says, and what to do where it fails."""

    measure: Callable[[Trial], Found | Skip]
    law: str
    advice: str
    exact: bool = False
    """Must the deviation be zero, whatever the tolerance?"""


CHECKS: dict[str, Check] = {
    "rows_sum_to_one": Check(
        rows_sum_to_one,
        "The weights of every position that may look somewhere sum to one.",
        "The weights of a position do not sum to one: normalise after masking, over the allowed "
        "keys; if they are not meant to be a distribution, leave this check out by without=.",
    ),
    "forbidden_keys": Check(
        forbidden_keys,
        "Keys that may not be looked at weigh exactly zero.",
        "A key that may not be looked at has weight: mask the scores before the softmax, and "
        "multiply the weights by the mask, which also settles rows with nothing to look at.",
        exact=True,
    ),
    "causality": Check(
        causality,
        "No output depends on a later position.",
        "An output moves when later positions change: allow keys up to the query's own position "
        "only (key <= query), and mix positions nowhere else.",
    ),
    "padding_is_ignored": Check(
        padding_is_ignored,
        "Neither what stands in padding nor how much there is of it alters a real position.",
        "A real position moves with the padding: mask padded keys by -inf or the lowest finite "
        "number before the softmax, and keep padding out of all other means and norms.",
    ),
    "left_padding_is_ignored": Check(
        left_padding_is_ignored,
        "What stands in padding at the start alters no real position.",
        "A real position moves with the padding before it, as in a batch of prompts to continue: "
        "causality does not hide that padding, so mask padded keys as well.",
    ),
    "batch_mates": Check(
        batch_mates,
        "No sequence is altered by the others of its batch.",
        "A sequence moves with its neighbours: look for sums or norms over the batch axis, for "
        "masks that are repeated in another order than heads, and for swapped axes.",
    ),
    "empty_rows": Check(
        empty_rows,
        "A position with nothing to look at gives finite numbers.",
        "This many numbers are NaN or infinite where a position has nothing to look at: a softmax "
        "over -inf alone is 0/0; fill with the lowest finite number and multiply by the mask.",
        exact=True,
    ),
    "empty_rows_gradient": Check(
        empty_rows_gradient,
        "A position with nothing to look at gives finite gradients.",
        "This many gradients are NaN or infinite beside a position with nothing to look at; one "
        "step would spoil the model. To replace NaN after the softmax is too late, since zero "
        "times NaN is NaN on the way back: keep the scores finite before it.",
        exact=True,
    ),
    "cached_equals_whole": Check(
        cached_equals_whole,
        "Stepping through a cache gives what the whole sequence gives.",
        "Stepping differs from the whole sequence: append the new key before looking, and count "
        "positions from the length of the cache.",
    ),
    "others_are_seen": Check(
        others_are_seen,
        "Something is looked at.",
        "No output moves when every other position changes, so the other checks say nothing: see "
        "whether the mask is upside down (True means that one may look) or x goes unused.",
        exact=True,
    ),
}
"""Every check by name, in the order of the report."""


def check(
    subject: Thing,
    call: Call[Thing] | None = None,
    *,
    width: int,
    causal: bool = False,
    mask: str = "padding",
    left_padding: bool = False,
    step: Step[Thing, State] | None = None,
    lengths: Sequence[int] = (6, 4, 1),
    only: Iterable[str] | None = None,
    without: Iterable[str] = (),
    dtype: torch.dtype = torch.float64,
    tolerance: float | None = None,
    seeds: Sequence[int] = (0, 1, 2),
) -> Report:
    """Test what an attention should hold, and tell what it does not, where, and what to do.

    The subject is asked `subject(x, mask)`, or `call(subject, x, mask)` where a call is given, with
    x `[B,T,width]`, and answers with an output `[B,T,W]` or with (output, weights `[B,H,T,T]`).
    With mask="padding" the mask is `[B,T]`, True where a position is real; with mask="table" it is
    `[B,1,T,T]`, True where a position may look. A causal subject sees to causality itself (a table
    has it already); `step(subject, x, state)` answers for one position, with None as first state.
    Sequences are padded at the end; with left_padding=True they are also tried padded at the start.

    A module is tested as a copy in eval mode and in `dtype`; yours is not touched. The copy of a
    module on MPS, which has no float64, is on the CPU unless `dtype` is another.

    >>> report = check(lambda x, real: x, width=4, without=["others_are_seen"])
    >>> report.ok, report["causality"].says
    (True, 'causal=False: the subject may look ahead')
    """
    names = _chosen(only, without)
    choose("mask", mask, MASKS)
    rows = settled(lengths, seeds)
    positive("width", width)
    if step is not None and not causal:
        raise UserError("a step function is for a causal subject: pass causal=True as well")
    if not dtype.is_floating_point:
        raise UserError(f"dtype={dtype} must be a floating-point one")
    with torch.inference_mode(False):
        under = prepared(
            subject, call, step, causal=causal, mask=mask, left_padding=left_padding, dtype=dtype
        )
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            trials = [trial(under, rows, width, seed) for seed in seeds]
            limit = contact(trials[0], tolerance)
            outcomes = [_outcome(name, CHECKS[name], trials, limit, names) for name in CHECKS]
    return Report(under.name, tuple(outcomes))


def _chosen(only: Iterable[str] | None, without: Iterable[str]) -> frozenset[str]:
    """The checks that were asked for."""
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
    """How one check fared over all seeds."""
    if name not in names:
        return Outcome(check=name, status="skipped", says="left out by only= or without=")
    limit = 0.0 if check.exact else tolerance
    found = []
    for each in trials:
        try:
            measured = check.measure(each)
        except AnswerError as error:
            return Outcome(
                check=name, status="failed", measured=inf, tolerance=limit, says=str(error)
            )
        if isinstance(measured, Skip):
            return Outcome(check=name, status="skipped", says=measured.reason)
        found.append(measured)
    most = worst(found)
    failed = most.deviation > limit
    return Outcome(
        check=name,
        status="failed" if failed else "passed",
        measured=most.deviation,
        tolerance=limit,
        where=most.where,
        says=check.advice if failed else check.law,
    )
