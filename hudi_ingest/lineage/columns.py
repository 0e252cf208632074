"""Which fields of a record each column of the table is computed from, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.cast import Cast
from hudi_ingest.records.transform.chain import Chain
from hudi_ingest.records.transform.mask import Mask
from hudi_ingest.records.transform.sql import Sql
from hudi_ingest.records.transform.time_partition import TimePartition
from hudi_ingest.records.transform.timestamps import ToTimestamp
from hudi_ingest.records.transform.user_function import PythonFunction


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where a column's values are from. `fields`: paths in the record, such as `customer.city`."""

    fields: frozenset[str]
    how: tuple[str, ...] = ()
    """What changed the values, in order; empty if they are the record's own."""
    is_masked: bool = False


def column_origins(chain: Chain) -> Mapping[str, ColumnOrigin]:
    """Return the origin of each column that is computed from fields of the record alone. A column is left out if it is a constant,
    has Kafka metadata in it, or comes out of a user's own function, which hides it."""
    schema = pa.schema([*chain.record, *KAFKA_FIELDS.values()])
    known: dict[str, ColumnOrigin | None] = {name: ColumnOrigin(frozenset([name])) for name in schema.names}
    for step in chain.steps:
        origins = step.transform.origins(schema)
        known = {
            name: _after(step.transform, name, schema, {_root(path): path for path in paths}, known)
            for name, paths in origins.items()
        }
        schema = step.transform.output_schema(schema)
    return {
        name: origin
        for name, origin in known.items()
        if origin is not None and origin.fields and not any(is_kafka(_root(field)) for field in origin.fields)
    }


def _after(
    transform: Transform,
    name: str,
    schema: pa.Schema,
    paths: Mapping[str, str],
    known: Mapping[str, ColumnOrigin | None],
) -> ColumnOrigin | None:
    """The origin of column `name` of the transform's output; None if it is hidden."""
    before = [known[root] for root in paths]
    if isinstance(transform, PythonFunction) and not is_kafka(name):
        return None
    if any(origin is None for origin in before):
        return None
    fields = frozenset(
        f"{field}{path[len(root) :]}"
        for root, path in paths.items()
        if (origin := known[root])
        for field in origin.fields
    )
    how = tuple(dict.fromkeys(step for origin in before if origin for step in origin.how))
    found = ColumnOrigin(fields, how, any(origin.is_masked for origin in before if origin))
    change = _change(transform, name, schema)
    if not change:
        return found
    return replace(found, how=(*how, change), is_masked=found.is_masked or change == "mask")


def _change(transform: Transform, name: str, schema: pa.Schema) -> str:
    """What the transform does to the column's values; "" if it leaves them. `schema`: the transform's input."""
    if isinstance(transform, Cast):
        return "cast" if name in transform.types else ""
    if isinstance(transform, ToTimestamp):
        return "timestamp" if name in transform.fields else ""
    if isinstance(transform, Mask):
        return "mask" if name in transform.fields else ""
    if isinstance(transform, TimePartition):
        return transform.unit if name == transform.column else ""
    if isinstance(transform, Sql):
        return "sql" if name not in transform.copies(schema) else ""
    return ""


def _root(path: str) -> str:
    return path.partition(".")[0]
