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
from hudi_ingest.orchestration.component_scaffolder import PipelineParams, pipeline_of
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest_tests.support.dg_project import load_project, make_project
from hudi_ingest_tests.support.pipeline_files import SECRET, document, load_pipelines, with_security
from hudi_ingest_tests.support.transactions import transaction_job

NEEDS_DG = pytest.mark.skipif(
    importlib.util.find_spec("dagster_dg_cli") is None, reason="dagster-dg-cli is not installed"
)
OURS = """
from dagster import AssetKey

from hudi_ingest import KafkaToHudi


class Ours(KafkaToHudi):
    def get_asset_spec(self, pipeline):
        spec = super().get_asset_spec(pipeline)
        return spec.replace_attributes(key=spec.key.with_prefix("ours"), deps=["prices"])
"""
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
        "hudi_ingest_coordinator_components",
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
    coordinators = [each.name for each in repository.sensor_defs if each.name.startswith(COORDINATOR)]
    assert len({*coordinators}) == 2
    assert f"{COORDINATOR}_components" in coordinators


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
    assert {each.name for each in repository.sensor_defs} == {"hudi_ingest_coordinator_components", *shared}
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
    assert {COORDINATOR, f"{COORDINATOR}_components"} <= {each.name for each in repository.sensor_defs}


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
        "hudi_ingest_coordinator_components",
        "hudi_ingest_overview_components",
    }
    graph = definitions.resolve_asset_graph()
    assert graph.get(AssetKey(["kafka", "orders_topic"])).child_keys == {AssetKey(["a"]), AssetKey(["shop_orders"])}


def test_a_translation_renames_a_tables_asset_and_adds_to_it(tmp_path: Path) -> None:
    translation = {
        "key_prefix": "lake",
        "deps": ["shop/prices"],
        "owners": ["team:shop"],
        "tags": {"tier": "gold"},
        "metadata": {"about": "{{ pipeline.name }} in {{ spec.metadata['dagster/uri'] }}"},
    }
    given = attributes(asset={"complete": "hourly"}, source__lateness_seconds=60)
    definitions = load_project(make_project(tmp_path, orders={**given, "translation": translation}))
    graph, key = definitions.resolve_asset_graph(), AssetKey(["lake", "orders"])
    table = graph.get(key)
    assert table.parent_keys == {AssetKey(["kafka", "orders_topic"]), AssetKey(["shop", "prices"])}
    assert table.child_keys == {AssetKey(["lake", "orders_hours"])}
    assert {"tier": "gold", "dagster/kind/hudi": ""}.items() <= table.tags.items()
    assert (table.owners, table.metadata["about"]) == (["team:shop"], "orders in /data/orders")
    assert "dagster/column_schema" in table.metadata
    assert {each.asset_key for each in graph.asset_check_keys} == {key}
    own = OwnDefinitions.of(definitions.get_repository_def())
    assert (own.pipelines, own.tables) == (("orders",), (key,))
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.graph.node_dict["orders"].definition.input_dict.keys() == {"topic_0", "topic_1"}


def test_a_subclass_changes_specs_without_a_fork(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, orders={**attributes(), "translation": {"group_name": "lake"}}, other=attributes("other")
    )
    (project / "src" / "shop" / "ours.py").write_text(OURS)
    place = project / "src" / "shop" / "defs" / "orders" / "defs.yaml"
    place.write_text(place.read_text().replace("hudi_ingest.KafkaToHudi", "shop.ours.Ours"))
    graph = load_project(project).resolve_asset_graph()
    table = graph.get(AssetKey(["ours", "orders"]))
    assert table.group_name == "lake"
    assert AssetKey(["prices"]) in table.parent_keys
    assert graph.has(AssetKey(["other"]))


def test_what_a_table_cannot_be_is_said_where_its_asset_would_be(tmp_path: Path) -> None:
    partitions = {"partitions_def": {"type": "daily", "start_date": "2026-01-01"}}
    project = make_project(tmp_path, orders={**attributes(), "translation": partitions})
    spec = load_project(project).resolve_asset_graph().get(AssetKey(["orders"]))
    assert spec.description is not None
    assert "the asset of a table cannot have partitions" in spec.description


def test_two_tables_with_one_asset_key_are_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path, a=attributes("a"), b={**attributes("b"), "translation": {"key": "a"}})
    with pytest.raises(Exception, match="Error while building definitions for a") as unloaded:
        load_project(project)
    assert "both have the asset key a; set another asset.key" in str(unloaded.value.__cause__)


@pytest.mark.tier(2)
@NEEDS_DG
def test_dg_scaffolds_a_component_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, orders=attributes())
    scaffold = ("scaffold", "defs", "hudi_ingest.KafkaToHudi", "shop-customers", "--topic", "customers")
    run(
        project,
        tmp_path,
        "dagster_dg_cli.cli",
        *scaffold,
        "--base-path",
        "/data/customers",
        "--key",
        "id",
        "--columns",
        "id long not null",
    )
    written = yaml.safe_load((project / "src" / "shop" / "defs" / "shop-customers" / "defs.yaml").read_text())
    assert written == {
        "type": "hudi_ingest.KafkaToHudi",
        "attributes": {
            "name": "shop_customers",
            "source": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": ["customers"], "format": "json"},
            "table": {"base_path": "/data/customers", "schema": "id long not null", "mode": "upsert", "key": ["id"]},
        },
    }
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "broker:9092")
    assert load_project(project).resolve_asset_graph().has(AssetKey(["shop_customers"]))


def test_a_scaffolded_pipeline_takes_its_columns_from_its_registry_or_infers_them() -> None:
    registry = PipelineParams(topic="t", base_path="/t", format="avro", schema_registry="http://registry:8081")
    found = pipeline_of("t", registry)
    assert (found["source"]["schema_registry"], found["table"]) == (
        {"url": "http://registry:8081"},
        {"base_path": "/t"},
    )
    assert pipeline_of("t", PipelineParams(topic="t", base_path="/t"))["table"]["schema"] == "infer"


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
        pytest.param(("dagster_dg_cli.cli", "check", "defs"), marks=[NEEDS_DG, pytest.mark.tier(2)]),
    ],
    ids=["dagster", "dg"],
)
def test_dagsters_own_commands_accept_the_project(tmp_path: Path, command: tuple[str, ...]) -> None:
    run(make_project(tmp_path, orders=attributes()), tmp_path, *command)


def run(project: Path, home: Path, *command: str) -> None:
    """A command of Dagster's, a module with its arguments, in the project."""
    path = os.pathsep.join([str(project / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "DAGSTER_HOME": str(home), "DAGSTER_DG_CLI_TELEMETRY": "0"}
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
