"""`table.on_schema_change`: what becomes of fields that a table lacks, and the approval of exactly one change. No JVM."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

import hudi_ingest.cli  # noqa: F401  - registers the commands
from hudi_ingest.cli.app import app
from hudi_ingest.exceptions import NothingToDo, RegistryUnreachable, SchemaNotApproved, SchemaRefused
from hudi_ingest.home.folder import PIPELINES_VARIABLE
from hudi_ingest.hudi.storage.paths import APPROVED_CHANGE
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.approvals import approve_schema_change, schema_change
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import ddl, parse_spark_json, table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.evolution import evolve, table_rows
from hudi_ingest.transaction.columns import schema_change as columns
from hudi_ingest.transaction.columns.schema_change import (
    noted_change,
    pending_approval,
    proposed_schema,
    resolve_and_note,
    resolve_schema,
)

OLD = "id string, n int, a struct<b: int>"


@pytest.fixture
def timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """Of a table that has columns `id` and `a`, as its timeline tells."""
    monkeypatch.setattr(Timeline, "exists", lambda self: True)
    monkeypatch.setattr(Timeline, "is_empty", lambda self: False)
    monkeypatch.setattr(Timeline, "properties", lambda self: {})
    columns = table_schema(parse_ddl(OLD), ("topic", "timestamp")).columns
    monkeypatch.setattr(Timeline, "schema", lambda self: columns)
    (tmp_path / "table" / ".hoodie").mkdir(parents=True)
    return Timeline(str(tmp_path / "table"))


def pipeline_of(timeline: Timeline, policy: str, schema: str = OLD) -> Pipeline:
    table: dict[str, Any] = {"base_path": timeline.storage.base_path, "schema": schema, "on_schema_change": policy}
    source = {"bootstrap_servers": "localhost:9092", "topics": ["orders"]}
    return Pipeline.model_validate({"name": "orders", "source": source, "table": table})


NEW = "id string, n long, a struct<b: int, c: int>, note string"


def test_evolve_is_the_default_and_adopts_everything(timeline: Timeline) -> None:
    assert len(resolve_schema(pipeline_of(timeline, "evolve", NEW), timeline).changes) == 3


def test_ignore_leaves_new_fields_out_names_them_and_still_widens_numbers(timeline: Timeline) -> None:
    schema = resolve_schema(pipeline_of(timeline, "ignore", NEW), timeline)
    assert schema.changes == ("column n becomes long; it was int",)
    assert [warning.split(" is left out")[0] for warning in schema.warnings] == [
        "field a.c int",
        "field note string",
    ]
    assert ddl(parse_spark_json(schema.columns)).startswith("id string, n long, a struct<b:int>, _kafka")


def test_rows_have_only_what_the_table_has() -> None:
    columns = parse_ddl("id string, a struct<b: int>")
    rows = pa.RecordBatch.from_pylist(
        [{"id": "x", "a": {"b": 1, "c": 2}, "note": "new"}],
        parse_ddl("id string, a struct<b: int, c: int>, note string"),
    )
    assert table_rows(rows, columns).to_pylist() == [{"id": "x", "a": {"b": 1}}]


def test_ignore_also_passes_over_new_fields_that_a_table_could_not_have() -> None:
    table, spelled = parse_ddl("id string"), parse_ddl("ID string, x int NOT NULL")
    records = pa.schema([*table, *spelled])
    evolution = evolve(table, records, adopt_new=False)
    assert (evolution.schema, evolution.refusals, len(evolution.left_out)) == (table, (), 2)


def test_refuse_stops_until_exactly_this_change_is_approved(timeline: Timeline) -> None:
    same = pipeline_of(timeline, "refuse")
    assert resolve_schema(same, timeline).changes == ()
    with pytest.raises(NothingToDo, match="has all columns"):
        approve_schema_change(same)

    changed = pipeline_of(timeline, "refuse", NEW)
    with pytest.raises(SchemaNotApproved) as raised:
        resolve_schema(changed, timeline)
    text = str(raised.value)
    assert "column note string is added" in text
    assert "column n becomes long; it was int" in text
    assert f"hudi-ingest approve-schema orders --fingerprint {raised.value.fingerprint}" in text
    assert str(pickle.loads(pickle.dumps(raised.value))) == text
    assert "approve-schema" in proposed_schema(changed, timeline).warnings[-1], "plan shows it and does not fail"
    assert not schema_change(changed).approved

    with pytest.raises(SchemaRefused, match="not 0123"):
        approve_schema_change(changed, "0123")
    approved = approve_schema_change(changed, raised.value.fingerprint)
    assert approved == schema_change(changed)
    assert len(resolve_schema(changed, timeline).changes) == 3
    assert proposed_schema(changed, timeline).warnings == ()

    other = pipeline_of(timeline, "refuse", f"{NEW}, more int")
    with pytest.raises(SchemaNotApproved, match="column more int is added"):
        resolve_schema(other, timeline)
    timeline.storage.replace(APPROVED_CHANGE, b"{")
    with pytest.raises(SchemaNotApproved):
        resolve_schema(changed, timeline)


def test_a_change_that_waits_is_noted_until_it_is_approved_or_gone(timeline: Timeline, tmp_path: Path) -> None:
    changed = pipeline_of(timeline, "refuse", NEW)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        assert pending_approval(changed, ledger, timeline) is None, "no begin has been refused"
        with pytest.raises(SchemaNotApproved) as raised:
            resolve_and_note(changed, ledger, timeline)
        waiting = pending_approval(changed, ledger, timeline)
        assert waiting is not None and waiting == noted_change(changed, ledger, timeline)
        assert f"`hudi-ingest approve-schema orders --fingerprint {raised.value.fingerprint}`" in waiting.sentence
        assert "column note string is added" in waiting.sentence

        more = pipeline_of(timeline, "refuse", f"{NEW}, more int")
        grown = pending_approval(more, ledger, timeline)
        assert grown is not None and grown.fingerprint != waiting.fingerprint
        assert (grown.found_at, ledger.pending_changes.of_table(grown.base_path)) == (waiting.found_at, grown)
        approve_schema_change(more)
        assert noted_change(more, ledger, timeline) is None
        assert pending_approval(more, ledger, timeline) is None
        assert ledger.pending_changes.of_table(grown.base_path) is None

        for other in (pipeline_of(timeline, "refuse"), pipeline_of(timeline, "evolve", NEW)):
            with pytest.raises(SchemaNotApproved):
                resolve_and_note(changed, ledger, timeline)
            assert pending_approval(other, ledger, timeline) is None
            assert resolve_and_note(other, ledger, timeline)


def test_while_a_registry_is_away_the_change_still_waits(
    timeline: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = pipeline_of(timeline, "refuse", NEW)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        with pytest.raises(SchemaNotApproved):
            resolve_and_note(changed, ledger, timeline)

        def away(pipeline: Pipeline, timeline: Timeline) -> None:
            raise RegistryUnreachable("no answer")

        monkeypatch.setattr(columns, "proposed_schema", away)
        assert pending_approval(changed, ledger, timeline) == ledger.pending_changes.of_table(changed.table.base_path)


def test_a_pattern_approves_the_changes_of_many_pipelines(
    timeline: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("shop_orders", "shop_users", "other"):
        base_path = tmp_path / name
        (base_path / ".hoodie").mkdir(parents=True)
        table = {"base_path": str(base_path), "schema": NEW, "on_schema_change": "refuse"}
        source = {"bootstrap_servers": "localhost:9092", "topics": [name]}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, "source": source, "table": table}))
    (folder / "bad.yaml").write_text("name: [")
    monkeypatch.setenv(PIPELINES_VARIABLE, str(folder))

    def approve(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["approve-schema", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    looked = approve("shop_*", "--dry-run")
    assert looked.count("not approved: ") == 2 and "other" not in looked
    assert approve("shop_users", "--dry-run") in looked, "shown alike, alone or with others"
    approve("shop_*")
    assert "not approved" not in approve("shop_*", "--dry-run")
    assert "not approved" in approve("other", "--dry-run")
    assert CliRunner().invoke(app, ["approve-schema", "none*"]).exit_code != 0
