"""Daily schedules of table maintenance jobs, off until turned on unless said otherwise."""

from __future__ import annotations

from datetime import time

from dagster import DefaultScheduleStatus, JobDefinition, RunConfig, ScheduleDefinition


def daily_schedule(
    job: JobDefinition,
    at: time,
    does: str,
    config: RunConfig | None = None,
    status: DefaultScheduleStatus = DefaultScheduleStatus.STOPPED,
) -> ScheduleDefinition:
    """Return the schedule `<job>_daily`, at a time in UTC. `does`: what it does, as the beginning of a sentence."""
    return ScheduleDefinition(
        name=f"{job.name}_daily",
        job=job,
        cron_schedule=f"{at.minute} {at.hour} * * *",
        execution_timezone="UTC",
        run_config=config,
        default_status=status,
        description=f"{does}, once a day at {at:%H:%M} UTC.",
    )
