"""Whole transactions over logins and certificates, and that no secret is told on the way, by real Kafka, Spark and Dagster."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from dagster import DagsterInstance, RunRequest
from dagster._serdes import serialize_value

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.secured_broker import PASSWORD, SecuredBroker
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FUNCTION = "hudi_ingest_tests.support.identity_provider:token"
OTHER = "Quagga-another-8"
BOUND_SECONDS = 120.0


@pytest.fixture(autouse=True)
def environment(secured_ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    home = secured_ground.home
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(home.pipelines))
    monkeypatch.setenv(LEDGER_VARIABLE, home.ledger_url)


def own_user(secured: SecuredBroker, ground: Ground) -> dict[str, Any]:
    """`source` with a login whose password a test may change."""
    user = f"u{ground.name}"
    secured.set_password(user, PASSWORD)
    return secured.source("LOGIN", username=user)


@pytest.mark.tier(1)
@pytest.mark.parametrize(
    ("listener", "security"),
    [
        ("SSL", {}),
        ("LOGIN", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("TOKEN", {"oauth": {"token_function": FUNCTION, "options": {"log": "/dev/null"}}}),
        ("PLAINLOGIN", {"sasl_mechanism": "PLAIN"}),
        ("MUTUAL", {"certificate_file": "client", "key_file": "client"}),
    ],
)
def test_p1_p2_s8_one_pipeline_file_lets_both_clients_in_and_every_record_arrives_once(
    secured: SecuredBroker, secured_ground: Ground, listener: str, security: dict[str, Any]
) -> None:
    if listener == "MUTUAL":
        security = {"certificate_file": str(secured.client.certificate), "key_file": str(secured.client.key)}
    pipeline = make_pipeline(secured_ground, source=secured.source(listener, **security))
    before = secured.refusals
    secured_ground.send_rows(0, 50)
    secured_ground.send_rows(1, 20)
    assert secured_ground.run(pipeline).warnings == (), "the consumer group was told too"
    assert verify(secured_ground.base_path, secured_ground.produced).exact
    assert secured.refusals == before


def test_p6_a_password_that_is_changed_between_plan_and_write_refuses_the_transaction_in_one_sentence(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    secured_ground.send_rows(0, 5)
    pipeline = make_pipeline(secured_ground, source=own_user(secured, secured_ground))
    plan = secured_ground.plan(pipeline)
    protocol = secured_ground.protocol(pipeline)
    transaction = protocol.begin(plan, Owner.this_process(), lambda run_id: None)
    secured.set_password(f"u{secured_ground.name}", OTHER)
    before = secured.refusals
    began = time.monotonic()
    with pytest.raises(KafkaRefused) as raised:
        protocol.write(transaction, plan.slices)
    seconds = time.monotonic() - began
    protocol.abort(transaction, str(raised.value))
    told = str(raised.value)
    assert f"does not accept user u{secured_ground.name} with this password" in told
    assert f"{secured_ground.name}:0" in told
    assert "\n" not in told
    assert seconds < BOUND_SECONDS
    assert secured.refusals - before <= 10
    assert secured_ground.data_files() == []
    assert_no_secret(shown_by_ledger(secured_ground), told, traceback_of(raised.value))
    secured.set_password(f"u{secured_ground.name}", PASSWORD)
    secured_ground.run(pipeline)
    assert verify(secured_ground.base_path, secured_ground.produced).exact


def test_p6_a_certificate_that_expires_between_plan_and_write(secured: SecuredBroker, secured_ground: Ground) -> None:
    secured_ground.send_rows(0, 5)
    plan = secured_ground.plan(make_pipeline(secured_ground, source=secured.source("SSL")))
    pipeline = make_pipeline(secured_ground, source=secured.source("EXPIRED"))
    began = time.monotonic()
    with pytest.raises(KafkaRefused, match="may have an expired certificate"):
        secured_ground.run(pipeline, plan)
    assert time.monotonic() - began < BOUND_SECONDS
    assert secured_ground.ledger.transactions.history(pipeline.name)[0].state is TransactionState.ABORTED


def test_a_port_of_another_protocol_ends_the_write_in_bounded_time(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    secured_ground.send_rows(0, 5)
    plan = secured_ground.plan(make_pipeline(secured_ground, source=secured.source("SSL")))
    plain = {"bootstrap_servers": secured.listeners["SSL"], "request_timeout_seconds": 5}
    began = time.monotonic()
    with pytest.raises(KafkaUnreachable, match=r"could not read .*source\.security\.protocol does not match the port"):
        secured_ground.run(make_pipeline(secured_ground, source=plain), plan)
    assert time.monotonic() - began < BOUND_SECONDS


def launch(pipeline: Pipeline, instance: DagsterInstance, planned: bool, before: Callable[[], None]) -> str:
    """Executes in this process what the sensor requests, or what the Launchpad does without config; `before` it begins.
    Gives all that Dagster kept of the run."""
    from hudi_ingest.orchestration.definitions import build_definitions
    from hudi_ingest_tests.support.ticks import tick

    request = tick(pipeline, instance, datetime.now(timezone.utc)) if planned else RunRequest()
    assert isinstance(request, RunRequest), request
    before()
    job = transaction_job(build_definitions([pipeline]), pipeline.name)
    result = job.execute_in_process(
        run_config=request.run_config, tags=request.tags, instance=instance, raise_on_error=False
    )
    assert not result.success
    events = [repr(each) + serialize_value(each) for each in instance.all_logs(result.run_id)]
    run = instance.get_run_by_id(result.run_id)
    return "\n".join([*events, repr(run), repr(request)])


@pytest.mark.parametrize("planned", [True, False], ids=["refused in the tasks", "refused in the plan"])
def test_no_secret_is_in_what_dagster_spark_and_the_ledger_keep_of_a_refused_login(
    secured: SecuredBroker,
    secured_ground: Ground,
    planned: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    secured_ground.send_rows(0, 5)
    pipeline = make_pipeline(secured_ground, source=own_user(secured, secured_ground), transaction={"retries": 1})
    with DagsterInstance.ephemeral() as instance:
        kept = launch(pipeline, instance, planned, lambda: secured.set_password(f"u{secured_ground.name}", OTHER))
    assert "KafkaRefused" in kept
    assert "does not accept user" in kept
    assert ("in read_ranges" in kept) == planned, "the events hold the task's traceback too"
    assert "STEP_UP_FOR_RETRY" not in kept
    assert_no_secret(
        kept,
        shown_by_ledger(secured_ground),
        shown_by_spark(secured_ground),
        caplog.text,
        *capfd.readouterr(),
        repr(pipeline),
        secured.settings.log.read_text(),
    )


def shown_by_ledger(ground: Ground) -> str:
    """The database itself, as text."""
    return (ground.home.root / "ledger.db").read_bytes().decode("latin-1")


def shown_by_spark(ground: Ground) -> str:
    """What Spark's UI and event log show: the settings, the plans of all queries, the jobs."""
    session: Any = current_session(ground.home)
    context = session.sparkContext
    store = context._jsc.sc().statusStore()
    environment = store.environmentInfo()
    queries = session._jsparkSession.sharedState().statusStore().executionsList()
    shown = [str(context.getConf().getAll()), environment.sparkProperties().mkString()]
    for index in range(queries.size()):
        query = queries.apply(index)
        shown += [
            query.physicalPlanDescription(),
            query.description(),
            query.details(),
            query.modifiedConfigs().toString(),
        ]
    jobs = store.jobsList(None)
    shown += [jobs.apply(index).description().toString() for index in range(jobs.size())]
    return "\n".join(shown)


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def assert_no_secret(*shown: str) -> None:
    for text in shown:
        for secret in (PASSWORD, PASSWORD.replace("\\", "\\\\").replace('"', '\\"'), OTHER, "hunter2"):
            at = text.find(secret)
            assert at < 0, text[max(0, at - 300) : at + 100]
