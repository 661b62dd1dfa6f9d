"""GPT's classifier against the equations of Radford et al. 2018, and how it begins."""

import pytest
import torch

from regard.core.errors import UserError
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from regard.models.text.gpt_classifier import GPTClassifier

BODY = GPT.Config(width=8, heads=2, layers=2, context=9)
V, C = 11, 3


def batch() -> dict[str, torch.Tensor]:
    return {"tokens": torch.randint(0, V, (3, 6)), "lengths": torch.tensor([6, 2, 1])}


@torch.no_grad()
def test_the_auxiliary_loss_is_the_mean_nll_of_each_text() -> None:
    config = GPTClassifier.Config(body=BODY, next_token_weight=0.5, dropout=0.0)
    model = GPTClassifier(config, V, C).train()
    held = batch()
    output = model(held)
    assert model.eval()(held).auxiliary is None
    assert torch.equal(output.logits, model(held).logits)
    total = 0.0
    for tokens, length in zip(held["tokens"], held["lengths"], strict=True):
        if length < 2:
            continue  # there is no next token to guess
        text = tokens[None, :length]
        likely = model.body({"tokens": text}).logits().log_softmax(2)[0]
        losses = [-likely[place, text[0, place + 1]] for place in range(int(length) - 1)]
        total += 0.5 * float(sum(losses)) / len(losses)  # equation 1 in equation 5
    assert output.auxiliary.item() == pytest.approx(total, abs=1e-5)


@torch.no_grad()
def test_classes_are_read_off_the_last_token_alone() -> None:
    model = GPTClassifier(GPTClassifier.Config(body=BODY, bias=True), V, C).eval()
    held = batch()
    for row, length in enumerate(held["lengths"].tolist()):
        states = model.body.states(held["tokens"][row : row + 1, :length])
        torch.testing.assert_close(
            model(held).logits[row], model.output(states[0, -1]), atol=1e-6, rtol=1e-6
        )


def test_without_its_weight_there_is_no_auxiliary_loss() -> None:
    model = GPTClassifier(GPTClassifier.Config(body=BODY), V, C).train()
    assert model(batch()).auxiliary is None


@pytest.mark.parametrize("more", [0, 3])
@torch.no_grad()
def test_it_begins_with_a_trained_gpt_and_new_vectors_for_new_marks(more: int) -> None:
    source = GPT(BODY.model_copy(update={"tied": False}), V).eval()
    model = GPTClassifier(GPTClassifier.Config(), V + more, C, source=source).eval()
    assert model.body.config == source.config
    tokens = batch()["tokens"]
    assert torch.equal(model.body.states(tokens), source.states(tokens))
    logits = model.body({"tokens": tokens}).logits()
    torch.testing.assert_close(
        logits[..., :V], source({"tokens": tokens}).logits(), atol=1e-6, rtol=1e-6
    )
    model.body.embed.table.weight.zero_()
    assert source.embed.table.weight.any(), "the source is not touched"


@pytest.mark.usefixtures("as_users_run_it")
def test_it_begins_with_nothing_else() -> None:
    with pytest.raises(UserError, match="a gpt was expected"):
        GPTClassifier(GPTClassifier.Config(), V, C, source=RNNLM(RNNLM.Config(), V))
    with pytest.raises(UserError, match="the source has 11 tokens, these data have 7"):
        GPTClassifier(GPTClassifier.Config(), 7, C, source=GPT(BODY, V))
    other = BODY.model_copy(update={"layers": 1})
    with pytest.raises(UserError, match=r"leave it out"):
        GPTClassifier(GPTClassifier.Config(body=other), V, C, source=GPT(BODY, V))


def test_stages_hold_every_parameter_once_from_the_bottom_up() -> None:
    model = GPTClassifier(GPTClassifier.Config(body=BODY, bias=True), V, C)
    stages = model.stages()
    assert len(stages) == 2 + BODY.layers
    held = [id(each) for stage in stages for each in stage]
    assert sorted(held) == sorted(id(each) for each in model.parameters())


def test_what_is_drawn_anew_has_nothing_of_its_source() -> None:
    source = GPTClassifier(GPTClassifier.Config(body=BODY), V, C)
    model = GPTClassifier(GPTClassifier.Config(fresh=True), V, C, source=source)
    assert model.body.config == source.body.config
    for name, each in model.named_parameters():
        same = torch.equal(each, source.get_parameter(name))
        assert not same or not each.any() or bool((each == 1).all()), name
    begun = GPTClassifier(GPTClassifier.Config(), V, C, source=source)
    assert torch.equal(begun.output.weight, source.output.weight)
