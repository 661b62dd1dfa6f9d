"""Documents of sentences, tokenised once into a mapped file, for pre-training BERT.

A document is a block of lines between blank lines, a line or a record of a TSV or JSONL file, or a
file of a folder or a tar archive. Its sentences are its lines, or end at . ! ? (segment.py). In the
file of corpus.py a sentence ends with one `<eos>` and a document with two; a sentence that the
tokeniser reduces to nothing therefore ends a document too.

>>> import tempfile
>>> from regard.data.text.tokeniser import train_tokeniser
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "a.txt").write_text("to be\\nor not\\n\\nthat is\\n")
>>> pieces = train_tokeniser("wordpiece", ["to be or not that is"])
>>> sources = document_sources(str(folder / "a.txt"))
>>> found = tokenise_documents(sources, pieces, folder=folder / "cache")
>>> len(found), found.sentences.tolist()                  # sentences before each document
(2, [0, 2, 3])
>>> pieces.decode(found.tokens(torch.arange(2, 6)))
'or not that is'
"""

import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from regard.core.errors import UserError, choose
from regard.data.text.corpus import ByteProgress, prepare_corpus
from regard.data.text.files import (
    BytesCallback,
    Field,
    Record,
    display_name,
    open_bytes,
    read_lines,
    uncompressed_name,
)
from regard.data.text.segment import plain_words, split_sentences
from regard.data.text.source import TextSource, form_of
from regard.data.text.tokeniser import Tokeniser

_LARGEST = 1 << 26
"""The maximum size in bytes of a file in an archive."""


@dataclass(frozen=True, kw_only=True)
class DocumentSource(TextSource):
    """A source of documents; its records are sentences, and an empty one ends a document."""

    boundary: str = "blank_line"
    """What separates documents: `blank_line`, `line`, `file` or `archive`."""
    sentences: str = "lines"
    """How a document is split into sentences, a name in SENTENCE_SPLITTERS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("boundary of documents", self.boundary, _BOUNDARIES)
        choose("way to split sentences", self.sentences, SENTENCE_SPLITTERS)

    @property
    def reading(self) -> tuple[object, ...]:
        """The settings that the sentences depend on, besides the content of the file."""
        return ("documents", *super().reading, self.boundary, self.sentences)

    @property
    def is_continuous(self) -> bool:
        """False: every sentence ends with `<eos>`."""
        return False

    def records(self, on_bytes: BytesCallback | None = None) -> Iterator[Record]:
        """All sentences, each with the first line of its document."""
        cut = SENTENCE_SPLITTERS[self.sentences]
        for number, text in _BOUNDARIES[self.boundary](self, on_bytes):
            found = [each for each in cut(text.lower() if self.lowercase else text) if each.strip()]
            yield from (Record(number, (each,)) for each in found)
            if found:
                yield Record(number, ("",))


def document_sources(
    path: str, field: Field | None = None, *, boundary: str | None = None, sentences: str = "lines"
) -> list[DocumentSource]:
    """The documents of a file, an archive or a folder of files.

    Without `boundary` it follows from the name: each record of a TSV or JSONL file and each file of
    an archive is a document, and plain files have blank lines between documents.
    """
    place = Path(path)
    if place.is_dir():
        files = sorted(each for each in place.rglob("*") if each.is_file())
        if not files:
            raise UserError(f"{path}: there are no files in this folder")
        return [
            DocumentSource(path=str(each), boundary="file", sentences=sentences) for each in files
        ]
    if uncompressed_name(path).endswith(".tar"):
        return [DocumentSource(path=path, boundary=boundary or "archive", sentences=sentences)]
    form = form_of(path)
    usual = "blank_line" if form == "plain" else "line"
    return [
        DocumentSource(
            path=path, form=form, field=field, boundary=boundary or usual, sentences=sentences
        )
    ]


_Texts = Iterator[tuple[int, str]]
"""Documents, each with its first line."""


def _by_blank_lines(source: DocumentSource, on_bytes: BytesCallback | None) -> _Texts:
    held: list[str] = []
    begin = 1
    for number, (line,) in read_lines(source.path, source.longest, on_bytes):
        if line.strip():
            begin = begin if held else number
            held.append(line)
        elif held:
            yield begin, "\n".join(held)
            held = []
    if held:
        yield begin, "\n".join(held)


def _by_records(source: DocumentSource, on_bytes: BytesCallback | None) -> _Texts:
    plain = TextSource(
        path=source.path, form=source.form, field=source.field, longest=source.longest
    )
    return ((record.number, record.text) for record in plain.records(on_bytes))


def _by_file(source: DocumentSource, on_bytes: BytesCallback | None) -> _Texts:
    yield 1, "\n".join(line.text for line in read_lines(source.path, source.longest, on_bytes))


def _by_member(source: DocumentSource, on_bytes: BytesCallback | None) -> _Texts:
    """All files of an archive in order, except for those named README."""
    name = display_name(source.path)
    with open_bytes(source.path, on_bytes) as file:
        try:
            assert isinstance(file, io.BufferedIOBase)
            with tarfile.open(fileobj=file, mode="r|") as archive:
                for member in archive:
                    held = archive.extractfile(member) if member.isfile() else None
                    if held is None or Path(member.name).stem == "README":
                        continue
                    if member.size > _LARGEST:
                        raise UserError(f"{name}: {member.name} has more than {_LARGEST:,} bytes")
                    yield 1, _text(held.read(), f"{name}: {member.name}")
        except (tarfile.TarError, EOFError, OSError) as problem:
            raise UserError(f"{name}: not a complete tar archive: {problem}") from None
        while file.read(1 << 20):  # the bytes after the last file are hashed too
            pass


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise UserError(f"{where}: byte {problem.start + 1} is not UTF-8") from None


_BOUNDARIES: dict[str, Callable[[DocumentSource, BytesCallback | None], _Texts]] = {
    "blank_line": _by_blank_lines,
    "line": _by_records,
    "file": _by_file,
    "archive": _by_member,
}
"""What separates documents: blank lines, lines or records, files, or files of an archive."""

SENTENCE_SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "lines": str.splitlines,
    "punctuation": lambda text: [
        " ".join(each) for each in split_sentences(plain_words(text, lowercase=False))
    ],
}
"""Functions that split a document into sentences: at newlines, or at . ! ? and newlines."""


@dataclass(frozen=True)
class TokenisedDocuments:
    """Documents as token ids, mapped from a file; positions do not count the end tokens."""

    ids: Integer[Tensor, "T"]
    """The whole file, with end tokens."""
    places: Int[Tensor, "S"]
    """The first position of each sentence in the file."""
    begins: Int[Tensor, "M"]
    """The number of tokens before each sentence, and in total."""
    sentences: Int[Tensor, "N"]
    """The number of sentences before each document, and in total."""

    def __len__(self) -> int:
        return len(self.sentences) - 1

    @cached_property
    def lengths(self) -> Int[Tensor, "D"]:
        """The number of tokens of each document."""
        return self.begins[self.sentences].diff()

    def tokens(self, numbers: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """The tokens at these positions, which do not count the end tokens."""
        sentence = torch.searchsorted(self.begins, numbers, right=True) - 1
        return self.ids[self.places[sentence] + numbers - self.begins[sentence]].long()

    def only(self, documents: Int[Tensor, "D"]) -> "TokenisedDocuments":
        """A subset of the documents; the file stays the same."""
        first, last = self.sentences[documents], self.sentences[documents + 1]
        sizes = last - first
        owner = torch.arange(len(documents)).repeat_interleave(sizes)
        start = sizes.cumsum(0) - sizes
        kept = torch.arange(int(sizes.sum())) - start[owner] + first[owner]  # [S]
        return replace(
            self,
            places=self.places[kept],
            begins=offsets_from_sizes(self.begins.diff()[kept]),
            sentences=offsets_from_sizes(sizes),
        )


def offsets_from_sizes(sizes: Int[Tensor, "N"]) -> Int[Tensor, "M"]:
    """The offset of each item of these sizes, and the total size.

    >>> offsets_from_sizes(torch.tensor([2, 3])).tolist()
    [0, 2, 5]
    """
    return torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])


def tokenise_documents(
    sources: Sequence[DocumentSource],
    tokeniser: Tokeniser,
    *,
    folder: Path | None = None,
    progress: ByteProgress | None = None,
) -> TokenisedDocuments:
    """The documents of some sources, from the cache or tokenised now."""
    if tokeniser.ends_lines:
        raise UserError(
            'documents do not work with tokeniser "word", where every line ends with <eos>; use '
            'another one, such as "wordpiece"'
        )
    corpus = prepare_corpus(sources, tokeniser, folder=folder, progress=progress)
    ends = (corpus.ids == tokeniser.eos).nonzero().squeeze(1)  # [N]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1] + 1])
    sizes = ends - starts
    real = sizes > 0  # an empty sentence ends a document
    before = offsets_from_sizes(real.long())  # [N+1]
    documents = before[(~real).nonzero().squeeze(1)].unique()  # [D]
    return TokenisedDocuments(
        ids=corpus.ids,
        places=starts[real],
        begins=offsets_from_sizes(sizes[real]),
        sentences=torch.cat([torch.zeros(1, dtype=torch.int64), documents[documents > 0]]),
    )
