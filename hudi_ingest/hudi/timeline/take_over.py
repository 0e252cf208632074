"""Decide whether a pipeline may continue a table that another system has ingested into, and from which offsets.

Offsets are only trusted from the newest commit that ingested records, if it is by the system that the pipeline file names,
and only if our rows would be equivalent to that system's: appended, with the same record keys, in the same folders. The
table's own rows prove that. Reads the table without a JVM and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice

import pyarrow as pa

from hudi_ingest.exceptions import TableMismatch, TableUnreachable
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.options import ESCAPED_FOLDERS_PROPERTY, HIVE_STYLE_PROPERTY, record_key_of
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.other_writers import (
    APPENDS,
    HUDI_STREAMER,
    KAFKA_CONNECT,
    SPARK_STREAMING,
    LastIngest,
    batches_of,
    last_ingest,
)
from hudi_ingest.hudi.timeline.ownership import TABLE_VERSION
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline, instant_time
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TakeOver
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import SparkCheckpoint
from hudi_ingest.records.hudi_keys import KEY_TYPES, partition_path, record_keys

_PROVED_FILES, _PROVED_ROWS = 3, 1000
"""Number of newest files, and of rows of each, whose keys and folders are compared."""
_CLOCKS = timedelta(minutes=1)
"""Tolerated difference between two machines' clocks."""
_META = frozenset(
    f"_hoodie_{name}"
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name", "operation")
)
_INDEXES = frozenset({"files", "column_stats", "partition_stats", "record_index"})
"""Partitions of the metadata table that our commits maintain."""
_KEY_GENERATORS = frozenset(
    f"{name}{kind}" for name in ("SIMPLE", "COMPLEX", "NON_PARTITION") for kind in ("", "_AVRO")
)
_PLAIN = {
    "hoodie.table.type": ("COPY_ON_WRITE", "its type is"),
    "hoodie.table.base.file.format": ("PARQUET", "its base files are"),
    "hoodie.populate.meta.fields": ("true", "hoodie.populate.meta.fields is"),
    "hoodie.datasource.write.drop.partition.columns": ("false", "hoodie.datasource.write.drop.partition.columns is"),
    "hoodie.datasource.write.slash.separated.date.partitioning": ("false", "slash.separated.date.partitioning is"),
    "hoodie.table.multiple.base.file.formats.enable": ("false", "hoodie.table.multiple.base.file.formats.enable is"),
    "hoodie.table.cdc.enabled": ("false", "hoodie.table.cdc.enabled is"),
    "hoodie.bootstrap.base.path": ("", "it is bootstrapped from"),
    "hoodie.table.metadata.partitions.inflight": ("", "its metadata table is currently building"),
}
"""Required values of properties, which are also their defaults."""


def find_take_over(pipeline: Pipeline, timeline: Timeline) -> TakeOver | None:
    """Find where another system's ingestion into the table ended, if the pipeline may continue there. Call it only while
    the table has no checkpoint of the pipeline.

    Returns None when no known system has ingested into the table and the pipeline file names none. Raises TableMismatch,
    which says what was found and lists everything that prevents a take-over; TableUnreachable.
    """
    properties = timeline.properties() if timeline.exists() else {}
    unreadable = _version_problems(properties) if properties and pipeline.table.take_over is not None else []
    if unreadable:
        raise TableMismatch(
            f"the table at {timeline.base_path} cannot be taken over: {unreadable[0]}. Nothing was written."
        )
    commits = timeline.completed() if properties else ()
    ingest = last_ingest(commits)
    if pipeline.table.take_over is None:
        if ingest is not None:
            raise TableMismatch(_invitation(pipeline, ingest))
        return None
    if not commits:
        raise TableMismatch(
            f"there is no table at {timeline.base_path}, or it is empty, but table.take_over says that {_expected_writer(pipeline)} wrote "
            "it. Nothing was written. Correct table.base_path, or remove table.take_over to begin a new table."
        )
    if ingest is None:
        raise TableMismatch(
            f"the table at {timeline.base_path} cannot be taken over: none of its {len(commits)} active commits says that "
            f"{_expected_writer(pipeline)} made it, or hudi-ingest has written since. Nothing was written. Remove table.take_over, or "
            "correct table.base_path."
        )
    offsets, problems = _trusted_offsets(pipeline, ingest, commits)
    problems += table_problems(properties)
    problems += _column_problems(timeline)
    if not problems:
        problems += _row_problems(pipeline, timeline, properties, commits)
    newest = max((instant_time(commit.instant) for commit in commits), default=None)
    if newest is not None and newest > datetime.now(timezone.utc) + _CLOCKS:
        problems.append(
            f"its newest instant is {newest:%Y-%m-%d %H:%M:%S}, but it is {datetime.now(timezone.utc):%H:%M:%S} UTC: its "
            "instants are in another time zone (hoodie.table.timeline.timezone), and ours must sort after them. Wait until then"
        )
    if problems:
        raise TableMismatch(
            f"the table at {timeline.base_path} was written by {ingest.writer.name} up to instant {ingest.instant}, and pipeline "
            f"{pipeline.name} cannot take it over:\n"
            + "\n".join(f"  - {problem}." for problem in problems)
            + "\nNothing was written."
        )
    return TakeOver(ingest.writer.name, ingest.instant, offsets)


def table_problems(properties: Mapping[str, str]) -> list[str]:
    """List the table properties that prevent us from writing to it, one line each. Pure."""
    problems = [
        f"{description} {properties[name]}, and must be {required or 'nothing'}"
        for name, (required, description) in _PLAIN.items()
        if properties.get(name, required).lower() != required.lower()
    ]
    generator = properties.get("hoodie.table.keygenerator.type", "SIMPLE")
    if generator not in _KEY_GENERATORS:
        problems.append(f"its key generator is {generator}; supported are {', '.join(sorted(_KEY_GENERATORS))}")
    indexes = {name for name in properties.get("hoodie.table.metadata.partitions", "").split(",") if name} - _INDEXES
    if indexes:
        problems.append(
            f"its metadata table has {', '.join(sorted(indexes))}, which our commits would not maintain. Drop that index first"
        )
    if "hoodie.bucket.index.num.buckets" in properties:
        problems.append("it has a bucket index, which encodes buckets in file names")
    return [*_version_problems(properties), *problems]


def _version_problems(properties: Mapping[str, str]) -> list[str]:
    version = properties.get("hoodie.table.version", "unknown")
    if version == TABLE_VERSION:
        return []
    return [
        f"its table version is {version}, but hudi-ingest only writes version {TABLE_VERSION}. Upgrade it with Hudi 1.2 (`CALL "
        "upgrade_table(table => …, to_version => 'NINE')`) when all its readers and writers have at least Hudi 1.1"
    ]


def _invitation(pipeline: Pipeline, ingest: LastIngest) -> str:
    """Explain whose table it is and how to continue it."""
    writer, topics = ingest.writer, pipeline.source.topics
    offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(writer.offsets.items()))
    name = {
        HUDI_STREAMER: "hudi_streamer",
        KAFKA_CONNECT: "kafka_connect",
        SPARK_STREAMING: "{spark_checkpoint: <that path>}",
    }[writer.name]
    if writer.name == SPARK_STREAMING:
        progress = "Its offsets are in the checkpointLocation of its query"
    elif not offsets:
        progress = "It did not read from Kafka"
    else:
        progress = f"Its next offsets{f' of topic {writer.topic}' if writer.topic else ''} are {{{offsets}}}"
    fits = writer.name == SPARK_STREAMING or (offsets and len(topics) == 1 and writer.topic in ("", topics[0]))
    remedy = f"To continue there, stop it, and set table.take_over: {name}. Else choose" if fits else "Choose"
    return (
        f"the table at {pipeline.table.base_path} was written by {writer.name}, up to instant {ingest.instant}, and pipeline "
        f"{pipeline.name} does not write to it unasked. {progress}. {remedy} another table.base_path. Nothing was written."
    )


def _expected_writer(pipeline: Pipeline) -> str:
    take_over = pipeline.table.take_over
    if isinstance(take_over, SparkCheckpoint):
        return SPARK_STREAMING
    return HUDI_STREAMER if take_over == "hudi_streamer" else KAFKA_CONNECT


def _trusted_offsets(
    pipeline: Pipeline, ingest: LastIngest, commits: Sequence[CommittedInstant]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the next offsets, and the reasons not to trust them."""
    writer, problems = ingest.writer, []
    if writer.name != _expected_writer(pipeline):
        return {}, [f"table.take_over names {_expected_writer(pipeline)}"]
    if ingest.strangers:
        problems.append(
            f"later commits wrote rows and do not say from where: {', '.join(ingest.strangers[:5])}"
            f"{' and others' * (len(ingest.strangers) > 5)}. If their rows are not from these topics, let {writer.name} commit "
            "once more. Otherwise its offsets are not where the table ends"
        )
    # The Kafka Connect sink names no operation.
    appended = ingest.operation in APPENDS or (writer.name == KAFKA_CONNECT and ingest.operation in ("", "UNKNOWN"))
    if not appended:
        problems.append(
            f"its last commit is an {ingest.operation or 'unnamed operation'}, but this pipeline only appends: a reused key "
            f"would get two rows. If keys are never reused, let {writer.name} make one commit with operation insert first "
            "(`--op INSERT` of Hudi Streamer, hoodie.datasource.write.operation of others)"
        )
    take_over = pipeline.table.take_over
    if isinstance(take_over, SparkCheckpoint):
        offsets, query_problems = _of_query(take_over.spark_checkpoint, commits)
        problems += query_problems
    else:
        topic = writer.topic or pipeline.source.topics[0]
        offsets = {TopicPartition(topic, number): offset for number, offset in writer.offsets.items()}
        if not offsets:
            problems.append("its checkpoint does not hold Kafka offsets")
    topics = {source.topic for source in offsets}
    if topics and topics != set(pipeline.source.topics):
        problems.append(
            f"it read {', '.join(sorted(topics))}, but source.topics is {', '.join(pipeline.source.topics)}. Begin with the same "
            "topics; others can be added after the first transaction"
        )
    return offsets, problems


def _of_query(folder: str, commits: Sequence[CommittedInstant]) -> tuple[dict[TopicPartition, int], list[str]]:
    batches = batches_of(commits)
    if len(batches) != 1:
        return {}, [
            f"its commits are of {len(batches)} queries ({', '.join(sorted(batches)) or 'none is named'}), but a checkpoint has "
            "the offsets of only one"
        ]
    (batch,) = batches.values()
    try:
        return offsets_after(folder, batch), []
    except TableMismatch as error:
        return {}, [str(error)]


def _column_problems(timeline: Timeline) -> list[str]:
    reserved = [name for name in timeline.column_names() if name.startswith("_hoodie_") and name not in _META]
    if not reserved:
        return []
    return [
        f"it has the columns {', '.join(reserved)}, whose names Hudi reserves, and our commits would drop them. Write to a new "
        "table"
    ]


def _row_problems(
    pipeline: Pipeline, timeline: Timeline, properties: Mapping[str, str], commits: Sequence[CommittedInstant]
) -> list[str]:
    """List how our rows would differ in key or folder from the table's own rows. Raises TableUnreachable."""
    keys = record_key_of(properties)
    columns = timeline.schema()
    unsupported = [name for name in keys if name not in columns.names or columns.field(name).type not in KEY_TYPES]
    if unsupported:
        return [
            f"its record key is made of {', '.join(keys)}, but only top-level columns of type string, int or long are supported"
        ]
    partitions = [name for name in properties.get("hoodie.table.partition.fields", "").split(",") if name]
    hive_style = properties.get(HIVE_STYLE_PROPERTY, "false") == "true"
    escaped = properties.get(ESCAPED_FOLDERS_PROPERTY, "false") == "true"
    paths = _newest_files(timeline.storage, commits)
    names = [path.rpartition("/")[2] for path in paths]
    # File ids of hudi-ingest begin with an offset, and another writer may continue those file groups.
    if names and all(
        re.match(r"0{4}\d{4}-", name) and file_groups.decode(name.partition("_")[0]) is None for name in names
    ):
        return ["its files are named by the buckets of a bucket index"]
    read_columns = list(dict.fromkeys(["_hoodie_record_key", "_hoodie_partition_path", *keys, *partitions]))
    for path in paths:
        try:
            rows = pa.Table.from_batches(islice(timeline.storage.parquet_batches(path, read_columns, _PROVED_ROWS), 1))
        except (OSError, pa.ArrowException) as error:
            raise TableUnreachable(
                f"cannot read {path} of the table at {timeline.base_path}: {error}. Try again; it may just have been cleaned."
            ) from error
        problem = _unlike(rows, keys, partitions, hive_style, escaped)
        if problem:
            return [f"{problem} (in {path})"]
    return []


def _newest_files(storage: TableStorage, commits: Sequence[CommittedInstant]) -> list[str]:
    paths = (path for commit in commits for path in commit.files if path.endswith(".parquet"))
    return list(islice(filter(storage.exists, paths), _PROVED_FILES))


def _unlike(rows: pa.Table, keys: Sequence[str], partitions: Sequence[str], hive_style: bool, escaped: bool) -> str:
    """Describe how the first differing row differs from our row with the same values; "" if none does."""
    if keys:
        for theirs, ours in zip(
            rows["_hoodie_record_key"].to_pylist(), record_keys(rows, keys).to_pylist(), strict=True
        ):
            if theirs != ours:
                return f"its rows have record keys like {theirs!a}, but hudi-ingest would make {ours!a} from {', '.join(keys)}"
    values = [rows[name].to_pylist() for name in partitions]
    for index, theirs in enumerate(rows["_hoodie_partition_path"].to_pylist()):
        try:
            ours = partition_path(partitions, [column[index] for column in values], hive_style, escaped)
        except ValueError as error:
            return f"its rows are in folders like {theirs!a}, which rows of this pipeline cannot be in: {error}"
        if theirs != ours:
            return f"its rows are in folders like {theirs!a}, but hudi-ingest would make {ours!a} from {', '.join(partitions)}"
    return ""


def offsets_after(folder: str, batch: int) -> dict[TopicPartition, int]:
    """Return the next offsets to read after the query's last micro-batch, which must be `batch`.

    Raises TableMismatch when the folder is not a Kafka query's, or `batch` cannot be its last one; TableUnreachable.
    """
    storage = LocalStorage(folder)
    try:
        planned, done = (_numbers(storage, name) for name in ("offsets", "commits"))
        if not planned:
            raise TableMismatch(f"{folder} holds no offsets of a Spark query: it is not a checkpointLocation")
        # A batch that Hudi has published may not be in `commits` yet, and the next one may be planned already.
        if batch not in planned or max(planned) > batch + 1 or max(done, default=batch) not in (batch - 1, batch):
            raise TableMismatch(
                f"the table's last micro-batch is {batch}, and the checkpoint at {folder} has planned {max(planned)} and "
                f"committed {max(done, default='none')}, so it is of another query, or the table was restored since"
            )
        text = storage.read(f"offsets/{batch}").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TableUnreachable(f"cannot read the Spark checkpoint at {folder}: {error}. Check the path.") from error
    return _offsets(folder, batch, text)


def _numbers(storage: LocalStorage, folder: str) -> set[int]:
    return {int(name) for name in storage.names(folder) if name.isdecimal()}


def _offsets(folder: str, batch: int, text: str) -> dict[TopicPartition, int]:
    version, *lines = text.strip().splitlines()
    # A line of metadata, then one for each source of the query.
    if version != "v1" or len(lines) != 2:
        raise TableMismatch(
            f"offsets/{batch} of the Spark checkpoint at {folder} has version {version} and {max(0, len(lines) - 1)} sources; "
            "only v1 with one source is supported"
        )
    try:
        offsets = json.loads(lines[1])
        if not isinstance(offsets, Mapping) or not offsets:
            raise ValueError("no offsets")
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise TableMismatch(
            f"offsets/{batch} of the Spark checkpoint at {folder} holds no Kafka offsets, but {lines[1][:100]!r}"
        ) from None
