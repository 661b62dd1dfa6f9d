"""A text as numbers on disk: tokenised once, then mapped into memory and never read whole.

The numbers of a text are kept in the cache under a key made of what they depend on: the content of
the sources, the tokeniser and the part of the text. Beside them lies a manifest: their count and
SHA-256. What does not match its manifest is made again. The text is read in blocks of lines, so that
memory does not grow with it.

>>> import tempfile
>>> from regard.data.text.source import TextSource
>>> from regard.data.text.tokeniser import train_tokeniser
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "a.txt").write_text("to be\\nor not\\n")
>>> words = train_tokeniser("word", ["to be", "or not"])
>>> corpus = prepare_corpus([TextSource(path=str(folder / "a.txt"))], words, folder=folder / "cache")
>>> words.decode(corpus.ids.tolist())
'to be\\nor not\\n'
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import torch
from jaxtyping import Integer
from torch import Tensor

from regard.core.atomic import (
    PART,
    os_errors_as_user_errors,
    remove_stale_parts,
    replace_atomically,
)
from regard.core.errors import UserError, fraction
from regard.data.cache import cache_folder, content_digest
from regard.data.text.files import STDIN, display_name
from regard.data.text.source import TextSource
from regard.data.text.tokeniser import Tokeniser

_VERSION = 1
"""Of the files in the cache; other versions are made again."""

TOKENISE_BLOCK = 1 << 18
"""How many characters are tokenised at once."""

ProgressCallback = Callable[[int, int], None]
"""Is told how many bytes of the sources have been read, of how many; of 0 if nobody knows."""

_DTYPES = {"uint16": torch.uint16, "uint32": torch.uint32}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """A part of a text, from one fraction of its characters to another."""

    first: float = 0.0
    last: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.first < self.last <= 1.0:
            raise UserError(
                f"the part of a text from {self.first} to {self.last} must go forward within 0 to 1"
            )

    def bounds(self, characters: int) -> tuple[int, int]:
        """The first character of the part, and the first after it."""
        return int(characters * self.first), int(characters * self.last)


WHOLE_TEXT = TextPart()


def split_held_out(share: float = 0.1) -> tuple[TextPart, TextPart]:
    """The text without its last tenth, and that tenth: how tiny Shakespeare is split.

    >>> training, validation = split_held_out()
    >>> training.bounds(1_115_394), validation.bounds(1_115_394)
    ((0, 1003854), (1003854, 1115394))
    """
    border = 1.0 - fraction("share", share)
    return TextPart(last=border), TextPart(first=border)


@dataclass(frozen=True, kw_only=True)
class CorpusManifest:
    """What lies beside the numbers of a text, to know them by."""

    version: int
    dtype: str
    byteorder: str
    tokens: int
    characters: int
    sha256: str

    def to_json(self) -> bytes:
        """The manifest as JSON, with its own SHA-256."""
        held = asdict(self)
        return json.dumps({"manifest": held, "sha256": _digest_of(held)}, indent=1).encode()


def _digest_of(held: object) -> str:
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A tokenised text."""

    ids: Integer[Tensor, "T"]
    """Its numbers, mapped from a file: uint16 if the vocabulary fits, uint32 otherwise."""
    characters: int
    """How many characters of text they are, for figures per character."""
    path: Path
    """The file."""


def prepare_corpus(
    sources: Sequence[TextSource],
    tokeniser: Tokeniser,
    *,
    part: TextPart = WHOLE_TEXT,
    folder: Path | None = None,
    progress: ProgressCallback | None = None,
) -> Corpus:
    """The corpus of some sources: from the cache if it is there and whole, else made now.

    A line of plain text ends in a line end, the last one too. A record of TSV or JSONL is a text of
    its own and ends in `<eos>`.
    """
    if not sources:
        raise UserError("no text was given; name at least one file, or - for stdin")
    corpora = (cache_folder() if folder is None else folder) / "corpora"
    build = _Build(sources, tokeniser, part, progress)
    if any(source.path == STDIN for source in sources):
        return _from_stdin(build, corpora)
    digests = [content_digest(Path(source.path), corpora.parent) for source in sources]
    path = corpora / f"{build.key(digests)}.ids"
    return _kept(path) or _made(build, digests, path)


def _made(build: "_Build", digests: list[str], path: Path) -> Corpus:
    """Tokenise, and keep the numbers and their manifest."""
    with os_errors_as_user_errors(path):
        remove_stale_parts(path.parent)
    with replace_atomically(path) as file:
        manifest, found = build.write(file)
        # What was read must be what the key says; it may have changed since it was hashed.
        for source, before, now in zip(build.sources, digests, found, strict=True):
            if before != now:
                raise UserError(f"{source.path}: changed while it was read; try again")
    return _sealed(path, manifest)


def _from_stdin(build: "_Build", corpora: Path) -> Corpus:
    """Stdin can be read only once, so the key is known only when all is written."""
    if build.part != WHOLE_TEXT:
        raise UserError("stdin cannot be split, because its length is not known; use a file")
    if sum(source.path == STDIN for source in build.sources) > 1:
        raise UserError("stdin was given twice, but it can be read only once")
    unnamed = corpora / f"stdin-{os.getpid()}{PART}"
    with replace_atomically(unnamed) as file:
        manifest, found = build.write(file)
    path = corpora / f"{build.key(found)}.ids"
    with os_errors_as_user_errors(path):
        unnamed.replace(path)
    return _sealed(path, manifest)


def _sealed(path: Path, manifest: CorpusManifest) -> Corpus:
    """Write the manifest, now that the numbers are there, and map them."""
    with replace_atomically(path.with_suffix(".json")) as file:
        file.write(manifest.to_json())
    return _mapped(path, manifest)


def _mapped(path: Path, manifest: CorpusManifest) -> Corpus:
    ids = torch.from_file(
        str(path), shared=False, size=manifest.tokens, dtype=_DTYPES[manifest.dtype]
    )
    return Corpus(ids=ids, characters=manifest.characters, path=path)


def _kept(path: Path) -> Corpus | None:
    """The corpus in the cache, if there is one and it is what its manifest says."""
    beside = path.with_suffix(".json")
    if not path.exists() and not beside.exists():
        return None
    manifest = _read_seal(beside)
    flaw = "its manifest is missing or spoilt" if manifest is None else _flaw(path, manifest)
    if manifest is None or flaw:
        _log.warning("%s: %s; the text is tokenised again", path, flaw)
        return None
    return _mapped(path, manifest)


def _read_seal(path: Path) -> CorpusManifest | None:
    """The manifest, if there is one and it is whole."""
    try:
        held = json.loads(path.read_bytes())
        whole = held["sha256"] == _digest_of(held["manifest"])
        return CorpusManifest(**held["manifest"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flaw(path: Path, manifest: CorpusManifest) -> str | None:
    """What is wrong with the numbers of a corpus, if anything is."""
    if (manifest.version, manifest.byteorder) != (_VERSION, sys.byteorder):
        return "it comes from another version or another kind of machine"
    if not path.exists():
        return "its numbers are missing"
    size, due = path.stat().st_size, manifest.tokens * _DTYPES[manifest.dtype].itemsize
    if size != due:
        return f"it has {size:,} bytes where {due:,} were written"
    try:
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return None if same else "its numbers were altered"


class _Watch:
    """Sees the bytes of the sources as they are read: hashes them and tells how far it is."""

    def __init__(self, progress: ProgressCallback | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._digest = hashlib.sha256()

    def __call__(self, taken: bytes) -> None:
        self._digest.update(taken)
        self._done += len(taken)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def digest(self) -> str:
        """The SHA-256 of the source that has just been read; the next one begins anew."""
        digest, self._digest = self._digest, hashlib.sha256()
        return digest.hexdigest()


class _Build:
    """One tokenisation: reads the sources in blocks, hashing what is read and what is written."""

    def __init__(
        self,
        sources: Sequence[TextSource],
        tokeniser: Tokeniser,
        part: TextPart,
        progress: ProgressCallback | None,
    ) -> None:
        self.sources = sources
        self.part = part
        self._tokeniser = tokeniser
        self._progress = progress
        self._dtype = "uint16" if tokeniser.vocabulary <= 1 << 16 else "uint32"

    def key(self, digests: Sequence[str]) -> str:
        """A name for all that the numbers depend on."""
        texts = [
            (*source.reading, digest) for source, digest in zip(self.sources, digests, strict=True)
        ]
        return _digest_of([_VERSION, texts, self._tokeniser.digest, asdict(self.part)])[:32]

    def write(self, file: BinaryIO) -> tuple[CorpusManifest, list[str]]:
        """Write the numbers; their manifest, and the SHA-256 of every source."""
        named = [Path(source.path) for source in self.sources if source.path != STDIN]
        known = len(named) == len(self.sources)
        watch = _Watch(self._progress, sum(path.stat().st_size for path in named) if known else 0)
        digests: list[str] = []
        numbers = hashlib.sha256()
        tokens = characters = 0
        for texts, end in self._blocks(watch, digests):
            written = self._packed(self._tokeniser.encode_all(texts, end))
            file.write(written)
            numbers.update(written)
            tokens += len(written) // _DTYPES[self._dtype].itemsize
            characters += sum(map(len, texts)) + (0 if end is None else len(texts))
        if not tokens:
            names = ", ".join(display_name(source.path) for source in self.sources)
            raise UserError(f"{names}: this part of the text is empty; give more text")
        manifest = CorpusManifest(
            version=_VERSION,
            dtype=self._dtype,
            byteorder=sys.byteorder,
            tokens=tokens,
            characters=characters,
            sha256=numbers.hexdigest(),
        )
        return manifest, digests

    def _packed(self, ids: Tensor) -> bytearray:
        """Numbers as they stand in the file."""
        packed = bytearray(len(ids) * _DTYPES[self._dtype].itemsize)
        if packed:
            torch.frombuffer(packed, dtype=_DTYPES[self._dtype]).copy_(ids)
        return packed

    def _blocks(self, watch: _Watch, digests: list[str]) -> Iterator[tuple[list[str], int | None]]:
        """The part of the text in blocks, and the number that follows every text of a block."""
        pieces = self._pieces(watch, digests)
        for source, run in groupby(pieces, key=lambda piece: piece[0]):
            plain = source.is_continuous or self._tokeniser.ends_lines
            end = None if plain else self._tokeniser.eos
            texts: list[str] = []
            held = 0
            for _, text, closed in run:
                if not closed:  # the part ends within this record
                    yield texts, end
                    yield [text], None
                    texts = []
                    continue
                texts.append(text + "\n" if plain else text)
                held += len(text)
                if held >= TOKENISE_BLOCK or len(texts) >= TOKENISE_BLOCK // 16:
                    yield texts, end
                    texts, held = [], 0
            yield texts, end

    def _pieces(self, watch: _Watch, digests: list[str]) -> Iterator[tuple[TextSource, str, bool]]:
        """Of each record what is in the part, and whether its end is in the part too."""
        first, last = self._bounds()
        begin = 0
        for source in self.sources:
            for record in source.records(watch):
                end = begin + len(record.text)
                if first <= end and begin < last:
                    yield source, record.text[max(first - begin, 0) : last - begin], end < last
                begin = end + 1
            # Everything was read, also what is not in the part.
            digests.append(watch.digest())

    def _bounds(self) -> tuple[int, int]:
        """Where the part begins and ends, in characters; a line end counts as one."""
        if self.part == WHOLE_TEXT:
            return 0, sys.maxsize
        records = (record for source in self.sources for record in source.records())
        return self.part.bounds(sum(len(record.text) + 1 for record in records))
