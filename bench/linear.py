"""Linear layers side by side: ours, which may multiply by oneDNN, and torch.nn's.

    python -m bench.linear          (two minutes on a quiet machine)

Each line is a ratio of medians of interleaved repeats: above 1 means ours is faster. Both run in
one process, since they share one torch.
"""

import argparse

import torch
from torch import nn

from bench.measure import Work, machine, medians, show
from regard.core.allocation import keep_freed_memory
from regard.kernels.linear import Linear, uses_onednn

SIZES = ((128, 512), (384, 1152), (384, 1536), (768, 768), (768, 3072), (3072, 768))
"""Width in and out: layers of BERT-tiny, of the GPT in bench/lm.py, and of BERT-base."""
ROWS = (8, 128, 512, 3072)


def forward(linear: nn.Linear, x: torch.Tensor) -> Work:
    """A product, as in inference."""

    @torch.inference_mode()
    def work() -> None:
        linear(x)

    return work


def there_and_back(linear: nn.Linear, x: torch.Tensor) -> Work:
    """A product and its gradients."""
    x = x.clone().requires_grad_()
    slope = torch.randn(x.shape[0], linear.out_features)

    def work() -> None:
        linear(x).backward(slope)
        x.grad = linear.weight.grad = linear.bias.grad = None

    return work


def main() -> None:
    """All sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    keep_freed_memory()
    print(machine())
    rows = []
    for width, outputs in SIZES:
        for count in ROWS:
            ours, theirs = Linear(width, outputs), nn.Linear(width, outputs)
            x = torch.randn(count, width)
            line: list[object] = [f"{width} -> {outputs}", count]
            for make in (forward, there_and_back):
                seconds = medians({"ours": make(ours, x), "theirs": make(theirs, x)}, repeats)
                line.append(f"{seconds['theirs'] / seconds['ours']:.2f}")
            rows.append([*line, "oneDNN" if uses_onednn(x, ours.weight) else "BLAS"])
    show(
        "Linear layers by torch.nn.Linear",
        ["weight", "rows", "forward", "forward + backward", "ours by"],
        rows,
    )


if __name__ == "__main__":
    main()
