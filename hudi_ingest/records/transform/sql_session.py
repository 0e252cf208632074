"""DuckDB inside this process: SQL over columns in memory, with access to nothing else."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import current_process
from typing import Any

import duckdb
import pyarrow as pa

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.records.schema.columns import MAX_DEPTH, TIMESTAMP
from hudi_ingest.records.transform.sql_statement import RECORDS, calls_in

MEMORY = "512 MB"
"""Memory for results in each Spark worker. DuckDB does not count the memory for computing a single value."""
SECONDS = 120.0
"""Seconds for a batch of records, which takes milliseconds. DuckDB notices it between values, not within one."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    # Spark runs a task on each core already.
    "threads": 1,
    "memory_limit": MEMORY,
    # A statement reads its records only: no extensions, no variables of the program.
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    # Division by zero is null, as in Spark, rather than infinity; the logarithm of a negative number is an error.
    "ieee_floating_point_ops": False,
}
_SIMPLE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int32(),
    "smallint": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "utinyint": pa.int32(),
    "usmallint": pa.int32(),
    "uinteger": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": TIMESTAMP,
}
_CLOCKS = frozenset({"age"})
"""DuckDB calls it consistent, but with one argument it is not."""


class RecordFault(ValueError):
    """The statement cannot be computed for a record's content."""


class OutOfMemory(ValueError):
    """The statement's result for these records, or for one of them, takes more than MEMORY."""


class StatementFault(ValueError):
    """The statement cannot run at all. The text is DuckDB's, and contains no values of records."""


@dataclass(frozen=True, slots=True)
class Result:
    """A column of a query's result."""

    type: pa.DataType | None
    """The table type for it; None when there is none."""
    type_name: str
    """DuckDB's name for its type."""


def bind(schema: pa.Schema, query: str) -> list[Result]:
    """Return the columns of the query's result for records with this schema. Raises StatementFault."""
    session = _session(current_process().ident, threading.get_ident())
    session.register(RECORDS, schema.empty_table())
    try:
        return [Result(_table_type(kind), str(kind)) for kind in session.sql(query).types]
    except duckdb.Error as error:
        raise StatementFault(" ".join(str(error).partition("\n\n")[0].split())) from None


def run(records: pa.Table, query: str) -> pa.Table:
    """Run the query; rows are in the records' order. Raises RecordFault, OutOfMemory, StatementFault."""
    session = _session(current_process().ident, threading.get_ident())
    session.register(RECORDS, records)
    # A record is not bad because this machine is busy: the transaction fails instead.
    timer = threading.Timer(SECONDS, session.interrupt)
    timer.daemon = True
    timer.start()
    try:
        return session.sql(query).to_arrow_table()
    except duckdb.InterruptException:
        raise StatementFault(
            f"it takes longer than {SECONDS:g} s for {counted(len(records), 'record')}; bound the counts that functions like repeat get"
        ) from None
    except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError):
        # The query is bound already, so a record's content makes it fail. The text may contain a record's value.
        raise RecordFault("it fails for a record, but not for that record alone") from None
    except duckdb.OutOfMemoryException:
        raise OutOfMemory(f"it takes more than {MEMORY} of memory") from None
    except duckdb.Error as error:
        raise StatementFault(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from None
    finally:
        timer.cancel()


def refusal(function: str) -> str:
    """Say why a function must not be called; "" when it may be, or when DuckDB does not list it."""
    return _refusals().get(function.lower(), "")


@lru_cache(maxsize=4)
def _session(process: int, thread: int) -> duckdb.DuckDBPyConnection:
    """Return this thread's session; creating one takes 0.1 s. It belongs to its process, also after a fork, and its thread."""
    session = duckdb.connect(":memory:", config=_SETTINGS)
    session.execute("SET TimeZone = 'UTC'")
    # Write nothing to disk: the default is a folder in the worker's current directory.
    session.execute("SET temp_directory = ''")
    # No files and no network. Last, because after it the folder cannot be changed.
    session.execute("SET enable_external_access = false")
    if session.sql("SELECT 1 FROM duckdb_settings() WHERE name = 'error_on_division_by_zero'").fetchall():
        # Releases before 2.0 lack this setting and return null.
        session.execute("SET error_on_division_by_zero = false")
    session.execute("SET lock_configuration = true")
    return session


@lru_cache(maxsize=1)
def _refusals() -> Mapping[str, str]:
    session = _session(current_process().ident, threading.get_ident())
    columns = "function_name, function_type, stability, macro_definition"
    listed = session.sql(f"SELECT DISTINCT {columns} FROM duckdb_functions()").fetchall()
    kinds: dict[str, set[str]] = {}
    macros: dict[str, list[str]] = {}
    unstable = set(_CLOCKS)
    for name, kind, stability, definition in listed:
        kinds.setdefault(name, set()).add(kind)
        if kind == "macro" and definition:
            macros.setdefault(name, []).append(definition)
        if stability not in (None, "CONSISTENT"):
            unstable.add(name)

    def judge(name: str, above: Sequence[str] = ()) -> str:
        function_kinds = kinds.get(name, {"scalar"})
        if name in unstable:
            return "it returns something else each time"
        if function_kinds & {"aggregate", "window"}:
            return "it sees other records"
        if not function_kinds & {"scalar", "macro"}:
            return "it makes several rows of one"
        if name in above:
            return ""
        inner = [call.lower() for text in macros.get(name, ()) for call in calls_in(text)]
        return next(filter(None, (judge(call, [*above, name]) for call in inner)), "")

    return {name: why for name in kinds if (why := judge(name))}


def _table_type(kind: Any, levels: int = MAX_DEPTH) -> pa.DataType | None:
    """Convert a DuckDBPyType, whose module is named differently in other releases. None also when it nests too deeply."""
    if not levels:
        return None
    if kind.id in _SIMPLE:
        return _SIMPLE[kind.id]
    if kind.id == "decimal":
        parts = dict(kind.children)
        return pa.decimal128(parts["precision"], parts["scale"])
    if kind.id not in ("list", "array", "struct", "map"):
        return None
    inner = {name: _table_type(child, levels - 1) for name, child in kind.children if name != "size"}
    if None in inner.values():
        return None
    if kind.id == "struct":
        return pa.struct([pa.field(name, child) for name, child in inner.items()])
    if kind.id == "map":
        return pa.map_(pa.string(), pa.field("value", inner["value"])) if inner["key"] == pa.string() else None
    return pa.list_(pa.field("element", inner["child"]))
