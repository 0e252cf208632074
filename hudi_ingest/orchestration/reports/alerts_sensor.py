"""The sensor that sends alerts about failing checks and pipeline files that cannot be loaded to the channels of alerts.yaml."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from dagster import (
    AssetKey,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.health.alerts import Incident, Send, Told, channels, news_for
from hudi_ingest.operations.health.judgement import RUNS_SUCCEED
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.broken_files import FILE_LOADS, problem_text
from hudi_ingest.orchestration.failures import HOUSEKEEPING
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.reports.checks import newest_results, why_housekeeping_failed
from hudi_ingest.pipeline.code_location import AlertSettings, load_alert_settings
from hudi_ingest.pipeline.folder import BrokenFile
from hudi_ingest.pipeline.pipeline import Pipeline

NAME = "hudi_ingest_alerts"
SECONDS = 30


def alerts_definitions(pipelines: Sequence[Pipeline], broken: Sequence[BrokenFile], suffix: str = "") -> Definitions:
    """Return the sensor, if there is an alerts.yaml. `suffix`: of its name, if a code location merges several."""
    home = Home.from_environment()
    if not home.alerts_settings_file.exists() and home.alerts_settings is None:
        return Definitions()
    return Definitions(sensors=[_alerts_sensor(f"{NAME}{suffix}", home, pipelines, broken)])


def _alerts_sensor(
    name: str, home: Home, pipelines: Sequence[Pipeline], broken: Sequence[BrokenFile]
) -> SensorDefinition:
    """Build the sensor, which is on from the start. Its cursor remembers what each channel was sent; if it is lost, that is sent once more.
    Its ticks fail while alerts.yaml is wrong."""

    @sensor(
        name=name,
        minimum_interval_seconds=SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Sends to the channels of alerts.yaml which checks began to fail, also of housekeeping, and which have recovered.",
    )
    def alerts(context: SensorEvaluationContext) -> SkipReason:
        settings, instance = load_alert_settings(home), kept_instance(context)
        incidents = [
            *failing_checks(instance, pipelines, settings),
            *(Incident(file.name or file.path.name, FILE_LOADS, problem_text(file)) for file in broken),
            *_housekeeping(instance),
        ]
        told, failures = tell(Told.read(context.cursor), incidents, channels(settings))
        context.update_cursor(told.to_text())
        for failure in failures:
            context.log.error(failure)
        summary = f"{counted(len(incidents), 'incident')} open"
        return SkipReason("; ".join([summary, *failures]))

    return alerts


def tell(told: Told, incidents: Sequence[Incident], reach: Mapping[str, Send]) -> tuple[Told, list[str]]:
    """Send each channel its news, and return what they know now and why some could not be sent theirs; the next tick tries those
    again."""
    failures = []
    told, now = told.only([*reach]), time.time()
    news = {name: news_for(told.of(name), incidents, now) for name in reach}
    # At once: Dagster gives a tick a minute, and a few channels that do not answer would use it up, so that the others would be
    # told again by each tick.
    with ThreadPoolExecutor(max(1, len(reach))) as pool:
        sent = {name: pool.submit(send, news[name]) for name, send in reach.items() if news[name]}
    for name in reach:
        try:
            if name in sent:
                sent[name].result()
            told = told.after(name, incidents, now)
        except IngestError as error:
            failures.append(str(error))
        except Exception as error:  # noqa: BLE001 - what was sent must be remembered, or each tick would send it again
            # Without its message, which may quote the URL.
            failures.append(f"{name}: unexpected {type(error).__name__}")
    return told, failures


def failing_checks(instance: DagsterInstance, pipelines: Sequence[Pipeline], settings: AlertSettings) -> list[Incident]:
    """Return the checks of the tables whose newest result is a failure, with warnings if the settings say so."""
    results = newest_results(instance, pipelines)
    return [
        Incident(pipeline.name, check, result.text, result.warning, _page(settings, table_key(pipeline)))
        for pipeline in pipelines
        for check, result in results[pipeline.name].items()
        if not result.passed and (settings.warnings or not result.warning)
    ]


def _housekeeping(instance: DagsterInstance) -> list[Incident]:
    failure = why_housekeeping_failed(instance)
    return [Incident(HOUSEKEEPING, RUNS_SUCCEED, failure)] if failure else []


def _page(settings: AlertSettings, asset: AssetKey) -> str:
    return f"{settings.ui_url.rstrip('/')}/assets/{'/'.join(asset.path)}?view=checks" if settings.ui_url else ""
