"""Models that are trained for an audit are compared on a device without float64."""

from types import SimpleNamespace

import pytest
import torch

from regard.core.protocols import Batch
from regard.explain.audited_model import WeightedPrediction
from regard.explain.retrain import Variant, compare_variants
from tests.explain.without_float64 import WithoutFloat64

CLASSES = torch.tensor([0, 1, 1])


class Fixed:
    """Predicts given classes with given weights."""

    def __init__(self, *classes: int) -> None:
        self.prediction = WeightedPrediction(
            torch.eye(2)[torch.tensor(classes)],
            torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]]),
        )

    def predict(self, batch: Batch, weights: object = None) -> WeightedPrediction:
        return self.prediction


@pytest.mark.usefixtures("as_users_run_it")
def test_who_is_right_is_counted_without_float64() -> None:
    sites = {"uniform": Fixed(1, 0, 1), "mlp": Fixed(0, 0, 0), "mlp, guided": Fixed(0, 1, 0)}
    every = [Variant(name, None, None) for name in sites]  # type: ignore[arg-type]
    base = SimpleNamespace(site=Fixed(0, 1, 0), targets="classes")
    with WithoutFloat64():
        found = compare_variants(base, every, sites, {"classes": CLASSES})  # type: ignore[arg-type]
    assert found["right, base"] == [1.0, 1.0, 0.0]
    assert found["right, uniform"] == [0.0, 0.0, 1.0]
    assert found["lost, uniform"] == [1.0, 1.0, -1.0]
    assert found["gained, mlp guided"] == [0.0, 1.0, 0.0]
    assert found["change, uniform"] == [1.0, 1.0, 1.0]
    assert found["divergence, uniform"] == [0.0, 0.0, 0.0]
