"""Pictures as files: PNG, SVG or PDF, by how the name of the file ends.

    alignment(payload, "alignment.svg")

matplotlib is imported by the first picture that is drawn, not before. Its settings are put aside
while one is, so that neither a style of the user's nor the machine changes a picture: the same
numbers give the same bytes. Threads take turns, since matplotlib is not made for several at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from regard.core.axes import Frames, Patches, Slots
from regard.core.errors import UserError
from regard.look.payload import Numbers, Payload, plain_array

_SUFFIXES = (".pdf", ".png", ".svg")

_TURN = RLock()


@contextmanager
def _drawing(path: Path | str) -> Iterator[Path]:
    """A turn at matplotlib, with settings of its own; gives the path, if it ends as it may."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise UserError(f"{path}: a picture must end in one of {', '.join(_SUFFIXES)}")
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            "pictures need the package matplotlib: pip install 'regard[look]'"
        ) from error
    with _TURN, matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Names inside an SVG file come from this word, or else from chance.
        matplotlib.rcParams.update({"svg.hashsalt": "regard", "pdf.fonttype": 42})
        yield path


def alignment(payload: Payload, path: Path | str, *, marked: Sequence[int] | None = None) -> None:
    """The alignment matrix: source along the top, target down the side.

    Over patches it is their image once for each query, bright where the query attends; over frames
    a row of shades for each query under the sound; over slots a memory by time, steps across.
    `marked` frames one key of each query: what was chosen, or `payload.strongest`.
    """
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.matrix import alignment_figure
        from regard.look.places import image_figure, sound_figure

        if isinstance(payload.keys, Patches):
            save(image_figure(payload, marked), path)
        elif isinstance(payload.keys, Frames) and marked is None:
            save(sound_figure(payload), path)
        elif isinstance(payload.keys, Slots) and marked is None:
            save(alignment_figure(payload.transpose()), path)
        else:
            save(alignment_figure(payload, marked), path)


def grid(payloads: Sequence[Payload], path: Path | str) -> None:
    """All heads of several layers as small matrices on one scale."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.matrix import grid_figure

        save(grid_figure(payloads), path)


def memory(payloads: Sequence[Payload], path: Path | str) -> None:
    """A memory over time: slots down, steps across, a panel for each head and each table."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.memory import memory_figure

        save(memory_figure(payloads), path)


def heat(payload: Payload, path: Path | str) -> None:
    """The keys as a text, once for each query, shaded by its weight for each.

    Where no query attends beyond itself, only what came before it is written.
    """
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.text import heat_figure

        save(heat_figure(payload), path)


def document(words: Payload, sentences: Payload, path: Path | str) -> None:
    """A document with its two levels: bars for sentences, shades for words."""
    with _drawing(path) as path:
        from regard.look.document import document_figure
        from regard.look.figure import save

        save(document_figure(words, sentences), path)


def confusion(labels: Sequence[str], counts: Sequence[Sequence[float]], path: Path | str) -> None:
    """Which class was taken for which: `counts[true][predicted]`, with the names of the classes."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.matrix import confusion_figure

        save(confusion_figure(labels, plain_array(counts)), path)


def flow(payload: Payload, path: Path | str) -> None:
    """Links between the keys on the left and the queries on the right."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.text import flow_figure

        save(flow_figure(payload), path)


def curves(log: Path | str, path: Path | str) -> None:
    """The training of a run from its log.jsonl: losses, validation, learning rate."""
    with _drawing(path) as path:
        from regard.look.chart import curves_figure
        from regard.look.figure import save

        save(curves_figure(Path(log)), path)


def bars_by_length(
    systems: Mapping[str, Sequence[float | None]],
    lengths: Sequence[tuple[int, int | None]],
    path: Path | str,
    *,
    score: str = "BLEU",
    sentences: Sequence[int] | None = None,
) -> None:
    """The scores of several systems by length of sentence, as in Bahdanau's figure 2.

    `lengths` are spans, first and last length, None without end; `systems` has a score for each of
    them, None where there is none. `sentences` is the number of each: a bar of three is
    worth little.
    """
    with _drawing(path) as path:
        from regard.look.chart import bars_by_length_figure
        from regard.look.figure import save

        save(bars_by_length_figure(systems, lengths, score=score, sentences=sentences), path)


def positions(table: Numbers, path: Path | str) -> None:
    """Position encodings, `[T,D]`, and how alike they are."""
    with _drawing(path) as path:
        from regard.look.chart import positions_figure
        from regard.look.figure import save

        save(positions_figure(plain_array(table)), path)


def reach(lengths: Mapping[str, Sequence[float]], labels: Sequence[str], path: Path | str) -> None:
    """How far gradients reach: their length at each token that was read, a curve for each name."""
    with _drawing(path) as path:
        from regard.look.chart import reach_figure
        from regard.look.figure import save

        save(reach_figure(lengths, labels), path)


def tradeoff(
    points: Mapping[str, tuple[float, float, float, float]],
    path: Path | str,
    *,
    cost: str,
    quality: str,
) -> None:
    """What each value of a comparison cost and how good it was, with its interval."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.quality import tradeoff_figure

        save(tradeoff_figure(points, cost=cost, quality=quality), path)


def growth(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    path: Path | str,
    *,
    crossings: Mapping[str, Sequence[tuple[float, str]]],
) -> None:
    """Costs that grow with length, and where one overtakes another."""
    with _drawing(path) as path:
        from regard.look.figure import save
        from regard.look.quality import growth_figure

        save(growth_figure(panels, crossings), path)


def spread(columns: Mapping[str, Sequence[float]], path: Path | str) -> None:
    """How the numbers of many texts are spread, a row for each name."""
    with _drawing(path) as path:
        from regard.look.chart import spread_figure
        from regard.look.figure import save

        save(spread_figure(columns), path)
