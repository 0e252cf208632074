"""All pipelines at a glance, worst first: rows made of one scene. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hudi_ingest.exceptions.problems import duration_text
from hudi_ingest.metrics.collector import TIMEOUT
from hudi_ingest.metrics.exposition import OpenRecord, PipelineRecord, Scene
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations.health.judgement import (
    CATALOG_SYNCED,
    COMPACTED_IN_TIME,
    DEAD_LETTERS,
    OFFSETS_HONOURED,
    RUNS_SUCCEED,
    UP_TO_DATE,
)
from hudi_ingest.orchestration.reports.overview import STATES, overview_row

PERIODS, PERIOD_SECONDS = 36, 300
"""The plot's periods, and the length of each: three hours in all."""
_REMEDIES = {
    OFFSETS_HONOURED: "docs/operations.md#a-partition-is-stopped",
    DEAD_LETTERS: "docs/dead-letters.md",
    CATALOG_SYNCED: "docs/catalogs.md#when-the-catalog-is-away",
    COMPACTED_IN_TIME: "docs/operations.md#compaction",
    RUNS_SUCCEED: "docs/operations.md#messages",
}
_OTHER_REMEDY = "docs/ui.md#the-checks"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pipeline is not well: a check that fails, and where the documentation says what to do."""

    check: str
    text: str
    remedy: str
    warning: bool = False
    run: str = ""
    """The run that failed, if it is about one."""

    @property
    def sentence(self) -> str:
        """How the text begins."""
        return " ".join(self.text.removeprefix("- ").split()).partition(". ")[0].removesuffix(".")


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A pipeline. `lag`: offsets that wait, and `behind`: for how many seconds the oldest has; None if unknown, as
    `committed_at`. `rows`: that were committed in each of PERIODS, the newest last; None if the ledger did not say."""

    name: str
    state: str
    reasons: tuple[Reason, ...]
    lag: int | None
    behind: float | None
    committed_at: datetime | None
    waits_for: str
    rows: tuple[int, ...] | None
    record: PipelineRecord

    @property
    def rows_a_minute(self) -> float | None:
        """In the newest period."""
        return self.rows[-1] * 60 / PERIOD_SECONDS if self.rows else None


def fleet(scene: Scene, committed: Mapping[str, Mapping[int, int]] | None) -> list[FleetRow]:
    """Return a row for each pipeline, worst first. `committed`: rows by pipeline and number of the period; None if unknown."""
    rows = [_row(scene, record, committed) for record in scene.pipelines]
    return sorted(rows, key=lambda row: (STATES.index(row.state), row.name))


def selected(rows: Sequence[FleetRow], text: str = "", state: str = "") -> list[FleetRow]:
    """Those whose name or reason has the text, in any case, and that are in the state; an empty one selects all."""
    found = text.strip().casefold()
    return [
        row
        for row in rows
        if state in ("", row.state)
        and (found in row.name.casefold() or any(found in reason.text.casefold() for reason in row.reasons))
    ]


def _row(scene: Scene, record: PipelineRecord, committed: Mapping[str, Mapping[int, int]] | None) -> FleetRow:
    checks = {finding.check: finding for finding in record.findings}
    if record.error and record.error != TIMEOUT:
        # As the ticks report it.
        text = f"It is unknown whether records are waiting: {record.reason}"
        checks[UP_TO_DATE] = answer(record.name, UP_TO_DATE, False, text)
    elif record.error:
        checks = {name: check for name, check in checks.items() if not check.passed}
    state = overview_row(record.name, checks, record.enabled).state
    failing = sorted((check for check in checks.values() if not check.passed), key=lambda check: check.warning)
    reasons = [_reason(check) for check in failing]
    if record.error == TIMEOUT:
        reasons.append(Reason("", record.reason, "docs/operations.md#messages"))
    lags = [partition.lag for partition in record.partitions]
    ages = [partition.lag_seconds for partition in record.partitions]
    lag = sum(each for each in lags if each is not None) if lags and None not in lags else None
    behind = max(each for each in ages if each is not None) if ages and None not in ages else None
    counts = None if committed is None else committed.get(record.name, {})
    return FleetRow(
        name=record.name,
        state=state,
        reasons=tuple(reasons),
        lag=lag,
        behind=behind,
        committed_at=record.table.committed_at if record.table else None,
        waits_for=_waits_for(scene, record, lag),
        rows=None if counts is None else tuple(counts.get(number, 0) for number in range(PERIODS)),
        record=record,
    )


def _reason(check: Finding) -> Reason:
    run = str(check.figures.get("newest failed run", "")) if check.check == RUNS_SUCCEED else ""
    return Reason(check.check, check.text, _REMEDIES.get(check.check, _OTHER_REMEDY), check.warning, run)


def _waits_for(scene: Scene, record: PipelineRecord, lag: int | None) -> str:
    """The step that comes next: by Dagster's switch, then by the ledger, then by the lag."""
    ledger = scene.ledger
    opened = ledger.open.get(record.base_path) if ledger else None
    if opened is not None:
        return _running(opened, scene.at)
    if record.activity not in ("on", "?"):
        return record.activity.removeprefix("on, but ")
    asked = ledger.requests.items() if ledger else ()
    requests = [f"{count:,} × {kind}" for (pipeline, kind), count in asked if pipeline == record.name]
    if requests:
        return f"its next tick, to go on with {', '.join(requests)}"
    if lag is None or ledger is None:
        return "?"
    return "its next tick" if lag else "records"


def _running(opened: OpenRecord, now: datetime) -> str:
    if opened.overdue:
        return "the next begin, which clears a transaction whose owner is gone"
    return f"its transaction, which began {duration_text((now - opened.began_at).total_seconds())} ago"


def summary(rows: Sequence[FleetRow]) -> list[tuple[str, int]]:
    """How many pipelines are in each state, worst first, without states that none is in."""
    counts = [(state, sum(row.state == state for row in rows)) for state in STATES]
    return [(state, count) for state, count in counts if count]
