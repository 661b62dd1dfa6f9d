"""The two identities of docs/two-identities.md, held against real recurrent cells and real parts.

From gates to attention: an unrolled gated update is a weighted sum of all its candidates.
From soft to exact: retrieval by key is the limit of soft attention as its sharpness β grows.
"""

import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention import (
    Argmax,
    Attend,
    Cosine,
    Dot,
    Entmax15,
    Gather,
    Sample,
    Score,
    Softmax,
    Sparsemax,
    StraightThrough,
    TopK,
    Weigh,
    causal,
)

# --- From gates to attention ---------------------------------------------------------------------


@dataclass(frozen=True)
class Unrolled:
    """What a gated cell did, step by step: state = keep * state + write * candidate."""

    start: Tensor  # [D]
    keep: Tensor  # [T,D]
    write: Tensor  # [T,D]
    candidates: Tensor  # [T,D]
    states: Tensor  # [T,D]

    def weights(self) -> Tensor:
        """How much of the start and of each candidate is in the last state, `[T+1,D]`."""
        faded = [w * self.keep[t + 1 :].prod(0) for t, w in enumerate(self.write)]
        return torch.stack([self.keep.prod(0), *faded])

    def candidates_and_start(self) -> Tensor:
        return torch.cat([self.start[None], self.candidates])  # [T+1,D]


def updated(keep: Tensor, write: Tensor, candidates: Tensor, start: Tensor) -> Unrolled:
    """The recurrence, one step after another."""
    states, state = [], start
    for now, new, candidate in zip(keep, write, candidates, strict=True):
        state = now * state + new * candidate
        states.append(state)
    return Unrolled(start, keep, write, candidates, torch.stack(states))


def unrolled_gru(gru: nn.GRU, inputs: Tensor, start: Tensor, nudges: Tensor) -> Unrolled:
    """torch.nn.GRU's own equations, literally; nudges [T,D] are added to the candidates."""
    rows, state = [], start
    for x, nudge in zip(inputs, nudges, strict=True):
        of_input = F.linear(x, gru.weight_ih_l0, gru.bias_ih_l0).chunk(3)
        of_state = F.linear(state, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3)
        reset = (of_input[0] + of_state[0]).sigmoid()
        keep = (of_input[1] + of_state[1]).sigmoid()
        candidate = (of_input[2] + reset * of_state[2]).tanh() + nudge
        state = (1 - keep) * candidate + keep * state
        rows.append((keep, 1 - keep, candidate, state))
    keep, write, candidates, states = (torch.stack(each) for each in zip(*rows, strict=True))
    return Unrolled(start, keep, write, candidates, states)


def unrolled_lstm(lstm: nn.LSTM, inputs: Tensor) -> Unrolled:
    """torch.nn.LSTM's own equations, literally; the states are those of the cell."""
    rows = []
    cell = hidden = start = inputs.new_zeros(lstm.hidden_size)
    for x in inputs:
        parts = F.linear(x, lstm.weight_ih_l0, lstm.bias_ih_l0) + F.linear(
            hidden, lstm.weight_hh_l0, lstm.bias_hh_l0
        )
        write, forget, candidate, output = parts.chunk(4)
        write, forget, candidate = write.sigmoid(), forget.sigmoid(), candidate.tanh()
        cell = forget * cell + write * candidate
        hidden = output.sigmoid() * cell.tanh()
        rows.append((forget, write, candidate, cell))
    keep, writes, candidates, states = (torch.stack(each) for each in zip(*rows, strict=True))
    return Unrolled(start, keep, writes, candidates, states)


def attended(run: Unrolled) -> Tensor:
    """The same states by one call of Attend: a head per unit, and keys made of gates alone.

    log w_t = log(1 - z_t) + Σ_{s>t} log z_s, and the softmax drops what all keys share, so the key
    of step t is log(1 - z_t) - Σ_{s≤t} log z_s, that of the start is 0, and every query is 1.
    """
    keys = F.pad((1 - run.keep).log() - run.keep.log().cumsum(0), (0, 0, 1, 0))  # [T+1,D]
    key, value = (each.t()[None, :, :, None] for each in (keys, run.candidates_and_start()))
    attend = Attend(Dot(1))
    read = attend(torch.ones_like(key), attend.remember(key, value), causal())  # [1,D,T+1,1]
    return read[0, :, 1:, 0].t()  # [T,D]


def gru_run(length: int, units: int, *, deaf: bool = False) -> tuple[Unrolled, Tensor]:
    """What a GRU did on random inputs, and the nudges of its candidates to differentiate by.

    A deaf one does not read its own state: its gates and candidates come from the input alone.
    """
    gru = nn.GRU(3, units).double()
    if deaf:
        nn.init.zeros_(gru.weight_hh_l0)
    inputs = torch.randn(length, 3, dtype=torch.float64) * 2
    start = torch.randn(units, dtype=torch.float64).tanh()
    nudges = torch.zeros(length, units, dtype=torch.float64, requires_grad=True)
    run = unrolled_gru(gru, inputs, start, nudges)
    torch.testing.assert_close(run.states, gru(inputs, start[None])[0], atol=1e-12, rtol=0)
    return run, nudges


def assert_a_weighted_sum(run: Unrolled) -> None:
    mixed = (run.weights() * run.candidates_and_start()).sum(0)
    torch.testing.assert_close(mixed, run.states[-1], atol=1e-12, rtol=0)


def assert_weights_of_attention(weights: Tensor) -> None:
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(0), torch.ones_like(weights[0]), atol=1e-12, rtol=0)


@settings(deadline=None)  # the first call of torch is slow
@given(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=40))
def test_any_gates_make_the_state_a_weighted_sum_of_all_candidates(gates: list[float]) -> None:
    keep = torch.tensor(gates, dtype=torch.float64)[:, None]
    candidates = torch.linspace(-3, 5, len(gates), dtype=torch.float64)[:, None] ** 2
    run = updated(keep, 1 - keep, candidates, torch.tensor([-7.0], dtype=torch.float64))
    assert_a_weighted_sum(run)
    assert_weights_of_attention(run.weights())


@pytest.mark.parametrize(
    ("gates", "weights"),
    [([0.9, 0.8, 0.0, 0.5], [0, 0, 0, 0.5, 0.5]), ([1.0, 1.0, 1.0, 1.0], [1, 0, 0, 0, 0])],
    ids=["shut once", "always open"],
)
def test_a_gate_at_its_end_forgets_or_keeps_exactly(
    gates: list[float], weights: list[float]
) -> None:
    keep = torch.tensor(gates)[:, None]
    run = updated(keep, 1 - keep, torch.zeros(4, 1), torch.zeros(1))
    assert run.weights().flatten().tolist() == weights


@pytest.mark.parametrize("units", [1, 5])
@pytest.mark.parametrize("length", [1, 2, 50])
def test_one_causal_attention_gives_every_state_of_the_recurrence(length: int, units: int) -> None:
    keep = torch.rand(length, units, dtype=torch.float64) * 0.98 + 0.01
    candidates, start = torch.randn_like(keep), torch.randn_like(keep[0])
    run = updated(keep, 1 - keep, candidates, start)
    torch.testing.assert_close(attended(run), run.states, atol=1e-9, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_every_unit_of_a_real_gru_attends_to_all_its_candidates(length: int) -> None:
    run, _ = gru_run(length, units=6)
    assert_a_weighted_sum(run)
    assert_weights_of_attention(run.weights())
    torch.testing.assert_close(attended(run), run.states, atol=1e-9, rtol=0)


def test_a_gru_never_leaves_the_range_of_its_candidates() -> None:
    run, _ = gru_run(30, units=6)
    seen = run.candidates_and_start()
    assert (run.states[-1] >= seen.amin(0)).all()
    assert (run.states[-1] <= seen.amax(0)).all()


@pytest.mark.parametrize("deaf", [True, False])
def test_the_weights_are_the_whole_influence_only_if_gates_do_not_read_the_state(
    deaf: bool,
) -> None:
    run, nudges = gru_run(8, units=6, deaf=deaf)
    for unit in range(6):
        (influence,) = torch.autograd.grad(run.states[-1, unit], nudges, retain_graph=True)
        off = (influence[:, unit] - run.weights()[1:, unit]).abs().max()
        # Of a nudge of one candidate, 1 % or more of it arrives by another way than the weights.
        assert off < 1e-12 if deaf else off > 1e-2


def lstm_run() -> Unrolled:
    """What an LSTM did on random inputs."""
    lstm, inputs = nn.LSTM(3, 6).double(), torch.randn(12, 3, dtype=torch.float64)
    run = unrolled_lstm(lstm, inputs)
    torch.testing.assert_close(run.states[-1], lstm(inputs)[1][1][0], atol=1e-12, rtol=0)
    return run


def test_an_lstm_cell_is_a_weighted_sum_whose_weights_need_not_sum_to_one() -> None:
    run = lstm_run()
    assert_a_weighted_sum(run)
    assert (run.weights() >= 0).all()
    assert run.weights().sum(0).max() > 1.1
    assert run.weights().sum(0).min() < 0.9


def test_an_lstm_cell_can_count_past_its_candidates_as_no_attention_can() -> None:
    lstm = nn.LSTM(1, 1).double()
    for each in lstm.parameters():
        nn.init.zeros_(each)
    nn.init.constant_(lstm.bias_ih_l0, 10.0)  # every gate open, every candidate almost one
    run = unrolled_lstm(lstm, torch.zeros(9, 1, dtype=torch.float64))
    assert_a_weighted_sum(run)
    assert run.candidates.max() <= 1
    assert run.states[-1].item() == pytest.approx(9, abs=1e-2)  # σ(10) falls short of one by 5e-5
    assert run.weights().sum().item() == pytest.approx(10, abs=1e-2)


def test_an_lstm_whose_gates_are_coupled_attends() -> None:
    run = lstm_run()
    coupled = updated(run.keep, 1 - run.keep, run.candidates, run.start)
    assert_a_weighted_sum(coupled)
    assert_weights_of_attention(coupled.weights())


# --- From soft to exact --------------------------------------------------------------------------

ENTRIES = 12
BETAS = [0.5, 1.0, 4.0, 16.0, 64.0, 256.0]
HARD: dict[str, Weigh] = {"argmax": Argmax(), "through": StraightThrough(), "top 1": TopK(1)}


@dataclass(frozen=True)
class Dictionary:
    """Keys and values, every key asked for once."""

    key: Tensor  # [1,1,K,E]
    value: Tensor  # [1,1,K,W]

    @property
    def cosines(self) -> Tensor:
        unit = F.normalize(self.key, dim=-1)
        return (unit @ unit.transpose(2, 3))[0, 0]  # [K,K]

    @property
    def gap(self) -> Tensor:
        """By how much each key matches itself better than it matches any other key, `[K]`."""
        others = self.cosines.masked_fill(torch.eye(ENTRIES, dtype=torch.bool), -2.0)
        return 1 - others.amax(-1)

    def looked_up(self, score: Score, weigh: Weigh | None = None) -> tuple[Tensor, Tensor]:
        """What every key reads, by the fused kernel where there is one, and its weights."""
        attend = Attend(score, weigh, kind="memory")
        memory = attend.remember(self.key, self.value)
        return attend(self.key, memory)[0, 0], attend.weights(self.key, memory)[0, 0]


def dictionary(dtype: torch.dtype) -> Dictionary:
    """Random keys of random lengths, with random values."""
    key = torch.randn(1, 1, ENTRIES, 8, dtype=dtype)
    lengths = torch.rand(1, 1, ENTRIES, 1, dtype=dtype) * 3 + 0.1
    book = Dictionary(key * lengths, torch.randn(1, 1, ENTRIES, 4, dtype=dtype))
    assert book.gap.min() > 0.1, "no key is nearly another"
    return book


@pytest.fixture(params=[torch.float32, torch.float64], ids=["single", "double"])
def book(request: pytest.FixtureRequest) -> Dictionary:
    return dictionary(request.param)


@pytest.fixture
def fine() -> Dictionary:
    """For bounds that single precision cannot see."""
    return dictionary(torch.float64)


def astray(weights: Tensor) -> Tensor:
    """The weight that each query gives to keys other than its own, `[K]`."""
    return weights.masked_fill(torch.eye(ENTRIES, dtype=torch.bool), 0.0).sum(-1)


@pytest.mark.parametrize("beta", BETAS)
def test_the_weight_astray_falls_like_the_bound(fine: Dictionary, beta: float) -> None:
    _, weights = fine.looked_up(Cosine(8, beta=beta))
    nearest = torch.exp(-beta * fine.gap)
    wrong = astray(weights)
    slack = 1 + 1e-9  # rounding in the gap, times beta
    assert (wrong <= (ENTRIES - 1) * nearest * slack).all()
    assert (wrong >= nearest / (1 + nearest) / slack).all(), "the rate is not better than that"


@pytest.mark.parametrize("beta", BETAS)
def test_the_error_of_the_read_falls_like_the_bound(fine: Dictionary, beta: float) -> None:
    read, _ = fine.looked_up(Cosine(8, beta=beta))
    value = fine.value[0, 0]
    farthest = torch.cdist(value, value).amax(-1)  # [K]
    bound = (ENTRIES - 1) * torch.exp(-beta * fine.gap) * farthest
    assert ((read - value).norm(dim=-1) <= bound * (1 + 1e-9) + 1e-14).all()


def test_the_logarithm_of_the_weight_astray_has_the_gap_as_its_slope(fine: Dictionary) -> None:
    # Once the nearest other key outweighs the rest, one more of beta costs the gap, and no more.
    low, high = 300.0, 310.0
    logs = [astray(fine.looked_up(Cosine(8, beta=beta))[1]).log() for beta in (low, high)]
    torch.testing.assert_close((logs[0] - logs[1]) / (high - low), fine.gap, atol=1e-3, rtol=0)


def test_a_sharp_softmax_returns_the_stored_value_to_the_last_bit(book: Dictionary) -> None:
    # Where exp(-beta * gap) is below the smallest number that the type has, nothing is astray.
    smallest = torch.finfo(book.key.dtype).smallest_normal * torch.finfo(book.key.dtype).eps
    beta = -1.1 * math.log(smallest) / float(book.gap.min())
    read, weights = book.looked_up(Cosine(8, beta=beta))
    assert torch.equal(weights, torch.eye(ENTRIES, dtype=weights.dtype))
    assert torch.equal(read, book.value[0, 0])


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("beta", BETAS)
def test_a_hard_weighing_is_exact_at_any_beta(book: Dictionary, name: str, beta: float) -> None:
    read, weights = book.looked_up(Cosine(8, beta=beta), HARD[name])
    assert torch.equal(weights, torch.eye(ENTRIES, dtype=weights.dtype))
    assert torch.equal(read, book.value[0, 0])


@pytest.mark.parametrize("beta", BETAS)
def test_gathering_the_heaviest_is_exact_at_any_beta(book: Dictionary, beta: float) -> None:
    attend = Attend(Cosine(8, beta=beta), read=Gather(), kind="memory")
    memory = attend.remember(book.key, book.value)
    assert torch.equal(attend(book.key, memory), book.value)
    best = Sample(attend).best(book.key, memory)
    assert torch.equal(best.read, book.value)
    assert best.choice.flatten().tolist() == list(range(ENTRIES))


@pytest.mark.parametrize(("weigh", "enough"), [(Sparsemax(), 1.0), (Entmax15(), 2.0)])
def test_a_sparse_weighing_is_exact_from_a_finite_beta_on(
    fine: Dictionary, weigh: Weigh, enough: float
) -> None:
    # max(e - τ, 0) and max(e/2 - τ, 0)² lose the next best key when it is 1, or 2, behind.
    gap = float(fine.gap.min())
    before = fine.looked_up(Cosine(8, beta=0.99 * enough / gap), weigh)[1]
    after = fine.looked_up(Cosine(8, beta=1.01 * enough / gap), weigh)[1]
    assert not torch.equal(before, torch.eye(ENTRIES, dtype=before.dtype))
    torch.testing.assert_close(after, torch.eye(ENTRIES).double(), atol=1e-14, rtol=0)
    assert (astray(after) == 0).all()


@pytest.mark.parametrize("beta", BETAS)
def test_a_large_beta_is_a_low_temperature_and_dot_is_cosine_of_unit_keys(
    fine: Dictionary, beta: float
) -> None:
    sharp = fine.looked_up(Cosine(8, beta=beta))
    cold = fine.looked_up(Cosine(8, beta=1.0), Softmax(temperature=1 / beta))
    units = Dictionary(F.normalize(fine.key, dim=-1), fine.value)
    by_dot = units.looked_up(Dot(8), Softmax(temperature=1 / beta))
    torch.testing.assert_close(cold, sharp, atol=1e-12, rtol=0)
    torch.testing.assert_close(by_dot, sharp, atol=1e-12, rtol=0)


def test_dot_retrieves_the_wrong_entry_if_another_key_is_longer() -> None:
    key = torch.tensor([[1.0, 0.0], [2.0, 2.0]])[None, None]
    value = torch.tensor([[10.0], [20.0]])[None, None]
    attend = Attend(Dot(2), Softmax(temperature=1e-3))
    read = attend(key[:, :, :1], attend.remember(key, value))
    assert read.item() == 20.0


def test_a_key_stored_twice_gives_the_mean_of_its_values_and_argmax_gives_the_first() -> None:
    key = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])[None, None]
    value = torch.tensor([[10.0], [70.0], [30.0]])[None, None]
    soft, hard = Attend(Cosine(2, beta=1e4)), Attend(Cosine(2, beta=1e4), Argmax())
    asked = key[:, :, :1]
    assert soft(asked, soft.remember(key, value)).item() == 20.0
    assert hard(asked, hard.remember(key, value)).item() == 10.0


def test_a_key_that_is_not_stored_reads_its_nearest_neighbour_and_never_fails() -> None:
    key = torch.eye(3)[None, None]
    value = torch.tensor([[10.0], [20.0], [30.0]])[None, None]
    attend = Attend(Cosine(3, beta=1e4))
    absent = torch.tensor([0.5, 0.6, 0.0]).view(1, 1, 1, 3)
    assert attend(absent, attend.remember(key, value)).item() == 20.0


def test_what_is_exact_cannot_be_learned_by_following_the_gradient(fine: Dictionary) -> None:
    def slope(beta: float) -> float:
        query = (fine.key + 0.05 * torch.randn_like(fine.key)).requires_grad_()
        attend = Attend(Cosine(8, beta=beta))
        read = attend(query, attend.remember(fine.key, fine.value))
        (grad,) = torch.autograd.grad(read.square().sum(), query)
        return float(grad.norm())

    assert slope(4.0) > 1e-1
    assert slope(400.0) < 1e-12
