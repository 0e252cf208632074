"""Deletes old ticks of our sensors and schedules, with their logs. Dagster's own `retention` of an instance keeps those of schedules
for ever by default, and never deletes the logs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from dagster import DagsterInstance

from hudi_ingest.orchestration.housekeeping.own_definitions import OwnDefinitions

if TYPE_CHECKING:
    from dagster._core.scheduler.instigation import InstigatorState, InstigatorTick

AT_ONCE = 1000


def delete_ticks(
    instance: DagsterInstance, own: OwnDefinitions, since: datetime, location: str | None, *, dry_run: bool
) -> int:
    """Delete the ticks before `since`, and return how many there were. `location`: the code location whose sensors and schedules are
    ours; those of all locations, if their names are ours, if it is None."""
    deleted = 0
    for state in instance.all_instigator_state():
        if state.instigator_name not in own.instigators or location not in (None, _location(state)):
            continue
        origin, selector = state.instigator_origin_id, state.selector_id
        for tick in _ticks(instance, origin, selector, since):
            deleted += 1
            if tick.log_key and not dry_run:
                instance.compute_log_manager.delete_logs(log_key=tick.log_key)
        if not dry_run:
            instance.purge_ticks(origin, selector, since.timestamp())
    return deleted


def _location(state: InstigatorState) -> str:
    return state.origin.repository_origin.code_location_origin.location_name


def _ticks(instance: DagsterInstance, origin: str, selector: str, before: datetime) -> Iterator[InstigatorTick]:
    """Yield newest first."""
    until = before.timestamp()
    while True:
        ticks = instance.get_ticks(origin, selector, before=until, limit=AT_ONCE)
        yield from ticks
        if len(ticks) < AT_ONCE:
            return
        until = ticks[-1].timestamp
