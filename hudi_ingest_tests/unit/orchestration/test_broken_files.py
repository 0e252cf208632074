"""A wrong pipeline file: the others are loaded, and Dagster shows what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from dagster import AssetCheckKey, AssetKey, DagsterInstance, SkipReason, build_sensor_context

from hudi_ingest.orchestration.broken_files import FILE_LOADS
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.folder import load_each
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest.transaction.columns.decoding import format_problems
from hudi_ingest_tests.support.pipeline_files import SECRET, document, with_security
from hudi_ingest_tests.support.transactions import transaction_job


def folder(tmp_path: Path, **files: object) -> Path:
    for name, content in files.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def other(name: str, **changes: object) -> dict[str, object]:
    return document(name=name, table__base_path=f"/data/{name}", **changes)


def test_a_wrong_file_stops_no_other_and_shows_what_is_wrong(tmp_path: Path) -> None:
    wrong = other("payments", **with_security(ca_fil="x"))
    right, broken = load_each(folder(tmp_path, orders=other("orders"), payments=wrong, refunds="name: [refunds"), {})
    assert [each.name for each in right] == ["orders"]
    assert [(each.path.name, each.name) for each in broken] == [("payments.yaml", "payments"), ("refunds.yaml", None)]
    assert SECRET not in str(broken)

    definitions = build_definitions(right, broken=broken)
    assert transaction_job(definitions, "orders")
    loaded = definitions.resolve_asset_graph()
    assert "did you mean ca_file?" in str(loaded.get(AssetKey(["payments"])).description)
    sensor = definitions.resolve_sensor_def(COORDINATOR)
    with DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            said = sensor(build_sensor_context(instance, repository_def=definitions.get_repository_def()))
            assert isinstance(said, SkipReason)
            assert "payments.yaml is not loaded" in str(said.skip_message)
        key = AssetCheckKey(AssetKey(["payments"]), FILE_LOADS)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert [each.status.value for each in history] == ["FAILED"], "told once"


def test_a_format_that_cannot_work_is_told_when_the_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "empty.desc").write_bytes(b"")
    (tmp_path / "wrong.avsc").write_text('{"type": "record"}')
    order = {"name": "id", "type": "string"}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": None}
    for name, fields in (("order", [order]), ("tags", [order, tags])):
        (tmp_path / f"{name}.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    protobuf = {"descriptor_file": "empty.desc", "message": "shop.Order"}
    files = folder(
        tmp_path,
        orders=other("orders"),
        binary=other("binary", source__format="bytes"),
        shop=other("shop", source__format="protobuf", source__protobuf=protobuf),
        avro=other(
            "avro", source__format="avro", source__avro={"wire_format": "single_object", "schema_files": ["wrong.avsc"]}
        ),
        default=other(
            "default",
            source__format="avro",
            source__avro={"wire_format": "datum", "schema_files": ["order.avsc"]},
            table__schema=None,
            table__schema_file="tags.avsc",
        ),
        own=other("own", source__format="nobody_has_this:Converter"),
    )
    right, broken = load_each(files, {}, check=format_problems)
    assert [each.name for each in right] == ["orders", "own"], "nobody's code is imported to load a file"
    told = {each.name: "; ".join(each.problems) for each in broken}
    assert set(told) == {"avro", "binary", "shop", "default"}
    assert "tags.avsc: field tags has the default null, which is no array; correct" in told["default"]
    assert told["binary"].startswith("source.format bytes: ")
    assert build_definitions(right, broken=broken).resolve_asset_graph().has(AssetKey(["shop"]))


def test_files_that_cannot_live_together_are_both_broken_and_have_names_of_their_own(tmp_path: Path) -> None:
    copied = folder(tmp_path, orders=other("orders"), orders_2=other("orders"), payments=other("payments"))
    right, broken = load_each(copied, {})
    assert [each.name for each in right] == ["payments"]
    assert all("both have the name orders; rename one" in each.problems[0] for each in broken)
    graph = build_definitions(right, broken=broken).resolve_asset_graph()
    names = {key.asset_key.to_user_string() for key in graph.asset_check_keys if key.name == FILE_LOADS}
    assert names == {"orders", "orders_2"}
