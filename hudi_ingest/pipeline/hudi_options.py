"""Hudi's options that `table.hudi` takes, and those that it refuses with a reason: those that hudi-ingest sets itself, those that would
do nothing, and those that would open the engine to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from hudi_ingest.exceptions.problems import suggestion

_WRITES = "Hudi's own writers follow it, and hudi-ingest writes the data files itself; see `table.compression` and `table.target_file_bytes`"
_ONCE = "exactly once depends on it"
_READERS = "only readers follow it"

FILES = frozenset(
    {"hoodie.memory.spillable.map.path", "hoodie.filesystem.view.spillable.dir", "hoodie.metadata.spillable.map.path"}
)
"""Options that are paths of folders on the drivers' machines, which Hudi writes to."""

ALLOWED = frozenset(
    {
        *FILES,
        "hoodie.archive.block.on.latest.clean.ectr",
        "hoodie.archive.delete.parallelism",
        "hoodie.clean.incremental.enabled",
        "hoodie.clean.max.commits.to.clean",
        "hoodie.clean.optimize.using.local.engine.context",
        "hoodie.clean.parallelism",
        "hoodie.clean.partition.filter.regex",
        "hoodie.clean.partition.filter.selected",
        "hoodie.cleaner.incremental.mode",
        "hoodie.cleaner.parallelism",
        "hoodie.cleaner.partition.filter.regex",
        "hoodie.cleaner.partition.filter.selected",
        "hoodie.clustering.group.read.parallelism",
        "hoodie.clustering.max.parallelism",
        "hoodie.clustering.plan.generation.use.local.engine.context",
        "hoodie.clustering.plan.partition.filter.mode",
        "hoodie.clustering.plan.strategy.cluster.begin.partition",
        "hoodie.clustering.plan.strategy.cluster.end.partition",
        "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
        "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
        "hoodie.clustering.plan.strategy.file.slices.sort.by",
        "hoodie.clustering.plan.strategy.partition.regex.pattern",
        "hoodie.clustering.plan.strategy.partition.selected",
        "hoodie.clustering.plan.strategy.sort.columns",
        "hoodie.commits.archival.batch",
        "hoodie.common.diskmap.compression.enabled",
        "hoodie.common.spillable.diskmap.type",
        "hoodie.file.listing.parallelism",
        "hoodie.filesystem.operation.retry.enable",
        "hoodie.filesystem.operation.retry.initial_interval_ms",
        "hoodie.filesystem.operation.retry.max_interval_ms",
        "hoodie.filesystem.operation.retry.max_numbers",
        "hoodie.filesystem.view.spillable.clustering.mem.fraction",
        "hoodie.filesystem.view.spillable.compaction.mem.fraction",
        "hoodie.filesystem.view.spillable.log.compaction.mem.fraction",
        "hoodie.filesystem.view.spillable.mem",
        "hoodie.filesystem.view.spillable.replaced.mem.fraction",
        "hoodie.memory.compaction.fraction",
        "hoodie.memory.compaction.max.size",
        "hoodie.memory.dfs.buffer.max.size",
        "hoodie.memory.merge.fraction",
        "hoodie.memory.merge.max.size",
        "hoodie.metadata.compact.max.delta.commits",
        "hoodie.metadata.compact.max.delta.seconds",
        "hoodie.metadata.compact.trigger.strategy",
        "hoodie.metadata.derive.from.datatable.clean.policy",
        "hoodie.metadata.file.cache.max.size.mb",
        "hoodie.metadata.log.compaction.blocks.threshold",
        "hoodie.metadata.log.compaction.enable",
        "hoodie.metadata.max.deltacommits.when_pending",
        "hoodie.metadata.max.init.parallelism",
        "hoodie.metadata.max.logfile.size",
        "hoodie.metadata.max.reader.buffer.size",
        "hoodie.metadata.max.reader.memory",
        "hoodie.metadata.optimized.log.blocks.scan.enable",
        "hoodie.metadata.range.repartition.random.seed",
        "hoodie.metadata.range.repartition.sampling.fraction",
        "hoodie.metadata.range.repartition.target.records.per.partition",
        "hoodie.metadata.repartition.default.partitions",
        "hoodie.metadata.repartition.min.partitions.threshold",
        "hoodie.rollback.avoid.duplicate.plan",
        "hoodie.rollback.parallelism",
        "hoodie.timeline.compaction.batch.size",
        "hoodie.timeline.compaction.target.file.max.bytes",
        "hoodie.timeline.manifest.retained.versions",
        "hoodie.write.empty.clean.interval.hours",
    }
)
"""The options that `table.hudi` takes: how Hudi cleans, clusters, archives, keeps its metadata table, and what it uses for it. One of a
newer Hudi that is neither here nor in REASONS is refused until somebody has read what it does: such options have opened ports and asked
addresses of the file's choice."""

REASONS: Mapping[str, tuple[str, ...]] = {
    "set `name` instead": ("hoodie.table.name", "hoodie.datasource.write.table.name"),
    "set `table.base_path` instead": ("hoodie.base.path",),
    "set `table.mode` instead": (
        "hoodie.table.type",
        "hoodie.datasource.write.table.type",
        "hoodie.datasource.write.operation",
    ),
    "set `table.key` instead": (
        "hoodie.table.recordkey.fields",
        "hoodie.datasource.write.recordkey.field",
        "hoodie.bucket.index.hash.field",
    ),
    "set `table.ordering` instead": (
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
        "hoodie.datasource.write.precombine.field",
        "hoodie.datasource.write.payload.",
        "hoodie.payload.",
        "hoodie.record.merge.",
        "hoodie.write.record.merge.",
        "hoodie.write.partial.",
        "hoodie.compaction.payload.class",
        "hoodie.compaction.record.merger.",
    ),
    "set `table.buckets` instead": ("hoodie.bucket.index.num.buckets",),
    "set `table.partition_by` instead": ("hoodie.table.partition.fields", "hoodie.datasource.write.partitionpath."),
    "set `table.hive_style` instead": ("hoodie.datasource.write.hive_style_partitioning",),
    "set `table.schema` or `table.on_schema_change` instead": (
        "hoodie.avro.",
        "hoodie.write.schema",
        "hoodie.write.set.null.for.missing.columns",
        "hoodie.schema.",
        "hoodie.internal.schema",
        "hoodie.table.create.schema",
        "hoodie.datasource.write.reconcile.schema",
        "hoodie.datasource.write.schema.",
    ),
    "set `table.cdc` instead": ("hoodie.table.cdc.",),
    "set `table.column_statistics` instead": ("hoodie.metadata.index.column.stats.enable",),
    "set `table.lock` instead": ("hoodie.write.lock.", "hoodie.auto.adjust.lock.configs"),
    "set `table.ttl` instead": ("hoodie.partition.ttl.",),
    "set `table.retain_commits` instead": (
        "hoodie.clean.commits.retained",
        "hoodie.cleaner.commits.retained",
        "hoodie.clean.hours.retained",
        "hoodie.cleaner.hours.retained",
        "hoodie.clean.fileversions.retained",
        "hoodie.cleaner.fileversions.retained",
        "hoodie.clean.policy",
        "hoodie.cleaner.policy",
        "hoodie.clean.automatic",
        "hoodie.clean.async",
        "hoodie.clean.async.enabled",
        "hoodie.clean.trigger.",
        "hoodie.clean.max.commits",
        "hoodie.archive.automatic",
        "hoodie.archive.async",
        "hoodie.archive.beyond.savepoint",
        "hoodie.keep.min.commits",
        "hoodie.keep.max.commits",
    ),
    "set `table.compaction` instead": ("hoodie.compact.", "hoodie.compaction.", "hoodie.log.compaction."),
    "set `table.target_file_bytes` instead": (
        "hoodie.parquet.max.file.size",
        "hoodie.parquet.small.file.limit",
        "hoodie.logfile.max.size",
        "hoodie.clustering.plan.strategy.small.file.limit",
        "hoodie.clustering.plan.strategy.target.file.max.bytes",
        "hoodie.clustering.plan.strategy.max.bytes.per.group",
        "hoodie.clustering.plan.strategy.max.num.groups",
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
    ),
    "set `table.compression` instead": ("hoodie.parquet.compression.codec",),
    "set `transaction.timeout_seconds` instead": ("hoodie.client.heartbeat.",),
    "set `catalog` instead": (
        "hoodie.meta.sync.",
        "hoodie.meta_sync.",
        "hoodie.datasource.hive_sync.",
        "hoodie.datasource.meta.sync.",
        "hoodie.datasource.meta_sync.",
    ),
    "set `source` instead": ("hoodie.streamer.", "hoodie.deltastreamer."),
    "`hudi-ingest services` and its schedule cluster": (
        "hoodie.clustering.inline",
        "hoodie.clustering.inline.max.commits",
        "hoodie.clustering.schedule.inline",
        "hoodie.clustering.async.",
        "hoodie.clustering.updates.",
        "hoodie.clustering.rollback.",
        "hoodie.clustering.enable.expirations",
        "hoodie.clustering.expiration.",
        "hoodie.clustering.fail.",
        "hoodie.clustering.plan.strategy.binary.copy.",
        "hoodie.clustering.plan.strategy.earliest.commit.to.cluster",
    ),
    "hudi-ingest computes the file group of each row, and keeps no index": (
        "hoodie.index.",
        "hoodie.bucket.",
        "hoodie.bloom.",
        "hoodie.simple.",
        "hoodie.global.",
        "hoodie.record.index.",
        "hoodie.expression.",
        "hoodie.metadata.index.",
        "hoodie.metadata.bloom.",
        "hoodie.metadata.global.",
        "hoodie.metadata.partitioned.",
        "hoodie.metadata.record.",
    ),
    "hudi-ingest keeps a metadata table with each commit": (
        "hoodie.metadata.enable",
        "hoodie.metadata.auto.",
        "hoodie.metadata.streaming.",
        "hoodie.metadata.write.",
        "hoodie.metadata.table.service.",
        "hoodie.metadata.fallback.",
        "hoodie.metadata.dir.filter.",
        "hoodie.metadata.ignore.",
    ),
    "hudi-ingest or Hudi sets it, for the table or for each write": (
        "hoodie.table.",
        "hoodie.database.",
        "hoodie.populate.meta.fields",
        "hoodie.partition.metafile.",
        "hoodie.archivelog.",
        "hoodie.timeline.layout.",
        "hoodie.timeline.path",
        "hoodie.timeline.history.",
        "hoodie.write.table.version",
        "hoodie.write.auto.upgrade",
        "hoodie.write.complex.keygen.",
        "hoodie.archive.limit.instants",
        "hoodie.internal.",
        "hoodie.is.update.record.for.mor",
        "hoodie.properties.",
        "hoodie.sensitive.config.keys",
        "hoodie.support.payload",
        "hoodie.tablePath",
        "hoodie.write.application.id",
    ),
    _ONCE: (
        "hoodie.write.concurrency.",
        "hoodie.write.conflict.",
        "hoodie.write.markers.",
        "hoodie.write.num.retries.on.conflict.failures",
        "hoodie.write.can.ignore.post.commit.failures",
        "hoodie.write.rolling.metadata.",
        "hoodie.write.ignore.",
        "hoodie.markers.",
        "hoodie.finalize.",
        "hoodie.embed.",
        "hoodie.filesystem.view.type",
        "hoodie.filesystem.view.secondary.type",
        "hoodie.filesystem.view.incr.",
        "hoodie.filesystem.view.remote.",
        "hoodie.filesystem.remote.",
        "hoodie.rollback.using.markers",
        "hoodie.clean.failed.writes.policy",
        "hoodie.cleaner.policy.failed.writes",
        "hoodie.clean.allow.multiple",
        "hoodie.clean.multiple.enabled",
        "hoodie.allow.",
        "hoodie.auto.commit",
        "hoodie.consistency.",
        "hoodie.optimistic.",
        "hoodie.fail.",
        "hoodie.fs.",
        "hoodie.time.",
        "hoodie.read.timeline.",
        "hoodie.skip.",
        "hoodie.static.",
        "hoodie.metaserver.",
        "hoodie.block.writes.on.speculative.execution",
        "hoodie.post.commit.failures.ignored",
        "hoodie.release.resource.on.completion.enable",
    ),
    _WRITES: (
        "hoodie.parquet.",
        "hoodie.orc.",
        "hoodie.hfile.",
        "hoodie.lance.",
        "hoodie.logfile.",
        "hoodie.base.file.",
        "hoodie.insert.",
        "hoodie.bulkinsert.",
        "hoodie.upsert.",
        "hoodie.delete.",
        "hoodie.copyonwrite.",
        "hoodie.merge.",
        "hoodie.combine.",
        "hoodie.record.size.",
        "hoodie.write.buffer.",
        "hoodie.write.executor.",
        "hoodie.write.merge.handle.",
        "hoodie.write.record.positions",
        "hoodie.write.status.",
        "hoodie.write.tagged.",
        "hoodie.writestatus.",
        "hoodie.precommit.",
        "hoodie.prewrite.",
        "hoodie.keygen.",
        "hoodie.errortable.",
        "hoodie.bootstrap.",
        "hoodie.layout.",
        "hoodie.storage.",
        "hoodie.datasource.",
        "hoodie.spark.",
        "hoodie.sql.",
        "hoodie.clean.delete.bootstrap.base.file",
        "hoodie.cleaner.delete.bootstrap.base.file",
        "hoodie.filesystem.view.spillable.bootstrap.",
        "hoodie.memory.writestatus.",
        "hoodie.write.track.event.time.watermark",
    ),
    "the engine would open ports to everybody, or send commits and metrics to any address; see docs/metrics.md, and `lineage` and "
    "`alerts` in the documentation": (
        "hoodie.metrics.",
        "hoodie.metricscompaction.",
        "hoodie.metadata.metrics.",
        "hoodie.write.commit.callback.",
    ),
    "it names a path that Hudi writes to, or a class that every driver would load, and hudi-ingest needs neither": (
        "hoodie.rollback.instant.",
        "hoodie.filesystem.view.rocksdb.",
        "hoodie.filesystem.operation.retry.exceptions",
    ),
    _READERS: (
        "hoodie.cdc.",
        "hoodie.enable.data.skipping",
        "hoodie.file.group.reader.",
        "hoodie.file.index.",
        "hoodie.fileIndex.",
        "hoodie.incremental.",
        "hoodie.query.",
        "hoodie.read.",
        "hoodie.realtime.",
        "hoodie.valid.commits.list",
        "hoodie.vector.",
    ),
}
"""Why options cannot be set, and which; a name that ends with a dot stands for all that begin with it, except longer names
with a reason of their own."""

_REASON_OF: Mapping[str, str] = {name: reason for reason, names in REASONS.items() for name in names}


_MOST_LOOKED_AT = 200
"""Options. More than may be set, so that a file with more has problems among them."""


def reason_against(option: str) -> str | None:
    """Why the option cannot be set; None if it can, or if no list has it."""
    if option in _REASON_OF:
        return _REASON_OF[option]
    parts = option.split(".")
    groups = (".".join(parts[:length]) + "." for length in range(len(parts) - 1, 0, -1))
    group = next((group for group in groups if group in _REASON_OF), None)
    if group is not None:
        return _REASON_OF[group]
    return "it names a class that every driver would load" if option.endswith((".class", ".classes")) else None


def option_problems(options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each option that cannot be set, and why."""
    for option in islice(options, _MOST_LOOKED_AT):
        if option in ALLOWED:
            continue
        if not option.startswith("hoodie."):
            yield option, "not an option of Hudi; allowed: names that begin with `hoodie.`"
        elif (reason := reason_against(option)) is not None:
            yield option, f"cannot be set here: {reason}"
        else:
            close = suggestion(option, ALLOWED)
            yield (
                option,
                f"not one of the options that hudi-ingest passes to Hudi{close}; docs/configuration.md has them all",
            )
