"""The page: one HTML file that shows attention weights, from disk, with the network off.

Its parts are small ES modules in `static/`. A file:// page cannot import one file from another, so
they are joined into one inline module: imports are dropped and `export` is taken away, which is
exact as long as no two modules use a name for different things (a test holds them to it).

Nothing but that one script runs: the policy of the page names a number that only it carries, and
labels reach the page as JSON and are shown as text.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from regard.core.atomic import replace_atomically
from regard.look.compact import BUDGET, as_json, pack
from regard.look.payload import Payload, whole_letters

STATIC = files("regard.look") / "static"

MODULES = (
    "dom.js",
    "label.js",
    "colours.js",
    "decode.js",
    "shade.js",
    "scene.js",
    "matrix.js",
    "heads.js",
    "links.js",
    "heat.js",
    "grounds.js",
    "input.js",
    "figures.js",
    "export.js",
    "keys.js",
    "tip.js",
    "controls.js",
    "page.js",
)
"""The modules of the page; each imports only from those before it."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const) )", re.MULTILINE)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style nonce="{nonce}">
{style}</style>
</head>
<body class="regard-page">
<div id="regard"><noscript>This page draws with JavaScript, which is switched off.</noscript></div>
<script type="application/json" id="regard-data">{data}</script>
<script type="module" nonce="{nonce}">
{script}
window.regard = mount(
  document.getElementById("regard"),
  JSON.parse(document.getElementById("regard-data").textContent),
  {options},
);
</script>
</body>
</html>
"""


def page(
    payloads: Sequence[Payload],
    *,
    title: str = "",
    view: str | None = None,
    embedded: bool = False,
    budget: int = BUDGET,
) -> str:
    """The page of these payloads; `view` is one of matrix, heads, links, text and input.

    An `embedded` page lets the wheel scroll what it stands in until it is clicked.
    """
    data = as_json(pack(payloads, title=title, budget=budget))
    script, style = join_modules(), static_text("page.css")
    # From the contents, so that the same numbers are the same bytes. No label can name it: the
    # label would have to hold a sum over itself.
    nonce = sha256("\0".join((data, script, style)).encode("utf-8")).hexdigest()[:32]
    return _PAGE.format(
        policy=content_policy(nonce),
        title=escape(whole_letters(title[:200])) or "regard",
        nonce=nonce,
        style=style,
        data=data,
        script=script,
        options=as_json({"view": view, "embedded": embedded, "whole": True}),
    )


def save_page(
    payloads: Sequence[Payload], path: Path | str, *, title: str = "", view: str | None = None
) -> None:
    """The page as a file, whole or not at all."""
    text = page(payloads, title=title, view=view)
    with replace_atomically(Path(path)) as file:
        file.write(text.encode("utf-8"))


def content_policy(nonce: str) -> str:
    """What the page may do: run its one script, wear its one style, make pictures of its own."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def static_text(name: str) -> str:
    """A file of static/."""
    return (STATIC / name).read_text(encoding="utf-8")


def join_modules() -> str:
    """All modules as one."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", static_text(name))) for name in MODULES)
