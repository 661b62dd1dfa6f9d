"""Attention side by side: our Attend and layers, torch.nn.MultiheadAttention, and the raw kernel.

    python -m bench.attention            (make bench; some minutes on a quiet machine)
    python -m bench.attention --quick    (fewer repeats and no T=2048)

Each line is a ratio of medians of interleaved repeats in one process: above 1 means ours is faster.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import machine, medians, paired_ratio, peak_bytes, show
from regard.attention import Additive, Attend, ScaledDot, record
from regard.layers import EncoderBlock, SelfAttention

B, H, E = 8, 8, 64
D = H * E


def backward(make: Callable[[], Tensor], inputs: list[Tensor]) -> Callable[[], object]:
    """The work, then its gradients."""

    def work() -> None:
        for tensor in inputs:
            tensor.grad = None
        make().sum().backward()

    return work


def kernel(lengths: list[int], repeats: int) -> None:
    """Attend against F.scaled_dot_product_attention on the same tensors."""
    rows = []
    for length in lengths:
        query, key, value = (torch.randn(B, H, length, E, requires_grad=True) for _ in range(3))
        attend = Attend(ScaledDot(E))

        def ours(
            q: Tensor = query, k: Tensor = key, v: Tensor = value, a: Attend = attend
        ) -> Tensor:
            out: Tensor = a(q, a.remember(k, v))
            return out

        def raw(q: Tensor = query, k: Tensor = key, v: Tensor = value) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        count = max(3, repeats * 128 // length)
        inputs = [query, key, value]
        with torch.no_grad():
            forward = paired_ratio(ours, raw, count)
        both = paired_ratio(backward(ours, inputs), backward(raw, inputs), count)
        rows.append((length, f"{forward:.3f}", f"{both:.3f}"))
    show(
        "Attend / raw kernel (goal: at least 0.97 at T >= 512)",
        ["T", "forward", "+ backward"],
        rows,
    )


def layers(lengths: list[int], repeats: int) -> None:
    """Our layer against torch's: without weights, with all weights, and with a few recorded."""
    rows = []
    for length in lengths:
        x = torch.randn(B, length, D, requires_grad=True)
        ours, theirs = SelfAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)

        def plain(x: Tensor = x, layer: SelfAttention = ours) -> Tensor:
            out: Tensor = layer(x)
            return out

        def some(x: Tensor = x, layer: SelfAttention = ours) -> Tensor:
            with record(layer, heads=[3], rows=range(16)):
                out: Tensor = layer(x)
            return out

        def every(x: Tensor = x, layer: SelfAttention = ours) -> Tensor:
            with record(layer):
                out: Tensor = layer(x)
            return out

        def torch_plain(x: Tensor = x, layer: nn.MultiheadAttention = theirs) -> Tensor:
            out: Tensor = layer(x, x, x, need_weights=False)[0]
            return out

        def torch_heads(x: Tensor = x, layer: nn.MultiheadAttention = theirs) -> Tensor:
            out: Tensor = layer(x, x, x, average_attn_weights=False)[0]
            return out

        def torch_mean(x: Tensor = x, layer: nn.MultiheadAttention = theirs) -> Tensor:
            out: Tensor = layer(x, x, x)[0]
            return out

        count = max(3, repeats * 128 // length)
        inputs = [x, *ours.parameters(), *theirs.parameters()]
        peers = (
            ("no weights, of both", plain, torch_plain),
            ("all weights, of both", every, torch_heads),
            ("1 head, 16 rows; torch: each head", some, torch_heads),
            ("1 head, 16 rows; torch: mean of heads", some, torch_mean),
        )
        for name, mine, other in peers:
            ours.train(), theirs.train()
            both = paired_ratio(backward(mine, inputs), backward(other, inputs), count)
            ours.eval(), theirs.eval()
            with torch.no_grad():
                forward = paired_ratio(mine, other, count)
            rows.append((length, name, f"{forward:.2f}", f"{both:.2f}"))
    title = "torch.nn.MultiheadAttention / our layer (goal: at least 1; 3 for 16 rows at T=2048)"
    show(title, ["T", "what is asked", "forward", "+ backward"], rows)


def recording_memory(length: int) -> None:
    """Extra peak memory of recording one head and sixteen rows, as a share of all weights."""
    x, layer = torch.randn(B, length, D), SelfAttention(D, H).eval()

    def plain() -> Tensor:
        with torch.no_grad():
            out: Tensor = layer(x)
        return out

    def recorded() -> object:
        with torch.no_grad(), record(layer, heads=[3], rows=range(16)) as tape:
            out = layer(x)
        return out, tape

    extra = peak_bytes(recorded) - peak_bytes(plain)
    full = B * H * length * length * 4
    rows = [(length, f"{extra / 2**20:.1f}", f"{full / 2**20:.0f}", f"{extra / full:.2%}")]
    header = ["T", "extra MiB", "all weights MiB", "share"]
    show("Recording one head and 16 rows (goal: below 2 %)", header, rows)


def recording_one_layer(length: int, repeats: int) -> None:
    """A 12-layer encoder with one of its layers recorded, against the same encoder unrecorded."""
    encoder = nn.Sequential(*(EncoderBlock(D, H, 4 * D) for _ in range(12))).eval()
    x = torch.randn(B, length, D)

    def plain() -> object:
        with torch.no_grad():
            return encoder(x)

    def recorded() -> object:
        with torch.no_grad(), record(encoder, sites="5.*"):
            return encoder(x)

    extra = 1 / paired_ratio(recorded, plain, max(5, repeats // 4), warmup=1) - 1
    rows = [(length, f"{extra:+.1%}")]
    show("One of 12 layers recorded whole (goal: at most +15 %)", ["T", "cost"], rows)


def additive(repeats: int) -> None:
    """Tiled additive attention against the broadcast version, at B=64 Q=K=30 A=256."""
    batch, length, width = 64, 30, 256
    score = Additive(width)
    query, key = (torch.randn(batch, 1, length, width, requires_grad=True) for _ in range(2))
    inputs = [query, key, *score.parameters()]

    def ours() -> Tensor:
        out: Tensor = score(query, score.prepare(key))
        return out

    def broadcast() -> Tensor:
        hidden = torch.tanh(score.ask(query).unsqueeze(3) + score.answer(key).unsqueeze(2))
        return hidden @ score.vector

    torch.testing.assert_close(ours(), broadcast(), atol=1e-5, rtol=1e-5)
    both = backward(ours, inputs), backward(broadcast, inputs)
    speed = paired_ratio(both[0], both[1], repeats * 2)
    memory = [peak_bytes(work) / 2**20 for work in both]
    rows = [("forward + backward", f"{speed:.2f}", *(f"{each:.0f}" for each in memory))]
    header = ["additive", "speed ratio", "our peak MiB", "broadcast MiB"]
    show("Broadcast additive attention / ours (goal: at least 1, with less memory)", header, rows)


def shares(length: int, repeats: int) -> None:
    """Where the time of a layer goes, in milliseconds of this run."""
    x, layer = torch.randn(B, length, D), SelfAttention(D, H).eval()
    with torch.no_grad():
        query, memory = layer._asked(x, 0)
        works = {
            "whole layer": lambda: layer(x),
            "projection": lambda: layer.project(x),
            "attend": lambda: layer.attend(query, memory),
            "merge": lambda: layer.merge(x),
        }
        spent = medians(works, repeats)
    rows = [(name, f"{seconds * 1e3:.1f}") for name, seconds in spent.items()]
    show(f"Our layer at T={length}", ["part", "ms"], rows)


def main() -> None:
    """Run every comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and no T=2048")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    print(machine())
    lengths = [128, 512] if quick else [128, 512, 2048]
    repeats = 10 if quick else 40
    kernel(lengths, repeats)
    layers(lengths, repeats)
    recording_memory(lengths[-1])
    recording_one_layer(512, repeats)
    additive(repeats)
    shares(512, repeats)


if __name__ == "__main__":
    main()
