"""Models of every task are audited: which examples, which positions, and which query."""

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.core.protocols import Batch
from regard.explain.audit import AuditConfig, audit_run
from regard.explain.audited_site import AuditedSite, AuditedUnits
from regard.explain.build import audited_site
from regard.explain.gradient_reach import WITH, WITHOUT, gradient_reach
from regard.explain.importance import leave_one_out
from regard.explain.tests import AuditSettings
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create
from regard.tasks.abilities import Explains, ReachesBack

ABOUT = '[about]\ntitle = "Tiny"\npaper = "nobody"\nminutes = 0.1\n'
TRAIN = '[train]\nepochs = 1\noptimiser = { name = "adam", lr = 1e-2 }\n'

DATA = {
    "classify": 'train = "texts.txt"\nvalidation = "texts.txt"\ntest = "texts.txt"\n',
    "tag": 'train = "tags.txt"\nvalidation = "tags.txt"\ncharacters = false\n',
    "translate": 'train = ["a.txt", "b.txt"]\nvalidation = ["a.txt", "b.txt"]\n'
    'tokeniser = "word"\n',
    "question": 'train = "pairs.tsv"\nvalidation = "pairs.tsv"\ntest = "pairs.tsv"\n'
    "text = [2, 3]\nlabel = 1\n",
    "language_model": 'train = "plain.txt"\nvalidation = "plain.txt"\nwindow = 6\nbatch = 2\n',
}

BERT = "encoder = { width = 8, heads = 2, layers = 2, hidden = 8 }"
MODELS = {
    "pool": ("classify", 'kind = "attention_pool"\nwidth = 8\nhidden = 6', "pool"),
    "question": ("classify", 'kind = "question_attention"\nwidth = 8\nhidden = 6', "attend"),
    "layers": ("classify", 'kind = "text_transformer"\nwidth = 8\nheads = 2\nhidden = 8', "pool"),
    "layer": (
        "classify",
        'kind = "text_transformer"\nwidth = 8\nheads = 2\nhidden = 8\nlayers = 2',
        "layers.1.attention",
    ),
    "words": ("classify", 'kind = "han"\nwidth = 8\nhidden = 6\nattention = 5', "word_pool"),
    "sentences": (
        "classify",
        'kind = "han"\nwidth = 8\nhidden = 6\nattention = 5',
        "sentence_pool",
    ),
    "bert": ("classify", f'kind = "bert_classifier"\n{BERT}', "encoder.1.attention"),
    "tagger": ("tag", f'kind = "bert_tagger"\n{BERT}', "encoder.1.attention"),
    "recurrent": ("translate", 'kind = "bahdanau"\nwidth = 8\nhidden = 6', "attend"),
    "transformer": (
        "translate",
        'kind = "transformer"\nwidth = 8\nheads = 2\nencoder_layers = 2\ndecoder_layers = 2',
        "decoder.1.cross",
    ),
    "gpt": (
        "language_model",
        'kind = "gpt"\nwidth = 8\nheads = 2\nlayers = 2\ncontext = 8',
        "layers.1.attention",
    ),
}

QUICK = AuditSettings(shuffles=3, starts=2, steps=4)


def opened(name: str, folder: Path) -> Run:
    """An untrained model of this kind, with a few texts."""
    task, model, _ = MODELS[name]
    kinds = [("good", "fine", "go "), ("bad", "dull", ""), ("good", "great", "see it now ")]
    rows = [f"{label} {word} film . so {word} it was . {more}." for label, word, more in kinds]
    (folder / "texts.txt").write_text("\n".join(rows * 3) + "\n")
    (folder / "tags.txt").write_text("John B-PER\nsaw O\nParis B-LOC\ntoday O\n\n" * 4)
    (folder / "a.txt").write_text("the cat sat here\na dog ran\nthe dog sat there now\n" * 3)
    (folder / "b.txt").write_text("die katze sass hier\nein hund lief\nder hund sass da\n" * 3)
    (folder / "plain.txt").write_text("to be or not to be that is the question " * 6)
    (folder / "pairs.tsv").write_text("here\tMary is here now\twhere is Mary\n"
                                      "there\tshe ran there\twhere now\n" * 4)  # fmt: skip
    data = DATA.get(name, DATA[task])
    document = 'sentences = "punctuation"\n' if "han" in model else ""
    text = f'task = "{task}"\n{ABOUT}[data]\n{data}{document}[model]\n{model}\n{TRAIN}'
    torch.manual_seed(1)
    run = create(parse_recipe(text, "tiny"), folder / "run", folder, "cpu")
    for each in run.model.parameters():  # so that heads and words differ enough to be ranked
        torch.nn.init.normal_(each, std=0.5) if each.dim() > 1 else None
    return run


def site_of(name: str, folder: Path) -> tuple[AuditedSite, list[Batch]]:
    run = opened(name, folder)
    run.model.eval()
    assert isinstance(run.task, Explains)
    subject = run.task.subject("validation", most=6, seed=0)
    return audited_site(run.model, MODELS[name][2], subject), list(subject.batches)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_is_judged_and_no_figure_is_nan(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.explain.importance.INTEGRATION_STEPS", 2)
    run = opened(name, tmp_path)
    config = AuditConfig(site=MODELS[name][2], examples=6, settings=QUICK, split="validation")
    found = audit_run(run, config)
    tests = [each.test for each in found.verdicts]
    assert tests[:5] == ["agreement", "permutation", "adversary", "uniform", "erasure"]
    assert ("heads" in tests) == (
        name in ("layers", "layer", "bert", "tagger", "transformer", "gpt")
    )
    assert found.examples == 6
    for verdict in found.verdicts:
        assert verdict.figures
        assert not any(isnan(each.mean) for each in verdict.figures.values())


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_before_the_attention_may_be_kept(name: str, tmp_path: Path) -> None:
    site, batches = site_of(name, tmp_path)
    for batch in batches:
        own = site.predict(batch)
        torch.testing.assert_close(own.weights.sum(1), torch.ones(len(own.weights)))
        wanted = site.predict(batch, weights=own.weights)
        with site.reuse(batch):
            kept = site.predict(batch, weights=own.weights)
        torch.testing.assert_close(kept.probabilities, wanted.probabilities)
        if name in ("pool", "question", "words", "sentences", "recurrent"):  # one head, one query
            torch.testing.assert_close(wanted.probabilities, own.probabilities)
        vectors = site.predict(batch, vectors=site.embed(batch))
        torch.testing.assert_close(vectors.probabilities, own.probabilities)


@pytest.mark.parametrize("name", MODELS)
def test_new_weights_are_what_the_model_then_used(name: str, tmp_path: Path) -> None:
    site, batches = site_of(name, tmp_path)
    batch = batches[0]
    judged, groups = site.positions(batch), site.groups(batch)
    alike = torch.zeros_like(site.predict(batch).weights)
    for row in range(len(alike)):
        there = groups[row][judged[row]].unique()
        for group in there.tolist():
            members = judged[row] & (groups[row] == group)
            alike[row, members] = 1 / (len(there) * int(members.sum()))
    torch.testing.assert_close(site.predict(batch, weights=alike).weights, alike)


def test_the_word_that_is_tagged_moves_with_the_words_before_it(tmp_path: Path) -> None:
    site, (batch, *_) = site_of("tagger", tmp_path)
    keep = torch.zeros_like(site.positions(batch))
    left = site.select(batch, keep)
    rows = torch.arange(len(keep))
    torch.testing.assert_close(
        left["tokens"][rows, left["place"]], batch["tokens"][rows, batch["place"]]
    )
    assert not site.positions(batch)[rows, batch["place"]].any()


def test_sentences_are_taken_out_whole(tmp_path: Path) -> None:
    site, (batch, *_) = site_of("sentences", tmp_path)
    assert isinstance(site, AuditedUnits)
    keep = site.positions(batch).clone()
    keep[:, 0] = False
    left = site.select(batch, keep)
    assert not (left["parts"] == 0).any()
    assert int(left["lengths"].sum()) == int((batch["parts"] > 0).sum())
    assert (leave_one_out(site, batch)[site.positions(batch)] > 0).all()


def test_the_target_of_a_translator_stays_whatever_is_taken_from_its_source(
    tmp_path: Path,
) -> None:
    site, batches = site_of("recurrent", tmp_path)
    for batch in batches:
        left = site.select(batch, torch.zeros_like(site.positions(batch)))
        torch.testing.assert_close(left["tokens"], batch["tokens"])
        assert left["source_lengths"].unique().tolist() == [1]  # what ends a source stays


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("layer", AuditConfig(), "choose one with --site: layers.0.attention"),
        ("pool", AuditConfig(site="pol"), "pool"),
        ("pool", AuditConfig(tests=("heads",)), "no layers of self-attention"),
        ("pool", AuditConfig(tests=("retrian",)), "retrain"),
        (
            "gpt",
            AuditConfig(site="layers.1.attention", tests=("retrain",)),
            "one class for each example",
        ),
    ],
)
def test_what_cannot_be_audited_is_an_error_with_the_reason(
    name: str, config: AuditConfig, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        audit_run(opened(name, tmp_path), config)


def test_only_the_text_is_judged_where_a_question_asks(tmp_path: Path) -> None:
    site, (batch, *_) = site_of("question", tmp_path)
    judged = site.positions(batch)
    assert (batch["parts"][judged] == 0).all()
    assert judged.sum(1).tolist() == [4 if length == 8 else 3 for length in batch["lengths"]]
    left = site.select(batch, torch.zeros_like(judged))
    assert (left["parts"] == 1).sum() == (batch["parts"] == 1).sum()


@pytest.mark.usefixtures("as_users_run_it")
def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    run = opened("pool", tmp_path)
    text = run.recipe.to_toml()
    plain = parse_recipe(text, "tiny", ["model={kind='text_cnn', width=8, filters=4}"])
    other = create(plain, tmp_path / "cnn", tmp_path, "cpu")
    with pytest.raises(UserError, match="has no attention"):
        audit_run(other, AuditConfig())


@pytest.mark.usefixtures("as_users_run_it")
def test_texts_of_one_class_are_refused(tmp_path: Path) -> None:
    run = opened("pool", tmp_path)
    (tmp_path / "texts.txt").write_text("good a fine film\ngood so great\n")
    run = replace(run, task=replace(run.task))  # which has read nothing yet
    with pytest.raises(UserError, match="all test texts are 'good'; with one class"):
        audit_run(run, AuditConfig())


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("recurrent", "the cat sat", ("the", "cat", "sat", "<eos>")),
        ("transformer", "the cat sat", ("the", "cat", "sat", "<eos>")),
        ("gpt", "to be or", ("to", "be", "or")),
    ],
)
def test_gradients_of_the_last_prediction_reach_every_position(
    name: str, text: str, labels: tuple[str, ...], tmp_path: Path
) -> None:
    run = opened(name, tmp_path)
    run.model.eval()
    assert isinstance(run.task, ReachesBack)
    found = gradient_reach(run.task, run.model, Text(text))
    assert found.axis.labels == labels
    assert len(found.norms[WITH]) == len(found.norms[WITHOUT]) == len(labels)
    assert all(norm > 0 for norm in found.norms[WITH])
    assert sum(found.norms[WITHOUT]) < sum(found.norms[WITH])
    for module in run.model.modules():
        assert not module._forward_hooks
