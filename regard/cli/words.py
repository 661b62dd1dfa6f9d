"""regard neighbours: the words whose vectors are most alike.

regard analogy: what is to c as b is to a.

regard vectors: the word vectors of a run as a file for other programs.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.text.vectors import Vectors
from regard.cli.options import RunArgument

Place = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|VECTORS",
        help="A run of word_vectors, or a file of word2vec, GloVe or fastText (.vec).",
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many words to show.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def neighbours(
    place: Place,
    words: Annotated[list[str], typer.Argument(help="Words to look up.")],
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Show the words whose vectors point most nearly the same way, with the cosine."""
    vectors = vectors_at(place, words)
    for word in words:
        show_words({"word": word}, word, vectors.neighbours(word, count), as_json)


def show_words(
    asked: dict[str, object], title: str, found: list[tuple[str, float]], as_json: bool
) -> None:
    """Words and cosines, as a line or as an object."""
    if as_json:
        pairs = [{"word": word, "cosine": round(cosine, 6)} for word, cosine in found]
        typer.echo(json.dumps({**asked, "nearest": pairs}, ensure_ascii=False))
    else:
        typer.echo(f"{title}: " + ", ".join(f"{word} {cosine:.3f}" for word, cosine in found))


def vectors_at(place: Path, words: list[str]) -> "Vectors":
    """The vectors of a run or of a file; a run of n-grams has one for any of these words too."""
    from regard.data.text.vectors import read_vectors

    return run_vectors(place, words) if place.is_dir() else read_vectors(place)


def run_vectors(folder: Path, words: list[str]) -> "Vectors":
    """The vectors of a run."""
    from regard.runs.run import load
    from regard.tasks.abilities import EmbedsWords, unsupported

    run = load(folder)
    if not isinstance(run.task, EmbedsWords):
        raise unsupported(folder, run.recipe.task, "word vectors; use word_vectors, or a file")
    return run.task.vectors(run.model, words)


def analogy(
    place: Place,
    a: Annotated[str, typer.Argument(help="As in: man")],
    b: Annotated[str, typer.Argument(help="is to: king")],
    c: Annotated[str, typer.Argument(help="so is to: woman")],
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Show what is to C as B is to A: the words nearest to B - A + C."""
    found = vectors_at(place, [a, b, c]).analogy(a, b, c, count)
    show_words({"a": a, "b": b, "c": c}, f"{a} : {b} = {c} : ?", found, as_json)


def vectors(
    run: RunArgument,
    out: Annotated[Path, typer.Argument(help="The file: .bin is word2vec's binary, else text.")],
) -> None:
    """Write the vectors of a run as word2vec does: gensim and others read them."""
    from regard.data.text.vectors import write_vectors

    found = run_vectors(run, [])
    write_vectors(out, found)
    typer.echo(f"{len(found.words):,} vectors of {found.table.shape[1]} numbers in {out}")
