"""Is this attention an explanation? Tests of one site of a model, and their verdicts."""

from regard.explain.audited_model import AuditedModel, WeightedPrediction
from regard.explain.audited_site import AuditedSite
from regard.explain.build import audited_site
from regard.explain.head_layers import LayerStack
from regard.explain.tests import TESTS, AuditSettings
from regard.explain.verdict import AuditResult, Verdict, run_tests

__all__ = [
    "TESTS", "AuditResult", "AuditSettings", "AuditedModel", "AuditedSite", "LayerStack", "Verdict",
    "WeightedPrediction", "audited_site", "run_tests",
]  # fmt: skip
