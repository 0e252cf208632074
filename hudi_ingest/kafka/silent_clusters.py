"""Which clusters accept no connections: of the ticks of many pipelines only one at a time waits for such a cluster.

Ticks share a few threads. If each waited for a cluster that is away, those of other clusters would come minutes late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.cluster import KafkaCluster, kept_cluster
from hudi_ingest.pipeline.sections.source import KafkaSource

_ASK_AGAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Silence:
    """What the last one to ask was told, and until when nobody else asks."""

    text: str
    until: float


_silent: dict[tuple[Any, ...], _Silence] = {}
"""By the settings of clients. Lost with the process."""
_lock = threading.Lock()


@contextmanager
def answering_cluster(source: KafkaSource) -> Iterator[KafkaCluster]:
    """As `kept_cluster`; but if no broker accepted a connection a moment ago, or another thread is trying again, this raises
    the same KafkaUnreachable at once."""
    settings = settings_of(source)
    _require_turn(settings, source)
    with kept_cluster(source) as cluster:
        try:
            yield cluster
        finally:
            silence = cluster.silence
            with _lock:
                if not silence:
                    _silent.pop(settings, None)
                else:
                    _silent[settings] = _Silence(silence, time.monotonic() + _ASK_AGAIN_SECONDS)


def _require_turn(settings: tuple[Any, ...], source: KafkaSource) -> None:
    now = time.monotonic()
    with _lock:
        silence = _silent.get(settings)
        if silence is None:
            return
        if silence.until <= now:
            # The others wait no longer than this one's question may take.
            _silent[settings] = _Silence(silence.text, now + source.request_timeout_seconds + _ASK_AGAIN_SECONDS)
            return
    raise KafkaUnreachable(silence.text, servers=source.bootstrap_servers)
