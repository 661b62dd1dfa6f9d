"""Where curves are kept besides log.jsonl: TensorBoard, Weights & Biases, MLflow.

Each is its own package and is imported only if a recipe names it. Nothing leaves the machine unless
that is configured: W&B works offline in the run folder unless WANDB_MODE is set, and MLflow writes
to a file store there unless MLFLOW_TRACKING_URI is.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.core.errors import UserError


@runtime_checkable
class CurveWriter(Protocol):
    """What the log needs of a tracker; TensorBoard's SummaryWriter has these methods."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Add a point to a curve."""
        ...

    def close(self) -> None:
        """Flush and close the files."""
        ...


class _Wandb:
    """A run of Weights & Biases; a resumed training goes on with the same one."""

    def __init__(self, folder: Path, after: int) -> None:
        import wandb  # type: ignore[import-not-found, unused-ignore]

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "regard"),
            name=folder.name,
            id=folder.resolve().name,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
        )

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Add a point to a curve."""
        self._run.log({tag: scalar_value, "update": global_step})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class _MLflow:
    """A run of MLflow, in a file store in the run folder unless a server is configured."""

    def __init__(self, folder: Path, after: int) -> None:
        from mlflow.tracking import (  # type: ignore[import-not-found, unused-ignore]
            MlflowClient,
        )

        place = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(place or f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "regard")
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=folder.name).info.run_id

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Add a point to a curve."""
        self._client.log_metric(self._run, tag, scalar_value, step=global_step)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


def _tensorboard(folder: Path, after: int) -> CurveWriter:
    """TensorBoard's writer, without the points after an update."""
    from torch.utils.tensorboard import SummaryWriter

    board: CurveWriter = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
    return board


TRACKERS: dict[str, tuple[Callable[[Path, int], CurveWriter], str]] = {
    "tensorboard": (_tensorboard, "'regard[track]'"),
    "wandb": (_Wandb, "wandb"),
    "mlflow": (_MLflow, "mlflow"),
}
"""Each tracker by name: how it begins, and what pip installs for it."""


def open_trackers(names: Sequence[str], folder: Path, after: int) -> list[CurveWriter]:
    """The trackers of these names for a training that goes on after an update."""
    opened = []
    for name in names:
        begin, package = TRACKERS[name]
        try:
            opened.append(begin(folder, after))
        except ImportError as error:
            raise UserError(
                f"{name}=true needs the package {name}: pip install {package}"
            ) from error
    return opened
