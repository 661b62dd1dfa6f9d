"""Trackers: every number of every line reaches the package, and nothing leaves the machine."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from regard.core.errors import UserError
from regard.train.display import SilentDisplay
from regard.train.log import Log
from regard.train.trackers import TRACKERS

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def logged(folder: Path, name: str) -> None:
    """A short log with one tracker."""
    with Log(folder, SilentDisplay(), after=0, trackers=[name]) as log:
        log.log_training(1, {"loss": 2.0, "lr": 0.1}, seconds_left=1.0)
        log.log_validation(2, {"loss": 1.5}, best=True)


def test_weights_and_biases_is_offline_unless_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    lines: list[dict[str, object]] = []

    def init(**settings: object) -> object:
        given.update(settings)
        return SimpleNamespace(log=lines.append, finish=lambda: lines.append({"finished": True}))

    fake = ModuleType("wandb")
    fake.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    logged(tmp_path, "wandb")
    assert (given["mode"], given["dir"], given["resume"]) == ("offline", str(tmp_path), "allow")
    assert {"train/loss": 2.0, "update": 1} in lines
    assert {"validation/loss": 1.5, "update": 2} in lines
    assert lines[-1] == {"finished": True}
    monkeypatch.setenv("WANDB_MODE", "online")
    logged(tmp_path, "wandb")
    assert given["mode"] == "online"


def test_mlflow_keeps_its_store_in_the_run_unless_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: list[str] = []
    points: list[tuple[object, ...]] = []

    class Client:
        def __init__(self, store: str) -> None:
            stores.append(store)

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return name

        def create_run(self, experiment: str, run_name: str) -> object:
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment}/{run_name}"))

        def log_metric(self, run: str, key: str, value: float, step: int) -> None:
            points.append((run, key, value, step))

        def set_terminated(self, run: str) -> None:
            points.append((run, "ended"))

    fake = ModuleType("mlflow.tracking")
    fake.MlflowClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", fake)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    logged(tmp_path / "run", "mlflow")
    assert stores == [f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}"]
    assert ("regard/run", "validation/loss", 1.5, 2) in points
    assert points[-1] == ("regard/run", "ended")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, f"{name}.tracking", None)
    with pytest.raises(UserError, match=f"needs the package {name}: pip install"):
        logged(tmp_path, name)
    assert name in TRACKERS
