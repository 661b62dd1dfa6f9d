"""A report: sections with a verdict, a picture and a table, in one HTML file without any script."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.core.atomic import replace_atomically
from regard.look.plot import spread, tradeoff

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #666; --line: #ddd; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ea; --soft: #a0a0a8; --line: #3a3a40; --page: #18181b; }
  img { filter: invert(0.9) hue-rotate(180deg); }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--page); }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.6rem; }
.lead { font-size: 1.1rem; } .summary { border-left: 4px solid var(--line); padding-left: 1rem; }
.yes { border-color: #009e73; } .no { border-color: #d55e00; } .open { border-color: #e69f00; }
.tag { font-size: 0.8rem; color: var(--soft); font-weight: normal; margin-left: 0.6rem; }
img { max-width: 100%; } table { border-collapse: collapse; font-size: 0.85rem; }
td, th { padding: 0.2rem 1rem 0.2rem 0; text-align: left; border-bottom: 1px solid var(--line); }
td:not(:first-child), th:not(:first-child) { text-align: right; }
.note { color: var(--soft); font-size: 0.85rem; }
"""

_TAGS = {True: ("yes", "supports it"), False: ("no", "does not support it"),
        None: ("open", "inconclusive")}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One test: its summary, its figures, and the numbers of each example to draw."""

    title: str
    summary: str
    supports: bool | None
    rows: Sequence[tuple[str, str, str]]
    """Name, mean, interval."""
    columns: Mapping[str, Sequence[float]]
    note: str = ""
    points: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)
    """Models by the distance of their weights and predictions from the audited one, if there are
    any: divergence, change, and the interval of the change."""


def save_report(
    title: str, lead: str, sections: Sequence[Section], caution: str, path: Path
) -> None:
    """Write the whole report, or leave the file that is there."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']
    for section in sections:
        body += _written(section)
    body.append(f'<h2>What may and may not be concluded</h2><p class="note">{escape(caution)}</p>')
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>",
        ]
    )
    with replace_atomically(path) as file:
        file.write(page.encode("utf-8", "replace"))


def _written(section: Section) -> list[str]:
    """A section as HTML."""
    kind, tag = _TAGS[section.supports]
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(mean)}</td><td>{escape(sure)}</td></tr>"
        for name, mean, sure in section.rows
    )
    note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
    seen = (
        [f'<img alt="change of prediction against divergence" src="{_against(section.points)}">']
        if section.points
        else []
    )
    return [
        f'<h2>{escape(section.title)}<span class="tag">{tag}</span></h2>',
        f'<p class="summary {kind}">{escape(section.summary)}</p>',
        *seen,
        f'<img alt="the numbers of each text" src="{_drawn(section.columns)}">',
        "<table><tr><th>over all texts</th><th>mean</th><th>95 % interval</th></tr>",
        f"{rows}</table>{note}",
    ]


def _drawn(columns: Mapping[str, Sequence[float]]) -> str:
    """The picture of some columns, as the address of an image."""
    return _address(lambda path: spread(columns, path))


def _against(points: Mapping[str, tuple[float, float, float, float]]) -> str:
    """The picture of some models, as the address of an image."""
    names = {"cost": "divergence of attention (nats)", "quality": "change of prediction"}
    return _address(lambda path: tradeoff(points, path, **names))


def _address(draw: Callable[[Path], None]) -> str:
    """What is drawn, as the address of an image."""
    from base64 import b64encode

    with TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        draw(path)
        return f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"
