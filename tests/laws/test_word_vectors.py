"""Laws of models that learn a vector for each word, over the whole table."""

from collections.abc import Mapping

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.models import MODELS
from regard.outputs.word_pairs import WordPairs
from tests.laws.families import FAMILIES

NAMES = FAMILIES["word vectors"]
B, Q, REACH, NOISE, V, BUCKETS, GRAMS = 3, 4, 2, 5, 12, 7, 3

SMALL: dict[str, dict[str, object]] = {
    "skip_gram": {"width": 6},
    "cbow": {"width": 6},
    "glove": {"width": 6},
    "subword_skip_gram": {"width": 6},
}
OTHER: dict[str, dict[str, object]] = {
    "skip_gram": {"width": 5, "negatives": 3},
    "cbow": {"width": 5, "negatives": 3},
    "glove": {"width": 5, "most": 4.0},
    "subword_skip_gram": {"width": 5, "negatives": 3},
}
"""Another value for every field of every config: each must make a difference."""


def made(name: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one before training."""
    config = MODELS[name].Config(**{**SMALL[name], **(changes or {})})
    return MODELS[name](config, words=V, buckets=BUCKETS if name == "subword_skip_gram" else 0)


def built(name: str) -> nn.Module:
    """A small one in double, with weights large enough that everything matters."""
    model = made(name).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def grams_of(words: Tensor) -> Tensor:
    """N-grams of words: the same for the same word, fewer for some, 0 where there is none."""
    table = torch.arange(V)[:, None] * torch.tensor([3, 5, 2]) % BUCKETS + 1
    table[::3, 2] = 0
    table[0] = 0
    return table[words]


def batch() -> dict[str, Tensor]:
    """Rows of words with their neighbours and noise, and cells of a table of counts.

    The last centre of each row has no neighbour, as the end of a text.
    """
    torch.manual_seed(2)
    words = torch.randint(1, V, (B, Q + 2 * REACH))
    offsets = torch.arange(Q + 2 * REACH) - torch.arange(Q)[:, None] - REACH
    near = ((offsets != 0) & (offsets.abs() <= REACH)).expand(B, -1, -1).clone()
    near[:, -1] = False
    return {
        "words": words,
        "near": near,
        "noise": torch.randint(1, V, (B, NOISE)),
        "grams": grams_of(words),
        "rows": torch.tensor([1, 4, 7]),
        "columns": torch.tensor([2, 4, 9]),
        "counts": torch.tensor([1.0, 3.0, 50.0]).double(),
    }


def alone(whole: Batch, row: int) -> Batch:
    return {name: each[row : row + 1] for name, each in whole.items()}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return WordPairs.of(model, batch).loss(batch)


def vectors(model: nn.Module, words: Tensor) -> Tensor:
    found: Tensor = model.vectors({"words": words, "grams": grams_of(words)})
    return found


def test_every_model_is_in_these_tables() -> None:
    assert set(SMALL) == set(OTHER) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_is_the_sum_of_those_of_its_rows(name: str) -> None:
    model, whole = built(name), batch()
    rows = [alone(whole, row) for row in range(B)]
    each = torch.stack([loss(model, row) for row in rows])
    torch.testing.assert_close(loss(model, whole), each.sum(), atol=1e-5, rtol=0)
    assert model(whole).items == sum(model(row).items for row in rows) > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "glove"])
def test_a_centre_without_neighbours_costs_nothing_whatever_it_is(name: str) -> None:
    model, whole, last = built(name), batch(), REACH + Q - 1
    assert not whole["near"][:, -1].any()
    whole["near"][:, :, last] = False  # nor is it a neighbour of others
    other = {key: each.clone() for key, each in whole.items()}
    other["words"][:, last] = whole["words"][:, last] % (V - 1) + 1
    other["grams"] = grams_of(other["words"])
    cut = {key: whole[key][:, :-1] for key in ("words", "grams")}  # rows that end before it
    shorter = {**whole, **cut, "near": whole["near"][:, :-1, :-1]}
    for changed in (other, shorter):
        torch.testing.assert_close(loss(model, changed), loss(model, whole))
        assert model(changed).items == model(whole).items > 0


@pytest.mark.parametrize("name", NAMES)
def test_vectors_do_not_depend_on_those_asked_with_them(name: str) -> None:
    model = built(name)
    together = vectors(model, torch.arange(V))
    assert together.shape == (V, 6)
    for word in range(V):
        torch.testing.assert_close(vectors(model, torch.tensor([word]))[0], together[word])
    assert (together[1:, None] - together[None, 1:]).norm(dim=2).fill_diagonal_(1.0).min() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_sparse_and_only_of_words_that_were_read(name: str) -> None:
    model, whole = built(name), batch()
    loss(model, whole).backward()
    read = {int(word) for key in ("words", "noise") for word in whole[key].flatten()}
    cells = {int(word) for key in ("rows", "columns") for word in whole[key]}
    for key, each in model.named_parameters():
        assert each.grad is not None, key
        assert each.grad.is_sparse, key
        touched = each.grad.to_dense().abs().sum(1).nonzero().flatten().tolist()
        assert touched, key
        assert {row for row in touched if row < V} <= (cells if name == "glove" else read), key


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_loads_to_the_same_bits(name: str) -> None:
    model, other, whole = built(name), built(name), batch()
    assert not torch.equal(loss(model, whole), loss(other, whole))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(loss(model, whole), loss(other, whole))
    words = torch.arange(V)
    assert torch.equal(vectors(model, words), vectors(other, words))


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name in NAMES for field in MODELS[name].Config.model_fields],
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field needs another value in the table"
    losses = []
    for changes in ({}, {field: OTHER[name][field]}):
        torch.manual_seed(1)
        model = made(name, changes)
        for each in model.parameters():
            nn.init.normal_(each, std=0.6)
        losses.append(loss(model, batch() | {"counts": batch()["counts"].float()}))
    assert (losses[0] - losses[1]).abs() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_attention_to_record(name: str) -> None:
    with pytest.raises(UserError, match="has no attention"), record(built(name)):
        pass


@pytest.mark.parametrize("name", NAMES)
def test_a_few_rows_are_learnt_by_heart(name: str, as_users_run_it: None) -> None:
    model, whole = made(name, {"width": 16}).double(), batch()
    optimiser = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    first = loss(model, whole).item()
    for _ in range(100):
        optimiser.zero_grad()
        loss(model, whole).backward()
        optimiser.step()
    assert loss(model, whole).item() < 0.5 * first
