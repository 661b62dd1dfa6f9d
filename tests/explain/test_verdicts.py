"""The audit separates attention that explains from attention that does not."""

from math import isnan, log

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attend, padding, score_named
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.explain.audited_site import AuditedSite
from regard.explain.counterfactual import (
    find_adversary,
    jensen_shannon,
    permutation_change,
    permute_weights,
)
from regard.explain.erasure import erase, top_share
from regard.explain.importance import IMPORTANCES, integrated_gradient, leave_one_out
from regard.explain.statistics import kendall_tau, spearman_rho, top_overlap
from regard.explain.tests import TESTS, AuditSettings
from regard.explain.verdict import AuditResult, Verdict, run_tests
from regard.tasks.abilities import Subject
from tests.explain.planted import AllAttention, NoAttention, texts

QUICK = AuditSettings(shuffles=20, starts=2, steps=50, rate=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_planted_attention_is_judged_right_every_time(seed: int) -> None:
    batch = texts(seed)
    whole = run_tests(AllAttention(), [batch], settings=QUICK)
    none = run_tests(NoAttention(), [batch], settings=QUICK)
    for name in ("agreement", "permutation", "adversary", "uniform"):
        assert of(whole, name).supports is True, (name, of(whole, name).summary)
        assert of(none, name).supports is False, (name, of(none, name).summary)
    assert of(whole, "erasure").supports is True
    assert of(none, "erasure").supports is not True


def of(found: AuditResult, name: str) -> Verdict:
    (verdict,) = (each for each in found.verdicts if each.test == name)
    return verdict


def test_examples_of_one_position_are_left_out_and_counted_and_no_figure_is_nan() -> None:
    batch = texts(1)
    batch["lengths"][:5] = 1
    found = run_tests(AllAttention(), [batch], settings=QUICK)
    assert (found.examples, found.too_short) == (19, 5)
    for verdict in found.verdicts:
        assert not any(isnan(each.mean) for each in verdict.figures.values())
    single = {**batch, "lengths": torch.ones_like(batch["lengths"])}
    with pytest.raises(UserError, match="nothing to judge"):
        run_tests(AllAttention(), [single], settings=QUICK)


def test_weights_that_do_not_rank_are_counted_not_averaged() -> None:
    class Even(NoAttention):
        def attention_weights(self, scores: Tensor, batch: Batch) -> Tensor:
            real = self.positions(batch).double()
            return real / real.sum(1, keepdim=True)

    found = run_tests(Even(), [texts(2)], tests=["agreement"], settings=QUICK)
    (verdict,) = found.verdicts
    assert verdict.supports is None
    assert "No example has a defined tau" in verdict.summary
    assert verdict.not_judged["tau, leave one out"] == found.examples
    assert not any(isnan(each.mean) for each in verdict.figures.values())


def test_weights_that_are_exactly_one_hot_are_judged_without_a_nan() -> None:
    class OneHot(AllAttention):
        def attention_weights(self, scores: Tensor, batch: Batch) -> Tensor:
            masked = scores.masked_fill(~self.positions(batch), -1e9)
            return nn.functional.one_hot(masked.argmax(1), scores.shape[1]).double()

    found = run_tests(OneHot(), [texts(3)], settings=QUICK)
    for verdict in found.verdicts:
        assert not any(isnan(each.mean) for each in verdict.figures.values()), verdict.test
    assert of(found, "permutation").supports is True
    assert of(found, "adversary").supports is True


def test_an_unknown_test_names_the_nearest() -> None:
    with pytest.raises(UserError, match="agreement"):
        run_tests(AllAttention(), [texts(0)], tests=["agrement"])
    assert set(TESTS) == {"agreement", "permutation", "adversary", "uniform", "erasure", "heads"}


# ranks ------------------------------------------------------------------------------------------

PAIRS = {  # tau-b and its asymptotic p, worked out by hand or printed in scipy's documentation
    "swapped": ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6, 0.17423),
    "documented": ([12, 2, 1, 12, 2], [1, 4, 7, 1, 0], -0.4714045, 0.28274545),
    "opposite": ([1, 2, 3], [3, 2, 1], -1.0, 0.11719),
}


@pytest.mark.parametrize(("a", "b", "value", "p"), PAIRS.values(), ids=PAIRS)
def test_kendall(a: list[int], b: list[int], value: float, p: float) -> None:
    tau = kendall_tau(torch.tensor(a).double(), torch.tensor(b).double())
    assert tau.value == pytest.approx(value, abs=1e-6)
    assert tau.p == pytest.approx(p, abs=1e-4)


def test_what_does_not_rank_has_no_tau_and_no_rho() -> None:
    flat, rising = torch.ones(4).double(), torch.arange(4).double()
    assert isnan(kendall_tau(flat, rising).value)
    assert isnan(spearman_rho(flat, rising))
    assert isnan(kendall_tau(rising[:1], rising[:1]).value)
    assert isnan(top_overlap(rising[:1], rising[:1], 3))
    assert spearman_rho(rising, rising**3) == pytest.approx(1.0)
    assert top_overlap(rising, -rising, 1) == 0.0


# weights ----------------------------------------------------------------------------------------


def test_shuffles_keep_the_judged_weights_and_touch_no_others() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    judged = torch.tensor([[False, True, True, True]])
    shuffled = permute_weights(weights, judged, torch.tensor([[0.0, 0.9, 0.5, 0.1]]))
    torch.testing.assert_close(shuffled, torch.tensor([[0.1, 0.4, 0.3, 0.2]]))


def test_the_adversary_keeps_the_prediction_and_stays_a_distribution() -> None:
    model, batch = NoAttention(), texts(3)
    found = find_adversary(model, batch, starts=2, steps=80)
    own = model.predict(batch)
    assert (found.change <= 0.01).all()
    assert torch.allclose(found.weights.sum(1), torch.ones(24, dtype=torch.float64))
    assert (found.weights[~model.positions(batch)] == 0).all()
    torch.testing.assert_close(jensen_shannon(found.weights, own.weights), found.divergence)
    assert (found.divergence <= log(2)).all()


def test_divergence_of_one_hot_weights_has_finite_gradients() -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    other = torch.tensor([[0.0, 1.0, 0.0]])
    jensen_shannon(logits.softmax(1), other).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_top_share_never_takes_all_positions() -> None:
    judged = torch.tensor([[True, True, False], [True, False, False]])
    numbers = torch.tensor([[1.0, 2.0, 9.0], [1.0, 9.0, 9.0]])
    assert top_share(numbers, judged, 0.5).tolist() == [[False, True, False], [True, False, False]]
    assert top_share(numbers, judged, 1.0).tolist() == [[False, True, False], [True, False, False]]


def test_integrated_gradients_sum_to_what_the_text_adds() -> None:
    # Completeness (Sundararajan et al. 2017, proposition 1). In this model every token of a text
    # pulls the same way, so that absolute values sum to the same.
    model, batch = AllAttention(), texts(4)
    batch["tokens"] *= 0.6  # else the curve from nothing to the text is nearly symmetric
    own = model.predict(batch)
    nothing = model.predict(
        batch, weights=own.weights, vectors=torch.zeros_like(model.embed(batch))
    )
    likeliest = own.probabilities.argmax(1, keepdim=True)
    added = (own.probabilities - nothing.probabilities).gather(1, likeliest).squeeze(1).abs()
    assert added.min() > 0.1
    torch.testing.assert_close(integrated_gradient(model, batch).sum(1), added, atol=2e-4, rtol=0)


def test_permutation_gives_the_median_not_the_mean() -> None:
    # One of four tokens has all the weight and the only value: a shuffle moves the weight away from
    # it three times of four, and then always changes the prediction by the same.
    class OneHot(AllAttention):
        def attention_weights(self, scores: Tensor, batch: Batch) -> Tensor:
            return nn.functional.one_hot(scores.argmax(1), scores.shape[1]).double()

    batch = {"tokens": torch.tensor([[0.0, 1.0, 0.0, 0.0]]), "lengths": torch.tensor([4])}
    whole, none = torch.sigmoid(torch.tensor([3.0, -3.0], dtype=torch.float64))
    found = permutation_change(OneHot(), batch, times=101)
    torch.testing.assert_close(found, (whole - none)[None])


# models of the package --------------------------------------------------------------------------


class Pooled(nn.Module):
    """Embeddings, one attention, one output: small enough to work out by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.query = nn.Parameter(torch.randn(1, 1, 1, 6))
        self.attend = Attend(score_named("scaled_dot", 6), kind="memory")
        self.output = nn.Linear(6, 3)

    def forward(self, batch: Batch) -> Tensor:
        states = self.embed(batch["tokens"])[:, None]  # [B,1,T,D]
        memory = self.attend.remember(states, states)
        query = self.query.expand(len(states), 1, 1, 6)
        read: Tensor = self.attend(query, memory, padding(batch["lengths"]))
        logits: Tensor = self.output(read[:, 0, 0])
        return logits


@pytest.fixture
def pooled() -> AuditedSite:
    torch.manual_seed(4)
    model = Pooled().double().eval()
    return AuditedSite(model, "attend", SUBJECT, embedding=model.embed)


SUBJECT = Subject(predict=lambda model, batch: model(batch))
BATCH = {"tokens": torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), "lengths": torch.tensor([4, 2])}


def test_a_model_reads_the_same_with_its_own_weights_and_vectors(pooled: AuditedSite) -> None:
    own = pooled.predict(BATCH)
    again = pooled.predict(BATCH, weights=own.weights, vectors=pooled.embed(BATCH))
    torch.testing.assert_close(again.probabilities, own.probabilities)
    torch.testing.assert_close(own.weights.sum(1), torch.ones(2, dtype=torch.float64))
    assert pooled.positions(BATCH).tolist() == [[True] * 4, [True, True, False, False]]


def test_a_token_left_out_is_not_there(pooled: AuditedSite) -> None:
    keep = torch.tensor([[True, False, True, True], [False, True, False, False]])
    assert pooled.select(BATCH, keep)["tokens"].tolist() == [[3, 5, 6], [8, 0, 0]]
    assert pooled.select(BATCH, keep)["lengths"].tolist() == [3, 1]
    found = leave_one_out(pooled, BATCH)
    by_hand = pooled.predict({"tokens": torch.tensor([[3, 5, 6]]), "lengths": torch.tensor([3])})
    moved = (by_hand.probabilities[0] - pooled.predict(BATCH).probabilities[0]).abs().sum() / 2
    torch.testing.assert_close(found[0, 1], moved.detach())


def test_erasure_is_the_fall_of_the_likeliest_class(pooled: AuditedSite) -> None:
    orders = {"rising": torch.arange(4.0).expand(2, 4), "falling": -torch.arange(4.0).expand(2, 4)}
    parts = {"rising": ([3, 4], [5, 6], [7], [8]), "falling": ([5, 6], [3, 4], [8], [7])}
    whole = pooled.predict(BATCH).probabilities.detach()
    falls = []
    for name, found in erase(pooled, BATCH, orders, shares=[0.5]).items():
        without, alone = parts[name][0::2], parts[name][1::2]
        for numbers, left in ((found.comprehensiveness, without), (found.sufficiency, alone)):
            for row, tokens in enumerate(left):
                batch = {"tokens": torch.tensor([tokens]), "lengths": torch.tensor([len(tokens)])}
                best = whole[row].argmax()
                fall = (whole[row] - pooled.predict(batch).probabilities[0].detach())[best]
                torch.testing.assert_close(numbers[row], fall)
                falls.append(float(fall))
    assert min(falls) < -0.01
    assert max(falls) > 0.01


def test_gradients_are_computed_with_fixed_attention(pooled: AuditedSite) -> None:
    own = pooled.predict(BATCH)
    model = pooled.model
    assert isinstance(model, Pooled)
    slopes = IMPORTANCES["gradient x input"](pooled, BATCH)
    for row in range(2):
        best = int(own.probabilities[row].argmax())
        p = own.probabilities[row].detach()
        pull = p[best] * (model.output.weight[best] - p @ model.output.weight)  # dp/d(read)
        vectors = model.embed(BATCH["tokens"][row])
        wanted = (own.weights[row] * (vectors @ pull)).abs()
        torch.testing.assert_close(slopes[row], wanted.detach())


@pytest.mark.parametrize("name", IMPORTANCES)
def test_what_is_not_judged_has_no_importance(pooled: AuditedSite, name: str) -> None:
    found = IMPORTANCES[name](pooled, BATCH)
    assert found.shape == (2, 4)
    assert (found[1, 2:] == 0).all()
    assert (found[0] > 0).all()


def test_batch_mates_change_nothing(pooled: AuditedSite) -> None:
    alone = {"tokens": BATCH["tokens"][1:, :2], "lengths": BATCH["lengths"][1:]}
    for name, importance in IMPORTANCES.items():
        torch.testing.assert_close(
            importance(pooled, BATCH)[1, :2], importance(pooled, alone)[0], msg=name
        )
    assert permutation_change(pooled, alone, times=5).shape == (1,)


def test_a_site_that_is_not_there_is_refused(pooled: AuditedSite) -> None:
    with pytest.raises(UserError, match="attend"):
        AuditedSite(pooled.model, "atend", SUBJECT)


def test_heads_and_queries_are_chosen() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            self.attend = Attend(score_named("scaled_dot", 2))

        def forward(self, batch: Batch) -> Tensor:
            x = self.embed(batch["tokens"]).unflatten(2, (2, 2)).transpose(1, 2)
            read: Tensor = self.attend(x, self.attend.remember(x, x), padding(batch["lengths"]))
            return read[:, :, -1].flatten(1)

    torch.manual_seed(5)
    model = Several().eval()
    mean = AuditedSite(model, "attend", SUBJECT).predict(BATCH).weights
    each = [
        AuditedSite(model, "attend", SUBJECT, head=h, query=q).predict(BATCH).weights
        for h in range(2)
        for q in range(4)
    ]
    every = torch.stack(each).unflatten(0, (2, 4))  # [H,Q,B,K]
    torch.testing.assert_close(every.mean((0, 1))[0], mean[0])
    torch.testing.assert_close(every[:, :2].mean((0, 1))[1], mean[1])  # padding does not count
    one = AuditedSite(model, "attend", SUBJECT, head=1, query=-1)
    even = torch.full((2, 4), 0.25)
    changed = one.predict(BATCH, weights=even)
    torch.testing.assert_close(changed.weights, even)
    assert not torch.allclose(changed.probabilities, one.predict(BATCH).probabilities)
    unread = AuditedSite(model, "attend", SUBJECT, query=0)
    same = unread.predict(BATCH, weights=even)
    torch.testing.assert_close(same.probabilities, unread.predict(BATCH).probabilities)
