"""Messages are read from memory only where their structures are known."""

from __future__ import annotations

import logging

import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.kafka import librdkafka


def test_another_librdkafka_is_refused_before_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    librdkafka.require_known_version()
    monkeypatch.setattr(librdkafka, "_version", lambda: 3 << 24)
    with pytest.raises(
        EnvironmentProblem, match=r"librdkafka 2 in memory\. Install the version that requirements\.txt"
    ):
        librdkafka.Consumer({}, lambda _: None, lambda _: None, logging.getLogger(__name__))
