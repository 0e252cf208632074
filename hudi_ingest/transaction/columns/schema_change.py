"""The columns a transaction reads and writes: where they come from, and how they change the table.

Resolved once, when the transaction begins, or to preview it. Only `approve` changes anything: with `table.on_schema_change: refuse`
a person approves one change of the columns. The approval is a file in the table: whoever begins a transaction finds it, whatever
becomes of the ledger. It names the change by its fingerprint, so any other change needs another approval. A refused begin records the
change in the ledger, so that the sensor starts no run that would fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa

from hudi_ingest.exceptions import (
    IngestError,
    SchemaNotApproved,
    SchemaRefused,
    TableUnreachable,
    Transient,
)
from hudi_ingest.exceptions.problems import ProblemsFromTop, SchemaProblem, counted, dotted
from hudi_ingest.hudi.options import ESCAPED_FOLDERS_PROPERTY, record_key_of
from hudi_ingest.hudi.storage.paths import APPROVED_CHANGE
from hudi_ingest.hudi.storage.storage import advice
from hudi_ingest.hudi.timeline.timeline import RECORD_PROPERTY, SOURCE_PROPERTY, Timeline
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger, PendingChange
from hudi_ingest.model.transaction import RecentFields, TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import INFER
from hudi_ingest.records.convert.connect.columns import begins_late, infer_columns
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.schema.avro import avro_descriptions
from hudi_ingest.records.schema.columns import ddl, parse_spark_json, spark_json, table_schema, unreadable_names
from hudi_ingest.records.schema.evolution import Evolution, evolve, joined, loosened
from hudi_ingest.records.schema.inference import infer
from hudi_ingest.records.schema.json_schema import json_schema_descriptions
from hudi_ingest.records.schema.registered import KINDS, RegisteredSchema, SchemaKind
from hudi_ingest.transaction.columns.decoding import has_one_source, kafka_keys_of, source_table_of
from hudi_ingest.transaction.columns.registered_columns import (
    is_control,
    message_of,
    require_none_dropped,
    require_same_meanings,
    through_readable,
    unreadable,
    version_columns,
)
from hudi_ingest.transaction.columns.topic_sample import (
    NEWEST_RECORDS,
    first_values,
    newest_key,
    newest_values,
    with_carried,
)

if TYPE_CHECKING:
    from hudi_ingest.kafka.registry import SubjectVersion

SAMPLE_RECORDS = 10_000
"""Number of records from which columns are inferred."""


def source_text(pipeline: Pipeline) -> str:
    """Where the columns of the pipeline's records come from, as text."""
    table, registry = pipeline.table, pipeline.source.schema_registry
    if table.schema_file is not None:
        return f"declared in {table.schema_file}"
    if table.declares_schema:
        return "declared in table.schema"
    if registry is None or table.schema_ is not None:
        return f"inferred from the first {SAMPLE_RECORDS:,} records when the table is made"
    return f"of the latest version of {', '.join(_subjects(pipeline))} in the schema registry"


def resolve_schema(pipeline: Pipeline, timeline: Timeline) -> TransactionSchema:
    """The columns of the pipeline's next transaction. Raises SchemaNotApproved, and what `proposed_schema` raises."""
    schema = proposed_schema(pipeline, timeline)
    require_approved(pipeline, timeline, schema)
    return schema


def proposed_schema(pipeline: Pipeline, timeline: Timeline) -> TransactionSchema:
    """The columns of the pipeline's next transaction, if a change of the table's needs no approval or gets it.

    Raises SchemaRefused if no table can have them, or the existing table cannot evolve to them; SchemaMissing,
    RegistryUnreachable, RegistryRefused, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    exists = timeline.exists()
    properties = timeline.properties() if exists else {}
    stored = properties.get(RECORD_PROPERTY, "")
    source = _record_columns(pipeline, _parsed(stored) if stored else None)
    if pipeline.table.schema_ == INFER and pipeline.source.envelope != "none":
        carried = with_carried(pipeline, source.record, properties, timeline, is_new=not stored)
        extended = f", then extended by the schema of {carried.places[0]}" if carried.places else ""
        source = replace(
            source,
            record=carried.record,
            origin=source.origin + extended,
            warnings=(*source.warnings, *carried.warnings),
            recent=carried.recent,
        )
    try:
        key = record_key_of(properties) if exists else _first_key(pipeline, source.record)
        resolved = pipeline.with_record(source.record, key)
    except ProblemsFromTop as error:
        lines = "\n".join(f"  - {dotted(place)}: {text}" for place, text in error.problems)
        raise SchemaRefused(
            f"pipeline {pipeline.name} does not fit the columns of its records, which are {source.origin}:\n{lines}\nThe "
            f"columns are: {ddl(source.record)}. Correct the pipeline file, or declare table.schema."
        ) from None
    # A table without any instant was left by a begin that died; nothing has been written to it.
    existing = timeline.schema() if exists and not timeline.is_empty() else None
    if existing is None:
        columns = _first_columns(pipeline, resolved.row_columns)
        changes, left_out = tuple[str, ...](), tuple[str, ...]()
    else:
        evolution = _evolution(resolved, existing, source.origin)
        columns, changes, left_out = evolution.schema, evolution.changes, evolution.left_out
    require_cdc_values(pipeline, existing, columns)
    schema = TransactionSchema(
        origin=source.origin,
        record=spark_json(source.record),
        columns=spark_json(columns),
        declared=pipeline.table.declares_schema,
        avro=tuple((schema.text, *schema.references) for schema in source.avro),
        schema_ids=source.schema_ids,
        changes=changes,
        warnings=(*source.warnings, *left_out),
        record_key=key,
        descriptions=source.descriptions,
        escaped_folders=not exists or properties.get(ESCAPED_FOLDERS_PROPERTY, "false") == "true",
        recent=source.recent,
        source_table=_known_source(pipeline, properties),
    )
    if is_approved(pipeline, timeline, schema):
        return schema
    waits = f"no transaction begins before `hudi-ingest approve-schema {pipeline.name}` has approved this"
    return replace(schema, warnings=(*schema.warnings, waits))


def _known_source(pipeline: Pipeline, properties: Mapping[str, str]) -> tuple[str, ...] | None:
    known = properties.get(SOURCE_PROPERTY)
    return tuple(json.loads(known)) if known is not None and has_one_source(pipeline) else None


def _newest_source(pipeline: Pipeline) -> tuple[str, ...] | None:
    """Find the table of the source that the newest changes are of, as TransactionSchema has it. Raises SchemaRefused if its name is not
    readable, and what `first_values` and converters raise."""
    values, _ = newest_values(pipeline, NEWEST_RECORDS)
    found = source_table_of(pipeline, [value for _, value in values])
    if found and any(_UNREADABLE in name for name in found):
        raise SchemaRefused(
            f"pipeline {pipeline.name}: the newest records of {pipeline.source.topics_text} are of a table whose name the connector could not "
            f"read ({'.'.join(found)}): Kafka Connect's Java decodes what PostgreSQL sends with the character set of its environment. So the "
            "snapshot and the changes of such a table come in two topics, and the table of the snapshot's topic is not kept up to date. Start Kafka "
            "Connect with KAFKA_OPTS=-Dfile.encoding=UTF-8 (or LANG=C.UTF-8), have the connector take a snapshot of the table, and leave "
            "this topic out: `exclude`."
        )
    return found


_UNREADABLE = "\ufffd"


def _first_key(pipeline: Pipeline, record: pa.Schema) -> tuple[str, ...]:
    """The columns of a new table's key. Raises ProblemsFromTop, and what `newest_key` raises."""
    if not pipeline.table.finds_key:
        return pipeline.table.key_columns
    chain = pipeline.with_record(record).chain

    def column_of(field: str) -> str:
        if field in chain.output.names:
            return field
        renamed = [name for name in chain.output.names if chain.sources([name]) == {field}]
        return renamed[0] if len(renamed) == 1 else field

    return tuple(column_of(field) for field in newest_key(pipeline, kafka_keys_of(pipeline)))


def require_cdc_values(pipeline: Pipeline, existing: pa.Schema | None, columns: pa.Schema) -> None:
    """Raises SchemaRefused if `table.cdc` is set and CDC queries would not show the values of a column that the table is created with,
    or that it gets. Decimals that it has stay: neither they nor `cdc` can change."""
    if not pipeline.table.cdc:
        return
    known = set(_decimals(existing, "")) if existing is not None else set[str]()
    lost = [path for path in _decimals(columns, "") if path not in known]
    if not lost:
        return
    cast = "Make them strings or doubles with the transform `cast`, or leave"
    refused, remedy = (
        (f"cannot have `cdc` with {', '.join(lost)}", f"Nothing was created. {cast} out table.cdc.")
        if existing is None
        else (
            f"has `cdc` and cannot get {', '.join(lost)}",
            f"Nothing was written. {cast} new fields out with `table.on_schema_change: ignore`.",
        )
    )
    raise SchemaRefused(
        f"the table at {pipeline.table.base_path} of pipeline {pipeline.name} {refused}: Hudi's CDC query has no values of decimals, "
        f'it shows {{"zero":false}} instead. {remedy}'
    )


def _decimals(fields: pa.Schema | pa.StructType, parent: str) -> Iterator[str]:
    for column in fields:
        yield from _decimals_in(column.type, f"{parent}{column.name}")


def _decimals_in(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _decimals(kind, f"{path}.")
    elif pa.types.is_list(kind):
        yield from _decimals_in(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _decimals_in(kind.item_type, f"{path}.value")
    elif pa.types.is_decimal(kind):
        yield path


def _first_columns(pipeline: Pipeline, output: pa.Schema) -> pa.Schema:
    """The columns of a new table. All are nullable unless they are declared: required fields come and go."""
    table = pipeline.table
    return table_schema(output if table.declares_schema else loosened(output), table.kafka_columns).columns


def _evolution(pipeline: Pipeline, existing: pa.Schema, origin: str) -> Evolution:
    """How the existing table's columns change. Raises SchemaRefused."""
    table = pipeline.table
    if problems := tuple(unreadable_names(existing.names)):
        # Columns stay in a table, and its own clustering and compaction read them with Spark.
        raise SchemaRefused(
            f"the table at {table.base_path} of pipeline {pipeline.name} cannot be written any more:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
            + "\nNothing was written. Rename the column with the transform `rename`, and read the topic into a new table."
        )
    records = table_schema(pipeline.row_columns, table.kafka_columns).columns
    if table.take_over is not None and not _kafka_names(existing):
        # Rows that another system wrote have none, and neither will rows that it writes if it returns.
        records = pa.schema([column.with_nullable(True) if is_kafka(column.name) else column for column in records])
    else:
        _require_kafka_columns(pipeline, existing, records)
        # Older versions made them NOT NULL; for such a table, a record without a time is a bad record.
        of_time = {KAFKA_FIELDS["timestamp"].name, *pipeline.chain.times_of_kafka}
        records = pa.schema(
            [_required_as(existing, column) if column.name in of_time else column for column in records]
        )
    evolution = evolve(
        existing,
        records,
        partition_by=table.partition_columns,
        loose=not table.declares_schema,
        adopt_new=table.on_schema_change != "ignore",
    )
    if evolution.refusals:
        raise SchemaRefused(
            f"the table at {table.base_path} cannot adopt the columns of pipeline {pipeline.name}, which are {origin}:\n"
            + "\n".join(f"  - {refusal}" for refusal in evolution.refusals)
            + "\nNothing was written. A table can adopt new nullable columns and wider numbers."
        )
    return evolution


@dataclass(frozen=True, slots=True)
class _RecordColumns:
    record: pa.Schema
    origin: str
    avro: tuple[RegisteredSchema, ...] = ()
    schema_ids: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    recent: RecentFields | None = None


def _record_columns(pipeline: Pipeline, stored: pa.Schema | None) -> _RecordColumns:
    """Find the columns of records. `stored`: those to which the pipeline's last transaction decoded records, if they are not declared."""
    if pipeline.table.declares_schema:
        return _RecordColumns(pipeline.table.record, source_text(pipeline))
    if pipeline.table.schema_ is None:
        return _registered(pipeline, stored)
    if stored is not None:
        return _RecordColumns(stored, "inferred when the table was made")
    return _inferred(pipeline)


def _subjects(pipeline: Pipeline) -> list[str]:
    registry = pipeline.source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    return [*dict.fromkeys(map(registry.subject_of, KafkaCluster(pipeline.source).topic_names()))]


def _registered(pipeline: Pipeline, stored: pa.Schema | None) -> _RecordColumns:
    registry = pipeline.source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    # Imported here, because its libraries are an extra.
    from hudi_ingest.kafka.registry import RegistryClient

    kind, subjects = KINDS[pipeline.source.format], _subjects(pipeline)
    client = RegistryClient(registry, kind)
    registered = [client.versions(subject) or (client.latest(subject),) for subject in subjects]
    ids = tuple(sorted({version.schema_id for subject_versions in registered for version in subject_versions}))
    versions = [through_readable(subject_versions, kind) for subject_versions in registered]
    warnings = tuple(
        f"version {each.version} of {each.subject} (schema id {each.schema_id}) is passed over, and its records are bad: "
        f"{unreadable(each.schema, kind)}"
        for found, kept in zip(registered, versions, strict=True)
        for each in found[len(kept) :]
    )
    of_events = pipeline.source.envelope == "debezium"
    if of_events:
        versions = [_of_rows(subject_versions) for subject_versions in versions]
    latest = [subject_versions[-1] for subject_versions in versions]
    origin = ", ".join(
        f"version {version.version} of {version.subject} (schema id {version.schema_id})" for version in latest
    )
    message = pipeline.source.protobuf.message
    if kind == "PROTOBUF" and message is None:
        message = message_of(registry, latest, subjects, "source")
    union = joined([version_columns(registry, newest, kind, message, of_events, stored) for newest in latest])
    if union.refusals:
        raise SchemaRefused(
            f"pipeline {pipeline.name}: one table cannot have the columns of {origin}:\n"
            + "\n".join(f"  - {refusal}" for refusal in union.refusals)
        )
    record = union.schema
    if kind != "AVRO":
        # Records of other versions may lack fields that the newest requires; Avro has defaults for that.
        record = loosened(record)
    if stored is not None:
        if pipeline.table.is_keyed:
            require_none_dropped(pipeline, stored, record, origin)
        require_same_meanings(
            pipeline, stored, [[each.schema for each in subject] for subject in versions], kind, origin
        )
        # Columns dropped in the newest version are still read from older records. Where the two conflict, the newest wins
        # here, and the table has the last word.
        record = joined([record, stored]).schema
    descriptions: dict[str, str] = {}
    for version in latest:
        descriptions |= _descriptions(kind, version.schema.text, of_events)
    avro = tuple(version.schema for version in latest) if kind == "AVRO" else ()
    return _RecordColumns(record, origin, avro, ids, warnings, descriptions)


def _of_rows(versions: tuple[SubjectVersion, ...]) -> tuple[SubjectVersion, ...]:
    """The versions for rows, if there are any: records of Debezium's connector itself, such as heartbeats, may have the same subject."""
    return tuple(each for each in versions if not is_control(each.schema)) or versions


def _descriptions(kind: SchemaKind, text: str, of_events: bool) -> dict[str, str]:
    """Protobuf's schemas have comments only, which are not part of them."""
    if kind == "AVRO":
        return avro_descriptions(text, of_events)
    return json_schema_descriptions(text) if kind == "JSON" else {}


def _inferred(pipeline: Pipeline) -> _RecordColumns:
    sample = first_values(pipeline, SAMPLE_RECORDS)
    envelope, allows_bad = pipeline.source.envelope, pipeline.on_bad_record != "fail"
    inferred = (
        infer(sample, allows_bad=allows_bad)
        if envelope == "none"
        else infer_columns(sample, of_events=envelope == "debezium", allows_bad=allows_bad)
    )
    if inferred.problems:
        problems = "\n".join(f"  - {problem}" for problem in inferred.problems)
        partial_columns = f"\nWhat was found: {ddl(inferred.schema)}" if len(inferred.schema) else ""
        raise SchemaRefused(
            f"pipeline {pipeline.name}: no columns can be inferred from the first {counted(len(sample), 'record')} of "
            f"{pipeline.source.topics_text}:\n{problems}\nWrite the columns as table.schema, in Spark DDL.{partial_columns}"
        )
    late = begins_late(sample) if envelope == "debezium" else ()
    return _RecordColumns(
        inferred.schema,
        f"inferred from the first {counted(len(sample), 'record')}",
        warnings=(*inferred.warnings, *late),
    )


def _require_kafka_columns(pipeline: Pipeline, existing: pa.Schema, columns: pa.Schema) -> None:
    present, expected = _kafka_names(existing), _kafka_names(columns)
    if set(present) != set(expected):
        raise SchemaRefused(
            f"the table at {pipeline.table.base_path} has the columns {', '.join(present) or 'none'}, but pipeline {pipeline.name} "
            f"would give every row {', '.join(expected)}. Restore table.kafka_columns, or choose another table.base_path."
        )


def _required_as(existing: pa.Schema, column: pa.Field) -> pa.Field:
    return column.with_nullable(existing.field(column.name).nullable) if column.name in existing.names else column


def _kafka_names(columns: pa.Schema) -> list[str]:
    return [name for name in columns.names if is_kafka(name)]


def _parsed(text: str) -> pa.Schema:
    try:
        return parse_spark_json(text)
    except SchemaProblem as problem:
        raise SchemaRefused(
            f"property {RECORD_PROPERTY} in the table's hoodie.properties {problem}. Upgrade hudi-ingest if a newer version "
            "wrote it, or remove the property: the columns are then determined again."
        ) from None


def fingerprint(schema: TransactionSchema) -> str:
    """Return an id of the columns' changes and of the columns that result."""
    facts = json.dumps([schema.changes, json.loads(schema.columns)])
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def is_approved(pipeline: Pipeline, timeline: Timeline, schema: TransactionSchema) -> bool:
    """Whether a transaction with these columns may begin. Raises TableUnreachable."""
    if pipeline.table.on_schema_change != "refuse" or not schema.changes:
        return True
    return approved_fingerprint(timeline) == fingerprint(schema)


def require_approved(pipeline: Pipeline, timeline: Timeline, schema: TransactionSchema) -> None:
    """Raises SchemaNotApproved, TableUnreachable."""
    if not is_approved(pipeline, timeline, schema):
        raise SchemaNotApproved(
            pipeline=pipeline.name, origin=schema.origin, changes=schema.changes, fingerprint=fingerprint(schema)
        )


def approve(timeline: Timeline, schema: TransactionSchema) -> None:
    """Approve the change that these columns are, instead of any approved before. Raises TableUnreachable."""
    approval = {
        "fingerprint": fingerprint(schema),
        "changes": schema.changes,
        "origin": schema.origin,
        "approved_at": datetime.now(timezone.utc).isoformat(),
    }
    try:
        timeline.storage.replace(APPROVED_CHANGE, json.dumps(approval, indent=1).encode())
    except OSError as error:
        raise _unreachable(timeline, "written", error) from error


def approved_fingerprint(timeline: Timeline) -> str | None:
    """The fingerprint of the change that was approved last, None if none was. Raises TableUnreachable."""
    try:
        return str(json.loads(timeline.storage.read(APPROVED_CHANGE))["fingerprint"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreachable(timeline, "read", error) from error
    except (ValueError, LookupError, TypeError):
        # Damaged: the change is approved again.
        return None


def _unreachable(timeline: Timeline, done: str, error: OSError) -> TableUnreachable:
    return TableUnreachable(
        f"{APPROVED_CHANGE} of the table at {timeline.storage.base_path}, which names the approved change of its columns, cannot "
        f"be {done}: {error}. {advice(error)}"
    )


def resolve_and_note(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> TransactionSchema:
    """The columns of the next transaction, and the table of the source that it reads. A change that is not approved is noted in the
    ledger. Raises what `resolve_schema` raises, and LedgerUnreachable."""
    try:
        schema = resolve_schema(pipeline, timeline)
    except SchemaNotApproved as error:
        ledger.pending_changes.note(
            PendingChange(
                base_path=pipeline.table.base_path,
                pipeline=pipeline.name,
                fingerprint=error.fingerprint,
                origin=error.origin,
                changes=error.changes,
                found_at=datetime.now(timezone.utc),
            )
        )
        raise
    except SchemaRefused:
        if has_one_source(pipeline):
            # Without its name, a table has neither a key nor columns of its own.
            _newest_source(pipeline)
        raise
    if schema.source_table is None and has_one_source(pipeline):
        schema = replace(schema, source_table=_newest_source(pipeline))
    if _asks(pipeline) and ledger.pending_changes.of_table(pipeline.table.base_path) is not None:
        ledger.pending_changes.forget(pipeline.table.base_path)
    return schema


def pending_approval(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> PendingChange | None:
    """The change that waits, as it is now; None if none does. Looks at the columns again, and so asks the registry if they come from
    there, only while a begin has noted one. Raises LedgerUnreachable."""
    if not _asks(pipeline):
        return None
    noted = ledger.pending_changes.of_table(pipeline.table.base_path)
    if noted is None:
        return None
    try:
        schema = proposed_schema(pipeline, timeline)
        waits = not is_approved(pipeline, timeline, schema)
    except IngestError as error:
        # What does not pass by itself is the next run's to report.
        return noted if isinstance(error, Transient) else None
    if not waits:
        ledger.pending_changes.forget(noted.base_path)
        return None
    found = fingerprint(schema)
    if found != noted.fingerprint:
        noted = replace(noted, fingerprint=found, origin=schema.origin, changes=schema.changes)
        ledger.pending_changes.note(noted)
    return noted


def noted_change(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> PendingChange | None:
    """The change that waits, as it was noted last, unless it is approved by now. Changes nothing and asks no registry. Raises
    LedgerUnreachable, TableUnreachable."""
    noted = ledger.pending_changes.of_table(pipeline.table.base_path) if _asks(pipeline) else None
    return noted if noted is not None and noted.fingerprint != approved_fingerprint(timeline) else None


def _asks(pipeline: Pipeline) -> bool:
    return pipeline.table.on_schema_change == "refuse"
