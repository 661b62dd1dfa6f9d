"""The notebooks of docs/ run from the first cell to the last, and show what they promise."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    return ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]


def shown(source: str, names: dict[str, object]) -> str:
    """Run a cell; what a notebook would show of its last line."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return ""
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    html = getattr(value, "_repr_html_", None)
    return str(html()) if html else repr(value)


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        kept = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(each.get("outputs") for each in kept), "outputs are not kept"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {"__name__": "__main__"}
    outputs = [shown(source, names) for source in cells(path)]
    assert any("<iframe" in each for each in outputs), "no page of attention is shown"
    assert all(outputs), "every cell shows something"
