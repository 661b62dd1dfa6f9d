"""The table of arrows: which layer may import which. The folder listing is the architecture."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "regard"

TASKS = ("tasks.TASKS", "tasks.task", "tasks.abilities")
"""All that may be known of tasks outside their folder: the table, and what tasks have in common."""

ARROWS: dict[str, set[str]] = {
    "core": set(),
    "kernels": {"core"},
    "attention": {"core", "kernels"},
    "data": {"core"},
    "datasets": {"core"},
    "decode": {"core"},
    "lectures": {"core"},
    "outputs": {"core", "attention"},
    "layers": {"core", "kernels", "attention", "outputs"},
    "models": {"core", "kernels", "attention", "outputs", "layers"},
    "tasks": {"core", "data", "datasets.table", "decode", "outputs"},
    "train": {"core", "data"},
    "look": {"core", "attention.tape"},
    "check": {"core", "attention"},
    "hub": {"core", "data", "layers", "models"},
    "export": {"core", "layers", "models", "outputs"},
    "serve": {"core", "data", "decode", "hub", "look", *TASKS},
    "runs": {
        "core", "attention", "data", "decode", "hub", "layers", "look", "models", "train", *TASKS,
    },
    "explain": {"core", "attention", "layers", "look", "models", "runs", "train", *TASKS},
    "inference": {
        "core", "attention", "data", "decode", "explain", "layers", "look", "runs", "serve", *TASKS,
    },
    "experiments": {
        "core", "attention", "explain", "inference", "layers", "models", "runs", "train", *TASKS,
    },
}  # fmt: skip
"""What each folder may import besides itself."""

ANYTHING = {"cli", "recipes", "__init__.py", "__main__.py"}
"""What stands above all folders."""

DOORS: dict[str, set[str]] = {
    "attention/tape.py": {"regard.look.notebook.of_tape"},
    "train/fit.py": {"regard.runs.door.fit_task", "regard.runs.run.Run"},
    "runs/run.py": {
        "regard.explain.audit.AuditConfig",
        "regard.explain.audit.audit_run",
        "regard.explain.verdict.AuditResult",
        "regard.inference.attention.attention_of",
        "regard.inference.workers.translate",
    },
}
"""Imports against the arrows, inside a function, for methods that only pass on to another folder:
`tape.show()`, `run.look(...)`. The folder works without them."""

BANNED = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

FILES = sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """Every module that a file imports, by its full dotted name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def wrong_arrows(layer: str, names: set[str]) -> set[str]:
    """The imports of ours that this layer may not make."""
    allowed = {f"regard.{each}" for each in ARROWS[layer] | {layer}}
    ours = {name for name in names if name.startswith("regard.")}
    return {
        name
        for name in ours
        if not any(name == each or name.startswith(f"{each}.") for each in allowed)
    }


def loads_unsafely(tree: ast.AST) -> bool:
    """Is there a torch.load without weights_only=True?"""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if given.get("weights_only") != "True":
                return True
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_layer_may(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0]
    assert layer in ARROWS or layer in ANYTHING, f"{path} is in no folder of the table"
    names = imported(ast.parse(path.read_text()))
    if layer in ARROWS:
        doors = DOORS.get(str(path.relative_to(PACKAGE)), set())
        assert wrong_arrows(layer, names) == doors


@pytest.mark.parametrize("name", DOORS)
def test_a_door_is_opened_inside_a_function_only(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text())
    apart = (ast.ClassDef, ast.FunctionDef, ast.If)  # the last for `if TYPE_CHECKING`
    tree.body = [node for node in tree.body if not isinstance(node, apart)]
    assert not imported(tree) & DOORS[name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_can_run_code_from_a_checkpoint(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not {name.split(".")[0] for name in imported(tree)} & BANNED
    assert not loads_unsafely(tree)


def test_at_the_top_of_the_package_there_are_two_files() -> None:
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_the_test_itself_sees_a_wrong_arrow() -> None:
    up = imported(ast.parse("from regard.models import GPT2\nimport regard.core.errors"))
    assert wrong_arrows("layers", up) == {"regard.models.GPT2"}
    assert loads_unsafely(ast.parse("torch.load(path)"))
    assert (
        wrong_arrows("look", imported(ast.parse("from regard.attention.tape import Tape"))) == set()
    )
    assert wrong_arrows("look", imported(ast.parse("from regard.attention import Tape")))
