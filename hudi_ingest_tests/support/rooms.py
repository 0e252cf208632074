"""The picture of the rooms in docs/design.md, made from the imports. `python -m hudi_ingest_tests.support.rooms` writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import hudi_ingest

PACKAGE = Path(hudi_ingest.__file__).parent
PAGE = PACKAGE.parent / "docs" / "design.md"
_PICTURE = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


@cache
def imported_rooms() -> Mapping[str, set[str]]:
    """By room, the rooms that its modules import, also inside functions; imports for type checkers do not count."""
    rooms: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        if room == path.name:
            # A module beside the rooms. These are imported like one; the others are public names for them.
            if room not in ("examination.py", "faults.py"):
                continue
            room = path.stem
        imports = rooms.setdefault(room, set())
        for module in _imports(ast.parse(path.read_text(encoding="utf-8"))):
            if module.startswith("hudi_ingest.") and (target := module.split(".")[1]) != room:
                imports.add(target)
    return rooms


def direct(imports: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that remain where those that others imply are left out, ordered: its transitive reduction."""

    def reached(room: str) -> set[str]:
        return imports.get(room, set()).union(*(reached(below) for below in imports.get(room, ())))

    return sorted(
        (room, target)
        for room, targets in imports.items()
        for target in targets
        if not any(target in reached(between) for between in targets - {target})
    )


def picture() -> str:
    """A Mermaid flow chart: an arrow says that a room imports the one below it, and what that one imports."""
    arrows = "".join(f"    {room} --> {target}\n" for room, target in direct(imported_rooms()))
    return f"```mermaid\nflowchart TD\n{arrows}```\n"


def picture_in(page: str) -> str:
    """The first picture of a page. Raises ValueError when it has none."""
    match = _PICTURE.search(page)
    if match is None:
        raise ValueError(f"{PAGE} has no picture of the rooms")
    return match[0]


def _imports(tree: ast.Module) -> set[str]:
    for_type_checkers = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    modules = set()
    for node in ast.walk(tree):
        if id(node) in for_type_checkers:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules |= {*names} if node.module == "hudi_ingest" else {node.module}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(picture_in(text), picture()), encoding="utf-8")
