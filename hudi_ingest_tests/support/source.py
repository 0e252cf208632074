"""The package's modules as syntax trees, with the modules that each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import hudi_ingest

PACKAGE = Path(hudi_ingest.__file__).parent


@dataclass(frozen=True)
class Module:
    """One module. `path`: in the package, with slashes; `name`: as it is imported."""

    path: str
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The folder at the top of the package, or the module itself where it is in none."""
        return self.path.partition("/")[0].removesuffix(".py")


class Source:
    """All modules of a package. `folder`: of the package, whose name is that of the folder."""

    def __init__(self, folder: Path = PACKAGE) -> None:
        paths = sorted(folder.rglob("*.py"))
        self.modules = [
            Module(
                path.relative_to(folder).as_posix(),
                ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"),
                path.read_text(encoding="utf-8"),
            )
            for path in paths
        ]
        self.package = folder.name
        self.by_name: Mapping[str, Module] = {module.name: module for module in self.modules}

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """By module name, the names of the package's modules that it imports, also inside functions; not for type checkers only."""
        return {module.name: {*self._imported(module)} - {module.name} for module in self.modules}

    def _imported(self, module: Module) -> Iterator[str]:
        for node in at_run_time(module.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.by_name)
            elif isinstance(node, ast.ImportFrom) and node.module in self.by_name:
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    yield below if below in self.by_name else str(node.module)

    @cached_property
    def floors(self) -> Mapping[str, int]:
        """By room, its floor: one more than the highest of those that it imports, 1 for a room that imports none."""
        rooms: dict[str, set[str]] = {module.room: set() for module in self.modules}
        for name, targets in self.imports.items():
            room = self.by_name[name].room
            rooms[room] |= {self.by_name[target].room for target in targets} - {room, "__init__"}
        floors: dict[str, int] = {}

        def floor(room: str, above: tuple[str, ...] = ()) -> int:
            if room not in floors:
                below = [floor(target, (*above, room)) for target in rooms[room] if target not in above]
                floors[room] = 1 + max(below, default=0)
            return floors[room]

        for room in rooms:
            floor(room)
        return floors


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from at_run_time(child)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of two and more names that reach each other, each in order."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in arrows.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            members: list[str] = []
            while not members or members[-1] != name:
                members.append(stack.pop())
            if len(members) > 1:
                found.append(sorted(members))

    for name in arrows:
        if name not in index:
            visit(name)
    return found
