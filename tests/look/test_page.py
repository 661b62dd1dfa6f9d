"""The page as a file: whole by itself, the same bytes every time, and only its own script runs."""

import re
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.look import Payload, draw, page, save_page, show
from regard.look.page import MODULES, join_modules, static_text
from tests.look.hostile import TOKENS

PAYLOAD = Payload.of(
    torch.linspace(0, 1, 24).view(2, 3, 4), ["a", "$b", "中"], ["<x>", " ", "😀", "مر"]
)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_same_numbers_are_the_same_bytes(tmp_path: Path) -> None:
    save_page([PAYLOAD], tmp_path / "one.html", title="t")
    save_page([PAYLOAD], tmp_path / "two.html", title="t")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert page([PAYLOAD], title="t") != page([PAYLOAD], title="u")


def test_nothing_of_the_page_lies_elsewhere() -> None:
    text = page([PAYLOAD], title="t")
    for tag, attributes in Elements(text).found:
        assert not {"src", "href", "srcset", "action"} & set(attributes), tag
    addresses = set(re.findall(r"\w+://[^\s\"'`]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name, not an address"
    assert "@import" not in text
    assert "url(" not in text


def test_only_the_one_script_may_run() -> None:
    text = page([PAYLOAD], title="t")
    (policy,) = (
        attributes["content"]
        for tag, attributes in Elements(text).found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (nonce,) = set(re.findall(r"'nonce-(\w+)'", policy))
    scripts = [attributes for tag, attributes in Elements(text).found if tag == "script"]
    assert [each.get("type") for each in scripts] == ["application/json", "module"]
    assert scripts[1]["nonce"] == nonce
    assert not [
        (tag, name)
        for tag, attributes in Elements(text).found
        for name in attributes
        if name.startswith("on") or name == "style"
    ]


def test_the_number_of_the_script_changes_with_every_label() -> None:
    def nonce(label: str) -> str:
        return re.findall(r"'nonce-(\w+)'", page([Payload.of([[1.0]], [label], ["k"])]))[0]

    first = nonce("a")
    assert len({first, nonce("b"), nonce(first)}) == 3


def test_modules_are_shipped_import_only_those_before_and_share_no_name() -> None:
    static = files("regard.look") / "static"
    assert {each.name for each in static.iterdir()} == {*MODULES, "page.css"}
    homes: dict[str, str] = {}
    for place, name in enumerate(MODULES):
        text = static_text(name)
        imports = re.findall(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', text, re.MULTILINE)
        assert text.count("import ") == len(imports), "one form of import, which the page can join"
        for names, home in imports:
            assert home in MODULES[:place]
            for each in names.replace("\n", " ").split(","):
                assert not each.strip() or homes[each.strip()] == home
        for declared in DECLARED.findall(text):
            assert declared not in homes, f"{name} and {homes.get(declared)} both have {declared}"
            homes[declared] = name
    joined = join_modules()
    assert not re.search(r"^(import|export) ", joined, re.MULTILINE)


def test_a_line_of_a_module_fits_the_page() -> None:
    for name in MODULES:
        long = [
            number
            for number, line in enumerate(static_text(name).splitlines(), 1)
            if len(line) > 100
        ]
        assert (name, long) == (name, [])
        assert len(static_text(name).splitlines()) < 450


@pytest.mark.parametrize("name", TOKENS)
def test_no_label_nor_title_becomes_markup(name: str) -> None:
    token = TOKENS[name]
    shown = Payload.of([[1.0]], [token], [token], site=token)
    plain = Payload.of([[1.0]], ["a"], ["a"], site="a")
    tags = [tag for tag, _ in Elements(page([shown], title=token)).found]
    assert tags == [tag for tag, _ in Elements(page([plain], title="a")).found]
    page([shown], title=token).encode("utf-8")


def test_html_is_the_page_and_other_ends_are_pictures(tmp_path: Path) -> None:
    draw([PAYLOAD], tmp_path / "a.HTML", title="t", view="links")
    text = (tmp_path / "a.HTML").read_text(encoding="utf-8")
    assert '{"view":"links"' in text
    for view in ("matrix", "heads", "links", "text"):
        draw([PAYLOAD], tmp_path / f"{view}.svg", view=view)
    drawn = [
        (tmp_path / f"{view}.svg").read_bytes() for view in ("matrix", "heads", "links", "text")
    ]
    assert len(set(drawn)) == 4


def test_a_view_that_is_not_there_is_named_and_one_that_has_no_room_says_so(
    tmp_path: Path, as_users_run_it: None
) -> None:
    with pytest.raises(UserError, match="did you mean 'links'"):
        draw([PAYLOAD], tmp_path / "a.png", view="link")
    with pytest.raises(UserError, match="shows one site, and there are 2"):
        draw([PAYLOAD, PAYLOAD], tmp_path / "a.png", view="links")
    assert list(tmp_path.iterdir()) == []


def test_rollout_is_a_view_of_its_own(tmp_path: Path) -> None:
    layers = [Payload.of(torch.eye(3), "abc", "abc", site=each, kind="self") for each in "01"]
    draw(layers, tmp_path / "a.png", view="rollout")
    draw(layers, tmp_path / "a.html", view="rollout")
    assert "rollout of 0, 1" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_notebook_gets_a_sandboxed_frame_and_nothing_else() -> None:
    html = show([PAYLOAD], "a title")._repr_html_()
    ((tag, attributes),) = Elements(html).found
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts allow-downloads"
    inner = attributes["srcdoc"] or ""
    assert inner.startswith("<!doctype html>")
    assert '"embedded":true' in inner
    assert unescape(html).count("</script>") == 2


def test_looks_say_what_they_are_and_can_be_saved(tmp_path: Path, as_users_run_it: None) -> None:
    looks = show(PAYLOAD)
    assert repr(looks) == "Looks(cross): a notebook shows them; elsewhere, save('page.html')"
    looks.save(tmp_path / "a.html")
    looks.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="nothing to show"):
        show([])
