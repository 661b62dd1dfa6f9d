"""The Neural Turing Machine against loops over the paper's equations, in double."""

import math

import pytest
import torch
from torch import Tensor

from regard.attention import Attend, Past
from regard.attention.addressing import Content, ShiftedContent
from regard.core.errors import UserError
from regard.kernels.memory_step import UNIT_EPSILON, erase_and_add
from regard.models.memory.ntm import NTM

W, N = 3, 5


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(xs: list[float]) -> list[float]:
    powers = [math.exp(x) for x in xs]
    return [power / sum(powers) for power in powers]


def cosine(one: list[float], other: list[float]) -> float:
    lengths = [math.sqrt(sum(x * x for x in each) + UNIT_EPSILON) for each in (one, other)]
    return sum(a * b for a, b in zip(one, other, strict=True)) / (lengths[0] * lengths[1])


def address(raw: list[float], memory: list[list[float]], before: list[float]) -> list[float]:
    """Equations 5 to 9, one number at a time."""
    key, beta, gate = raw[:W], softplus(raw[W]), sigmoid(raw[W + 1])
    shifts, gamma = softmax(raw[W + 2 : W + 5]), 1 + softplus(raw[W + 5])
    content = softmax([beta * cosine(key, slot) for slot in memory])
    gated = [gate * c + (1 - gate) * b for c, b in zip(content, before, strict=True)]
    moved = [0.0] * N
    for i in range(N):
        for j in range(N):
            for move in (-1, 0, 1):
                if (i - j) % N == move % N:
                    moved[i] += gated[j] * shifts[move + 1]
    powers = [each**gamma for each in moved]
    return [power / sum(powers) for power in powers]


def test_addressing_equals_a_loop_over_the_equations() -> None:
    torch.manual_seed(1)
    attend = Attend(Content(W, ShiftedContent().more), ShiftedContent(), kind="memory")
    memory, raw = torch.randn(2, N, W).double(), torch.randn(2, 3, 1, W + 6).double()
    before = torch.rand(2, 3, 1, N).double().softmax(-1)
    slots = memory.unsqueeze(1)
    found = attend.weights(raw, attend.remember(slots, slots), past=Past(weights=before))
    for row in range(2):
        for head in range(3):
            expected = address(
                raw[row, head, 0].tolist(), memory[row].tolist(), before[row, head, 0].tolist()
            )
            assert found[row, head, 0].tolist() == pytest.approx(expected, abs=1e-12)


def test_a_shift_of_one_moves_from_each_slot_to_the_next() -> None:
    attend = Attend(Content(1, ShiftedContent().more), ShiftedContent(), kind="memory")
    slots = torch.ones(1, 1, 4, 1).double()
    before = torch.tensor([0.0, 0.0, 0.0, 1.0]).double().view(1, 1, 1, 4)
    for move, target in ((-1, 2), (0, 3), (1, 0)):  # the last slot is next to the first
        shifts = [50.0 if each == move else -50.0 for each in (-1, 0, 1)]
        raw = torch.tensor([1.0, 0.0, -50.0, *shifts, 0.0]).double().view(1, 1, 1, 7)
        found = attend.weights(raw, attend.remember(slots, slots), past=Past(weights=before))
        assert found.flatten().argmax().item() == target
        assert found.max().item() == pytest.approx(1.0)


def test_all_heads_erase_before_any_adds() -> None:
    torch.manual_seed(2)
    slots, weights = torch.randn(2, N, W).double(), torch.rand(2, 2, N).double()
    erase, add = torch.rand(2, 2, W).double(), torch.randn(2, 2, W).double()
    found = erase_and_add(slots, weights, erase, add)
    for b in range(2):
        for i in range(N):
            for w in range(W):
                value = slots[b, i, w].item()
                for h in range(2):
                    value *= 1 - (weights[b, h, i] * erase[b, h, w]).item()
                for h in range(2):
                    value += (weights[b, h, i] * add[b, h, w]).item()
                assert found[b, i, w].item() == pytest.approx(value)


@pytest.mark.parametrize("heads", [(1, 1), (2, 1), (2, 2)])
def test_a_whole_run_equals_a_loop_over_the_equations(heads: tuple[int, int]) -> None:
    reading, writing = heads
    torch.manual_seed(3)
    model = NTM(
        NTM.Config(
            controller="feedforward", hidden=4, slots=N, width=W,
            read_heads=reading, write_heads=writing, initial="learned",
        ),
        inputs=2, outputs=3,
    ).double()  # fmt: skip
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.8)
    inputs = torch.randn(1, 4, 2).double()
    found = model({"inputs": inputs}).logits[0]
    memory, count = model.first_slots.tolist(), W + 6
    weights = [[1.0] + [0.0] * (N - 1) for _ in range(reading + writing)]
    reads = torch.zeros(reading * W).double()
    for step in range(4):
        hidden = torch.tanh(
            model.controller.enter(inputs[0, step]) + model.controller.recall(reads)
        )
        raw = model.heads(hidden)
        parameters = raw[: (reading + writing) * count].view(-1, count).tolist()
        weights = [address(p, memory, w) for p, w in zip(parameters, weights, strict=True)]
        table = torch.tensor(memory).double()
        reads = torch.cat([_read(w, table) for w in weights[:reading]])
        erase, add = raw[(reading + writing) * count :].view(2, writing, W)
        memory = erase_and_add(
            table[None],
            torch.tensor(weights[reading:]).double()[None],
            erase.sigmoid()[None],
            add[None],
        )[0].tolist()
        expected = model.output(torch.cat((hidden, reads)))
        torch.testing.assert_close(found[step], expected)


def _read(weights: list[float], table: Tensor) -> Tensor:
    return torch.stack([w * slot for w, slot in zip(weights, table, strict=True)]).sum(0)


def test_a_constant_memory_is_no_parameter_and_a_learned_one_is() -> None:
    def names(initial: str) -> set[str]:
        return set(dict(NTM(NTM.Config(initial=initial), 2, 2).named_parameters()))

    assert names("learned") - names("constant") == {"first_slots"}
    assert names("random") == names("constant")
    constant = NTM(NTM.Config(), 2, 2).first_slots
    assert (constant == 1e-6).all()
    assert NTM(NTM.Config(initial="random"), 2, 2).first_slots.std() > 0.01


def test_a_memory_has_no_forbidden_slots(as_users_run_it: None) -> None:
    weigh, scores = ShiftedContent(), torch.zeros(1, 1, 1, 4)
    with pytest.raises(UserError, match="takes its parameters from the query"):
        weigh(scores)
    with pytest.raises(UserError, match="addresses every slot: pass no mask"):
        weigh(scores, torch.ones(1, 1, 1, 4, dtype=torch.bool), torch.zeros(1, 1, 1, 9))
