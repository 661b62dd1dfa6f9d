"""Captions of images, in the formats that people have them in.

- Flickr: `photo.jpg#0`, a tab, a caption; a line each. TSV is the same without the number.
- JSONL: `{"image": "photo.jpg", "caption": "..."}` a line, or `"captions"` with a list.
- COCO: one JSON object with `images` (`id`, `file_name`) and `annotations` (`image_id`, `caption`).
- Karpathy's splits: one JSON object with `images` (`filename`, `split`, `sentences` of `raw`).

Any of them may be gzipped. A list of names, a file with one a line, chooses the images of a split.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import UserError
from regard.data.text.files import open_bytes, read_lines

_NUMBER = re.compile(r"#\d+$")
_MOST_BYTES = 2**30
"""Of a JSON file, which is read whole: COCO's have 90 million."""


@dataclass(frozen=True)
class Captioned:
    """An image and what people wrote about it."""

    image: str
    """The name of its file."""
    captions: tuple[str, ...]
    where: str
    """The place of the first caption, for errors."""


def read_captions(path: Path, split: str | None = None) -> list[Captioned]:
    """The captions of a file by image, in the order in which the images first occur.

    `split` is the one to take of a file that names splits, as Karpathy's do.
    """
    name = path.name.removesuffix(".gz")
    rows = _json_rows(path, split) if name.endswith(".json") else _line_rows(path, name)
    found: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for image, caption, where in rows:
        text = " ".join(caption.split())
        if not text:
            raise UserError(f"{where}: the caption of {image!r} is empty")
        found.setdefault(image, []).append(text)
        places.setdefault(image, where)
    if not found:
        raise UserError(f"{path}: there are no captions in it")
    return [Captioned(image, tuple(texts), places[image]) for image, texts in found.items()]


def read_names(path: Path) -> list[str]:
    """The names of a list, one a line."""
    return [text.strip() for _, (text,) in read_lines(str(path)) if text.strip()]


def chosen(captions: list[Captioned], names: list[str], path: Path) -> list[Captioned]:
    """The captions of the images in a list, in its order."""
    by_name = {each.image: each for each in captions}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise UserError(
            f"{path}: {len(missing)} of {len(names)} images have no caption, the first is "
            f"{missing[0]!r}"
        )
    return [by_name[name] for name in names]


_Row = tuple[str, str, str]
"""An image, a caption, and where it stands."""


def _line_rows(path: Path, name: str) -> Iterator[_Row]:
    for number, (line,) in read_lines(str(path)):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if name.endswith(".jsonl"):
            yield from _jsonl_rows(line, where)
            continue
        image, tab, caption = line.partition("\t")
        if not tab:
            raise UserError(f"{where}: expected the name of an image, a tab, and a caption")
        yield _NUMBER.sub("", image.strip()), caption, where


def _jsonl_rows(line: str, where: str) -> Iterator[_Row]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{where}: not JSON: {problem}") from None
    image = row.get("image") if isinstance(row, dict) else None
    captions = row.get("captions", [row.get("caption")]) if isinstance(row, dict) else None
    if not isinstance(image, str) or not isinstance(captions, list):
        raise UserError(f'{where}: expected {{"image": "photo.jpg", "caption": "..."}}')
    for caption in captions:
        if not isinstance(caption, str):
            raise UserError(f"{where}: a caption must be a text, not {type(caption).__name__}")
        yield image, caption, where


def _json_rows(path: Path, split: str | None) -> Iterator[_Row]:
    with open_bytes(str(path)) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path}: more than {_MOST_BYTES:,} bytes; give JSONL instead")
    try:
        held = json.loads(data)
        images = held["images"]
        if "annotations" in held:
            names = {each["id"]: str(each["file_name"]) for each in images}
            for each in held["annotations"]:
                yield names[each["image_id"]], str(each["caption"]), str(path)
            return
        for each in images:
            if split is None or each.get("split") == split:
                for sentence in each["sentences"]:
                    yield str(each["filename"]), str(sentence["raw"]), str(path)
    except (ValueError, RecursionError, KeyError, TypeError) as problem:
        raise UserError(
            f"{path}: neither COCO's captions nor Karpathy's splits: {type(problem).__name__} "
            f"{problem}"
        ) from None
