"""The pages of `hudi-ingest serve` in headless Chromium: narrow and wide, light and dark, with and without JavaScript.

`make ui` puts a screenshot into docs/images. Needs the Python package `playwright` and a `chromium` on the PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest.rest.pages import FLEET, PIPELINE, Pages
from hudi_ingest_tests.support.fleets import fill_ledger, scene
from hudi_ingest_tests.support.rest_api import READ_TOKEN, running_rest_api

playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="no chromium is on the PATH")]

PIPELINES = 200
WAIT_MS = 60_000
SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("HUDI_INGEST_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose every look is a second later than the one before."""
    root = tmp_path_factory.mktemp("pages")
    home = Home(root / "home", root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    home.make()
    home.pipelines.mkdir()
    home.alerts_settings_file.write_text("ui_url: https://dagster.example.com\n")
    first = scene(PIPELINES, datetime.now(timezone.utc))
    fill_ledger(home, first)
    looks = iter(range(1_000_000))
    pages = Pages(home, lambda: replace(first, at=first.at + timedelta(seconds=next(looks))))
    with running_rest_api(home, mounts={FLEET: pages, PIPELINE: pages}) as server:
        yield f"http://127.0.0.1:{server.port}"


Open = Callable[..., Any]


@pytest.fixture(scope="module")
def open_page() -> Iterator[Open]:
    """Opens a page that is signed in; whatever its console says is an error."""
    said = list[str]()
    with playwright.sync_playwright() as started:
        # Without its sandbox, because tests run as root in containers; it sees our own pages only.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def open_page(url: str, width: int = 1500, scheme: str = "light", **options: Any) -> Any:
            context = chromium.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                http_credentials={"username": "me", "password": READ_TOKEN},
                **options,
            )
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            page.on("console", lambda message: said.append(message.text))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.goto(url)
            return page

        yield open_page
        chromium.close()
    assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1500])
def test_pages_fit_their_window_and_follow_the_scheme(
    url: str, open_page: Open, screenshots: Path, width: int, scheme: str
) -> None:
    for path in ("/", "/pipelines/orders"):
        page = open_page(url + path, width, scheme)
        assert page.evaluate(SIDEWAYS) is False
        red, *_ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)")
        assert (int(red) < 64) == (scheme == "dark")
        if path != "/":
            assert page.get_by_text("<script>alert('note')</script>").first.is_visible()
        if (width, scheme, path) == (1500, "light", "/"):
            page.screenshot(path=screenshots / "fleet.png")
        page.context.close()


def test_a_pipeline_is_found_and_opened_without_javascript(url: str, open_page: Open) -> None:
    page = open_page(url, java_script_enabled=False)
    names = page.locator("td.name")
    assert names.count() == PIPELINES
    assert names.first.inner_text() == "orders"
    page.get_by_role("searchbox").fill("kafka-3")
    page.get_by_role("button", name="Search").click()
    assert names.all_inner_texts() == ["returns"]
    page.get_by_role("link", name="1 paused").click()
    assert names.count() == 0
    page.goto(url)
    page.get_by_role("link", name="1 paused").click()
    page.get_by_role("link", name="clicks").click()
    assert page.get_by_text("hudi-ingest resume clicks").first.is_visible()
    assert page.get_by_role("row").count() > 10
    page.context.close()


def test_a_page_loads_itself_anew(url: str, open_page: Open) -> None:
    page = open_page(url)
    seen = page.locator(".seen")
    before = seen.inner_text()
    page.wait_for_function("text => document.querySelector('.seen').innerText !== text", arg=before)
    assert page.locator("td.name").count() == PIPELINES
    page.context.close()


def test_without_a_token_there_is_no_page(url: str, open_page: Open) -> None:
    page = open_page(url)
    answer = page.request.get(url, headers={"Authorization": "Basic bWU6d3Jvbmc="})
    assert answer.status == 401
    page.context.close()
