"""Words: tables, spellings and vectors; recurrent layers over padded rows."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core.errors import UserError
from regard.data import SPECIALS, UNK
from regard.layers.bidirectional import Bidirectional
from regard.layers.character_words import SpellingCNN, character_encoder
from regard.layers.recurrent import CELLS
from regard.layers.sentences import SentenceCut
from regard.layers.word_features import UNKNOWN_WORD, WordFeatures

LENGTHS = torch.tensor([5, 2, 1])


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_both_ways_over_padded_rows_is_what_torch_gives_for_packed_ones(
    kind: str, layers: int
) -> None:
    ours = Bidirectional(kind, 4, 3, layers=layers)
    theirs = CELLS[kind](4, 3, layers, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for depth in range(layers):
            for side, name in ((ours.forth, ""), (ours.back, "_reverse")):
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    own = getattr(side[depth], f"{part}_l0")
                    getattr(theirs, f"{part}_l{depth}{name}").copy_(own)
    x = torch.randn(3, 5, 4)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    states, last = theirs(packed)
    expected, _ = pad_packed_sequence(states, batch_first=True)
    found = ours(x, LENGTHS)
    torch.testing.assert_close(found, expected)
    final = last[0] if isinstance(last, tuple) else last
    torch.testing.assert_close(ours.last(found, LENGTHS), torch.cat((final[-2], final[-1]), dim=1))


def test_sentences_read_in_groups_are_those_read_alone() -> None:
    parts = torch.tensor([[0] * 9 + [1] + [2] * 2, [0] * 3 + [-1] * 9, [-1] * 12])
    encoder, x = Bidirectional("gru", 4, 3), torch.randn(3, 12, 4)
    cut = SentenceCut.of(parts)
    assert cut.lengths.tolist() == [9, 1, 2, 3]
    assert [group.tolist() for group in cut.groups()] == [[1, 2], [3], [0]]
    assert cut.padding_fraction() == pytest.approx(1 - 15 / 16)
    found = cut.read(encoder, x)
    for row, begin, end in ((0, 0, 9), (0, 9, 10), (0, 10, 12), (1, 0, 3)):
        one = encoder(x[row : row + 1, begin:end], torch.tensor([end - begin]))
        torch.testing.assert_close(found[row, begin:end], one[0])
    assert not found[parts < 0].any()


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_spellings_do_not_depend_on_longer_ones_beside_them(kind: str) -> None:
    encoder = character_encoder(kind, 6, 4, 0.0)
    assert encoder is not None
    short = torch.tensor([[[259, 98, 260]]])
    wide = torch.zeros(1, 3, 7).long()
    wide[0, 0, :3] = short[0, 0]
    wide[0, 1] = torch.arange(3, 10)
    found = encoder(wide)
    torch.testing.assert_close(found[:, :1], encoder(short))
    assert not found[0, 2].any(), "no word has no spelling"


def test_the_character_cnn_is_a_maximum_over_windows() -> None:
    encoder = SpellingCNN(5, 4, window=3)
    characters = torch.tensor([259, 98, 99, 260])
    padded = nn.functional.pad(encoder.embed(characters), (0, 0, 2, 2))
    windows = [encoder.filters(padded[place : place + 3].flatten()) for place in range(6)]
    expected = torch.stack(windows).amax(0)
    torch.testing.assert_close(encoder(characters[None, None])[0, 0], expected)


def test_vectors_take_the_place_of_known_words_only() -> None:
    words = WordFeatures(5, 2)
    before = words.table.weight.detach().clone()
    known = torch.tensor([True, False, True, False, False])
    words.initialise_vectors(torch.full((5, 2), 7.0), known)
    assert words.table.weight[2].tolist() == [7.0, 7.0]
    assert torch.equal(words.table.weight[[1, 3, 4]], before[[1, 3, 4]])
    assert not words.table.weight[0].any(), "padding stays zero"


def test_vectors_of_another_width_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"3 wide and the model's words 2: set model\.width = 3"):
        WordFeatures(5, 2).initialise_vectors(torch.zeros(5, 3), torch.ones(5).bool())


def test_an_encoder_of_characters_that_nobody_knows_is_named(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown encoder of characters 'ccn': did you mean 'cnn'"):
        character_encoder("ccn", 4, 4, 0.0)


def test_hidden_words_are_looked_up_as_unknown_in_training_only() -> None:
    torch.manual_seed(0)
    words = WordFeatures(9, 3, characters=SpellingCNN(2, 2), hide=0.25)
    tokens = torch.tensor([[*range(4, 9), 0]]).repeat(400, 1)
    batch = {"tokens": tokens, "characters": torch.ones(400, 6, 4).long()}
    seen = words(batch)
    table, characters = seen[..., :3], seen[..., 3:]
    unknown = torch.isclose(table, words.table.weight[1]).all(2)
    assert 0.2 < unknown[:, :5].float().mean() < 0.3
    assert torch.equal(table[~unknown], words.table(tokens)[~unknown])
    assert not unknown[:, 5].any()  # padding stays zero
    whole = words.eval()(batch)
    assert torch.equal(whole[..., :3], words.table(tokens))
    assert torch.equal(whole[..., 3:], characters)
    assert SPECIALS[UNKNOWN_WORD] == UNK
