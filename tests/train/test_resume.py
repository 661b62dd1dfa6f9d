"""A training that is interrupted and goes on ends with the bits of one that was not."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch

from regard.train.display import SilentDisplay
from regard.train.loop import train
from tests.train.tiny import (
    NextToken,
    Stream,
    assert_same,
    essence,
    newest,
    recurrent,
    run,
    settings,
)


class Interrupting(Stream):
    """The stream, sending this process a signal while the batch of a certain call is made."""

    calls = 0
    after = 0
    signal = signal.SIGINT

    def batch(self, epoch: int, index: int):
        Interrupting.calls += 1
        if Interrupting.calls == Interrupting.after:
            os.kill(os.getpid(), Interrupting.signal)
        return super().batch(epoch, index)


def interrupted_every(k: int, folder: Path, number: signal.Signals, **changes: object) -> int:
    """Train with an interruption in every k-th update; how many there were."""
    times = 0
    while True:
        Interrupting.calls, Interrupting.after, Interrupting.signal = 0, k, number
        result, _ = run(folder, stream=Interrupting(), **changes)
        if result.outcome != "interrupted":
            return times
        times += 1


VARIETIES: dict[str, dict[str, object]] = {
    "adam": {},
    "sgd": {"optimiser": {"name": "sgd", "lr": 0.1}},
    "momentum": {"optimiser": {"name": "sgd", "lr": 0.1, "momentum": 0.9}},
    "adamw": {"optimiser": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}},
    "adafactor": {"optimiser": {"name": "adafactor"}},
    "sm3": {"optimiser": {"name": "sm3", "lr": 0.1}},
    "accumulated": {"accumulate": 2},
    "ema": {"ema": 0.9},
    "best": {"weights": "best"},
    "best ema": {"weights": "best", "ema": 0.9},
    "average": {"weights": "average", "average": 3},
    "plateau": {"schedule": {"name": "plateau"}, "evaluate_every": 1},
    "cosine": {"schedule": {"name": "cosine", "warmup": 3}},
    "epochs": {"updates": None, "epochs": 2, "save_every": None, "evaluate_every": None},
}


@pytest.mark.parametrize("variety", VARIETIES)
def test_interrupted_in_every_second_update_it_ends_with_the_same_bits(
    variety: str, tmp_path: Path
) -> None:
    changes = VARIETIES[variety]
    result, _ = run(tmp_path / "whole", **changes)
    assert result.outcome == "finished"
    batches = 2 * int(changes.get("accumulate", 1))
    times = interrupted_every(batches, tmp_path / "pieces", signal.SIGINT, **changes)
    assert times >= 4
    assert_same(tmp_path / "pieces", tmp_path / "whole")


@pytest.mark.parametrize("k", [1, 3, 5, 7, 11])
def test_wherever_it_is_interrupted_it_ends_with_the_same_bits(k: int, tmp_path: Path) -> None:
    run(tmp_path / "whole")
    times = interrupted_every(k, tmp_path / "pieces", signal.SIGTERM)
    assert times == (12 - 1) // k
    assert_same(tmp_path / "pieces", tmp_path / "whole")


def lines(folder: Path) -> list[dict[str, object]]:
    """The log without what depends on the clock."""
    clock = ("seconds", "items_per_second", "waiting")
    return [
        {name: value for name, value in json.loads(line).items() if name not in clock}
        for line in (folder / "log.jsonl").read_text().splitlines()
    ]


def test_the_log_of_a_training_in_pieces_is_the_log_of_a_whole_one(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    interrupted_every(5, tmp_path / "pieces", signal.SIGINT)
    assert lines(tmp_path / "pieces") == lines(tmp_path / "whole")
    assert [line["update"] for line in lines(tmp_path / "whole") if "loss" in line] == [
        2, 4, 6, 8, 10, 12,
    ]  # fmt: skip
    assert [line["update"] for line in lines(tmp_path / "whole") if "validation" in line] == [
        4, 8, 12,
    ]  # fmt: skip


def test_lines_beyond_the_checkpoint_and_torn_lines_are_cut_off(tmp_path: Path) -> None:
    run(tmp_path, updates=6)
    log = tmp_path / "log.jsonl"
    before = log.read_text()
    log.write_text(before + '{"update": 7, "loss": 1.0}\n{"update": 6, "loss": 1.0}\n{"upd')
    run(tmp_path, updates=6)
    assert log.read_text() == before


def test_a_finished_training_that_is_trained_again_stays_as_it_is(tmp_path: Path) -> None:
    first, model = run(tmp_path)
    tensors, _ = essence(tmp_path)
    again, same = run(tmp_path)
    assert (again.outcome, again.update) == ("finished", first.update)
    for name, tensor in model.state_dict().items():
        assert torch.equal(same.state_dict()[name], tensor)
    assert all(torch.equal(essence(tmp_path)[0][name], each) for name, each in tensors.items())


def test_a_finished_training_can_be_made_longer(tmp_path: Path) -> None:
    run(tmp_path / "short", updates=6)
    run(tmp_path / "short", updates=12)
    run(tmp_path / "long", updates=12)
    # The validation after update 6, the last of the shorter training, is all that differs.
    short, long = (essence(tmp_path / name)[0] for name in ("short", "long"))
    assert all(torch.equal(short[name], tensor) for name, tensor in long.items())


def test_an_interruption_leaves_the_checkpoint_of_the_very_update(tmp_path: Path) -> None:
    Interrupting.calls, Interrupting.after, Interrupting.signal = 0, 4, signal.SIGINT
    result, _ = run(tmp_path, stream=Interrupting())
    assert (result.outcome, result.update) == ("interrupted", 4)
    assert newest(tmp_path).update == 4
    assert not (tmp_path / "model.safetensors").exists()


def test_a_second_signal_does_not_wait_for_the_update(tmp_path: Path) -> None:
    class Impatient(Stream):
        def batch(self, epoch: int, index: int):
            if index == 4:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return super().batch(epoch, index)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stream=Impatient())
    assert newest(tmp_path).update == 3


def test_signals_are_taken_as_before_once_training_is_over(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(tmp_path, updates=1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_validating_leaves_no_trace_in_the_weights(tmp_path: Path) -> None:
    model = recurrent()

    def draws() -> dict[str, float]:
        assert not model.training
        return {"loss": torch.rand(()).item()}

    for name, validate in (("with", draws), ("without", None)):
        model.load_state_dict(recurrent().state_dict())
        folder = tmp_path / name
        train(
            model,
            NextToken(),
            Stream(),
            settings(),
            folder,
            validate=validate,
            display=SilentDisplay(),
        )
    one, other = (essence(tmp_path / name)[0] for name in ("with", "without"))
    assert all(torch.equal(one[name], tensor) for name, tensor in other.items())
