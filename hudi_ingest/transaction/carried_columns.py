"""What the schemas in the records add to columns that were inferred: fields and wider numbers that the source has got since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.hudi.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline import MET_PROPERTY, RECENT_PROPERTY, Timeline
from hudi_ingest.model.transaction import RecentFields
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.connect_columns import carried_columns
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.records.schema.evolution import absent, evolve
from hudi_ingest.transaction.topic_sample import newest_values

NEWEST_RECORDS = 5
"""Of each Kafka partition; more than one, because a tombstone has no schema."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The columns of the next transaction."""

    record: pa.Schema
    places: tuple[str, ...]
    """Of the records whose schemas added to them."""
    recent: RecentFields
    warnings: tuple[str, ...]


def with_carried(
    pipeline: Pipeline, record: pa.Schema, properties: Mapping[str, str], timeline: Timeline, is_new: bool
) -> Carried:
    """`record` with what a table can adopt from the schemas of the newest records, and from the one that ended a transaction.

    What it cannot adopt stays as it is: records whose values do not fit are bad. `properties`: of the table; `is_new`: whether the
    columns have just been inferred. Raises KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    values, ends = newest_values(pipeline, NEWEST_RECORDS)
    found, problems = carried_columns(values, pipeline.source.envelope == "debezium")
    if met := properties.get(MET_PROPERTY):
        found.append(("a record that ended a transaction", parse_spark_json(met)))
    recent = _recent(pipeline, properties, timeline, ends)
    optional = {*pipeline.source.optional_fields, *recent.paths}
    places: list[str] = []
    left_out: list[str] = []
    adopted = record
    for place, columns in found:
        if pipeline.table.is_keyed and not optional.issuperset(absent(record, columns)):
            continue  # Its records are bad, because they would erase values.
        evolution = evolve(adopted, columns, adopt_new=pipeline.table.on_schema_change != "ignore")
        places += [place] if evolution.changes else []
        left_out += evolution.left_out
        adopted = evolution.schema
    new = absent(adopted, record)
    if new and pipeline.table.is_keyed and not is_new:
        recent = RecentFields((*recent.paths, *new), {**recent.until, **ends})
    return Carried(adopted, tuple(places), recent, (*problems, *dict.fromkeys(left_out)))


def _recent(
    pipeline: Pipeline, properties: Mapping[str, str], timeline: Timeline, ends: Mapping[str, int]
) -> RecentFields:
    """The table's recent fields; none once all that was written before the last of them was found is committed."""
    recent = RecentFields.from_dict(json.loads(properties.get(RECENT_PROPERTY, "{}")))
    if not recent.paths:
        return recent
    checkpoint = PipelineTable(pipeline, timeline).committed().checkpoint
    committed = {str(source): offset for source, offset in checkpoint.offsets.items()} if checkpoint else {}
    waits = any(committed.get(source, 0) < end for source, end in recent.until.items() if source in ends)
    return recent if waits else RecentFields()
