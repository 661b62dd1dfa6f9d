"""What the loop computes: the mean over items, however they are cut into batches."""

import math
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from regard.core import device
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Loss
from regard.train.checkpoint import Checkpoints
from regard.train.display import SilentDisplay
from regard.train.loop import TrainingResult, train
from tests.train.tiny import (
    Apart,
    NextToken,
    Recurrent,
    Regress,
    Rows,
    Stream,
    recurrent,
    run,
    settings,
)


def rows(count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(count, 3, generator=generator),
        "y": torch.randn(count, 2, generator=generator),
    }


def fit(batches: list[dict[str, torch.Tensor]], folder: Path, **changes: object) -> nn.Linear:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    train(
        model, Regress(), Rows(tuple(batches)), settings(**changes), folder, display=SilentDisplay()
    )
    return model


PLAIN: dict[str, object] = {"optimiser": {"name": "sgd", "lr": 0.1}, "clip": None}


def test_a_loop_is_the_loop_one_would_write_by_hand(tmp_path: Path) -> None:
    batches = [rows(4, seed) for seed in range(3)]
    ours = fit(batches, tmp_path, updates=7, **{**PLAIN, "clip": 0.5})
    torch.manual_seed(1)
    theirs = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for update in range(7):
        batch = batches[update % 3]
        optimiser.zero_grad()
        ((theirs(batch["x"]) - batch["y"]).square().sum() / 4).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimiser.step()
    torch.testing.assert_close(ours.weight, theirs.weight, atol=1e-6, rtol=1e-6)


def test_accumulated_batches_of_different_sizes_are_one_large_batch(tmp_path: Path) -> None:
    parts = [rows(size, seed) for seed, size in enumerate((1, 5, 2))]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    pieces = fit(parts, tmp_path / "pieces", updates=5, accumulate=3, **PLAIN)
    at_once = fit([whole], tmp_path / "whole", updates=5, **PLAIN)
    torch.testing.assert_close(pieces.weight, at_once.weight, atol=1e-6, rtol=1e-6)


def test_a_group_does_not_reach_over_the_end_of_an_epoch(tmp_path: Path) -> None:
    result, _ = run(tmp_path, updates=None, epochs=2, accumulate=2, stream=Stream(batches=5))
    assert result.update == 2 * 3


def test_an_epoch_begins_with_nothing_handed_on_and_no_batch_else_does(tmp_path: Path) -> None:
    handed: list[bool] = []

    class Watching(NextToken):
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            handed.append(carry is not None)
            return super().loss(model, batch, carry)

    changes = {"updates": None, "epochs": 2, "accumulate": 2}
    stream = Stream(batches=3)
    train(recurrent(), Watching(), stream, settings(**changes), tmp_path, display=SilentDisplay())
    assert handed == [False, True, True] * 2


def test_a_compiled_model_learns_the_same_and_keeps_its_names(tmp_path: Path) -> None:
    batches = [rows(4, seed) for seed in range(3)]
    compiled = fit(batches, tmp_path / "compiled", updates=5, compile=True, **PLAIN)
    plain = fit(batches, tmp_path / "plain", updates=5, **PLAIN)
    torch.testing.assert_close(compiled.weight, plain.weight, atol=1e-6, rtol=1e-6)
    assert load_file(tmp_path / "compiled/model.safetensors").keys() == {"weight", "bias"}


def test_early_stopping_stops_after_so_many_validations_without_improvement(
    tmp_path: Path,
) -> None:
    losses = iter([5.0, 3.0, 4.0, 3.5, 3.0, 1.0])
    model = recurrent()
    result = train(
        model,
        NextToken(),
        Stream(),
        settings(updates=100, evaluate_every=2, patience=3, weights="best"),
        tmp_path,
        validate=lambda: {"loss": next(losses)},
        display=SilentDisplay(),
    )
    assert result.outcome == "stopped early"
    assert (result.update, result.best) == (10, (4, 3.0))
    best = Checkpoints(tmp_path / "state").load(4).parts["model"]
    final = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(final[name], tensor) for name, tensor in best.items())
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in best.items())


def test_a_metric_may_be_better_when_higher(tmp_path: Path) -> None:
    values = iter([0.1, 0.7, 0.3])
    result = train(
        recurrent(),
        NextToken(),
        Stream(),
        settings(weights="best", monitor="accuracy", better="higher"),
        tmp_path,
        validate=lambda: {"accuracy": next(values)},
        display=SilentDisplay(),
    )
    assert result.best == (8, 0.7)


def test_the_average_of_the_last_checkpoints_is_what_training_gives(tmp_path: Path) -> None:
    _, model = run(tmp_path, weights="average", average=3)
    checkpoints = Checkpoints(tmp_path / "state")
    assert checkpoints.updates() == [6, 9, 12]
    parts = [checkpoints.load(update).parts["model"]["lstm.bias_ih_l0"] for update in (6, 9, 12)]
    mean = torch.stack([part.double() for part in parts]).mean(0).float()
    assert torch.equal(model.state_dict()["lstm.bias_ih_l0"], mean)


def test_a_moving_average_is_what_is_validated_and_given_but_not_what_is_trained(
    tmp_path: Path,
) -> None:
    _, plain = run(tmp_path / "plain")
    _, smooth = run(tmp_path / "smooth", ema=0.9)
    one, other = (Checkpoints(tmp_path / n / "state").load(12) for n in ("plain", "smooth"))
    assert all(torch.equal(t, other.parts["model"][n]) for n, t in one.parts["model"].items())
    given = load_file(tmp_path / "smooth/model.safetensors")
    assert all(torch.equal(given[name], each) for name, each in other.parts["ema"].items())
    assert not torch.equal(plain.out.bias, smooth.out.bias)


def test_only_the_latest_and_the_best_checkpoints_stay(tmp_path: Path) -> None:
    losses = iter([1.0, 2.0, 3.0, 4.0])
    train(
        recurrent(),
        NextToken(),
        Stream(),
        settings(save_every=3, evaluate_every=3, weights="best"),
        tmp_path,
        validate=lambda: {"loss": next(losses)},
        display=SilentDisplay(),
    )
    assert Checkpoints(tmp_path / "state").updates() == [3, 9, 12]


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    result, _ = run(tmp_path, updates=150, evaluate_every=50, save_every=150)
    assert result.best is not None
    assert result.best[1] < 0.75 * math.log(11)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "best"}, 'weights = "best" needs validation data, and there is none'),
        ({"patience": 2}, "patience needs validation data"),
        ({"schedule": {"name": "plateau"}}, 'schedule = "plateau" needs validation data'),
        ({"weights": "average", "average": 9}, "needs 9 checkpoints, but 4 are saved in 12"),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        train(
            recurrent(),
            NextToken(),
            Stream(),
            settings(**changes),
            tmp_path,
            display=SilentDisplay(),
        )
    assert not list(tmp_path.iterdir())


def test_data_without_batches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the data has no batches"):
        train(
            recurrent(),
            NextToken(),
            Stream(batches=0),
            settings(),
            tmp_path,
            display=SilentDisplay(),
        )


def test_a_metric_that_the_validation_does_not_give_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown metric 'perplexty': did you mean 'perplexity'"):
        run(tmp_path, monitor="perplexty", evaluate_every=1)


def test_a_precision_that_does_not_work_here_is_refused_and_the_reason_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_probed", lambda dtype, device: "a trial was killed by SIGILL")
    with pytest.raises(UserError, match=r"does not work on cpu here \(a trial was killed by SIGI"):
        run(tmp_path, precision="bfloat16")


def test_bfloat16_trains_where_it_works(tmp_path: Path) -> None:
    if not device.precision_works("bfloat16", torch.device("cpu")):
        pytest.skip("bfloat16 products do not work on this processor")
    batches = [rows(16, seed) for seed in range(4)]
    model = fit(batches, tmp_path, updates=40, precision="bfloat16", **PLAIN)
    exact = fit(batches, tmp_path / "exact", updates=40, **PLAIN)
    assert model.weight.dtype == torch.float32
    assert not torch.equal(model.weight, exact.weight)
    # bfloat16 has 8 bits of precision, so weights of order one agree to about two digits.
    torch.testing.assert_close(model.weight, exact.weight, atol=0.02, rtol=0.02)


def test_it_trains_in_a_thread_where_signals_cannot_be_taken(tmp_path: Path) -> None:
    results: list[TrainingResult] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, updates=2)[0]))
    thread.start()
    thread.join()
    assert [result.outcome for result in results] == ["finished"]


def test_modules_keep_the_mode_that_a_validation_found_them_in(tmp_path: Path) -> None:
    model = Recurrent()

    def validate() -> dict[str, float]:
        assert not any(module.training for module in model.modules())
        model_modes.append(True)
        return {"loss": 1.0}

    model_modes: list[bool] = []
    train(
        model,
        NextToken(),
        Stream(),
        settings(),
        tmp_path,
        validate=validate,
        display=SilentDisplay(),
    )
    assert len(model_modes) == 3
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_nothing_is_carried_into_a_batch_that_begins_anew(accumulate: int, tmp_path: Path) -> None:
    given: list[bool] = []

    class Noting(NextToken):
        def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
            given.append(carry is not None)
            return super().loss(model, batch, carry)

    asked = settings(updates=4, evaluate_every=None, accumulate=accumulate)
    for stream, carried in ((Apart(), False), (Stream(), True)):
        given.clear()
        train(
            recurrent(), Noting(), stream, asked, tmp_path / str(carried), display=SilentDisplay()
        )
        assert any(given) == carried
