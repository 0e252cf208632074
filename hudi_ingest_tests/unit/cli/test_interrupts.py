"""Ctrl-C and its like while a demo stops what it has started."""

from __future__ import annotations

import signal

import pytest

from hudi_ingest.cli.interrupts import one_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_interruption_counts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with one_interrupt():
        with pytest.raises(KeyboardInterrupt):
            # os.kill may reach another thread, and this one learns of it later.
            signal.raise_signal(number)
        for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(again)
    assert signal.getsignal(number) is before


def test_the_stopping_after_a_good_end_is_not_interrupted() -> None:
    with one_interrupt() as ignore_further:
        ignore_further()
        signal.raise_signal(signal.SIGTERM)
