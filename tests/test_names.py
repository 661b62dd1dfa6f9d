"""A public name of the package belongs to one module; others may import it."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "regard"


def public_names(source: str) -> set[str]:
    """Functions, classes and values that a module defines at its top, without an underscore."""
    names = set()
    for node in ast.parse(source).body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {
                    each.id
                    for target in targets
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name)
                }
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def test_no_public_name_is_defined_in_two_modules() -> None:
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in public_names(path.read_text()):
            modules[name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
    assert len(modules) > 1000  # the walk did find the package


def test_the_finder_finds() -> None:
    assert public_names("def f(): g = 1\nclass _C: ...\na, B = 1, 2\nc: int = 3\nimport d") == {
        "f",
        "a",
        "B",
        "c",
    }
