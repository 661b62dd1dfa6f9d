"""One update: the gradients of a group of batches, and the optimiser's step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from time import monotonic

from regard.core.device import use_precision
from regard.core.errors import UserError
from regard.core.protocols import Batch, Batches, Task
from regard.train.evaluate import Sums, carry_resets, detach_carry, on_device
from regard.train.non_finite import UpdateSnapshot, non_finite_error
from regard.train.optimise import HasCopies, scale_gradients
from regard.train.plan import Plan
from regard.train.state import TrainingState, random_states


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of one update, for the log."""

    rate: float
    """The learning rate."""
    norm: float
    """The norm of the gradient before clipping."""
    stop: bool
    """Did any process receive a request to stop?"""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Takes updates; everything that changes is in `state`."""

    task: Task
    batches: Batches
    plan: Plan
    state: TrainingState

    def update(self, stop_requested: Callable[[], bool]) -> UpdateStats:
        """Sum the gradients of a group of batches over all processes, scale, clip and step."""
        began, state, at = monotonic(), self.state, self.state.progress
        group, snapshot = self.plan.group(at), self._snapshot()
        rate = self._set_rate()
        sums, waited = Sums(), 0.0
        for index in group:
            requested = monotonic()
            batch = self._batch(at.epoch, index)
            waited += monotonic() - requested
            carry = None if carry_resets(self.batches, index) else state.carry
            with use_precision(self.plan.settings.precision, state.device):
                loss = self.task.loss(state.model, batch, carry)
            loss.total.backward()
            state.average_buffers(loss.items)
            state.carry = detach_carry(loss.carry)
            sums += Sums.of(loss)
        sums, stopping = self._all_reduce(sums, stop=stop_requested())
        learns = [each for each in state.model.parameters() if each.requires_grad]
        state.world.all_reduce_gradients(learns)
        copies = state.model.copies if isinstance(state.model, HasCopies) else 1
        norm = scale_gradients(
            learns, items=sums.items, clip=self.plan.settings.clip, copies=copies
        )
        if not isfinite(sums.total) or not isfinite(norm):
            raise non_finite_error(state.model, self.task, snapshot)
        state.optimiser.step()
        state.optimiser.zero_grad()
        if state.ema:
            state.ema.update(at.update + 1)
        self._advance(group, sums, monotonic() - began, waited)
        return UpdateStats(rate, norm, stopping)

    def _advance(self, group: range, sums: Sums, took: float, waited: float) -> None:
        """Count the update; the carry is reset at the end of an epoch."""
        at, ended = self.state.progress, group.stop == self.plan.batches
        if ended:
            self.state.carry = None
        self.state.progress = replace(
            at,
            update=at.update + 1,
            epoch=at.epoch + ended,
            index=0 if ended else group.stop,
            seconds=at.seconds + took,
            sums=at.sums + sums,
            took=at.took + took,
            waited=at.waited + waited,
        )

    def _batch(self, epoch: int, index: int) -> Batch:
        """One batch, on the device of the model."""
        return on_device(self.batches.batch(epoch, index), self.state.device)

    def _set_rate(self) -> float:
        """Set the learning rate of the next update, scaled per stage; return the unscaled rate."""
        groups = self.state.optimiser.param_groups
        stage_epochs = {group.get("unfreeze_epoch", 0) for group in groups}
        rate = self.plan.settings.optimiser.lr * self.plan.factor(self.state.progress, stage_epochs)
        for group in groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
            if "unfreeze_epoch" in group:
                learns = self.state.progress.epoch >= group["unfreeze_epoch"]
                for each in group["params"]:
                    each.requires_grad_(learns)
        return rate

    def _snapshot(self) -> UpdateSnapshot:
        """All that is needed to repeat the next update if it fails."""
        at = self.state.progress
        named = {index: f"batch {index} of epoch {at.epoch}" for index in self.plan.group(at)}
        return UpdateSnapshot(
            number=at.update + 1,
            batches={name: partial(self._batch, at.epoch, index) for index, name in named.items()},
            resets={name for index, name in named.items() if carry_resets(self.batches, index)},
            carry=self.state.carry,
            random=random_states(self.state.device),
            precision=self.plan.settings.precision,
        )

    def _all_reduce(self, sums: Sums, *, stop: bool) -> tuple[Sums, bool]:
        """The sums over all processes; all of them stop if one has a request to stop."""
        world = self.state.world
        total, items, stops = world.all_reduce_sum([sums.total, float(sums.items), float(stop)])
        if items == 0:
            at = self.state.progress
            raise UserError(f"batch {at.index} of epoch {at.epoch} has no items to learn from")
        # A process may lack a count, such as that of sentence pairs if none of its rows is a pair.
        counts = world.all_reduce_sum_named(sums.counts)
        return Sums(total=total, items=int(items), counts=counts), stops > 0
