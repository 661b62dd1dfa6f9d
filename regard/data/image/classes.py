"""Images by class: a folder for each class, or an .npz file; and few-shot episodes from them.

In a folder every folder that holds images directly is a class, named by its path. An .npz file has
`images` [classes, images, height, width], as Omniglot's do; booleans are paper (true) and ink.
Images become grey or RGB squares of one size between 0 (paper) and 1 (ink, for images with a light
background) with the mean over each pixel.
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import UserError
from regard.core.inputs import LOCAL_LIMITS, Image
from regard.core.protocols import Batch
from regard.data.batch import ShardableBatches, check_index, random_integers, tensor_digest

_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")

_MOST_BYTES = 1 << 31
"""Of an array in an .npz file."""


@dataclass(frozen=True)
class ImageClasses:
    """Some images of each class."""

    images: tuple[Float[Tensor, "N C S S"], ...]
    """Of each class."""
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, places: list[int]) -> "ImageClasses":
        """Only these classes."""
        return ImageClasses(
            tuple(self.images[each] for each in places), tuple(self.names[each] for each in places)
        )

    def rotated(self) -> "ImageClasses":
        """Rotations by 90, 180 and 270 degrees as further classes (Santoro et al. 2016)."""
        turned = [
            (each.rot90(turns, (2, 3)), f"{name}, {90 * turns} degrees" if turns else name)
            for turns in range(4)
            for each, name in zip(self.images, self.names, strict=True)
        ]
        images, names = zip(*turned, strict=True)
        return ImageClasses(images, names)


def read_image_classes(path: Path, size: int, colours: int = 1) -> ImageClasses:
    """The classes of a folder or of an .npz file, as images of `size` x `size` pixels."""
    if path.is_dir():
        return _read_folder(path, size, colours)
    if path.suffix == ".npz" and path.is_file():
        return _read_npz(path, size, colours)
    what = "is neither a folder nor an .npz file" if path.exists() else "no such file or folder"
    raise UserError(f"{path}: {what}; give a folder with a folder for each class, or an .npz file")


def square_image(image: Image, size: int, colours: int) -> Float[Tensor, "C S S"]:
    """An image as a square: ink is 1, white paper 0."""
    pixels = image.pixels.float() / 255
    if colours == 1:
        pixels = pixels.mean(0, keepdim=True)
    scaled = F.interpolate(
        pixels.expand(colours, -1, -1)[None], (size, size), mode="bilinear", antialias=True
    )
    return 1 - scaled[0].clamp(0, 1)


def _read_folder(top: Path, size: int, colours: int) -> ImageClasses:
    images, names = [], []
    for folder in sorted(each for each in (top, *top.rglob("*")) if each.is_dir()):
        files = sorted(each for each in folder.iterdir() if each.suffix.lower() in _PICTURES)
        if not files:
            continue
        read = (Image.from_bytes(file.read_bytes(), str(file), LOCAL_LIMITS) for file in files)
        images.append(torch.stack([square_image(each, size, colours) for each in read]))
        names.append(folder.relative_to(top).as_posix())
    if not images:
        raise UserError(f"{top}: there are no images in its folders ({', '.join(_PICTURES)})")
    return ImageClasses(tuple(images), tuple(names))


def _read_npz(path: Path, size: int, colours: int) -> ImageClasses:
    try:
        with zipfile.ZipFile(path) as held:
            entry = held.getinfo("images.npy")
            if entry.file_size > _MOST_BYTES:
                raise UserError(f"{path}: images of {entry.file_size:,} bytes are too large")
            array = numpy.load(io.BytesIO(held.read(entry)), allow_pickle=False)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as problem:
        raise UserError(f"{path}: no array `images` can be read: {problem}") from None
    if array.ndim != 4 or min(array.shape) < 1:
        raise UserError(
            f"{path}: images must be [classes, images, height, width], not {list(array.shape)}"
        )
    whole = 1.0 if array.dtype == numpy.bool_ else 255.0
    images = []
    for each in array:  # class by class: all of them as floats would be gigabytes
        pixels = torch.from_numpy(each.astype(numpy.float32))[:, None] / whole
        scaled = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
        images.append((1 - scaled.clamp(0, 1)).expand(-1, colours, -1, -1))
    return ImageClasses(tuple(images), tuple(str(number) for number in range(len(array))))


class EpisodeBatches(ShardableBatches):
    """Few-shot episodes: `ways` classes with `shots` examples each, and queries of these classes.

    An episode is a function of (seed, epoch, index). Examples come in random order, and so do the
    numbers of the classes. Each class has the same number of queries, as far as they divide.
    """

    prefetchable = True

    def __init__(
        self,
        classes: ImageClasses,
        *,
        ways: int,
        shots: int,
        queries: int,
        batch: int,
        steps: int,
        seed: int,
        what: str = "training",
    ) -> None:
        super().__init__(batch)
        per_class = shots + -(-queries // ways)
        enough = [place for place in range(len(classes)) if len(classes.images[place]) >= per_class]
        if len(enough) < ways:
            raise UserError(
                f"an episode needs ways={ways} classes with {per_class} images each (shots={shots} "
                f"and {per_class - shots} for queries); of the {len(classes)} {what} classes only "
                f"{len(enough)} have as many: lower data.ways, data.shots or data.queries"
            )
        chosen = classes.take(enough)
        self._counts = torch.tensor([len(each) for each in chosen.images])
        self._firsts = self._counts.cumsum(0) - self._counts
        self._images = torch.cat(chosen.images)
        self._ways, self._shots, self._queries = ways, shots, queries
        self._steps, self._seed = steps, seed

    def __len__(self) -> int:
        return self._steps

    @property
    def digest(self) -> str:
        """The digest of all images."""
        return tensor_digest(self._images)

    def batch(self, epoch: int, index: int) -> Batch:
        """Images [B,T,C,S,S], the labels of examples [B,n], and the classes of queries [B,Q]."""
        check_index(index, len(self))
        parts = [self._episode(epoch, index, row) for row in range(self.rows)]
        places, labels, targets = (torch.stack(each) for each in zip(*parts, strict=True))
        return {"images": self._images[places], "labels": labels, "classes": targets}

    def _episode(self, epoch: int, index: int, row: int) -> tuple[Tensor, Tensor, Tensor]:
        """The images of an episode by number, the labels of examples, the classes of queries."""
        ways, shots = self._ways, self._shots
        deep = int(self._counts.max())
        total = len(self._counts) + ways * deep + ways * shots + self._queries
        drawn = iter(
            random_integers(total, self._seed, epoch, index, row).split(
                [len(self._counts), ways * deep, ways * shots, self._queries]
            )
        )
        classes = next(drawn).argsort()[:ways]  # [N]
        order = next(drawn).view(ways, deep)
        beyond = torch.arange(deep) >= self._counts[classes][:, None]
        order = order.masked_fill(beyond, 2**63 - 1).argsort(1)  # images of each class, shuffled
        own = self._firsts[classes][:, None] + order  # [N,deep]
        turn = next(drawn).argsort()
        labels = torch.arange(ways).repeat_interleave(shots)[turn]
        examples = own[:, :shots].flatten()[turn]
        mix = next(drawn).argsort()
        per_class = -(-self._queries // ways)
        asked = torch.arange(ways).repeat(per_class)[: self._queries]
        nth = torch.arange(per_class).repeat_interleave(ways)[: self._queries]
        queries = own[asked, shots + nth][mix]
        return torch.cat([examples, queries]), labels, asked[mix]


def class_split(classes: ImageClasses, share: float, seed: int) -> Iterator[ImageClasses]:
    """The classes to train on, and the share of them that is kept apart; no class is in both."""
    order = random_integers(len(classes), seed).argsort().tolist()
    apart = max(1, round(share * len(classes)))
    yield classes.take(sorted(order[apart:]))
    yield classes.take(sorted(order[:apart]))
