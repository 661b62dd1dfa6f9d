"""Hard online alignments against a literal loop, and against every alignment of a tiny sentence."""

from dataclasses import dataclass
from itertools import product
from math import log

import pytest
import torch
from torch import Tensor

from regard.core.padding import IGNORE
from regard.models.translation.online_aligner import OnlineAligner
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, stirred, texts

D = 5
SOURCE, TOKENS, TARGETS = (
    torch.tensor([4, 7, 6, 3]),
    torch.tensor([2, 5, 6]),
    torch.tensor([5, 6, 3]),
)
"""One sentence: two words and the end, to be said within four inputs or when they are over."""


def built(**changes: object) -> OnlineAligner:
    config = OnlineAligner.Config(**{"width": D, "layers": 2, "entropy": 0.0, **changes})
    model = OnlineAligner(config, V, SOURCES)
    stirred(model)
    return model


def one() -> dict[str, Tensor]:
    return {
        "source": SOURCE[None],
        "source_lengths": torch.tensor([len(SOURCE)]),
        "tokens": TOKENS[None],
        "targets": TARGETS[None],
    }


@dataclass(frozen=True)
class Told:
    """What came of one sentence."""

    logits: Tensor
    places: list[int]
    """How many inputs had been read when each target was said."""
    decisions: list[tuple[bool, Tensor, Tensor, int]]
    """Of each that was free: what it was, the logit, the state, and whose turn it was."""
    forced: list[Tensor]
    """Log σ where the unit had to speak; after that it is never free again before the end."""


def literal(
    model: OnlineAligner, source: Tensor, tokens: Tensor, coins: tuple[bool, ...] | None
) -> Told:
    """As it learns, with these coins for the unit; without coins as it is when it has learnt."""
    zero = torch.zeros(D).double()
    states = [(zero, zero)] * model.config.layers
    spoke, turn, flips = 1.0, 0, iter(coins or ())
    rows, places, decisions, forced = [], [], [], []
    i = 0
    while turn < len(tokens):
        over = i >= len(source)
        x = model.over if over else model.embed.weight[source[i]]
        heard = torch.cat((model.words.embed.weight[tokens[turn]], torch.tensor([spoke])))
        states = climbed(model.network, x, heard, states)
        h = states[-1][0]
        z = (model.emit.weight @ h + model.emit.bias)[0]
        words_left, inputs_left = len(tokens) - 1 - turn, len(source) - i
        if over:
            speaks = True
        elif coins is not None and words_left >= inputs_left:
            speaks = True
            forced.append(torch.sigmoid(z).log())
        elif coins is None:
            speaks = bool(torch.sigmoid(z) > 0.5)
        else:
            speaks = next(flips)
            decisions.append((speaks, z, h, turn))
        i += 1
        if speaks:
            table = model.words.embed if model.words.output is None else model.words.output
            rows.append(table.weight @ h + model.words.bias)
            places.append(i)
            turn += 1
        spoke = float(speaks)
    return Told(torch.stack(rows), places, decisions, forced)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_equation(cell: str, tied: bool) -> None:
    model, batch = built(cell=cell, tied=tied), texts()
    with torch.no_grad():  # so that it speaks at some inputs and not at others
        due = torch.full((len(LENGTHS),), batch["tokens"].shape[1])
        asked = model.read(model.start(batch), model.words(batch["tokens"]), due).logits
        model.emit.bias -= asked[0, : LENGTHS[0]].sort().values[2:4].mean()
    logits, seen = model(batch).logits(), set()
    for row, length in enumerate(LENGTHS):
        told = literal(model, batch["source"][row, :length], batch["tokens"][row], None)
        torch.testing.assert_close(logits[row], told.logits)
        state = model.start({name: each[row : row + 1] for name, each in batch.items()})
        for token, place in zip(batch["tokens"][row], told.places, strict=True):
            _, state = model.step(token[None], state)
            assert state.place.tolist() == [place]
            seen.add(place - length)
    assert min(seen) < 0 < max(seen), "some words are said before the source is over, some after"


Path = tuple[tuple[bool, ...], Tensor, Told]


def paths(model: OnlineAligner) -> list[Path]:
    """Every way to say the sentence: the coins that were used, how likely they are, what came."""
    found: dict[tuple[bool, ...], Path] = {}
    for coins in product((False, True), repeat=len(SOURCE)):
        told = literal(model, SOURCE, TOKENS, coins)
        used = tuple(speaks for speaks, *_ in told.decisions)
        chances = [torch.sigmoid(z if speaks else -z) for speaks, z, *_ in told.decisions]
        found[used] = (used, torch.stack(chances).prod(), told)
    return list(found.values())


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the unit decides next: instead of by chance, from this list; by default it is silent."""
    queue: list[bool] = []

    def rand(count: int, *, device: torch.device) -> Tensor:
        assert count == 1
        return torch.tensor([0.0 if queue and queue.pop(0) else 1.0])

    monkeypatch.setattr("regard.models.translation.online_aligner.torch.rand", rand)
    return queue


def tossed(told: Told, places: int) -> list[bool]:
    """A coin for every input, also where none is asked for."""
    return [step + 1 in told.places for step in range(places)]


def test_the_expected_gradient_is_exactly_that_of_the_bound(coins: list[bool]) -> None:
    """Every way once, weighted by how likely it is: no sampling error, hence no tolerance."""
    model = built().train()
    every = paths(model)
    assert 6 <= len(every) <= 16
    assert sum(chance.item() for _, chance, _ in every) == pytest.approx(1.0)
    named = {name: each for name, each in model.named_parameters() if "value" not in name}
    bound = torch.zeros(()).double()
    found = [torch.zeros_like(each) for each in named.values()]
    for _, chance, told in every:
        said = told.logits.log_softmax(1)
        reward = sum(said[t, y] for t, y in enumerate(TARGETS)) + sum(told.forced)
        bound = bound - chance * reward
        coins[:] = tossed(told, max(told.places))
        prediction = model(one())
        torch.testing.assert_close(prediction.logits()[0], told.logits)
        loss = prediction.nll(TARGETS[None]) + prediction.auxiliary
        each = torch.autograd.grad(loss, list(named.values()))
        found = [total + chance.detach() * own for total, own in zip(found, each, strict=True)]
    wanted = torch.autograd.grad(bound, list(named.values()))
    for name, got, want in zip(named, found, wanted, strict=True):
        torch.testing.assert_close(got, want, msg=lambda told, name=name: f"{name}: {told}")
    assert wanted[list(named).index("emit.weight")].abs().max() > 1e-3


def test_the_surrogate_is_the_equation_with_all_its_terms(coins: list[bool]) -> None:
    model = built(entropy=0.3).train()
    for _, _, told in paths(model):
        coins[:] = tossed(told, max(told.places))
        further = model(one()).auxiliary
        said = told.logits.log_softmax(1).detach()
        want = -sum(told.forced, start=torch.zeros(()).double())
        for speaks, z, h, turn in told.decisions:
            to_come = sum(said[t, TARGETS[t]] for t in range(turn, 3)) + sum(told.forced)
            to_come = to_come.detach()
            guess = (model.value.weight @ h.detach() + model.value.bias)[0]
            p = torch.sigmoid(z)
            chosen = p if speaks else 1 - p
            want = want - (to_come - (3 - turn) * guess.detach()) * chosen.log()
            want = want + 0.3 * (p * p.log() + (1 - p) * (1 - p).log())
            want = want + (to_come / (3 - turn) - guess) ** 2
        torch.testing.assert_close(further, want)
        named = dict(model.named_parameters())
        got = torch.autograd.grad(further, list(named.values()), allow_unused=True)
        due = torch.autograd.grad(want, list(named.values()), allow_unused=True)
        for name, mine, yours in zip(named, got, due, strict=True):
            mine = torch.zeros_like(named[name]) if mine is None else mine
            yours = torch.zeros_like(named[name]) if yours is None else yours
            torch.testing.assert_close(mine, yours)


@pytest.mark.parametrize(
    ("bias", "places"), [(-100.0, [[2, 3, 4], [0, 1, 2]]), (100.0, [[0, 1, 2], [0, 1, 2]])]
)
def test_all_words_are_out_before_the_source_ends(bias: float, places: list[list[int]]) -> None:
    """Who would never speak says them at the last inputs; the end is said when all is over."""
    model = built().train()
    with torch.no_grad():
        model.emit.weight.zero_()
        model.emit.bias.fill_(bias)
    batch = {
        "source": torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]),
        "source_lengths": torch.tensor([4, 2]),
        "tokens": torch.tensor([[2, 5, 6], [2, 7, 8]]),
    }
    due = torch.tensor([3, 3])
    reading = model.read(model.start(batch), model.words(batch["tokens"]), due)
    assert reading.emission_steps(3).tolist() == places
    assert reading.emitted.sum(1).tolist() == [3, 3]


def test_padding_is_not_praised() -> None:
    """A longer batch mate changes nothing, nor does a pair that is not there."""
    model = built(entropy=0.2).train()
    with torch.no_grad():
        model.emit.bias.fill_(100.0)  # so that nothing is left to chance
    batch = one()
    alone = model(batch)
    wide = {
        "source": torch.tensor([[*SOURCE, 0, 0], [3, 0, 0, 0, 0, 0]]),
        "source_lengths": torch.tensor([len(SOURCE), 1]),
        "tokens": torch.tensor([[*TOKENS, 0, 0], [2, 0, 0, 0, 0]]),
        "targets": torch.tensor([[*TARGETS, IGNORE, IGNORE], [IGNORE] * 5]),
    }
    prediction = model(wide)
    torch.testing.assert_close(prediction.auxiliary, alone.auxiliary)
    want = alone.nll(batch["targets"])
    torch.testing.assert_close(prediction.nll(wide["targets"]), want)


def doubled(rows: int) -> dict[str, Tensor]:
    """aabbcc and abc."""
    words, ends = torch.randint(4, 8, (rows, 3)), torch.full((rows, 1), 3)
    return {
        "source": torch.cat((words.repeat_interleave(2, dim=1), ends), dim=1),
        "source_lengths": torch.full((rows,), 7),
        "tokens": torch.cat((torch.full((rows, 1), 2), words), dim=1),
        "targets": torch.cat((words, ends), dim=1),
    }


def test_it_learns_to_say_each_letter_once_that_was_read_twice(as_users_run_it: None) -> None:
    """And, with nobody to force it, when it has read it and before it reads the next."""
    model = OnlineAligner(OnlineAligner.Config(cell="gru", width=24, layers=1), 8, 8).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(200):
        batch = doubled(16)
        optimiser.zero_grad()
        prediction = model(batch)
        loss = prediction.nll(batch["targets"])
        ((loss + prediction.auxiliary) / 64).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item() / 64)
    assert sum(losses[:3]) / 3 > 0.7 * log(8)
    assert sum(losses[-10:]) / 10 < 0.1 * log(8)
    batch = doubled(50)
    state, tokens, right = model.eval().start(batch), batch["tokens"][:, 0], []
    for place in range(3):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(1)
        timely = (state.place > 2 * place) & (state.place < 2 * place + 3)
        right.append((tokens == batch["targets"][:, place]) & timely)
    assert torch.stack(right).double().mean() > 0.9
