"""Models that are trained beside the one that is judged."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Loss
from regard.explain.attention_reader import Attended
from regard.explain.audit import audited, write_report
from regard.explain.guided import Elsewhere, Guided, as_it_looks
from regard.explain.importance import moved
from regard.explain.retrain import judged
from regard.explain.sampling import Asked
from regard.explain.statistics import Interval
from regard.models.text.attention_pool import AttentionPooling
from regard.runs.recipe import parsed
from regard.runs.run import Run, create
from regard.train.loop import TrainingResult
from tests.tasks.test_classify import RECIPE
from tests.tasks.test_classify import place as place

ASKED = Asked(tests=("trained",), split="validation", texts=8)


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A trained run, and an audit that trains little."""
    monkeypatch.setattr("regard.explain.retrain.STRENGTHS", (0.0, 1.0))
    monkeypatch.setattr("regard.explain.retrain.SEEDS", 1)
    run = create(parsed(RECIPE, "tiny", ["train.epochs=2"]), place / "run", place, "cpu")
    run.train()
    return run


def test_what_was_trained_is_kept_shown_and_held_to_its_base(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    found = audited(run, ASKED, said.append)
    (verdict,) = found.verdicts
    names = (
        "uniform",
        "seed 1",
        "mlp",
        "mlp, uniform",
        "mlp, guided",
        "adversary 0",
        "adversary 1",
    )
    assert said == [f"training {n} of 7: {name}" for n, name in enumerate(names, start=1)]
    assert {f"right, {name}" for name in (*names, "base")} <= set(verdict.figures)
    assert {f"divergence, {name}" for name in names if "mlp" not in name} <= set(verdict.figures)
    assert all(len(values) == 8 for values in verdict.columns.values())
    write_report(run, found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2  # a dot for each text, and the curve

    def never(*given: object, **named: object) -> None:
        raise AssertionError("it was trained already")

    monkeypatch.setattr("regard.explain.retrain.train", never)
    assert audited(run, ASKED, said.append).verdicts[0].figures == verdict.figures
    (run.folder / "model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="beside another model"):
        audited(run, ASKED, said.append)


def test_an_audit_that_is_interrupted_ends_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = TrainingResult(outcome="interrupted", update=1, seconds=0.1, best=None)
    monkeypatch.setattr("regard.explain.retrain.train", lambda *given, **named: stopped)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        audited(run, ASKED, said.append)
    assert said == ["training 1 of 7: uniform"]


BATCH = {
    "tokens": torch.tensor([[4, 5, 6], [7, 8, 0]]),
    "lengths": torch.tensor([3, 2]),
    "classes": torch.tensor([0, 1]),
}


def reader(seed: int) -> Attended:
    torch.manual_seed(seed)
    config = AttentionPooling.Config(width=4, hidden=3, spread=1.0)
    model = AttentionPooling(config, vocabulary=9, classes=2).double().eval()
    return Attended(model, "pool", model.words, model)


def test_the_adversary_is_paid_for_looking_elsewhere() -> None:
    base, other = reader(0), reader(1)
    own, read = base.read(BATCH), other.read(BATCH)
    change = moved(own.probabilities, read.probabilities).sum()
    apart = (read.weights * (read.weights / own.weights).log()).nansum()
    for strength in (0.0, 0.3):
        loss = Elsewhere(base, other, strength).loss(other.model, BATCH, None)
        torch.testing.assert_close(loss.total, change - strength * apart)
        assert loss.items == 2
    loss.total.backward()
    assert other.model.get_parameter("pool.query").grad is not None
    assert base.model.get_parameter("pool.query").grad is None


def test_a_guided_model_looks_where_it_is_told_and_learns_all_else() -> None:
    base, other = reader(0), reader(1)
    held: list[Tensor] = []

    class Watched:
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            held.append(other.read(BATCH).weights)
            return Loss(total=model(batch).sum(), items=2)

    loss = Guided(Watched(), "pool", as_it_looks(base)).loss(other.model, BATCH, None)
    loss.total.backward()
    assert other.model.get_parameter("words.table.weight").grad is not None
    assert not any(slope(other, name) for name in ("pool.query", "pool.hidden.weight"))
    torch.testing.assert_close(held[0], base.read(BATCH).weights)


def slope(reader: Attended, name: str) -> bool:
    """Did the loss say anything to this parameter?"""
    grad = reader.model.get_parameter(name).grad
    return grad is not None and bool(grad.any())


def figures(**means: float) -> dict[str, Interval]:
    names = {
        "lost, uniform": means["lost"],
        "gained, mlp guided": means["gained"],
        "change, seed 2": 0.05,
        "divergence, seed 2": 0.1,
        "change, adversary 1": means["change"],
        "divergence, adversary 1": 0.6,
    }
    right = dict.fromkeys(["base", "uniform", "mlp", "mlp, guided"], 0.8)
    every = {**names, **{f"right, {name}": value for name, value in right.items()}}
    return {name: Interval(mean, mean - 0.01, mean + 0.01) for name, mean in every.items()}


@pytest.mark.parametrize(
    ("means", "says", "explains"),
    [
        ({"lost": 0.005, "gained": 0.0, "change": 0.3}, "can do without", False),
        ({"lost": 0.1, "gained": 0.1, "change": 0.06}, "looking elsewhere", False),
        ({"lost": 0.1, "gained": 0.1, "change": 0.3}, "of use to others", True),
        ({"lost": 0.1, "gained": 0.0, "change": 0.3}, "no use to another", None),
    ],
)
def test_verdicts(means: dict[str, float], says: str, explains: bool | None) -> None:
    said, spoke = judged(figures(**means))
    assert says in said
    assert spoke is explains
