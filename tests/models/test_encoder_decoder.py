"""Sequence to sequence without attention, against a literal loop."""

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.models.translation.encoder_decoder import EncoderDecoder
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, read, stirred, texts

CELLS = ("gru", "lstm")


def built(cell: str, layers: int = 2, **changes: object) -> EncoderDecoder:
    config = EncoderDecoder.Config(cell=cell, width=5, layers=layers, **changes)
    model = EncoderDecoder(config, V, SOURCES)
    stirred(model)
    return model


def literal(model: EncoderDecoder, source: Tensor, tokens: Tensor) -> Tensor:
    _, states = read(model, source.flip(0) if model.config.reverse else source)
    rows = []
    for token in tokens:
        states = climbed(model.decoder, model.words.embed.weight[token], None, states)
        rows.append(model.words.output.weight @ states[-1][0] + model.words.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_the_equation(cell: str, layers: int, reverse: bool) -> None:
    model, batch = built(cell, layers, reverse=reverse), texts()
    logits = model(batch).logits()
    for row, length in enumerate(LENGTHS):
        want = literal(model, batch["source"][row, :length], batch["tokens"][row])
        torch.testing.assert_close(logits[row], want)


@pytest.mark.parametrize("cell", CELLS)
def test_reading_from_the_end_is_reading_a_source_that_was_turned_around(cell: str) -> None:
    forward, backward, batch = built(cell, reverse=False), built(cell, reverse=True), texts()
    backward.load_state_dict(forward.state_dict())
    turned = batch["source"].clone()
    for row, length in enumerate(LENGTHS):
        turned[row, :length] = turned[row, :length].flip(0)
    want = forward({**batch, "source": turned}).logits()
    torch.testing.assert_close(backward(batch).logits(), want)


@pytest.mark.parametrize("lengths", [(6, 2), (6, 2, 4, 0), (6, 2, 4, 7)])
def test_lengths_that_no_source_has_are_refused(
    lengths: tuple[int, ...], as_users_run_it: None
) -> None:
    batch = {**texts(), "source_lengths": torch.tensor(lengths)}
    with pytest.raises(UserError, match="length"):
        built("gru").start(batch)
