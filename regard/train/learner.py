"""Learner: one update, from a group of batches to new weights."""

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from time import monotonic

from regard.core.device import computing_in
from regard.core.errors import UserError
from regard.core.protocols import Batch, Batches, Task
from regard.train.evaluate import begins_anew, detached, on_device
from regard.train.guard import Update, blame
from regard.train.interrupt import Stop
from regard.train.optimise import scale_gradients
from regard.train.plan import Plan
from regard.train.state import State, random_states
from regard.train.sums import Sums, sums_of


@dataclass(frozen=True)
class Learned:
    """What there is to say of an update."""

    rate: float
    """The learning rate it was taken with."""
    norm: float
    """The norm of its gradient, before clipping."""
    stop: bool
    """Was any process asked to stop meanwhile?"""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Takes updates; all that changes is in `state`."""

    task: Task
    batches: Batches
    plan: Plan
    state: State

    def update(self, stop: Stop) -> Learned:
        """Gradients of a group of batches, summed over all processes, scaled, clipped, followed."""
        began, state, at = monotonic(), self.state, self.state.progress
        group, again = self.plan.group(at), self._as_it_was()
        rate = self._set_rate()
        sums, waited = Sums(), 0.0
        for index in group:
            asked = monotonic()
            batch = self._batch(at.epoch, index)
            waited += monotonic() - asked
            carry = None if begins_anew(self.batches, index) else state.carry
            with computing_in(self.plan.settings.precision, state.device):
                loss = self.task.loss(state.model, batch, carry)
            loss.total.backward()
            state.average_buffers(loss.items)
            state.carry = detached(loss.carry)
            sums += sums_of(loss)
        sums, stopping = self._over_all_processes(sums, stop)
        learns = [each for each in state.model.parameters() if each.requires_grad]
        state.world.add_gradients(learns)
        norm = scale_gradients(learns, items=sums.items, clip=self.plan.settings.clip)
        if not isfinite(sums.total) or not isfinite(norm):
            raise blame(state.model, self.task, again)
        state.optimiser.step()
        state.optimiser.zero_grad()
        if state.ema:
            state.ema.follow(at.update + 1)
        self._move_on(group, sums, monotonic() - began, waited)
        return Learned(rate, norm, stopping)

    def _move_on(self, group: range, sums: Sums, took: float, waited: float) -> None:
        """Count the update; an epoch begins with nothing handed on from the one before."""
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
        """A batch, where the model is."""
        return on_device(self.batches.batch(epoch, index), self.state.device)

    def _set_rate(self) -> float:
        """Give the optimiser the learning rate of the next update; of stages, each its own."""
        groups = self.state.optimiser.param_groups
        opens = {group.get("opens", 0) for group in groups}
        rate = self.plan.settings.optimiser.lr * self.plan.factor(self.state.progress, opens)
        for group in groups:
            group["lr"] = rate * group.get("share", 1.0)
            if "opens" in group:
                learns = self.state.progress.epoch >= group["opens"]
                for each in group["params"]:
                    each.requires_grad_(learns)
        return rate

    def _as_it_was(self) -> Update:
        """What it takes to take the next update again, should it fail."""
        at = self.state.progress
        named = {index: f"batch {index} of epoch {at.epoch}" for index in self.plan.group(at)}
        return Update(
            number=at.update + 1,
            batches={name: partial(self._batch, at.epoch, index) for index, name in named.items()},
            anew={name for index, name in named.items() if begins_anew(self.batches, index)},
            carry=self.state.carry,
            random=random_states(self.state.device),
            precision=self.plan.settings.precision,
        )

    def _over_all_processes(self, sums: Sums, stop: Stop) -> tuple[Sums, bool]:
        """The sums of all processes, which stop together when one of them is asked to."""
        world = self.state.world
        total, items, asked = world.add_up([sums.total, float(sums.items), float(stop.asked)])
        if items == 0:
            at = self.state.progress
            raise UserError(f"batch {at.index} of epoch {at.epoch} has no items to learn from")
        # A process may lack a count: that of pairs, if its rows have none.
        counts = world.add_up_named(sums.counts)
        return Sums(total=total, items=int(items), counts=counts), asked > 0
