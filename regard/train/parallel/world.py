"""Data-parallel training in several processes, started with torchrun.

Each process has its own part of the batches. Before an update the gradients are summed over all
processes and divided by the items of all, so that N processes take the same step as one process
with all the batches. Buffers, such as the running means of batch normalisation, are averaged after
every batch, so that they are the same in all processes. The backend is gloo on CPUs and nccl on
GPUs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch

# It keeps the process group that exists when it is first imported, as torch.optim does, and with it
# threads that may abort the process at its end. Imported before there is a group, it keeps none.
import torch.distributed.nn
from safetensors.torch import load
from torch import Tensor, distributed, nn

from regard.core.errors import UserError
from regard.train.durable import tensor_pieces

_LONGEST_WAIT = timedelta(days=7)
"""The timeout of collective calls. The scoring in the main process may take hours.

If a process dies, torchrun ends the others, so a long timeout does not hang them.
"""


@dataclass(frozen=True)
class World:
    """The processes that train one model, as seen from one of them."""

    rank: int = 0
    """The rank of this process."""
    size: int = 1
    """The number of processes."""
    device: torch.device | str = "cpu"
    """The device of the tensors of collective calls."""

    @property
    def is_main(self) -> bool:
        """Is this the main process, rank 0, which writes, validates and prints?"""
        return self.rank == 0

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all processes."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor)
        return [float(each) for each in tensor.tolist()]

    def all_reduce_sum_named(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number summed over all processes; 0 where a process does not have it."""
        if self.size == 1:
            return dict(numbers)
        every = self.all_gather(
            {k: torch.tensor(v, dtype=torch.float64) for k, v in numbers.items()}
        )
        names = sorted({name for each in every for name in each})
        return {name: sum(float(each[name]) for each in every if name in each) for name in names}

    def all_reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes."""
        if self.size == 1:
            return
        used = self.all_reduce_sum([float(each.grad is not None) for each in parameters])
        for parameter, count in zip(parameters, used, strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        gradients = [each.grad for each in parameters if each.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    @torch.no_grad()
    def all_reduce_mean(self, tensors: Sequence[Tensor], weight: float) -> None:
        """Replace tensors by their weighted mean over all processes, integers by the main one's."""
        means = [each for each in tensors if each.is_floating_point()]
        if self.size == 1 or not means:
            return
        flat = torch.cat([each.to(self.device).double().flatten() for each in means])
        sums = torch.cat([flat * weight, flat.new_tensor([weight])])
        distributed.all_reduce(sums)
        if sums[-1] > 0:
            parts = (sums[:-1] / sums[-1]).split([each.numel() for each in means])
            for tensor, part in zip(means, parts, strict=True):
                tensor.copy_(part.to(tensor.dtype).view_as(tensor))
        self.broadcast_weights([each for each in tensors if not each.is_floating_point()])

    def broadcast(self, number: float) -> float:
        """The number of the main process."""
        if self.size == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.float64, device=self.device)
        distributed.broadcast(tensor, src=0)
        return float(tensor.item())

    def broadcast_weights(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors of every process by those of the main one."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor.detach(), src=0)

    def broadcast_tensors(self, tensors: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
        """The tensors of the main process; the others pass None."""
        if self.size == 1:
            assert tensors is not None
            return tensors
        data = b"" if tensors is None else b"".join(tensor_pieces(tensors))
        length = int(self.broadcast(float(len(data))))
        box = torch.empty(length, dtype=torch.uint8)
        if tensors is not None:
            box = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        box = box.to(self.device)
        distributed.broadcast(box, src=0)
        return load(box.cpu().numpy().tobytes()) if tensors is None else tensors

    def all_gather(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        """The tensors of every process, by rank."""
        if self.size == 1:
            return [tensors]
        data = b"".join(tensor_pieces(tensors))
        lengths = self.all_reduce_sum(
            [len(data) * float(self.rank == each) for each in range(self.size)]
        )
        own = torch.zeros(int(max(lengths)), dtype=torch.uint8, device=self.device)
        own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        boxes = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(boxes, own)
        pairs = zip(boxes, lengths, strict=True)
        return [load(box[: int(length)].cpu().numpy().tobytes()) for box, length in pairs]

    def barrier(self) -> None:
        """Wait until every process has called this."""
        if self.size > 1:
            distributed.barrier()


@contextmanager
def process_group(device: torch.device) -> Iterator[World]:
    """The process group that torchrun has started; a world of one process without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(
            f"WORLD_SIZE={size} is set but {', '.join(missing)} is not; start several processes "
            "with torchrun, or unset WORLD_SIZE to train in one"
        )
    ours = not distributed.is_initialized()
    if ours:
        gpu = device if device.type == "cuda" else None
        if gpu is not None:
            torch.cuda.set_device(gpu)
        distributed.init_process_group(
            "gloo" if gpu is None else "nccl", timeout=_LONGEST_WAIT, device_id=gpu
        )
    try:
        yield World(
            rank=distributed.get_rank(),
            size=distributed.get_world_size(),
            device=device if device.type == "cuda" else "cpu",
        )
    finally:
        if ours:
            distributed.destroy_process_group()
