"""The pages for people: rows worst first, nothing unknown as zero, nothing of a record as markup, and a small plot."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import FrameType

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest.metrics.families import Scene
from hudi_ingest.rest.pages import (
    FLEET,
    PERIODS,
    PIPELINE,
    FleetRow,
    Pages,
    bars,
    fleet,
    fleet_html,
    page,
    pipeline_html,
    selected,
    words,
)
from hudi_ingest_tests.support.fleets import RUN, fill_ledger, scene
from hudi_ingest_tests.support.rest_api import RestApi, running_rest_api

pytestmark = pytest.mark.fast

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SCENE = scene(10, NOW)
SHARED = {"scene": SCENE, "notices": ["<b>"], "dagster": "https://dagster.example.com"}


def _rows(shown: Scene = SCENE) -> list[FleetRow]:
    return fleet(shown, {"orders": {0: 500, PERIODS - 1: 5_000}})


def test_the_worst_come_first_and_each_says_what_it_waits_for() -> None:
    rows = {row.name: row for row in _rows()}
    assert [(row.name, row.state) for row in rows.values()][:7] == [
        ("orders", "failing"),
        ("payments", "failing"),
        ("returns", "failing"),
        ("stock", "warning"),
        ("visits", "not reported yet"),
        ("clicks", "paused"),
        ("carts", "well"),
    ]
    assert {name: rows[name].waits_for for name in ("orders", "returns", "clicks", "carts", "refunds", "invoices")} == {
        "orders": "its next tick",
        "returns": "?",
        "clicks": "paused: `hudi-ingest resume clicks` turns it on",
        "carts": "records",
        "refunds": "its transaction, which began 12 s ago",
        "invoices": "its next tick, to go on with 1 × replay",
    }


def test_what_is_unknown_is_a_question_mark() -> None:
    rows = {row.name: row for row in _rows()}
    for name in ("returns", "visits"):
        assert (rows[name].record.lag, rows[name].record.lag_seconds) == (None, None)
    cells = re.findall(r'<td class="figure"[^>]*>(.*?)</td>', fleet_html([rows["returns"]], {}, **SHARED))
    assert cells == ["?", "?"]
    empty = replace(SCENE.pipelines[6], sequence=0, last_committed_at=None)
    assert ">none</td>" in fleet_html(fleet(replace(SCENE, pipelines=(empty,)), None), {}, **SHARED)
    assert fleet(SCENE, None)[0].rows is None
    assert fleet(replace(SCENE, ledger=None), None)[0].waits_for == "?"
    leaderless = replace(SCENE.pipelines[6].partitions[0], lag=None)
    record = replace(SCENE.pipelines[6], partitions=(*SCENE.pipelines[6].partitions, leaderless))
    assert fleet(replace(SCENE, pipelines=(record,)), None)[0].record.lag is None


def test_nothing_of_a_record_becomes_markup() -> None:
    row = _rows()[0]
    for html in (
        fleet_html([row], {"q": "<script>alert('note')</script> & \"more\""}, **SHARED),
        pipeline_html(row, (), **SHARED),
    ):
        assert html.count("<script>") == 1
        assert "&lt;script&gt;alert(&#39;note&#39;)&lt;/script&gt; &amp; &#34;more&#34;" in html
        assert "&lt;b&gt;" in html
    assert words("`a` <i> `b\n`") == "<code>a</code> &lt;i&gt; `b\n`"


def test_a_reason_has_its_remedy_and_leads_to_its_run() -> None:
    html = fleet_html(_rows(), {}, **SHARED)
    assert f'href="https://dagster.example.com/runs/{RUN}"' in html
    assert 'href="https://dagster.example.com/assets/orders"' in html
    assert "docs/operations.md#a-partition-is-stopped" in html
    assert "dagster.example.com" not in fleet_html(_rows(), {}, **{**SHARED, "dagster": ""})


@pytest.mark.parametrize(
    ("text", "state", "names"),
    [
        ("ORDER", "", ["orders"]),
        ("kafka-3.EXAMPLE.com", "", ["returns"]),
        ("", "paused", ["clicks"]),
        ("orders", "well", []),
        ("  ", "warning", ["stock"]),
    ],
)
def test_pipelines_are_found_by_name_reason_and_state(text: str, state: str, names: list[str]) -> None:
    assert [row.name for row in selected(_rows(), text, state)] == names


def test_a_plot_has_a_bar_for_each_period_with_rows() -> None:
    row = _rows()[0]
    assert row.rows_a_minute == 1_000
    assert row.rows is not None
    assert bars(row.rows) == "M0 28v-2.8h3V28zM140 28v-28.0h3V28z"
    assert bars((0,) * PERIODS) == ""


def test_a_browser_runs_only_the_pages_own_script_and_style() -> None:
    html = fleet_html(_rows(), {}, **SHARED)
    policy = page(html).headers["content-security-policy"]
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{hashed}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"\s(style|on\w+)=", html)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestApi]:
    root: Path = tmp_path_factory.mktemp("pages")
    home = Home(root / "home", root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    home.make()
    home.pipelines.mkdir()
    home.alerts_settings_file.write_text("ui_url: javascript:alert(1)\n")
    shown = scene(200, datetime.now(timezone.utc))
    fill_ledger(home, shown)
    pages = Pages(home, lambda: shown)
    with running_rest_api(home, mounts={FLEET: pages, PIPELINE: pages}) as server:
        yield server


def test_pages_are_served_beside_the_api_to_those_who_sign_in(api: RestApi) -> None:
    refused = api.ask("GET", "//", Authorization="")
    assert (refused.status, refused.headers["www-authenticate"].split()[0]) == (401, "Basic")
    signed_in = {"Authorization": "Basic " + base64.b64encode(b"me:a-token-that-may-read").decode()}
    fleet_page = api.ask("GET", "//?q=orders&state=well", **signed_in)
    assert fleet_page.status == 200
    assert fleet_page.headers["content-type"] == "text/html; charset=utf-8"
    assert "orders_010" in fleet_page.text
    assert "payments_011" not in fleet_page.text
    assert "javascript:" not in fleet_page.text
    one = api.ask("GET", "//pipelines/orders", **signed_in)
    assert "orders-1000" in one.text
    assert api.ask("GET", "//pipelines/nobody", **signed_in).status == 404
    assert api.ask("GET", "/pipelines", **signed_in).status == 401, "the API takes no browser's login"
    assert api.ask("POST", "//").status == 405
    assert "/pipelines/{name}" not in api.ask("GET", "//openapi.json").body["paths"]


def _calls(function: Callable[[], object]) -> int:
    """The calls of Python functions in it: unlike its time, they are the same on each machine."""
    counted = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted


def test_a_page_costs_as_much_for_each_of_two_hundred_pipelines_as_for_each_of_fifty(api: RestApi) -> None:
    def calls_of_a_page(pipelines: int) -> int:
        shown = scene(pipelines, datetime.now(timezone.utc) - timedelta(seconds=1))
        pages = Pages(api.home, lambda: shown)
        pages._answer(None, {})
        return _calls(lambda: pages._answer(None, {}))

    assert calls_of_a_page(200) < 4.5 * calls_of_a_page(50)
