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
KEEP_FILES_OF_THEIR_OWN = {
    "cli/ingestion_commands.py",
    "cli/demo.py",
    "cli/serve_commands.py",
    "cli/stack_commands.py",
    "examination.py",
    "faults.py",
    "hudi/local_storage.py",
    "hudi/s3_access.py",
    "kafka/admin_clients.py",
    "lineage/emitter.py",
    "metrics/docs.py",
    "metrics/otlp.py",
    "model/secret_hooks.py",
    "model/storage_options.py",
    "orchestration/code_location.py",
    "orchestration/code_server.py",
    "orchestration/component.py",
    "orchestration/daemon/__main__.py",
    "orchestration/dagster_diagnoses.py",
    "orchestration/dagster_storage.py",
    "orchestration/definitions.py",
    "orchestration/home_instance.py",
    "orchestration/housekeeping.py",
    "orchestration/rehearsal.py",
    "orchestration/run_launcher.py",
    "orchestration/run_retention.py",
    "orchestration/sensor_switch.py",
    "orchestration/sqlite_space.py",
    "orchestration/sqlite_storage.py",
    "orchestration/standalone_housekeeping.py",
    "orchestration/step_logs.py",
    "operations/doctor/ledger.py",
    "operations/doctor/machine.py",
    "operations/doctor/pipelines.py",
    "operations/pipeline_files.py",
    "operations/validation.py",
    "orchestration/webserver.py",
    "records/convert/avro_exact.py",
    "records/convert/avro_fast.py",
    "records/convert/json_kernel/kept_code.py",
    "records/convert/protoc.py",
    "rest/server.py",
    "transaction/decoding.py",
    "transaction/write/user_code.py",
    "rest/allowed.py",
    "rest/tokens.py",
}
"""The storage, and modules with files of this machine: settings, certificates, code, logs, batches for a decoder that reads files only."""
ROOMS_OF_THIS_MACHINE = ("home/", "ledger/", "local/", "pipeline/", "spark/")
"""Rooms whose files are this machine's: pipeline files, state, jars. None is a table's."""
PLUGS_INTO_DAGSTER = {
    "orchestration/code_server.py",
    "orchestration/daemon/__main__.py",
    "orchestration/daemon/run_queue.py",
    "orchestration/dagster_storage.py",
    "orchestration/event_retention.py",
    "orchestration/executor.py",
    "orchestration/run_launcher.py",
    "orchestration/sensor_switch.py",
    "orchestration/snapshot_retention.py",
    "orchestration/sqlite_space.py",
    "orchestration/sqlite_storage.py",
    "orchestration/step_logs.py",
    "orchestration/transaction_job.py",
    "orchestration/webserver.py",
}
"""What replaces a part of a Dagster instance, starts one, empties its databases, or resolves a job in another way: Dagster has no
public names for these."""
FILE_MODULES = {"glob", "io", "os", "pathlib", "shutil", "tempfile"}


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


def test_only_parts_of_an_instance_use_private_names_of_dagster() -> None:
    assert {name for name, tree in modules() if any(_private_names_of_dagster(tree))} == PLUGS_INTO_DAGSTER


def _private_names_of_dagster(node: ast.AST) -> Iterator[str]:
    """Modules like dagster._core that are imported or named in a string; imports for types only do not count."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
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
    ways = {
        (name, way)
        for name, tree in modules()
        if not name.startswith(ROOMS_OF_THIS_MACHINE)
        for node in ast.walk(tree)
        for way in _ways_to_files(node)
    }
    assert {way for name, way in ways if name == "hudi/local_storage.py"} == {"os", "pyarrow.fs"}
    assert {name for name, _ in ways} == KEEP_FILES_OF_THEIR_OWN


def _ways_to_files(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
        yield "open()"
    imported = [each.name for each in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        imported = [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
    yield from (name for name in imported if name in FILE_MODULES or name == "pyarrow.fs")


def test_a_sensor_tick_needs_no_spark() -> None:
    code = "import sys, hudi_ingest.transaction.situation; print(*{name.partition('.')[0] for name in sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(told.stdout.split())
    assert "hudi_ingest" in loaded
    assert not loaded & {"pyspark", "py4j", "dagster"}


def test_the_picture_of_the_rooms_is_what_the_imports_say() -> None:
    assert rooms.picture_in(rooms.PAGE.read_text(encoding="utf-8")) == rooms.picture(), "run `make docs`"


def test_the_map_of_the_rooms_names_each_room_and_only_files_that_are_there() -> None:
    contributing = rooms.PAGE.parent.parent.joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    table = contributing.partition("## How a record flows through the code")[2].partition("## Rules")[0]
    assert {room for room in rooms.imported_rooms() if f"`{room}" not in table} == set()
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", table)
    assert paths
    assert [
        path for path in paths if not PACKAGE.joinpath(path).exists() and not PACKAGE.parent.joinpath(path).exists()
    ] == []
