"""Hooks of the documentation site: pages made from the project itself, and equations as MathML.

README.md, RESULTS.md, CHANGELOG.md, CONTRIBUTING.md and SECURITY.md become pages; every package has
a page of reference; every verb of the command line is listed; notebooks become pages. Equations are
MathML, which browsers draw without a script.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
AT_THE_TOP = {
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files beside docs/, and the pages that are made of them."""

WITHOUT_REFERENCE = {"cli", "recipes"}
"""Folders of the package that have a page of another kind."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: notebooks, decisions, the reference, and pages that it lacks."""
    assert config.nav is not None
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    if notebooks:
        pages = [f"notebooks/{path.stem}.md" for path in notebooks]
        section(config.nav, "Lectures").append({"Notebooks": pages})
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    listed = ["decisions/README.md", *(f"decisions/{path.name}" for path in decisions)]
    section(config.nav, "Extend").append({"Decisions": listed})
    reference = [{name: f"reference/{name}.md"} for name in packages()]
    section(config.nav, "Reference").append({"Python": reference})
    named = set(pages_of(config.nav))
    others = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]
    section(config.nav, "Tasks").extend(others)
    return config


def pages_of(nav: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(each)


def section(nav: list[Any], title: str) -> list[Any]:
    """The list of pages under a title of the navigation."""
    (found,) = [each[title] for each in nav if title in each]
    return found


def packages() -> list[str]:
    """The folders of the package that have a page of reference."""
    folders = sorted(path.parent.name for path in ROOT.glob("regard/*/__init__.py"))
    return [name for name in folders if name not in WITHOUT_REFERENCE]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {page: (ROOT / name).read_text() for name, page in AT_THE_TOP.items()}
    made |= {f"reference/{name}.md": reference_page(name) for name in packages()}
    made["commands.md"] = commands_page()
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = notebook_page(path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def reference_page(package: str) -> str:
    """Every public module of a package, from its docstrings."""
    folder = ROOT / "regard" / package
    paths = [path for path in sorted(folder.rglob("*.py")) if "static" not in path.parts]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    lines = [f"# regard.{package}", ""]
    for name in names:
        module = name.removesuffix(".__init__")
        if module.endswith(".__main__"):
            continue
        lines += [f"## {module} {{: data-toc-label='{module}' }}", "", f"::: {module}"]
        root = name.endswith("__init__")
        lines += ["    options:", "      show_root_heading: false"]
        lines += ["      members: false", ""] if root else [""]
    return "\n".join(lines)


def commands_page() -> str:
    """Every verb with its arguments and options, from the command line itself."""
    import typer

    from regard.cli import app

    lines = ["# Commands", "", "`regard COMMAND --help` shows the same in a terminal.", ""]
    group = typer.main.get_command(app)
    for name, command in verbs(group, "regard"):
        lines += [f"## {name}", "", escaped(command.help or ""), ""]
        rows = []
        for each in command.params:
            if each.name == "help":
                continue
            shown = " ".join((*each.opts, *each.secondary_opts)) or str(each.name)
            if each.param_type_name == "argument":
                shown = str(each.name).upper()
            about = escaped(getattr(each, "help", "") or "")
            default = each.default
            if default not in (None, (), [], "", False) and not callable(default):
                about += f" Default: `{default}`."
            rows.append(f"| `{shown}` | {about} |")
        if rows:
            lines += ["| option | what it does |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def verbs(group: Any, prefix: str) -> list[tuple[str, Any]]:
    """All commands below a group, with their whole names."""
    found = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        whole = f"{prefix} {name}"
        found += verbs(command, whole) if inner else [(whole, command)]
    return found


def escaped(text: str) -> str:
    """Text of a help that stands in a table or paragraph."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its texts, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for each in cell.get("outputs", []) if (shown := output(each))]
    return "\n\n".join(parts)


def output(each: dict[str, Any]) -> str:
    """What a cell has printed or drawn."""
    data = each.get("data", {})
    if "image/png" in data:
        return f"![](data:image/png;base64,{''.join(data['image/png']).strip()})"
    text = "".join(each.get("text", []) or data.get("text/plain", []))
    return f"```text\n{text.rstrip()}\n```" if text else ""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that fit the site, and equations."""
    here = page.file.src_uri
    if here in AT_THE_TOP.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    up = "../" * here.count("/")
    for name, target in AT_THE_TOP.items():
        markdown = re.sub(
            rf"\]\((?:\.\./)*{re.escape(name)}(#[^)]*)?\)", f"]({up}{target}\\1)", markdown
        )
    # A link to a file of the package is its name: the site holds no sources.
    markdown = re.sub(
        r"\[([^\]]+)\]\((?:\.\./)*((?:regard|tests|bench|results)/[^)]*)\)", code_name, markdown
    )
    markdown = re.sub(r"\]\(decisions/\)", "](decisions/README.md)", markdown)
    return equations(markdown)


def code_name(found: re.Match[str]) -> str:
    """The name of a file as code."""
    text = found[1].strip("`")
    return (
        f"`{text}`" if "/" in text or text.endswith((".py", ".toml")) else f"{text} (`{found[2]}`)"
    )


def equations(markdown: str) -> str:
    """Equations between dollar signs as MathML; code is left alone."""
    pieces = re.split(r"(^```.*?^```|`[^`\n]+`)", markdown, flags=re.DOTALL | re.MULTILINE)
    for place in range(0, len(pieces), 2):
        text = re.sub(r"\$\$(.+?)\$\$", block_equation, pieces[place], flags=re.DOTALL)
        pieces[place] = re.sub(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])", inline_equation, text)
    return "".join(pieces)


def block_equation(found: re.Match[str]) -> str:
    """An equation on a line of its own."""
    return f'<div class="equation">{convert(found[1].strip(), display="block")}</div>'


def inline_equation(found: re.Match[str]) -> str:
    """An equation in a line."""
    return convert(found[1].strip())


def on_post_build(config: MkDocsConfig) -> None:
    """The index of the search as a script, which pages opened from a folder can load."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text()
    (folder / "search_index.js").write_text(f"var __index = {index}")
