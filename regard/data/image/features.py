"""Features of a frozen network for many images, computed once and mapped from a file.

The file has half precision and lies in the cache folder, under a digest of what it depends on: the
network's weights, the layer, the images and their order. It is written in pieces, and how far it
has come is kept beside it, so that a computation that was interrupted goes on where it stopped.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.core.atomic import os_errors_as_user_errors, write_json_file
from regard.core.inputs import Image
from regard.data.cache import cache_folder, content_digest
from regard.data.image.files import ImageFiles
from regard.data.image.lite0 import CHANNELS, SIDE, STRIDES, Layer, Lite0

_PIECE = 32
"""Images that go through the network together."""

FeatureProgress = Callable[[int, int], None]
"""Called with the number of images that are done, and of all."""


def grid_of(layer: Layer, side: int = SIDE) -> int:
    """How many places there are along each side of a map."""
    return -(-side // STRIDES[layer])


def scaled(image: Image, side: int = SIDE) -> UInt8[Tensor, "3 S S"]:
    """An image in the size that the network reads, without keeping its proportions.

    The whole image is read, so that every place of it has a place on the map.
    """
    pixels = image.pixels.expand(3, -1, -1)[None].float()
    small = F.interpolate(pixels, (side, side), mode="bicubic", antialias=True)
    return small[0].round().clamp(0, 255).to(torch.uint8)


def features_of(
    network: Lite0, images: Sequence[Image], layer: Layer, side: int = SIDE
) -> Float[Tensor, "B N C"]:
    """A row of features for each place of each image, row by row."""
    pixels = torch.stack([scaled(each, side) for each in images])
    maps: Tensor = network(pixels, layer)  # [B,C,R,S]
    return maps.flatten(2).transpose(1, 2)


def cached_features(
    network: Lite0,
    files: ImageFiles,
    names: Sequence[str],
    layer: Layer,
    *,
    side: int = SIDE,
    folder: Path | None = None,
    progress: FeatureProgress | None = None,
) -> Float[Tensor, "B N C"]:
    """The features of all these images in half precision, from the cache or computed now."""
    shape = (len(names), grid_of(layer, side) ** 2, CHANNELS[layer])
    stamp = json.dumps([network.digest, layer, side, _images_digest(files), list(names)])
    top = (cache_folder() if folder is None else folder) / "features"
    path = top / f"{hashlib.sha256(stamp.encode()).hexdigest()}.npy"
    done = path.with_suffix(".json")
    with os_errors_as_user_errors(path):
        top.mkdir(parents=True, exist_ok=True)
        first = _done(done, path, shape)
        if first < len(names):
            _compute(network, files, names, layer, side, path, first, progress)
        table = numpy.memmap(path, dtype=numpy.float16, mode="r+", shape=shape)
    return torch.from_numpy(table)


def _compute(
    network: Lite0,
    files: ImageFiles,
    names: Sequence[str],
    layer: Layer,
    side: int,
    path: Path,
    first: int,
    progress: FeatureProgress | None,
) -> None:
    """Fill the table from an image on; images are read ahead by other threads."""
    shape = (len(names), grid_of(layer, side) ** 2, CHANNELS[layer])
    if not first:
        numpy.memmap(path, dtype=numpy.float16, mode="w+", shape=shape).flush()
    table = numpy.memmap(path, dtype=numpy.float16, mode="r+", shape=shape)
    for begin, pixels in _pieces(files, names, side, first):
        maps = network(pixels, layer).flatten(2).transpose(1, 2)  # [B,N,C]
        table[begin : begin + len(pixels)] = maps.half().numpy()
        table.flush()
        write_json_file(path.with_suffix(".json"), {"done": begin + len(pixels)})
        if progress is not None:
            progress(begin + len(pixels), len(names))


def _pieces(
    files: ImageFiles, names: Sequence[str], side: int, first: int
) -> Iterator[tuple[int, UInt8[Tensor, "B 3 S S"]]]:
    """The images in pieces, each read while the piece before it is computed."""

    def read(begin: int) -> Tensor:
        some = names[begin : begin + _PIECE]
        return torch.stack([scaled(files.read(name), side) for name in some])

    begins = range(first, len(names), _PIECE)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(read, begins[0]) if len(begins) else None
        for place, begin in enumerate(begins):
            assert ahead is not None
            pixels = ahead.result()
            after = begins[place + 1] if place + 1 < len(begins) else None
            ahead = None if after is None else pool.submit(read, after)
            yield begin, pixels


def _done(note: Path, path: Path, shape: tuple[int, int, int]) -> int:
    """How many images an earlier computation has left in the table."""
    try:
        known = json.loads(note.read_text(encoding="utf-8"))["done"]
        whole = path.stat().st_size == shape[0] * shape[1] * shape[2] * 2
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return known if whole and isinstance(known, int) and 0 <= known <= shape[0] else 0


def _images_digest(files: ImageFiles) -> str:
    """A digest of an archive; of a folder, that of names, sizes and times."""
    if files.path.is_file():
        return content_digest(files.path, cache_folder())
    found = hashlib.sha256()
    for place in sorted(files.places.values()):
        status = (files.path / place).stat()
        found.update(f"{place}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return found.hexdigest()
