"""Converters from the authors' layout, where copying files does not do.

A converter takes the originals by name and the folder to write to.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from regard.core.errors import UserError
from regard.datasets.archive import files_inside
from regard.datasets.handwriting import convert_iam_ondb
from regard.datasets.write import open_compressed, write_archive

Converter = Callable[[Mapping[str, Path], Path], None]
"""Writes the files of a dataset, given its originals by name and a folder."""

_REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_(\d+)\.txt")


def convert_imdb(originals: Mapping[str, Path], folder: Path) -> None:
    """Reviews as rows of label, rating, number and text, by number, negative before positive."""
    rows: dict[str, list[tuple[int, int, int, str]]] = {"train": [], "test": []}
    for name, file in files_inside(originals["aclImdb_v1.tar.gz"]):
        found = _REVIEW.fullmatch(name)
        if found:
            split, label, number, rating = found.groups()
            text = _one_line(file.read(), name)
            rows[split].append((int(number), int(label == "pos"), int(rating), text))
    for split, several in rows.items():
        if not several:
            raise UserError(f"aclImdb_v1.tar.gz: has no file aclImdb/{split}/pos/*.txt")
        with open_compressed(folder / f"imdb.{split}.tsv.xz") as target:
            for number, label, rating, text in sorted(several):
                target.write(f"{label}\t{rating}\t{number}\t{text}\n".encode())


def _one_line(raw: bytes, name: str) -> str:
    """A text without tabs and line breaks, which would end a cell or a row."""
    try:
        return " ".join(re.split(r"[\t\r\n]", raw.decode()))
    except UnicodeDecodeError as problem:
        raise UserError(f"{name}: byte {problem.start + 1} is not UTF-8") from None


def convert_an4(originals: Mapping[str, Path], folder: Path) -> None:
    """WAV files as Ogg Vorbis in one archive, and a table of path, seconds and text per split."""
    import soundfile

    audio: dict[str, bytes] = {}
    seconds: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, file in files_inside(originals["an4.zip"]):
        _, _, inside = name.partition("/")  # the folder of the repository and its commit
        if inside.startswith("wav/") and inside.endswith(".wav"):
            wave, rate = soundfile.read(io.BytesIO(file.read()), dtype="float32")
            packed = io.BytesIO()
            soundfile.write(packed, wave, rate, format="OGG", subtype="VORBIS")
            path = inside.removeprefix("wav/").removesuffix(".wav")
            audio[f"{path}.ogg"], seconds[path] = packed.getvalue(), len(wave) / rate
        elif inside.startswith("etc/"):
            texts[inside] = file.read().decode()
    write_archive(folder / "audio.zip", audio)
    for split in ("train", "test"):
        with open_compressed(folder / f"{split}.tsv") as target:
            for path, text in _an4_lines(texts, split):
                target.write(f"{path}.ogg\t{seconds[path]:.3f}\t{text}\n".encode())


def _an4_lines(texts: Mapping[str, str], split: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each utterance of a split."""
    try:
        paths = texts[f"etc/an4_{split}.fileids"].split()
        lines = texts[f"etc/an4_{split}.transcription"].splitlines()
    except KeyError as missing:
        raise UserError(f"an4.zip: has no {missing.args[0]}") from None
    for path, line in zip(paths, lines, strict=True):
        words, _, name = line.rpartition("(")
        if name.strip(" )") != path.rpartition("/")[2]:
            raise UserError(f"an4.zip: {line!r} is not the transcription of {path}")
        yield path, re.sub(r"</?s>", " ", words).strip()


def convert_flickr8k(originals: Mapping[str, Path], folder: Path) -> None:
    """The lists of the three splits, and the captions of their images."""
    texts = dict(_texts_inside(originals["Flickr8k_text.zip"]))
    names: set[str] = set()
    for split in ("train", "dev", "test"):
        name = f"Flickr_8k.{split}Images.txt"
        listed = texts[name].split()
        names |= set(listed)
        with open_compressed(folder / name) as target:
            target.write("".join(f"{each}\n" for each in listed).encode())
    with open_compressed(folder / "Flickr8k.token.txt.gz") as target:
        for line in texts["Flickr8k.token.txt"].splitlines():
            if line.partition("#")[0] in names:
                target.write(f"{line}\n".encode())


def _texts_inside(path: Path) -> Iterator[tuple[str, str]]:
    for name, file in files_inside(path):
        if name.endswith(".txt") and not name.startswith("__MACOSX"):
            yield name.rpartition("/")[2], file.read().decode("utf-8", "replace")


def convert_flickr8k_160(originals: Mapping[str, Path], folder: Path) -> None:
    """The photographs at 160 x 160, as WebP in one archive; the aspect ratio is not kept."""
    from PIL import Image

    images: dict[str, bytes] = {}
    for name, file in files_inside(originals["Flickr8k_Dataset.zip"]):
        base = name.rpartition("/")[2]
        if base.endswith(".jpg") and not name.startswith("__MACOSX"):
            with Image.open(io.BytesIO(file.read())) as image:
                small = image.convert("RGB").resize((160, 160), Image.Resampling.LANCZOS)
            packed = io.BytesIO()
            small.save(packed, "WEBP", quality=70)
            images[f"{base.removesuffix('.jpg')}.webp"] = packed.getvalue()
    if not images:
        raise UserError("Flickr8k_Dataset.zip: has no .jpg file")
    write_archive(folder / "images160.zip", images)


def convert_ag_news(originals: Mapping[str, Path], folder: Path) -> None:
    """Rows of class, title and description in quotes, as class<TAB>title and description."""
    import csv

    for split in ("train", "test"):
        with (
            originals[f"{split}.csv"].open(encoding="utf-8", newline="") as file,
            open_compressed(folder / f"{split}.tsv.xz") as target,
        ):
            for number, row in enumerate(csv.reader(file), 1):
                if len(row) != 3:
                    raise UserError(f"{split}.csv:{number}: {len(row)} cells instead of 3")
                text = " ".join(f"{row[1]} {row[2]}".split())
                target.write(f"{row[0]}\t{text}\n".encode())


CONVERTERS: dict[str, Converter] = {
    "imdb": convert_imdb,
    "an4": convert_an4,
    "flickr8k": convert_flickr8k,
    "flickr8k_160": convert_flickr8k_160,
    "iam_ondb": convert_iam_ondb,
    "ag_news": convert_ag_news,
}
"""The converters that a dataset may name."""
