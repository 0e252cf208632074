"""Pipelines in a code location of somebody else's: the location's executor, IO manager and resources stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    Executor,
    Failure,
    GraphDefinition,
    InitExecutorContext,
    IOManager,
    ResourceDefinition,
    asset,
    build_init_resource_context,
    build_input_context,
    build_output_context,
    executor,
    job,
    mem_io_manager,
    multiple_process_executor_requirements,
    multiprocess_executor,
    op,
)
from dagster._core.events import RunFailureReason
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.test_utils import instance_for_test

import hudi_ingest
from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import PIPELINES_VARIABLE
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.jobs.resources import (
    InstanceStorageIOManager,
    require_ledger_of_begin,
    require_ledger_of_sensor,
)
from hudi_ingest.orchestration.jobs.run_config import run_request
from hudi_ingest.pipeline.folder import load_folder
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.transactions import transaction_job


@executor(name="containers", requirements=multiple_process_executor_requirements())
def containers(context: InitExecutorContext) -> Executor:
    """Like those of dagster-k8s and dagster-docker, which run each step in a container of its own."""
    raise NotImplementedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines"
    found.mkdir()
    for name in ("orders", "clicks"):
        settings = document(name=name, table__base_path=str(tmp_path / name))
        (found / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    return found


def teams_own() -> Definitions:
    """What a team may have by now, with the names that are taken most often."""

    @asset
    def report() -> int:
        return 1

    @op(required_resource_keys={"pyspark", "ledger"})
    def count() -> None: ...

    @job(executor_def=multiprocess_executor)
    def nightly() -> None:
        count()

    resources = {name: ResourceDefinition.hardcoded_resource(name) for name in ("pyspark", "ledger")}
    return Definitions(
        assets=[report], jobs=[nightly], executor=containers, resources={**resources, "io_manager": mem_io_manager}
    )


def test_d1_merged_definitions_keep_the_teams_executor_io_manager_and_resources(folder: Path) -> None:
    merged = Definitions.merge(hudi_ingest.ingest_definitions(folder), teams_own())
    executors = {each.name: each.executor_def.name for each in merged.resolve_all_job_defs()}
    assert executors.pop("nightly") == "multiprocess"
    assert len(executors) == 1 + 7, "of transactions, and those that they share"
    assert set(executors.values()) == {"containers"}
    assert (merged.resources or {})["io_manager"] is mem_io_manager
    job_ = transaction_job(merged, "orders")
    assert job_.resource_defs["io_manager"] is mem_io_manager
    assert merged.resolve_asset_graph().has(AssetKey(["report"]))
    sensors = {each.name for each in merged.sensors or ()}
    kinds = sorted(name.rpartition("_")[0] for name in sensors)
    assert kinds == ["hudi_ingest_coordinator", "hudi_ingest_overview"], (
        "of this folder, which another may be merged with"
    )


def test_d1_results_may_go_to_another_io_manager_than_the_locations(folder: Path) -> None:
    tables_only = Definitions(resources={"io_manager": Refuses(), "results": mem_io_manager})
    merged = Definitions.merge(tables_only, ingest_definitions(folder, io_manager_key="results"))
    graph = transaction_job(merged, "orders").graph.node_dict["orders"].definition
    assert isinstance(graph, GraphDefinition)
    keys = {
        output.io_manager_key for name in ("begin", "write") for output in graph.node_dict[name].definition.output_defs
    }
    assert keys == {"results"}


class Refuses(IOManager):
    def handle_output(self, context: object, obj: object) -> None:
        raise AssertionError(obj)

    def load_input(self, context: object) -> None:
        raise AssertionError(context)


def test_d1_two_folders_fit_into_one_location(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    settings = document(name="views", table__base_path=str(tmp_path / "views"))
    (other / "views.yaml").write_text(
        yaml.safe_dump({**settings, "source": {**settings["source"], "topics": ["views"]}})
    )
    (other / "broken.yaml").write_text("name: broken")
    monkeypatch.setenv(PIPELINES_VARIABLE, str(folder))
    merged = Definitions.merge(ingest_definitions(), ingest_definitions(str(other)))
    assert all(transaction_job(merged, name) for name in ("orders", "views"))
    assert merged.resolve_asset_graph().has(AssetKey(["broken"])), "a file that cannot be loaded says why"
    assert "broken.yaml is not loaded, so its pipeline ingests nothing" in caplog.text, "in the log of a pod, too"
    with pytest.raises(ConfigError, match="create it, or name another one"):
        ingest_definitions(tmp_path / "nowhere")


@pytest.mark.parametrize("own", [True, False])
def test_p5_the_instances_run_retries_leave_transactions_to_the_sensor(folder: Path, own: bool) -> None:
    pipeline, plan = load_folder(folder, {}).pipelines[-1], IngestPlan("orders", "orders-000001-ab", 1, (), {})
    request = run_request(pipeline, plan, "here")
    with instance_for_test(overrides={"run_retries": {"enabled": True, "max_retries": 3}}) as instance:
        failed = DagsterRun("__ASSET_JOB", status=DagsterRunStatus.FAILURE, tags=request.tags if own else {})
        instance.add_run(failed)
        assert auto_reexecution_should_retry_run(instance, failed, RunFailureReason.STEP_FAILURE) is not own


@pytest.mark.tier(2)
@pytest.mark.parametrize(
    ("module", "name"), [("dagster_k8s", "k8s_job_executor"), ("dagster_docker", "docker_executor")]
)
def test_d1_executors_of_dagsters_own_libraries(folder: Path, module: str, name: str) -> None:
    chosen = getattr(pytest.importorskip(module), name)
    merged = Definitions.merge(ingest_definitions(folder), Definitions(executor=chosen))
    assert transaction_job(merged, "orders").executor_def is chosen


def test_an_op_on_another_host_says_that_it_cannot_read_what_its_predecessor_left(tmp_path: Path) -> None:
    with (
        DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance,
        build_init_resource_context(instance=instance) as context,
        build_output_context(run_id="r", step_key="orders.begin", name="transaction") as output,
        build_input_context(upstream_output=output) as wanted,
    ):
        manager = InstanceStorageIOManager().create_io_manager(context)
        with pytest.raises(Failure, match=r"not on host .* give the code location an IO manager") as refused:
            manager.load_input(wanted)
        assert not refused.value.allow_retries
        manager.handle_output(output, {"instant": "1"})
        assert manager.load_input(wanted) == {"instant": "1"}


def test_ops_with_a_ledger_of_their_own_say_what_to_set(tmp_path: Path) -> None:
    with (
        Ledger.open(f"sqlite:///{tmp_path / 'run.db'}") as begun,
        Ledger.open(f"sqlite:///{tmp_path / 'step.db'}") as other,
    ):
        with pytest.raises(
            ConfigError, match=r"opened transaction orders-1 in the ledger .*run\.db on .*Set HUDI_INGEST_LEDGER_URL"
        ):
            require_ledger_of_begin(other, "orders-1", begun.place)
        with pytest.raises(ConfigError, match=r"sensor of pipeline orders has the ledger .*run\.db on .* no tick"):
            require_ledger_of_sensor(other, "orders", begun.place)
        # A ledger that was wiped, and transactions of an earlier release.
        for place in (other.place, ""):
            require_ledger_of_begin(other, "orders-1", place)
            require_ledger_of_sensor(other, "orders", place)
