"""The cache is a value, and appending to it copies one row."""

import pytest
import torch

from regard.attention import Memory
from regard.core.errors import UserError
from regard.layers import Cache

B, H, E = 3, 2, 4


def token(value: float, batch: int = B) -> Memory:
    filled = torch.full((batch, H, 1, E), float(value))
    return Memory(filled, -filled)


def held(cache: Cache) -> list[float]:
    return cache.memory.key[0, 0, :, 0].tolist()


def test_appending_writes_one_row_in_place() -> None:
    cache = Cache(room=8).append(token(1))
    address = cache.memory.key.data_ptr()
    for value in range(2, 9):
        cache = cache.append(token(value))
        assert cache.memory.key.data_ptr() == address
    assert held(cache) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert cache.append(token(9)).memory.key.data_ptr() != address


def test_a_branch_does_not_overwrite_its_sibling() -> None:
    trunk = Cache(room=8).append(token(1))
    left, right = trunk.append(token(2)), trunk.append(token(3))
    assert (held(trunk), held(left), held(right)) == ([1], [1, 2], [1, 3])
    further = left.append(token(4))
    assert (held(left), held(right), held(further)) == ([1, 2], [1, 3], [1, 2, 4])


def test_growing_keeps_what_was_there_and_doubles() -> None:
    cache = Cache(room=2)
    for value in range(1, 12):
        cache = cache.append(token(value))
    assert held(cache) == list(range(1, 12))
    assert cache.store is not None
    assert cache.store.size == 16


def test_selected_rows_are_independent_and_in_order() -> None:
    keys = torch.arange(B, dtype=torch.float32).view(B, 1, 1, 1).expand(B, H, 1, E)
    cache = Cache(room=4).append(Memory(keys, keys))
    chosen = cache.select(torch.tensor([2, 2, 0, 1]))
    assert chosen.memory.key[:, 0, 0, 0].tolist() == [2, 2, 0, 1]
    longer = chosen.append(token(9, batch=4))
    assert longer.memory.key[:, 0, :, 0].tolist() == [[2, 9], [2, 9], [0, 9], [1, 9]]
    assert cache.memory.key[:, 0, :, 0].tolist() == [[0], [1], [2]]


def test_a_cache_refuses_what_does_not_fit(as_users_run_it: None) -> None:
    cache = Cache().append(token(1))
    with pytest.raises(
        UserError, match=r"holds batch and heads \(3, 2\), the new keys have \(2, 2\)"
    ):
        cache.append(token(1, batch=2))
    with pytest.raises(UserError, match="append to it first"):
        _ = Cache().memory
    with pytest.raises(UserError, match="room=0 must be"):
        Cache(room=0)
