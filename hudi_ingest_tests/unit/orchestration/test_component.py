"""The component `hudi_ingest.KafkaToHudi`, in projects that are loaded as `dg` loads them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import (
    AssetKey,
    DagsterInstance,
    DefaultScheduleStatus,
    Definitions,
    GraphDefinition,
    TableMetadataValue,
    build_sensor_context,
    mem_io_manager,
)

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import ALERTS_VARIABLE
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.component import KafkaToHudi
from hudi_ingest_tests.support.dg_project import load_project, make_project
from hudi_ingest_tests.support.pipeline_files import SECRET, document, load_pipelines, with_security
from hudi_ingest_tests.support.transactions import transaction_job

REPOSITORY = Path(__file__).parent.parent.parent.parent


def attributes(name: str = "orders", **changes: Any) -> dict[str, Any]:
    return document(**{"name": name, "table__base_path": f"/data/{name}", **changes})


def test_d1_a_few_lines_make_the_asset_its_checks_jobs_sensor_and_schedules(tmp_path: Path) -> None:
    definitions = load_project(make_project(tmp_path, orders=attributes()))
    repository = definitions.get_repository_def()
    assert {
        "hudi_ingest_sweep_components",
        "hudi_ingest_services_components",
    } <= set(repository.job_names)
    assert {each.name for each in repository.sensor_defs} == {
        "orders_coordinator",
        "hudi_ingest_overview_components",
    }
    assert {each.name for each in repository.schedule_defs} == {
        "hudi_ingest_sweep_daily_components",
        "hudi_ingest_services_daily_components",
        "hudi_ingest_housekeeping_hourly_components",
    }
    graph = definitions.resolve_asset_graph()
    assert graph.get(AssetKey(["orders"])).kinds == {"kafka", "hudi", "spark"}
    assert graph.get(AssetKey(["kafka", "orders_topic"])).kinds == {"kafka"}
    assert "accounting_holds" in {key.name for key in graph.asset_check_keys}
    assert definitions.executor is None, "the project's own"
    job = transaction_job(definitions, "orders")
    assert job.executor_def.name == "multi_or_in_process_executor", "Dagster's default, as the project names none"


def test_d1_a_location_may_merge_a_folder_of_pipelines_with_a_projects_components(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "clicks.yaml").write_text(yaml.safe_dump(attributes("clicks", source__topics=["clicks"])))
    components = load_project(make_project(tmp_path / "project", orders=attributes()))
    repository = Definitions.merge(ingest_definitions(folder), components).get_repository_def()
    assert {"orders_coordinator", "clicks_coordinator"} <= {each.name for each in repository.sensor_defs}


def test_d1_pipelines_of_two_folders_may_read_one_topic_if_their_group_is_the_same(tmp_path: Path) -> None:
    parts = []
    for name in ("orders", "archive"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(attributes(name, asset__group="shop")))
        parts.append(ingest_definitions(folder))
    graph = Definitions.merge(*parts).resolve_asset_graph()
    assert graph.get(AssetKey(["kafka", "orders_topic"])).child_keys == {AssetKey(["archive"]), AssetKey(["orders"])}


def test_d1_a_keyed_table_also_has_a_schedule_that_compacts_when_due_and_a_check(tmp_path: Path) -> None:
    keyed = attributes(table__mode="upsert", table__key=["id"], enabled=True)
    repository = load_project(make_project(tmp_path, orders=keyed)).get_repository_def()
    schedules = {each.name: each.default_status for each in repository.schedule_defs}
    assert schedules["hudi_ingest_compaction_components"] is DefaultScheduleStatus.RUNNING
    assert "hudi_ingest_services_daily_components" not in schedules, "the other one merges its files"
    assert "compacted_in_time" in {key.name for key in repository.asset_graph.asset_check_keys}


def test_h3_nobody_has_to_turn_on_what_merges_the_small_files_of_an_enabled_pipeline(tmp_path: Path) -> None:
    repository = load_project(make_project(tmp_path, orders=attributes(enabled=True))).get_repository_def()
    schedules = {each.name: each.default_status for each in repository.schedule_defs}
    assert schedules["hudi_ingest_services_daily_components"] is DefaultScheduleStatus.RUNNING


def test_the_attributes_mean_what_a_pipeline_file_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    monkeypatch.setenv("PASSWORD", SECRET)
    monkeypatch.setenv("TABLES", "/tables")
    given = attributes(**with_security(password="${PASSWORD}"))
    given["source"]["bootstrap_servers"] = "${SERVERS}"
    given["table"]["base_path"] = "{{ env.TABLES }}/orders"
    given["source"]["starting_offsets"] = {"timestamp": "2026-01-31T00:00:00Z"}
    given["transforms"] = [{"cast": {"amount": "decimal(10,2)"}}]
    project = make_project(tmp_path, orders=given)
    spec = load_project(project).resolve_asset_graph().get(AssetKey(["orders"]))
    assert spec.metadata["dagster/uri"] == "/tables/orders"


def test_a_pipeline_file_beside_it_may_be_named_instead(tmp_path: Path) -> None:
    project = make_project(tmp_path, orders={"pipeline_file": "../orders.yaml", "io_manager_key": "results"})
    (project / "src" / "shop" / "defs" / "orders.yaml.txt").write_text("")
    beside = project / "src" / "shop" / "orders.yaml"
    beside.write_text(yaml.safe_dump(attributes("other")))
    place = project / "src" / "shop" / "defs" / "orders" / "defs.yaml"
    place.write_text(place.read_text().replace("../orders.yaml", "../../orders.yaml"))
    results = Definitions(resources={"results": mem_io_manager})
    definitions = Definitions.merge(results, load_project(project))
    assert definitions.resolve_asset_graph().has(AssetKey(["other"]))
    graph = transaction_job(definitions, "other").graph.node_dict["other"].definition
    assert isinstance(graph, GraphDefinition)
    assert {output.io_manager_key for output in graph.node_dict["begin"].definition.output_defs} == {"results"}


def test_two_pipelines_may_read_one_topic(tmp_path: Path) -> None:
    definitions = load_project(make_project(tmp_path, a=attributes("a"), b=attributes("b")))
    graph = definitions.resolve_asset_graph()
    topic = AssetKey(["kafka", "orders_topic"])
    assert graph.get(topic).child_keys == {AssetKey(["a"]), AssetKey(["b"])}
    assert graph.get(topic).group_name == "a"


def test_k9_components_share_one_overview_and_one_alerts_sensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "alerts.yaml"
    settings.write_text("webhooks: [{name: pager, url: 'http://127.0.0.1:9/'}]\n")
    monkeypatch.setenv(ALERTS_VARIABLE, str(settings))
    project = make_project(tmp_path, a=attributes("a"), b=attributes("b"))
    repository = load_project(project).get_repository_def()
    shared = {"hudi_ingest_alerts_components", "hudi_ingest_overview_components"}
    assert {each.name for each in repository.sensor_defs} == {"a_coordinator", "b_coordinator", *shared}
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        overview = repository.get_sensor_def("hudi_ingest_overview_components")
        overview(build_sensor_context(instance=instance))
        (record,) = instance.fetch_observations(AssetKey("hudi_ingest_overview_components"), limit=1).records
        assert record.asset_observation is not None
        table = record.asset_observation.metadata["pipelines"]
        assert isinstance(table, TableMetadataValue)
        assert {row.data["pipeline"] for row in table.records} == {"a", "b"}


def test_k9_a_location_may_have_components_and_a_folder_of_pipeline_files(tmp_path: Path) -> None:
    files = tmp_path / "pipelines"
    files.mkdir()
    (files / "other.yaml").write_text(yaml.safe_dump(attributes("other", source__topics=["other"])))
    components = load_project(make_project(tmp_path, orders=attributes()))
    repository = Definitions.merge(
        components, ingest_definitions(load_pipelines(files), housekeeping=False)
    ).get_repository_def()
    assert {"orders_coordinator", "other_coordinator"} <= {each.name for each in repository.sensor_defs}


def test_k1_a_template_named_by_pipeline_file_makes_all_its_pipelines_and_finds_topics(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, listed={"pipeline_file": "shop.yaml"}, found={"pipeline_file": "lake.yaml"}, a=attributes("a")
    )
    folder = project / "src" / "shop" / "defs"
    topics = {"source__topics": ["orders", "refunds"], "table__base_path": "/data/{topic}"}
    (folder / "listed" / "shop.yaml").write_text(yaml.safe_dump(attributes("shop_{topic}", **topics)))
    pattern = {"source__topics": None, "source__topics_pattern": r"lake\..+", "table__base_path": "/lake/{topic}"}
    (folder / "found" / "lake.yaml").write_text(yaml.safe_dump(attributes("lake_{topic}", **pattern)))
    definitions = load_project(project)
    assert {each.name for each in definitions.get_repository_def().sensor_defs} == {
        "a_coordinator",
        "shop_coordinators",
        "lake_topics",
        "hudi_ingest_overview_components",
    }
    graph = definitions.resolve_asset_graph()
    assert graph.get(AssetKey(["kafka", "orders_topic"])).child_keys == {AssetKey(["a"]), AssetKey(["shop_orders"])}


def test_two_components_with_one_table_are_refused(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, a=attributes("a", table__base_path="/data/t"), b=attributes("b", table__base_path="/data/t")
    )
    with pytest.raises(Exception, match="Error while building definitions for a") as unloaded:
        load_project(project)
    assert "both have the table.base_path /data/t" in str(unloaded.value.__cause__)


def test_every_problem_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    wrong = attributes(source__format="jsonn", transaction={"interval_secnds": 5})
    with pytest.raises(ConfigError) as raised:
        KafkaToHudi.from_attributes_dict(attributes=wrong)
    first, second = raised.value.problems
    assert first.startswith("source.format: found 'jsonn'")
    assert second.startswith("transaction.interval_secnds: unknown key; allowed:")
    with pytest.raises(Exception, match="Error while loading component orders") as unloaded:
        load_project(make_project(tmp_path, orders=attributes(source__format="bytes")))
    assert "defs.yaml: 1 problem\n  - source.format bytes: " in str(unloaded.value.__cause__)


def test_a_pipeline_file_stands_alone(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"pipeline_file cannot be combined with other keys; remove it, or remove name"
    ):
        KafkaToHudi.from_attributes_dict(attributes={"pipeline_file": "orders.yaml", "name": "orders"})


def test_dg_finds_the_component_by_its_entry_point() -> None:
    from dagster.components.core.package_entry import DG_PLUGIN_ENTRY_POINT_GROUP, get_package_objects_in_module

    text = (REPOSITORY / "setup.py").read_text()
    assert f'"{DG_PLUGIN_ENTRY_POINT_GROUP}": ["hudi_ingest=hudi_ingest"]' in text
    module = EntryPoint("hudi_ingest", "hudi_ingest", DG_PLUGIN_ENTRY_POINT_GROUP).load()
    assert ("KafkaToHudi", KafkaToHudi) in get_package_objects_in_module(module)


@pytest.mark.parametrize(
    "command",
    [
        ("dagster", "definitions", "validate", "-m", "shop.definitions"),
        pytest.param(
            ("dagster_dg_cli.cli", "check", "defs"),
            marks=pytest.mark.skipif(
                importlib.util.find_spec("dagster_dg_cli") is None, reason="dagster-dg-cli is not installed"
            ),
        ),
    ],
    ids=["dagster", "dg"],
)
def test_dagsters_own_commands_accept_the_project(tmp_path: Path, command: tuple[str, ...]) -> None:
    project = make_project(tmp_path, orders=attributes())
    path = os.pathsep.join([str(project / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "DAGSTER_HOME": str(tmp_path), "DAGSTER_DG_CLI_TELEMETRY": "0"}
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
