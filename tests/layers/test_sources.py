"""Trained models as sources of features: ELMo's mix, and what is frozen and what learns."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.word_features import SourceFeatures
from regard.models.language.awd_lstm import AWDLSTM
from regard.models.text.bilstm_crf import BiLSTMCRF
from regard.models.text.elmo import ELMo
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.encoder_decoder import EncoderDecoder
from regard.models.translation.luong import Luong

LENGTHS = torch.tensor([3, 1])


def elmo() -> ELMo:
    config = ELMo.Config(
        width=4, hidden=6, character_width=3, filters=((1, 4), (2, 4)), dropout=0.5
    )
    return ELMo(config, vocabulary=9, characters=262)


SOURCES: dict[str, Callable[[], nn.Module]] = {
    "elmo": elmo,
    "awd_lstm": lambda: AWDLSTM(AWDLSTM.Config(width=4, hidden=6, drop_words=0.5), 9),
    "bahdanau": lambda: Bahdanau(Bahdanau.Config(width=4, hidden=5, dropout=0.5), 7, 9),
    "bahdanau, lstm": lambda: Bahdanau(Bahdanau.Config(width=4, hidden=5, cell="lstm"), 7, 9),
    "luong": lambda: Luong(Luong.Config(width=4), 7, 9),
    "encoder_decoder": lambda: EncoderDecoder(EncoderDecoder.Config(width=4), 7, 9),
    "encoder_decoder, forth": lambda: EncoderDecoder(
        EncoderDecoder.Config(width=4, reverse=False), 7, 9
    ),
}
"""Every model that others may hear."""


def batch() -> dict[str, Tensor]:
    characters = torch.randint(1, 257, (2, 3, 5))
    characters[1, 1:] = 0
    return {
        "characters": characters,
        "lengths": LENGTHS,
        "tokens": torch.tensor([[4, 5, 6], [7, 0, 0]]),
    }


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_source_says_of_a_text_depends_on_that_text_alone(name: str) -> None:
    given, read = SourceFeatures(SOURCES[name]()).eval(), batch()
    said = given(read)
    assert said.shape == (2, 3, given.width)
    alone = given(
        {
            "tokens": read["tokens"][1:, :1],
            "characters": read["characters"][1:, :1],
            "lengths": LENGTHS[1:],
        }
    )
    torch.testing.assert_close(said[1, :1], alone[0])
    assert (said[1, 1:] == 0).all(), "zero at padding"
    other = {**read, "source_tokens": read["tokens"], "tokens": read["tokens"] * 9}
    assert torch.equal(given(other), said), "words are those of the source's own vocabulary"
    nothing = {name: each[:1, :1] * 0 for name, each in read.items() if name != "lengths"}
    assert (given({**nothing, "lengths": torch.tensor([0])}) == 0).all(), "an empty text"


@pytest.mark.parametrize("name", SOURCES)
def test_every_word_of_a_text_has_its_own_place(name: str) -> None:
    """A word that changes shows at that word, whichever way it is read."""
    given, read = SourceFeatures(SOURCES[name]()).eval(), batch()
    changed = {**read, "tokens": read["tokens"].clone(), "characters": read["characters"].clone()}
    changed["tokens"][0, 1] = 8
    changed["characters"][0, 1] = torch.randint(1, 257, (5,))
    differ = (given(read) - given(changed)).abs().sum(2)[0] > 1e-6
    assert differ[1]
    if name in ("luong", "awd_lstm", "encoder_decoder, forth"):
        assert differ.tolist() == [False, True, True]
    if name == "encoder_decoder":
        assert differ.tolist() == [True, True, False]


def test_a_mix_learns_while_what_it_mixes_is_frozen_and_drops_nothing() -> None:
    given, read = SourceFeatures(elmo()).train(), batch()
    said = given(read)
    torch.testing.assert_close(said, given.model.layers_of(read).mean(0))
    said.square().sum().backward()
    assert given.mix.scores.grad.abs().sum() > 0
    assert given.mix.gamma.grad != 0
    assert all(each.grad is None for each in given.model.parameters())


def test_the_top_alone_is_the_last_layer_and_a_tuned_source_learns() -> None:
    read = batch()
    top = SourceFeatures(elmo(), mix="top").eval()
    torch.testing.assert_close(top(read), top.model.layers_of(read)[-1])
    assert not any(each.requires_grad for each in top.parameters())
    tuned = SourceFeatures(elmo(), tune=True).train()
    tuned(read).square().sum().backward()
    learns = {name for name, each in tuned.named_parameters() if each.grad is not None}
    assert {"mix.scores", "model.words.project.weight", "model.ahead.0.read.weight"} <= learns
    assert not {"model.output.weight"} & learns


def test_normed_layers_have_no_mean() -> None:
    given, read = SourceFeatures(elmo(), mix="normed").eval(), batch()
    assert given(read)[0].mean().abs() < 1
    torch.testing.assert_close(given(read).sum(), torch.tensor(0.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("place", ["words", "between"])
def test_a_tagger_takes_them_beside_its_words_or_after_its_first_layer(place: str) -> None:
    config = BiLSTMCRF.Config(
        width=5, hidden=4, characters="none", source="runs/x", source_at=place
    )
    model = BiLSTMCRF(config, vocabulary=9, classes=3, source=elmo()).eval()
    said = model(batch()).probabilities()
    assert said.shape == (2, 3, 3)
    learns = [name for name, each in model.named_parameters() if each.requires_grad]
    assert sum("mix." in name for name in learns) == 2
    assert not any("ahead" in name for name in learns)


def test_a_model_without_features_is_no_source(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"a Linear cannot be a source of features"):
        SourceFeatures(nn.Linear(2, 2))
