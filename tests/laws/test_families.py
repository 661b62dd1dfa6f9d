"""Every model is in a family of laws, and every family has its laws."""

from collections import Counter
from importlib import import_module

from regard.models import MODELS
from tests.laws.families import FAMILIES


def test_every_model_is_in_one_family() -> None:
    counts = Counter(name for names in FAMILIES.values() for name in names)
    assert [name for name in MODELS if not counts[name]] == [], "add it to tests/laws/families.py"
    assert [name for name in counts if name not in MODELS] == []
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_family_has_a_file_of_laws_that_runs_over_it() -> None:
    for family, names in FAMILIES.items():
        laws = import_module(f"tests.laws.test_{family.replace(' ', '_')}")
        assert tuple(laws.NAMES) == names, family
