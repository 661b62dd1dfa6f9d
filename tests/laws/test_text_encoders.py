"""Laws of models that say something of each word of a text with both sides in sight."""

from collections.abc import Callable, Mapping

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.attention.tape import Site, sites_of
from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.layers.character_words import CHARACTERS
from regard.models import MODELS
from regard.models.text.bert import BERT
from regard.models.text.bert_reader import BERTReader
from regard.models.text.elmo import ELMo
from regard.outputs.both_directions import BothDirections
from tests.laws.families import FAMILIES

NAMES = FAMILIES["text encoders"]
V, LENGTHS = 12, (6, 3, 0, 1)
"""One text is empty."""

SMALL_BERT: dict[str, object] = {"width": 8, "heads": 2, "layers": 2, "hidden": 12, "context": 16}
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "elmo": (
        "elmo",
        {"width": 4, "hidden": 6, "character_width": 3, "filters": [[1, 4], [3, 5]]},
    ),
    "elmo, other": (
        "elmo",
        {
            "width": 5,
            "hidden": 4,
            "layers": 3,
            "character_width": 2,
            "filters": [[2, 6]],
            "skip": False,
            "marks": "two",
            "cell_clip": None,
            "clip": None,
        },
    ),
    "bert": ("bert", {"encoder": SMALL_BERT, "pooled": True, "next_sentence": True}),
    "bert, other": (
        "bert",
        {"encoder": {**SMALL_BERT, "norm": "before", "segments": 0, "uncounted": 0}, "tied": False},
    ),
    "bert_reader": ("bert_reader", {"encoder": SMALL_BERT}),
    "bert_reader, other": (
        "bert_reader",
        {"encoder": {**SMALL_BERT, "norm": "before", "segments": 0}, "recompute": True},
    ),
}
"""Small models, by a label: the name in MODELS and a config. The first row of a name is the plain
one."""

OTHER: dict[str, dict[str, object]] = {
    "elmo": {
        "width": 5,
        "hidden": 4,
        "layers": 1,
        "character_width": 2,
        "filters": [[2, 6]],
        "highways": 2,
        "activation": "tanh",
        "cell_clip": 0.1,
        "clip": 0.05,
        "skip": False,
        "marks": "two",
        "dropout": 0.5,
    },
    "bert": {
        "encoder": {**SMALL_BERT, "layers": 1},
        "words": False,
        "words_activation": "relu",
        "tied": False,
        "pooled": False,
        "next_sentence": False,
    },
    "bert_reader": {
        "encoder": {**SMALL_BERT, "layers": 1},
        "dropout": 0.5,
        "encoder_dropout": 0.5,
    },
}
"""Another value for every field of every config: each must make a difference."""

ELSEWHERE = ("source", "recompute")
"""Fields that matter only to a run that begins with another, or not to what is computed."""


def built(row: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one, with weights large enough that everything matters."""
    torch.manual_seed(1)
    name, given = ROWS[row]
    config = parse(vars(MODELS[name])["Config"], {**given, **(changes or {})})
    sizes = {"characters": CHARACTERS} if name == "elmo" else {}
    model = MODELS[name](config, vocabulary=V, **sizes)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def batch(extra: int = 0, fill: int = 0) -> dict[str, Tensor]:
    """Four texts, one of them empty, with `extra` columns of padding that hold `fill`."""
    torch.manual_seed(2)
    rows, longest = len(LENGTHS), max(LENGTHS)
    drawn = torch.randint(4, V, (rows, longest))
    spelled = torch.randint(1, 250, (rows, longest, 5))
    tokens = torch.full((rows, longest + extra), fill)
    parts = torch.full((rows, longest + extra), 1 if fill else -1)
    characters = torch.full((rows, longest + extra, 5), fill)
    for row, length in enumerate(LENGTHS):
        tokens[row, :length] = drawn[row, :length]
        parts[row, :length] = (torch.arange(length) >= 2).long()
        characters[row, :length] = spelled[row, :length]
    lengths = torch.tensor(LENGTHS)
    return {"tokens": tokens, "lengths": lengths, "parts": parts, "characters": characters}


def alone(whole: Batch, row: int) -> Batch:
    """One text of a batch by itself, without its padding."""
    length = max(1, LENGTHS[row])
    return {
        name: each[row : row + 1] if each.dim() == 1 else each[row : row + 1, :length]
        for name, each in whole.items()
    }


def said_by_elmo(model: nn.Module, given: Batch) -> list[Tensor]:
    assert isinstance(model, ELMo)
    return list(model.layers_of(given))


def said_by_bert(model: nn.Module, given: Batch) -> list[Tensor]:
    assert isinstance(model, BERT)
    said = model(given)
    words = [] if said.words is None else [said.words.logits()]
    of_texts = [each for each in (said.pooled, said.next_sentence) if each is not None]
    texts = [each[:, None].expand(-1, said.states.shape[1], -1) for each in of_texts]
    return [said.states, *words, *texts]


def said_by_reader(model: nn.Module, given: Batch) -> list[Tensor]:
    assert isinstance(model, BERTReader)
    said = model(given)
    return [said.first[..., None], said.last[..., None]]


SAID: dict[str, Callable[[nn.Module, Batch], list[Tensor]]] = {
    "elmo": said_by_elmo,
    "bert": said_by_bert,
    "bert_reader": said_by_reader,
}
"""All that a model says of each token, each `[B,T,...]`."""


def said(row: str, model: nn.Module, given: Batch) -> Tensor:
    return torch.cat(SAID[ROWS[row][0]](model, given), dim=2)  # [B,T,D]


def elmo_loss(model: nn.Module, given: Batch) -> Tensor:
    output, tokens = BothDirections.of(model, given), given["tokens"]
    forward, backward = (
        output.forward.nll(tokens.roll(-1, 1)),
        output.backward.nll(tokens.roll(1, 1)),
    )
    return forward + backward


def bert_loss(model: nn.Module, given: Batch) -> Tensor:
    made, tokens = model(given), given["tokens"]
    hidden = torch.where((tokens > 0) & (tokens % 2 == 0), tokens, IGNORE)
    loss = tokens.new_zeros((), dtype=torch.float32)
    if made.words is not None:
        loss = loss + made.words.nll(hidden)
    if made.next_sentence is not None:
        loss = loss + F.cross_entropy(made.next_sentence, torch.tensor([1, 0, 1, 0])[: len(tokens)])
    return loss


def reader_loss(model: nn.Module, given: Batch) -> Tensor:
    first, last = torch.tensor([1, 0, IGNORE, 0]), torch.tensor([3, 2, IGNORE, 0])
    loss: Tensor = model(given).nll(first, last)
    return loss


LOSS: dict[str, Callable[[nn.Module, Batch], Tensor]] = {
    "elmo": elmo_loss,
    "bert": bert_loss,
    "bert_reader": reader_loss,
}


def loss(row: str, model: nn.Module) -> Tensor:
    return LOSS[ROWS[row][0]](model, batch())


def test_every_model_is_in_these_tables() -> None:
    assert {name for name, _ in ROWS.values()} == set(NAMES)
    assert set(OTHER) == set(SAID) == set(LOSS) == set(NAMES)
    assert all(ROWS[name][0] == name for name in NAMES), "the plain one goes by the name alone"


@pytest.mark.parametrize("row", ROWS)
def test_padding_and_batch_mates_never_matter(row: str) -> None:
    model = built(row).eval()
    with torch.no_grad():
        whole = said(row, model, batch())
        others = (batch(extra=3), batch(extra=2, fill=7))
        for other in others:
            padded = said(row, model, other)
            for place, length in enumerate(LENGTHS):
                torch.testing.assert_close(
                    padded[place, :length], whole[place, :length], atol=1e-5, rtol=1e-5
                )
        for place, length in enumerate(LENGTHS):
            one = said(row, model, alone(batch(), place))[0, :length]
            torch.testing.assert_close(one, whole[place, :length], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", ROWS)
def test_every_word_is_seen_from_both_sides_of_its_own_text_and_from_no_other(row: str) -> None:
    model = built(row).eval()
    for place in (0, LENGTHS[0] - 1):
        other = batch()
        other["tokens"][0, place] = (other["tokens"][0, place] - 3) % 8 + 4
        other["characters"][0, place] = other["characters"][0, place].flip(0) + 1
        with torch.no_grad():
            moved = (said(row, model, batch()) - said(row, model, other)).abs().amax(2)  # [B,T]
        assert (moved[0] > 1e-5).all()
        assert (moved[1:] < 1e-6).all()


@pytest.mark.parametrize("row", ROWS)
def test_empty_texts_leave_everything_finite(row: str) -> None:
    model = built(row).train()
    total = loss(row, model)
    total.backward()
    assert total.isfinite()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
    empty = alone(batch(), LENGTHS.index(0))
    assert said(row, model.eval(), empty).isfinite().all()


@pytest.mark.parametrize("row", ROWS)
def test_recording_changes_nothing_and_nothing_looks_at_padding(row: str) -> None:
    model, given = built(row).eval(), batch(extra=1)
    if not any(isinstance(each, Site) for each in model.modules()):
        with pytest.raises(UserError, match="has no attention"), record(model):
            pass
        return
    with torch.no_grad():
        silent = said(row, model, given)
        with record(model) as tape:
            recorded = said(row, model, given)
    assert torch.equal(silent, recorded)
    assert set(tape.sites) == set(sites_of(model))
    padded = torch.arange(given["tokens"].shape[1]) >= given["lengths"][:, None]
    for call in tape:
        assert not call.weights.transpose(1, 3)[padded].any()
        total = call.weights.sum(3)
        assert ((total - 1).abs().lt(1e-5) | (total == 0)).all()


@pytest.mark.parametrize("row", ROWS)
def test_a_saved_model_loads_to_the_same_bits(row: str) -> None:
    model, other = built(row).eval(), built(row).eval()
    with torch.no_grad():
        for each in other.parameters():
            each.add_(0.1)
        assert not torch.equal(said(row, model, batch()), said(row, other, batch()))
        other.load_state_dict(load(save(model.state_dict())))
        assert torch.equal(said(row, model, batch()), said(row, other, batch()))


@pytest.mark.parametrize("row", ROWS)
def test_every_parameter_is_reached_by_the_loss(row: str) -> None:
    model = built(row).eval()
    loss(row, model).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    assert [name for name, each in gradients.items() if each is None or not each.any()] == []


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in NAMES
        for field in vars(MODELS[name])["Config"].model_fields
        if field not in ELSEWHERE
    ],
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field needs another value in the table"
    base: dict[str, object] = {"next_sentence": False} if field == "pooled" else {}
    shapes, outputs = [], []
    for changes in (base, {**base, field: OTHER[name][field]}):
        model = built(name, changes).train()
        shapes.append({key: each.shape for key, each in model.named_parameters()})
        torch.manual_seed(3)
        outputs.append(said(name, model, batch()))
    assert shapes[0] != shapes[1] or (outputs[0] - outputs[1]).abs().max() > 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_few_texts_are_learnt_by_heart(name: str, as_users_run_it: None) -> None:
    model = built(name).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    first = loss(name, model).item()
    for _ in range(60):
        optimiser.zero_grad()
        loss(name, model).backward()
        optimiser.step()
    assert loss(name, model).item() < 0.3 * first
