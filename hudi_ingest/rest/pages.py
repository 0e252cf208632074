"""The pages for people: all pipelines, and each of them by itself. Made on the server, without a build step; a few lines of JavaScript
load them anew, and without it the browser does.

Everything on them is escaped, and the browser is told to load and run nothing but the page's own style and script. `mounts` has all
that `hudi-ingest serve` shows beside the API: these pages, and /metrics, which it also exports by OpenTelemetry if that is configured.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path  # files: the template
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import duration_text, listed
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.tables import TransactionRow, normal_base_path
from hudi_ingest.local.stack import Stack
from hudi_ingest.metrics.collector import Collector
from hudi_ingest.metrics.families import Scene
from hudi_ingest.model.finding import Finding, answer, first_sentence, problem
from hudi_ingest.operations.health.judgement import (
    CATALOG_SYNCED,
    COMPACTED_IN_TIME,
    DEAD_LETTERS,
    ICEBERG_UP_TO_DATE,
    OFFSETS_HONOURED,
    RUNS_SUCCEED,
    UP_TO_DATE,
)
from hudi_ingest.operations.observation import Timeout
from hudi_ingest.operations.state import PipelineState
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.reports.instance_view import InstanceView
from hudi_ingest.orchestration.reports.overview import STATES, state_of
from hudi_ingest.pipeline.code_location import load_alert_settings
from hudi_ingest.pipeline.extras import require
from hudi_ingest.rest.access import PAGES
from hudi_ingest.rest.problems import Refused

METRICS = "/metrics"
FLEET, PIPELINE = "/", f"{PAGES}{{name}}"
_SHOWN_TRANSACTIONS = 25
_SHOWN_PARTITIONS = 200
_SHOWN_FILES = 10
_WIDTH, _HEIGHT = 144, 28
"""The size of a plot, in its own units."""
_logger = logging.getLogger(__name__)
PERIODS, PERIOD_SECONDS = 36, 300
"""The plot's periods, and the length of each: three hours in all."""
_REMEDIES = {
    OFFSETS_HONOURED: "docs/operations.md#a-partition-is-stopped",
    DEAD_LETTERS: "docs/dead-letters.md",
    CATALOG_SYNCED: "docs/catalogs.md#when-the-catalog-is-away",
    ICEBERG_UP_TO_DATE: "docs/iceberg.md#when-it-is-behind",
    COMPACTED_IN_TIME: "docs/operations.md#compaction",
    RUNS_SUCCEED: "docs/operations.md#messages",
    "": "docs/operations.md#messages",
}
"""Where the documentation says what to do, by check; "" for a pipeline that did not answer."""
_OTHER_REMEDY = "docs/ui.md#the-checks"


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A pipeline. `state`: of the overview's. `rows`: that were committed in each of PERIODS, the newest last; None if the ledger did
    not say."""

    record: PipelineState
    state: str
    reasons: tuple[Finding, ...]
    """The checks that fail, warnings last, and that it did not answer."""
    waits_for: str
    rows: tuple[int, ...] | None

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def rows_a_minute(self) -> float | None:
        """In the newest period."""
        return self.rows[-1] * 60 / PERIOD_SECONDS if self.rows else None


def fleet(scene: Scene, committed: Mapping[str, Mapping[int, int]] | None) -> list[FleetRow]:
    """Return a row for each pipeline, worst first. `committed`: rows by pipeline and number of the period; None if unknown."""
    rows = [_row(scene, record, committed) for record in scene.pipelines]
    return sorted(rows, key=lambda row: (STATES.index(row.state), row.name))


def selected(rows: Sequence[FleetRow], text: str = "", state: str = "") -> list[FleetRow]:
    """Return the rows whose name or reason has the text, in any case, and that are in the state; an empty one selects all."""
    found = text.strip().casefold()
    return [
        row
        for row in rows
        if state in ("", row.state)
        and (found in row.name.casefold() or any(found in reason.text.casefold() for reason in row.reasons))
    ]


def _row(scene: Scene, record: PipelineState, committed: Mapping[str, Mapping[int, int]] | None) -> FleetRow:
    checks = {finding.check: finding for finding in record.findings}
    silent = isinstance(record.error, Timeout)
    if record.error and not silent:
        # As the ticks report it.
        text = f"It is unknown whether records are waiting: {record.error}"
        checks[UP_TO_DATE] = answer(record.name, UP_TO_DATE, False, text)
    elif record.error:
        checks = {name: check for name, check in checks.items() if not check.passed}
    state = state_of(checks.values(), record.is_on)
    failing = sorted((check for check in checks.values() if not check.passed), key=lambda check: check.warning)
    if silent:
        failing.append(problem(record.name, str(record.error)))
    counts = None if committed is None else committed.get(record.name, {})
    rows = None if counts is None else tuple(counts.get(number, 0) for number in range(PERIODS))
    return FleetRow(record, state, tuple(failing), _waits_for(scene, record), rows)


def _waits_for(scene: Scene, record: PipelineState) -> str:
    """The step that comes next: by Dagster's switch, then by the ledger, then by the lag."""
    ledger = scene.ledger
    path = normal_base_path(record.pipeline.table.base_path)
    opened = ledger.open.get(path) if ledger else None
    if path in scene.overdue:
        return "the next begin, which clears a transaction whose owner is gone"
    if opened is not None:
        return f"its transaction, which began {duration_text((scene.at - opened.began_at).total_seconds())} ago"
    if record.activity not in ("on", "?"):
        return record.activity.removeprefix("on, but ")
    asked = ledger.requests.items() if ledger else ()
    requests = [f"{count:,} × {kind}" for (pipeline, kind), count in asked if pipeline == record.name]
    if requests:
        return f"its next tick, to go on with {', '.join(requests)}"
    if record.lag is None or ledger is None:
        return "?"
    return "its next tick" if record.lag else "records"


def summary(rows: Sequence[FleetRow]) -> list[tuple[str, int]]:
    """How many pipelines are in each state, worst first, without states that none is in."""
    counts = [(state, sum(row.state == state for row in rows)) for state in STATES]
    return [(state, count) for state, count in counts if count]


class Pages:
    """An ASGI application. `look` returns the newest scene."""

    def __init__(self, home: Home, look: Callable[[], Scene]) -> None:
        self._home = home
        self._look = look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method not in ("GET", "HEAD"):
            refused = Refused(405, "Method not allowed", "Pages are only read.", headers={"Allow": "GET, HEAD"})
            await refused(scope, receive, send)
            return
        # A scene waits for brokers and disks, and the server has other requests.
        answer = await run_in_threadpool(self._answer, request.path_params.get("name"), dict(request.query_params))
        await answer(scope, receive, send)

    def _answer(self, name: str | None, query: Mapping[str, str]) -> Response:
        scene = self._look()
        notices = [*_notices(scene)]
        dagster = _dagster_url(self._home, notices)
        since = scene.at.replace(second=0, microsecond=0) - timedelta(seconds=PERIODS * PERIOD_SECONDS)
        names = [record.name for record in scene.pipelines] if name is None else [name]
        committed: dict[str, dict[int, int]] | None = None
        transactions: tuple[TransactionRow, ...] = ()
        if scene.ledger is not None:
            with Ledger.open(self._home.ledger_url) as ledger:
                committed = ledger.transactions.committed_rows(names, since, PERIOD_SECONDS)
                if name is not None:
                    transactions = ledger.transactions.history(name, _SHOWN_TRANSACTIONS)
        rows = fleet(scene, committed)
        shared = {"scene": scene, "notices": notices, "dagster": dagster}
        if name is None:
            return page(fleet_html(rows, query, **shared))
        found = [row for row in rows if row.name == name]
        if not found:
            return page(_template().render(**shared, title="No such pipeline", missing=name), 404)
        return page(pipeline_html(found[0], transactions, **shared))


def fleet_html(rows: list[FleetRow], query: Mapping[str, str], **shared: Any) -> str:
    """The page of all pipelines. `query`: `q`, a text to search for, and `state`."""
    text, state = query.get("q", ""), query.get("state", "")
    return _template().render(
        **shared,
        title="Pipelines",
        rows=selected(rows, text, state),
        total=len(rows),
        counts=[("", len(rows)), *summary(rows)],
        text=text,
        state=state,
    )


def pipeline_html(row: FleetRow, transactions: tuple[TransactionRow, ...], **shared: Any) -> str:
    """The page of one pipeline, with the partitions of the largest lag first and its newest transactions."""
    known = () if row.record.error else row.record.partitions
    partitions = sorted(known, key=lambda each: (each.lag is not None, -(each.lag or 0), each.source))
    return _template().render(
        **shared,
        title=row.name,
        row=row,
        partitions=partitions[:_SHOWN_PARTITIONS],
        more_partitions=max(0, len(partitions) - _SHOWN_PARTITIONS),
        transactions=transactions,
    )


def page(html: str, status: int = 200) -> Response:
    """An answer that a browser neither keeps nor lets load or run anything but the page's own style and script."""
    policy = {
        "default-src": "'none'",
        "style-src": _hashed("style"),
        "script-src": _hashed("script"),
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(html, status, headers, "text/html; charset=utf-8")


@cache
def _own(element: str) -> str:
    """The text of the template's only style or script element."""
    found = re.search(rf"<{element}>(.*?)</{element}>", (Path(__file__).parent / "pages.html").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def _hashed(element: str) -> str:
    digest = hashlib.sha256(_own(element).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": _number,
        "age": _age,
        "moment": _moment,
        "duration": duration_text,
        "bars": bars,
        "words": words,
        "sentence": first_sentence,
    }
    environment.globals |= {
        "page_of": lambda name: f"{PAGES}{quote(name)}",
        "query_of": lambda **values: "?" + urlencode({key: value for key, value in values.items() if value}),
        "runs_of": lambda name: f"/runs?{urlencode({'q[0]': f'tag:{tags.PIPELINE}={name}'})}",
        "asset_of": lambda name: f"/assets/{quote(name)}",
        "remedy_of": lambda finding: _REMEDIES.get(finding.check, _OTHER_REMEDY),
        # The run that failed, if it is about one.
        "run_of": lambda finding: finding.figures.get("newest failed run", "") if finding.check == RUNS_SUCCEED else "",
        "plot_width": _WIDTH,
        "plot_height": _HEIGHT,
        "hours": PERIODS * PERIOD_SECONDS // 3600,
        "period_minutes": PERIOD_SECONDS // 60,
    }
    return environment.get_template("pages.html")


def bars(rows: tuple[int, ...]) -> str:
    """The path of a plot with a bar for each period; the highest is as high as the plot."""
    most, step = max(rows, default=0), _WIDTH / PERIODS
    return "".join(
        f"M{number * step:g} {_HEIGHT}v-{max(1.0, _HEIGHT * count / most):.1f}h{step - 1:g}V{_HEIGHT}z"
        for number, count in enumerate(rows)
        if count
    )


def words(text: str) -> Markup:
    """Our texts quote commands as Markdown does; what they quote of records is escaped like all else."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _age(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _moment(at: datetime | None) -> str:
    return "?" if at is None else f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def _notices(scene: Scene) -> list[str]:
    """Return the troubles of more than one pipeline."""
    found = []
    if scene.broken_files:
        files = listed(scene.broken_files, _SHOWN_FILES)
        found.append(f"Pipeline files that cannot be loaded: {files}. `hudi-ingest validate` says why.")
    if scene.ledger is None:
        found.append(
            "The ledger does not answer, so rows a minute and transactions are unknown; `hudi-ingest doctor` says more."
        )
    if scene.dagster_up is False:
        found.append(
            "Dagster's instance does not answer, so it is unknown which pipelines are paused and whether runs succeed."
        )
    return found


def _dagster_url(home: Home, notices: list[str]) -> str:
    """The address of the Dagster UI: `ui_url` of alerts.yaml, else the embedded stack's; "" if there is none."""
    try:
        url = load_alert_settings(home).ui_url
        if url is None:
            stack = Stack.read(home)
            url = stack.url if stack else ""
    except IngestError as error:
        notices.append(f"There are no links to Dagster: {error}")
        return ""
    # Nothing else becomes a link, such as javascript:.
    return url.rstrip("/") if url.startswith(("http://", "https://")) else ""


@contextmanager
def mounts(home: Home) -> Iterator[Mapping[str, ASGIApp]]:
    """Yield the applications by their paths, which show what one collector has collected. /metrics is missing without the extra
    `metrics`, which is logged."""
    with ExitStack() as resources:
        view = resources.enter_context(closing(InstanceView(home)))
        collector = resources.enter_context(closing(Collector(home, view)))
        pages = Pages(home, collector.scene)
        applications: dict[str, ASGIApp] = {FLEET: pages, PIPELINE: pages}
        try:
            require("metrics")
        except ValueError as error:
            _logger.warning("there is no %s, because it %s", METRICS, error)
        else:
            from hudi_ingest.metrics.exporters import OtlpExport, is_configured, metrics_app

            if is_configured():
                export = OtlpExport(collector.families)
                export.start()
                resources.callback(export.stop)
            applications[METRICS] = metrics_app(collector.families)
        yield applications
