"""`sql`: columns and a condition in SQL. A statement turns a record into at most one row, independent of other records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import TransformFailed
from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.converter import Rejected, shortened
from hudi_ingest.records.kafka_columns import is_kafka
from hudi_ingest.records.schema.columns import TIMESTAMP
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from hudi_ingest.records.transform import (
    Origins,
    Problem,
    Transformed,
    TransformProblems,
    kafka_columns,
    name_problems,
    record_names,
    require,
    unchanged,
)
from hudi_ingest.records.transform.casts import shown, without_rejected
from hudi_ingest.records.transform.sql_statement import RECORDS, AllFields, Expression, NotAllowed, Statement, parse

_PLACE = "__hudi_ingest_place"
"""An extra column with each row's index in the batch."""
_CLOCKS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Functions called without parentheses."""
_INSTEAD = "another attempt would write different rows; use _kafka_timestamp"
_NOT_FOUND = re.compile(r'Referenced column "([^"]*)" not found')
_BOUNDS: Mapping[pa.DataType, tuple[pa.DataType, int, int]] = {
    TIMESTAMP: (pa.int64(), FIRST_MICROSECOND, LAST_MICROSECOND),
    pa.date32(): (pa.int32(), FIRST_DAY, LAST_DAY),
}


@dataclass(frozen=True, slots=True)
class Sql:
    """Computes the statement's columns, for the records for which its condition is true.

    Fields that are merely named pass through unchanged, and so do all Kafka columns. A record is rejected if a column or
    the condition cannot be computed for it.
    """

    text: str

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        return _planned(self.text, incoming).output

    def origins(self, incoming: pa.Schema) -> Origins:
        return _planned(self.text, incoming).origins

    def judged(self, incoming: pa.Schema) -> frozenset[str]:
        return _planned(self.text, incoming).reads.get("", frozenset())

    def copies(self, incoming: pa.Schema) -> frozenset[str]:
        """Return the output columns that the statement merely names, so that they pass through unchanged."""
        return frozenset(_planned(self.text, incoming).copies)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Apply the statement. Raises TransformFailed when it fails for any reason other than a record's content."""
        plan = _planned(self.text, batch.schema)
        computed, places, rejected = _computed(plan, batch)
        kept_places = None if len(places) == batch.num_rows else pa.array(places, pa.int64())
        remaining = batch if kept_places is None else batch.take(kept_places)
        columns = [computed[name] if name in computed else remaining[plan.copies[name]] for name in plan.output.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=plan.output)
        faults = tuple(rejected[place] for place in sorted(rejected))
        return Transformed(rows, kept_places, faults, batch.num_rows - len(places) - len(faults))


@dataclass(frozen=True, slots=True)
class Expect:
    """Judges rows by a condition, and rejects those that violate it, or only counts them. As with a CHECK of SQL, null passes; a row of
    which the condition cannot be computed does not."""

    name: str
    condition: str
    rejects: bool
    deletes: str | None = None
    """The boolean column that is true in rows that only delete, which are not judged."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        self._plan(incoming)
        return incoming

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def reads(self, incoming: pa.Schema) -> frozenset[str]:
        """Return the incoming columns that the condition names."""
        return self._plan(incoming).reads.get("", frozenset())

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Judge the rows. Raises TransformFailed as `Sql` does."""
        plan = self._plan(batch.schema)
        table = plan.table(batch)
        if self.deletes is not None:
            table = table.filter(pc.invert(pc.fill_null(batch[self.deletes], False)))
        if plan.where is None or not len(table):
            return Transformed(batch, None)
        places, (holds,), faults = _evaluated({"": plan.where}, table)
        violated = sorted({*places[~pc.fill_null(holds, True).to_numpy(zero_copy_only=False)].tolist(), *faults})
        counts = {self.name: len(violated)} if violated else {}
        if not self.rejects or not violated:
            return Transformed(batch, None, violations=counts)
        expected = f"{self.name}: {self.condition}"
        refused = {place: replace(plan.refused("", expected, batch, place), rule=self.name) for place in violated}
        return replace(without_rejected(batch, refused), violations=counts)

    def _plan(self, incoming: pa.Schema) -> _Plan:
        return _planned(f"SELECT TRUE AS holds FROM {RECORDS} WHERE {self.condition}", incoming)


@dataclass(frozen=True, slots=True)
class _Fault:
    """The part of the statement that cannot be computed for a record."""

    part: str
    """The column; "" for the condition."""
    limit: str = ""


@dataclass(frozen=True)
class _Plan:
    """How to run a statement on records of one schema."""

    output: pa.Schema
    copies: Mapping[str, str]
    """Output columns that copy an incoming column, and which one."""
    computed: Mapping[str, Expression]
    where: Expression | None
    reads: Mapping[str, frozenset[str]]
    """The incoming columns that each output column, and "" for the condition, is computed from."""

    @property
    def origins(self) -> Origins:
        return {
            name: frozenset([self.copies[name]]) if name in self.copies else self.reads[name]
            for name in self.output.names
        }

    @property
    def parts(self) -> Mapping[str, Expression]:
        """All expressions to compute; the condition has the name ""."""
        return self.computed if self.where is None else {**self.computed, "": self.where}

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the columns that the statement reads, and each row's index."""
        names = sorted(set().union(*self.reads.values()))
        return pa.table([pa.array(np.arange(batch.num_rows)), *(batch[name] for name in names)], names=[_PLACE, *names])

    def fault(self, fault: _Fault, batch: pa.RecordBatch, place: int) -> Rejected:
        """Say why the record is bad."""
        name = fault.part
        expected = f"what {f'column {name}' if name else 'the condition of WHERE'} can be computed of{fault.limit}"
        return self.refused(name, expected, batch, place)

    def refused(self, part: str, expected: str, batch: pa.RecordBatch, place: int) -> Rejected:
        """Show what a part of the statement read of the record."""
        reads = sorted(self.reads[part])
        if len(reads) == 1:
            return Rejected(place, reads[0], expected, shown(batch[reads[0]][place]))
        # Without values: the chain hides those of a single field, but cannot tell several apart in a text.
        description = f"other values of {', '.join(reads)}" if reads else "what no record changes"
        return Rejected(place, "", expected, shortened(description))


def _computed(
    plan: _Plan, batch: pa.RecordBatch
) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64], dict[int, Rejected]]:
    """Return the computed columns of the rows that stay, their indexes in the batch, and the rejected by index."""
    rejected: dict[int, Rejected] = {}
    places: npt.NDArray[np.int64] = np.arange(batch.num_rows)
    if not batch.num_rows:
        return {name: pa.array([], plan.output.field(name).type) for name in plan.computed}, places, rejected
    table = plan.table(batch)
    if plan.where is not None:
        places, (stays,), faults = _evaluated({"": plan.where}, table)
        rejected |= {place: plan.fault(fault, batch, place) for place, fault in faults.items()}
        places = places[pc.fill_null(stays, False).to_numpy(zero_copy_only=False)]
        table = table.take(pa.array(places))
    if not plan.computed:
        return {}, places, rejected
    places, values, faults = _evaluated(plan.computed, table)
    columns = {
        name: value.cast(plan.output.field(name).type) for name, value in zip(plan.computed, values, strict=True)
    }
    within = np.ones(len(places), np.bool_)
    for name, column in columns.items():
        beyond = _beyond_time(column)
        faults = {**dict.fromkeys(places[beyond].tolist(), _Fault(name)), **faults}
        within &= ~beyond
    rejected |= {place: plan.fault(fault, batch, place) for place, fault in faults.items()}
    if not within.all():
        columns = {name: column.filter(pa.array(within)) for name, column in columns.items()}
    return columns, places[within], rejected


_Evaluated = tuple[npt.NDArray[np.int64], list[pa.Array], dict[int, _Fault]]
"""Rows with all parts computed, as indexes, and each part's values; for the others, by index, the first part that failed."""


def _evaluated(parts: Mapping[str, Expression], table: pa.Table) -> _Evaluated:
    """Compute all parts. A record counts as too large for the memory only if it is so on its own, whatever its neighbours.
    Raises TransformFailed."""
    from hudi_ingest.records.transform import sql_session

    try:
        return _evaluated_at_once(parts, table)
    except sql_session.OutOfMemory:
        if len(table) == 1:
            return _too_large(parts, table)
    half = len(table) // 2
    pieces = [_evaluated(parts, part) for part in (table.slice(0, half), table.slice(half))]
    values = [pa.concat_arrays(chunks) for chunks in zip(*(values for _, values, _ in pieces), strict=True)]
    return np.concatenate([places for places, _, _ in pieces]), values, pieces[0][2] | pieces[1][2]


def _too_large(parts: Mapping[str, Expression], record: pa.Table) -> _Evaluated:
    """Find the part for which a single record runs out of memory: the first that does not fit together with those before."""
    from hudi_ingest.records.transform import sql_session

    names = [*parts]
    for count in range(1, len(names)):
        try:
            sql_session.run(record, _select([parts[name].text for name in names[:count]]))
        except (sql_session.OutOfMemory, sql_session.RecordFault):
            names = names[:count]
            break
    fault = _Fault(names[-1], f" in {sql_session.MEMORY} of memory")
    places, values, _ = _evaluated_at_once(parts, record.slice(0, 0))
    return places, values, {record[_PLACE][0].as_py(): fault}


def _evaluated_at_once(parts: Mapping[str, Expression], table: pa.Table) -> _Evaluated:
    """Compute all parts of all records together. Raises OutOfMemory, TransformFailed.

    All parts are computed as columns, the condition too: in a filter DuckDB may skip one side of an AND, and whether a
    record is bad must not depend on that.
    """
    from hudi_ingest.records.transform import sql_session

    texts = [expression.text for expression in parts.values()]
    faults: dict[int, _Fault] = {}
    try:
        try:
            results = sql_session.run(table, _select(texts))
        except sql_session.RecordFault:
            flags = sql_session.run(table, _select([f"TRY(({text}\n) IS NULL) IS NULL" for text in texts]))
            for index, name in reversed([*enumerate(parts, 1)]):
                faults |= dict.fromkeys(flags.column(0).filter(flags.column(index)).to_pylist(), _Fault(name))
            good = pc.invert(pc.is_in(table[_PLACE], value_set=pa.array([*faults], pa.int64())))
            table = table.filter(good)
            results = sql_session.run(table, _select(texts))
    except (sql_session.RecordFault, sql_session.StatementFault) as error:
        raise TransformFailed(
            f"DuckDB cannot run the statement of `sql`: {error}. Correct it, or report it."
        ) from error
    if not results.column(0).equals(table[_PLACE]):
        raise TransformFailed(
            "DuckDB did not return one row for each record, in order; correct the statement of `sql`."
        )
    values = [column.combine_chunks() for column in results.columns[1:]]
    return results.column(0).to_numpy(), values, faults


def _select(texts: Iterable[str]) -> str:
    """Build the query of each record's index, then the expressions."""
    # On lines of their own, because an expression may end in a comment.
    return f"SELECT {', '.join([_PLACE, *(f'({text}{chr(10)})' for text in texts)])} FROM {RECORDS}"


def _beyond_time(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which times are outside the years 0001 to 9999, including DuckDB's infinities: not every reader can show them."""
    if column.type not in _BOUNDS:
        return np.zeros(len(column), np.bool_)
    number, first, last = _BOUNDS[column.type]
    ticks = column.cast(number)
    wrong = pc.fill_null(pc.or_(pc.less(ticks, first), pc.greater(ticks, last)), False)
    return np.asarray(wrong.to_numpy(zero_copy_only=False))


@lru_cache(maxsize=64)
def _planned(text: str, incoming: pa.Schema) -> _Plan:
    """Check and plan the statement. Raises TransformProblems."""
    try:
        statement = parse(text)
    except NotAllowed as error:
        raise TransformProblems([Problem((), str(error))]) from None
    record = record_names(incoming)
    known = {name.lower(): name for name in incoming.names}
    fields: list[pa.Field] = []
    copies = {column.name: column.name for column in kafka_columns(incoming)}
    computed: dict[str, Expression] = {}
    problems: list[Problem] = []
    for entry in statement.entries:
        if isinstance(entry, AllFields):
            problems += [_missing(name, record) for name in entry.without if name.lower() not in known]
            without = {name.lower() for name in entry.without}
            copied = [(name, name) for name in record if name.lower() not in without]
        elif entry.column is not None and entry.column.lower() in known:
            source = known[entry.column.lower()]
            name = source if entry.name == entry.column else entry.name
            # Kafka columns are in the output anyway.
            copied = [] if is_kafka(name) and name == source else [(name, source)]
        else:
            copied = []
            fields.append(pa.field(entry.name, pa.null()))
            computed[entry.name] = entry.value
        fields += [incoming.field(source).with_name(name) for name, source in copied]
        copies |= dict(copied)
    problems += _refused(statement, known)
    if not fields and not problems:
        problems.append(Problem((), "nothing would be left; select at least one field"))
    require(problems)
    reads = {name: _reads(expression, known) for name, expression in computed.items()}
    if statement.where is not None:
        reads[""] = _reads(statement.where, known)
    kafka = kafka_columns(incoming)
    plan = _Plan(pa.schema([*fields, *kafka]), copies, computed, statement.where, reads)
    if plan.parts:
        types = _types(plan, incoming, record)
        fields = [field.with_type(types[field.name]) if field.name in types else field for field in fields]
    output = pa.schema([*fields, *kafka])
    require([*name_problems(output, {field.name: () for field in fields})])
    return replace(plan, output=output)


def _types(plan: _Plan, incoming: pa.Schema, record: list[str]) -> dict[str, pa.DataType]:
    """Return the types of the computed columns. Raises TransformProblems."""
    from hudi_ingest.records.transform import sql_session

    try:
        schema = incoming.append(pa.field(_PLACE, pa.int64()))
        _, *results = sql_session.bind(schema, _select(expression.text for expression in plan.parts.values()))
    except sql_session.StatementFault as error:
        unknown = _NOT_FOUND.search(str(error))
        problem = _missing(unknown[1], record) if unknown else Problem((), f"DuckDB rejects it: {error}")
        raise TransformProblems([problem]) from None
    if len(results) != len(plan.parts):
        raise TransformProblems([Problem((), "an entry of the list makes several columns; write one entry for each")])
    problems = []
    types = {}
    for name, result in zip(plan.parts, results, strict=True):
        types[name] = result.type
        if not name and result.type != pa.bool_():
            problems.append(Problem((), f"the condition of WHERE is a {result.type_name}; allowed: a BOOLEAN"))
        elif result.type is None:
            advice = "; write … AT TIME ZONE 'UTC', which makes a timestamp" if result.type_name == "TIMESTAMP" else ""
            text = f"column {name} has DuckDB's type {result.type_name}, which tables cannot have; cast it{advice}"
            problems.append(Problem((), text))
    require(problems)
    return types


def _refused(statement: Statement, known: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each function whose result does not depend on the record alone."""
    words = {word for expression in statement.expressions for word in expression.words}
    for word in sorted(words):
        if word.lower() in _CLOCKS and word.lower() not in known:
            yield Problem((), f"{word} is not allowed: it returns something else each time; {_INSTEAD}")
    calls = sorted({call for expression in statement.expressions for call in expression.calls})
    if not calls:
        return
    from hudi_ingest.records.transform import sql_session

    for call in calls:
        why = sql_session.refusal(call)
        if why:
            yield Problem((), f"{call}() is not allowed: {why}" + (f"; {_INSTEAD}" if "each time" in why else ""))


def _reads(expression: Expression, known: Mapping[str, str]) -> frozenset[str]:
    """Return the columns that it reads, and perhaps more: any word that is a column's name counts."""
    return frozenset(known[word.lower()] for word in expression.words if word.lower() in known)


def _missing(name: str, record: list[str]) -> Problem:
    text = f"no field is called {quoted(name)} here; allowed: {', '.join(record)}{suggestion(name, record)}"
    return Problem((), text, missing=name)
