"""Laws of models that write a target while they look at a source, over the whole table.

A model of MODELS whose constructor takes a source vocabulary must have a row here: it is tested the
day it is added.
"""

from collections.abc import Mapping
from inspect import signature
from math import log

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.layers.output import IGNORED, Prediction
from regard.models import MODELS

B, S, T, V, SOURCES = 4, 7, 6, 11, 13
PAD, UNKNOWN, BOS, EOS = range(4)
LENGTHS = torch.tensor([7, 3, 1, 5])
WRITTEN = torch.tensor([6, 2, 5, 4])

NAMES = [name for name in MODELS if "source_vocabulary" in signature(MODELS[name]).parameters]

TRANSFORMER: dict[str, object] = {
    "width": 16,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "hidden": 24,
    "dropout": 0.0,
    "position": "learned",
    "context": 32,
}

LUONG: dict[str, object] = {"width": 8, "layers": 2, "weigh": "local_p", "reach": 2}

ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "encoder_decoder": ("encoder_decoder", {"width": 8, "layers": 2}),
    "encoder_decoder, other": (
        "encoder_decoder",
        {"cell": "gru", "width": 8, "layers": 1, "reverse": False, "tied": True},
    ),
    "bahdanau": ("bahdanau", {"width": 8, "hidden": 16}),
    "bahdanau, other": (
        "bahdanau",
        {"cell": "lstm", "width": 6, "hidden": 8, "readout": "tanh", "tied": True},
    ),
    "bahdanau, weights that are carried on": (
        "bahdanau",
        {"width": 6, "hidden": 8, "score": "coverage", "weigh": "sparsemax"},
    ),
    "hard_attention": ("hard_attention", {"width": 8, "hidden": 16}),
    "hard_attention, other": (
        "hard_attention",
        {"cell": "lstm", "width": 6, "hidden": 8, "baseline": "learned", "expectation": 0.0},
    ),
    "hard_attention, weights that are carried on": (
        "hard_attention",
        {"width": 6, "hidden": 8, "score": "coverage", "baseline": "none", "reward": "step"},
    ),
    "luong": ("luong", LUONG),
    "luong, other": (
        "luong",
        {**LUONG, "cell": "gru", "layers": 1, "weigh": "softmax", "bidirectional": True},
    ),
    "luong, not fed": ("luong", {**LUONG, "feeding": False, "score": "additive"}),
    "luong, not fed, that minds its step": (
        "luong",
        {**LUONG, "feeding": False, "reverse": True, "score": "location", "weigh": "local_m"},
    ),
    "luong, weights that are carried on": (
        "luong",
        {**LUONG, "feeding": False, "score": "location_aware", "weigh": "softmax"},
    ),
    "online_aligner": ("online_aligner", {"width": 8, "layers": 2}),
    "online_aligner, other": (
        "online_aligner",
        {"cell": "gru", "width": 8, "layers": 1, "tied": True},
    ),
    "pointer_generator": ("pointer_generator", {"width": 8, "hidden": 16}),
    "pointer_generator, other": (
        "pointer_generator",
        {"width": 6, "hidden": 8, "score": "additive", "coverage": 1.0, "tied": True},
    ),
    "transformer": ("transformer", TRANSFORMER),
    "transformer, other": (
        "transformer",
        {
            **TRANSFORMER,
            "norm": "before",
            "position": "sinusoidal",
            "context": 2,
            "shared": "none",
            "bias": False,
            "output_bias": True,
            "activation": "gelu",
        },
    ),
    "transformer, weights that are carried on": (
        "transformer",
        {
            **TRANSFORMER,
            "encoder_score": "relative_clipped",
            "decoder_score": "relative_skewed",
            "cross_score": "coverage",
            "cross_weigh": "entmax15",
        },
    ),
    "transformer, attention that minds its step": (
        "transformer",
        {**TRANSFORMER, "decoder_score": "additive", "cross_weigh": "local_m"},
    ),
}
"""Small models, by a label: the name in MODELS and a config. The first row of a name is the plain
one."""

ONLINE = ("online_aligner",)
"""Models that write while they read."""

WITHOUT = ("encoder_decoder", "online_aligner")
"""Models that look back at nothing."""

OTHER: dict[str, dict[str, object]] = {
    "encoder_decoder": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "reverse": False,
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
    },
    "bahdanau": {
        "cell": "lstm",
        "width": 10,
        "hidden": 10,
        "score": "bilinear",
        "weigh": "sparsemax",
        "readout": "tanh",
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
    },
    "hard_attention": {
        "cell": "lstm",
        "width": 10,
        "hidden": 10,
        "score": "bilinear",
        "weigh": "sparsemax",
        "readout": "tanh",
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
        "reward": "step",
        "baseline": "learned",
        "entropy": 0.1,
        "expectation": 1.0,
    },
    "luong": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "bidirectional": True,
        "reverse": True,
        "score": "dot",
        "weigh": "softmax",
        "reach": 1,
        "feeding": False,
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
    },
    "online_aligner": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "entropy": 0.5,
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
    },
    "pointer_generator": {
        "width": 10,
        "hidden": 10,
        "score": "additive",
        "coverage": 1.0,
        "dropout": 0.5,
        "tied": True,
        "spread": 0.2,
    },
    "transformer": {
        "width": 20,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "hidden": 12,
        "activation": "gelu",
        "norm": "before",
        "position": "sinusoidal",
        "context": 20,
        "scaled": False,
        "shared": "none",
        "bias": False,
        "output_bias": True,
        "dropout": 0.5,
        "embedding_dropout": 0.5,
        "attention_dropout": 0.5,
        "activation_dropout": 0.5,
        "encoder_score": "additive",
        "encoder_weigh": "sparsemax",
        "decoder_score": "additive",
        "decoder_weigh": "sparsemax",
        "cross_score": "additive",
        "cross_weigh": "sparsemax",
    },
}
"""Another value for every field of every config: each must make a difference."""

ELSEWHERE = {("pointer_generator", "unk"), ("transformer", "source")}
"""Fields that make one only to texts of their own; the tests of the model have them."""


def made(label: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one as it begins."""
    name, config = ROWS[label]
    return MODELS[name](MODELS[name].Config(**{**config, **(changes or {})}), V, SOURCES)


def built(label: str) -> nn.Module:
    """A small one in double, with weights large enough that everything matters."""
    model = made(label).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def texts() -> dict[str, Tensor]:
    """Sentences of several lengths, with words that the vocabulary does not have."""
    source = torch.randint(4, V, (B, S))
    source[0, [1, 4]] = source[3, 2] = UNKNOWN
    extended = source.clone()
    extended[0, 1], extended[0, 4], extended[3, 2] = V, V + 1, V
    tokens, targets = torch.randint(4, V, (B, T)), torch.full((B, T), IGNORED)
    tokens[:, 0] = BOS
    for row, (read, wrote) in enumerate(zip(LENGTHS.tolist(), WRITTEN.tolist(), strict=True)):
        for ids in (source, extended):
            ids[row, read - 1], ids[row, read:] = EOS, PAD
        targets[row, : wrote - 1], targets[row, wrote - 1] = tokens[row, 1:wrote], EOS
        tokens[row, wrote:] = PAD
    return {
        "source": source,
        "source_lengths": LENGTHS.clone(),
        "source_extended": extended,
        "tokens": tokens,
        "targets": targets,
    }


def chosen(batch: Batch, rows: Tensor) -> dict[str, Tensor]:
    return {name: each[rows] for name, each in batch.items()}


def said(prediction: Prediction) -> Tensor:
    return prediction.logits().log_softmax(2)


def stepped(model: nn.Module, batch: Batch) -> Tensor:
    state, parts = model.start(batch), []
    for tokens in batch["tokens"].unbind(1):
        logits, state = model.step(tokens, state)
        parts.append(logits.log_softmax(1))
    return torch.stack(parts, dim=1)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def between(one: Tensor, other: Tensor) -> Tensor:
    """How far apart; two words that nobody can say are not."""
    return torch.where(one == other, 0.0, one - other).abs()


def goes_on(logits: Tensor, prediction: Prediction) -> None:
    """A step says what the whole says last; it may have room for words of sentences that left."""
    want = said(prediction)[:, -1]
    words = want.shape[1]
    close(logits.log_softmax(1)[:, :words], want)
    assert (logits[:, words:] == -torch.inf).all()


def test_every_translator_is_in_these_tables() -> None:
    assert {name for name, _ in ROWS.values()} == set(NAMES)
    assert set(OTHER) == set(NAMES)
    assert all(label == ROWS[label][0] for label in NAMES), "the plain one goes by the name alone"


@pytest.mark.parametrize("label", ROWS)
def test_steps_equal_the_whole(label: str) -> None:
    model, batch = built(label), texts()
    close(stepped(model, batch), said(model(batch)[0]))
    with torch.no_grad():
        close(stepped(model, batch), said(model(batch)[0]))


@pytest.mark.parametrize("label", ROWS)
def test_padding_and_batch_mates_never_matter(label: str) -> None:
    model, batch = built(label), texts()
    together = said(model(batch)[0])
    steps = stepped(model, batch)
    for row in range(B):
        read, wrote = int(LENGTHS[row]), int(WRITTEN[row])
        alone = {name: each[row : row + 1] for name, each in batch.items()}
        for name in ("source", "source_extended"):
            alone[name] = alone[name][:, :read]
        for name in ("tokens", "targets"):
            alone[name] = alone[name][:, :wrote]
        words = said(model(alone)[0])[0]
        close(together[row, :wrote, : words.shape[1]], words)
        close(steps[row, :wrote, : words.shape[1]], words)


@pytest.mark.parametrize("label", ROWS)
def test_what_stands_in_the_padding_never_matters(label: str) -> None:
    model, batch = built(label), texts()
    other = {name: each.clone() for name, each in batch.items()}
    padded = torch.arange(S) >= LENGTHS[:, None]
    other["source"][padded] = other["source_extended"][padded] = 7
    close(said(model(other)[0]), said(model(batch)[0]))


@pytest.mark.parametrize("label", ROWS)
def test_the_future_never_reaches_the_past(label: str) -> None:
    model, batch = built(label), texts()
    changed = batch["tokens"].clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % V
    before, after = said(model(batch)[0]), said(model({**batch, "tokens": changed})[0])
    close(before[:, :3], after[:, :3])
    assert between(before[:, 3:], after[:, 3:]).amax((1, 2)).min() > 1e-3


@pytest.mark.parametrize("label", ROWS)
def test_a_word_of_the_source_matters_to_its_own_row(label: str) -> None:
    model, batch = built(label), texts()
    changed = {name: each.clone() for name, each in batch.items()}
    changed["source"][0, 2] = changed["source_extended"][0, 2] = (batch["source"][0, 2] - 3) % 7 + 4
    assert changed["source"][0, 2] != batch["source"][0, 2]
    difference = between(said(model(batch)[0]), said(model(changed)[0])).amax(2)
    reached = (difference[0] > 1e-6).tolist()
    if ROWS[label][0] in ONLINE:  # it may have spoken before it read that word, but not after
        assert reached[-1]
        assert reached == sorted(reached)
    else:
        assert all(reached)
    assert (difference[1:] < 1e-10).all()


SEARCHES: dict[str, list[list[int]]] = {
    "beams that change places": [
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
        [1, 0, 0, 3, 5, 5, 8, 7, 6, 9, 9, 9],
    ],
    "sentences that leave": [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [1, 1, 4, 5, 7, 6],
        [2, 3],
    ],
    "any rows in any order": [[3, 1, 1, 0, 2, 2, 2], [6, 0, 5, 0, 1], [4], [0, 0, 0]],
    "none": [[2, 1], []],
}


@pytest.mark.parametrize("label", ROWS)
@pytest.mark.parametrize("choices", SEARCHES.values(), ids=SEARCHES)
def test_chosen_rows_go_on_as_their_sentences_do(label: str, choices: list[list[int]]) -> None:
    model, batch = built(label), texts()
    sentences, history = torch.arange(B), torch.full((B, 1), BOS)
    state = model.start(batch)
    with torch.no_grad():
        for choice in choices:
            logits, state = model.step(history[:, -1], state)
            goes_on(logits, model({**chosen(batch, sentences), "tokens": history})[0])
            rows = torch.tensor(choice, dtype=torch.long)
            state, sentences = state.select(rows), sentences[rows]
            history = torch.cat((history[rows], torch.randint(4, V, (len(rows), 1))), dim=1)
        if len(sentences):
            logits, _ = model.step(history[:, -1], state)
            goes_on(logits, model({**chosen(batch, sentences), "tokens": history})[0])


@pytest.mark.parametrize("label", ROWS)
def test_a_state_is_a_value(label: str) -> None:
    model, batch = built(label), texts()
    left, right = torch.randint(4, V, (2, B, 3))
    with torch.no_grad():
        _, trunk = model.step(batch["tokens"][:, 0], model.start(batch))
        states = [trunk, trunk]
        for place in range(3):  # in turn, so that one would spoil the other
            for which, tokens in enumerate((left, right)):
                logits, states[which] = model.step(tokens[:, place], states[which])
                history = torch.cat((batch["tokens"][:, :1], tokens[:, : place + 1]), dim=1)
                whole = said(model({**batch, "tokens": history})[0])[:, -1]
                close(logits.log_softmax(1), whole)


@pytest.mark.parametrize("name", WITHOUT)
def test_record_says_that_there_is_no_attention_where_there_is_none(name: str) -> None:
    with pytest.raises(UserError, match="has no attention"), record(built(name)):
        pass


@pytest.mark.parametrize("label", [label for label in ROWS if ROWS[label][0] not in WITHOUT])
def test_recording_changes_nothing_and_nothing_looks_at_padding(label: str) -> None:
    model, batch = built(label), texts()
    with torch.no_grad():
        silent = said(model(batch)[0]), stepped(model, batch)
        with record(model) as tape:
            heard = said(model(batch)[0]), stepped(model, batch)
    assert torch.equal(silent[0], heard[0])
    assert torch.equal(silent[1], heard[1])
    outward = [call for call in tape if call.kind in ("alignment", "cross")]
    padded = torch.arange(S) >= LENGTHS[:, None]
    assert outward
    for call in outward:
        assert call.weights.shape[0] == B
        assert (call.weights.amax((1, 2))[padded] == 0).all()


@pytest.mark.parametrize("label", ROWS)
def test_every_parameter_learns(label: str) -> None:
    model, batch = built(label).train(), texts()
    prediction, further = model(batch)
    loss = prediction.surprise(batch["targets"])
    assert further is None or further.shape == ()
    (loss if further is None else loss + further).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    assert [name for name, each in gradients.items() if each is None or not each.any()] == []
    assert all(each.isfinite().all() for each in gradients.values())


@pytest.mark.parametrize("label", ROWS)
def test_a_saved_model_loads_to_the_same_bits(label: str) -> None:
    model, other, batch = made(label).eval(), made(label).eval(), texts()
    assert not torch.equal(said(model(batch)[0]), said(other(batch)[0]))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(said(model(batch)[0]), said(other(batch)[0]))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in NAMES
        for field in MODELS[name].Config.model_fields
        if (name, field) not in ELSEWHERE
    ],
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field wants another value in the table"
    batch = texts()

    def begun(changes: Mapping[str, object]) -> tuple[dict[str, torch.Size], Tensor]:
        torch.manual_seed(1)
        model = made(name, changes).train()
        shapes = {key: each.shape for key, each in model.state_dict().items()}
        prediction, further = model(batch)
        loss = prediction.surprise(batch["targets"])
        return shapes, loss if further is None else loss + further

    shapes, loss = begun({})
    other_shapes, other_loss = begun({field: OTHER[name][field]})
    assert shapes != other_shapes or (loss - other_loss).abs() > 1e-5


@pytest.mark.parametrize("label", ROWS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_surprise_is_that_of_the_logits(label: str, smoothing: float) -> None:
    model, batch = built(label), texts()
    prediction, _ = model(batch)
    targets = batch["targets"]
    logs, real = said(prediction), targets != IGNORED
    possible = logs.isfinite()  # smoothing is spread over what can be said at all
    even = torch.where(possible, logs, 0.0).sum(2) / possible.sum(2)
    right = logs.gather(2, targets.clamp_min(0)[..., None]).squeeze(2)
    want = -((1 - smoothing) * right + smoothing * even)[real].sum()
    torch.testing.assert_close(prediction.surprise(targets, smoothing=smoothing), want)
    each = prediction.log_probability(targets)
    assert (each[targets == IGNORED] == 0).all()
    if smoothing == 0.0:
        torch.testing.assert_close(-each.sum(), want)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONLINE])
def test_a_hundred_steps_learn_to_turn_sentences_around(name: str, as_users_run_it: None) -> None:
    model = made(name, {"width": 32}).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    words = torch.tensor([[4, 5, 6, 7], [8, 9, 10, 4], [6, 6, 9, 8]])
    ends = torch.full((3, 1), EOS)
    source = torch.cat((words, ends), dim=1)
    targets = torch.cat((words.flip(1), ends), dim=1)
    batch = {
        "source": source,
        "source_lengths": torch.full((3,), 5),
        "source_extended": source,
        "tokens": torch.cat((torch.full((3, 1), BOS), targets[:, :-1]), dim=1),
        "targets": targets,
    }
    for _ in range(100):
        optimiser.zero_grad()
        prediction, further = model(batch)
        loss = prediction.surprise(targets) / targets.numel()
        (loss if further is None else loss + further / targets.numel()).backward()
        optimiser.step()
    assert loss.item() < 0.05 * log(V)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_for_another_batch_are_refused(name: str, as_users_run_it: None) -> None:
    batch = texts()
    with pytest.raises(UserError):
        built(name).start({**batch, "source_lengths": LENGTHS[:2]})
