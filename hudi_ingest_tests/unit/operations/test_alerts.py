"""Who is told of failing checks: once when they begin, once when they end, by webhook and by mail."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DefaultSensorStatus, SensorDefinition, build_sensor_context
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import ChannelFailed, ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.model.finding import State, answer
from hudi_ingest.operations.health.alerts import Announced, Incident, News, Told, channels, news_for
from hudi_ingest.orchestration.reports.alerts_sensor import alerts_definitions, tell
from hudi_ingest.orchestration.reports.checks import evaluation
from hudi_ingest.pipeline.code_location import AlertSettings, load_alert_settings
from hudi_ingest_tests.support import silent_server
from hudi_ingest_tests.support.http_server import Dripping, QuietHandler, serving
from hudi_ingest_tests.support.pipeline_files import Write, load

LATE = Incident(
    "orders", "up_to_date", "12 records waiting. See why the newest runs failed.", url="http://ui/assets/orders"
)
STOPPED = Incident("payments", "offsets_honoured", "payments:3 is stopped.")
SECRET = "hunter2-Zebra"

_incidents = st.lists(
    st.builds(Incident, st.sampled_from("abc"), st.sampled_from(("x", "y")), st.just("text")),
    unique_by=lambda incident: incident.key,
)


def known(told: Told) -> dict[str, tuple[str, ...]]:
    return {name: tuple(past.incident.key for past in of) for name, of in told.by_channel.items()}


@given(st.lists(_incidents))
def test_a_channel_that_is_told_all_news_knows_what_is_wrong(moments: list[list[Incident]]) -> None:
    told, known = Told({}), set[str]()
    for incidents in moments:
        news = news_for(told.of("chat"), incidents, 0)
        assert known.isdisjoint(incident.key for incident in news.began), "told once"
        known = (known | {incident.key for incident in news.began}) - {past.incident.key for past in news.ended}
        assert known == {incident.key for incident in incidents}
        told = Told.read(told.after("chat", incidents, 0).to_text())
        assert not news_for(told.of("chat"), incidents, 0)


def test_a_warning_that_becomes_a_failure_is_told_once_more() -> None:
    warning, told = replace(LATE, warning=True), Told({})
    heard = []
    for now, incident in enumerate((warning, warning, LATE, LATE, warning, LATE)):
        heard.append([news.warning for news in news_for(told.of("chat"), [incident], now).began])
        told = Told.read(told.after("chat", [incident], now).to_text())
    assert heard == [[True], [], [False], [], [], []]
    assert news_for(told.of("chat"), [], 9).ended == (Announced(LATE, 0),)
    assert news_for(Told({}).after("chat", [warning], 5).of("chat"), [], 9).ended == (Announced(warning, 5),)


def test_the_end_is_told_of_the_incident_that_was_told_with_its_text_link_and_duration() -> None:
    told = Told({}).after("chat", [LATE], 60)
    # The check goes on, and says something else each time.
    for now in (120, 180):
        told = Told.read(told.after("chat", [replace(LATE, text=f"{now} records waiting.")], now).to_text())
    news = news_for(told.of("chat"), [], 60 + 12 * 60)
    assert news.to_text() == f"orders/up_to_date is well again after 12 min. It said: {LATE.text}\n{LATE.url}"
    assert news.to_dict()["resolved"] == [{**LATE.to_dict(), "since": "1970-01-01T00:01:00+00:00", "seconds": 720}]
    long = Told.read(Told({}).after("chat", [replace(LATE, text="x" * 9000)], 0).to_text()).of("chat")
    assert len(long[0].incident.text) < 500, "the cursor stays small"


@pytest.mark.parametrize("cursor", [None, "", "{", "[]", '{"a": 1}', '{"a": ["orders/up_to_date"]}', '{"a": [{}]}'])
def test_a_damaged_cursor_tells_everything_again(cursor: str | None) -> None:
    assert news_for(Told.read(cursor).of("a"), [LATE], 0).began == (LATE,)


def test_a_channel_that_fails_is_tried_again_and_does_not_hold_up_the_others() -> None:
    heard: list[News] = []

    def broken(news: News) -> None:
        raise ChannelFailed("chat", "it answered HTTP 500")

    told, failures = tell(Told({"removed": (Announced(STOPPED, 0),)}), [LATE], {"chat": broken, "email": heard.append})
    assert "chat" in failures[0] and "HTTP 500" in failures[0]
    assert known(told) == {"email": (LATE.key,)}
    told, failures = tell(told, [LATE], {"chat": heard.append, "email": heard.append})
    assert not failures
    assert [news.began for news in heard] == [(LATE,), (LATE,)]


def test_channels_do_not_wait_for_each_other() -> None:
    both = threading.Barrier(2, timeout=300)

    def slow(news: News) -> None:
        both.wait()

    told, failures = tell(Told({}), [LATE], {"chat": slow, "pager": slow})
    assert not failures and known(told) == {"chat": (LATE.key,), "pager": (LATE.key,)}


def test_webhooks_get_what_failed_and_what_is_well_again(home: Callable[[str], Home]) -> None:
    with _http_server() as (url, posts):
        settings = load_alert_settings(
            home(f"webhooks: [{{name: pager, url: {url}/{SECRET}}}, {{name: chat, url: {url}/chat, format: slack}}]"),
            {},
        )
        reach = channels(settings)
        told, failures = tell(Told({}), [LATE, STOPPED], reach)
        told, more_failures = tell(told, [STOPPED], reach)
    assert not failures + more_failures
    pager = [content for path, content in posts if path.endswith(SECRET)]
    assert pager[0]["failing"] == [LATE.to_dict(), STOPPED.to_dict()]
    assert pager[1]["failing"] == []
    (resolved,) = pager[1]["resolved"]
    assert resolved.items() >= LATE.to_dict().items() and resolved["seconds"] < 600
    chat = [content for path, content in posts if path == "/chat"]
    assert [*chat[0]] == ["text"]
    assert "orders/up_to_date fails: 12 records waiting" in chat[0]["text"]
    assert "orders/up_to_date is well again after" in chat[1]["text"]


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_a_webhook_that_refuses_is_named_without_its_url(home: Callable[[str], Home], status: int) -> None:
    with _http_server(status) as (url, _):
        settings = load_alert_settings(home(f"webhooks: [{{name: pager, url: {url}/{SECRET}}}]"), {})
        with pytest.raises(ChannelFailed, match=f"pager.*HTTP {status}") as refused:
            channels(settings)["pager"](News((LATE,)))
    assert SECRET not in str(refused.value)
    with pytest.raises(ChannelFailed, match="cannot be reached"):
        channels(settings)["pager"](News((LATE,)))


class _Garbage(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"hello\r\n\r\n")


class _LongHeader(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n")


@pytest.mark.parametrize("handler", [_Garbage, _LongHeader, Dripping])
def test_a_webhook_that_answers_nonsense_costs_no_other_channel_anything(
    home: Callable[[str], Home], handler: type[socketserver.BaseRequestHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    Dripping.stopped.clear()
    with silent_server.serving(handler) as bad, _http_server() as (good, posts):
        settings = load_alert_settings(
            home(f"webhooks: [{{name: good, url: {good}}}, {{name: bad, url: 'http://{bad}/{SECRET}'}}]"), {}
        )
        told = Told({})
        # Only the first one has the good channel to tell.
        for seconds in (4.0, 0.2):
            monkeypatch.setattr("hudi_ingest.operations.health.alerts.DEADLINE_SECONDS", seconds)
            told, failures = tell(Told.read(told.to_text()), [LATE], channels(settings))
            assert len(failures) == 1 and "bad" in failures[0]
            assert SECRET not in failures[0]
        Dripping.stopped.set()
    assert len(posts) == 1
    assert known(told) == {"good": (LATE.key,)}


def test_an_unforeseen_error_of_one_channel_is_remembered_as_its_own() -> None:
    def broken(news: News) -> None:
        raise LookupError(SECRET)

    heard: list[News] = []
    told, failures = tell(Told({}), [LATE], {"chat": broken, "email": heard.append})
    assert failures == ["chat: unexpected LookupError"]
    assert known(told) == {"email": (LATE.key,)}


def test_a_record_cannot_call_a_channel_or_place_a_link(home: Callable[[str], Home]) -> None:
    incident = replace(LATE, text="run failed: <!channel> <http://evil|click here> & more")
    with _http_server() as (url, posts):
        settings = load_alert_settings(home(f"webhooks: [{{name: chat, url: {url}, format: slack}}]"), {})
        channels(settings)["chat"](News((incident,)))
    assert "&lt;!channel&gt; &lt;http://evil|click here&gt; &amp; more" in posts[0][1]["text"]
    assert "<" not in posts[0][1]["text"]


def test_mail_is_sent(home: Callable[[str], Home]) -> None:
    with _mail_server() as (port, lines):
        settings = load_alert_settings(
            home(
                f"email: {{to: [a@example.com, b@example.com], sender: ingest@example.com, host: 127.0.0.1, port: {port}, security: none}}"
            ),
            {},
        )
        channels(settings)["email"](News((LATE,), (Announced(STOPPED, 0),)))
    text = "\n".join(lines)
    assert "rcpt TO:<a@example.com>" in text and "rcpt TO:<b@example.com>" in text
    assert "Subject: hudi-ingest: 1 check failing, 1 well again" in text
    assert "orders/up_to_date fails" in text and "http://ui/assets/orders" in text


def test_settings_are_checked_and_hide_their_secrets(home: Callable[[str], Home]) -> None:
    assert load_alert_settings(home(""), {}) == AlertSettings()
    text = f"webhooks: [{{name: a, url: {SECRET}}}, {{name: a, url: {SECRET}}}]\nemail: {{to: []}}\n"
    with pytest.raises(ConfigError) as wrong:
        load_alert_settings(home(text), {})
    assert "name of its own" in str(wrong.value) and "sender" in str(wrong.value)
    assert SECRET not in str(wrong.value)


def test_the_sensor_tells_of_a_check_once_and_of_its_end(
    home: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    pipeline = load(write)
    late = answer("orders", "up_to_date", False, "12 records waiting.")
    with _http_server() as (url, posts), DagsterInstance.ephemeral() as instance:
        settings = f"ui_url: http://ui/\nwebhooks: [{{name: pager, url: {url}}}]"
        monkeypatch.setenv("HUDI_INGEST_ALERTS", str(home(settings).alerts_settings_file))
        (sensor,) = alerts_definitions([pipeline], []).sensors or ()
        assert isinstance(sensor, SensorDefinition)
        assert sensor.default_status is DefaultSensorStatus.RUNNING
        cursor = None
        for finding in (late, replace(late, text="13 records waiting."), replace(late, state=State.OK)):
            instance.report_runless_asset_event(evaluation(pipeline, finding))
            context = build_sensor_context(instance, cursor=cursor)
            sensor(context)
            cursor = context.cursor
    (began, ended) = (content for _, content in posts)
    assert began["failing"] == [
        {
            "pipeline": "orders",
            "check": "up_to_date",
            "severity": "error",
            "text": "12 records waiting.",
            "url": "http://ui/assets/orders?view=checks",
        }
    ]
    (resolved,) = ended["resolved"]
    assert resolved.items() >= began["failing"][0].items()


def test_without_channels_there_is_no_sensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUDI_INGEST_PIPELINES", str(tmp_path / "pipelines"))
    assert not alerts_definitions([], []).sensors


@pytest.fixture
def home(tmp_path: Path) -> Callable[[str], Home]:
    def with_alerts(text: str) -> Home:
        (tmp_path / "alerts.yaml").write_text(text)
        return Home(tmp_path / "home", tmp_path / "pipelines", "sqlite:///unused.db")

    return with_alerts


@contextmanager
def _http_server(status: int = 200) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    posts: list[tuple[str, Any]] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            posts.append((self.path, json.loads(self.body())))
            self.answer(status)

        def do_GET(self) -> None:
            self.answer(200)

        def end_headers(self) -> None:
            self.send_header("Location", "/login")
            super().end_headers()

    with serving(Handler) as url:
        yield url, posts


@contextmanager
def _mail_server() -> Iterator[tuple[int, list[str]]]:
    """A server that accepts one mail at a time and keeps what it is told."""
    lines: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            in_data = False
            self.wfile.write(b"220 ready\r\n")
            for line in self.rfile:
                text = line.decode().rstrip("\r\n")
                lines.append(text)
                if in_data:
                    in_data = text != "."
                    self.wfile.write(b"" if in_data else b"250 kept\r\n")
                elif text.upper() == "DATA":
                    in_data = True
                    self.wfile.write(b"354 go on\r\n")
                elif text.upper() == "QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], lines
        finally:
            server.shutdown()
