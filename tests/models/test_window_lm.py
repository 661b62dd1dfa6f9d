"""The feed-forward language model against Bengio et al. 2003, eq. 1."""

import pytest
import torch
from torch import Tensor

from regard.models.language.window_lm import WindowLM

V, N = 9, 3


def built(*, direct: bool) -> WindowLM:
    config = WindowLM.Config(window=N, width=4, hidden=6, direct=direct)
    model = WindowLM(config, V).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


def literal(model: WindowLM, tokens: Tensor) -> Tensor:
    """y = b + W x + U tanh(d + H x) for one row, word by word."""
    hidden = model.config.hidden
    rows = []
    for t in range(len(tokens)):
        vectors = [
            model.embed.weight[tokens[i]] if i >= 0 else torch.zeros(4).double()
            for i in range(t - N + 1, t + 1)
        ]
        x = torch.cat(vectors)
        squashed = torch.tanh(model.hidden.bias + model.hidden.weight @ x)
        y = model.output.bias + model.output.weight[:, :hidden] @ squashed
        if model.config.direct:
            y = y + model.output.weight[:, hidden:] @ x
        rows.append(y)
    return torch.stack(rows)


@pytest.mark.parametrize("direct", [True, False])
def test_it_is_the_equation(direct: bool) -> None:
    model, tokens = built(direct=direct), torch.randint(V, (2, 7))
    logits = model({"tokens": tokens}).logits()
    for row in range(2):
        torch.testing.assert_close(logits[row], literal(model, tokens[row]))


def test_words_before_the_window_do_not_matter() -> None:
    model, tokens = built(direct=True), torch.randint(V, (1, 8))
    changed = tokens.clone()
    changed[0, 4] = (changed[0, 4] + 1) % V
    apart = (
        (model({"tokens": tokens}).logits() - model({"tokens": changed}).logits()).abs().amax(2)[0]
    )
    assert (apart[4 : 4 + N] > 1e-6).all()
    assert (apart[:4] == 0).all()
    assert (apart[4 + N :] == 0).all()


def test_it_hands_on_what_the_next_window_looks_at() -> None:
    tokens = torch.tensor([[5, 6, 7, 8]])
    assert built(direct=False)({"tokens": tokens}).carry["tokens"].tolist() == [[7, 8]]
    assert built(direct=False)({"tokens": tokens[:, :1]}).carry["tokens"].tolist() == [[5]]
