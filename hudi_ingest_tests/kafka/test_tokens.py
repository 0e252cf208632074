"""SASL OAUTHBEARER on a real broker: tokens from a function and from an identity provider, in every kind of client."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.kafka.admin_clients import kept_clients
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.range_reader import read_ranges
from hudi_ingest.kafka.records import first_times
from hudi_ingest.local.processes import wait_until
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.identity_provider import CLIENT, CLIENT_SECRET, identity_provider, times_asked
from hudi_ingest_tests.support.secured_broker import SecuredBroker

pytestmark = pytest.mark.kafka

SECONDS = 20
"""A client waits so long for an answer."""
FUNCTION = "hudi_ingest_tests.support.identity_provider:token"


def pipeline_with(secured: SecuredBroker, ground: Ground, oauth: dict[str, Any], seconds: float = SECONDS) -> Pipeline:
    source = secured.source("TOKEN", oauth=oauth)
    # Of a consumer only: an admin client ignores it.
    kafka = {"fetch.min.bytes": 2, "client.rack": "eu-1a"}
    return make_pipeline(ground, source={**source, "kafka": kafka, "request_timeout_seconds": seconds})


def rows_read(pipeline: Pipeline, ground: Ground, count: int) -> int:
    """By the reader of Spark's workers."""
    with closing(read_ranges(pipeline.source, pipeline.group_id, [Slice(ground.name, 0, 0, count)])) as batches:
        return sum(batch.num_rows for _, batch in batches)


def test_a_function_and_a_provider_let_every_client_in(
    secured: SecuredBroker, secured_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    secured_ground.send_rows(0, 3)
    refusals = secured.refusals
    log = secured_ground.home.root / "asked"
    with identity_provider() as (url, forms):
        provider = {"token_url": url, "client_id": CLIENT, "client_secret": CLIENT_SECRET, "scope": "kafka"}
        for oauth in ({"token_function": FUNCTION, "options": {"log": str(log)}}, provider):
            pipeline = pipeline_with(secured, secured_ground, oauth)
            assert observe(pipeline).lag.total == 3
            assert rows_read(pipeline, secured_ground, 3) == 3
            slices = [Slice(secured_ground.name, 0, 0, 3)]
            assert len(first_times(pipeline.source, pipeline.group_id, slices)) == 1
    assert times_asked(log) >= 3
    assert all(form == {"grant_type": ["client_credentials"], "scope": ["kafka"]} for form in forms)
    assert len(forms) >= 3
    assert "fetch.min.bytes" not in caplog.text
    assert secured.refusals == refusals


def test_a_client_whose_token_expires_before_it_gets_the_next_one_recovers(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    """librdkafka asks for the next token when four fifths of one's life are over, and the function takes longer than the rest."""
    log = secured_ground.home.root / "asked"
    with identity_provider(seconds=4) as (url, forms), ExitStack() as stack:
        by_function = {"token_function": FUNCTION, "options": {"log": str(log), "seconds": "4", "takes": "2"}}
        by_provider = {"token_url": url, "client_id": CLIENT, "client_secret": CLIENT_SECRET}
        clusters = []
        for oauth in (by_function, by_provider):
            source = pipeline_with(secured, secured_ground, oauth).source
            clusters.append(KafkaCluster(source, stack.enter_context(kept_clients(source))))
            assert list(clusters[-1].topics()) == [secured_ground.name]

        def have_new_tokens_and_answer() -> bool:
            if times_asked(log) < 2 or len(forms) < 2:
                return False
            try:
                return [list(cluster.topics()) for cluster in clusters] == [[secured_ground.name]] * 2
            except (KafkaRefused, KafkaUnreachable):
                return False  # the broker has just cut off the connection whose token expired

        wait_until(have_new_tokens_and_answer, what="both clients answer with their second tokens", timeout_seconds=300)


def test_a_refused_token_function_says_so_once_and_shows_no_secret(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    log, secret = secured_ground.home.root / "asked", secured_ground.home.root / "word"
    secret.write_text("hunter2\n")
    options = {"log": str(log), "secret": f"${{file:{secret}}}"}
    pipeline = pipeline_with(secured, secured_ground, {"token_function": FUNCTION, "options": options})
    began = time.monotonic()
    for read in (lambda: observe(pipeline), lambda: rows_read(pipeline, secured_ground, 1)):
        with pytest.raises(KafkaRefused, match="PermissionError") as raised:
            read()
        assert "source.security.oauth" in str(raised.value)
        assert "hunter2" not in str(raised.value)
    assert time.monotonic() - began < 3 * SECONDS
    secret.write_text("open\n")
    assert observe(pipeline).lag.total == 0, "the same pipeline object, as in a code server that is not reloaded"


def test_a_provider_that_refuses_the_client_is_told(secured: SecuredBroker, secured_ground: Ground) -> None:
    with identity_provider() as (url, _):
        oauth = {"token_url": url, "client_id": CLIENT, "client_secret": "hunter2"}
        with pytest.raises(KafkaRefused, match="returned no token") as raised:
            observe(pipeline_with(secured, secured_ground, oauth, seconds=5))
    assert url in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_token_that_has_expired_is_refused(secured: SecuredBroker, secured_ground: Ground, tmp_path: Path) -> None:
    oauth = {"token_function": FUNCTION, "options": {"log": str(tmp_path / "asked"), "seconds": "-5"}}
    with pytest.raises(KafkaRefused, match=r"returned a token that expired \d+ s ago"):
        observe(pipeline_with(secured, secured_ground, oauth))
