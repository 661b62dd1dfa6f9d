"""Big blocks stay with the process that computes, whatever the verb."""

import subprocess
import sys

import pytest
import torch

from regard.core.allocation import keep_freed_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt belongs to glibc")

FAULTS = """
import resource, sys
from regard import cli
sys.argv = ["regard", "zoo", "--help"]
{begin}
import torch
def step(): torch.empty(1 << 24).fill_(1.0)
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""How many pages 40 steps ask for, each with a block larger than malloc keeps by itself."""

VERB = """
try: cli.main()
except SystemExit: pass
"""


def faults(begin: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(begin=begin)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def test_steady_allocation_takes_hold_and_stays() -> None:
    assert keep_freed_memory()
    assert keep_freed_memory()
    assert torch.ones(1 << 22).sum().item() == 1 << 22


def test_after_any_verb_big_blocks_are_kept_instead_of_asked_for_anew() -> None:
    assert 3 * faults(VERB) < faults("")
