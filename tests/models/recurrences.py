"""Gated recurrences for one sentence, written as the papers write them: one vector at a time."""

import torch
from torch import Tensor, nn

from regard.layers.decoder import RecurrentDecoder
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.encoder_decoder import EncoderDecoder
from regard.models.translation.luong import Luong

V, SOURCES = 9, 11
LENGTHS = (6, 2, 4, 1)
"""Of the sources; the targets are longer than some of them and shorter than others."""

One = tuple[Tensor, Tensor]
"""The state and the cell of one layer; a GRU leaves its cell alone."""


def texts() -> dict[str, Tensor]:
    return {
        "source": torch.randint(SOURCES, (len(LENGTHS), max(LENGTHS))),
        "source_lengths": torch.tensor(LENGTHS),
        "tokens": torch.randint(V, (len(LENGTHS), 4)),
    }


def stirred(model: nn.Module) -> None:
    """In double, with weights large enough that everything matters."""
    model.double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)


def gru(given: Tensor, again: Tensor, bias: Tensor, before: One) -> One:
    """From what the inputs say to the gates r, z, n."""
    h = before[0]
    x, u, b = given.chunk(3), again.chunk(3), bias.chunk(3)
    r = torch.sigmoid(x[0] + u[0] @ h + b[0])
    z = torch.sigmoid(x[1] + u[1] @ h + b[1])
    n = torch.tanh(x[2] + r * (u[2] @ h + b[2]))
    return (1 - z) * n + z * h, before[1]


def lstm(given: Tensor, again: Tensor, bias: Tensor, before: One) -> One:
    """From what the inputs say to the gates i, f, g, o."""
    h, c = before
    i, f, g, o = (given + again @ h + bias).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


STEPS = {"gru": gru, "lstm": lstm}


def climbed(
    decoder: RecurrentDecoder, word: Tensor, fed: Tensor | None, states: list[One]
) -> list[One]:
    """One step through all layers of a decoder."""
    x, after = word, []
    for layer, before in enumerate(states):
        enter, again, bias, again_bias = decoder.cells.all_weights[layer]
        given = enter @ x + bias
        if layer == 0 and fed is not None:
            given = given + decoder.feed.weight @ fed
        after.append(STEPS[decoder.kind](given, again, again_bias, before))
        x = after[-1][0]
    return after


def read(
    model: EncoderDecoder | Bahdanau | Luong, source: Tensor
) -> tuple[list[Tensor], list[One]]:
    """The states of one source, real tokens only, and the last state and cell of each layer."""
    encoder = model.reader.encoder
    x = list(model.reader.embed.weight[source])
    width = encoder.cells.hidden_size
    last = []
    for layer in range(encoder.layers):
        ways = []
        for way in range(encoder.directions):
            weights = encoder.cells.all_weights[layer * encoder.directions + way]
            enter, again, bias, again_bias = weights
            one = (torch.zeros(width).double(), torch.zeros(width).double())
            states = []
            for each in reversed(x) if way else x:
                one = STEPS[encoder.kind](enter @ each + bias, again, again_bias, one)
                states.append(one[0])
            ways.append((list(reversed(states)) if way else states, one))
        x = [torch.cat(both) for both in zip(*(states for states, _ in ways), strict=True)]
        last.append(tuple(torch.cat(part) for part in zip(*(one for _, one in ways), strict=True)))
    return x, last
