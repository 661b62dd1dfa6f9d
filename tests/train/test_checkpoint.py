"""A checkpoint is valid or detected as corrupt, whatever happens while it is written."""

import errno
import json
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.train import checkpoint as module
from regard.train.checkpoint import Checkpoint, Checkpoints, CorruptCheckpointError, manifest
from regard.train.durable import SAFETENSORS_DTYPES, tensor_pieces
from tests.train.tiny import Stream, assert_same, newest, recurrent, run


def example(update: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(update)
    return Checkpoint(
        update=update,
        parts={
            "model": {"weight": torch.randn(5, 3, generator=generator), "bias": torch.ones(3)},
            "rank-0": {"random.cpu": torch.arange(100, dtype=torch.uint8)},
        },
        facts={"progress": {"update": update, "loss": 0.1 + update}},
    )


@pytest.fixture
def two(tmp_path: Path) -> Checkpoints:
    """Two checkpoints, after updates 100 and 200."""
    checkpoints = Checkpoints(tmp_path / "state")
    for update in (100, 200):
        checkpoints.save(example(update))
    return checkpoints


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (
        (one.update, one.facts) == (other.update, other.facts)
        and one.parts.keys() == other.parts.keys()
        and all(
            torch.equal(tensor, other.parts[part][name])
            for part, tensors in one.parts.items()
            for name, tensor in tensors.items()
        )
    )


def files(checkpoints: Checkpoints) -> list[Path]:
    return sorted(checkpoints.path(200).iterdir())


def test_a_checkpoint_comes_back_bit_for_bit(two: Checkpoints) -> None:
    assert two.updates() == [100, 200]
    assert same(two.load(200), example(200))
    assert [path.name for path in files(two)] == [
        "facts.json",
        "manifest.json",
        "model.safetensors",
        "rank-0.safetensors",
    ]


def assert_the_one_before_is_used(two: Checkpoints, damaged: Path) -> None:
    found = two.newest()
    assert found is not None
    assert same(found.checkpoint, example(100))
    assert list(found.corrupt) == [200]
    assert str(damaged) in found.corrupt[200]


def test_every_flipped_bit_of_every_file_is_detected_and_the_one_before_used(
    two: Checkpoints,
) -> None:
    for path in files(two):
        whole = path.read_bytes()
        step = max(1, len(whole) // 60)
        for at in range(0, len(whole), step):
            for bit in {at % 8, (at + 5) % 8}:
                path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
                assert_the_one_before_is_used(two, path)
        path.write_bytes(whole)
    found = two.newest()
    assert found is not None
    assert not found.corrupt


def test_every_byte_of_a_manifest_matters(two: Checkpoints) -> None:
    path = two.path(200) / "manifest.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in {at % 8, 5}:  # the sixth turns letters and blanks into their like
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            with pytest.raises(CorruptCheckpointError):
                two.load(200)


def test_every_truncation_and_every_byte_too_many_is_detected(two: Checkpoints) -> None:
    for path in files(two):
        whole = path.read_bytes()
        for length in {*range(0, len(whole), max(1, len(whole) // 80)), len(whole) - 1}:
            path.write_bytes(whole[:length])
            assert_the_one_before_is_used(two, path)
        path.write_bytes(whole + b"\0")
        assert_the_one_before_is_used(two, path)
        path.unlink()
        assert_the_one_before_is_used(two, path)
        path.write_bytes(whole)


def test_files_of_two_checkpoints_cannot_be_mixed(two: Checkpoints) -> None:
    for name in ("model.safetensors", "facts.json"):
        keep = (two.path(200) / name).read_bytes()
        shutil.copy(two.path(100) / name, two.path(200) / name)
        assert_the_one_before_is_used(two, two.path(200) / name)
        (two.path(200) / name).write_bytes(keep)


def test_when_all_are_corrupt_each_is_named_and_nothing_is_started_over(two: Checkpoints) -> None:
    for update in (100, 200):
        os.truncate(two.path(update) / "facts.json", 3)
    with pytest.raises(UserError, match=r"nothing to resume from: .*00000200.*; .*00000100"):
        two.newest()


def test_training_says_which_checkpoint_is_corrupt_and_which_it_goes_on_from(
    tmp_path: Path,
) -> None:
    run(tmp_path / "whole", updates=6)
    run(tmp_path / "torn", updates=6)
    os.truncate(tmp_path / "torn/state/00000006/optimiser.safetensors", 100)
    run(tmp_path / "torn", updates=6)
    notes = [
        json.loads(line)["note"]
        for line in (tmp_path / "torn/log.jsonl").read_text().splitlines()
        if "note" in line
    ]
    assert len(notes) == 1
    assert "00000006/optimiser.safetensors has 100 bytes instead of" in notes[0]
    assert notes[0].endswith(f"from the previous one, {tmp_path}/torn/state/00000003")
    assert (tmp_path / "torn/state/00000006.corrupt").is_dir()
    one, other = (newest(tmp_path / name).parts["model"] for name in ("whole", "torn"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_newer_format_is_refused_and_not_taken_for_a_corrupt_one(two: Checkpoints) -> None:
    place = two.path(200)
    (place / "manifest.json").write_bytes(
        manifest(module._FORMAT + 1, module.read_manifest(place / "manifest.json"))
    )
    with pytest.raises(UserError, match="has format 2, and this version of regard reads up to 1"):
        two.newest()


def test_a_checkpoint_of_another_shape_is_refused_with_the_first_tensors_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, updates=2)
    monkeypatch.setattr("tests.train.tiny.recurrent", lambda: recurrent(width=9))
    with pytest.raises(UserError) as caught:
        run(tmp_path, updates=2)
    assert str(caught.value) == (
        f"{tmp_path}/state/00000002 is of another model: "
        "embed.weight is float32 [11, 8] there and float32 [11, 9] here; "
        "lstm.weight_ih_l0 is float32 [32, 8] there and float32 [36, 9] here; "
        "lstm.weight_hh_l0 is float32 [32, 8] there and float32 [36, 9] here; and 6 more"
    )


OTHERS: dict[str, dict[str, object]] = {
    "the optimiser was Adam when it was saved and is SGD now": {
        "optimiser": {"name": "sgd", "lr": 0.1}
    },
    r"moving average \(ema\) was False when it was saved and is True now": {"ema": 0.9},
}


@pytest.mark.parametrize("said", OTHERS)
def test_settings_that_a_checkpoint_cannot_go_on_with_are_named(said: str, tmp_path: Path) -> None:
    run(tmp_path, updates=2)
    with pytest.raises(UserError, match=said):
        run(tmp_path, updates=4, **OTHERS[said])


@dataclass(frozen=True)
class Known(Stream):
    """The stream, which says what it is known by."""

    digest: str = "one"


def test_data_that_have_changed_are_refused(tmp_path: Path) -> None:
    run(tmp_path / "known", stream=Known(), updates=2)
    with pytest.raises(UserError, match=r"digest of the training data was one .* is other now"):
        run(tmp_path / "known", stream=Known(digest="other"), updates=4)
    result, _ = run(tmp_path / "known", stream=Known(), updates=4)
    assert result.update == 4


def test_a_checkpoint_that_does_not_know_its_data_is_gone_on_from(tmp_path: Path) -> None:
    run(tmp_path, updates=2)
    checkpoints = Checkpoints(tmp_path / "state")
    old = checkpoints.load(2)
    facts = {name: each for name, each in old.facts.items() if name != "data"}
    checkpoints.save(replace(old, facts=facts))
    result, _ = run(tmp_path, stream=Known(), updates=4)
    assert result.update == 4


# What can go wrong while one is written


def assert_only_the_last_one_is_there(two: Checkpoints) -> None:
    found = two.newest()
    assert found is not None
    assert not found.corrupt
    assert same(found.checkpoint, example(200))
    assert two.updates() == [100, 200]
    assert [path.name for path in two.folder.iterdir() if "." in path.name] == []


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 10, 100, 300])
def test_a_write_that_the_system_refuses_leaves_the_last_checkpoint(
    two: Checkpoints, size: int
) -> None:
    with pytest.raises(UserError) as caught, no_file_above(size):
        two.save(example(300))
    assert str(caught.value) == (
        f"cannot save the checkpoint {two.path(300)}: File too large; "
        f"the last one, {two.path(200)}, is intact"
    )
    assert_only_the_last_one_is_there(two)


@pytest.mark.parametrize("failing", range(7))
def test_a_disk_that_is_full_at_any_moment_leaves_the_last_checkpoint(
    two: Checkpoints, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = iter(range(100)), os.fsync

    def full(handle: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    if failing < 5:  # four files and their folder; the sixth is after the renaming
        with pytest.raises(UserError, match=r"No space left on device; the last one, .*00000200"):
            two.save(example(300))
        assert_only_the_last_one_is_there(two)
    elif failing == 5:
        with pytest.raises(UserError, match="No space left on device"):
            two.save(example(300))
        assert same(two.load(300), example(300))
    else:
        assert same(Checkpoints(two.folder).load(int(two.save(example(300)).name)), example(300))


def test_training_stopped_by_a_full_disk_goes_on_to_the_same_bits_once_there_is_room(
    tmp_path: Path,
) -> None:
    run(tmp_path / "whole")
    real, calls = os.fsync, iter(range(1000))

    def full(handle: int) -> None:
        if next(calls) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left on device") as caught:
            run(tmp_path / "full")
    assert "\n" not in str(caught.value)
    assert newest(tmp_path / "full").update == 3
    run(tmp_path / "full")
    assert_same(tmp_path / "full", tmp_path / "whole")


@pytest.fixture
def anybody() -> Iterator[Path]:
    """A folder that is not root's alone, while this process is not root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield folder
        os.seteuid(0)
    else:
        yield folder
    folder.chmod(0o777)
    (folder / "state").chmod(0o777)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_gives_one_line_and_keeps_the_last(anybody: Path) -> None:
    checkpoints = Checkpoints(anybody / "state")
    for update in (100, 200):
        checkpoints.save(example(update))
    checkpoints.folder.chmod(0o555)
    with pytest.raises(UserError) as caught:
        checkpoints.save(example(300))
    assert "Permission denied; the last one" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert_only_the_last_one_is_there(checkpoints)


def test_what_a_killed_write_left_behind_is_ignored_and_swept_up(two: Checkpoints) -> None:
    shutil.copytree(two.path(200), two.folder / "00000300.draft")
    shutil.copytree(two.path(100), two.folder / "00000050.old")
    assert two.updates() == [100, 200]
    two.save(example(400))
    assert sorted(path.name for path in two.folder.iterdir()) == [
        "00000100",
        "00000200",
        "00000400",
    ]


def test_only_what_is_to_be_kept_is_kept(two: Checkpoints) -> None:
    two.save(example(300))
    two.keep_only({100, 300})
    assert two.updates() == [100, 300]


# The format


def test_what_is_streamed_is_a_safetensors_file_of_any_kind_of_tensor() -> None:
    tensors: dict[str, Tensor] = {
        str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in SAFETENSORS_DTYPES
    }
    tensors |= {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        'a "name" ä': torch.ones(1),
    }
    back = safetensors.torch.load(b"".join(tensor_pieces(tensors)))
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_a_tensor_that_the_format_cannot_hold_is_named() -> None:
    with pytest.raises(UserError, match=r"wave holds torch\.complex64"):
        list(tensor_pieces({"wave": torch.zeros(2, dtype=torch.complex64)}))
