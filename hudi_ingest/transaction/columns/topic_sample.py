"""The first and the newest records of a pipeline's topics, for inferring columns, and the fields and wider numbers that the schemas
in the newest ones add to columns that were inferred before. Commits no offset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.hudi.timeline.pipeline_table import committed_state
from hudi_ingest.hudi.timeline.timeline import MET_PROPERTY, RECENT_PROPERTY, Timeline
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.records import ReadRequest, read_records
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.transaction import RecentFields
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import KAFKA_KEY
from hudi_ingest.records.convert.connect.columns import carried_columns, columns_of_payloads
from hudi_ingest.records.kafka_keys import KafkaKeys
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.records.schema.evolution import absent, evolve, is_within
from hudi_ingest.transaction.plan.arithmetic import fair_shares

SAMPLE_BYTES = 64 * 1024 * 1024


def first_values(pipeline: Pipeline, count: int) -> list[tuple[str, bytes]]:
    """The values of up to `count` records from the broker's earliest offsets, shared fairly among the partitions; each with
    its `topic:partition:offset`. Skips tombstones, and ends early at SAMPLE_BYTES.

    Raises KafkaUnreachable, KafkaRefused, TopicMissing.
    """
    slices = _whole(pipeline)
    shares = fair_shares({slice_.source: slice_.count for slice_ in slices}, count)
    return _values(pipeline, [ReadRequest(slice_, shares[slice_.source]) for slice_ in slices])


def newest_values(pipeline: Pipeline, count: int) -> tuple[list[tuple[str, bytes]], dict[str, int]]:
    """The values at the last `count` offsets of each partition, as `first_values` but the newest first; and where each partition
    ends."""
    slices = _whole(pipeline)
    last = [replace(slice_, start=max(slice_.start, slice_.end - count)) for slice_ in slices]
    values = _values(pipeline, [ReadRequest(slice_, count) for slice_ in last])
    return values[::-1], {str(slice_.source): slice_.end for slice_ in slices}


def _whole(pipeline: Pipeline) -> list[Slice]:
    cluster = KafkaCluster(pipeline.source)
    partitions = [partition for topic in cluster.topics().values() for partition in topic.partitions]
    # No transaction reads a partition without a leader, so its records have no say.
    led = cluster.led_watermarks(partitions) or cluster.watermarks(partitions)
    return [Slice(source.topic, source.partition, marks.begin, marks.end) for source, marks in sorted(led.items())]


def _values(pipeline: Pipeline, requests: list[ReadRequest], column: str = "value") -> list[tuple[str, bytes]]:
    # Retention may advance between the two calls; the sample then begins at the first record that is still there.
    batches = read_records(pipeline.source, pipeline.group_id, requests, most_bytes=SAMPLE_BYTES, skip_gone=True)
    return [
        (f"{source}:{offset}", value)
        for source, batch in batches.items()
        for offset, value in zip(batch["offset"].to_pylist(), batch[column].to_pylist(), strict=True)
        if value is not None
    ]


def newest_key(pipeline: Pipeline, keys: KafkaKeys) -> tuple[str, ...]:
    """The fields of the newest records' own keys, in their order. Raises SchemaRefused if there are none, or partitions differ in them;
    and what `first_values` and the registry raise."""
    last = [replace(slice_, start=max(slice_.start, slice_.end - NEWEST_RECORDS)) for slice_ in _whole(pipeline)]
    name, topics = pipeline.name, pipeline.source.topics_text
    requests = [ReadRequest(slice_, NEWEST_RECORDS) for slice_ in last]
    newest = {place.rpartition(":")[0]: (place, key) for place, key in _values(pipeline, requests, "key")}
    remedy = (
        "List the columns that identify a row as table.key"
        if not pipeline.template
        else f"Under `tables`, give {topics} a `key` of columns that identify a row"
    )
    if not newest:
        if not any(slice_.count for slice_ in last):
            raise SchemaRefused(
                f"pipeline {name}: {topics} has no records yet, so the key of its table cannot be known. It is once there are some."
            )
        raise SchemaRefused(
            f"pipeline {name}: the newest records of {topics} have no key, as of a source table without a primary key, so "
            f"`key: {KAFKA_KEY}` names no columns. Nothing was created. {remedy}; or set `mode: append` for it, if the source only "
            "inserts rows; or leave the topic out."
        )
    found: dict[tuple[str, ...], str] = {}
    for place, key in newest.values():
        try:
            found.setdefault(tuple(keys.fields(key)), place)
        except ValueError as problem:
            raise SchemaRefused(
                f"pipeline {name}: the key of the record at {place} has no fields with names: {problem}. The connector writes such keys "
                f"with the converter that it writes values with (`key.converter`). {remedy}."
            ) from None
    if len({frozenset(fields) for fields in found}) > 1:
        places = "; ".join(f"({', '.join(fields)}) at {place}" for fields, place in found.items())
        raise SchemaRefused(
            f"pipeline {name}: the newest keys of the partitions of {topics} differ in their fields: {places}. {remedy}, or begin after the "
            "old key with source.starting_offsets."
        )
    return next(iter(found))


NEWEST_RECORDS = 5
"""The records sampled from each Kafka partition; more than one, because a tombstone has no schema."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The columns of the next transaction."""

    record: pa.Schema
    places: tuple[str, ...]
    """The positions of the records whose schemas added to them."""
    recent: RecentFields
    warnings: tuple[str, ...]


def with_carried(
    pipeline: Pipeline, record: pa.Schema, properties: Mapping[str, str], timeline: Timeline, is_new: bool
) -> Carried:
    """`record` with what a table can adopt from the schemas of the newest records, and from the one that ended a transaction.

    What it cannot adopt stays as it is: records whose values do not fit are bad. `properties`: of the table; `is_new`: whether the
    columns have just been inferred. Raises KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    of_events = pipeline.source.envelope == "debezium"
    values, ends = newest_values(pipeline, NEWEST_RECORDS)
    newest, problems = carried_columns(values, of_events, record)
    recent = _recent(pipeline, properties, timeline, ends)
    # The slices that follow end before the newest records, so what is dropped in them is missing there.
    payloads = columns_of_payloads(values) if of_events else []
    lacking = {
        path for place, columns in [*newest, *payloads] if _is_later(place, recent) for path in absent(record, columns)
    }
    recent = replace(recent, paths=tuple(path for path in recent.paths if not is_within(path, lacking)))
    optional = {*pipeline.source.optional_fields, *recent.paths}
    met = properties.get(MET_PROPERTY)
    found = [*newest, *([("a record that ended a transaction", parse_spark_json(met))] if met else [])]
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
    added = absent(adopted, record)
    new = [path for path in _paths(pa.struct(list(adopted))) if is_within(path, added)]
    if is_new:
        # Fields that the last record of each partition has may be newer than the first records.
        last = {place.rpartition(":")[0]: (place, value) for place, value in reversed(values)}
        of_last, _ = carried_columns([*last.values()], of_events, record)
        of_last += {place.rpartition(":")[0]: (place, names) for place, names in reversed(payloads)}.values()
        dropped = {path for _, columns in of_last for path in absent(adopted, columns)}
        new = [path for path in _paths(pa.struct(list(adopted))) if of_last and not is_within(path, dropped)]
    if new and pipeline.table.is_keyed:
        recent = RecentFields((*recent.paths, *new), {**recent.until, **ends})
    return Carried(adopted, tuple(places), recent, (*problems, *dict.fromkeys(left_out)))


def _paths(kind: pa.DataType, parent: str = "") -> Iterator[str]:
    """The paths of all fields within a type, as `absent` has them."""
    if pa.types.is_struct(kind):
        for field in kind:
            path = f"{parent}.{field.name}".removeprefix(".")
            yield path
            yield from _paths(field.type, path)
    elif pa.types.is_list(kind):
        yield from _paths(kind.value_type, f"{parent}.element")
    elif pa.types.is_map(kind):
        yield from _paths(kind.item_type, f"{parent}.value")


def _is_later(place: str, recent: RecentFields) -> bool:
    """Whether a record was written after the recent fields had been found."""
    source, _, offset = place.rpartition(":")
    return int(offset) >= recent.until.get(source, 0)


def _recent(
    pipeline: Pipeline, properties: Mapping[str, str], timeline: Timeline, ends: Mapping[str, int]
) -> RecentFields:
    """The table's recent fields; none once all that was written before the last of them was found is committed."""
    recent = RecentFields.from_dict(json.loads(properties.get(RECENT_PROPERTY, "{}")))
    if not recent.paths:
        return recent
    checkpoint = committed_state(timeline, pipeline.checkpoint_key, pipeline.transaction_key).checkpoint
    committed = {str(source): offset for source, offset in checkpoint.offsets.items()} if checkpoint else {}
    waits = any(committed.get(source, 0) < end for source, end in recent.until.items() if source in ends)
    return recent if waits else RecentFields()
