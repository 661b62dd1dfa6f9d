"""Laws of models that say what a text is, or what each of its words is, over the whole table."""

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import record
from regard.attention.tape import Site, sites_of
from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.models import MODELS
from regard.models.language.awd_lstm import AWDLSTM
from regard.outputs.tags import Tags
from tests.laws.families import FAMILIES

V, C = 12, 3
LENGTHS = (6, 3, 0, 1)
"""Of the texts of a batch; one is empty."""
PARTS = ((0, 0, 1, 3, 3, 3), (0, 1, 1), (), (0,))
"""Their sentences; one document has a sentence without words."""

SMALL_GPT = {"width": 8, "heads": 2, "layers": 2, "hidden": 12, "context": 16}
SMALL_BERT = {"width": 8, "heads": 2, "layers": 2, "hidden": 12, "context": 16}
STEADY = {"dropout": 0.0, "attention_dropout": 0.0}

NAMES = FAMILIES["classifiers"]

ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "bag_of_ngrams": ("bag_of_ngrams", {"width": 6, "buckets": 50}),
    "bag_of_ngrams, words": ("bag_of_ngrams", {"width": 6, "ngrams": 1, "dropout": 0.1}),
    "text_cnn": ("text_cnn", {"width": 6, "filters": 4}),
    "text_cnn, other": (
        "text_cnn",
        {"width": 5, "filters": 3, "windows": [1, 2], "characters": "cnn", "spelling_width": 4},
    ),
    "attention_pool": ("attention_pool", {"width": 6, "hidden": 4}),
    "attention_pool, other": (
        "attention_pool",
        {"width": 6, "hidden": 4, "cell": "gru", "score": "dot", "layers": 2, "characters": "lstm"},
    ),
    "attention_pool, sparse": (
        "attention_pool",
        {"width": 6, "hidden": 4, "cell": "elman", "weigh": "sparsemax"},
    ),
    "attention_pool, even": ("attention_pool", {"width": 6, "hidden": 4, "score": "even"}),
    "attention_pool, alone": ("attention_pool", {"width": 6, "hidden": 4, "cell": "none"}),
    "question_attention": ("question_attention", {"width": 6, "hidden": 4}),
    "question_attention, dot": ("question_attention", {"width": 6, "hidden": 4, "score": "dot"}),
    "han": ("han", {"width": 6, "hidden": 4, "attention": 5}),
    "han, other": ("han", {"width": 6, "hidden": 3, "cell": "lstm", "score": "dot"}),
    "text_transformer": ("text_transformer", {"width": 8, "heads": 2, "hidden": 12}),
    "text_transformer, other": (
        "text_transformer",
        {"width": 8, "heads": 4, "layers": 1, "pool": "even", "pairs": True},
    ),
    "bilstm_crf": ("bilstm_crf", {"width": 6, "hidden": 4, "spelling_width": 5}),
    "bilstm_crf, other": (
        "bilstm_crf",
        {"width": 6, "hidden": 4, "layers": 2, "characters": "lstm", "crf": False},
    ),
    "bert_classifier": ("bert_classifier", {"encoder": SMALL_BERT}),
    "bert_classifier, other": (
        "bert_classifier",
        {
            "encoder": {**SMALL_BERT, "norm": "before", "segments": 0, "uncounted": 0, **STEADY},
            "dropout": 0.0,
            "recompute": True,
        },
    ),
    "bert_tagger": ("bert_tagger", {"encoder": SMALL_BERT}),
    "gpt_classifier": ("gpt_classifier", {"body": SMALL_GPT}),
    "gpt_classifier, other": (
        "gpt_classifier",
        {
            "body": {**SMALL_GPT, "norm": "after", "dropout": 0.1},
            "bias": True,
            "next_token_weight": 0.5,
        },
    ),
    "ulmfit": ("ulmfit", {"source": "runs/lm", "hidden": 7, "window": 4}),
}

CHANGED: dict[str, object] = {
    "cell": "elman",
    "width": 4,
    "hidden": 5,
    "layers": 3,
    "score": "even",
    "weigh": "sparsemax",
    "characters": "none",
    "spelling_width": 7,
    "character_width": 9,
    "dropout": 0.3,
    "hide": 0.5,
    "words_dropout": 0.3,
    "encoder_dropout": 0.3,
    "init_range": 0.7,
    "ngrams": 3,
    "buckets": 30,
    "windows": [2],
    "filters": 7,
    "attention": 9,
    "heads": 1,
    "position": "sinusoidal",
    "context": 33,
    "pool": "dot",
    "pairs": True,
    "crf": False,
    "encoder": {**SMALL_BERT, "layers": 1},
    "body": {**SMALL_GPT, "layers": 1},
    "bias": True,
    "next_token_weight": 0.5,
    "padding": 7,  # the last token of the first text
    "activation": "relu",
}
"""Another value for every field, which must make another model."""

SOURCED = ("source", "source_at", "tune", "mix", "fresh", "window", "windows")
"""Fields that matter only where a model begins with a run; tests/layers, tests/models have them."""


def begun(name: str) -> dict[str, nn.Module]:
    """The trained model that a model cannot be without."""
    return {"source": AWDLSTM(AWDLSTM.Config(width=6, hidden=8), V)} if name == "ulmfit" else {}


def built(row: str, **changed: object) -> nn.Module:
    torch.manual_seed(1)
    name, given = ROWS[row]
    kind = MODELS[name]
    config = parse(vars(kind)["Config"], {**given, **changed})
    return kind(config, vocabulary=V, classes=C, **begun(name))


def batch(extra: int = 0) -> dict[str, Tensor]:
    """Four texts, one of them empty; with `extra` columns of padding."""
    torch.manual_seed(2)
    width = max(LENGTHS) + extra
    drawn = torch.randint(4, V, (len(LENGTHS), max(LENGTHS)))
    spelled = torch.randint(1, 250, (len(LENGTHS), max(LENGTHS), 5))
    tokens, parts = torch.zeros(4, width).long(), torch.full((4, width), -1)
    characters = torch.zeros(4, width, 5 + extra).long()
    for row, length in enumerate(LENGTHS):
        tokens[row, :length] = drawn[row, :length]
        parts[row, :length] = torch.tensor(PARTS[row])
        characters[row, :length, :5] = spelled[row, :length]
    lengths = torch.tensor(LENGTHS)
    return {"tokens": tokens, "lengths": lengths, "parts": parts, "characters": characters}


def alone(whole: Batch, row: int) -> Batch:
    """One text of a batch by itself, without its padding."""
    length = max(1, LENGTHS[row])
    return {
        name: each[row : row + 1] if each.dim() == 1 else each[row : row + 1, :length]
        for name, each in whole.items()
    }


def scores(model: nn.Module, given: Batch) -> Tensor:
    """Logits of classes, or the probability of every tag."""
    output = model(given)
    return output.probabilities() if isinstance(output, Tags) else output.logits


def loss(model: nn.Module, given: Batch) -> Tensor:
    output = model(given)
    if isinstance(output, Tags):
        return output.nll(torch.ones_like(given["tokens"]))
    classes = torch.tensor([1, 0, 2, 0])[: len(output.logits)]
    return output.with_auxiliary(nn.functional.cross_entropy(output.logits, classes))


def attends(row: str) -> bool:
    return any(isinstance(each, Site) for each in built(row).modules())


def test_every_model_is_in_the_table() -> None:
    assert {name for name, _ in ROWS.values()} == set(NAMES)
    assert all(ROWS[name][0] == name for name in NAMES), "the plain one goes by the name alone"


@pytest.mark.parametrize("row", ROWS)
def test_padding_and_batch_mates_change_nothing(row: str) -> None:
    model = built(row).eval()
    with torch.no_grad():
        whole, wider = scores(model, batch()), scores(model, batch(extra=3))
        assert whole.shape[0] == len(LENGTHS)
        torch.testing.assert_close(wider[:, : whole.shape[1]], whole, atol=1e-5, rtol=1e-5)
        for place, length in enumerate(LENGTHS):
            one = scores(model, alone(batch(), place))[0]
            mine = whole[place] if one.dim() == 1 else whole[place, : max(1, length)]
            torch.testing.assert_close(one, mine, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", ROWS)
def test_empty_texts_and_empty_sentences_leave_everything_finite(row: str) -> None:
    for given in (batch(extra=2), alone(batch(), LENGTHS.index(0))):
        model = built(row).train()
        total = loss(model, given)
        total.backward()
        assert total.isfinite()
        for name, each in model.named_parameters():
            assert each.grad is None or each.grad.to_dense().isfinite().all(), name


@pytest.mark.parametrize("row", ROWS)
def test_every_parameter_is_reached_by_the_loss(row: str) -> None:
    model = built(row, dropout=0.0).train()
    loss(model, batch()).backward()
    unreached = [
        name
        for name, each in model.named_parameters()
        if each.requires_grad and (each.grad is None or not each.grad.to_dense().any())
    ]
    # A table that is multiplied by an output layer of zeros learns from the second step on.
    assert unreached == (["table.weight"] if row.startswith("bag_of_ngrams") else [])


@pytest.mark.parametrize("row", [row for row in ROWS if attends(row)])
def test_recorded_weights_sum_to_one_over_real_words_and_change_nothing(row: str) -> None:
    model, given = built(row).eval(), batch(extra=1)
    with torch.no_grad():
        before = scores(model, given)
        with record(model) as tape:
            after = scores(model, given)
    assert torch.equal(before, after)
    assert set(tape.sites) == set(sites_of(model))
    assert len(tape)
    for call in tape:
        total = call.weights.sum(3)
        looks = total > 0
        torch.testing.assert_close(total[looks], torch.ones_like(total[looks]))
        assert not looks[LENGTHS.index(0)].any(), "an empty text looks at nothing"
        if call.weights.shape[3] == given["tokens"].shape[1]:
            beyond = torch.arange(call.weights.shape[3]) >= given["lengths"][:, None]
            assert not call.weights.transpose(1, 3)[beyond].any()


@pytest.mark.parametrize("row", ROWS)
def test_a_saved_model_loads_to_the_same_bits(row: str) -> None:
    model = built(row).eval()
    torch.manual_seed(7)
    name = ROWS[row][0]
    other = MODELS[name](model.config, vocabulary=V, classes=C, **begun(name)).eval()
    other.load_state_dict(load(save(model.state_dict())))
    with torch.no_grad():
        assert torch.equal(scores(model, batch()), scores(other, batch()))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (row, field)
        for row in ROWS
        if ROWS[row][0] == row
        for field in vars(MODELS[row])["Config"].model_fields
        if field not in (*SOURCED, "recompute")  # which is to make none: tests/models/test_bert.py
    ],
)
def test_every_field_of_the_config_makes_a_difference(row: str, field: str) -> None:
    base: dict[str, object] = {"characters": "cnn"} if field.startswith("character") else {}
    if field == "position":
        base = {"position": "learned"}
    one, other = built(row, **base), built(row, **{**base, field: CHANGED[field]})
    shapes = [{n: tuple(p.shape) for n, p in each.named_parameters()} for each in (one, other)]
    if shapes[0] != shapes[1]:
        return
    said = []
    for model in (one, other):
        for each in model.parameters():
            nn.init.uniform_(each, -0.5, 0.5) if field != "init_range" else None
        torch.manual_seed(3)
        said.append(loss(model.train(), batch()))
    torch.manual_seed(3)
    assert not torch.equal(*said)


@pytest.mark.parametrize("row", ROWS)
def test_a_few_texts_are_learnt_by_heart(row: str, as_users_run_it: None) -> None:
    model, given = (
        built(row, dropout=0.0, init_range=0.5) if has_init_range(row) else built(row),
        batch(),
    )
    rates = [each for each in model.parameters() if each.requires_grad]
    sparse = ROWS[row][0] == "bag_of_ngrams"
    optimiser = torch.optim.SGD(rates, 5.0) if sparse else torch.optim.Adam(rates, 0.03)
    first = loss(model, given).item()
    for _ in range(60):
        optimiser.zero_grad()
        loss(model, given).backward()
        optimiser.step()
    assert loss(model.eval(), given).item() < 0.3 * first


def has_init_range(row: str) -> bool:
    return "init_range" in vars(MODELS[ROWS[row][0]])["Config"].model_fields


def test_characters_that_are_missing_are_asked_for(as_users_run_it: None) -> None:
    model, given = built("bilstm_crf"), batch()
    del given["characters"]
    with pytest.raises(UserError, match=r"reads spellings: set data\.characters = true"):
        model(given)
