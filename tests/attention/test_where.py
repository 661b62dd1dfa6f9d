"""Where attention is computed: in `Attend`, and in the kernels that the docs name."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "regard"
KERNELS = {"layers/stepwise.py", "kernels/single_query.py"}
"""Held to the numbers of `Attend` by tests/layers/test_stepwise.py."""
MACHINES = {
    "kernels/ntm_step.py",
    "kernels/dnc_step.py",
    "kernels/memory_step.py",
    "models/memory/sam.py",
}
"""Steps of memory machines: tests/laws/test_memory_machines.py holds them to those numbers."""
NOT_ATTENTION = {"layers/scalar_mix.py"}
"""A softmax over layers."""


def calls(path: Path) -> set[str]:
    """The names of all functions and methods that a file calls."""
    nodes = (node.func for node in ast.walk(ast.parse(path.read_text())) if is_call(node))
    return {func.attr if isinstance(func, ast.Attribute) else ast.unparse(func) for func in nodes}


def is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def files_that_call(names: set[str], *folders: str) -> set[str]:
    paths = (path for folder in folders for path in (PACKAGE / folder).rglob("*.py"))
    return {str(path.relative_to(PACKAGE)) for path in paths if calls(path) & names}


def test_attention_is_computed_by_attend_and_named_kernels_alone() -> None:
    fused = files_that_call({"scaled_dot_product_attention", "multi_head_attention_forward"}, "")
    assert fused == {"attention/attend.py", "layers/stepwise.py"}
    soft = files_that_call({"softmax", "masked_softmax"}, "layers", "models", "kernels")
    assert soft - NOT_ATTENTION == {"kernels/single_query.py", *MACHINES}


def test_attend_is_the_only_site() -> None:
    bases = {
        f"{path.relative_to(PACKAGE)}:{node.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).split(".")[-1] == "Site" for base in node.bases)
    }
    assert bases == {"attention/attend.py:Attend"}


def test_the_docs_name_those_kernels() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    attend = (PACKAGE / "attention" / "attend.py").read_text()
    for name in KERNELS:
        assert f"regard/{name}" in page
        assert f"regard/{name}" in attend
