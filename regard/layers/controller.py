"""Controllers: the networks that drive a memory machine, step by step.

A controller reads the input and what the heads read a step ago, and emits a vector from which the
heads and the output are computed. All that depends on the input alone is computed for the whole
sequence at once (`drive`).

>>> controller = LSTMController(inputs=3, reads=4, width=8)
>>> drives = controller.drive(torch.zeros(2, 5, 3))
>>> len(drives), drives[0].shape
(5, torch.Size([2, 32]))
>>> hidden, state = controller.step(drives[0], torch.zeros(2, 4), controller.start(2))
>>> hidden.shape
torch.Size([2, 8])
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import positive
from regard.kernels.memory_step import lstm_cell

ControllerState = tuple[Tensor, ...]
"""What a controller carries from step to step, [B,D] each; nothing in a feed-forward one."""


class Controller(nn.Module, ABC):
    """Input and last reads in, a vector of `width` out."""

    def __init__(self, inputs: int, reads: int, width: int) -> None:
        super().__init__()
        self.inputs = positive("inputs", inputs)
        self.reads = positive("reads", reads)
        self.width = positive("width", width)

    @abstractmethod
    def drive(self, inputs: Float[Tensor, "B T C"]) -> tuple[Tensor, ...]:
        """For each step, what the input alone contributes."""

    @abstractmethod
    def start(self, batch: int) -> ControllerState:
        """The state before the first step."""

    @abstractmethod
    def step(
        self, drive: Tensor, reads: Float[Tensor, "B F"], state: ControllerState
    ) -> tuple[Float[Tensor, "B D"], ControllerState]:
        """The vector of this step, and the state after it."""


def _each_step(driven: Tensor) -> tuple[Tensor, ...]:
    """[B,T,F] as T contiguous tensors [B,F]."""
    return driven.transpose(0, 1).contiguous().unbind(0)


class LSTMController(Controller):
    """One LSTM layer whose first state is learned."""

    def __init__(self, inputs: int, reads: int, width: int) -> None:
        super().__init__(inputs, reads, width)
        self.enter = nn.Linear(inputs, 4 * width)
        self.recur = nn.Linear(reads + width, 4 * width, bias=False)
        self.first_hidden = nn.Parameter(torch.zeros(width))
        self.first_cell = nn.Parameter(torch.zeros(width))
        bound = (inputs + reads + width) ** -0.5
        for each in (self.enter.weight, self.recur.weight):
            nn.init.uniform_(each, -bound, bound)
        nn.init.zeros_(self.enter.bias)
        nn.init.ones_(self.enter.bias[width : 2 * width])  # the forget gate starts open

    def drive(self, inputs: Float[Tensor, "B T C"]) -> tuple[Tensor, ...]:
        """The part of the gates that the input decides, `[B,4D]` for each step."""
        return _each_step(self.enter(inputs))

    def start(self, batch: int) -> ControllerState:
        """The learned state."""
        return self.first_hidden.expand(batch, -1), self.first_cell.expand(batch, -1)

    def step(
        self, drive: Tensor, reads: Float[Tensor, "B F"], state: ControllerState
    ) -> tuple[Float[Tensor, "B D"], ControllerState]:
        """One step of the LSTM."""
        hidden, cell = state
        gates = torch.addmm(drive, torch.cat((reads, hidden), 1), self.recur.weight.t())
        hidden, cell = lstm_cell(gates, cell)
        return hidden, (hidden, cell)


class FeedForwardController(Controller):
    """One hidden layer of tanh; all that it remembers is in the memory."""

    def __init__(self, inputs: int, reads: int, width: int) -> None:
        super().__init__(inputs, reads, width)
        self.enter = nn.Linear(inputs, width)
        self.recall = nn.Linear(reads, width, bias=False)

    def drive(self, inputs: Float[Tensor, "B T C"]) -> tuple[Tensor, ...]:
        """The part of the hidden layer that the input decides."""
        return _each_step(self.enter(inputs))

    def start(self, batch: int) -> ControllerState:
        """No state."""
        return ()

    def step(
        self, drive: Tensor, reads: Float[Tensor, "B F"], state: ControllerState
    ) -> tuple[Float[Tensor, "B D"], ControllerState]:
        """One layer."""
        return torch.tanh(drive + F.linear(reads, self.recall.weight)), state


CONTROLLERS: dict[str, type[Controller]] = {
    "lstm": LSTMController,
    "feedforward": FeedForwardController,
}
"""Controllers by their names in recipes."""
