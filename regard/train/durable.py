"""Writing files through to the disk, with their checksums.

Tensors are streamed in the safetensors format, straight from their memory, and hashed on the way:
copying them into one byte string first would take longer than everything else.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.core.atomic import replace_atomically
from regard.core.errors import UserError

SAFETENSORS_DTYPES: dict[torch.dtype, str] = {
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
"""The name of each dtype in the safetensors format."""

_CHUNK = 1 << 22


@dataclass(frozen=True)
class FileDigest:
    """The length and checksum of a file."""

    bytes: int
    sha256: str


def write_durably(path: Path, pieces: Iterable[bytes | memoryview]) -> FileDigest:
    """Write a new file through to the disk; return its length and SHA-256."""
    digest, length = hashlib.sha256(), 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            length += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return FileDigest(length, digest.hexdigest())


def replace_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file that appears under its name only when it is complete."""
    with replace_atomically(path) as file:
        for piece in pieces:
            file.write(piece)


def tensor_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file of these tensors, in pieces.

    >>> from safetensors.torch import load
    >>> load(b"".join(tensor_pieces({"weight": torch.tensor([1.0, 2.0])})))
    {'weight': tensor([1., 2.])}
    """
    # Wide dtypes come first, which keeps every tensor aligned for readers that map the file.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in SAFETENSORS_DTYPES:
            raise UserError(f"{name} holds {tensor.dtype}, which safetensors files cannot")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": SAFETENSORS_DTYPES[tensor.dtype],
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
