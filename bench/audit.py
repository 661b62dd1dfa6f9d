"""The audit: the adversary in batches against one text at a time, and all of it on an SST model.

    python -m bench.audit                        (some minutes on a quiet machine)
    python -m bench.audit --quick                (fewer texts and steps)
    python -m bench.audit --run runs/sst-attention

Without --run, `runs/sst-attention` is taken if it is there, and trained by its recipe if it is not
(REGARD_DATA says where the data are). One text at a time has its ten starts together, as a batch
has; each of its steps costs about as many calls as one of a batch, which is what batching saves.
The aims: ten times the speed on 500 sentences, and a default audit of 200 texts under five minutes.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.measure import machine, show
from regard.core.mode import eval_mode
from regard.core.protocols import Batch
from regard.explain.audit import AuditConfig, audit_run
from regard.explain.audited_model import AuditedModel
from regard.explain.build import audited_site, choose_site
from regard.explain.counterfactual import find_adversary
from regard.explain.tests import TESTS
from regard.runs.recipe import read_recipe
from regard.runs.run import Run, create, data_folder, load
from regard.tasks.abilities import Explains

RECIPE = "sst-attention"


def opened(folder: Path) -> Run:
    """The run in the folder; trained now, if there is none."""
    if not (folder / "model.safetensors").exists():
        print(f"{folder}: training {RECIPE} first")
        create(read_recipe(RECIPE), folder, data_folder(None)).train()
    return load(folder)


def seconds(model: AuditedModel, batches: Sequence[Batch], steps: int) -> float:
    """How long the adversary takes over all of them."""
    start = time.perf_counter()
    for batch in batches:
        find_adversary(model, batch, steps=steps)
    return time.perf_counter() - start


def singly(batches: Sequence[Batch], count: int) -> list[Batch]:
    """Every text by itself, without padding, evenly taken from all batches."""
    every = [
        {name: value[row : row + 1] for name, value in batch.items()}
        for batch in batches
        for row in range(len(batch["lengths"]))
    ]
    some = every[:: max(1, len(every) // count)][:count]
    cut: list[Batch] = []
    for text in some:
        length = int(text["lengths"])
        cut.append({name: v[:, :length] if v.dim() > 1 else v for name, v in text.items()})
    return cut


def bench_adversary(run: Run, texts: int, alone: int, steps: int) -> None:
    """Texts per second in batches and one at a time."""
    with eval_mode(run.model):
        assert isinstance(run.task, Explains)
        subject = run.task.subject(run.task.splits[-1], most=texts, seed=0)
        site = audited_site(run.model, choose_site(run.model, subject, None), subject)
        batches = [batch for batch in subject.batches if int(batch["lengths"].min()) > 1]
        count = sum(len(batch["lengths"]) for batch in batches)
        seconds(site, batches[:1], 2)  # warm
        together = seconds(site, batches, steps) / count
        single = singly(batches, alone)
        apart = seconds(site, single, steps) / len(single)
    show(
        f"The adversary, {steps} steps of 10 starts, {count} texts in batches, {len(single)} alone",
        ["", "ms a text", "speed"],
        [
            ["one at a time", f"{1e3 * apart:.1f}", "1.0 x"],
            ["in batches", f"{1e3 * together:.1f}", f"{apart / together:.1f} x (to reach: 10 x)"],
        ],
    )


def bench_audit(run: Run, texts: int) -> None:
    """The default tests one by one, and all of them."""
    rows, total = [], 0.0
    for name in TESTS:
        if name == "heads":
            continue  # one layer of one head has none to compare
        start = time.perf_counter()
        audit_run(run, AuditConfig(examples=texts, tests=(name,)), print)
        rows.append([name, f"{time.perf_counter() - start:.1f}"])
        total += time.perf_counter() - start
    rows.append(["all", f"{total:.1f} (to reach: 300 for 200 texts)"])
    show(f"The default audit, {texts} texts", ["test", "seconds"], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs") / RECIPE)
    parser.add_argument("--quick", action="store_true", help="fewer texts and steps")
    asked = parser.parse_args()
    torch.manual_seed(0)
    run = opened(asked.run)
    print(machine())
    texts, alone, steps = (100, 10, 50) if asked.quick else (500, 50, 500)
    bench_adversary(run, texts, alone, steps)
    bench_audit(run, 50 if asked.quick else 200)


if __name__ == "__main__":
    main()
