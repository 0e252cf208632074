"""Ticks of many pipelines do not all wait for a cluster that is away."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from hudi_ingest.exceptions import KafkaUnreachable, TopicMissing
from hudi_ingest.kafka import admin_clients
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.shared_clusters import answering_cluster
from hudi_ingest.local.processes import free_port
from hudi_ingest.pipeline.sections.source import KafkaSource


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> KafkaSource:
    monkeypatch.setattr(admin_clients, "_by_process", {})
    return KafkaSource(bootstrap_servers=f"127.0.0.1:{free_port()}", topics=("a",), request_timeout_seconds=1)


def ask(source: KafkaSource) -> str:
    with pytest.raises(KafkaUnreachable) as raised, answering_cluster(source) as cluster:
        cluster.topics()
    return str(raised.value)


def its_time_is_over() -> None:
    silent = admin_clients.clients_of_this_process()._silent
    ((settings, silence),) = silent.items()
    silent[settings] = replace(silence, until=0.0)


def without_times(text: str) -> str:
    """librdkafka says after how many milliseconds a connection failed, in which state, and how often before."""
    return re.sub(r"after \d+ms( in state \w+)?(, \d+ identical error\(s\) suppressed)?", "", text)


def test_one_tick_waits_for_a_cluster_that_is_away_and_the_others_are_told(
    away: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    real = KafkaCluster.topics

    def count(self: KafkaCluster) -> object:
        asked.append(threading.current_thread().name)
        return real(self)

    monkeypatch.setattr(KafkaCluster, "topics", count)
    assert "describe topic a" in ask(away)
    other = away.model_copy(update={"topics": ("b",)})
    told = ask(other)
    assert "could not connect at Kafka" in told and "Connection refused" in told
    assert len(asked) == 1
    # One asks again, and while it does, the others are told as before.
    its_time_is_over()
    with answering_cluster(away) as cluster:
        assert without_times(ask(other)) == without_times(told)
        with pytest.raises(KafkaUnreachable):
            cluster.topics()
    assert len(asked) == 2
    assert without_times(ask(other)) == without_times(told)


def test_a_cluster_that_answers_is_asked_by_all(away: KafkaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the answer is an error, and after it was away."""
    ask(away)
    its_time_is_over()
    with pytest.raises(TopicMissing), answering_cluster(away):
        raise TopicMissing("topic a is not on the broker")
    assert not admin_clients.clients_of_this_process()._silent
