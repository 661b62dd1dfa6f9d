"""Audits on a device that has no float64."""

import pytest
import torch

from regard.attention import padding
from regard.check import check
from regard.explain.build import audited_site
from regard.explain.statistics import kendall_tau, spearman_rho
from regard.explain.tests import TESTS, AuditSettings
from regard.explain.verdict import run_tests
from regard.layers.multihead import SelfAttention
from regard.models.text.text_transformer import TextTransformer
from regard.tasks.abilities import Subject
from tests.explain.without_float64 import WithoutFloat64


def test_the_stand_in_refuses_float64_until_the_cpu() -> None:
    x = torch.ones(2)
    with WithoutFloat64():
        assert x.cpu().double().dtype == torch.float64
        with pytest.raises(RuntimeError, match="no float64"):
            x.double()
        with pytest.raises(RuntimeError, match="no float64"):
            (x > 0).double()
        with pytest.raises(RuntimeError, match="no float64"):
            x.cpu().double() + x


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_an_explanation_runs_without_float64(test: str) -> None:
    torch.manual_seed(3)
    config = TextTransformer.Config(width=8, heads=2, hidden=8, layers=2)
    model = TextTransformer(config, vocabulary=12, classes=3).eval()
    batch = {
        "tokens": torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]),
        "lengths": torch.tensor([4, 2]),
        "parts": torch.tensor([[0, 0, 0, 0], [0, 0, -1, -1]]),
    }
    subject = Subject(
        predict=lambda model, batch: model(batch).logits, batches=[batch], padding={"parts": -1}
    )
    site = audited_site(model, "pool", subject)
    settings = AuditSettings(shuffles=2, starts=2, steps=2)
    with WithoutFloat64():
        (verdict,) = run_tests(site, [batch], tests=[test], settings=settings).verdicts
    assert verdict.figures


def test_ranks_are_compared_without_float64() -> None:
    first, second = torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([4.0, 1.0, 2.0, 2.0])
    wanted = kendall_tau(first, second), spearman_rho(first, second)
    with WithoutFloat64():
        assert (kendall_tau(first, second), spearman_rho(first, second)) == wanted


def test_attention_in_float32_is_checked_without_float64() -> None:
    layer = SelfAttention(8, heads=2)
    with WithoutFloat64():
        report = check(
            layer,
            lambda layer, x, real: layer(x, padding(real)),
            width=8,
            dtype=torch.float32,
            seeds=[0],
        )
    assert report.ok, str(report)
