"""Laws of models that write a target while they look at a source, over the whole table."""

from collections.abc import Mapping
from math import log

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.models import MODELS
from regard.outputs.next_token import NextTokens
from tests.laws.translators import (
    BOS,
    ELSEWHERE,
    EOS,
    LENGTHS,
    NAMES,
    ONLINE,
    OTHER,
    ROWS,
    WITHOUT,
    WRITTEN,
    B,
    S,
    V,
    built,
    made,
    texts,
)


def chosen(batch: Batch, rows: Tensor) -> dict[str, Tensor]:
    return {name: each[rows] for name, each in batch.items()}


def said(prediction: NextTokens) -> Tensor:
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


def goes_on(logits: Tensor, prediction: NextTokens) -> None:
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
    close(stepped(model, batch), said(model(batch)))
    with torch.no_grad():
        close(stepped(model, batch), said(model(batch)))


@pytest.mark.parametrize("label", ROWS)
def test_padding_and_batch_mates_never_matter(label: str) -> None:
    model, batch = built(label), texts()
    together = said(model(batch))
    steps = stepped(model, batch)
    for row in range(B):
        read, wrote = int(LENGTHS[row]), int(WRITTEN[row])
        alone = {name: each[row : row + 1] for name, each in batch.items()}
        for name in ("source", "source_extended"):
            alone[name] = alone[name][:, :read]
        for name in ("tokens", "targets"):
            alone[name] = alone[name][:, :wrote]
        words = said(model(alone))[0]
        close(together[row, :wrote, : words.shape[1]], words)
        close(steps[row, :wrote, : words.shape[1]], words)


@pytest.mark.parametrize("label", ROWS)
def test_what_stands_in_the_padding_never_matters(label: str) -> None:
    model, batch = built(label), texts()
    other = {name: each.clone() for name, each in batch.items()}
    padded = torch.arange(S) >= LENGTHS[:, None]
    other["source"][padded] = other["source_extended"][padded] = 7
    close(said(model(other)), said(model(batch)))


@pytest.mark.parametrize("label", ROWS)
def test_the_future_never_reaches_the_past(label: str) -> None:
    model, batch = built(label), texts()
    changed = batch["tokens"].clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % V
    before, after = said(model(batch)), said(model({**batch, "tokens": changed}))
    close(before[:, :3], after[:, :3])
    assert between(before[:, 3:], after[:, 3:]).amax((1, 2)).min() > 1e-3


@pytest.mark.parametrize("label", ROWS)
def test_a_word_of_the_source_matters_to_its_own_row(label: str) -> None:
    model, batch = built(label), texts()
    changed = {name: each.clone() for name, each in batch.items()}
    changed["source"][0, 2] = changed["source_extended"][0, 2] = (batch["source"][0, 2] - 3) % 7 + 4
    assert changed["source"][0, 2] != batch["source"][0, 2]
    difference = between(said(model(batch)), said(model(changed))).amax(2)
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
            goes_on(logits, model({**chosen(batch, sentences), "tokens": history}))
            rows = torch.tensor(choice, dtype=torch.long)
            state, sentences = state.select(rows), sentences[rows]
            history = torch.cat((history[rows], torch.randint(4, V, (len(rows), 1))), dim=1)
        if len(sentences):
            logits, _ = model.step(history[:, -1], state)
            goes_on(logits, model({**chosen(batch, sentences), "tokens": history}))


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
                whole = said(model({**batch, "tokens": history}))[:, -1]
                close(logits.log_softmax(1), whole)


@pytest.mark.parametrize("name", WITHOUT)
def test_record_says_that_there_is_no_attention_where_there_is_none(name: str) -> None:
    with pytest.raises(UserError, match="has no attention"), record(built(name)):
        pass


@pytest.mark.parametrize("label", [label for label in ROWS if ROWS[label][0] not in WITHOUT])
def test_recording_changes_nothing_and_nothing_looks_at_padding(label: str) -> None:
    model, batch = built(label), texts()
    with torch.no_grad():
        silent = said(model(batch)), stepped(model, batch)
        with record(model) as tape:
            heard = said(model(batch)), stepped(model, batch)
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
    prediction = model(batch)
    loss = prediction.nll(batch["targets"])
    assert prediction.auxiliary is None or prediction.auxiliary.shape == ()
    prediction.with_auxiliary(loss).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    assert [name for name, each in gradients.items() if each is None or not each.any()] == []
    assert all(each.isfinite().all() for each in gradients.values())


@pytest.mark.parametrize("label", ROWS)
def test_a_saved_model_loads_to_the_same_bits(label: str) -> None:
    model, other, batch = made(label).eval(), made(label).eval(), texts()
    assert not torch.equal(said(model(batch)), said(other(batch)))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(said(model(batch)), said(other(batch)))


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
        model = made(name, changes).double().train()  # some differences are small
        shapes = {key: each.shape for key, each in model.state_dict().items()}
        prediction = model(batch)
        loss = prediction.nll(batch["targets"])
        return shapes, prediction.with_auxiliary(loss)

    shapes, loss = begun({})
    other_shapes, other_loss = begun({field: OTHER[name][field]})
    assert shapes != other_shapes or (loss - other_loss).abs() > 1e-7


@pytest.mark.parametrize("label", ROWS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_surprise_is_that_of_the_logits(label: str, smoothing: float) -> None:
    model, batch = built(label), texts()
    prediction = model(batch)
    targets = batch["targets"]
    logs, real = said(prediction), targets != IGNORE
    possible = logs.isfinite()  # smoothing is spread over what can be said at all
    even = torch.where(possible, logs, 0.0).sum(2) / possible.sum(2)
    right = logs.gather(2, targets.clamp_min(0)[..., None]).squeeze(2)
    want = -((1 - smoothing) * right + smoothing * even)[real].sum()
    torch.testing.assert_close(prediction.nll(targets, smoothing=smoothing), want)
    each = prediction.log_probability(targets)
    assert (each[targets == IGNORE] == 0).all()
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
        prediction = model(batch)
        nll = prediction.nll(targets)
        loss = nll / targets.numel()
        (prediction.with_auxiliary(nll) / targets.numel()).backward()
        optimiser.step()
    assert loss.item() < 0.05 * log(V)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_for_another_batch_are_refused(name: str, as_users_run_it: None) -> None:
    batch = texts()
    with pytest.raises(UserError):
        built(name).start({**batch, "source_lengths": LENGTHS[:2]})
