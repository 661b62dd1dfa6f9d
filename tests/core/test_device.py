"""Devices and probed precisions."""

import subprocess
import sys

import pytest
import torch

from regard.core import device
from regard.core.errors import UserError

CPU = torch.device("cpu")


def test_auto_picks_a_device_that_computes() -> None:
    picked = device.pick_device("auto")
    assert torch.ones(2, device=picked).sum().item() == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_a_device_that_is_not_there_is_refused_and_those_there_are_named() -> None:
    with pytest.raises(UserError, match="'cuda:0' is not on this machine; there is: auto, cpu"):
        device.pick_device("cuda:0")


def test_a_number_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="'cpu:3': the number must be below 1"):
        device.pick_device("cpu:3")


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown precision 'bfloat': did you mean 'bfloat16'"):
        device.precision_works("bfloat", CPU)


@pytest.fixture
def fresh_probe() -> None:
    device._probed.cache_clear()


@pytest.mark.usefixtures("fresh_probe")
def test_a_precision_that_kills_the_process_is_found_out_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadly = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(device, "_PROBE", deadly)
    assert device.precision_problem("bfloat16", CPU) == "a trial was killed by SIGILL"
    assert not device.precision_works("bfloat16", CPU)
    device._probed.cache_clear()


@pytest.mark.usefixtures("fresh_probe")
def test_the_probe_agrees_with_what_happens_in_a_process_that_just_does_it() -> None:
    code = (
        "import torch\nm = torch.nn.Linear(64, 256)\n"
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "    m(torch.randn(512, 64)).float().sum().backward()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert device.precision_works("bfloat16", CPU) == (done.returncode == 0)


def test_products_are_computed_in_the_precision_asked_for() -> None:
    with device.use_precision("float32", CPU):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.float32
    with device.use_precision("bfloat16", CPU):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_a_kernel_that_a_precision_lacks_is_said_with_the_precision() -> None:
    with (
        pytest.raises(UserError, match="in precision 'bfloat16' the model failed on cpu: no LSTM"),
        device.use_precision("bfloat16", CPU),
    ):
        raise RuntimeError("no LSTM\nand more")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert device.device_of_rank("auto") == torch.device("cuda")
    for rank in (0, 1):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        assert device.device_of_rank("auto") == torch.device("cuda", rank)
        assert device.device_of_rank("cuda") == torch.device("cuda", rank)
        assert device.device_of_rank("cuda:1") == torch.device("cuda", 1)
        assert device.device_of_rank("cpu") == CPU
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UserError, match=r"process 2 of this machine needs a GPU .* there are 2"):
        device.device_of_rank("auto")
