"""Begins, publishes and rolls back instants by Hudi's write client in the JVM; `HudiWriter.commit` is the one atomic step. The only module
that touches `_jvm`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from hashlib import sha256
from importlib import resources
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import Fenced, TableUnreachable
from hudi_ingest.faults import reach
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.java_errors import java_errors
from hudi_ingest.hudi.options import (
    BY_LISTING,
    COLUMN_STATISTICS_OPTION,
    ESCAPED_FOLDERS_PROPERTY,
    LOCK_CONNECT_SECONDS,
    LOCK_SESSION_SECONDS,
    METADATA_PARTITIONS_PROPERTY,
    RECORD_KEY_PROPERTY,
    STATISTICS_PROPERTY,
    WITHOUT_CLEANING,
    begins_a_service,
    cleaning_options,
    folder_options,
    key_generator,
    lock_place,
    record_properties,
    renewable_ms,
    table_properties,
    write_options,
)
from hudi_ingest.hudi.storage.paths import EPOCH_PATH, MARKERS, TIMELINE
from hudi_ingest.hudi.storage.storage import WHO_RETRIES, advice
from hudi_ingest.hudi.timeline.clock import clock_of, wait_for_clock
from hudi_ingest.hudi.timeline.damaged_instants import transaction_in
from hudi_ingest.hudi.timeline.publication import Publication, base_file_stat, first_file_stat, log_file_stat
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.plan import ReplacedFile, TransactionKind, TransactionPlan
from hudi_ingest.model.storage_options import bucket_and_key, is_s3
from hudi_ingest.model.transaction import OpenInstant, TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.driver_jvm import JavaPackage, properties_text
from hudi_ingest.spark.s3 import connect_bucket

_ACTION, _REPLACE, _DELTA = "commit", "replacecommit", "deltacommit"
_RECORD_NAME = "record"
_RECORD_NAMESPACE = "hudi_ingest"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_FEW_FILES = 64
"""A Spark job for so many folders or files of a local disk takes longer than to list or delete them one after another."""
_FEW_HELD = 8
"""The same on an object store, for a commit that holds most of what it lists."""
_FILES_INDEX = "files"
"""The partition that every metadata table has."""
_INDEXES_IN_MAKING = f"{METADATA_PARTITIONS_PROPERTY}.inflight"


class HudiWriter:
    """Begins, commits and rolls back instants of one pipeline's table through a Spark driver.

    Instants are Hudi's requested times. Every call creates and closes its own client: a closed client leaves its
    heartbeat file behind, but no timer that would keep the instant alive.
    """

    options: Mapping[str, str] = _NOTHING
    """Options that a subclass adds to `write_options`."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, timeline: Timeline | None = None) -> None:
        """`timeline`: the one that the caller's step reads, so that what it holds is not asked for again."""
        self._spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = JavaPackage(self._gateway)
        self._hudi: Any = self._jvm.org.apache.hudi
        # Hudi 1.2 compares the metadata table's schema by identity with the one that this class has interned. If an equal one
        # is interned before the class is loaded, e.g. by threads of a new JVM, every write to the metadata table fails.
        with java_errors("load Hudi's classes"):
            _ = self._hudi.metadata.HoodieMetadataPayload.RECORD_INDEX_FIELD_POSITION
        self._context: Any = spark.sparkContext._jsc
        self._pipeline = pipeline
        self._base_path = pipeline.table.base_path
        self._timeline = timeline or Timeline.of(pipeline.table)
        if is_s3(self._base_path):
            with java_errors(f"give Spark the settings of {self._base_path}"):
                bucket, _ = bucket_and_key(self._base_path)
                connect_bucket(self._jvm, self._context, bucket, pipeline.table.storage_options)
        self._lock = lock_place(pipeline.table)

    def create_table(self, schema: TransactionSchema) -> None:
        """Create the table with the transaction's columns. Raises TableUnreachable, EngineLost."""
        table = self._pipeline.table
        self._timeline.storage.make()
        with java_errors(f"create the table at {self._base_path}"):
            builder = (
                self._hudi.common.table.HoodieTableMetaClient.newTableBuilder()
                .setTableType("MERGE_ON_READ" if table.is_keyed else "COPY_ON_WRITE")
                .setTableName(self._pipeline.name)
                .setTableCreateSchema(self._schema_json(schema))
                .setBaseFileFormat("PARQUET")
                .setHiveStylePartitioningEnable(table.hive_style)
                .setUrlEncodePartitioning(True)
                .setCommitTimezone(self._hudi.common.model.HoodieTimelineTimeZone.UTC)
            )
            if table.partition_columns:
                builder = builder.setPartitionFields(",".join(table.partition_columns))
            if table.is_keyed:
                builder = (
                    builder.setRecordKeyFields(",".join(schema.record_key))
                    .setOrderingFields(",".join(table.ordering_fields))
                    .setKeyGeneratorClassProp(key_generator(table, schema.record_key))
                    .setRecordMergeMode(self._hudi.common.config.RecordMergeMode.EVENT_TIME_ORDERING)
                )
            builder.initTable(self._storage_configuration(), self._base_path)
            self.update_properties({**table_properties(self._pipeline, schema.record_key), **record_properties(schema)})

    def update_properties(self, entries: Mapping[str, str]) -> None:
        """Add or replace keys of hoodie.properties. Raises TableUnreachable, EngineLost."""
        with java_errors(f"update hoodie.properties of {self._base_path}"):
            meta = self._meta_client()
            properties = self._properties(entries)
            self._hudi.common.table.HoodieTableConfig.update(meta.getStorage(), meta.getMetaPath(), properties)

    def drop_indexes(self, names: Collection[str]) -> None:
        """Drop these partitions of the metadata table; a writer that wants one builds it again from all files. Raises
        TableUnreachable, EngineLost."""
        with (
            java_errors(f"drop {', '.join(sorted(names))} of the metadata table of {self._base_path}", self._lock),
            self._locking_client(self._meta_client(), more={COLUMN_STATISTICS_OPTION: "false"}) as client,
        ):
            partitions = self._jvm.java.util.ArrayList()
            for name in sorted(names):
                partitions.add(name)
            client.dropIndex(partitions)

    def rebuild_metadata_table(self) -> None:
        """Delete the metadata table, in Hudi's lock, and build it again from the files that are stored. The caller knows that no instant is
        open. Raises TableUnreachable, EngineLost."""
        util = self._hudi.metadata.HoodieTableMetadataUtil
        with (
            java_errors(f"delete the metadata table of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client()) as client,
        ):
            nobody = self._hudi.common.util.Option.empty()
            manager = client.getTransactionManager()
            manager.beginStateChange(nobody, nobody)
            try:
                util.deleteMetadataTable(meta, self._hudi.client.common.HoodieSparkEngineContext(self._context), False)
            finally:
                manager.endStateChange(nobody)
        with (
            java_errors(f"build the metadata table of {self._base_path}", self._lock),
            # A new client, because the table's properties name no index any more.
            self._locking_client(self._meta_client()) as client,
        ):
            client.initTable(self._operation(), nobody)

    def begin(self, plan: TransactionPlan, schema: TransactionSchema) -> str:
        """Open an instant whose inflight file holds the plan, and return it. Raises TableUnreachable, EngineLost."""
        columns = self._schema_json(schema)
        # One meta client for a step, because on an object store each takes several requests.
        with (
            java_errors(f"begin an instant on {self._base_path}", self._lock),
            self._locking_client(
                meta := self._meta_client(), columns, few=self._few(), small=plan.kind is not TransactionKind.REPLAY
            ) as client,
        ):
            action = self._action(plan.kind)
            instant: str = self._apply(self._java_object("InstantStart", action, meta), client)
            reach("instant_requested")
            state = getattr(self._hudi.common.table.timeline, "HoodieInstant$State")
            model = self._hudi.common.model
            payload = model.HoodieReplaceCommitMetadata() if action == _REPLACE else model.HoodieCommitMetadata()
            payload.addMetadata(self._pipeline.transaction_key, json.dumps(plan.to_dict(), separators=(",", ":")))
            meta.getActiveTimeline().transitionRequestedToInflight(
                meta.createNewInstant(state.REQUESTED, action, instant), self._option(payload)
            )
            reach("instant_inflight")
            if self._is_service_due(meta, plan):
                # Hudi compacts the metadata table, and so can archive history, only in here.
                client.initTable(self._operation(plan.kind), self._option(instant))
            else:
                client.validateAgainstTableProperties(meta.getTableConfig(), client.getConfig())
            reach("instant_begun")
            return instant

    def _is_service_due(self, meta: Any, plan: TransactionPlan) -> bool:
        """Whether Hudi is to look after the metadata table now. That takes as long as the rest of a begin, on a store as many requests, so
        only every few begins do it: Hudi compacts after some of its commits, and what it makes of them is the same some commits later.

        A metadata table that has to be made, completed or upgraded never waits. Neither does what an earlier commit left undone in it:
        each commit rolls that back first.
        """
        begins = begins_a_service(self._pipeline.table)
        # Every tenth is none of those that clean.
        return plan.turn % begins == begins // 2 or not self._lists_files_only(meta)

    def commit(self, publication: Publication) -> None:
        """Publish atomically; the guard runs its checks inside Hudi's lock.

        Raises Fenced when the instant's heartbeat is gone or too old (`renewable_ms`), and CommitRefused when the guard refused: both prove
        that this call published nothing. TableUnreachable and EngineLost do not: then the timeline decides.
        """
        instant, epoch = publication.instant, publication.epoch
        with java_errors(f"commit instant {instant} of {self._base_path}", self._lock):
            columns = self._schema_json(publication.schema)
        more = {} if publication.clean else WITHOUT_CLEANING
        # What is cleaned or replaced may be large.
        small = len(publication.files) <= _FEW_FILES and not publication.clean and not publication.replaced
        few = self._few(held=not publication.clean)
        hold = self._hold()
        with (
            java_errors(f"commit instant {instant} of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client(), columns, more, few, small, hold) as client,
        ):
            guard = self._java_object(
                "CommitGuard",
                f"{self._base_path}/{EPOCH_PATH}",
                epoch.to_json(),
                instant,
                self._pipeline.checkpoint_key,
                publication.expected_checkpoint or "",
                self._pipeline.transaction_key,
                epoch.transaction_id,
                "\n".join(f"{file.partition_path}\t{file.file_id}\t{file.name}" for file in publication.replaced),
                ",".join(sorted(publication.seen)),
                ",".join(sorted(publication.read)),
                str(self._pipeline.table.is_keyed).lower(),
            )
            client.setOperationType(self._operation(publication.kind))
            commit = self._java_object(
                "LeasedCommit",
                instant,
                self._action(publication.kind),
                self._write_stats(publication),
                self._java_map(publication.metadata),
                self._file_ids_by_partition(publication.replaced),
                guard,
                hold,
                meta,
                str(renewable_ms(self._pipeline.transaction.timeout_seconds)),
            )
            reach("commit_leased")
            written = self._apply(commit, client)
            if written == "expired":
                raise Fenced(
                    f"transaction {epoch.transaction_id}: instant {instant} of {self._base_path} is no longer open: it was "
                    "rolled back, an earlier try to commit it failed, or its timeout_seconds are all but over. This "
                    "call published nothing; the next transaction reads the same offsets.",
                    transaction_id=epoch.transaction_id,
                    instant=instant,
                )
            reach("commit_landed")
            if written:
                self._timeline.wrote(instant, written)

    def roll_back(self, instant: str) -> bool:
        """Remove an open instant, its files and its markers. Returns False, and changes nothing, if it has been completed.

        Its transaction's epoch must be over. A commit of the instant whose caller was killed may still be running in this
        driver. If it does not hold Hudi's lock yet, its guard stops it, because the epoch is over; if it does, this call
        waits for it. Otherwise the rollback would delete the files of an instant that completes meanwhile. Raises
        TableUnreachable, EngineLost.
        """
        with (
            java_errors(f"roll back instant {instant} of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client(), more=self._rollback_options(instant)) as client,
        ):
            self._accept(self._java_object("CommitBarrier"), client)
            completed = meta.reloadActiveTimeline().filterCompletedInstants().containsInstant(instant)
            if not completed:
                # Without its heartbeat the instant counts as expired. Never client.rollback(instant): it would also
                # delete what a completed instant wrote.
                self._hudi.client.heartbeat.HeartbeatUtils.deleteHeartbeatFile(
                    meta.getStorage(), self._base_path, instant
                )
                client.rollbackFailedWrites(meta)
            return not completed

    def _rollback_options(self, instant: str) -> Mapping[str, str]:
        """Find the files to delete by the instant's markers or, where a power cut may have taken those, in the table's folders."""
        storage = self._timeline.storage
        return BY_LISTING if storage.is_local and not storage.exists(f"{MARKERS}/{instant}") else _NOTHING

    def roll_back_expired(self) -> None:
        """Roll back every open instant whose heartbeat has expired. Raises TableUnreachable, EngineLost.

        Every older epoch must be over. A commit that is in Hudi's lock, in a driver whose clock is far behind this one's, counts as expired:
        it is waited for, as in `roll_back`, and then completed.
        """
        with (
            java_errors(f"roll back expired instants of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client()) as client,
        ):
            self._accept(self._java_object("CommitBarrier"), client)
            meta.reloadActiveTimeline()
            client.rollbackFailedWrites(meta)

    def open_instants(self) -> tuple[OpenInstant, ...]:
        """List this pipeline's instants that are neither completed nor rolled back. Raises TableUnreachable, EngineLost."""
        instants = []
        with (
            java_errors(f"read the open instants of {self._base_path}"),
            self._client(meta := self._meta_client()) as client,
        ):
            pending = meta.getActiveTimeline().filterInflights()
            for pending_instant in pending.getInstantsAsStream().toArray():
                if pending_instant.getAction() not in (_ACTION, _REPLACE, _DELTA):
                    continue
                transaction = self._transaction_of(pending_instant, meta)
                if transaction:
                    instant = pending_instant.requestedTime()
                    leased = not client.getHeartbeatClient().isHeartbeatExpired(instant)
                    instants.append(OpenInstant(instant, transaction, leased))
        return tuple(instants)

    def _transaction_of(self, inflight: Any, meta: Any) -> str:
        """Return the id of the pipeline's transaction that began an instant; "" if it is another writer's, or has ended."""
        # Not by Hudi's client: it cannot read what it writes itself when it begins to drop partitions, nor after that any begin.
        name = meta.getInstantFileNameGenerator().getFileName(inflight)
        try:
            content = self._timeline.storage.read(f"{TIMELINE}/{name}")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise TableUnreachable(
                f"cannot read the open instant {name} of {self._base_path}: {error}. {advice(error)}"
            ) from error
        return transaction_in(content, self._pipeline.transaction_key)

    def _locking_client(
        self,
        meta: Any,
        schema: str | None = None,
        more: Mapping[str, str] = _NOTHING,
        few: int = 0,
        small: bool = False,
        hold: Any = None,
    ) -> _Closing:
        """Open a client for operations that take the table's lock and a new instant; `meta` is a new meta client. `few`: see
        FewInDriver.java. `small`: what is to be done is not worth a Spark job; see `_is_plain`. `hold`: see HeldClient.java.

        Raises ClockBehind, and TableUnreachable when ZooKeeper keeps the lock and does not answer.

        Hudi 1.2's lock provider would notice that too, but would leak a ZooKeeper client at each try, and together they
        would use up the server's connections once it is back.
        """
        driver_newest = self._hudi.common.table.timeline.HoodieInstantTimeGenerator.getLastInstantTime()
        clock = clock_of(self._jvm.java.lang.System.currentTimeMillis)
        newest = self._timeline.newest_instant()
        wait_for_clock(self._base_path, newest, driver_newest, clock)
        without_spark = small and self._is_plain(meta, is_new=not newest)
        lock = self._pipeline.table.lock
        if lock is None:
            return self._client(meta, schema, more, few, without_spark, hold)
        curator = self._hudi.org.apache.curator
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        client = curator.framework.CuratorFrameworkFactory.newClient(
            lock.zookeeper, LOCK_SESSION_SECONDS * 1000, LOCK_CONNECT_SECONDS * 1000, curator.retry.RetryOneTime(1)
        )
        client.start()
        try:
            if not client.blockUntilConnected(LOCK_CONNECT_SECONDS, seconds):
                raise TableUnreachable(
                    f"table {self._base_path}: its lock is {self._lock}, but no server there answered within "
                    f"{LOCK_CONNECT_SECONDS} s. Without the lock nothing is begun, published or rolled back. Start "
                    f"ZooKeeper, or correct table.lock in the file of pipeline {self._pipeline.name}; {WHO_RETRIES}."
                )
        finally:
            client.close()
        return self._client(meta, schema, more, few, without_spark, hold)

    def _is_plain(self, meta: Any, is_new: bool) -> bool:
        """Whether Hudi's Java client does the same to the table as its Spark client, without Spark jobs: on a local disk, of the
        current version, and its metadata table lists files and has no other index, or is yet to be made for a new table.

        Hudi's Java client knows no older metadata table, and does not keep what other indexes record.
        """
        loader = self._hudi.common.model.HoodieCommitMetadata().getClass().getClassLoader()
        return bool(
            not is_s3(self._base_path)
            and self._lists_files_only(meta, is_new)
            # An engine that an older hudi-ingest has started does not have it.
            and loader.getResource("org/apache/hudi/client/HoodieJavaWriteClient.class") is not None
        )

    def _lists_files_only(self, meta: Any, is_new: bool = False) -> bool:
        """Whether the metadata table lists files and has no other index, now or soon, and the table is of the current version. `is_new`:
        a metadata table that is yet to be made counts as such a one."""
        config = meta.getTableConfig()
        if self._pipeline.table.column_statistics:
            return False
        indexes = self._jvm.java.lang.String.join(",", config.getMetadataPartitions())
        version = self._hudi.common.table.HoodieTableVersion
        return bool(
            (indexes == _FILES_INDEX or (is_new and not indexes))
            and not config.getProps().getProperty(_INDEXES_IN_MAKING, "")
            and config.getTableVersion().versionCode() == version.current().versionCode()
        )

    def listed_files(self) -> frozenset[str]:
        """List all data files that the table knows: live ones, and replaced ones that are not cleaned yet.

        Reads only the metadata table, never a storage listing, so orphans are not included.
        Raises TableUnreachable, also when there is no metadata table; EngineLost.
        """
        with java_errors(f"list the files of {self._base_path}"):
            meta = self._meta_client()
            if not meta.getTableConfig().isMetadataTableAvailable():
                raise TableUnreachable(
                    f"the table at {self._base_path} has no metadata table at the moment, so its live files cannot be "
                    "determined. The next transaction creates it."
                )
            config = self._hudi.common.config.HoodieMetadataConfig.newBuilder().enable(True).build()
            engine = self._hudi.client.common.HoodieSparkEngineContext(self._context)
            metadata = self._hudi.metadata.HoodieBackedTableMetadata(engine, meta.getStorage(), config, self._base_path)
            with _Closing(metadata):
                listed: str = self._apply(self._java_object("ListedFiles", self._base_path), metadata)
        return frozenset(listed.split("\0")) - {""}

    def file_groups(self, partition_paths: Collection[str] | None, files: bool = False) -> tuple[FileGroup, ...]:
        """List the file groups of these table partitions, or of all (None), by completed commits; with the names of their files
        if `files`.

        Raises TableUnreachable, EngineLost.
        """
        partitions = "*" if partition_paths is None else "\0".join(partition_paths)
        with java_errors(f"list the file groups of {self._base_path}"):
            lister = self._java_object("FileGroups", partitions, str(files).lower())
            listed: str = self._apply(lister, self._meta_client())
        lines = (line.split("\t") for line in listed.split("\n") if line)
        return tuple(
            FileGroup(path, file_id, state == "live", instant, int(size), tuple(names))
            for state, path, file_id, instant, size, *names in lines
        )

    def table_columns(self) -> str:
        """Read the table's current columns, as a commit's metadata has them. Raises TableUnreachable, EngineLost."""
        with java_errors(f"read the columns of {self._base_path}"):
            resolver = self._hudi.common.table.TableSchemaResolver(self._meta_client())
            return str(resolver.getTableSchema(False).toString())

    def _few(self, held: bool = False) -> int:
        if not is_s3(self._base_path):
            return _FEW_FILES
        # Requests to an object store take long, and Spark's tasks make several at once. What a commit lists it mostly has: see `_hold`.
        return _FEW_HELD if held else 1

    def _hold(self) -> Any:
        """Return what lets a thread that has Hudi's lock read a table on a store once, see HudiIngestS3Files.java; None elsewhere."""
        if not is_s3(self._base_path):
            return None
        # An engine that an older hudi-ingest has started does not have it.
        hold = self._context.hadoopConfiguration().getClassByNameOrNull("HudiIngestS3Files$Hold")
        return None if hold is None else hold.newInstance()

    def _client(
        self,
        meta: Any,
        schema: str | None = None,
        more: Mapping[str, str] = _NOTHING,
        few: int = 0,
        without_spark: bool = False,
        hold: Any = None,
    ) -> _Closing:
        table = meta.getTableConfig()
        # Not iterated here: the end of a Java iterator is an error, which pyspark examines with dozens of calls.
        partitions = self._jvm.java.lang.String.join(",", table.getMetadataPartitions())
        stored = table.getProps()
        options = write_options(
            self._pipeline,
            partitions,
            stored.getProperty(STATISTICS_PROPERTY, ""),
            record_key=stored.getProperty(RECORD_KEY_PROPERTY, ""),
            escaped_folders=stored.getProperty(ESCAPED_FOLDERS_PROPERTY, "false") == "true",
        )
        tasks = max(1, self._context.defaultParallelism())
        options = {**cleaning_options(tasks), **options, **folder_options(tasks)}
        properties = self._properties({**options, **self.options, **more})
        builder = self._hudi.config.HoodieWriteConfig.newBuilder().withPath(self._base_path).withProps(properties)
        if schema is not None:
            # It goes into the commit's metadata, and the newest commit's schema is the table's.
            builder = builder.withSchema(schema)
        config = builder.build()
        if without_spark:
            # A copy, because Hudi's engines may change it.
            storage = self._hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(self._context.hadoopConfiguration())
            engine = self._hudi.client.common.HoodieJavaEngineContext(storage)
            client = self._hudi.client.HoodieJavaWriteClient(engine, config)
            client.setOperationType(self._operation())
            return _Closing(client)
        if few:
            engine = self._java_object("FewInDriver", self._context, few)
        else:
            engine = self._hudi.client.common.HoodieSparkEngineContext(self._context)
        if hold is None:
            client = self._hudi.client.SparkRDDWriteClient(engine, config)
        else:
            client = self._java_object("HeldClient", engine, config, meta, hold)
        client.setOperationType(self._operation())
        return _Closing(client)

    def _action(self, kind: TransactionKind) -> str:
        """Map to Hudi's action. Begin and commit must use the same one, or the commit does not find its instant."""
        if self._pipeline.table.is_keyed:
            return _DELTA
        return _REPLACE if kind is TransactionKind.REPLAY else _ACTION

    def _operation(self, kind: TransactionKind = TransactionKind.INGEST) -> Any:
        types = self._hudi.common.model.WriteOperationType
        if self._pipeline.table.is_keyed:
            return types.UPSERT
        return types.INSERT_OVERWRITE if kind is TransactionKind.REPLAY else types.BULK_INSERT

    def _file_ids_by_partition(self, replaced: Iterable[ReplacedFile]) -> Any:
        result = self._jvm.java.util.HashMap()
        for file in replaced:
            if not result.containsKey(file.partition_path):
                result.put(file.partition_path, self._jvm.java.util.ArrayList())
            result.get(file.partition_path).add(file.file_id)
        return result

    def _meta_client(self) -> Any:
        builder = self._hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setBasePath(self._base_path).setConf(self._storage_configuration()).build()

    def _storage_configuration(self) -> Any:
        return self._hudi.hadoop.fs.HadoopFSUtils.getStorageConf(self._context.hadoopConfiguration())

    def log_schema(self, schema: TransactionSchema) -> str:
        """Return the Avro schema of the rows in the transaction's log files, with Hudi's columns. Raises EngineLost."""
        with java_errors("convert the table's columns"):
            with_meta = self._hudi.common.schema.HoodieSchemaUtils.addMetadataFields(self._hudi_schema(schema))
            return str(with_meta.toString())

    def _schema_json(self, schema: TransactionSchema) -> str:
        return str(self._hudi_schema(schema).toString())

    def _hudi_schema(self, schema: TransactionSchema) -> Any:
        spark_type = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.columns)
        converter = self._hudi.HoodieSchemaConversionUtils
        return converter.convertStructTypeToHoodieSchema(spark_type, _RECORD_NAME, _RECORD_NAMESPACE)

    def _write_stats(self, publication: Publication) -> Any:
        """Build the files' HoodieWriteStats in a few round trips, whatever their number."""
        model, stats = self._hudi.common.model, self._jvm.java.util.ArrayList()
        mapper = self._hudi.common.util.JsonUtils.getObjectMapper()
        base, delta, before = model.HoodieWriteStat(), model.HoodieDeltaWriteStat(), publication.before
        kinds = (
            # A CDC query reads a list of log files from each stat of a file group.
            (delta if before else base, map(first_file_stat if before else base_file_stat, publication.files)),
            (delta, map(partial(log_file_stat, publication.instant, before), publication.log_files)),
        )
        for kind, texts in kinds:
            # Not as an array: py4j cannot pass one to Arrays.asList.
            list_type = mapper.getTypeFactory().constructCollectionType(stats.getClass(), kind.getClass())
            stats.addAll(mapper.readValue(json.dumps([*texts]), list_type))
        return stats

    def _java_object(self, name: str, *arguments: object) -> Any:
        """Instantiate the class in `<name>.java` beside this module by its only constructor."""
        values = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            values[index] = argument
        return self._compiled(name).getConstructors()[0].newInstance(values)

    def _apply(self, function: Any, value: Any) -> Any:
        """Call one of our java.util.function.Function. Not directly: py4j caches methods by class name, and a driver may have several
        classes of that name."""
        return self._jvm.java.util.Optional.of(value).map(function).get()

    def _accept(self, consumer: Any, value: Any) -> None:
        """Call one of our java.util.function.Consumer, as `_apply` does."""
        self._jvm.java.util.Optional.of(value).ifPresent(consumer)

    def _compiled(self, name: str) -> Any:
        """Return the class in `<name>.java`, compiled by the Janino bundled with Spark; once a driver, as long as memory lasts."""
        source = resources.files("hudi_ingest.hudi").joinpath(f"{name}.java").read_text()
        # Another version of hudi-ingest may use the same driver.
        key = f"hudi_ingest.{name}.{sha256(source.encode()).hexdigest()}"
        kept = self._jvm.org.apache.spark.SparkEnv.get().hadoopJobMetadata()
        compiled = kept.get(key)
        if compiled is None:
            compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
            # Any of Hudi's classes will do.
            compiler.setParentClassLoader(self._hudi.common.model.HoodieCommitMetadata().getClass().getClassLoader())
            compiler.cook(source)
            compiled = compiler.getClassLoader().loadClass(name)
            kept.put(key, compiled)
        return compiled

    def _properties(self, entries: Mapping[str, str]) -> Any:
        """Build java.util.Properties in a few round trips, whatever their number."""
        properties = self._jvm.java.util.Properties()
        properties.load(self._jvm.java.io.StringReader(properties_text(entries)))
        return properties

    def _option(self, value: Any) -> Any:
        return self._hudi.common.util.Option.of(value)

    def _java_list(self, texts: Iterable[str]) -> Any:
        result = self._jvm.java.util.ArrayList()
        for text in texts:
            result.add(text)
        return result

    def _java_map(self, entries: Mapping[str, str]) -> Any:
        result = self._jvm.java.util.HashMap()
        for key, value in entries.items():
            result.put(key, value)
        return result


class _Closing:
    """Closes a Java client on exit, unless the connection to the JVM is broken."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not isinstance(error, Py4JNetworkError):
            self._client.close()
