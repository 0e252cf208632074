"""Ctrl-C and its like while a demo stops what it has started."""

from __future__ import annotations

import os
import signal

import pytest

from hudi_ingest.cli.interrupts import one_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_interruption_counts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with one_interrupt():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), again)
    assert signal.getsignal(number) is before


def test_the_stopping_after_a_good_end_is_not_interrupted() -> None:
    with one_interrupt() as ignore_further:
        ignore_further()
        os.kill(os.getpid(), signal.SIGTERM)
