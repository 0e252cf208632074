"""Rows of a pipeline's table, read with hudi-rs, and answers to SQL about them from DuckDB. No JVM; changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.exceptions import ConfigError, QueryFailed, TableMismatch, TableMissing, TableUnreachable
from hudi_ingest.hudi.storage.s3_access import hudi_rs_options
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.pipeline import Pipeline

MEMORY = "1 GB"
"""Memory for what DuckDB keeps, such as groups and sorted rows; the table itself streams through."""
_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Rows:
    """The first rows of an answer. `more`: whether there are others."""

    table: pa.Table
    more: bool


def first_rows(pipeline: Pipeline, most: int) -> Rows:
    """Read at most `most` rows of the table's newest commit, in the order of its files. Raises TableMissing, TableUnreachable."""
    snapshot = _Snapshot(pipeline)
    taken, count = list[pa.RecordBatch](), 0
    for batch in snapshot.batches(min(most + 1, _BATCH_ROWS)):
        taken.append(batch)
        count += batch.num_rows
        if count > most:
            break
    return Rows(pa.Table.from_batches(taken, snapshot.schema).slice(0, most), count > most)


def answer(pipeline: Pipeline, statement: str, most: int, seconds: float) -> Rows:
    """Run a SELECT over the table's newest commit, which has the pipeline's name, and return at most `most` rows.

    Raises QueryFailed if the statement is wrong, or takes more than `seconds` or MEMORY; ConfigError without DuckDB; and what
    `first_rows` raises.
    """
    try:
        extras.require("sql")
    except ValueError as problem:
        raise ConfigError("hudi-ingest query", [str(problem)]) from None
    import duckdb

    snapshot = _Snapshot(pipeline)
    session = duckdb.connect(":memory:", config={"memory_limit": MEMORY, "python_enable_replacements": False})
    timer = threading.Timer(seconds, session.interrupt)
    timer.daemon = True
    where = f"pipeline {pipeline.name}: the query"
    try:
        # The table alone: no files, no network, nothing on this disk.
        for setting in ("TimeZone = 'UTC'", "temp_directory = ''", "enable_external_access = false"):
            session.execute(f"SET {setting}")
        session.register(pipeline.name, snapshot)
        timer.start()
        found = session.sql(statement)
        rows = found.limit(most + 1).to_arrow_table() if found is not None else None
    except duckdb.InterruptException:
        raise QueryFailed(
            f"{where} took longer than {seconds:g} s. Nothing was changed. Allow more with --seconds, ask for less, or use Spark, which "
            "reads only the files that a condition needs."
        ) from None
    except duckdb.OutOfMemoryException:
        raise QueryFailed(
            f"{where} needs more than {MEMORY} of memory. Nothing was changed. Group or sort fewer rows, or use Spark."
        ) from None
    except duckdb.Error as error:
        if snapshot.failure is not None:
            raise snapshot.failure from error
        reason = " ".join(str(error).partition("\n\n")[0].split())
        # DuckDB guesses at tables of its own.
        reason, remedy = reason.partition(" Did you mean")[0], ""
        if isinstance(error, duckdb.CatalogException):
            reason, remedy = reason.rstrip("!"), f" The table is called {pipeline.name} in it."
        raise QueryFailed(f"{where} failed: {reason}.{remedy}") from None
    finally:
        timer.cancel()
        session.close()
    if rows is None:
        raise QueryFailed(
            f"{where} has no rows as its answer. Only `select` is of use here: the table cannot be changed."
        )
    return Rows(rows.slice(0, most), rows.num_rows > most)


class _Snapshot:
    """The table at its newest commit, as a source of Arrow data that can be read several times."""

    def __init__(self, pipeline: Pipeline) -> None:
        path = pipeline.table.base_path
        self._timeline = Timeline.of(pipeline.table)
        self.failure: TableUnreachable | TableMismatch | None = None
        """Why DuckDB could not read it, whose own error is only a text."""
        if not self._timeline.exists() or not self._timeline.instants().completed:
            raise TableMissing(
                f"there is no table at {path} yet; the first transaction creates it. Begin one with `hudi-ingest run {pipeline.name}`; "
                f"`hudi-ingest sample {pipeline.name}` shows the rows that it would write."
            )
        try:
            self._table = HudiTable(path, dict(hudi_rs_options(path, pipeline.table.storage_options)))
            self.schema: pa.Schema = self._table.get_schema()
        except Exception as error:
            raise self._timeline.unreadable("schema", error) from error

    def batches(self, rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most so many. Raises TableUnreachable."""
        try:
            yield from self._table.read_stream(
                HudiReadOptions().with_projection(self.schema.names).with_batch_size(rows)
            )
        except Exception as error:
            self.failure = self._timeline.unreadable("rows", error)
            raise self.failure from error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        # DuckDB asks for each use of the table in a statement, and more often only to see the columns, which reads nothing.
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)
