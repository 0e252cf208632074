"""Boundaries that import-linter cannot see; those it can are in pyproject.toml."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hudi_ingest
from hudi_ingest_tests.support import rooms

pytestmark = pytest.mark.fast

PACKAGE = Path(hudi_ingest.__file__).parent
REPOSITORY = PACKAGE.parent
ROOMS_WITH_TABLES = ("hudi/", "transaction/", "operations/")
"""Rooms that work on the files of tables, which may be in an object store; the others leave tables to them."""
ROOM_OF_PRIVATE_NAMES = "orchestration/embedded/"
"""What replaces a part of a Dagster instance, starts one, or empties its databases: Dagster has no public names for these."""
FILE_MODULES = {"glob", "io", "os", "pathlib", "pyarrow.fs", "shutil", "tempfile"}


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Each module's path in the package, and its syntax tree."""
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def test_only_the_write_client_touches_the_jvm() -> None:
    found = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "_jvm" and not _resets_the_context(name, node)
    }
    assert found == {"hudi/write_client.py"}


def _resets_the_context(name: str, node: ast.Attribute) -> bool:
    """`SparkContext._jvm = None` in spark/session.py forgets a dead JVM."""
    return name == "spark/session.py" and isinstance(node.ctx, ast.Store) and ast.unparse(node) == "SparkContext._jvm"


def test_private_names_of_dagster_are_in_one_room() -> None:
    named = {name for name, tree in modules() if any(_private_names_of_dagster(tree))}
    assert {name for name in named if not name.startswith(ROOM_OF_PRIVATE_NAMES)} == set()


def _private_names_of_dagster(node: ast.AST) -> Iterator[str]:
    """Modules like dagster._core that are imported, also for types only, or named in a string."""
    named: list[str] = []
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        named = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        named = [node.value]
    yield from (name for name in named if re.match(r"dagster(_\w+)?\.(\w+\.)*_[a-z]", name))
    for child in ast.iter_child_nodes(node):
        yield from _private_names_of_dagster(child)


def test_only_storage_reaches_the_files_of_tables() -> None:
    ways = [
        (name, whose)
        for name, tree in modules()
        if name.startswith(ROOMS_WITH_TABLES)
        for node in ast.walk(tree)
        if _is_a_way_to_files(node)
        for whose in [_whose_files(PACKAGE / name, node)]
    ]
    assert [name for name, whose in ways if not whose] == [], (
        "say whose files it reaches: `import os  # files: the ledger's`"
    )
    assert {name for name, whose in ways if whose.startswith("the tables'")} == {
        "hudi/storage/local.py",
        "hudi/storage/s3_access.py",
    }


def _is_a_way_to_files(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not {str(node.module), *(f"{node.module}.{name.name}" for name in node.names)}.isdisjoint(FILE_MODULES)
    return isinstance(node, ast.Import) and not FILE_MODULES.isdisjoint(name.name for name in node.names)


def _whose_files(path: Path, node: ast.AST) -> str:
    """The comment `# files: …` beside the import."""
    line = path.read_text(encoding="utf-8").splitlines()[node.lineno - 1]  # type: ignore[attr-defined]
    return line.partition("# files: ")[2]


def test_a_sensor_tick_needs_no_spark() -> None:
    code = "import sys, hudi_ingest.transaction.plan.planning; print(*{name.partition('.')[0] for name in sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    loaded = set(told.stdout.split())
    assert "hudi_ingest" in loaded
    assert not loaded & {"pyspark", "py4j", "dagster"}


def test_the_picture_of_the_rooms_is_what_the_imports_say() -> None:
    assert rooms.picture_in(rooms.PAGE.read_text(encoding="utf-8")) == rooms.picture(), "run `make docs`"


def test_the_map_of_the_rooms_names_each_room_and_each_folder_has_a_readme() -> None:
    contributing = REPOSITORY.joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    table = contributing.partition("## The rooms")[2].partition("## Rules")[0]
    assert {room for room in rooms.imported_rooms() if f"`{room}" not in table} == set()
    small = {"exceptions", "home", "lineage"}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in folders - small if not (PACKAGE / name / "README.md").exists()} == set()


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", *sorted(str(path.relative_to(REPOSITORY)) for path in PACKAGE.rglob("*.md"))]
)
def test_a_map_names_only_files_that_are_there_and_fits_on_a_screen(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    if page == "CONTRIBUTING.md":
        text = text.partition("## The rooms")[2].partition("## Rules")[0]
    assert text.count("\n") <= 60
    places = [(REPOSITORY / page).parent, PACKAGE, REPOSITORY, REPOSITORY / "hudi_ingest_tests"]
    named = re.findall(r"`((?:\w+/)*\w+\.(?:py|java|yaml|json|html|lock|txt)|(?:\w+/)+)`", text)
    assert named
    # Of a file in a folder that the line names, the name alone.
    files = {
        path.name
        for place in ((REPOSITORY / page).parent, REPOSITORY / "hudi_ingest_tests")
        for path in place.rglob("*.*")
    }
    assert [name for name in named if not any((place / name).exists() for place in places) and name not in files] == []
