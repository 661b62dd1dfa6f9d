"""Durable: files that are whole on the disk or not there, and their sums.

Tensors are written in the safetensors format as a stream, straight from where they lie, and hashed
on the way: copying them into one string first would take longer than all the rest.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.core.atomic import replacing
from regard.core.errors import UserError

CODES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls each kind of number."""

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Sum:
    """What a file must be to be the one that was written."""

    bytes: int
    sha256: str


def write(path: Path, pieces: Iterable[bytes | memoryview]) -> Sum:
    """Write a new file through to the disk; its length and SHA-256."""
    digest, length = hashlib.sha256(), 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            length += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return Sum(length, digest.hexdigest())


def replace(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file that appears under its name only when it is whole."""
    with replacing(path) as file:
        for piece in pieces:
            file.write(piece)


def tensor_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file of these tensors, piece by piece.

    >>> from safetensors.torch import load
    >>> load(b"".join(tensor_pieces({"weight": torch.tensor([1.0, 2.0])})))
    {'weight': tensor([1., 2.])}
    """
    # Wide numbers come first, which keeps every tensor aligned for readers that map the file.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in CODES:
            raise UserError(f"{name} holds {tensor.dtype}, which safetensors files cannot")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        plain = tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8)
        view = plain.numpy().data
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]
