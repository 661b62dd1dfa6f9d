"""The Differentiable Neural Computer against loops over the paper's equations, in double."""

import pytest
import torch

from regard.attention.addressing import allocation
from regard.models.memory.dnc import DNC, next_links, next_usage
from tests.models.test_ntm import cosine, sigmoid, softmax, softplus

N, W, R = 5, 3, 2


def literal_allocation(usage: list[float]) -> list[float]:
    order, found, product = sorted(range(N), key=lambda slot: usage[slot]), [0.0] * N, 1.0
    for slot in order:
        found[slot] = (1 - usage[slot]) * product
        product *= usage[slot] * (1 - 1e-6) + 1e-6
    return found


def test_allocation_goes_to_the_least_used_slots() -> None:
    torch.manual_seed(1)
    usage = torch.rand(4, N).double()
    for row in usage:
        assert allocation(row).tolist() == pytest.approx(literal_allocation(row.tolist()))
    full = allocation(torch.ones(N))
    assert full.tolist() == [0.0] * N


def test_the_order_of_usages_has_no_gradient_but_their_values_have() -> None:
    usage = torch.tensor([0.9, 0.1, 0.5, 0.7, 0.3]).double().requires_grad_()
    assert torch.autograd.gradcheck(allocation, (usage,))
    same = torch.zeros(N).double().requires_grad_()  # ties, at the edge
    allocation(same).square().sum().backward()
    assert same.grad.isfinite().all()


def test_links_follow_the_order_of_writes() -> None:
    """Written: slot 2, then 0, then 1. So 0 comes after 2, and 1 after 0."""
    links, precedence = torch.zeros(1, 3, 3), torch.zeros(1, 3)
    for slot in (2, 0, 1):
        write = torch.eye(3)[slot][None]
        links = next_links(links, precedence, write)
        precedence = (1 - write.sum()) * precedence + write
    assert links[0].tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert precedence[0].tolist() == [0.0, 1.0, 0.0]
    at_two = torch.eye(3)[2]
    assert (links[0] @ at_two).tolist() == [1.0, 0.0, 0.0]  # forward: to slot 0
    assert (links[0].T @ torch.eye(3)[1]).tolist() == [1.0, 0.0, 0.0]  # backward of 1: slot 0
    again = next_links(links, precedence, torch.eye(3)[2][None])  # slot 2 is written once more
    assert again[0].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_links_and_usage_equal_loops() -> None:
    torch.manual_seed(2)
    links, precedence, write = torch.rand(N, N).double(), torch.rand(N).double(), torch.rand(N)
    links.fill_diagonal_(0)
    write = write.double().softmax(0) * 0.9
    found = next_links(links[None], precedence[None], write[None])[0]
    usage, reads, free = torch.rand(N).double(), torch.rand(R, N).double(), torch.rand(R).double()
    used = next_usage(usage[None], write[None], reads[None], free[None])[0]
    for i in range(N):
        kept = 1.0
        for r in range(R):
            kept *= 1 - (free[r] * reads[r, i]).item()
        value = (usage[i] + write[i] - usage[i] * write[i]).item() * kept
        assert used[i].item() == pytest.approx(value)
        for j in range(N):
            value = (1 - write[i] - write[j]) * links[i, j] + write[i] * precedence[j]
            assert found[i, j].item() == pytest.approx(0.0 if i == j else value.item())


def test_a_whole_run_equals_a_loop_over_the_equations() -> None:
    torch.manual_seed(3)
    config = DNC.Config(controller="feedforward", hidden=4, slots=N, width=W, read_heads=R)
    model = DNC(config, inputs=2, outputs=3).double()
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.8)
    inputs = torch.randn(1, 5, 2).double()
    found = model({"inputs": inputs}).logits[0]
    memory = torch.zeros(N, W).double()
    usage, write, precedence = [torch.zeros(N).double() for _ in range(3)]
    links, reading = torch.zeros(N, N).double(), torch.zeros(R, N).double()
    reads = torch.zeros(R * W).double()
    for step in range(5):
        hidden = torch.tanh(
            model.controller.enter(inputs[0, step]) + model.controller.recall(reads)
        )
        writing, erase, add, free, query = model.heads(hidden).split(model.sizes)
        raw = writing.tolist()
        usage = next_usage(usage[None], write[None], reading[None], free.sigmoid()[None])[0]
        beta = 1 + softplus(raw[W])
        content = softmax([beta * cosine(raw[:W], slot) for slot in memory.tolist()])
        choose, strength = sigmoid(raw[W + 1]), sigmoid(raw[W + 2])
        mixed = zip(literal_allocation(usage.tolist()), content, strict=True)
        write = torch.tensor([strength * (choose * a + (1 - choose) * c) for a, c in mixed])
        write = write.double()
        links = next_links(links[None], precedence[None], write[None])[0]
        precedence = (1 - write.sum()) * precedence + write
        memory = memory * (1 - write[:, None] * erase.sigmoid()) + write[:, None] * add
        heads = []
        for head, before in zip(query.view(R, -1).tolist(), reading, strict=True):
            beta, modes = 1 + softplus(head[W]), softmax(head[W + 1 :])
            content = softmax([beta * cosine(head[:W], slot) for slot in memory.tolist()])
            heads.append(
                modes[0] * (links.T @ before)
                + modes[1] * torch.tensor(content)
                + modes[2] * (links @ before)
            )
        reading = torch.stack(heads).double()
        reads = (reading @ memory).flatten()
        torch.testing.assert_close(
            found[step], model.output(torch.cat((hidden, reads))), atol=1e-7, rtol=1e-6
        )
