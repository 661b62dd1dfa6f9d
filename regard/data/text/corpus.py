"""A tokenised text on disk: tokenised once, then mapped into memory.

The token ids of a text are cached under a key of all that they depend on: the content of the
sources, the tokeniser and the part of the text. A manifest beside them has their count and SHA-256;
a corpus that does not match its manifest is tokenised again. The text is read in blocks of lines,
so that memory does not grow with it.

>>> import tempfile
>>> from regard.data.text.source import TextSource
>>> from regard.data.text.tokeniser import train_tokeniser
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "a.txt").write_text("to be\\nor not\\n")
>>> words = train_tokeniser("word", ["to be", "or not"])
>>> source = TextSource(path=str(folder / "a.txt"))
>>> corpus = prepare_corpus([source], words, folder=folder / "cache")
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
"""The number of characters that are tokenised at a time."""

ByteProgress = Callable[[int, int], None]
"""Called with the number of bytes of the sources read so far and in total; 0 if unknown."""

_DTYPES = {"uint16": torch.uint16, "uint32": torch.uint32}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """A part of a text, as fractions of its characters."""

    first: float = 0.0
    last: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.first < self.last <= 1.0:
            raise UserError(
                f"the part of a text from {self.first} to {self.last} must be an interval in 0 to 1"
            )

    def bounds(self, characters: int) -> tuple[int, int]:
        """The first character of the part, and the first after it."""
        return int(characters * self.first), int(characters * self.last)


WHOLE_TEXT = TextPart()


def split_held_out(share: float = 0.1) -> tuple[TextPart, TextPart]:
    """Split a text into training and validation parts; by default the last tenth is validation.

    >>> training, validation = split_held_out()
    >>> training.bounds(1_115_394), validation.bounds(1_115_394)
    ((0, 1003854), (1003854, 1115394))
    """
    border = 1.0 - fraction("share", share)
    return TextPart(last=border), TextPart(first=border)


@dataclass(frozen=True, kw_only=True)
class CorpusManifest:
    """The length and checksum of the token ids of a corpus, in a file beside them."""

    version: int
    dtype: str
    byteorder: str
    tokens: int
    characters: int
    sha256: str

    def to_json(self) -> bytes:
        """The manifest as JSON, with a SHA-256 of itself."""
        held = asdict(self)
        return json.dumps({"manifest": held, "sha256": _digest_of(held)}, indent=1).encode()


def _digest_of(held: object) -> str:
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A tokenised text."""

    ids: Integer[Tensor, "T"]
    """Its token ids, mapped from a file: uint16 if the vocabulary fits, uint32 otherwise."""
    characters: int
    """The number of characters of the text, for metrics per character."""
    path: Path
    """The file of the ids."""


def prepare_corpus(
    sources: Sequence[TextSource],
    tokeniser: Tokeniser,
    *,
    part: TextPart = WHOLE_TEXT,
    folder: Path | None = None,
    progress: ByteProgress | None = None,
) -> Corpus:
    """The corpus of some sources, from the cache or tokenised now.

    A line of plain text ends with a newline, also the last one. A record of TSV or JSONL is a
    separate text and ends with `<eos>`.
    """
    if not sources:
        raise UserError("there is no text; name at least one file, or - for stdin")
    corpora = (cache_folder() if folder is None else folder) / "corpora"
    build = _Build(sources, tokeniser, part, progress)
    if any(source.path == STDIN for source in sources):
        return _from_stdin(build, corpora)
    digests = [content_digest(Path(source.path), corpora.parent) for source in sources]
    path = corpora / f"{build.key(digests)}.ids"
    return _kept(path) or _made(build, digests, path)


def _made(build: "_Build", digests: list[str], path: Path) -> Corpus:
    """Tokenise, and write the ids and their manifest."""
    with os_errors_as_user_errors(path):
        remove_stale_parts(path.parent)
    with replace_atomically(path) as file:
        manifest, found = build.write(file)
        # The sources may have changed since they were hashed for the key.
        for source, before, now in zip(build.sources, digests, found, strict=True):
            if before != now:
                raise UserError(f"{source.path}: changed while it was being read; try again")
    return _sealed(path, manifest)


def _from_stdin(build: "_Build", corpora: Path) -> Corpus:
    """Tokenise stdin. It can be read only once, so the key is known only at the end."""
    if build.part != WHOLE_TEXT:
        raise UserError("stdin cannot be split, because its length is not known; use a file")
    if sum(source.path == STDIN for source in build.sources) > 1:
        raise UserError("stdin is a source twice, but it can be read only once")
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
    """The corpus in the cache, if there is one that matches its manifest."""
    beside = path.with_suffix(".json")
    if not path.exists() and not beside.exists():
        return None
    manifest = _read_seal(beside)
    flaw = "its manifest is missing or damaged" if manifest is None else _flaw(path, manifest)
    if manifest is None or flaw:
        _log.warning("%s: %s; the text is tokenised again", path, flaw)
        return None
    return _mapped(path, manifest)


def _read_seal(path: Path) -> CorpusManifest | None:
    """The manifest, if there is a valid one."""
    try:
        held = json.loads(path.read_bytes())
        whole = held["sha256"] == _digest_of(held["manifest"])
        return CorpusManifest(**held["manifest"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flaw(path: Path, manifest: CorpusManifest) -> str | None:
    """The reason why the ids of a corpus are not valid, or None."""
    if (manifest.version, manifest.byteorder) != (_VERSION, sys.byteorder):
        return "it comes from another version or another kind of machine"
    if not path.exists():
        return "its token ids are missing"
    size, due = path.stat().st_size, manifest.tokens * _DTYPES[manifest.dtype].itemsize
    if size != due:
        return f"it has {size:,} bytes where {due:,} were written"
    try:
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return None if same else "its token ids were changed"


class _Watch:
    """Hashes the bytes of the sources as they are read, and reports progress."""

    def __init__(self, progress: ByteProgress | None, total: int) -> None:
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
        """The SHA-256 of the source that was just read; resets the hash for the next one."""
        digest, self._digest = self._digest, hashlib.sha256()
        return digest.hexdigest()


class _Build:
    """One tokenisation: reads the sources in blocks, and hashes its input and output."""

    def __init__(
        self,
        sources: Sequence[TextSource],
        tokeniser: Tokeniser,
        part: TextPart,
        progress: ByteProgress | None,
    ) -> None:
        self.sources = sources
        self.part = part
        self._tokeniser = tokeniser
        self._progress = progress
        self._dtype = "uint16" if tokeniser.vocabulary <= 1 << 16 else "uint32"

    def key(self, digests: Sequence[str]) -> str:
        """The cache key: a hash of all that the ids depend on."""
        texts = [
            (*source.reading, digest) for source, digest in zip(self.sources, digests, strict=True)
        ]
        return _digest_of([_VERSION, texts, self._tokeniser.digest, asdict(self.part)])[:32]

    def write(self, file: BinaryIO) -> tuple[CorpusManifest, list[str]]:
        """Write the ids; return their manifest, and the SHA-256 of every source."""
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
            raise UserError(f"{names}: this part of the text is empty; add more text")
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
        """The ids as bytes of the file."""
        packed = bytearray(len(ids) * _DTYPES[self._dtype].itemsize)
        if packed:
            torch.frombuffer(packed, dtype=_DTYPES[self._dtype]).copy_(ids)
        return packed

    def _blocks(self, watch: _Watch, digests: list[str]) -> Iterator[tuple[list[str], int | None]]:
        """The part of the text in blocks, and the id after every text of a block."""
        pieces = self._pieces(watch, digests)
        for source, run in groupby(pieces, key=lambda piece: piece[0]):
            plain = source.is_continuous or self._tokeniser.ends_lines
            end = None if plain else self._tokeniser.eos
            texts: list[str] = []
            held = 0
            for _, text, closed in run:
                if not closed:  # the part ends inside this record
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
        """The text of each record inside the part, and whether the end of the record is too."""
        first, last = self._bounds()
        begin = 0
        for source in self.sources:
            for record in source.records(watch):
                end = begin + len(record.text)
                if first <= end and begin < last:
                    yield source, record.text[max(first - begin, 0) : last - begin], end < last
                begin = end + 1
            # The whole source was read, not only the part.
            digests.append(watch.digest())

    def _bounds(self) -> tuple[int, int]:
        """The bounds of the part in characters; a newline counts as one."""
        if self.part == WHOLE_TEXT:
            return 0, sys.maxsize
        records = (record for source in self.sources for record in source.records())
        return self.part.bounds(sum(len(record.text) + 1 for record in records))
