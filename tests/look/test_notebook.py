"""tape.show(): what was recorded, with labels or with numbers, one row of the batch."""

import pytest
import torch

from regard.attention import causal, record
from regard.attention.tape import Tape
from regard.core.axes import Slots
from regard.core.errors import UserError
from regard.layers import SelfAttention
from regard.look import Looks
from tests.look.test_translators import TRANSLATORS, source_batch


def recorded(calls: int = 1) -> Tape:
    layer = SelfAttention(8, heads=2)
    with record(layer) as tape:
        for _ in range(calls):
            layer(torch.randn(2, 5, 8), causal())
    return tape


def test_without_labels_positions_have_numbers() -> None:
    tape = recorded()
    shown = tape.show(row=1)
    assert isinstance(shown, Looks)
    (payload,) = shown.payloads
    assert payload.queries.labels == payload.keys.labels == ("0", "1", "2", "3", "4")
    torch.testing.assert_close(torch.tensor(payload.weights), tape.weights("attend")[1])


def test_labels_are_a_pair_or_pairs_by_site() -> None:
    words = tuple("abcde")
    tape = recorded()
    assert tape.show((words, words)).payloads[0].keys.labels == words
    slots = Slots.of(len(words))
    assert tape.show((words, slots)).payloads[0].keys == slots, "an axis stays what it is"
    assert tape.show({"att*": (words, words)}).payloads[0].queries.labels == words
    with pytest.raises(UserError, match="site"):
        tape.show({"decoder": (words, words)})


def test_calls_that_start_over_are_shown_each_for_itself() -> None:
    assert [each.step for each in recorded(3).show().payloads] == [0, 1, 2]


def test_the_steps_of_a_decoder_are_joined() -> None:
    model = TRANSLATORS["bahdanau"][0]().eval()
    with torch.no_grad(), record(model) as tape:
        state = model.start(source_batch())
        for _ in range(4):
            _, state = model.step(torch.tensor([5, 5]), state)
    (payload,) = tape.show().payloads
    assert payload.weights.shape == (1, 4, 5)


def test_a_notebook_shows_a_tape_and_an_empty_one_as_text() -> None:
    html = recorded()._repr_html_()
    assert html is not None
    assert html.startswith("<iframe")
    assert Tape((), None, None)._repr_html_() is None
