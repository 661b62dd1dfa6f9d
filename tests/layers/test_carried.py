"""What is carried from window to window, and the ends of a recurrent language model."""

import pytest
import torch

from regard.core.errors import UserError
from regard.layers.carry import Carried, following, recent
from regard.layers.embedding import Lexicon


def test_rows_are_chosen_of_every_tensor_that_has_rows() -> None:
    state = Carried({"hidden": torch.arange(6.0).view(3, 2), "time": torch.tensor(5)})
    chosen = state.select(torch.tensor([2, 2, 0, 1])).carry
    assert chosen is not None
    assert chosen["hidden"].tolist() == [[4, 5], [4, 5], [0, 1], [2, 3]]
    assert chosen["time"].item() == 5
    assert Carried().select(torch.tensor([0, 0])) == Carried()


def test_positions_follow_those_that_were_carried() -> None:
    new = torch.tensor([[3, 4]])
    assert following(None, "tokens", new) is new
    assert following({"tokens": torch.tensor([[1, 2]])}, "tokens", new).tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(("count", "kept"), [(0, []), (2, [2, 3]), (9, [1, 2, 3])])
def test_only_the_last_positions_are_handed_on(count: int, kept: list[int]) -> None:
    known = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    handed = recent(known, count)
    assert handed.tolist() == [kept]
    assert not handed.requires_grad


def test_a_tied_lexicon_has_one_table() -> None:
    tied, apart = Lexicon(7, 4, tied=True), Lexicon(7, 4)
    assert [each.shape for each in tied.parameters()] == [(7,), (7, 4)]
    assert len(list(apart.parameters())) == 3
    states = torch.randn(2, 3, 4)
    torch.testing.assert_close(tied.predict(states).logits(), states @ tied.embed.weight.T)
    assert tied.embed.weight.abs().max() <= 0.1


def test_a_lexicon_drops_what_enters_and_what_leaves() -> None:
    words = Lexicon(7, 64, dropout=0.5)
    tokens, states = torch.randint(7, (4, 5)), torch.ones(4, 5, 64)
    for dropped in (words(tokens), words.predict(states).states):
        assert 0.3 < (dropped == 0).double().mean() < 0.7
    words.eval()
    assert not (words(tokens) == 0).any()
    assert torch.equal(words.predict(states).states, states)


def test_a_lexicon_refuses_what_it_cannot_be(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="vocabulary=0 must be"):
        Lexicon(0, 4)
    with pytest.raises(UserError, match=r"dropout=1\.0 must be at least 0"):
        Lexicon(7, 4, dropout=1.0)
