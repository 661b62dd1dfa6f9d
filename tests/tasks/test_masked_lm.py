"""Pre-training: a tiny BERT learns a tiny language, goes on to the same bits, fills in words, and
is what a classifier and a tagger begin with."""

import random
import shutil
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.data.batch import IGNORE
from regard.models.language.gpt import GPT as GPTModel
from regard.models.text.gpt_classifier import GPTClassifier
from regard.runs.recipe import Recipe, parse_recipe
from regard.runs.run import create, load, open_run
from regard.tasks.masked_lm import MaskedLM
from regard.train.prefetch import PrefetchedBatches
from tests.unchecked import unchecked

ANIMALS = {
    "cat": "purrs",
    "dog": "barks",
    "cow": "moos",
    "owl": "hoots",
    "bee": "hums",
    "ass": "brays",
}
RECIPE = """
task = "masked_lm"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "talk.txt"
validation = 0.1
window = 16
batch = 32
[model]
kind = "bert"
pooled = true
next_sentence = true
encoder = { width = 64, heads = 2, layers = 2, hidden = 128, context = 16, dropout = 0.0 }
[train]
updates = 400
optimiser = { name = "adamw", lr = 3e-3 }
schedule = { name = "cosine", warmup = 30, floor = 0.5 }
clip = 1.0
log_every = 25
evaluate_every = 400
save_every = 50
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that each are about one animal, and say what it does."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(0)
    documents = []
    for _ in range(300):
        animal = draw.choice(list(ANIMALS))
        documents.append(f"the {animal} {ANIMALS[animal]} .\n" * draw.randint(2, 5))
    (folder / "talk.txt").write_text("\n".join(documents))
    sentences = [(a, b) for a in ANIMALS for b in ANIMALS.values()] * 4
    rows = [f"{int(a in ('cat', 'bee', 'owl'))}\tthe {a} {b} .\n" for a, b in sentences]
    (folder / "hunts.tsv").write_text("".join(rows))
    pairs = [f"{int(a == b)}\tthe {a}\tthe {b}\n" for a in ANIMALS for b in ANIMALS] * 4
    (folder / "same.tsv").write_text("".join(pairs))
    tags = [f"the O\n{a} B-A\n{b} B-V\n\n" for a, b in sentences]
    (folder / "tags.txt").write_text("".join(tags))
    return folder


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(place / "cache"))


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch, unchecked():
        patch.setenv("REGARD_CACHE", str(place / "cache"))
        torch.manual_seed(0)
        create(parse_recipe(RECIPE, "tiny"), place / "bert", place, "cpu").train()
    return place / "bert"


def test_it_learns_words_and_what_follows_and_fills_in(trained: Path) -> None:
    run = load(trained, "cpu")
    found = run.evaluate("validation")
    assert set(found) == {
        *("loss", "masked_loss", "perplexity", "masked_accuracy", "next_accuracy"),
    }
    assert found["masked_accuracy"] > 0.9
    assert found["next_accuracy"] > 0.7  # one in six of other documents is about the same animal
    assert found["loss"] > found["masked_loss"]
    for animal, sound in ANIMALS.items():
        pair = f"the {animal} [MASK] .\tthe [MASK] {sound} ."
        said, other = run.predict([f"The {animal} {sound} [MASK]", pair])
        assert said.fields["filled"] == f"The {animal} {sound} ."
        assert other.fields["text"] == pair
        assert len(said.fields["masks"]) == 1
        assert len(other.fields["masks"]) == 2
    log = (trained / "log.jsonl").read_text()
    assert '"waiting": 0.' in log
    (payload, *_) = run.look("the cat [MASK]")
    assert "[MASK]" in payload.keys


def test_a_training_that_was_stopped_sees_the_same_batches(trained: Path, place: Path) -> None:
    recipe = parse_recipe(RECIPE, "tiny", ["train.updates=60", "train.save_every=20"])
    whole = create(recipe, place / "whole", place, "cpu")
    whole.train()
    again = create(recipe, place / "again", place, "cpu")
    again.train()
    for late in ("state/00000060", "model.safetensors"):
        assert (place / "whole" / late).exists()
    # Only the checkpoint after 40 updates is left, and the training goes on from there.
    shutil.rmtree(place / "again" / "state" / "00000060")
    (place / "again" / "model.safetensors").unlink()
    open_run(place / "again", place, "cpu").train()
    first, second = (load(place / name, "cpu").model.state_dict() for name in ("whole", "again"))
    assert all(torch.equal(each, second[name]) for name, each in first.items())


def test_batches_made_ahead_are_the_same(trained: Path, place: Path) -> None:
    task = load(trained, "cpu").task
    plain, ahead = task.batches(), PrefetchedBatches(task.batches())
    last = len(plain) - 1
    for where in [(0, 0), (0, 1), (0, 2), (2, 5), (0, 1), (0, last), (1, 0)]:
        made = ahead.batch(*where)
        assert all(torch.equal(each, made[name]) for name, each in plain.batch(*where).items())


def test_an_error_in_the_thread_reaches_the_caller() -> None:
    class Torn:
        def __len__(self) -> int:
            return 3

        def batch(self, epoch: int, index: int) -> dict[str, torch.Tensor]:
            if index == 1:
                raise UserError("torn")
            return {}

    batches = PrefetchedBatches(Torn())
    assert batches.batch(0, 0) == {}
    with pytest.raises(UserError, match="torn"):
        batches.batch(0, 1)


def test_the_losses_of_processes_add_up_to_that_of_one(place: Path) -> None:
    plain = parse_recipe(RECIPE, "tiny", ["model.encoder.attention_dropout=0.0"])
    run = create(plain, place / "plain", place, "cpu")
    task, model = run.task, run.model.train()
    batches = task.batches()
    for index in range(len(batches)):
        whole = task.loss(model, batches.batch(0, index), None)
        parts = [task.loss(model, batches.shard(n, 16).batch(0, index), None) for n in range(16)]
        total = sum(each.total.item() for each in parts)
        assert total == pytest.approx(whole.total.item(), rel=1e-5)
        assert sum(each.items for each in parts) == whole.items
        for name, count in whole.counts.items():  # also of a process whose rows are all empty
            assert sum(each.counts[name] for each in parts) == pytest.approx(count, rel=1e-5)


def test_documents_for_validation_are_not_learnt_from(trained: Path) -> None:
    task = load(trained, "cpu").task
    assert isinstance(task, MaskedLM)
    parts = [task.documents(split) for split in ("train", "validation")]
    assert [len(part) for part in parts] == [270, 30]
    places = [set(part.places.tolist()) for part in parts]
    assert not places[0] & places[1]


def test_the_loss_is_over_what_was_chosen_alone(trained: Path) -> None:
    run = load(trained, "cpu")
    batch = dict(run.task.batches().batch(0, 0))
    loss = run.task.loss(run.model, batch, None)
    assert loss.items == int((batch["targets"] != IGNORE).sum())
    assert run.task.loss(run.model.train(), batch, None).items == loss.items
    total = run.task.loss(run.model.eval(), batch, None).total
    torch.testing.assert_close(loss.total, total)
    counts = loss.counts
    beside = (loss.total.item() - counts["words"]) / loss.items
    assert 0 <= beside < 5


FINE = """
task = "classify"
[about]
title = "Fine"
paper = "nobody"
minutes = 0.1
[data]
train = "hunts.tsv"
validation = "hunts.tsv"
label = 1
text = 2
tokeniser = "source"
batch = 16
[model]
kind = "bert_classifier"
source = "SOURCE"
dropout = 0.0
[train]
epochs = 12
optimiser = { name = "adamw", lr = 3e-3 }
"""


def fine(trained: Path, *changes: str) -> Recipe:
    return parse_recipe(FINE, "fine", [f"model.source={trained}", *changes])


def test_a_classifier_begins_with_it_and_reads_as_it_does(trained: Path, place: Path) -> None:
    run = create(fine(trained), place / "fine", place, "cpu")
    (told,) = run.began
    assert "encoder.0" in told
    assert "pooler" in told
    left = told.split("left out: ")[1]
    assert "words.dense" in left
    assert "next_sentence" in left
    assert "new here: output" in told
    batch = run.task.evaluation("validation").batch(0, 0)
    assert batch["tokens"][:, 0].tolist() == [2] * len(batch["tokens"])
    run.train()
    assert load(place / "fine", "cpu").evaluate("validation")["accuracy"] == 1.0
    assert run.look("the cat purrs .")[0].keys[0] == "[CLS]"


def test_weights_drawn_anew_are_none_of_the_source(trained: Path, place: Path) -> None:
    run = create(fine(trained, "model.fresh=true"), place / "fresh", place, "cpu")
    theirs = load(trained, "cpu").model.state_dict()["encoder.embed.table.weight"]
    assert not torch.equal(run.model.state_dict()["encoder.embed.table.weight"], theirs)


def test_pairs_are_two_segments_and_may_be_read_both_ways(trained: Path, place: Path) -> None:
    pair = ["data.train=same.tsv", "data.validation=same.tsv", "data.text=[2, 3]"]
    recipe = fine(trained, *pair, "data.both_orders=true")
    run = create(recipe, place / "pair", place, "cpu")
    batch = run.task.evaluation("validation").batch(0, 0)
    assert batch["parts"].max() == 1
    assert torch.equal(batch["lengths"], batch["swapped_lengths"])
    one, other = run.predict(["the cat\tthe owl", "the owl\tthe cat"])
    assert one.fields["probabilities"] == other.fields["probabilities"]
    plain = create(fine(trained, *pair), place / "one way", place, "cpu")
    one, other = plain.predict(["the cat\tthe owl", "the owl\tthe cat"])
    assert one.fields["probabilities"] != other.fields["probabilities"]


def test_layers_learn_at_rates_of_their_own_and_one_after_another(
    trained: Path, place: Path
) -> None:
    changes = ["train.stages={ divide = 2.0, unfreeze = 1 }", "train.epochs=1"]
    run = create(fine(trained, *changes), place / "staged", place, "cpu")
    before = {name: each.clone() for name, each in run.model.state_dict().items()}
    run.train()
    moved = {n for n, each in run.model.state_dict().items() if not torch.equal(each, before[n])}
    assert moved
    assert not any(name.startswith("encoder.") for name in moved)


GPT = """
task = "language_model"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "talk.txt"
tokeniser = "bpe"
vocabulary = 300
order = "random"
window = 16
batch = 8
[model]
kind = "gpt"
width = 16
heads = 2
layers = 1
context = 32
[train]
updates = 5
optimiser = { name = "adamw", lr = 3e-3 }
"""


def test_gpts_classifier_reads_between_marks_and_adds_the_loss_of_next_tokens(place: Path) -> None:
    create(parse_recipe(GPT, "gpt"), place / "gpt", place, "cpu").train()
    text = FINE.replace("bert_classifier", "gpt_classifier")
    pair = ["data.train=same.tsv", "data.validation=same.tsv", "data.text=[2, 3]"]
    changes = [
        f"model.source={place / 'gpt'}",
        'data.template="gpt"',
        "model.next_token_weight=0.5",
        *pair,
    ]
    run = create(parse_recipe(text, "fine", changes), place / "sst", place, "cpu")
    batch = run.task.batches().batch(0, 0)
    known = load(place / "gpt", "cpu").task.sizes["vocabulary"]
    assert run.task.sizes["vocabulary"] == known + 3
    for row, length in zip(batch["tokens"].tolist(), batch["lengths"].tolist(), strict=True):
        assert (row[0], row[length - 1]) == (known, known + 2)
        assert row.count(known + 1) == 1
    beside = run.task.loss(run.model.train(), batch, None).total
    alone = run.task.loss(run.model.eval(), batch, None).total
    assert beside > alone + 1, "next tokens count in training"
    run.train()
    (said,) = load(place / "sst", "cpu").predict(["the cat\tthe cat"])
    assert set(said.fields["probabilities"]) == {"0", "1"}
    assert run.look("the cat\tthe owl")[0].keys[0] == "<start>"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", ["before", "after"])
def test_every_parameter_of_a_gpt_is_in_one_stage(norm: str, tied: bool) -> None:
    config = GPTModel.Config(width=8, heads=2, layers=2, norm=norm, tied=tied)
    body = GPTModel(config, 20)
    for model, top in (
        (body, norm == "before" or not tied),
        (GPTClassifier(GPTClassifier.Config(body=config), 20, 3), True),
    ):
        stages = model.stages()
        assert len(stages) == 3 + top
        assert all(stages)
        held = [id(each) for stage in stages for each in stage]
        assert sorted(held) == sorted(id(each) for each in model.parameters())


def test_gpts_layers_computed_again_give_the_same_gradients() -> None:
    grads = []
    for recompute in (False, True):
        torch.manual_seed(1)
        config = GPTModel.Config(width=16, heads=2, layers=2, dropout=0.2, recompute=recompute)
        model = GPTModel(config, 20).train()
        torch.manual_seed(2)  # the same dropout
        output = model({"tokens": torch.arange(12).view(2, 6)})
        output.nll(torch.full((2, 6), 5)).backward()
        grads.append({name: each.grad for name, each in model.named_parameters()})
    for name, each in grads[0].items():
        torch.testing.assert_close(each, grads[1][name], msg=name)


TAG = """
task = "tag"
[about]
title = "Tags"
paper = "nobody"
minutes = 0.1
[data]
train = "tags.txt"
validation = "tags.txt"
tokeniser = "wordpiece"
vocabulary = 44
batch = 16
[model]
kind = "bert_tagger"
encoder = { width = 32, heads = 2, layers = 1, context = 32, dropout = 0.0 }
dropout = 0.0
[train]
epochs = 8
optimiser = { name = "adamw", lr = 5e-3 }
"""


@pytest.mark.parametrize("begins", [False, True])
def test_a_tagger_tags_words_by_their_first_pieces(
    begins: bool, trained: Path, place: Path
) -> None:
    changes = [f"model.source={trained}", "data.tokeniser=source"] if begins else []
    text = "\n".join(line for line in TAG.splitlines() if not (begins and "encoder" in line))
    run = create(parse_recipe(text, "tags", changes), place / f"tags{begins}", place, "cpu")
    batch = run.task.evaluation("validation").batch(0, 0)
    assert batch["words"].tolist() == [3] * len(batch["words"])
    if not begins:
        assert (batch["firsts"][:, 2] - batch["firsts"][:, 1] > 1).any(), "a word in pieces"
    run.train()
    again = load(place / f"tags{begins}", "cpu")
    assert again.evaluate("validation")["f1"] > 99.9
    (said,) = again.predict(["the owl hoots"])
    assert said.fields["tags"] == ["O", "B-A", "B-V"]
    assert again.look("the owl hoots")[0].keys[0] == "[CLS]"


BAD = {
    "no source for its tokeniser": ([], ["data.tokeniser=source"], "set model.source"),
    "shares beyond one": ([], ["data.masked=0.99"], "together at most 1"),
    "a window for marks alone": ([], ["data.window=4"], "window=4 is too small"),
    "a file that is not there": ([], ["data.train=talks.txt"], r"did you mean .*talk\.txt"),
    "a file like none": ([], ["data.train=q"], r"no such file\. The data folder is"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_work_is_said(case: str, place: Path, as_users_run_it: None) -> None:
    _, changes, message = BAD[case]
    with pytest.raises(UserError, match=message):
        create(parse_recipe(RECIPE, "tiny", changes), place / "bad", place, "cpu").task.batches()


def test_texts_with_nothing_to_guess_are_named(trained: Path, as_users_run_it: None) -> None:
    run = load(trained, "cpu")
    with pytest.raises(UserError, match=r"'a cat': there is nothing to predict; write \[MASK\]"):
        run.predict(["a [MASK]", "a cat"])
    with pytest.raises(UserError, match=r"a masked word is behind the 16 tokens, marks included"):
        run.predict(["cat " * 30 + "[MASK]"])
    assert run.predict("[MASK]" + " cat" * 30).fields["masks"]  # the end of a long text is not read
