"""MemN2N: literal loops over the paper's equations, copies side by side, and the linear start."""

from math import exp

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.models.memory.memn2n import MemN2N
from regard.train.optimise import scale_gradients
from tests.laws.test_readers import COUNTS, SLOTS, V, stories


def model_of(**given: object) -> MemN2N:
    torch.manual_seed(4)
    return MemN2N(MemN2N.Config(width=5, hops=3, init_range=0.5, **given), V, SLOTS).double()


def by_hand(model: MemN2N, row: int, *, linear: bool = False) -> Tensor:
    """The logits of one story, word by word and fact by fact."""
    given, config = stories(), model.config
    tables, width = model.tables[0], config.width

    def sentence(words: list[int], table: Tensor, age: int) -> Tensor:
        real = [word for word in words if word]
        total = torch.zeros(width, dtype=torch.float64)
        for j, word in enumerate(real, start=1):
            for k in range(1, width + 1):
                place = (1 - j / len(real)) - (k / width) * (1 - 2 * j / len(real))
                total[k - 1] += (2 * place if config.encoding == "position" else 1) * table[word][
                    k - 1
                ]
        return total + table[V + age - 1] if age and config.temporal else total

    layerwise = config.tying == "layerwise"
    first = model.question[0] if layerwise else tables[0]
    u = sentence(given["question"][row].tolist(), first, 0)
    for hop in range(config.hops):
        key, value = (tables[0], tables[1]) if layerwise else (tables[hop], tables[hop + 1])
        facts = [given["facts"][row, i].tolist() for i in range(COUNTS[row])]
        ages = [COUNTS[row] - i for i in range(COUNTS[row])]
        scores = [float(u @ sentence(f, key, a)) for f, a in zip(facts, ages, strict=True)]
        whole = sum(exp(each) for each in scores)
        if config.empty_slots:
            whole += SLOTS - COUNTS[row]  # exp(0) for each empty slot
        weights = scores if linear else [exp(each) / whole for each in scores]
        read = sum(
            (w * sentence(f, value, a) for w, f, a in zip(weights, facts, ages, strict=True)),
            torch.zeros(width, dtype=torch.float64),
        )
        u = (u @ model.between[0] if layerwise else u) + read
    last = model.output[0] if layerwise else tables[-1]
    return torch.stack([last[word] @ u for word in range(V)])


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
@pytest.mark.parametrize("encoding", ["position", "bag"])
@pytest.mark.parametrize(("temporal", "empty"), [(True, True), (False, True), (True, False)])
def test_the_equations_of_the_paper(tying: str, encoding: str, temporal: bool, empty: bool) -> None:
    model = model_of(tying=tying, encoding=encoding, temporal=temporal, empty_slots=empty).eval()
    with torch.no_grad():
        logits = model(stories()).logits
        for row in range(len(COUNTS)):
            torch.testing.assert_close(logits[row], by_hand(model, row))


def test_a_linear_start_has_no_softmax() -> None:
    model = model_of()
    given = {**stories(), "linear": torch.ones(len(COUNTS), dtype=torch.bool)}
    with torch.no_grad():
        logits = model(given).logits
        for row in range(len(COUNTS)):
            torch.testing.assert_close(logits[row], by_hand(model, row, linear=True))


def test_the_gradient_is_that_of_differences() -> None:
    model = model_of()
    given = stories()

    def loss(tables: Tensor) -> Tensor:
        output = torch.func.functional_call(model, {"tables": tables}, (given,))
        return output.nll(given["classes"])

    assert torch.autograd.gradcheck(loss, (model.tables.detach().requires_grad_(),))


def test_copies_train_as_each_would_alone() -> None:
    together, given = model_of(copies=3), stories()
    alone = []
    for copy in range(3):
        model = model_of()
        with torch.no_grad():
            model.tables.copy_(together.tables[copy : copy + 1])
        alone.append(model)
    for _ in range(3):
        for model, copies in ((together, 3), *((each, 1) for each in alone)):
            model.zero_grad()
            model.train()(given).nll(given["classes"]).backward()
            scale_gradients(model.parameters(), items=4, clip=0.3, copies=copies)
            with torch.no_grad():
                for each in model.parameters():
                    each.sub_(each.grad, alpha=0.5)
    for copy, model in enumerate(alone):
        torch.testing.assert_close(together.tables[copy], model.tables[0], atol=1e-6, rtol=1e-6)


def test_the_copy_with_the_lowest_training_loss_predicts() -> None:
    model, given = model_of(copies=3), stories()
    with torch.no_grad():
        model.tables[0] *= 3
        model.tables[2] *= 3  # larger logits are worse before training
    for _ in range(5):
        model.train()(given)
    assert int(model.losses.argmin()) == 1
    model.eval()
    single = model_of()
    with torch.no_grad():
        single.tables.copy_(model.tables[1:2])
        torch.testing.assert_close(model(given).logits, single.eval()(given).logits)


def test_more_facts_than_slots_are_refused() -> None:
    given = stories(extra=4)
    given["ages"] = given["ages"] + (given["ages"] > 0) * 4
    with pytest.raises(UserError, match="a story of 8 facts; this model has slots for 6"):
        model_of()(given)
