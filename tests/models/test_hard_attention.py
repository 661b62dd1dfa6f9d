"""Hard attention against the bound it climbs, over every alignment of a tiny sentence."""

from collections.abc import Iterator
from itertools import product
from math import log

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.attention import record
from regard.attention.sample import torch as where_it_draws
from regard.core.padding import IGNORE
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.hard_attention import HardAttention
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, read, stirred, texts

D = 5
SOURCE, TOKENS, TARGETS = torch.tensor([4, 7, 3]), torch.tensor([2, 5, 6]), torch.tensor([5, 6, 3])
"""One sentence: 27 alignments."""


def built(**changes: object) -> HardAttention:
    given = {"width": 4, "hidden": D, "readout": "tanh", "entropy": 0.0, "expectation": 0.0}
    model = HardAttention(HardAttention.Config(**{**given, **changes}), V, SOURCES)
    stirred(model)
    return model.train()


def one() -> dict[str, Tensor]:
    return {
        "source": SOURCE[None],
        "source_lengths": torch.tensor([len(SOURCE)]),
        "tokens": TOKENS[None],
        "targets": TARGETS[None],
    }


def literal(
    model: HardAttention, source: Tensor, tokens: Tensor, places: tuple[int, ...] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log p of every word, α and the states that looked; without places, at the likeliest."""
    soft = model.soft
    score = soft.attend.score
    annotations, _ = read(soft, source)
    s = torch.tanh(soft.begin.weight @ annotations[0][D:] + soft.begin.bias)
    states = [(s, torch.zeros_like(s))]
    rows, looks, asked = [], [], []
    for t, token in enumerate(tokens):
        word, s = soft.words.embed.weight[token], states[0][0]
        e = [
            score.vector @ torch.tanh(score.ask.weight @ s + score.answer.weight @ h)
            for h in annotations
        ]
        alpha = torch.stack(e).softmax(0)
        c = annotations[int(alpha.argmax()) if places is None else places[t]]
        states = climbed(soft.decoder, word, c, states)
        m = torch.tanh(soft.join.weight @ torch.cat((states[0][0], word, c)) + soft.join.bias)
        rows.append((soft.words.output.weight @ m + soft.words.bias).log_softmax(0))
        looks.append(alpha)
        asked.append(s)
    return torch.stack(rows), torch.stack(looks), torch.stack(asked)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The places that are drawn next: instead of by chance, from this list."""
    queue: list[int] = []

    def draw(chances: Tensor, count: int, *, generator: None) -> Tensor:
        assert (chances.shape[0], count) == (1, 1)
        return torch.tensor([[queue.pop(0)]])

    monkeypatch.setattr(where_it_draws, "multinomial", draw)
    yield queue
    assert not queue


ALIGNMENTS = list(product(range(len(SOURCE)), repeat=len(TOKENS)))

BASELINES: dict[str, dict[str, object]] = {
    "no baseline": {"baseline": "none"},
    "a moving average": {"baseline": "average"},
    "a learned baseline": {"baseline": "learned"},
}


def bound(model: HardAttention) -> Tensor:
    """-E log p(y|s, x), with a gradient through everything, the probability of s too."""
    total = torch.zeros(()).double()
    for alignment in ALIGNMENTS:
        said, alpha, _ = literal(model, SOURCE, TOKENS, alignment)
        chance = torch.stack([alpha[t, place] for t, place in enumerate(alignment)]).prod()
        total = total - chance * sum(said[t, y] for t, y in enumerate(TARGETS))
    return total


@pytest.mark.parametrize("changes", BASELINES.values(), ids=BASELINES)
def test_the_expected_gradient_is_exactly_that_of_the_bound(
    changes: dict[str, object], places: list[int]
) -> None:
    """Every alignment once, weighted by how likely it is: no sampling error, hence no tolerance."""
    model = built(**changes)
    named = dict(model.soft.named_parameters())
    wanted = torch.autograd.grad(bound(model), list(named.values()))
    found = [torch.zeros_like(each) for each in named.values()]
    spread = torch.zeros(()).double()
    for alignment in ALIGNMENTS:
        if model.config.baseline == "average":
            model.average.fill_(-1.7)  # whatever it is, as long as the draws do not change it
        places += alignment
        prediction = model(one())
        assert prediction.auxiliary is not None
        alpha = literal(model, SOURCE, TOKENS, alignment)[1].detach()
        chance = torch.stack([alpha[t, place] for t, place in enumerate(alignment)]).prod()
        loss = prediction.nll(TARGETS[None]) + prediction.auxiliary
        each = torch.autograd.grad(loss, list(named.values()))
        spread = spread + chance * sum(one.square().sum() for one in each)
        found = [total + chance * one for total, one in zip(found, each, strict=True)]
    for name, got, want in zip(named, found, wanted, strict=True):
        torch.testing.assert_close(got, want, msg=lambda told, name=name: f"{name}: {told}")
    assert wanted[list(named).index("attend.score.vector")].abs().max() > 1e-3
    assert spread > sum(each.square().sum() for each in wanted), "draws differ"


def test_a_step_that_is_praised_for_itself_alone_has_another_gradient(places: list[int]) -> None:
    grads = {}
    for reward in ("future", "step"):
        torch.manual_seed(0)
        model = built(reward=reward, baseline="none")
        places += [0, 1, 2]
        further = model(one()).auxiliary
        said, alpha, _ = literal(model, SOURCE, TOKENS, (0, 1, 2))
        each = [said[t, y].item() for t, y in enumerate(TARGETS)]
        praise = each if reward == "step" else [sum(each[t:]) for t in range(3)]
        want = -sum(r * alpha[t, t].log() for t, r in enumerate(praise))
        torch.testing.assert_close(further, want)
        grads[reward] = torch.autograd.grad(further, model.soft.attend.score.vector)[0]
    assert (grads["future"] - grads["step"]).abs().max() > 1e-4


def test_the_surrogate_is_the_equation_with_all_its_terms(places: list[int]) -> None:
    model = built(baseline="learned", entropy=0.3)
    places += [2, 0, 1]
    further = model(one()).auxiliary
    said, alpha, asked = literal(model, SOURCE, TOKENS, (2, 0, 1))
    want = torch.zeros(()).double()
    for t, place in enumerate((2, 0, 1)):
        future = sum(said[later, TARGETS[later]].detach() for later in range(t, 3))
        guess = (model.value.weight @ asked[t].detach() + model.value.bias).squeeze()
        want = want - (future - (3 - t) * guess.detach()) * alpha[t, place].log()
        want = want + 0.3 * (alpha[t] * alpha[t].log()).sum()
        want = want + (future / (3 - t) - guess) ** 2
    torch.testing.assert_close(further, want)
    named = dict(model.named_parameters())
    got = torch.autograd.grad(further, list(named.values()), allow_unused=True)
    due = torch.autograd.grad(want, list(named.values()), allow_unused=True)
    for name, one_, other in zip(named, got, due, strict=True):
        assert (one_ is None) == (other is None), name
        if one_ is not None:
            torch.testing.assert_close(one_, other)


def test_the_average_follows_and_is_saved(places: list[int]) -> None:
    model = built(baseline="average")
    model.average.fill_(-log(V))
    places += [0, 0, 0, 1, 1, 1]
    want = -log(V)
    for _ in range(2):
        prediction = model(one())
        mean = -prediction.nll(TARGETS[None]).item() / 3
        want = 0.9 * want + 0.1 * mean
        assert model.average.item() == pytest.approx(want, abs=1e-12)
    other = built(baseline="average")
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(other.average, model.average)
    model.eval()(one())
    assert torch.equal(other.average, model.average), "measuring teaches nothing"


def test_padding_is_not_praised_and_does_not_count() -> None:
    """A longer batch mate changes neither the surrogate nor the average."""
    results = []
    for wider in (0, 3):
        torch.manual_seed(3)
        model = built(baseline="average", entropy=0.2, weigh="argmax")  # the same place every time
        batch = one()
        batch["tokens"] = torch.nn.functional.pad(batch["tokens"], (0, wider))
        batch["targets"] = torch.nn.functional.pad(batch["targets"], (0, wider), value=IGNORE)
        results.append((model(batch).auxiliary, model.average.clone()))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_without_training_it_looks_at_the_likeliest_place(cell: str) -> None:
    model, batch = built(cell=cell).eval(), texts()
    with record(model) as tape:
        prediction = model(batch)
    assert prediction.auxiliary is None
    said, weights = prediction.logits().log_softmax(2), tape.join("soft")
    for row, length in enumerate(LENGTHS):
        want, alpha, _ = literal(model, batch["source"][row, :length], batch["tokens"][row], None)
        torch.testing.assert_close(said[row], want)
        torch.testing.assert_close(weights[row, 0, :, :length], alpha)


def test_with_soft_attention_it_is_its_twin() -> None:
    """With all sentences read softly nothing is drawn, and what is left is Bahdanau's model."""
    model, batch = built(expectation=1.0, baseline="none"), texts()
    batch["targets"] = torch.randint(V, batch["tokens"].shape)
    twin = Bahdanau(Bahdanau.Config(width=4, hidden=D, readout="tanh"), V, SOURCES).double()
    twin.load_state_dict(model.soft.state_dict())
    prediction = model(batch)
    torch.testing.assert_close(prediction.logits(), twin(batch).logits())
    assert prediction.auxiliary.item() == 0.0


def test_half_of_the_sentences_have_soft_attention() -> None:
    model = built(expectation=0.5)
    share = model.choose_soft_rows(4000, torch.device("cpu")).double().mean().item()
    assert abs(share - 0.5) < 0.05  # six standard deviations


def test_places_are_drawn_as_often_as_they_weigh() -> None:
    model = built()
    batch = {name: each.expand(3000, -1) for name, each in one().items() if each.dim() == 2}
    batch["source_lengths"] = torch.full((3000,), 3)
    state = model.start(batch)
    drawn = model.sample(state, best=False)
    seen = drawn.choice.flatten().bincount(minlength=3) / 3000
    alpha = literal(model, SOURCE, TOKENS, None)[1][0]
    assert (seen - alpha).abs().max() < 0.06  # six standard deviations at most
    assert alpha.max() < 0.9
