"""BERT's models: what is hidden is guessed, layers computed twice learn the same, sources fit."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attend, record, without
from regard.attention.tape import intervene
from regard.core.errors import UserError
from regard.core.padding import IGNORE
from regard.layers.text_encoder import Encoding, TextEncoder
from regard.models.text.bert import BERT
from regard.models.text.bert_classifier import BERTClassifier
from regard.models.text.bert_reader import BERTReader
from regard.models.text.bert_tagger import BERTTagger
from regard.outputs.spans import Spans

SMALL = Encoding(width=8, heads=2, layers=3, hidden=12, context=16)
V = 20


def tokens(rows: int = 2, length: int = 6) -> Tensor:
    return torch.randint(4, V, (rows, length))


def bert(**given: bool) -> BERT:
    return BERT(BERT.Config(encoder=SMALL, **given), V).eval()


def test_the_words_head_says_the_same_of_chosen_places_as_of_all() -> None:
    said = bert()({"tokens": tokens()}).words
    assert said is not None
    where = torch.rand(2, 6) > 0.5
    torch.testing.assert_close(said.at(where).logits()[0], said.logits()[where])
    targets = torch.where(where, tokens(), IGNORE)
    torch.testing.assert_close(said.nll(targets), -said.log_probability(targets).sum())


def test_nothing_hidden_surprises_nobody() -> None:
    said = bert()({"tokens": tokens()}).words
    assert said is not None
    assert said.nll(torch.full((2, 6), IGNORE)).item() == 0.0


def test_next_sentence_without_the_pooled_state_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(ValueError, match="pooled = true"):
        BERT.Config(next_sentence=True)


def test_layers_computed_again_give_the_same_gradients() -> None:
    grads = []
    for recompute in (False, True):
        torch.manual_seed(1)
        model = BERT(BERT.Config(encoder=SMALL, recompute=recompute), V).train()
        torch.manual_seed(2)  # the same dropout
        given = {"tokens": torch.arange(12).view(2, 6), "lengths": torch.tensor([6, 4])}
        said = model(given).words
        assert said is not None
        said.nll(torch.full((2, 6), 5)).backward()
        grads.append({name: each.grad for name, each in model.named_parameters()})
    assert grads[0].keys() == grads[1].keys()
    for name, each in grads[0].items():
        torch.testing.assert_close(each, grads[1][name], msg=name)


def test_one_layer_is_recorded_and_one_head_is_taken_out() -> None:
    model, given = bert(), {"tokens": tokens()}
    whole = model(given).states
    with record(model, sites="encoder.1.*") as tape:
        assert torch.equal(model(given).states, whole)
    assert tape.sites == ("encoder.1.attention",)
    assert tape.weights("encoder.1.attention").shape == (2, 2, 6, 6)
    with intervene(model, {"encoder.1.*": without(1)}):
        assert not torch.allclose(model(given).states, whole)


@pytest.mark.parametrize("kind", [BERTClassifier, BERTTagger, BERTReader])
def test_a_model_begins_with_the_encoder_of_another(kind: type[nn.Module]) -> None:
    source = bert(pooled=True)
    expected = source.encoder({"tokens": (given := tokens())})
    config = kind.Config(source="runs/bert")
    sizes = {} if kind is BERTReader else {"classes": 3}
    model = kind(config, vocabulary=V, source=source, **sizes).eval()
    assert torch.equal(model.encoder({"tokens": given}), expected)
    assert len(model.stages()) == 1 + 3 + 1
    assert sum(map(len, model.stages())) == len(list(model.parameters()))


def test_a_classifier_begins_with_the_pooler_too() -> None:
    source = bert(pooled=True)
    assert source.pooler is not None
    model = BERTClassifier(BERTClassifier.Config(source="runs/bert"), V, 3, source=source)
    assert torch.equal(model.pooler.dense.weight, source.pooler.dense.weight)


def test_a_source_that_does_not_fit_is_refused(as_users_run_it: None) -> None:
    config = BERTClassifier.Config(source="runs/bert")
    with pytest.raises(UserError, match="encoder of a bert, not with a Linear"):
        BERTClassifier(config, V, 3, source=nn.Linear(2, 2))
    with pytest.raises(UserError, match="reads 20 tokens, and the data have 30"):
        BERTClassifier(config, 30, 3, source=bert())
    wider = BERTClassifier.Config(source="runs/bert", encoder=Encoding(width=16))
    with pytest.raises(
        UserError, match=r"model\.encoder\.width=16, but that of model\.source is 8"
    ):
        BERTClassifier(wider, V, 3, source=bert())


def test_more_tokens_than_fit_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="17 tokens do not fit a context of 16"):
        bert()({"tokens": tokens(1, 17)})


def test_the_best_span_is_the_best_of_all_that_are_allowed() -> None:
    first, last = torch.randn(3, 7), torch.randn(3, 7)
    allowed = torch.tensor([[True] * 7, [False, True, True, True, False, True, True], [False] * 7])
    spans, scores = Spans(first, last).best(allowed, longest=3)
    for row in range(2):
        every = {
            (i, j): float(first[row, i] + last[row, j])
            for i in range(7)
            for j in range(i, min(7, i + 3))
            if allowed[row, i] and allowed[row, j]
        }
        assert tuple(spans[row].tolist()) == max(every, key=lambda pair: every[pair])
        assert scores[row].item() == pytest.approx(max(every.values()), abs=1e-6)
    assert scores[2].item() == float("-inf")


@pytest.mark.parametrize("kind", [BERTClassifier, BERTTagger, BERTReader])
def test_what_is_begun_with_may_have_another_dropout(kind: type[nn.Module]) -> None:
    source = BERT(BERT.Config(encoder=SMALL), 20)
    sizes = {"vocabulary": 20} | ({} if kind is BERTReader else {"classes": 3})
    config = vars(kind)["Config"](source="runs/bert", encoder_dropout=0.4)
    model = kind(config, **sizes, source=source)
    inside = [each for each in model.encoder.modules() if isinstance(each, Attend)]
    assert {each.dropout.p for each in inside} == {model.encoder.drop.p} == {0.4}
    for name, each in source.encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[name], each), name


def test_tables_begin_with_the_init_range_and_near_positions_alike_if_that_is_asked_for() -> None:
    encoding = SMALL.model_copy(update={"width": 32, "context": 64, "init_range": 0.3})
    drawn, waves = (
        TextEncoder(encoding.model_copy(update={"waves": each}), 500) for each in (False, True)
    )
    for model in (drawn, waves):
        assert model.embed.table.weight.std().item() == pytest.approx(0.3, rel=0.05)
        assert model.position.table.pow(2).mean().sqrt().item() == pytest.approx(0.3, rel=0.05)
    near, far = (
        F.cosine_similarity(waves.position.table[20], waves.position.table[20 + step], dim=0)
        for step in (1, 30)
    )
    assert near > 0.9
    assert near > far + 0.1
    assert F.cosine_similarity(drawn.position.table[20], drawn.position.table[21], dim=0) < 0.6
