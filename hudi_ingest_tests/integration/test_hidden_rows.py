"""P5, P7: a metadata table that has lost what a commit wrote there, on the real Hudi: nobody goes on, nothing is deleted, and one command
brings all rows back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableMismatch, TransactionInFlight
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.operations.health.judgement import ACCOUNTING_HOLDS
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.state import full_state, state_now
from hudi_ingest.operations.upkeep.recovery import recover
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, contents, make_pipeline, produced

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def newest_log(ground: Ground) -> Path:
    """The metadata table's newest log file: what the last commit wrote there."""
    folder = Path(ground.base_path, ".hoodie", "metadata", "files")
    return max(
        (path for path in folder.iterdir() if ".log." in path.name and path.suffix != ".crc"),
        key=lambda path: path.name,
    )


@pytest.mark.parametrize(("mode", "how"), [("append", "emptied"), ("upsert", "deleted")])
def test_p5_p7_rows_that_the_metadata_table_has_lost_are_told_and_brought_back(
    ground: Ground, topic: str, mode: str, how: str
) -> None:
    keyed = {"mode": "upsert", "key": ["id"], "buckets": 2} if mode == "upsert" else {}
    schema = {"base_path": ground.base_path, "schema": "id string, n long, dt string", "partition_by": ["dt"]}
    pipeline: Pipeline = make_pipeline(ground, table={**schema, **keyed})
    for number in range(3):
        ground.send_rows(0, 10, 10 * number)
        ground.run(pipeline)
        if number == 1:
            # Replaced and compacted files are none that are missed.
            run_services(pipeline, home=ground.home, report=lambda line: None)
    status = state_now(pipeline, ground.ledger)
    assert status.table is not None and status.table.passed, status.table
    damaged = newest_log(ground)
    if how == "emptied":
        damaged.write_bytes(b"")
    else:
        damaged.unlink()
    assert ground.rows().num_rows == 20, "else this test is of nothing"
    ground.send_rows(0, 5, 30)
    with pytest.raises(TableMismatch, match=f"hides rows.*recover {pipeline.name} --metadata-table"):
        ground.run(pipeline)
    observation = look_at(pipeline)
    for found in (full_state(observation, ground.ledger).table, *observation.findings_on_commits[:1]):
        assert found is not None and found.check == ACCOUNTING_HOLDS and not found.passed
        assert "hides rows that are committed" in found.text
    swept = answer(ground.home, "sweep", pipeline.name, "--json")
    assert swept.returncode == 1 and "hides rows that are committed" in json.loads(swept.stdout)["problem"]
    restored = answer(ground.home, "recover", pipeline.name, "--metadata-table")
    assert restored.returncode == 0, restored
    assert "metadata table: built again" in restored.stdout
    assert contents(ground, current_session(ground.home)) == produced(ground)[:30]
    assert ground.run(pipeline).rows == 5
    assert contents(ground, current_session(ground.home)) == produced(ground)
    if mode == "append":
        assert verify(ground.base_path, ground.produced).exact
        change_offset(ground, 35, 30)
        with pytest.raises(TableMismatch, match=f"{ground.name}:0 was read up to 35, but the checkpoint says 30"):
            ground.run(pipeline)


def change_offset(ground: Ground, right: int, wrong: int) -> None:
    """Change the checkpoint's offset in the newest commit's file, and nothing else."""
    folder = Path(ground.base_path, ".hoodie", "timeline")
    file = max(path for path in folder.iterdir() if path.suffix == ".commit")
    (folder / f".{file.name}.crc").unlink(missing_ok=True)
    before = file.read_bytes()
    after = before.replace(f'{{"{ground.name}":{{"0":{right}'.encode(), f'{{"{ground.name}":{{"0":{wrong}'.encode())
    assert after != before
    file.write_bytes(after)


def test_p5_the_metadata_table_is_not_built_while_that_would_show_rows_of_no_commit(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 10)
    ground.run(pipeline)
    ground.send_rows(0, 10, 10)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    before = {*ground.data_files()}
    protocol.write(opened, opened.plan.slices)
    with pytest.raises(TransactionInFlight, match=f"instants {opened.instant} are open"):
        recover(protocol, roll_back=False, metadata_table=True)
    zombie = next(iter({*ground.data_files()} - before))
    content = zombie.read_bytes()
    protocol.abort(opened, "the test gives up")
    zombie.write_bytes(content)
    with pytest.raises(
        TableMismatch, match=f"1 stored file would show as rows.*{zombie.name}.*sweep {pipeline.name} --delete"
    ):
        recover(protocol, roll_back=False, metadata_table=True)
    zombie.unlink()
    assert recover(protocol, roll_back=False, metadata_table=True).listed == 3
    assert ground.run(pipeline).rows == 10
    assert verify(ground.base_path, ground.produced).exact
