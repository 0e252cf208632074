"""Real services for the tests: one broker and one Spark a session, a topic and a table of its own for each test.

Each worker of `make test` is a session with services of its own. support/tiers.py says which tests run in `make test`, and in which order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hudi_ingest import faults
from hudi_ingest.home.folder import Home
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.java import QUICK, QUICK_SPARK, ROOM, java_options
from hudi_ingest_tests.support.registry import Registry, running_registry
from hudi_ingest_tests.support.secured_broker import SecuredBroker, secured_broker


@pytest.fixture(scope="session", autouse=True)
def fault_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set before any JVM starts, because Spark's workers have its environment."""
    folder = tmp_path_factory.mktemp("faults")
    os.environ[faults.VARIABLE] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def quick_spark() -> None:
    """Every Spark that the tests start has a JVM that is soon at work: none lives long enough to gain by more."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {QUICK_SPARK} {ROOM}".strip()


@pytest.fixture
def fault(fault_folder: Path) -> Iterator[Fault]:
    """Arms fault points; none is left armed."""
    yield Fault(fault_folder)
    for left in fault_folder.iterdir():
        left.unlink()


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka broker of this session's own."""
    settings = BrokerSettings(tmp_path_factory.mktemp("kafka"), free_port(), free_port())
    with java_options(QUICK):
        record = start_broker(settings, lambda line: None)
    yield settings.bootstrap
    stop([record])


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A second broker, which asks for logins and certificates."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture
def secured_ground(secured: SecuredBroker, tmp_path: Path) -> Iterator[Ground]:
    """As `ground`, on the secured broker, with its topic; what the test itself does there it does in plain text."""
    with fresh_ground(secured.bootstrap, tmp_path) as found:
        create_topic(secured.bootstrap, found.name, 2)
        yield found


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry of this session's own; each test has its own topics and thus its own subjects there."""
    with running_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home without an engine, so that transactions use this process's own Spark session."""
    root = tmp_path_factory.mktemp("home")
    return Home(root=root, pipelines=root / "pipelines", ledger_url=f"sqlite:///{root / 'ledger.db'}")


@pytest.fixture
def ground(bootstrap_servers: str, spark_home: Home, tmp_path: Path) -> Iterator[Ground]:
    """A topic, a pipeline file and a ledger that no other test shares."""
    with fresh_ground(bootstrap_servers, tmp_path) as found:
        yield found


@pytest.fixture
def known_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first begin of this process looks after the metadata table, as does the eleventh, and the sixteenth commit cleans, whatever the
    pipeline's name is."""
    monkeypatch.setattr(TransactionPlan, "turn", property(lambda plan: plan.sequence + 4))


@pytest.fixture
def topic(ground: Ground) -> str:
    """The ground's topic, with two partitions."""
    create_topic(ground.bootstrap_servers, ground.name, 2)
    return ground.name


@pytest.fixture
def pipeline(ground: Ground, topic: str) -> Pipeline:
    """A small pipeline from the ground's topic: id string, n long, dt string, partitioned by dt."""
    return load_pipeline(write_pipeline(ground))
