"""Models that are trained beside the one that is judged."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Loss
from regard.explain.audit import AuditConfig, audit_run, write_report
from regard.explain.audited_site import AuditedSite
from regard.explain.importance import total_variation
from regard.explain.retrain import AdversarialTask, GuidedTask, guide_by, judge_variants
from regard.explain.statistics import Interval
from regard.models.text.attention_pool import AttentionPooling
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create
from regard.tasks.abilities import Subject
from regard.train.loop import TrainingResult
from tests.tasks.test_classify import RECIPE
from tests.tasks.test_classify import place as place

CONFIG = AuditConfig(tests=("retrain",), split="validation", examples=8)


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A trained run, and an audit that trains little."""
    monkeypatch.setattr("regard.explain.retrain.STRENGTHS", (0.0, 1.0))
    monkeypatch.setattr("regard.explain.retrain.SEEDS", 1)
    run = create(parse_recipe(RECIPE, "tiny", ["train.epochs=2"]), place / "run", place, "cpu")
    run.train()
    return run


def test_trained_variants_are_reused_drawn_and_tied_to_the_audited_model(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[str] = []
    found = audit_run(run, CONFIG, lines.append)
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
    assert lines == [f"training {n} of 7: {name}" for n, name in enumerate(names, start=1)]
    assert {f"right, {name}" for name in (*names, "base")} <= set(verdict.figures)
    assert {f"divergence, {name}" for name in names if "mlp" not in name} <= set(verdict.figures)
    assert all(len(values) == 8 for values in verdict.columns.values())
    write_report(run, found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2  # a dot for each text, and the curve

    def never(*given: object, **named: object) -> None:
        raise AssertionError("it was trained already")

    monkeypatch.setattr("regard.explain.retrain.train", never)
    assert audit_run(run, CONFIG, lines.append).verdicts[0].figures == verdict.figures
    (run.folder / "model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="audit of another model"):
        audit_run(run, CONFIG, lines.append)


def test_an_audit_that_is_interrupted_ends_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = TrainingResult(outcome="interrupted", update=1, seconds=0.1, best=None)
    monkeypatch.setattr("regard.explain.retrain.train", lambda *given, **named: stopped)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        audit_run(run, CONFIG, lines.append)
    assert lines == ["training 1 of 7: uniform"]


BATCH = {
    "tokens": torch.tensor([[4, 5, 6], [7, 8, 0]]),
    "lengths": torch.tensor([3, 2]),
    "classes": torch.tensor([0, 1]),
}


SUBJECT = Subject(predict=lambda model, batch: model(batch).logits)


def pooling_site(seed: int) -> AuditedSite:
    torch.manual_seed(seed)
    config = AttentionPooling.Config(width=4, hidden=3, init_range=1.0)
    model = AttentionPooling(config, vocabulary=9, classes=2).double().eval()
    return AuditedSite(model, "pool", SUBJECT, embedding=model.words)


def test_the_loss_of_an_adversary_rewards_divergence() -> None:
    base, other = pooling_site(0), pooling_site(1)
    own, read = base.predict(BATCH), other.predict(BATCH)
    change = total_variation(own.probabilities, read.probabilities).sum()
    apart = (read.weights * (read.weights / own.weights).log()).nansum()
    for strength in (0.0, 0.3):
        loss = AdversarialTask(base, other, "classes", strength).loss(other.model, BATCH, None)
        torch.testing.assert_close(loss.total, change - strength * apart)
        assert loss.items == 2
    loss.total.backward()
    assert other.model.get_parameter("pool.query").grad is not None
    assert base.model.get_parameter("pool.query").grad is None


def test_a_guided_model_learns_all_but_its_weights() -> None:
    base, other = pooling_site(0), pooling_site(1)
    held: list[Tensor] = []

    class Watched:
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            held.append(other.predict(BATCH).weights)
            return Loss(total=model(batch).logits.sum(), items=2)

    loss = GuidedTask(Watched(), "pool", guide_by(base)).loss(other.model, BATCH, None)
    loss.total.backward()
    assert other.model.get_parameter("words.table.weight").grad is not None
    assert not any(has_gradient(other, name) for name in ("pool.query", "pool.hidden.weight"))
    torch.testing.assert_close(held[0], base.predict(BATCH).weights)


def has_gradient(site: AuditedSite, name: str) -> bool:
    """Is the gradient of this parameter not zero?"""
    grad = site.model.get_parameter(name).grad
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
    ("means", "text", "supports"),
    [
        ({"lost": 0.005, "gained": 0.0, "change": 0.3}, "hardly needs attention", False),
        ({"lost": 0.1, "gained": 0.1, "change": 0.06}, "Other weights explain the same", False),
        ({"lost": 0.1, "gained": 0.1, "change": 0.3}, "useful to others", True),
        ({"lost": 0.1, "gained": 0.0, "change": 0.3}, "not useful to another", None),
    ],
)
def test_variants_are_judged(means: dict[str, float], text: str, supports: bool | None) -> None:
    summary, found = judge_variants(figures(**means))
    assert text in summary
    assert found is supports


def test_without_an_mlp_the_other_variants_are_judged() -> None:
    whole = figures(lost=0.1, gained=0.1, change=0.3)
    rest = {name: mean for name, mean in whole.items() if "mlp" not in name}
    summary, supports = judge_variants(rest)
    assert "MLP" not in summary
    assert supports is True
