"""Schedules of jobs that keep a table tidy: once a day, and off until somebody turns them on."""

from __future__ import annotations

from datetime import time

from dagster import DefaultScheduleStatus, JobDefinition, RunConfig, ScheduleDefinition


def daily_schedule(job: JobDefinition, at: time, does: str, config: RunConfig | None = None) -> ScheduleDefinition:
    """`<job>_daily`, at a time of UTC. `does`: what it does, for people, as the beginning of a sentence."""
    return ScheduleDefinition(
        name=f"{job.name}_daily",
        job=job,
        cron_schedule=f"{at.minute} {at.hour} * * *",
        execution_timezone="UTC",
        run_config=config,
        default_status=DefaultScheduleStatus.STOPPED,
        description=f"{does}, once a day at {at:%H:%M} UTC.",
    )
