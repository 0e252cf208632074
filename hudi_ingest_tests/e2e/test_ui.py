"""D1: an operator's way through the Dagster UI in headless Chromium: the pages to watch, a backfill of three hours, a failed run.

`make ui` puts the screenshots into docs/images. Needs the Python package `playwright` and a `chromium` on the PATH.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.home.folder import Home
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest.orchestration import tags
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest_tests.simulation.trace import judge
from hudi_ingest_tests.support.launching import launch
from hudi_ingest_tests.support.switching import turn
from hudi_ingest_tests.support.waiting import wait_for

playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.tier(3),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is on the PATH"),
]

NAME = "orders"
PARTITIONS = 4
HOURS = 3
AN_HOUR = 8_000
LIVE = (2_000, 2_000, 8_400)
"""Records of the live transactions; the ops of the last run in parallel."""
PAGE_MS = 60_000
PIPELINE = {
    "name": NAME,
    "source": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [NAME], "starting_offsets": "latest"},
    "table": {
        "base_path": "${HUDI_INGEST_TABLES}/orders",
        "schema": "id string, amount double, note string, dt string",
        "partition_by": ["dt"],
    },
    "transaction": {"interval_seconds": 5, "max_records": LIVE[-1], "timeout_seconds": 300},
    "asset": {"description": "Orders of the shop.", "owners": ["team:shop"], "tags": {"domain": "sales"}},
}


@dataclass
class Shop:
    """A whole stack; three hours of its topic are older than its pipeline."""

    home: Home
    stack: Stack
    hours: list[datetime]
    sent: int = 0

    def send(self, count: int, first: datetime, seconds: float) -> None:
        producer = Producer({"bootstrap.servers": self.stack.bootstrap_servers, "linger.ms": 20, "log_level": 0})
        for number in range(count):
            at = first + timedelta(seconds=seconds * number / count)
            order = {
                "id": f"o-{self.sent + number:07d}",
                "amount": round(5 + number % 977 / 10, 2),
                "note": "leave at the door",
                "dt": f"{at:%Y-%m-%d}",
            }
            producer.produce(
                NAME, json.dumps(order).encode(), partition=number % PARTITIONS, timestamp=int(at.timestamp() * 1000)
            )
            producer.poll(0)
        assert producer.flush(300) == 0
        self.sent += count

    def rows(self) -> int:
        base_path = self.home.tables / NAME
        if not any(Path(base_path, ".hoodie", "timeline").glob("*_*.commit")):
            return -1
        batches = HudiTable(str(base_path)).read(HudiReadOptions().with_projection(["id"]))
        return sum(batch.num_rows for batch in batches)

    def await_rows(self, count: int) -> None:
        wait_for(lambda: self.rows() == count, f"{count:,} rows are in the table", 240, pause_seconds=1.0)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("ui")
    home = Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    home.pipelines.mkdir()
    (home.pipelines / "orders.yaml").write_text(yaml.safe_dump(PIPELINE))
    try:
        stack = bring_up(home, StackSettings(free_port(), free_port()), lambda line: None)
        this_hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
        hours = [this_hour - timedelta(hours=HOURS - number) for number in range(HOURS)]
        create_topic(stack.bootstrap_servers, NAME, PARTITIONS)
        shop = Shop(home, stack, hours)
        shop.send(HOURS * AN_HOUR, hours[0], HOURS * 3600)
        turn(home, NAME, True)
        shop.await_rows(0)
        for number, count in enumerate(LIVE, 1):
            # While the pipeline is off, so that one transaction takes them all.
            turn(home, NAME, False)
            shop.send(count, this_hour, 60)
            turn(home, NAME, True)
            shop.await_rows(sum(LIVE[:number]))
        yield shop
    finally:
        bring_down(home, lambda line: None)
    judge(home.transactions_log)


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("HUDI_INGEST_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # Without its sandbox, because tests run as root in containers; it sees our own pages only.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, timezone_id="UTC", locale="en-US")
    context.set_default_timeout(PAGE_MS)
    yield context.new_page()
    context.close()


A_DAY = re.compile(r"\d\d/\d\d/\d{4}")
DONE = re.compile(r"\b(Success|Succeeded|Completed)\b")
SHOWN = """
names => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const [path, shown] of names) node.nodeValue = node.nodeValue.replaceAll(path, shown);
}
"""


def take_picture(page: Any, shop: Shop, path: Path) -> None:
    """Of the page as it is, but for the paths of this machine."""
    here = [(str(shop.home.root), "/data/hudi-ingest"), (sys.prefix, "/opt/hudi-ingest")]
    page.evaluate(SHOWN, [*here, (str(Path(__file__).parents[2]), "/opt/hudi-ingest")])
    page.screenshot(path=path)


def backfill_states(shop: Shop) -> list[str]:
    text = "{ partitionBackfillsOrError { ... on PartitionBackfills { results { status } } } }"
    answer = webserver.query(shop.stack.url, text) or {}
    return [backfill["status"] for backfill in answer.get("partitionBackfillsOrError", {}).get("results", [])]


def job_page(shop: Shop, job: str, tab: str) -> str:
    return f"{shop.stack.url}/locations/{webserver.LOCATION}/jobs/hudi_ingest_{job}/{tab}"


def newest_run(shop: Shop) -> str:
    """The id of the table's newest transaction."""
    wanted = 'filter: {pipelineName: "__ASSET_JOB", tags: $tags}, limit: 1'
    text = f"query($tags: [ExecutionTag!]) {{ runsOrError({wanted}) {{ ... on Runs {{ results {{ id }} }} }} }}"
    answer = webserver.query(shop.stack.url, text, {"tags": [{"key": tags.PIPELINE, "value": NAME}]}) or {}
    return str(answer["runsOrError"]["results"][0]["id"])


def open_asset(page: Any, shop: Shop, view: str) -> None:
    page.goto(f"{shop.stack.url}/assets/{NAME}?view={view}")


def test_d1_the_pages_that_an_operator_watches(shop: Shop, page: Any, screenshots: Path) -> None:
    open_asset(page, shop, "overview")
    page.get_by_text("_kafka_offset").first.wait_for()
    page.get_by_text(A_DAY).first.wait_for()
    take_picture(page, shop, screenshots / "asset.png")
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("lag (records)").first.scroll_into_view_if_needed()
    page.get_by_text("lag (seconds)").first.wait_for()
    take_picture(page, shop, screenshots / "plots.png")
    open_asset(page, shop, "checks")
    page.get_by_text("lag_below_limit", exact=True).first.click()
    page.get_by_text("the limit is").first.wait_for()
    take_picture(page, shop, screenshots / "checks.png")
    page.goto(f"{shop.stack.url}/locations/{webserver.LOCATION}/sensors/{COORDINATOR}")
    page.get_by_role("button", name="View logs").first.wait_for()
    take_picture(page, shop, screenshots / "sensor.png")
    page.goto(f"{shop.stack.url}/runs/{newest_run(shop)}")
    page.get_by_text("RUN_SUCCESS").first.wait_for()
    page.get_by_text(f"{NAME}.write[{NAME}_{PARTITIONS - 1}]").first.wait_for()
    take_picture(page, shop, screenshots / "run.png")


def test_d1_three_hours_are_backfilled_from_the_ui_and_the_asset_plots_them(
    shop: Shop, page: Any, screenshots: Path
) -> None:
    page.goto(job_page(shop, "backfill_hours", "partitions"))
    page.get_by_role("button", name="Launch backfill").click()
    hours = page.get_by_placeholder(re.compile("^ex: "))
    # In quotes, because the dialog's language does not know the bar.
    first, last = (f'"{NAME}|{hour:%Y-%m-%d-%H:00}"' for hour in (shop.hours[0], shop.hours[-1]))
    hours.fill(f"[{first}...{last}]")
    hours.press("Enter")
    submit = page.get_by_role("button", name=f"Submit {HOURS} runs")
    submit.wait_for()
    take_picture(page, shop, screenshots / "backfill-launch.png")
    submit.click()
    shop.await_rows(sum(LIVE) + HOURS * AN_HOUR)
    wait_for(lambda: backfill_states(shop) == ["COMPLETED_SUCCESS"], "the backfill is done", pause_seconds=1.0)
    page.goto(f"{shop.stack.url}/runs?view=backfills")
    page.get_by_text("hudi_ingest_backfill_hours").first.wait_for()
    wait_for(lambda: DONE.search(page.inner_text("body")), "the page says that it is done", 30, pause_seconds=0.5)
    take_picture(page, shop, screenshots / "backfill.png")
    open_asset(page, shop, "overview")
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("backfill/rows").first.scroll_into_view_if_needed()
    take_picture(page, shop, screenshots / "backfill-plots.png")


def test_d1_a_failed_run_says_in_one_sentence_what_to_do(shop: Shop, page: Any, screenshots: Path) -> None:
    ranges = [{"topic": NAME, "partition": 0, "start": 0, "end": 1_000_000}]
    config = {"ops": {"replay": {"config": {"ranges": ranges}}}}
    page.goto(f"{shop.stack.url}/runs/{launch(shop.stack.url, 'hudi_ingest_replay', config, partition=NAME)}")
    page.get_by_text("ends after the committed offset").first.wait_for()
    page.get_by_text("Execution of run for").first.wait_for()
    take_picture(page, shop, screenshots / "failed-run.png")
