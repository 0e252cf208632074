"""`hudi-ingest status` of a folder in which a file is broken, and whose brokers are away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.cli.ingestion_commands import status
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.finding import answer
from hudi_ingest.operations import state as state_module
from hudi_ingest.operations.health.judgement import ACCOUNTING_HOLDS
from hudi_ingest.operations.state import PartitionState, PipelineState
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import document


def test_a_broken_file_hides_no_other_pipelines_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"], "request_timeout_seconds": 1}
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name, servers in (("orders", "127.0.0.1:1"), ("refunds", "127.0.0.1:1"), ("views", "127.0.0.1:2")):
        file = document(
            name=name, source=nobody, source__bootstrap_servers=servers, table__base_path=str(tmp_path / name)
        )
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(file))
    (folder / "clicks.yaml").write_text("name: clicks\nsource: {topics: [clicks]}\n")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.delenv(DAGSTER_VARIABLE, raising=False)
    monkeypatch.setenv(PIPELINES_VARIABLE, str(folder))
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    runner = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"})
    as_json = runner.invoke(app, [status.__name__, "--json"])
    facts = {fact["pipeline"]: fact for fact in json.loads(as_json.stdout)}
    assert as_json.exit_code == 1
    assert facts.keys() == {"orders", "refunds", "views", "clicks"}
    assert "127.0.0.1:1" in facts["orders"]["error"], "it was asked"
    assert facts["orders"]["error"] == facts["refunds"]["error"], "once for all that read it"
    assert facts["clicks"]["file"] == str(folder / "clicks.yaml")
    assert "source.bootstrap_servers" in facts["clicks"]["error"]
    assert (facts["orders"]["lag"], facts["orders"]["transactions"]) == (None, []), "what table and ledger say"
    assert facts["orders"]["on"] is None, "no Dagster is there"
    text, one = runner.invoke(app, [status.__name__]), runner.invoke(app, [status.__name__, "orders"])
    assert text.exit_code == one.exit_code == 1
    lines = {words[0]: words[1:] for line in text.output.splitlines() if (words := line.replace("│", "").split())}
    assert lines["orders"][:2] == lines["refunds"][:2] == ["paused", "?"], "a line each"
    assert "last transactions" not in text.output
    assert text.output.count("127.0.0.1:1 within") == 1
    assert "paused: no Dagster is here; `hudi-ingest run orders` runs one transaction" in one.output
    assert "nothing committed yet; the number of waiting records is unknown" in one.output
    assert "error: orders, refunds: could not describe the cluster at Kafka 127.0.0.1:1 within 1 s" in text.output
    assert "error: views: could not describe the cluster at Kafka 127.0.0.1:2 within 1 s" in text.output
    assert f"error: not loaded: {folder / 'clicks.yaml'}: " in text.output


@pytest.mark.parametrize("passed", [True, False])
def test_a_table_that_hides_rows_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("orders", "refunds"):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document(name=name, table__base_path=str(tmp_path / name))))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.delenv(DAGSTER_VARIABLE, raising=False)
    monkeypatch.setenv(PIPELINES_VARIABLE, str(folder))
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    whole = answer("refunds", ACCOUNTING_HOLDS, True, "all is there")
    tables = {"orders": answer("orders", ACCOUNTING_HOLDS, passed, "the table hides rows"), "refunds": whole}

    def states(pipelines: Sequence[Pipeline], ledger: Ledger) -> dict[str, PipelineState]:
        partitions = (PartitionState("orders", 0, 5, 5, 0),)
        return {each.name: PipelineState(each, 3, partitions, table=tables[each.name]) for each in pipelines}

    monkeypatch.setattr(state_module, "states", states)
    runner = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"})
    one, both = runner.invoke(app, [status.__name__, "orders"]), runner.invoke(app, [status.__name__])
    assert one.exit_code == both.exit_code == (0 if passed else 1)
    assert ("the table hides rows" in one.output) is not passed
    lines = [line for line in both.output.splitlines() if "│" in line]
    assert ["the table" in line for line in lines] == [not passed, False]


def test_a_home_without_pipelines_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path / "pipelines"))
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    runner = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"})
    without = runner.invoke(app, [status.__name__])
    assert without.exit_code == 1
    assert "`hudi-ingest new TOPIC` makes it with a pipeline file" in str(without.exception)
    (tmp_path / "pipelines").mkdir()
    empty = runner.invoke(app, [status.__name__])
    assert (empty.exit_code, "`hudi-ingest new TOPIC` writes one" in empty.output) == (0, True)
    unknown = runner.invoke(app, ["plan", "orders"])
    assert "known: none; `hudi-ingest new TOPIC` writes a pipeline file" in str(unknown.exception)
