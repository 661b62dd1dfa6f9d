"""The pointer-generator against a literal loop over See et al. 2017, and names copied by name."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.core.padding import IGNORE
from regard.models.translation.pointer_generator import PointerGenerator
from regard.tasks.translate import Translation
from regard.tasks.translation_data import Pairs
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, read, stirred, texts

D = 5
HELD = torch.tensor(
    [[V, 4, V + 1, V, 4, 3], [5, 3, 0, 0, 0, 0], [6, V, 6, 3, 0, 0], [3, 0, 0, 0, 0, 0]]
)
"""The words of the sources: some unknown, and some that stand there twice."""
WRITTEN = (4, 4, 2, 3)


def built(**changes: object) -> PointerGenerator:
    config = PointerGenerator.Config(**{"width": 4, "hidden": D, **changes})
    model = PointerGenerator(config, V, SOURCES)
    stirred(model)
    return model


def copied_texts() -> dict[str, Tensor]:
    batch = {**texts(), "source_extended": HELD}
    targets = torch.full((len(LENGTHS), 4), IGNORE)
    for row, written in enumerate(WRITTEN):
        targets[row, :written] = torch.randint(V, (written,))
    targets[0, :3] = torch.tensor([V + 1, V, 4])
    return {**batch, "targets": targets}


def literal(
    model: PointerGenerator, source: Tensor, held: Tensor, tokens: Tensor
) -> tuple[list[dict[int, Tensor]], Tensor, list[Tensor]]:
    """For one sentence P of every word, a, and what each look is at places looked at before."""
    score, table = model.attend.score, model.words.output.weight
    h, last = read(model, source)
    first = torch.relu(model.begin.weight @ last[0][0] + model.begin.bias)
    cell = torch.relu(model.begin_cell.weight @ last[0][1] + model.begin_cell.bias)
    states, coverage = [(first, cell)], torch.zeros(len(h)).double()
    rows, looks, losses = [], [], []
    for token in tokens:
        x = model.words.embed.weight[token]
        states = climbed(model.decoder, x, None, states)
        s = states[0][0]
        inner = [score.answer.weight @ each + score.ask.weight @ s for each in h]
        if model.config.score == "coverage":
            inner = [u + score.cover * c for u, c in zip(inner, coverage, strict=True)]
        a = torch.stack([score.vector @ torch.tanh(u) for u in inner]).softmax(0)
        context = sum(w * each for w, each in zip(a, h, strict=True))
        joined = model.join.weight @ torch.cat((s, context)) + model.join.bias
        vocabulary = (table @ joined + model.words.bias).softmax(0)
        p_gen = torch.sigmoid(
            model.generate.weight[0] @ torch.cat((context, s, x)) + model.generate.bias[0]
        )
        p = {w: p_gen * vocabulary[w] for w in range(V)}
        for place, word in enumerate(held.tolist()):
            p[word] = p.get(word, torch.zeros(()).double()) + (1 - p_gen) * a[place]
        losses.append(sum(min(w, c) for w, c in zip(a.tolist(), coverage.tolist(), strict=True)))
        coverage = coverage + a
        rows.append(p)
        looks.append(a)
    return rows, torch.stack(looks), losses


@pytest.mark.parametrize("score", ["coverage", "additive"])
def test_it_is_the_equation(score: str) -> None:
    model, batch = built(score=score, coverage=0.7).train(), copied_texts()
    with record(model) as tape:
        prediction = model(batch)
    logits, weights = prediction.logits(), tape.weights("attend")
    assert logits.shape == (len(LENGTHS), 4, V + 2), "the most unknown words of a row are two"
    cost = 0.0
    for row, length in enumerate(LENGTHS):
        source, held = batch["source"][row, :length], HELD[row, :length]
        rows, looks, losses = literal(model, source, held, batch["tokens"][row])
        torch.testing.assert_close(weights[row, 0, :, :length], looks)
        cost += sum(losses[: WRITTEN[row]])
        for t, p in enumerate(rows):
            for word in range(V + 2):
                want = p.get(word, torch.zeros(()).double())
                torch.testing.assert_close(logits[row, t, word].exp(), want)
            target = int(batch["targets"][row, t])
            if target != IGNORE:
                got = prediction.log_probability(batch["targets"])[row, t]
                torch.testing.assert_close(got.exp(), p[target])
    torch.testing.assert_close(prediction.auxiliary.item(), 0.7 * cost)


def test_the_coverage_loss_is_only_for_training_and_only_if_asked_for() -> None:
    batch = copied_texts()
    assert built(coverage=1.0)(batch).auxiliary is None
    assert built(coverage=0.0).train()(batch).auxiliary is None


def test_a_word_beyond_the_vocabulary_has_what_is_copied_and_nothing_else() -> None:
    """Its likelihood is (1 - p_gen) Σ a, whatever the output layer says."""
    model, batch = built(), copied_texts()
    targets = batch["targets"]
    prediction = model(batch)
    weights, found = prediction.pointer[0], prediction.log_probability(targets)[0].exp()
    torch.testing.assert_close(found[0], weights[0, 2])
    torch.testing.assert_close(found[1], weights[1, 0] + weights[1, 3])  # it stands there twice
    assert (found[2] - weights[2, 1] - weights[2, 4]).item() > 1e-6  # this one can also be said
    with torch.no_grad():
        model.words.bias.normal_(std=5)
    changed = model(batch).log_probability(targets)[0].exp() != found
    assert changed[:3].tolist() == [False, False, True]


def test_what_can_only_be_copied_is_likely_enough_for_a_gradient_however_sure_p_gen_is() -> None:
    model, batch = built().float(), copied_texts()
    with torch.no_grad():
        model.generate.bias.fill_(60.0)
    prediction = model(batch)
    assert (prediction.share == 1).all()
    loss = prediction.nll(batch["targets"])
    assert loss.isfinite()
    loss.backward()
    assert model.generate.bias.grad.item() > 0.5, "it is pushed back"


@pytest.mark.parametrize("unk", [1, 5])
def test_the_decoder_reads_unk_for_what_is_beyond_its_vocabulary(unk: int) -> None:
    model, batch = built(unk=unk), copied_texts()
    tokens = batch["tokens"].clone()
    tokens[:, 2] = unk
    plain = model({**batch, "tokens": tokens}).logits()
    tokens[:, 2] = torch.tensor([V, V + 1, V, V + 1])
    assert torch.equal(model({**batch, "tokens": tokens}).logits(), plain)
    state = model.start(batch)
    for column, now in enumerate(tokens.unbind(1)):
        logits, state = model.step(now, state)
        torch.testing.assert_close(logits, plain[:, column])


def test_the_columns_of_a_search_stay_while_sentences_leave() -> None:
    model, batch = built(), copied_texts()
    state = model.start(batch).select(torch.tensor([1, 2]))
    logits, _ = model.step(torch.tensor([2, 2]), state)
    assert logits.shape == (2, V + 2)
    assert (logits.isfinite().sum(1) == torch.tensor([V, V + 1])).all()


def mass_on_what_stands_there(vocabulary: int, sources: int) -> PointerGenerator:
    """One that always copies and looks everywhere alike: the most frequent word wins."""
    model = PointerGenerator(PointerGenerator.Config(width=4, hidden=4), vocabulary, sources)
    with torch.no_grad():
        model.attend.score.vector.zero_()
        nn.init.zeros_(model.generate.weight)
        model.generate.bias.fill_(-30.0)
    return model


@pytest.mark.parametrize("width", [1, 3])
def test_unknown_words_come_out_by_name(tmp_path: Path, width: int) -> None:
    given = {
        "generate": {"name": "copy", "train": 200, "validation": 5, "test": 5},
        "copies": True,
        "min_frequency": 20,
        "search": {"width": width, "max_length": 2, "max_per_source": 0.0, "alpha": 2.0},
    }
    task = Translation.open(parse(Pairs, given, at="data"), tmp_path)
    model = mass_on_what_stands_there(*task.sizes.values())
    lines = [
        "Ymir" + " Zoe" * 8 + " Quux 4711",
        "Zoe" + " Ymir" * 9,
        "Abc Def Ghi Jkl" + " Mno" * 9,
        "Zoe" + " to" * 9,
    ]
    assert "to" not in task.numbering.unknown(lines[3])
    found = [each.text for each in task.translate(model, [Text(line) for line in lines])]
    assert found == ["Zoe Zoe", "Ymir Ymir", "Mno Mno", "to to"]


def test_it_is_trained_and_measured_by_the_task(tmp_path: Path) -> None:
    given = {
        "generate": {"name": "copy", "train": 64, "validation": 5, "test": 5},
        "copies": True,
        "min_frequency": 4,
        "batch": 8,
        "smoothing": 0.1,
    }
    task = Translation.open(parse(Pairs, given, at="data"), tmp_path)
    config = PointerGenerator.Config(width=4, hidden=4, coverage=1.0)
    model = PointerGenerator(config, **task.sizes)
    batch = task.batches().batch(0, 0)
    assert int(batch["targets"].max()) >= task.sizes["vocabulary"], "some target must be copied"
    loss = task.loss(model, batch, None).total
    loss.backward()
    assert loss.isfinite()
    assert all(each.grad.isfinite().all() for each in model.parameters())


def test_batches_that_do_not_say_what_can_be_copied_are_refused(as_users_run_it: None) -> None:
    batch = copied_texts()
    with pytest.raises(UserError, match=r"\[4, 6\], not \[4, 5\]"):
        built()({**batch, "source_extended": HELD[:, :5]})
    del batch["source_extended"]
    with pytest.raises(UserError, match="set copies = true"):
        built()(batch)
    with pytest.raises(UserError, match="unk=9 is outside a vocabulary of 9"):
        built(unk=V)
