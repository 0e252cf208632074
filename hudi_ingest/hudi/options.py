"""Hudi's settings for our tables and our client, each with the reason why its default will not do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from hudi_ingest.hudi.files.read_amplification import SMALL_PART
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, RECENT_PROPERTY, RECORD_PROPERTY, SOURCE_PROPERTY
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.schema.columns import parse_spark_json

HIVE_STYLE_PROPERTY = "hoodie.datasource.write.hive_style_partitioning"
"""Key in both hoodie.properties and a client's options."""
ESCAPED_FOLDERS_PROPERTY = "hoodie.datasource.write.partitionpath.urlencode"
RECORD_KEY_PROPERTY = "hoodie.table.recordkey.fields"
ORDERING_PROPERTY = "hoodie.table.ordering.fields"
BUCKETS_PROPERTY = "hoodie.bucket.index.num.buckets"
TYPE_PROPERTY = "hoodie.table.type"
CDC_PROPERTY = "hoodie.table.cdc.enabled"
OTHER_WRITERS_PROPERTY = "hudi_ingest.other_writers"
"""Says that another writer has committed to a keyed table, so that its file groups may have any ids."""
LOCK_SESSION_SECONDS = 20
LOCK_CONNECT_SECONDS = 5
DELTA_COMMITS_OPTION = "hoodie.compact.inline.max.delta.commits"
STATISTICS_PROPERTY = "hoodie.metadata.index.column.stats.column.list"
COLUMN_STATISTICS_OPTION = "hoodie.metadata.index.column.stats.enable"
METADATA_PARTITIONS_PROPERTY = "hoodie.table.metadata.partitions"
STATISTICS_INDEXES = frozenset({"column_stats", "partition_stats"})
"""Partitions of the metadata table. Hudi 1.2 keeps the second, in a partitioned table, whenever it keeps the first."""
_METADATA_COMMITS_OPTION = "hoodie.metadata.compact.max.delta.commits"
_METADATA_COMMITS = 10
"""Hudi's default."""
WITHOUT_CLEANING = {"hoodie.clean.automatic": "false"}
BY_LISTING = {"hoodie.rollback.using.markers": "false"}
"""A rollback lists the table's folders for files of its instant, instead of believing that the markers name all of them."""
_STATISTICS_COLUMNS = 32
"""Number of columns with statistics if none are named: Hudi takes the first ones that are not nested."""
_LOCK = "hoodie.write.lock."
_KEY_GENERATORS = "org.apache.hudi.keygen."
_PROVIDERS = "org.apache.hudi.client.transaction.lock."


def table_properties(pipeline: Pipeline, key: Sequence[str]) -> dict[str, str]:
    """Build the entries of hoodie.properties, so that other writers with default settings honour them too. `key`: the columns of a
    keyed table's key."""
    return {
        PIPELINE_PROPERTY: pipeline.name,
        # Without LAZY, another writer's plain DELETE rolls our open instant back.
        "hoodie.clean.failed.writes.policy": "LAZY",
        # Each client judges our heartbeat by its own interval; two misses make the transaction's timeout.
        "hoodie.client.heartbeat.interval_in_ms": str(pipeline.transaction.timeout_seconds * 1000 // 2),
        "hoodie.client.heartbeat.tolerable.misses": "2",
        # Other writers' commits carry the checkpoint forward, so archival cannot lose it.
        "hoodie.write.rolling.metadata.keys": pipeline.checkpoint_key,
        # Base files of a table that is appended to have no bloom filter in the footer.
        **(
            _bucket_index(pipeline.table, ",".join(key)) if pipeline.table.is_keyed else {"hoodie.index.type": "SIMPLE"}
        ),
        # Even without a distributed lock, to replace a provider that an earlier pipeline file may have set.
        **_lock_options(pipeline.table),
    }


def renewable_ms(timeout_seconds: int) -> int:
    """Return how old an instant's heartbeat may be when its commit renews it. Less than the lease: a cleaner whose clock is ahead by no
    more than the difference has not taken the instant for dead yet."""
    return timeout_seconds * 1000 - min(5_000, timeout_seconds * 100)


def _bucket_index(table: Table, key: str) -> dict[str, str]:
    """Build the entries that let every writer find the file group of a key."""
    return {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        BUCKETS_PROPERTY: str(table.buckets),
        "hoodie.bucket.index.hash.field": key,
        # Spark's procedures (`call create_savepoint`, `run_compaction`) look for the index's columns here, and fail without it.
        "hoodie.datasource.write.recordkey.field": key,
        # Another writer then gives a new file group the id that its bucket's number determines, as we do. Otherwise two
        # transactions at the same time could make two file groups of one bucket, and Hudi refuses to write such a table.
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        # Compaction has a job of its own; by default each fifth statement of Spark SQL compacts, too.
        "hoodie.compact.inline": "false",
        # After a MERGE that wrote only some columns, Hudi 1.2 reads values of the wrong columns. Without it, such a MERGE must
        # assign the key, or is refused.
        "hoodie.spark.sql.merge.into.partial.updates": "false",
        **({CDC_PROPERTY: "true"} if table.cdc else {}),
    }


def key_generator(table: Table, key: Sequence[str]) -> str:
    """Return Hudi's class that makes the record key and the partition path of a keyed table's row from its columns, of which `key`
    are the key's; see `records/hudi_keys.py`."""
    if not table.partition_columns:
        return f"{_KEY_GENERATORS}NonpartitionedKeyGenerator"
    several = len(key) > 1 or len(table.partition_columns) > 1
    return f"{_KEY_GENERATORS}{'Complex' if several else 'Simple'}KeyGenerator"


def take_over_properties(current: Mapping[str, str], schema: pa.Schema, indexed: Sequence[str]) -> dict[str, str]:
    """Build the entries, besides `table_properties`, for the hoodie.properties of another system's table. `current` are its
    entries, `schema` its columns, `indexed` the columns with statistics, if the table names them.

    The columns with statistics stay the same, or a partition's statistics of a column would only cover its newer files; see
    `statistics_properties`.
    """
    columns = [*indexed] or [field.name for field in schema if not pa.types.is_nested(field.type)][:_STATISTICS_COLUMNS]
    return {
        # Its writers may have named instants in their local time zone, and ours must sort after them.
        "hoodie.table.timeline.timezone": "UTC",
        **({STATISTICS_PROPERTY: ",".join(columns)} if columns and STATISTICS_PROPERTY not in current else {}),
    }


def record_key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the record key columns in a table's properties; our own append tables have none."""
    return tuple(name.strip() for name in properties.get(RECORD_KEY_PROPERTY, "").split(",") if name.strip())


def record_properties(schema: TransactionSchema) -> dict[str, str]:
    """Build the entries of hoodie.properties for the records: their columns, unless the pipeline file declares them, and the table of
    the source that they are of."""
    recent = {} if schema.recent is None else {RECENT_PROPERTY: json.dumps(asdict(schema.recent))}
    source = {} if schema.source_table is None else {SOURCE_PROPERTY: json.dumps(schema.source_table)}
    return source if schema.declared else {RECORD_PROPERTY: schema.record, **recent, **source}


def statistics_properties(current: Mapping[str, str], schema: TransactionSchema) -> dict[str, str]:
    """Build the entry of hoodie.properties, which now holds `current`, that excludes columns added after the table's creation
    from statistics; none if there are no such columns, or the table already names its columns.

    Hudi 1.2 computes a partition's statistics of a column from the files that have the column. A partition whose older
    files lack it would seem to hold no nulls, and `new_column is null` would skip it.
    """
    if not current.get("hoodie.table.partition.fields") or STATISTICS_PROPERTY in current:
        return {}
    original = {column["name"] for column in json.loads(current["hoodie.table.create.schema"])["fields"]}
    simple = [field.name for field in parse_spark_json(schema.columns) if not pa.types.is_nested(field.type)]
    indexed = [name for name in simple if name in original][:_STATISTICS_COLUMNS]
    return {} if indexed == simple[:_STATISTICS_COLUMNS] else {STATISTICS_PROPERTY: ",".join(indexed)}


def write_options(
    pipeline: Pipeline,
    metadata_partitions: str,
    statistics_columns: str = "",
    *,
    record_key: str = "",
    escaped_folders: bool = True,
) -> dict[str, str]:
    """Build the options of a client that writes, on top of the pipeline's own. `metadata_partitions` is the table's own list of
    metadata-table partitions, `statistics_columns` its list of columns with statistics, "" if Hudi chooses them. `record_key` and `escaped_folders`
    are also the table's."""
    of_table = table_properties(pipeline, [record_key])
    properties = {key: value for key, value in of_table.items() if key != PIPELINE_PROPERTY}
    return {
        **{name: value.get_secret_value() for name, value in pipeline.table.hudi.items()},
        **properties,
        "hoodie.table.name": pipeline.name,
        "hoodie.metadata.enable": "true",
        **({STATISTICS_PROPERTY: statistics_columns} if statistics_columns else {}),
        # With write stats from outside Hudi's writers, the streaming path leaves indexes unwritten.
        "hoodie.metadata.streaming.write.enabled": "false",
        # A client whose options do not name an existing index drops it.
        **_index_options(metadata_partitions, pipeline.table.column_statistics),
        **_retention_options(pipeline.table),
        # Ops in several processes write markers, and only files are shared among them.
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.embed.timeline.server": "false",
        # Post-commit steps run once the commit is durable; their errors must not look like a failed commit.
        "hoodie.write.can.ignore.post.commit.failures": "true",
        "hoodie.datasource.write.partitionpath.field": ",".join(pipeline.table.partition_columns),
        HIVE_STYLE_PROPERTY: str(pipeline.table.hive_style).lower(),
        ESCAPED_FOLDERS_PROPERTY: str(escaped_folders).lower(),
        **({"hoodie.datasource.write.recordkey.field": record_key} if record_key else {}),
        **(_keyed_options(pipeline.table) if pipeline.table.is_keyed else {}),
    }


def _keyed_options(table: Table) -> dict[str, str]:
    return {
        # Hudi asks the options, not the table, before it allows non-blocking concurrency control.
        TYPE_PROPERTY: "MERGE_ON_READ",
        ORDERING_PROPERTY: ",".join(table.ordering_fields),
        # Hudi's Java client does not know this index by its type.
        "hoodie.index.class": "org.apache.hudi.index.bucket.HoodieSimpleBucketIndex",
        # Compaction has a job of its own.
        "hoodie.compact.schedule.inline": "false",
        # Archival keeps this many commits that are not compacted, so that what is due can be told from the timeline.
        DELTA_COMMITS_OPTION: str(table.compaction.delta_commits),
    }


def compaction_options(table: Table, piece_bytes: int) -> dict[str, str]:
    """Build the options of compaction. A plan has, of all that is not compacted, what has the largest log files, until about
    `piece_bytes` are to be read and written."""
    return {
        "hoodie.compact.inline.trigger.strategy": "NUM_COMMITS",
        # Whether it is due is decided before, and the rest of what did not fit a plan is planned at once.
        DELTA_COMMITS_OPTION: "0",
        "hoodie.compaction.target.io": str(max(1, piece_bytes >> 20)),
        "hoodie.parquet.compression.codec": table.compression,
        # The bucket index needs no bloom filter, which would add 0.4 MB to each base file.
        "hoodie.parquet.bloom.filter.enabled": "false",
    }


def clustering_options(table: Table, pieces: int, below_bytes: int | None = None) -> dict[str, str]:
    """Build the options of clustering: merge small files into files of the target size, and keep the row order.

    Only files of fewer than `below_bytes` are merged; by default those below a quarter of the target size. One commit replaces at most
    `pieces` groups of files, each in one partition and of at most 256 MiB or two target files.
    """
    group_bytes = max(2 * table.target_file_bytes, 1 << 28)
    strategy = "hoodie.clustering.plan.strategy."
    return {
        f"{strategy}small.file.limit": str(below_bytes or table.target_file_bytes // SMALL_PART),
        f"{strategy}target.file.max.bytes": str(table.target_file_bytes),
        f"{strategy}max.bytes.per.group": str(group_bytes),
        f"{strategy}max.num.groups": str(pieces),
        # Otherwise each clustering would rewrite a lone small file.
        f"{strategy}single.group.clustering.enabled": "false",
        "hoodie.parquet.compression.codec": table.compression,
        # Hudi's row writer puts a bloom filter into each file. The smallest takes a few bytes and says of each key that it may be there,
        # the default one 0.8 MB and a tenth of the CPU.
        "hoodie.bloom.index.filter.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "1",
        "hoodie.index.bloom.fpp": "0.5",
    }


def folder_options(tasks: int) -> dict[str, str]:
    """Build the options of what Hudi does once for each folder of markers: list it, delete it. `tasks`: those that run at a time.

    By default there is a Spark task for each folder, up to 200, which takes longer than what it does.
    """
    return {"hoodie.finalize.write.parallelism": str(tasks), "hoodie.markers.delete.parallelism": str(tasks)}


def cleaning_options(tasks: int) -> dict[str, str]:
    """Build the options of deleting replaced files, likewise, which a pipeline file may set. 300 files took 4 CPU seconds as 400 tasks."""
    return {"hoodie.clean.parallelism": str(tasks)}


def begins_a_service(table: Table) -> int:
    """Return of how many begins one lets Hudi look after the metadata table: as many as commits after which Hudi compacts it, and not
    more than ten."""
    chosen = table.hudi.get(_METADATA_COMMITS_OPTION)
    text = chosen.get_secret_value() if chosen is not None else ""
    return min(_METADATA_COMMITS, max(1, int(text))) if text.isdecimal() else _METADATA_COMMITS


def _retention_options(table: Table) -> dict[str, str]:
    """Build the retention options, which each commit's own cleaning honours too. Hudi refuses a timeline shorter than what
    cleaning retains; its defaults are 20 to 30 commits."""
    return {
        "hoodie.clean.commits.retained": str(table.retain_commits),
        "hoodie.keep.min.commits": str(max(20, table.retain_commits + 10)),
        "hoodie.keep.max.commits": str(max(30, table.retain_commits + 20)),
    }


def lock_place(table: Table) -> str:
    """Describe where the table's lock is, for messages."""
    if table.lock is None:
        return "inside this JVM"
    return f"in ZooKeeper at {table.lock.zookeeper}, node {table.lock.path}/{_lock_key(table)}"


def _lock_key(table: Table) -> str:
    return hashlib.sha256(table.base_path.encode()).hexdigest()[:16]


def _lock_options(table: Table) -> dict[str, str]:
    if table.lock is None:
        return {f"{_LOCK}provider": f"{_PROVIDERS}InProcessLockProvider"}
    return {
        # Not the provider that derives the node itself: it treats /t and file:/t as two tables.
        f"{_LOCK}provider": f"{_PROVIDERS}ZookeeperBasedLockProvider",
        f"{_LOCK}zookeeper.url": table.lock.zookeeper,
        f"{_LOCK}zookeeper.base_path": table.lock.path,
        f"{_LOCK}zookeeper.lock_key": _lock_key(table),
        # A dead JVM's lock is free after this time; a JVM that pauses for longer loses it.
        f"{_LOCK}zookeeper.session_timeout_ms": str(LOCK_SESSION_SECONDS * 1000),
        f"{_LOCK}zookeeper.connection_timeout_ms": str(LOCK_CONNECT_SECONDS * 1000),
        # By default Hudi calls an unreachable server 16 times, up to 16 s apart.
        f"{_LOCK}wait_time_ms_between_retry": "500",
        f"{_LOCK}max_wait_time_ms_between_retry": "2000",
        f"{_LOCK}num_retries": "3",
        # By default Hudi waits an hour for another writer's lock; these settings make it two minutes.
        f"{_LOCK}wait_time_ms": "60000",
        f"{_LOCK}client.wait_time_ms_between_retry": "1000",
        f"{_LOCK}client.num_retries": "1",
    }


def _index_options(metadata_partitions: str, column_statistics: bool) -> Mapping[str, str]:
    names = metadata_partitions.split(",")
    options = {COLUMN_STATISTICS_OPTION: str(column_statistics or "column_stats" in names).lower()}
    if "record_index" in names:
        options["hoodie.metadata.record.index.enable"] = "true"
    if "bloom_filters" in names:
        options["hoodie.metadata.index.bloom.filter.enable"] = "true"
    return options
