"""Check a built site: it loads nothing from elsewhere, and its links and anchors lead somewhere.

python docs/offline.py site
"""

import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href")}
"""What a browser loads with a page. A link of `rel=canonical` and its like is not loaded."""
NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit"}


class Page(HTMLParser):
    """The addresses of a page: what it loads, where it leads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses of a tag."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "link" and set(values.get("rel", "").split()) & NOT_LOADED:
            return
        self.loads += [values[name] for kind, name in LOADED if kind == tag and name in values]
        if tag == "a" and "href" in values:
            self.leads.append(values["href"])


def problems(site: Path) -> list[str]:
    """What is wrong with a site, one line each."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {each}" for each in page.loads if is_elsewhere(each)]
        inside = [each for each in (*page.loads, *page.leads) if not urlsplit(each).scheme]
        if name.name != "404.html":  # its links are absolute: it may be shown anywhere
            found += [
                f"{name}: {each} leads nowhere" for each in inside if not leads(path, each, pages)
            ]
    for path in sorted(site.rglob("*.css")):
        loaded = re.findall(r"url\(['\"]?(\w+:)?//[^)]*\)|@import[^;]*//", path.read_text())
        found += [f"{path.relative_to(site)} loads {each}" for each in loaded]
    return found


def is_elsewhere(address: str) -> bool:
    """Is it on another computer?

    >>> is_elsewhere("https://fonts.example.com/x.css"), is_elsewhere("assets/x.css")
    (True, False)
    """
    parts = urlsplit(address)
    return parts.scheme in ("http", "https") or bool(parts.netloc)


def leads(path: Path, address: str, pages: dict[Path, Page]) -> bool:
    """Is there what an address of a page names?"""
    parts = urlsplit(unescape(address))
    if parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return False
    anchor = unquote(parts.fragment)
    held = pages.get(target)
    return not anchor or held is None or anchor in held.anchors or anchor.startswith("__")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    wrong = problems(folder)
    count = len(list(folder.rglob("*.html")))
    sys.exit("\n".join(wrong) if wrong else 0 if count else f"{folder}: holds no page")
