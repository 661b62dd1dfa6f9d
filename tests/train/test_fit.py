"""Training without a recipe: lists and torch data sets, with the loop of `regard train`."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import regard
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.layers import SelfAttention
from regard.train.display import SilentDisplay
from regard.train.fit import ExampleBatches


class Finder(nn.Module):
    """Is there a 7 in a sequence of digits?"""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attention = nn.Embedding(10, 16), SelfAttention(16, heads=4, dropout=0.1)
        self.output = nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        logits: Tensor = self.output((x + self.attention(x)).amax(1))
        return logits


def examples(count: int = 64) -> list[dict[str, Tensor]]:
    draws = torch.Generator().manual_seed(1)
    every = torch.randint(10, (count, 8), generator=draws)
    return [{"tokens": tokens, "label": (tokens == 7).any().long()} for tokens in every]


def mean_loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["tokens"]), batch["label"])


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Examples with augmentation by torch's random numbers."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.full((3,), float(index)) / 20
        return x + 0.1 * torch.randn(3), x.sum(0, keepdim=True)


def pair_loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["inputs"]), batch["targets"])


def test_a_list_of_examples_is_learned(tmp_path: Path) -> None:
    model = Finder()
    result = regard.fit(
        model,
        examples(),
        loss=mean_loss,
        folder=tmp_path,
        validation=examples(100)[64:],
        epochs=30,
        batch_size=16,
        lr=1e-2,
        weights="best",
        display=SilentDisplay(),
    )
    assert (result.outcome, result.update) == ("finished", 30 * 4)
    model.eval()
    tokens = torch.stack([each["tokens"] for each in examples()])
    labels = torch.stack([each["label"] for each in examples()])
    assert (model(tokens).argmax(1) == labels).float().mean() > 0.9
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert any("validation" in str(line) for line in lines)
    assert (tmp_path / "model.safetensors").exists()
    assert list((tmp_path / "state").iterdir())


@pytest.mark.parametrize("augmented", [False, True])
def test_a_training_that_was_stopped_ends_with_the_same_bits(
    augmented: bool, tmp_path: Path
) -> None:
    def run(folder: Path) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model: nn.Module = nn.Linear(3, 1) if augmented else Finder()
        regard.fit(
            model,
            Noisy() if augmented else examples(),
            loss=pair_loss if augmented else mean_loss,
            folder=folder,
            epochs=3,
            batch_size=8,
            display=SilentDisplay(),
        )
        return model.state_dict()

    whole = run(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    newest = max((tmp_path / "run" / "state").iterdir())
    newest.rename(tmp_path / "newest")
    resumed = run(tmp_path / "run")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert all(torch.equal(whole[name], each) for name, each in run(tmp_path / "run").items())


def test_other_examples_are_noticed_on_resume(tmp_path: Path, as_users_run_it: None) -> None:
    given = {"loss": mean_loss, "folder": tmp_path, "batch_size": 16, "display": SilentDisplay()}
    regard.fit(Finder(), examples(), updates=2, **given)
    changed = examples()
    changed[3]["tokens"] = changed[3]["tokens"].flip(0) + 1
    with pytest.raises(UserError, match="digest of the training data"):
        regard.fit(Finder(), changed, updates=4, **given)


def test_every_example_comes_once_an_epoch_in_an_order_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        numbers = [torch.tensor(n) for n in range(11)]
        batches = ExampleBatches(numbers, 4, seed=seed)
        return [n for i in range(len(batches)) for n in batches.batch(epoch, i)["inputs"].tolist()]

    assert sorted(order(0, 0)) == list(range(11))
    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    state = torch.get_rng_state()
    order(0, 0)
    assert torch.equal(state, torch.get_rng_state())


def test_augmentation_by_torch_depends_on_seed_epoch_and_index_alone() -> None:
    batches = ExampleBatches(Noisy(), 4, seed=3)
    first = batches.batch(1, 2)["inputs"]
    torch.rand(7)
    assert torch.equal(batches.batch(1, 2)["inputs"], first)
    assert not torch.equal(ExampleBatches(Noisy(), 4, seed=4).batch(1, 2)["inputs"], first)


def test_examples_that_differ_each_time_are_known_by_their_number() -> None:
    class Random(Noisy):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return torch.full((3,), random.random()), torch.zeros(1)

    assert ExampleBatches(Random(), 4).digest == ExampleBatches(Random(), 4).digest
    assert ExampleBatches(Noisy(), 4).digest != ExampleBatches(Random(), 4).digest


def test_processes_share_out_the_rows() -> None:
    batches = ExampleBatches([torch.tensor(n) for n in range(9)], 4, seed=0)
    parts = [batches.shard(rank, 2) for rank in range(2)]
    assert [len(part) for part in parts] == [2, 2], "a last batch of one row is left out"
    rows = [part.batch(0, 0)["inputs"].tolist() for part in parts]
    assert sorted(rows[0] + rows[1]) == sorted(batches.batch(0, 0)["inputs"].tolist())
    assert len(batches) == 3


def test_a_loss_may_count_its_own_items(tmp_path: Path) -> None:
    def summed(model: nn.Module, batch: Batch) -> regard.Loss:
        total = F.cross_entropy(model(batch["tokens"]), batch["label"], reduction="sum")
        return regard.Loss(total=total, items=len(batch["label"]))

    weights = []
    for number, loss in enumerate((mean_loss, summed)):
        torch.manual_seed(0)
        model = Finder()
        folder = tmp_path / str(number)
        regard.fit(model, examples(), loss=loss, folder=folder, updates=3, display=SilentDisplay())
        weights.append(model.output.weight)
    torch.testing.assert_close(*weights)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter([torch.zeros(3)])


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "a loss for each row": (
        {"loss": lambda m, b: F.cross_entropy(m(b["tokens"]), b["label"], reduction="none")},
        r"loss must return one number.*it returned a tensor of \[32\]",
    ),
    "no end": ({"updates": None}, "updates or epochs; neither is given"),
    "a typo": ({"epoch": 3}, r"unknown key 'fit.epoch': did you mean 'fit.epochs'"),
    "no optimiser": ({"optimiser": "adamm"}, r"fit.optimiser.name='adamm' is not known"),
    "no examples": ({"data": []}, "there are no examples"),
    "texts": ({"data": [{"text": "a"}] * 4}, r"'text' of a batch is no tensor; give collate="),
    "triples": ({"data": [(1, 2, 3)] * 4}, "give collate=, which returns a dict of tensors"),
    "a stream": ({"data": Stream()}, "iterable data set can be made a list first"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_named(case: str, tmp_path: Path, as_users_run_it: None) -> None:
    changes, message = WRONG[case]
    given = {
        "data": examples(),
        "loss": mean_loss,
        "updates": 2,
        "display": SilentDisplay(),
        **changes,
    }
    with pytest.raises(UserError, match=message):
        regard.fit(Finder(), given.pop("data"), folder=tmp_path, **given)
