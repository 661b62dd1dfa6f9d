"""Word vectors against literal loops over the papers' formulas, and what a text makes of them."""

import random
from collections import Counter, defaultdict
from math import exp, log
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.data.text import context
from regard.data.text.characters import ngram_buckets
from regard.data.text.context import (
    CENTRES,
    NO_WORD,
    TEXT_END,
    ContextBatches,
    WordCounts,
    cooccurrences,
)
from regard.data.text.vectors import Vectors
from regard.models.words.cbow import CBOW
from regard.models.words.glove import GloVe
from regard.models.words.skip_gram import SkipGram
from regard.models.words.subword_skip_gram import SubwordSkipGram
from regard.runs.recipe import parse_recipe
from regard.runs.run import create, load
from regard.tasks.word_vectors import WordVectors, agreement, spearman

V, D, REACH, K = 12, 5, 3, 5


def text(length: int, words: int = V) -> Tensor:
    """Random words, ends of texts and unknown words."""
    return torch.where(torch.rand(length) < 0.1, TEXT_END, torch.randint(1, words, (length,)))


def dealt(ids: Tensor, sample: float = 0.0, noise: int = 4) -> ContextBatches:
    counts = WordCounts.of(ids, V)
    return ContextBatches(ids, counts, words=40, reach=REACH, noise=noise, sample=sample, seed=1)


def test_windows_are_of_one_text_pass_over_unknown_words_and_reach_as_far_as_drawn() -> None:
    ids = text(40)
    batch = dealt(ids).batch(0, 0)
    words = [word for word in ids.tolist() if word in (TEXT_END, *range(4, V))]
    reaches = Counter[int]()
    for place, word in enumerate(words):
        row, centre = divmod(place, CENTRES)
        seen = batch["near"][row, centre].nonzero().flatten().tolist()
        if word == TEXT_END:
            assert not seen
            continue
        assert batch["words"][row, REACH + centre] == word
        fits = []
        for reach in range(1, REACH + 1):
            near = [
                other
                for other in range(max(0, place - reach), min(len(words), place + reach + 1))
                if other != place
                and TEXT_END not in words[min(place, other) : max(place, other) + 1]
            ]
            fits += [reach] if [each - row * CENTRES + REACH for each in near] == seen else []
        assert fits, "no distance gives this window"
        reaches[fits[0]] += len(fits) == 1
    assert len(reaches) > 1, "the distance is drawn"


def test_a_batch_is_the_same_whenever_it_is_asked_for_and_another_in_the_next_epoch() -> None:
    batches = dealt(text(200), sample=0.05)
    one, again, later = batches.batch(0, 2), batches.batch(0, 2), batches.batch(1, 2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["noise"][:1], later["noise"][:1])


def test_frequent_words_are_dropped_by_the_formula_and_noise_is_flattened() -> None:
    ids = torch.cat((torch.full((30_000,), 5), torch.full((3_000,), 6)))[torch.randperm(33_000)]
    counts = WordCounts.of(ids, V)
    batches = ContextBatches(ids, counts, words=33_000, reach=2, noise=40, sample=0.01, seed=0)
    batch = batches.batch(0, 0)
    found = Counter(batch["words"][:, 2 : 2 + CENTRES].flatten().tolist())
    for word, count in ((5, 30_000), (6, 3_000)):
        ratio = 0.01 / (count / 33_000)
        assert found[word] / count == pytest.approx(ratio**0.5 + ratio, rel=0.1)
    noise = Counter(batch["noise"].flatten().tolist())
    assert set(noise) == {5, 6}
    assert noise[5] / noise[6] == pytest.approx(10**0.75, rel=0.1)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def dot(one: Tensor, other: Tensor) -> float:
    return float(one.double() @ other.double())


def drawn_at_random(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)


@pytest.fixture
def batch() -> dict[str, Tensor]:
    read = dict(dealt(text(40)).batch(0, 0))
    table = ngram_buckets([f"w{number}" for number in range(V)], buckets=7, longest=3)
    return read | {"grams": table[read["words"]]}


def centres(batch: dict[str, Tensor]) -> list[tuple[int, int, list[int], list[int]]]:
    """Row, word, neighbours and noise of every centre that has neighbours."""
    found = []
    for row, (words, near) in enumerate(zip(batch["words"], batch["near"], strict=True)):
        for q, seen in enumerate(near):
            neighbours = words[seen].tolist()
            if neighbours:
                found.append((row, int(words[REACH + q]), neighbours, batch["noise"][row].tolist()))
    return found


def literal_pairs(batch: dict[str, Tensor], centre: Tensor, around: Tensor) -> tuple[float, int]:
    """Equation 4 of Mikolov et al., pair by pair; each row's noise stands for k words a pair."""
    total, pairs = 0.0, 0
    for _, word, neighbours, noise in centres(batch):
        for other in neighbours:
            pairs += 1
            total -= log(sigmoid(dot(around[other], centre[word])))
            for k in noise:
                if k != other:
                    total -= K / len(noise) * log(sigmoid(-dot(around[k], centre[word])))
    return total, pairs


def test_skip_gram_is_the_paper_pair_by_pair(batch: dict[str, Tensor]) -> None:
    model = SkipGram(SkipGram.Config(width=D, negatives=K), V)
    drawn_at_random(model)
    want, pairs = literal_pairs(batch, model.centre.weight.detach(), model.around.weight.detach())
    fit = model(batch)
    assert fit.items == pairs
    assert fit.loss(batch).item() == pytest.approx(want, rel=1e-5)


def test_fasttext_is_skip_gram_over_means_of_ngrams(batch: dict[str, Tensor]) -> None:
    model = SubwordSkipGram(SubwordSkipGram.Config(width=D, negatives=K), V, 7)
    drawn_at_random(model)
    model.parts.weight.data[0] = 0.0
    parts = model.parts.weight.detach()
    made = torch.stack(
        [
            torch.stack([parts[n], *(parts[V + each] for each in bucketed(f"w{n}"))]).mean(0)
            for n in range(V)
        ]
    )
    want, _ = literal_pairs(batch, made, model.around.weight.detach())
    assert model(batch).loss(batch).item() == pytest.approx(want, rel=1e-5)
    unseen = {"words": torch.tensor([0]), "grams": ngram_buckets(["w77"], buckets=7, longest=3)}
    alone = torch.stack([parts[V + bucket] for bucket in bucketed("w77")]).mean(0)
    torch.testing.assert_close(model.vectors(unseen)[0], alone)


def bucketed(word: str) -> list[int]:
    """The buckets of a word's 3-grams, by the hash of fastText written out."""
    found = []
    marked = f"<{word}>"
    for first in range(len(marked) - 2):
        state = 2166136261
        for byte in marked[first : first + 3].encode():
            state = ((state ^ byte) * 16777619) % 2**32
        found.append(state % 7 + 1)
    return found


def test_cbow_is_the_mean_of_the_neighbours_against_the_word(batch: dict[str, Tensor]) -> None:
    model = CBOW(CBOW.Config(width=D, negatives=K), V)
    drawn_at_random(model)
    around, centre = model.around.weight.detach(), model.centre.weight.detach()
    total, count = 0.0, 0
    for _, word, neighbours, noise in centres(batch):
        mean = torch.stack([around[other] for other in neighbours]).mean(0)
        total -= log(sigmoid(dot(centre[word], mean)))
        count += 1
        for k in noise:
            if k != word:
                total -= K / len(noise) * log(sigmoid(-dot(centre[k], mean)))
    fit = model(batch)
    assert fit.items == count
    assert fit.loss(batch).item() == pytest.approx(total, rel=1e-5)


def test_counts_are_those_of_a_loop_over_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = text(300)
    monkeypatch.setattr(context, "COUNT_BLOCK", 37)
    want: defaultdict[tuple[int, int], float] = defaultdict(float)
    words = [word for word in ids.tolist() if word != 1]
    for place, word in enumerate(words):
        for apart in range(1, REACH + 1):
            between = words[place : place + apart + 1]
            if len(between) == apart + 1 and TEXT_END not in between and min(word, between[-1]) > 3:
                want[word, between[-1]] += 1 / apart
                want[between[-1], word] += 1 / apart
    cells = cooccurrences(ids, V, REACH)
    found = dict(
        zip(
            zip(cells.rows.tolist(), cells.columns.tolist(), strict=True),
            cells.counts.tolist(),
            strict=True,
        )
    )
    assert found == pytest.approx(dict(want))
    assert len(cells.counts) == len(want)


def test_glove_is_the_weighted_square_of_each_cell() -> None:
    model = GloVe(GloVe.Config(width=D, most=3.0), V)
    drawn_at_random(model)
    cells = {
        "rows": torch.tensor([4, 5, 6]),
        "columns": torch.tensor([5, 4, 6]),
        "counts": torch.tensor([0.5, 3.0, 100.0]),
    }
    want = 0.0
    for i, j, x in zip(*(each.tolist() for each in cells.values()), strict=True):
        inner = dot(model.row.weight[i].detach(), model.column.weight[j].detach())
        biases = (model.row_bias.weight[i, 0] + model.column_bias.weight[j, 0]).item()
        want += min(1.0, (x / 3.0) ** 0.75) * (inner + biases - log(x)) ** 2
    assert model(cells).loss(cells).item() == pytest.approx(want, rel=1e-5)
    both = model.row.weight[4] + model.column.weight[4]
    torch.testing.assert_close(model.vectors({"words": torch.tensor([4])})[0], both)


def test_spearman_is_the_correlation_of_ranks() -> None:
    one = torch.randn(50)
    assert spearman(one, one.exp()) == pytest.approx(1.0)
    assert spearman(one, -one) == pytest.approx(-1.0)
    assert abs(spearman(torch.randn(4000), torch.randn(4000))) < 0.06


TOPICS = {
    "sea": ["ship", "sail", "wave", "storm", "harbour", "captain", "anchor", "tide"],
    "kitchen": ["oven", "knife", "bread", "butter", "kettle", "spoon", "flour", "stove"],
}

RECIPE = """
task = "word_vectors"
[about]
title = "Two topics"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
min_frequency = 1
sample = 0
reach = 4
words_per_batch = 256
[model]
kind = "skip_gram"
width = 16
[train]
epochs = 8
optimiser = { name = "adagrad", lr = 0.2 }
schedule = { name = "linear" }
"""

CHANGES: dict[str, list[str]] = {
    "skip_gram": [],
    "cbow": ["model.negatives=4"],
    "glove": ["data.learn_from=counts", "data.validation=0.1", "train.epochs=30"],
    "subword_skip_gram": ["data.buckets=500"],
}


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("topics"), random.Random(0)
    lines = [" ".join(draw.choices(draw.choice(list(TOPICS.values())), k=12)) for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("kind", CHANGES)
def test_words_of_one_topic_become_neighbours(
    kind: str, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    recipe = parse_recipe(RECIPE, "topics.toml", [f"model.kind={kind}", *CHANGES[kind]])
    run = create(recipe, tmp_path / "run", topics, "cpu")
    before = run.evaluate()["loss"]
    assert run.train().outcome == "finished"
    assert run.evaluate()["loss"] < before
    again = load(tmp_path / "run", "cpu")
    assert isinstance(again.task, WordVectors)
    vectors = again.task.vectors(again.model, ["ships"])
    for words in TOPICS.values():
        for word in words:
            found = [each for each, _ in vectors.neighbours(word, 8) if each != "ships"]
            assert set(found[:7]) == set(words) - {word}
    assert ("ships" in vectors.places) == (kind == "subword_skip_gram")


def test_a_model_that_learns_from_something_else_says_so(
    topics: Path, tmp_path: Path, as_users_run_it: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    for place, (changes, message) in enumerate(
        [
            (["model.kind=glove"], 'a GloVe learns from counts: set data.learn_from = "counts"'),
            (["data.learn_from=counts"], 'SkipGram learns from windows: .* = "windows"'),
            (["data.buckets=9"], "SkipGram takes words whole: set data.buckets = 0, not 9"),
            (["model.kind=subword_skip_gram"], "made of n-grams here: set data.buckets above"),
            (["train.optimiser.name=adam"], "optimisers that support them are adagrad"),
        ]
    ):
        recipe = parse_recipe(RECIPE, "topics.toml", changes)
        with pytest.raises(UserError, match=message):
            create(recipe, tmp_path / str(place), topics, "cpu").train()


def test_a_row_without_words_has_no_part_in_the_loss() -> None:
    batch = dealt(torch.tensor([4, 5, *[TEXT_END] * 38])).batch(0, 0)
    assert batch["near"][1:].sum() == 0
    assert (batch["words"][1:] == NO_WORD).all()
    model = SkipGram(SkipGram.Config(width=D), V)
    model(batch).loss(batch).backward()
    touched = model.centre.weight.grad.coalesce()
    assert touched.values().isfinite().all()


def test_vectors_agree_with_themselves_turned_and_moved() -> None:
    table = torch.randn(30, 6)
    turned = table @ torch.linalg.qr(torch.randn(6, 6))[0] * 3 + torch.randn(6)
    names = [f"w{n}" for n in range(30)]
    one, other = Vectors(tuple(names), table), Vectors(tuple(reversed(names)), turned.flip(0))
    assert agreement(one, other, [*names, "nobody's"]) == pytest.approx(1.0, abs=1e-3)
    drawn = Vectors(tuple(names), torch.randn(30, 6))
    assert abs(agreement(one, drawn, names)) < 0.3
