"""Laws of language models, over the whole table."""

from collections.abc import Mapping
from math import log

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.models import MODELS
from regard.models.language.rnn_lm import RNNLM
from regard.outputs.next_token import NextTokens
from tests.laws.families import FAMILIES

B, T, V = 3, 14, 11
RNN: dict[str, object] = {"width": 8, "layers": 2}


SMALL: dict[str, dict[str, object]] = {
    "window_lm": {"window": 3, "width": 8, "hidden": 12, "direct": True},
    "rnn_lm": RNN,
    "awd_lstm": {"width": 8, "hidden": 10, "layers": 2},
    "attention_rnn_lm": {**RNN, "memory": 4},
    "pointer_lm": {**RNN, "memory": 4},
    "neural_cache": {
        "source": "runs/lm",
        "size": 4,
        "theta": 1.0,
        "mix": 0.3,
    },
    "lstmn": {"width": 8, "layers": 2, "tape": 4},
    "clockwork_rnn": {"width": 8, "periods": (1, 2, 3, 8)},
    "hred": {"width": 8, "context": 6, "end": 3},
    "gpt": {"width": 16, "heads": 4, "layers": 2, "context": 16},
    "memn2n_lm": {"width": 8, "linear": 4, "hops": 2, "memory": 4, "init_range": 0.3},
}
"""A small one of each, with memories so short that the sequences outlast them."""

OTHER_RNN: dict[str, object] = {
    "cell": "gru",
    "width": 10,
    "layers": 1,
    "dropout": 0.5,
    "tied": True,
    "init_range": 0.2,
}
OTHER: dict[str, dict[str, object]] = {
    "window_lm": {
        "window": 2,
        "width": 6,
        "hidden": 10,
        "direct": False,
        "dropout": 0.5,
        "init_range": 0.2,
    },
    "rnn_lm": OTHER_RNN,
    "awd_lstm": {
        "width": 6,
        "hidden": 9,
        "layers": 3,
        "drop_words": 0.5,
        "drop_inputs": 0.5,
        "drop_layers": 0.5,
        "drop_weights": 0.5,
        "drop_outputs": 0.5,
        "init_range": 0.2,
    },
    "attention_rnn_lm": {**OTHER_RNN, "score": "dot", "memory": 3},
    "pointer_lm": {**OTHER_RNN, "memory": 3},
    "neural_cache": {
        "source": "runs/other",
        "size": 3,
        "theta": 9.0,
        "mix": 0.5,
    },
    "lstmn": {
        "width": 6,
        "layers": 1,
        "tape": 3,
        "recency": 1.0,
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "clockwork_rnn": {
        "width": 12,
        "periods": (1, 2, 3, 4),
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "hred": {"width": 6, "context": 5, "end": 4, "dropout": 0.5, "tied": True, "init_range": 0.2},
    "memn2n_lm": {
        "width": 6,
        "linear": 2,
        "hops": 3,
        "memory": 3,
        "dropout": 0.5,
        "init_range": 0.2,
    },
    "gpt": {
        "width": 20,
        "heads": 2,
        "layers": 1,
        "heads_left": (2, 4),
        "context": 20,
        "hidden": 24,
        "key_heads": 2,
        "activation": "relu",
        "norm": "after",
        "position": "rotary",
        "score": "additive",
        "weigh": "sparsemax",
        "bias": False,
        "tied": False,
        "norm_eps": 0.1,
        "dropout": 0.5,
        "embedding_dropout": 0.5,
        "attention_dropout": 0.5,
    },
}
"""Another value for every field of every config: each must make a difference."""

NAMES = FAMILIES["language models"]
"""Models that are built from one vocabulary and read nothing but tokens."""
CARRYING = [name for name in NAMES if name != "gpt"]
ATTENDING = ["attention_rnn_lm", "pointer_lm", "neural_cache", "lstmn", "gpt", "memn2n_lm"]
SOURCED = ["neural_cache"]
"""Models that begin with another."""


def config(name: str, changes: Mapping[str, object] | None = None) -> Config:
    return MODELS[name].Config(**{**SMALL[name], **(changes or {})})


def made(name: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one as it begins."""
    begun = {"source": RNNLM(RNNLM.Config(width=8, layers=1), V)} if name in SOURCED else {}
    return MODELS[name](config(name, changes), V, **begun)


def built(name: str) -> nn.Module:
    """A small one in double, with weights large enough that everything matters."""
    model = made(name).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def text(rows: int = B, length: int = T) -> Tensor:
    """Random words, with turns that end here and there, at the edges too."""
    tokens = torch.randint(V, (rows, length))
    tokens[0, [0, 4, 5, 9, length - 1]] = 3
    return tokens


def said(prediction: NextTokens) -> Tensor:
    return prediction.logits().log_softmax(2)


def in_windows(model: nn.Module, tokens: Tensor, sizes: list[int]) -> Tensor:
    carry, parts = None, []
    for part in tokens.split(sizes, dim=1):
        prediction = model({"tokens": part}, carry)
        carry = prediction.carry
        parts.append(said(prediction))
    return torch.cat(parts, dim=1)


def test_every_model_is_in_these_tables() -> None:
    assert set(SMALL) == set(OTHER) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_future_never_reaches_the_past(name: str) -> None:
    model, tokens = built(name), text()
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % V
    before, after = said(model({"tokens": tokens})), said(model({"tokens": changed}))
    torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-12, rtol=0)
    assert (before[:, 7:] - after[:, 7:]).abs().amax((1, 2)).min() > 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt", [1, 6])
def test_steps_equal_the_whole(name: str, prompt: int) -> None:
    model, tokens = built(name), text()
    state, rows = model.start({"tokens": tokens[:, :prompt]}), []
    for each in tokens[:, prompt - 1 :].unbind(1):
        logits, state = model.step(each, state)
        rows.append(logits.log_softmax(1))
    whole = said(model({"tokens": tokens}))[:, prompt - 1 :]
    torch.testing.assert_close(torch.stack(rows, dim=1), whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", CARRYING)
@pytest.mark.parametrize("sizes", [[7, 7], [1, 9, 1, 3]])
def test_windows_that_carry_equal_one_long_window(name: str, sizes: list[int]) -> None:
    model, tokens = built(name), text()
    whole = said(model({"tokens": tokens}))
    torch.testing.assert_close(in_windows(model, tokens, sizes), whole, atol=1e-10, rtol=0)
    alone = torch.cat([said(model({"tokens": part})) for part in tokens.split(sizes, dim=1)], dim=1)
    assert not torch.allclose(alone, whole, atol=1e-3), "what is carried makes a difference"


@pytest.mark.parametrize("name", CARRYING)
def test_what_is_carried_is_detached_and_has_the_batch_first(name: str) -> None:
    model = built(name).train()
    carry = None
    for tokens in (text(), text()):
        carry = model({"tokens": tokens}, carry).carry
        assert not any(each.requires_grad for each in carry.values())
        assert {len(each) for each in carry.values() if each.dim()} == {B}


def test_a_model_that_does_not_carry_says_so() -> None:
    assert [name for name in NAMES if built(name)({"tokens": text()}).carry is None] == ["gpt"]


@pytest.mark.parametrize("name", NAMES)
def test_batch_mates_never_matter(name: str) -> None:
    model, tokens = built(name), text()
    together = said(model({"tokens": tokens}))
    for row in range(B):
        alone = said(model({"tokens": tokens[row : row + 1]}))
        torch.testing.assert_close(alone[0], together[row], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_chosen_rows_of_a_state_go_on_as_their_streams_do(name: str) -> None:
    model, tokens = built(name), text()
    rows = torch.tensor([2, 0, 0])
    chosen = model.start({"tokens": tokens}).select(rows)
    alone = model.start({"tokens": tokens[rows]})
    for _ in range(2):
        got, chosen = model.step(tokens[rows, -1], chosen)
        want, alone = model.step(tokens[rows, -1], alone)
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_loads_to_the_same_bits(name: str) -> None:
    model, other = made(name).eval(), made(name).eval()
    tokens = text()
    assert not torch.equal(said(model({"tokens": tokens})), said(other({"tokens": tokens})))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(said(model({"tokens": tokens})), said(other({"tokens": tokens})))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in NAMES
        for field in MODELS[name].Config.model_fields
        if field
        not in ("source", "recompute")  # which is to make none: tests/tasks/test_masked_lm.py
    ],
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field wants another value in the table"
    tokens = text(length=16)

    def outcome(changes: Mapping[str, object]) -> tuple[dict[str, torch.Size], Tensor]:
        torch.manual_seed(1)
        model = made(name, changes).train()
        torch.manual_seed(2)
        with torch.no_grad():  # some weights begin at zero, behind which nothing shows
            for each in model.parameters():
                each.add_(torch.randn_like(each), alpha=0.1)
        return {key: each.shape for key, each in model.state_dict().items()}, said(
            model({"tokens": tokens})
        )

    shapes, scores = outcome({})
    other_shapes, other_scores = outcome({field: OTHER[name][field]})
    assert shapes != other_shapes or (scores - other_scores).abs().max() > 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_record_finds_the_attention_of_those_that_attend(name: str) -> None:
    model, tokens = built(name), text()
    if name not in ATTENDING:
        with pytest.raises(UserError, match="has no attention"), record(model):
            pass
        return
    with torch.no_grad():
        silent = said(model({"tokens": tokens}))
        with record(model) as tape:
            heard = said(model({"tokens": tokens}))
    assert torch.equal(silent, heard), "recording changes nothing"
    for call in tape:
        total = call.weights.sum(3)
        assert ((total - 1).abs().lt(1e-9) | (total == 0)).all()
        assert call.weights.shape[0] == B


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name: str) -> None:
    model, tokens = built(name).train(), text()
    model({"tokens": tokens}).nll(tokens.roll(-1, 1)).backward()
    learns = {key: each for key, each in model.named_parameters() if each.requires_grad}
    assert learns
    still = [key for key, each in learns.items() if each.grad is None or not each.grad.any()]
    assert still == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SOURCED])
def test_a_hundred_steps_learn_a_line_by_heart(name: str, as_users_run_it: None) -> None:
    wide = {"width": 32} | ({"layers": 1} if "layers" in SMALL[name] else {})
    model = made(name, wide).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    line = torch.tensor([[1, 5, 2, 3, 1, 6, 2, 4, 3, 8, 9, 9, 7, 1]])
    for _ in range(100):
        optimiser.zero_grad()
        loss = model({"tokens": line[:, :-1]}).nll(line[:, 1:]) / (line.shape[1] - 1)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05 * log(V)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_surprise_is_that_of_the_logits(name: str, smoothing: float) -> None:
    model, tokens = built(name), text()
    targets = tokens.roll(-1, 1)
    targets[1, 2:5] = IGNORE
    prediction = model({"tokens": tokens})
    want = nn.functional.cross_entropy(
        said(prediction).flatten(0, 1),
        targets.flatten(),
        reduction="sum",
        label_smoothing=smoothing,
    )
    torch.testing.assert_close(prediction.nll(targets, smoothing=smoothing), want)
    each = prediction.log_probability(targets)
    assert (each[targets == IGNORE] == 0).all()
    if smoothing == 0.0:
        torch.testing.assert_close(-each.sum(), want)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_prompt_is_refused(name: str, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="a prompt needs at least one token"):
        built(name).start({"tokens": torch.zeros(1, 0, dtype=torch.long)})
