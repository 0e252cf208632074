"""Ctrl-C and its like while a demo stops what it has started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hudi_ingest.cli import demo
from hudi_ingest.home.folder import Home
from hudi_ingest.local.progress import one_interrupt
from hudi_ingest.local.stack import StackSettings

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """As in a terminal, however the tests were started: nohup, for example, leaves signals ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_only_the_first_interruption_counts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with one_interrupt():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for again in NUMBERS:
            signal.raise_signal(again)
    assert signal.getsignal(number) is before


def test_the_stopping_after_a_good_end_is_not_interrupted() -> None:
    with one_interrupt() as ignore_further:
        ignore_further()
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with one_interrupt():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", NUMBERS)
def test_a_demo_that_is_interrupted_twice_stops_what_it_has_started(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def bring_up(*_: object) -> None:
        calls.append("up")
        signal.raise_signal(number)

    def bring_down(*_: object) -> None:
        if "up" in calls:
            signal.raise_signal(number)
        calls.append("down")

    monkeypatch.setattr(demo, "bring_up", bring_up)
    monkeypatch.setattr(demo, "bring_down", bring_down)
    with pytest.raises(KeyboardInterrupt):
        demo.run_once(Home(tmp_path, tmp_path, "sqlite://"), StackSettings(), print)
    assert calls == ["down", "up", "down"], "what an earlier one left, then its own"
