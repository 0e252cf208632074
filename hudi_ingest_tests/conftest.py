"""Real services for the tests: one broker and one Spark a session, a topic and a table of its own for each test.

Each worker of `make test` is a session with services of its own. support/tiers.py says which tests run where, and in which order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hudi_ingest import faults
from hudi_ingest.home.folder import Home
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support import tiers
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.java import QUICK, QUICK_SPARK, ROOM, java_options
from hudi_ingest_tests.support.registry import Registry, running_registry
from hudi_ingest_tests.support.secured_broker import SecuredBroker, secured_broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", type=int, choices=tiers.TIERS, help="run the tests of this tier only")
    parser.addoption(
        "--record-durations", action="store_true", help=f"keep how long files took, in {tiers.DURATIONS.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A run that fails must fail for what was changed, so it takes the examples of the last one unless new ones are asked for.

    Workers side by side make each other slow, so neither an example nor drawing one has a deadline: speed is for the benchmark.
    """
    new = "HUDI_INGEST_NEW_EXAMPLES" in os.environ
    settings.register_profile(
        "hudi_ingest",
        max_examples=tiers.examples(config.getoption("--tier"), new=new),
        derandomize=not new,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("hudi_ingest")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A tier's run imports no file without a test of it, unless that file is asked for by name."""
    tier = config.getoption("--tier")
    if tier is None or collection_path.suffix != ".py" or tiers.may_have(collection_path, tier):
        return None
    return not any(collection_path == Path(each.partition("::")[0]).resolve() for each in config.args) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that needs neither broker nor JVM is a fast one. The longest files come first."""
    config.stash[tiers.COLLECTED] = tiers.functions(items)
    for item in items:
        if not any(item.get_closest_marker(service) for service in ("kafka", "spark", "e2e")):
            item.add_marker(pytest.mark.fast)
    tier = config.getoption("--tier")
    if tier is not None:
        config.hook.pytest_deselected(items=[item for item in items if tiers.tier_of(item) != tier])
        items[:] = [item for item in items if tiers.tier_of(item) == tier]
    items[:] = tiers.in_order(items, tier)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the tests that are too long for `make test`, and keep the durations if asked to."""
    tier = config.getoption("--tier")
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    ]
    if tier == 1:
        for report in reports:
            if report.when == "call" and report.duration > tiers.SECONDS_IN_TIER_1:
                terminalreporter.write_line(
                    f"{report.duration:.0f} s, too long for tier 1 unless the machine was busy: {report.nodeid}"
                )
    if tier is not None and config.getoption("--record-durations"):
        tiers.record(tier, reports)


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
