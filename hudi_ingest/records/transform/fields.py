"""The columns of a batch: which ones are the record's, and problems of the names that a transform is configured with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place, quoted, suggestion
from hudi_ingest.records.kafka_columns import is_kafka
from hudi_ingest.records.schema.columns import column_problems
from hudi_ingest.records.transform import Problem, TransformProblems


def record_names(schema: pa.Schema) -> list[str]:
    """The record's fields, without the Kafka columns."""
    return [name for name in schema.names if not is_kafka(name)]


def kafka_columns(schema: pa.Schema) -> list[pa.Field]:
    """The Kafka columns, which follow the record's fields."""
    return [field for field in schema if is_kafka(field.name)]


def missing_fields(names: Sequence[tuple[Place, str]], incoming: pa.Schema, kafka: bool = False) -> Iterator[Problem]:
    """Yield a problem for each (place, name) that is not a field of the record; with `kafka`, Kafka columns are fine too."""
    there = record_names(incoming)
    for place, name in names:
        if kafka and is_kafka(name) and name in incoming.names:
            continue
        if is_kafka(name):
            yield Problem(
                place, f"{name} is a Kafka column, which no transform changes; insert_kafka makes a copy of it"
            )
        elif name not in there:
            parent = name.partition(".")[0]
            if "." in name and parent in there:
                advice = f"; transforms see whole columns, so flatten {parent} first"
            else:
                advice = suggestion(name, there)
            text = f"no field is called {quoted(name)} here; allowed: {', '.join(there)}{advice}"
            yield Problem(place, text, missing=name)


def repeated(names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each repeated name."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem((index,), f"found {quoted(name)} twice in the list; remove one")


def require(problems: Sequence[Problem]) -> None:
    """Raise TransformProblems when there are any."""
    if problems:
        raise TransformProblems(problems)


def unchanged(schema: pa.Schema) -> dict[str, frozenset[str]]:
    """Origins in which every column is made from itself."""
    return {name: frozenset([name]) for name in schema.names}


def with_columns(schema: pa.Schema, added: list[pa.Field]) -> pa.Schema:
    """The record's fields, the added ones, the Kafka columns."""
    return pa.schema([*(field for field in schema if not is_kafka(field.name)), *added, *kafka_columns(schema)])


def with_arrays(batch: pa.RecordBatch, added: list[pa.Field], arrays: list[pa.Array]) -> pa.RecordBatch:
    """The rows with the added columns, as `with_columns` orders them."""
    names = batch.schema.names
    columns = [batch[name] for name in names if not is_kafka(name)]
    kafka = [batch[name] for name in names if is_kafka(name)]
    return pa.RecordBatch.from_arrays([*columns, *arrays, *kafka], schema=with_columns(batch.schema, added))


def name_problems(output: pa.Schema, places: Mapping[str, Place]) -> Iterator[Problem]:
    """Yield a problem for each column that Hudi or Spark could not store next to the others. `places` has the places of new
    names."""
    columns = pa.schema([field for field in output if not is_kafka(field.name)])
    reserved = [name for name in places if is_kafka(name)]
    for name in reserved:
        yield Problem(places[name], f"names beginning with _kafka_ belong to hudi-ingest; found {name}; choose another")
    for text in column_problems(columns):
        named = text.removeprefix("column ").partition(":")[0].partition(".")[0]
        yield Problem(places.get(named, ()), text)


def selected(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The rows with these columns only."""
    schema = pa.schema([batch.schema.field(name) for name in names])
    return pa.RecordBatch.from_arrays([batch[name] for name in names], schema=schema)
