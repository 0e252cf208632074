"""What is kept of the records about transactions: an optional file, housekeeping.yaml, and environment variables on top of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from hudi_ingest.home.folder import HOUSEKEEPING_VARIABLE, Home
from hudi_ingest.pipeline.settings.model import Model, Whole
from hudi_ingest.pipeline.settings.settings_file import SettingsFile, load_settings

LEAST = 100
"""The newest runs, events and transactions that nothing deletes: ticks, checks, back-off and plots read no more than 50 of them."""

_Days = Annotated[Whole, Field(ge=1, le=36_500)]
_Count = Annotated[Whole, Field(ge=LEAST, le=1_000_000_000)]


class HousekeepingSettings(Model):
    """How long to keep what each transaction leaves in Dagster and in the ledger. What is older than its days, or beyond its
    count, is deleted, but never the newest 100 of a pipeline."""

    enabled: bool = True
    """Whether the schedule is on from the start. It runs the job `hudi_ingest_housekeeping` once an hour."""

    run_days: _Days = 30
    """Days to keep Dagster runs that have ended, with their events, step logs and results."""

    runs: _Count = 500
    """How many of them to keep, for each pipeline and each kind of run (transactions, table services and so on)."""

    event_days: _Days = 30
    """Days to keep what ticks report to Dagster without a run: evaluations of checks, observed lags, commits made outside."""

    events: _Count = 1000
    """How many of them to keep, for each asset and kind, and for each check."""

    tick_days: _Days = 7
    """Days to keep the ticks of sensors and schedules, with their logs."""

    ledger_days: _Days = 90
    """Days to keep the ledger's rows of transactions that have ended, with their slices and attempts, and of requests."""

    transactions: _Count = 10_000
    """How many of these transactions, and of these requests, to keep for each pipeline."""

    deleted_pipeline_days: _Days = 90
    """Days without any activity after which all runs, events, ticks and rows of a pipeline that has no file any more are deleted."""

    letter_days: _Days = 30
    """Days to keep dead-letter files whose letters a retry has taken, and lists of dead letters that newer ones replaced. Those that
    a rollback or a savepoint could bring back stay longer."""

    put_aside_days: _Days = 90
    """Days to keep the damaged instants that a repair put aside in `.hoodie/hudi_ingest/put_aside`."""


def load_housekeeping_settings(
    home: Home, overrides: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ
) -> HousekeepingSettings:
    """Load housekeeping.yaml, if there is one, with the `HUDI_INGEST_HOUSEKEEPING_…` variables on top of it, and on top of these
    the `overrides` that are not None. Raises ConfigError with all problems."""
    file = SettingsFile(home.housekeeping_settings_file, home.housekeeping_settings is not None, HOUSEKEEPING_VARIABLE)
    return load_settings(HousekeepingSettings, file, home, overrides, environment)
