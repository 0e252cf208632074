"""One line for each pipeline: is it well, how far behind, when was the last commit, what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from hudi_ingest.model.finding import Finding
from hudi_ingest.operations.health.judgement import COMMIT_AGE, LAG_BELOW_LIMIT, LAG_RECORDS, LAG_SECONDS, UP_TO_DATE

WELL, WARNING, FAILING, PAUSED, UNKNOWN = "well", "warning", "failing", "paused", "not reported yet"
STATES = (FAILING, WARNING, UNKNOWN, PAUSED, WELL)
"""Worst first."""
_LONGEST = 80
"""Characters. The table's last column is narrow: a long text would push the other pipelines off the page."""


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """A pipeline at a glance. `behind`: seconds that the oldest waiting record has waited, None if unknown, as `waiting`.
    `last_commit`: as text, "?" if unknown."""

    pipeline: str
    state: str
    behind: float | None
    waiting: int | None
    last_commit: str
    wrong: str = ""

    def to_dict(self) -> dict[str, str | int]:
        """Return the row for people; times in UTC."""
        return {
            "pipeline": self.pipeline,
            "state": self.state,
            "what is wrong": self.wrong,
            "last commit (UTC)": self.last_commit,
            "records waiting": "?" if self.waiting is None else f"{self.waiting:,}",
            "seconds behind": "?" if self.behind is None else f"{self.behind:,.0f}",
        }


def overview_row(
    pipeline: str, checks: Mapping[str, Finding], running: bool, committed_at: datetime | None = None
) -> OverviewRow:
    """Judge a pipeline by its checks' newest results. `running`: whether its sensor is on; `committed_at`: of the newest commit
    that the ledger has, None if it has none, as after it was replaced."""
    failing = sorted(
        ((name, check) for name, check in checks.items() if not check.passed), key=lambda entry: entry[1].warning
    )
    # A paused pipeline's numbers are from before it was paused, and nobody measures while broker or table is away.
    measured = running and not _is_blind(checks)
    waiting = _number(checks, LAG_BELOW_LIMIT, LAG_RECORDS) if measured else None
    behind = 0.0 if waiting == 0 else _number(checks, UP_TO_DATE, LAG_SECONDS) if measured else None
    return OverviewRow(
        pipeline,
        _state(failing, bool(checks), running),
        behind,
        None if waiting is None else int(waiting),
        _last_commit(checks, committed_at),
        "; ".join(f"{name}: {_beginning(check.text)}" for name, check in failing),
    )


def worst_first(rows: Sequence[OverviewRow]) -> list[OverviewRow]:
    return sorted(rows, key=lambda row: (STATES.index(row.state), row.pipeline))


def summary(rows: Sequence[OverviewRow]) -> str:
    """Count the pipelines by state, worst first."""
    counts = {state: sum(row.state == state for row in rows) for state in STATES}
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count) or "no pipelines"


def _state(failing: Sequence[tuple[str, Finding]], is_reported: bool, running: bool) -> str:
    if failing:
        return WARNING if all(check.warning for _, check in failing) else FAILING
    if not running:
        return PAUSED
    return WELL if is_reported else UNKNOWN


def _is_blind(checks: Mapping[str, Finding]) -> bool:
    """Whether the newest look at broker and table failed: only then does the check fail without an age of the last commit."""
    return UP_TO_DATE in checks and not checks[UP_TO_DATE].passed and _number(checks, UP_TO_DATE, COMMIT_AGE) is None


def _last_commit(checks: Mapping[str, Finding], committed_at: datetime | None) -> str:
    """The newer of what the ledger and the check know; "none" only if the table was seen without a commit."""
    age, at = _number(checks, UP_TO_DATE, COMMIT_AGE), checks[UP_TO_DATE].at if UP_TO_DATE in checks else None
    seen = [] if age is None or at is None else [at - timedelta(seconds=age)]
    known = [*seen, *([committed_at] if committed_at else [])]
    if known:
        return f"{max(known).astimezone(timezone.utc):%Y-%m-%d %H:%M}"
    return "none" if UP_TO_DATE in checks and checks[UP_TO_DATE].passed else "?"


def _number(checks: Mapping[str, Finding], check: str, figure: str) -> float | None:
    value = checks[check].figures.get(figure) if check in checks else None
    return float(value) if isinstance(value, (int, float)) else None


def _beginning(text: str) -> str:
    """The first sentence, or as much of it as fits into a cell."""
    sentence = " ".join(text.split()).split(". ", 1)[0].removesuffix(".")
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST].rstrip()}…"
