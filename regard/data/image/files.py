"""Images by name: those of a folder, or of a .zip file.

The name of an image may end otherwise than its file does, `.jpg` for `.webp` say, because captions
keep the names of the original photographs.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from regard.core.errors import UserError, nearest
from regard.core.inputs import LOCAL_LIMITS, Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
_MOST_BYTES = LOCAL_LIMITS.file_bytes


@dataclass(frozen=True)
class ImageFiles:
    """The images of a folder or of a .zip file."""

    path: Path
    places: Mapping[str, str]
    """The place of each image in it, by its name without folders and ending."""

    def __contains__(self, name: str) -> bool:
        return _stem(name) in self.places

    def read(self, name: str) -> Image:
        """One image."""
        place = self.places.get(_stem(name))
        if place is None:
            near = nearest(_stem(name), self.places)
            hint = f"; did you mean {near}?" if near else ""
            raise UserError(f"{self.path}: there is no image {name!r}{hint}")
        return Image.from_bytes(self._bytes(place), f"{self.path}, {place}", LOCAL_LIMITS)

    def _bytes(self, place: str) -> bytes:
        if self.path.is_dir():
            return (self.path / place).read_bytes()
        with zipfile.ZipFile(self.path) as held:
            size = held.getinfo(place).file_size
            if size > _MOST_BYTES:
                raise UserError(f"{self.path}, {place}: {size:,} bytes are too large for an image")
            return held.read(place)


def open_images(path: Path) -> ImageFiles:
    """The images of a folder, of the folders in it, or of a .zip file."""
    if path.is_dir():
        names = [each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()]
    elif path.is_file():
        try:
            with zipfile.ZipFile(path) as held:
                names = held.namelist()
        except (OSError, zipfile.BadZipFile) as problem:
            raise UserError(f"{path}: not a .zip file that can be read: {problem}") from None
    else:
        raise UserError(f"{path}: no such folder or .zip file of images")
    places: dict[str, str] = {}
    for name in sorted(names):
        if PurePosixPath(name).suffix.lower() not in SUFFIXES:
            continue
        before = places.setdefault(_stem(name), name)
        if before != name:
            raise UserError(f"{path}: two images have the same name: {before} and {name}")
    if not places:
        raise UserError(f"{path}: there are no images in it ({', '.join(SUFFIXES)})")
    return ImageFiles(path, places)


def _stem(name: str) -> str:
    """The name of an image, whatever its folder and ending.

    >>> _stem("images/cat.jpg"), _stem("cat.webp"), _stem("a.b.png")
    ('cat', 'cat', 'a.b')
    """
    pure = PurePosixPath(name)
    return pure.stem if pure.suffix.lower() in SUFFIXES else pure.name
