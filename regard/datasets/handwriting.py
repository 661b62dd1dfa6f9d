"""The IAM On-Line Handwriting Database: pen strokes from XML, with the text of each line.

The whiteboard's points become offsets from point to point. `lineStrokes-all.tar.gz` holds
`lineStrokes/a01/a01-000/a01-000u-01.xml`; `ascii-all.tar.gz` holds `ascii/a01/a01-000/a01-000u.txt`
with the lines of the form after `CSR:`. The official lists name the forms of each split.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import numpy
from numpy.typing import NDArray

from regard.core.errors import UserError
from regard.datasets.archive import files_inside
from regard.datasets.write import open_compressed

SPLIT_LISTS = {
    "train": "trainset.txt",
    "val1": "testset_v.txt",
    "val2": "testset_t.txt",
    "test": "testset_f.txt",
}
"""The official lists of forms (task IAM-OnDB-t1), by split."""

_MAX_XML_BYTES = 10_000_000
_Ints = NDArray[numpy.int16]


def convert_iam_ondb(originals: Mapping[str, Path], folder: Path) -> None:
    """Offsets of all lines in `strokes.npz`, and `lines.tsv`: id, split, points, text."""
    texts = _transcripts(originals["ascii-all.tar.gz"])
    splits = {
        form: split
        for split, name in SPLIT_LISTS.items()
        for form in originals[name].read_text().split()
    }
    strokes: dict[str, tuple[_Ints, _Ints, NDArray[numpy.bool_]]] = {}
    for name, file in files_inside(originals["lineStrokes-all.tar.gz"]):
        if name.endswith(".xml"):
            strokes[Path(name).stem] = line_offsets(file.read(_MAX_XML_BYTES), name)
    kept = [line for line in sorted(strokes) if line in texts]
    if not kept:
        raise UserError("lineStrokes-all.tar.gz and ascii-all.tar.gz have no line in common")
    parts = [strokes[line] for line in kept]
    folder.mkdir(parents=True, exist_ok=True)
    counts = [len(dx) for dx, _, _ in parts]
    numpy.savez_compressed(
        folder / "strokes.npz",
        dx=numpy.concatenate([dx for dx, _, _ in parts]),
        dy=numpy.concatenate([dy for _, dy, _ in parts]),
        up=numpy.packbits(numpy.concatenate([up for _, _, up in parts])),
        offsets=numpy.cumsum([0, *counts], dtype=numpy.int32),
    )
    with open_compressed(folder / "lines.tsv") as target:
        for line, count in zip(kept, counts, strict=True):
            split = splits.get(line.rpartition("-")[0], "none")
            target.write(f"{line}\t{split}\t{count}\t{texts[line]}\n".encode())


def line_offsets(xml: bytes, name: str) -> tuple[_Ints, _Ints, NDArray[numpy.bool_]]:
    """The offsets from point to point of a line, and where the pen leaves the board."""
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml:
        raise UserError(f"{name}: XML with its own entities is not read")
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314 - entities are refused above
        written = [
            [(int(point.attrib["x"]), int(point.attrib["y"])) for point in stroke.iter("Point")]
            for stroke in root.iter("Stroke")
        ]
    except (ElementTree.ParseError, KeyError, ValueError) as problem:
        raise UserError(f"{name}: not the strokes of a line: {problem}") from None
    points = numpy.array([point for stroke in written for point in stroke], dtype=numpy.int32)
    if not len(points):
        raise UserError(f"{name}: has no points")
    up = numpy.zeros(len(points), dtype=numpy.bool_)
    up[numpy.cumsum([len(stroke) for stroke in written if stroke]) - 1] = True
    moves = numpy.diff(points, axis=0, prepend=points[:1])
    return moves[:, 0].astype(numpy.int16), moves[:, 1].astype(numpy.int16), up


def _transcripts(path: Path) -> dict[str, str]:
    """The text of each line, by the form and the number of the line."""
    texts: dict[str, str] = {}
    for name, file in files_inside(path):
        if not name.endswith(".txt"):
            continue
        _, _, corrected = file.read(_MAX_XML_BYTES).decode("latin-1").partition("CSR:")
        lines = [line.strip() for line in corrected.splitlines() if line.strip()]
        for number, line in enumerate(lines, 1):
            texts[f"{Path(name).stem}-{number:02}"] = re.sub(r"\s+", " ", line)
    return texts
