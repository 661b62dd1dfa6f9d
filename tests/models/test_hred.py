"""HRED against a literal loop over Sordoni et al. 2015, and what may know of what."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from regard.core.config import parse
from regard.core.errors import UserError
from regard.models.language.hred import HRED

B, T, V, D, C, END = 3, 12, 7, 5, 4, 3


def built() -> HRED:
    model = HRED(HRED.Config(width=D, context=C, end=END), V).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def talk() -> Tensor:
    """Streams with no turn, with empty ones, and with one that ends at the edge."""
    tokens = torch.randint(V - 1, (B, T))
    tokens[tokens == END] = V - 1
    tokens[1, [0, 1, 5, T - 1]] = END
    tokens[2, 6] = END
    return tokens


def gru(cells: nn.GRU, x: Tensor, h: Tensor) -> Tensor:
    """One step, written out."""
    sums = (cells.weight_ih_l0 @ x + cells.bias_ih_l0).chunk(3)
    olds = (cells.weight_hh_l0 @ h + cells.bias_hh_l0).chunk(3)
    reset, update = ((a + b).sigmoid() for a, b in zip(sums[:2], olds[:2], strict=True))
    candidate = torch.tanh(sums[2] + reset * olds[2])
    return (1 - update) * candidate + update * h


@torch.no_grad()
def literal(model: HRED, tokens: Tensor) -> Tensor:
    """One stream, word by word."""
    encoder, context = torch.zeros(D).double(), torch.zeros(C).double()
    decoder = torch.tanh(model.begin.weight @ context + model.begin.bias)
    rows = []
    for token in tokens:
        w = model.words.embed.weight[token]
        encoder = gru(model.encoder, w, encoder)
        if token == END:
            context = gru(model.context, encoder, context)
            decoder = torch.tanh(model.begin.weight @ context + model.begin.bias)
            encoder = torch.zeros(D).double()
        decoder = gru(model.decoder, w, decoder)
        omega = model.merge.weight @ torch.cat((decoder, w)) + model.merge.bias
        rows.append(model.words.output.weight @ omega + model.words.bias)
    return torch.stack(rows)


def test_it_is_the_equation() -> None:
    model, tokens = built(), talk()
    logits = model({"tokens": tokens}).logits()
    for row in range(B):
        torch.testing.assert_close(logits[row], literal(model, tokens[row]))


@pytest.mark.parametrize("cut", range(1, T))
def test_windows_may_cut_turns_anywhere(cut: int) -> None:
    model, tokens = built(), talk()
    tokens[0, 2::3] = END  # a turn that goes over the cut, and others after it
    first = model({"tokens": tokens[:, :cut]})
    carry = first.carry
    both = torch.cat((first.logits(), model({"tokens": tokens[:, cut:]}, carry).logits()), dim=1)
    torch.testing.assert_close(both, model({"tokens": tokens}).logits())


def test_the_context_changes_once_per_turn() -> None:
    model, tokens = built(), talk()
    carry, contexts = None, [torch.zeros(B, C).double()]
    for token in tokens.split(1, dim=1):
        carry = model({"tokens": token}, carry).carry
        contexts.append(carry["context"])
    moved = torch.stack([(a != b).any(1) for a, b in pairwise(contexts)], 1)
    assert torch.equal(moved, tokens == END)


def test_a_turn_is_written_from_the_context_and_its_own_words_alone() -> None:
    """With the same context and the same turn, what else was said before cannot be seen."""
    model, turn = built(), torch.tensor([[END, 1, 2, 4]])
    carries = []
    for before in (torch.tensor([[5, 6, END, 0]]), torch.tensor([[2, END, 1, 1]])):
        carry = dict(model({"tokens": before}).carry)
        carry["encoder"], carry["context"] = torch.ones(1, D).double(), torch.ones(1, C).double()
        carries.append(carry)
    assert not torch.equal(carries[0]["decoder"], carries[1]["decoder"])
    one, other = (model({"tokens": turn}, carry).logits() for carry in carries)
    assert torch.equal(one, other)


def test_earlier_turns_reach_later_ones_through_the_context() -> None:
    model, tokens = built(), talk()
    changed = tokens.clone()
    changed[2, 2] = (changed[2, 2] + 1) % END
    apart = (
        (model({"tokens": tokens}).logits() - model({"tokens": changed}).logits()).abs().amax(2)[2]
    )
    assert (apart[:2] == 0).all()
    assert (apart[2:] > 1e-9).all()


def test_a_closing_token_outside_the_vocabulary_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="end=7 is no token of a vocabulary of 7"):
        HRED(HRED.Config(width=D, context=C, end=7), V)
    with pytest.raises(UserError, match=r"model\.end=-1 must be greater than or equal to 0"):
        parse(HRED.Config, {"end": -1}, at="model")
