"""Algorithmic tasks: what they draw, by seed and index alone, and what is refused."""

from pathlib import Path

import pytest
import torch

from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.data.algorithms import (
    AlgorithmBatches,
    AssociativeRecall,
    CopyBits,
    DynamicNGrams,
    PrioritySort,
    RepeatCopy,
)
from regard.models.memory.ntm import NTM
from regard.models.memory.sequence_lstm import SequenceLSTM
from regard.tasks.algorithm import AlgorithmData, AlgorithmTask
from regard.train.evaluate import evaluate

EVERY = [
    CopyBits(),
    RepeatCopy(repeats=(1, 3)),
    AssociativeRecall(),
    DynamicNGrams(),
    PrioritySort(),
]


@pytest.mark.parametrize("algorithm", EVERY)
def test_every_draw_has_its_shapes_labels_and_place(algorithm: CopyBits) -> None:
    for length in (algorithm.shortest, 9):
        one, same, other = (algorithm.draw(4, length, *at) for at in ((1, 2), (1, 2), (1, 3)))
        steps = one["inputs"].shape[1]
        assert one["inputs"].shape == (4, steps, algorithm.inputs)
        assert one["bits"].shape == (4, steps, algorithm.outputs)
        assert one["scored"].shape == (4, steps)
        assert one["scored"].any(1).all()
        assert set(one["bits"].unique().tolist()) <= {0.0, 1.0}
        assert len(algorithm.label(length, steps)) == steps
        assert all(torch.equal(one[name], same[name]) for name in one)
        if length > algorithm.shortest:
            assert not torch.equal(one["bits"].sum(), other["bits"].sum()) or (
                one["inputs"].shape != other["inputs"].shape
                or not torch.equal(one["inputs"], other["inputs"])
            )


def test_repeat_copy_repeats_and_ends() -> None:
    batch = RepeatCopy(bits=2, repeats=(3, 3)).draw(1, 2, 5)
    vectors = batch["inputs"][0, 1:3, :2]
    answer = batch["bits"][0][batch["scored"][0]]
    assert torch.equal(answer[:-1, :2], torch.cat([vectors] * 3))
    assert answer[:, 2].tolist() == [0.0] * 6 + [1.0]
    assert batch["inputs"][0, 3, 3].item() == pytest.approx(0.3)
    drawn = {RepeatCopy(repeats=(1, 3)).times(seed) for seed in range(40)}
    assert drawn == {1, 2, 3}


def test_recall_answers_with_the_item_after_the_query() -> None:
    algorithm = AssociativeRecall(bits=6, vectors=2)
    batch = algorithm.draw(8, 4, 3)
    for inputs, bits, scored in zip(*(batch[n] for n in ("inputs", "bits", "scored")), strict=True):
        items = [inputs[1 + 3 * item : 3 + 3 * item, :6] for item in range(4)]
        asked = inputs[13:15, :6]
        places = [place for place in range(3) if torch.equal(items[place], asked)]
        assert any(torch.equal(items[place + 1], bits[scored]) for place in places)
        assert inputs[:, 6].nonzero().flatten().tolist() == [0, 3, 6, 9]
        assert inputs[:, 7].nonzero().flatten().tolist() == [12, 15]


def test_sorted_vectors_come_by_priority() -> None:
    batch = PrioritySort(bits=3, kept=2).draw(1, 4, 9)
    priorities = batch["inputs"][0, :4, 3]
    order = sorted(range(4), key=lambda place: -priorities[place])[:2]
    assert torch.equal(batch["bits"][0, 5:], batch["inputs"][0, order, :3])
    assert priorities.abs().max() <= 1


def test_the_best_guess_of_an_ngram_counts() -> None:
    batch = DynamicNGrams(order=2).draw(2, 60, 4)
    bits = torch.cat((batch["inputs"][:, :, 0], batch["bits"][:, -1:, 0]), 1)
    for row in range(2):
        counts = {0.0: [0.5, 0.5], 1.0: [0.5, 0.5]}
        for at in range(59):
            seen = counts[bits[row, at].item()]
            assert batch["optimal"][row, at, 0].item() == pytest.approx(seen[1] / sum(seen))
            seen[int(bits[row, at + 1])] += 1


def data(**changes: object) -> AlgorithmData:
    given = {
        "algorithm": {"name": "copy", "bits": 3}, "lengths": [1, 4], "validation": 4, "test": 6,
        "sequences": 8, "batch": 4, "epoch": 3, **changes,
    }  # fmt: skip
    return parse(AlgorithmData, given, at="data")


def opened(**changes: object) -> AlgorithmTask:
    return AlgorithmTask.open(data(**changes), Path("."))


def test_batches_depend_on_seed_epoch_and_index_alone() -> None:
    task = opened()
    one, same = task.batches(), opened().batches()
    assert torch.equal(one.batch(1, 2)["inputs"], same.batch(1, 2)["inputs"])
    assert one.digest == same.digest != opened(seed=1).batches().digest
    lengths = {one.length(epoch, index) for epoch in range(20) for index in range(3)}
    assert lengths == {1, 2, 3, 4}
    assert task.evaluation("test").batch(0, 0)["inputs"].shape == (4, 13, 4)
    assert len(task.evaluation("validation")) == 2


def test_metrics_count_wrong_bits_and_exact_sequences() -> None:
    task, model = opened(), SequenceLSTM(SequenceLSTM.Config(hidden=4, layers=1), 4, 3)
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.constant_(model.output.bias, -5.0)  # all zeros
    batches = task.evaluation("test")
    answers = torch.cat([batches.batch(0, index)["bits"] for index in range(len(batches))])
    found = task.metrics(evaluate(model, task, batches).metrics())
    ones = answers.sum((1, 2))
    assert found["wrong_bits"] == pytest.approx(ones.mean().item())
    assert found["error"] == pytest.approx(100 * ones.sum().item() / (8 * 6 * 3))
    assert found["exact"] == pytest.approx(100 * (ones == 0).float().mean().item())


def test_the_optimal_loss_of_ngrams_is_reported() -> None:
    task = opened(
        algorithm={"name": "dynamic_ngrams", "order": 3}, lengths=[20, 20], validation=40, test=40
    )
    model = SequenceLSTM(SequenceLSTM.Config(hidden=4, layers=1), 1, 1)
    found = task.metrics(evaluate(model, task, task.evaluation("test")).metrics())
    assert 0 < found["optimal"] < found["loss"]


def test_a_run_predicts_and_shows_steps_by_name() -> None:
    task = opened()
    model = NTM(NTM.Config(hidden=5, slots=4, width=3), **task.sizes)
    (made,) = task.predict(model, [Text("3 1")])
    assert len(made.fields["bits"]) == 3
    assert made.text.endswith("of 9 bits wrong")
    reading = task.read(model, Text("2"))
    assert reading.axes["step"].labels == ("in 1", "in 2", "end", "out 1", "out 2")
    assert reading.title.startswith("copy of 2: ")


@pytest.mark.parametrize("line", ["", "a", "3 x", "1 2 3", "-2", "0", "99999"])
def test_other_inputs_are_refused(line: str) -> None:
    with pytest.raises(UserError, match=r"give a length|must be from 1 to"):
        opened().draw(Text(line))


def test_lengths_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="lengths from 5 to 4: they must be in order"):
        opened(lengths=[5, 4])
    with pytest.raises(UserError, match="the least at least 2"):
        opened(algorithm={"name": "associative_recall"}, lengths=[1, 4])
    with pytest.raises(UserError, match=r"repeats=\[3, 2\]: the least is above the most"):
        RepeatCopy(repeats=(3, 2)).draw(1, 1, 0)
    with pytest.raises(UserError, match=r"data.algorithm.name='sort' is not known"):
        data(algorithm={"name": "sort"})
    with pytest.raises(UserError, match="index=3 is outside"):
        AlgorithmBatches(CopyBits(), (1, 2), rows=1, count=3, place=(0,)).batch(0, 3)
