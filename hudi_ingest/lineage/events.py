"""The OpenLineage events of transactions, in the client's classes. Pure, but for the imports.

Names are those of OpenLineage's naming rules: a topic is in the namespace of its brokers, a table in that of its storage. The
lineage of columns says which fields of a record each is computed from, and how.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import attr
import pyarrow as pa
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)

import hudi_ingest
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.storage_options import bucket_and_key, is_s3
from hudi_ingest.model.transaction import OpenTransaction, Progress, TransactionStep
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.schema.columns import ddl_type, parse_spark_json
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.casts import Cast
from hudi_ingest.records.transform.chain import Chain, PythonFunction
from hudi_ingest.records.transform.columns import Mask
from hudi_ingest.records.transform.sql import Sql
from hudi_ingest.records.transform.timestamps import TimePartition, ToTimestamp

PRODUCER = f"urn:hudi-ingest:{hudi_ingest.__version__}"
MOST_TOPICS = 20
"""With more, the event has no column lineage: it names each field of each topic."""


@attr.define
class OffsetRange:
    """`[start, end)` of one partition."""

    partition: int
    start: int
    end: int


@attr.define
class OffsetsInputDatasetFacet(InputDatasetFacet):
    """Which offsets of a topic the transaction reads."""

    ranges: list[OffsetRange] = attr.field(factory=list)

    @staticmethod
    def _get_schema() -> str:
        return f"{PRODUCER}:offsets"


def event(pipeline: Pipeline, namespace: str, step: TransactionStep) -> RunEvent:
    """Build the event of a step. `namespace`: the job's."""
    transaction = step.transaction
    return RunEvent(
        eventType=RunState(step.progress.value),
        eventTime=step.at.isoformat(),
        producer=PRODUCER,
        run=Run(run_id(pipeline, step.transaction_id), _run_facets(step)),
        job=Job(
            namespace, pipeline.name, {"jobType": job_type_job.JobTypeJobFacet("BATCH", "HUDI_INGEST", "TRANSACTION")}
        ),
        inputs=_inputs(pipeline, transaction) if transaction else [],
        outputs=[_output(pipeline, transaction, step)] if transaction else [],
    )


def run_id(pipeline: Pipeline, transaction_id: str) -> str:
    """The same in every process that knows the transaction."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"hudi-ingest:{pipeline.table.base_path.rstrip('/')}:{transaction_id}"))


def _run_facets(step: TransactionStep) -> dict[str, RunFacet]:
    engine = processing_engine_run.ProcessingEngineRunFacet(hudi_ingest.__version__, "hudi-ingest", producer=PRODUCER)
    if step.progress is not Progress.FAIL:
        return {"processing_engine": engine}
    failure = error_message_run.ErrorMessageRunFacet(step.reason, "PYTHON", producer=PRODUCER)
    return {"processing_engine": engine, "errorMessage": failure}


def _inputs(pipeline: Pipeline, transaction: OpenTransaction) -> list[InputDataset]:
    namespace = _kafka_namespace(pipeline)
    return [
        InputDataset(
            namespace,
            topic,
            inputFacets={
                "hudi_ingest_offsets": OffsetsInputDatasetFacet(
                    [OffsetRange(piece.partition, piece.start, piece.end) for piece in pieces], producer=PRODUCER
                )
            },
        )
        for topic, pieces in _by_topic(transaction).items()
    ]


def _output(pipeline: Pipeline, transaction: OpenTransaction, step: TransactionStep) -> OutputDataset:
    namespace, name = _table_name(pipeline)
    columns = parse_spark_json(transaction.schema.columns)
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(
            [schema_dataset.SchemaDatasetFacetFields(column.name, ddl_type(column.type)) for column in columns],
            producer=PRODUCER,
        ),
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(transaction.instant, producer=PRODUCER),
    }
    lineage = _column_lineage(pipeline, transaction, columns)
    if lineage:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(lineage, producer=PRODUCER)
    if pipeline.catalog is not None:
        server = urlsplit(pipeline.catalog.uris.split(",")[0]).netloc
        link = symlinks_dataset.Identifier(f"hive://{server}", pipeline.catalog_table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([link], producer=PRODUCER)
    statistics: dict[str, OutputDatasetFacet] = {}
    if step.receipt is not None:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            step.receipt.rows, step.receipt.size_bytes, step.receipt.files, producer=PRODUCER
        )
    return OutputDataset(namespace, name, outputFacets=statistics, facets=facets)


def _column_lineage(
    pipeline: Pipeline, transaction: OpenTransaction, columns: pa.Schema
) -> dict[str, column_lineage_dataset.Fields]:
    topics = [*_by_topic(transaction)]
    if len(topics) > MOST_TOPICS:
        return {}
    if not pipeline.table.declares_schema:
        pipeline = pipeline.with_record(parse_spark_json(transaction.schema.record), transaction.schema.record_key)
    namespace = _kafka_namespace(pipeline)
    fields = {}
    for name, origin in column_origins(pipeline.chain).items():
        if name not in columns.names:
            continue
        kind = column_lineage_dataset.Transformation(
            "DIRECT", "TRANSFORMATION" if origin.how else "IDENTITY", ", ".join(origin.how), origin.is_masked
        )
        fields[name] = column_lineage_dataset.Fields(
            [
                column_lineage_dataset.InputField(namespace, topic, field, [kind])
                for topic in topics
                for field in sorted(origin.fields)
            ]
        )
    return fields


def _by_topic(transaction: OpenTransaction) -> Mapping[str, list[Slice]]:
    """The ranges that the transaction reads."""
    pieces: dict[str, list[Slice]] = defaultdict(list)
    for piece in sorted(transaction.plan.slices):
        if piece.count:
            pieces[piece.topic].append(piece)
    return pieces


def _kafka_namespace(pipeline: Pipeline) -> str:
    return f"kafka://{pipeline.source.bootstrap_servers.split(',')[0].strip()}"


def _table_name(pipeline: Pipeline) -> tuple[str, str]:
    path = pipeline.table.base_path.rstrip("/")
    if is_s3(path):
        bucket, key = bucket_and_key(path)
        return f"s3://{bucket}", key
    return "file", path


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where a column's values are from. `fields`: paths in the record, such as `customer.city`."""

    fields: frozenset[str]
    how: tuple[str, ...] = ()
    """The transforms that changed the values, in order; empty if they are the record's own."""
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
    """Describe the transform's effect on the column's values; "" if it leaves them. `schema`: the transform's input."""
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
