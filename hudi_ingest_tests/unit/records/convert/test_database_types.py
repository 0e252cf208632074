"""Recorded values of every type of a database, in every mode of Debezium: the columns have what the database showed, or are bad, or
differ as docs/formats.md says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support import types_page
from hudi_ingest_tests.support.database_types import POSTGRESQL, POSTGRESQL_MODES, Type
from hudi_ingest_tests.support.types_page import DATABASES, REFUSED, becoming, decoded, inferred, recording, shown

pytestmark = pytest.mark.fast

MODES = [(database, mode) for database, (_, modes) in DATABASES.items() for mode in modes]
TYPES = {kind.name: kind for kind in POSTGRESQL}


def test_the_page_has_what_the_records_become() -> None:
    assert types_page.recorded() == types_page.render(), "run `make docs`"


def _inferred(database: str, mode: str, kind: Type) -> pa.DataType | None:
    try:
        return inferred(recording(database, mode).row, kind.name)
    except SchemaProblem:
        return None


@pytest.mark.parametrize(("database", "mode"), MODES)
def test_a_value_without_a_schema_is_the_same_or_bad(database: str, mode: str) -> None:
    """Apart from numbers and texts whose column says nothing about what they mean."""
    for kind in DATABASES[database][0]:
        column = _inferred(database, mode, kind)
        if column is None:
            continue
        with_schemas = decoded(database, mode, kind.name, column)
        without = decoded(database, mode, kind.name, column, schemas=False)
        for typed, plain in zip(with_schemas, without, strict=True):
            assert plain == REFUSED or repr(plain) == repr(typed), (kind.name, typed, plain)


@pytest.mark.parametrize("mode", POSTGRESQL_MODES)
def test_infinite_times_are_bad_in_every_unit(mode: str) -> None:
    for name in ("date_inf", "ts_inf", "tstz_inf", "a_date_inf", "a_ts_inf"):
        column = inferred(recording("postgresql", mode).row, name)
        assert column is not None
        texts = shown("postgresql")[name]
        values = decoded("postgresql", mode, name, column)
        infinite = [value for text, value in zip([*texts, *texts], values, strict=True) if text and "infinity" in text]
        assert len(infinite) == 4
        assert set(map(str, infinite)) == {REFUSED}, (name, infinite)


def test_hex_is_not_taken_for_base64() -> None:
    """In a column that is declared as binary: the schema says text in both modes of Debezium."""
    column = parse_ddl("c binary").field(0).type
    expected = [b"\x00\xff\x10", b"", b"\xde\xad\xbe\xef", b"\xfb\xef\xbe", None, None, None] * 2
    for mode in POSTGRESQL_MODES:
        for value, right in zip(decoded("postgresql", mode, "bytea", column), expected, strict=True):
            assert value in (right, REFUSED), (mode, value, right)


def test_declared_columns_have_what_the_database_shows_or_are_bad() -> None:
    # Debezium sends null for NaN, and with the settings of `connect` milliseconds and the nearest double.
    declared = {
        "num_12_2": "decimal(12,2)",
        "num": "decimal(38,10)",
        "num_nan": "double",
        "ts": "timestamp",
        "tstz": "timestamp",
        "date": "date",
        "date_inf": "date",
        "uuid": "string",
        "int8": "long",
    }
    assert becoming("postgresql", "default", TYPES["int8"]).column == "`long`"
    for mode, settings in POSTGRESQL_MODES.items():
        for name, ddl in declared.items():
            column = parse_ddl(f"c {ddl}").field(0).type
            texts = shown("postgresql")[name]
            connect = recording("postgresql", mode).row.members[name]
            values = decoded("postgresql", mode, name, column)[len(texts) :]
            for text, value in zip(texts, values, strict=True):
                lost = (value is None and name == "num_nan") or (mode == "connect" and name in ("ts", "num"))
                right = types_page.is_right(TYPES[name], settings, connect, text, value)
                assert right or lost or value == REFUSED, (mode, name, text, value)
