"""Sparse access memory: the paper's equations, the journal, the index, and the roll-back."""

import pytest
import torch

from regard.core.config import parse
from regard.core.errors import UserError
from regard.kernels.switch import disabled
from regard.layers.journal import journal_of
from regard.layers.slot_index import HashedSlots, LeastRecent
from regard.layers.sparse_memory import SLOT_ROWS, SparseMemory
from regard.models.memory.sam import SAM, USED
from tests.models.test_ntm import cosine, sigmoid, softmax, softplus

N, W, H, K = 6, 3, 2, 2


def built(**changes: object) -> SAM:
    torch.manual_seed(3)
    given = {"controller": "feedforward", "hidden": 4, "slots": N, "width": W, "heads": H}
    model = SAM(SAM.Config(**{**given, "nearest": K, **changes}), inputs=2, outputs=3).double()
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.8)
    return model


def test_a_whole_run_equals_a_loop_over_the_equations() -> None:
    model, inputs = built(), torch.randn(1, 7, 2).double()
    found = model({"inputs": inputs}).logits[0]
    memory = [[0.0] * W for _ in range(N)]
    reading = [[0.0] * N for _ in range(H)]
    last, reads = [slot - N for slot in range(N)], torch.zeros(H * W).double()
    for step in range(7):
        hidden = torch.tanh(
            model.controller.enter(inputs[0, step]) + model.controller.recall(reads)
        )
        raw = model.heads(hidden).view(H, -1).tolist()
        unused = sorted(range(N), key=lambda slot: last[slot])[:H]
        assert len({last[slot] for slot in unused}) == H or step > 2  # ties only late
        unused = model.least.find(_times(model, last), 1, H)[0].tolist()
        writing = []
        for head in range(H):
            again, strength = sigmoid(raw[head][W + 1]), sigmoid(raw[head][W + 2])
            weights = [strength * again * each for each in reading[head]]
            weights[unused[head]] += strength * (1 - again)
            writing.append(weights)
        for slot in unused:
            memory[slot] = [0.0] * W
        for weights, each in zip(writing, raw, strict=True):
            add = each[W + 3 :]
            for slot in range(N):
                memory[slot] = [
                    m + weights[slot] * a for m, a in zip(memory[slot], add, strict=True)
                ]
        for head in range(H):
            beta = softplus(raw[head][W])
            scores = [beta * cosine(raw[head][:W], slot) for slot in memory]
            best = sorted(range(N), key=lambda slot: -scores[slot])[:K]
            reading[head] = [0.0] * N
            for slot, weight in zip(best, softmax([scores[s] for s in best]), strict=True):
                reading[head][slot] = weight
        for weights in (*writing, *reading):
            last = [step if w > USED else t for w, t in zip(weights, last, strict=True)]
        reads = (torch.tensor(reading).double() @ torch.tensor(memory).double()).flatten()
        torch.testing.assert_close(found[step], model.output(torch.cat((hidden, reads))))


def _times(model: SAM, last: list[int]) -> object:
    """A version in which the slots were used at these times."""
    tensors = model.least.tensors(1, torch.device("cpu"))
    tensors["last"][:N] = torch.tensor(last, dtype=torch.int32)
    blocks = tensors["last"].view(model.least.blocks, model.least.size)
    tensors["oldest"].copy_(blocks.amin(1))
    return journal_of(tensors)


def test_reading_all_slots_equals_the_dense_read() -> None:
    model, inputs = built(nearest=N), torch.randn(3, 9, 2).double()
    sparse = model({"inputs": inputs}).logits
    with disabled():
        dense = model({"inputs": inputs}).logits
    torch.testing.assert_close(sparse, dense)
    assert (sparse - built(nearest=2)({"inputs": inputs}).logits).abs().max() > 1e-3


def test_the_backward_pass_rolls_the_memory_back() -> None:
    model = built(index="hashed")
    state, states, outputs = model.start(2), [], []
    version, tensors = state.memory.version, state.memory.version.journal.tensors
    first = {name: each.clone() for name, each in tensors.items()}
    for drive in model.controller.drive(torch.randn(2, 6, 2).double()):
        both, state = model.step(drive, state)
        outputs.append(both)
        states.append(state)
    kept = states[2].memory.all_slots().clone()
    assert states[-1].memory.all_slots().abs().sum() > 0
    torch.stack(outputs).sum().backward()
    assert version.newer is None  # the tensors are at the first version again
    assert all(torch.equal(tensors[name], each) for name, each in first.items())
    assert state.memory.gradient.rows is None
    assert torch.equal(states[2].memory.all_slots(), kept)  # later ones can still be read


def test_two_continuations_have_their_gradients_one_after_the_other(
    as_users_run_it: None,
) -> None:
    model, drives = built(), built().controller.drive(torch.randn(1, 3, 2).double())
    _, state = model.step(drives[0], model.start(1))
    left, _ = model.step(drives[1], state)
    right, _ = model.step(drives[2], state)
    parameters = list(model.parameters())
    found = [torch.autograd.grad(each.sum(), parameters, retain_graph=True, allow_unused=True)
             for each in (left, right, left)]  # fmt: skip
    for once, again in zip(found[0], found[2], strict=True):
        assert (once is None) == (again is None)
        assert once is None or torch.equal(once, again)
    with pytest.raises(UserError, match="two continuations of one sparse memory"):
        (left.sum() + right.sum()).backward()


def test_a_journal_goes_to_any_version_and_back() -> None:
    torch.manual_seed(1)
    versions, expected = [journal_of({"a": torch.zeros(5), "b": torch.zeros(5, 2)})], []
    expected.append({"a": torch.zeros(5), "b": torch.zeros(5, 2)})
    for number in range(1, 30):
        source = int(torch.randint(len(versions), ()))  # from any earlier one
        index = torch.randint(5, (3,))
        after = {name: each.clone() for name, each in expected[source].items()}
        with versions[source].change() as change:
            for name in ("a", "b", "a"):
                change.keep(name, index)
                change[name].index_fill_(0, index, float(number))
                after[name].index_fill_(0, index, float(number))
        versions.append(change.after)
        expected.append(after)
        look = int(torch.randint(len(versions), ()))
        for name in ("a", "b"):
            assert torch.equal(versions[look].read(name), expected[look][name])
    for version, values in zip(versions, expected, strict=True):
        assert torch.equal(version.read("b"), values["b"])


@pytest.mark.parametrize("slots", [1, 2, 7, 64, 100])
def test_the_least_recent_slots_are_those_of_a_sort(slots: int) -> None:
    torch.manual_seed(slots)
    least, times = LeastRecent(slots), torch.arange(-slots, 0).repeat(3, 1)
    version = journal_of(least.tensors(3, torch.device("cpu")))
    for time in range(40):
        count = min(slots, 3)
        found = least.find(version, 3, count)
        values = times.gather(1, found)
        assert torch.equal(values.sort(1).values, times.sort(1).values[:, :count])
        assert all(len(set(row)) == count for row in found.tolist())
        index, used = torch.randint(slots, (3, 4)), torch.rand(3, 4) < 0.7
        with version.change() as change:
            least.access(change, index, used, time)
        version = change.after
        for row in range(3):
            times[row, index[row][used[row]]] = time


def test_the_hash_tables_find_most_of_what_is_near() -> None:
    torch.manual_seed(5)
    slots, width = 2048, 32
    hashed, vectors = HashedSlots(slots, width), torch.randn(2, slots, width)
    version = journal_of(hashed.tensors(2, torch.device("cpu")))
    for part in torch.arange(slots).split(8):
        with version.change() as change:
            index = part.expand(2, -1)
            hashed.insert(change, index, vectors[:, part], torch.ones_like(index, dtype=torch.bool))
        version = change.after
    wanted = torch.randint(slots, (2, 200))
    near = vectors.gather(1, wanted.unsqueeze(2).expand(-1, -1, width))
    for noise, least in ((0.0, 1.0), (0.2, 0.9)):
        found = hashed.find(version, near + noise * torch.randn_like(near))
        share = (found == wanted.unsqueeze(2)).any(2).float().mean().item()
        assert share >= least * 0.98, noise
        assert found.shape[2] == hashed.tables * hashed.bucket  # whatever the number of slots


def test_a_write_erases_before_it_adds_also_where_slots_repeat() -> None:
    memory = SparseMemory.of(torch.ones(1, 3, 1))
    added = torch.tensor([[[2.0], [3.0], [4.0]]], requires_grad=True)
    memory = memory.write(torch.tensor([[0, 0, 2]]), added, torch.tensor([[0]]))
    assert memory.all_slots().flatten().tolist() == [5.0, 1.0, 4.0 + 1.0]
    rows, memory = memory.read(torch.tensor([[0, 2, 2]]))
    (rows.flatten() * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert added.grad.flatten().tolist() == [1.0, 1.0, 110.0]
    assert memory.version.journal.tensors[SLOT_ROWS].flatten().tolist() == [1.0, 1.0, 1.0]


def test_more_heads_than_slots_are_refused() -> None:
    with pytest.raises(UserError, match="heads=3 write to as many unused slots"):
        parse(SAM.Config, {"heads": 3, "slots": 2})
