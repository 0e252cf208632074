"""The hours or days of a table as the partitions of an asset downstream of it, with `asset.complete`. A tick materializes each once it is
complete: once, in order; and once more after a replay, backfill or retry of records of that time.

It is an asset of its own: on the table's, *Materialize* would mark an hour that is not complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timezone

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    HourlyPartitionsDefinition,
    MetadataValue,
)

from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.complete_through import of_table
from hudi_ingest.operations.health.judgement import lateness_seconds
from hudi_ingest.operations.observation import Observation
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.pipeline.pipeline import Pipeline

MOST_AT_ONCE = 100
"""How many new periods one look reports; the next ones report the rest."""
_FORMATS = {"hourly": "%Y-%m-%d-%H:%M", "daily": "%Y-%m-%d"}
_MILLISECONDS = {"hourly": 3_600_000, "daily": 86_400_000}
_NAMES = {"hourly": "hours", "daily": "days"}
_SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of a pipeline with `asset.complete`. Their times are milliseconds since 1970."""

    pipeline: Pipeline

    @property
    def kind(self) -> str:
        return self.pipeline.asset.complete or ""

    @property
    def key(self) -> AssetKey:
        *prefix, name = self.pipeline.asset_key
        return AssetKey([*prefix, f"{name}_{_NAMES[self.kind]}"])

    @property
    def length(self) -> int:
        return _MILLISECONDS[self.kind]

    @property
    def first(self) -> int:
        day = datetime.combine(self.pipeline.asset.backfill_from, time(), timezone.utc)
        return int(day.timestamp() * 1000)

    def name(self, start: int) -> str:
        """Return the partition that begins at `start`."""
        return f"{datetime.fromtimestamp(start / 1000, timezone.utc):{_FORMATS[self.kind]}}"

    def start(self, name: str) -> int:
        return int(datetime.strptime(name, _FORMATS[self.kind]).replace(tzinfo=timezone.utc).timestamp() * 1000)

    def complete(self, through: int | None, reported_to: int | None) -> list[int]:
        """Return where the periods start that are complete and not reported yet, in order. `through`: the table's time; `reported_to`:
        where the last reported one ends, None if there is none: then the newest begins the list."""
        if through is None:
            return []
        end = through // self.length * self.length
        begin = end - self.length if reported_to is None else reported_to
        return [*range(max(begin, self.first), end, self.length)][:MOST_AT_ONCE]

    def touched(self, accounting: Accounting, names: Iterable[str]) -> list[int]:
        """Return where those of the named periods start that records of the transaction may be in, in order."""
        earliest = min((each.earliest for each in accounting.slices if each.earliest is not None), default=None)
        latest = max((each.latest for each in accounting.slices if each.latest is not None), default=None)
        if earliest is None or latest is None:
            return []
        return [start for start in sorted(map(self.start, names)) if earliest - self.length < start <= latest]


def seconds_to_period(pipeline: Pipeline, now: float) -> float:
    """Return after how many seconds the next period ends, so late that an idle table may be complete through it; infinite without
    `asset.complete`. `now`: seconds since 1970."""
    if pipeline.asset.complete is None:
        return math.inf
    length = Periods(pipeline).length / 1000
    return length - (now - lateness_seconds(pipeline)) % length


def periods_assets(pipeline: Pipeline) -> list[AssetSpec]:
    """Return the asset of the pipeline's periods, in a list; empty without `asset.complete`."""
    asset = pipeline.asset
    if asset.complete is None:
        return []
    start = f"{asset.backfill_from:%Y-%m-%d}"
    hourly = asset.complete == "hourly"
    return [
        AssetSpec(
            Periods(pipeline).key,
            deps=[table_key(pipeline)],
            partitions_def=HourlyPartitionsDefinition(f"{start}-00:00") if hourly else DailyPartitionsDefinition(start),
            group_name=asset.group or pipeline.name,
            owners=list(asset.owners),
            tags=dict(asset.tags),
            kinds={"hudi"},
            description=(
                f"The {_NAMES[asset.complete]} of `{pipeline.name}`, in UTC by Kafka timestamps. Each is materialized once all of its records "
                "are in the table, and once more after a replay. Ticks do that, so Materialize is disabled. Earlier ones than the newest that "
                "was complete when `asset.complete` was set stay missing, although the table has their records."
            ),
        )
    ]


@dataclass(frozen=True, slots=True)
class ReportedPeriods:
    """The periods that Dagster has. `to`: where the last one ends; `sequence`: up to which transaction replays have been considered."""

    names: frozenset[str]
    to: int | None
    sequence: int

    @classmethod
    def of(cls, periods: Periods, instance: DagsterInstance) -> ReportedPeriods:
        names = instance.get_materialized_partitions(periods.key)
        newest = next(iter(instance.fetch_materializations(periods.key, limit=1).records), None)
        event = newest.asset_materialization if newest else None
        sequence = event.metadata.get(_SEQUENCE) if event else None
        number = sequence.value if sequence is not None and isinstance(sequence.value, int) else 0
        to = periods.start(max(names)) + periods.length if names else None
        return cls(frozenset(names), to, number)


def said_through(pipeline: Pipeline, instance: DagsterInstance, known: ReportedPeriods | None = None) -> int | None:
    """Return where the last reported period ends; None if there is none. Dagster is asked unless a look before has `known` it."""
    if pipeline.asset.complete is None:
        return None
    return (known or ReportedPeriods.of(Periods(pipeline), instance)).to


def report_periods(
    observation: Observation, instance: DagsterInstance, known: ReportedPeriods | None
) -> ReportedPeriods | None:
    """Materialize the periods that have become complete, and those that a replay has touched. `known`: the result of the last call. Raises
    KafkaUnreachable."""
    pipeline, checkpoint = observation.pipeline, observation.committed.checkpoint
    if pipeline.asset.complete is None or checkpoint is None:
        return known
    periods, through = Periods(pipeline), of_table(observation.situation.complete)
    if known is not None and known.sequence >= checkpoint.sequence and not periods.complete(through, known.to):
        return known
    reported = ReportedPeriods.of(periods, instance)
    repeated = _repeated(periods, observation, reported)
    new = [(start, checkpoint.sequence, checkpoint.transaction_id) for start in periods.complete(through, reported.to)]
    for start, sequence, transaction in [*repeated, *new]:
        instance.report_runless_asset_event(
            AssetMaterialization(
                periods.key,
                partition=periods.name(start),
                metadata={
                    "transaction": transaction,
                    _SEQUENCE: sequence,
                    **({} if through is None else {"complete through": MetadataValue.timestamp(through / 1000)}),
                },
            )
        )
    to = new[-1][0] + periods.length if new else reported.to
    return ReportedPeriods(reported.names, to, checkpoint.sequence)


def _repeated(periods: Periods, observation: Observation, reported: ReportedPeriods) -> Iterator[tuple[int, int, str]]:
    """Yield the reported periods that replays, backfills and retries have touched since, with the transaction and its number. Only the
    last of one transaction has its number: if the process ends before, all of them are reported once more."""
    for accounting in sorted((each for _, each in observation.accounted), key=lambda each: each.sequence):
        if accounting.kind.moves_offsets or accounting.sequence <= reported.sequence:
            continue
        touched = periods.touched(accounting, reported.names)
        for start in touched:
            sequence = accounting.sequence if start == touched[-1] else accounting.sequence - 1
            yield start, sequence, accounting.transaction_id
