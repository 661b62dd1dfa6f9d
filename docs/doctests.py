"""An extension of griffe: examples of docstrings (`>>>`) become blocks of code in the reference."""

from typing import Any

import griffe


def fenced(text: str) -> str:
    """A docstring whose doctests, up to the next blank line, stand in a fence."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            lines += ["", f"{indent}```pycon"]
            inside = True
        elif inside and not line.strip():
            lines += ["```", ""]
            inside = False
            continue
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class Doctests(griffe.Extension):
    """Fences the doctests of every object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
