"""Trained models as sources of features: ELMo's mix, and what is frozen and what learns."""

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.words import Given
from regard.models.bilstm_crf import BiLSTMCRF
from regard.models.elmo import ELMo

LENGTHS = torch.tensor([3, 1])


def elmo() -> ELMo:
    config = ELMo.Config(width=4, hidden=6, letter_width=3, filters=((1, 4), (2, 4)), dropout=0.5)
    return ELMo(config, vocabulary=9, letters=262)


def batch() -> dict[str, Tensor]:
    letters = torch.randint(1, 257, (2, 3, 5))
    letters[1, 1:] = 0
    return {"letters": letters, "lengths": LENGTHS, "tokens": torch.tensor([[4, 5, 6], [7, 0, 0]])}


def test_a_mix_learns_while_what_it_mixes_is_frozen_and_drops_nothing() -> None:
    given, read = Given(elmo()).train(), batch()
    said = given(read)
    torch.testing.assert_close(said, given.model.layers_of(read).mean(0))
    said.square().sum().backward()
    assert given.mix.scores.grad.abs().sum() > 0
    assert given.mix.gamma.grad != 0
    assert all(each.grad is None for each in given.model.parameters())


def test_the_top_alone_is_the_last_layer_and_a_tuned_source_learns() -> None:
    read = batch()
    top = Given(elmo(), mix="top").eval()
    torch.testing.assert_close(top(read), top.model.layers_of(read)[-1])
    assert not any(each.requires_grad for each in top.parameters())
    tuned = Given(elmo(), tune=True).train()
    tuned(read).square().sum().backward()
    learns = {name for name, each in tuned.named_parameters() if each.grad is not None}
    assert {"mix.scores", "model.words.project.weight", "model.ahead.0.read.weight"} <= learns
    assert not {"model.output.weight"} & learns


def test_normed_layers_have_no_mean() -> None:
    given, read = Given(elmo(), mix="normed").eval(), batch()
    assert given(read)[0].mean().abs() < 1
    torch.testing.assert_close(given(read).sum(), torch.tensor(0.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("place", ["words", "between"])
def test_a_tagger_takes_them_beside_its_words_or_after_its_first_layer(place: str) -> None:
    config = BiLSTMCRF.Config(width=5, hidden=4, letters="none", source="runs/x", source_at=place)
    model = BiLSTMCRF(config, vocabulary=9, classes=3, source=elmo()).eval()
    said = model(batch()).probabilities()
    assert said.shape == (2, 3, 3)
    learns = [name for name, each in model.named_parameters() if each.requires_grad]
    assert sum("mix." in name for name in learns) == 2
    assert not any("ahead" in name for name in learns)


def test_a_model_without_features_is_no_source(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"a Linear cannot be a source of features"):
        Given(nn.Linear(2, 2))
