"""P1, P6, X4 on a broker that is restored from an older copy of its disk: nobody looks until producers have passed the committed offset, and still
nothing goes on in the middle of other records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.exceptions import LogTruncated, NothingToDo, OffsetsLost
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import ProcessRecord, free_port, stop
from hudi_ingest_tests.support.ground import fresh_ground, make_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.tier(3)]


def test_p1_p6_x4_records_behind_a_cut_are_read_once_a_person_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = BrokerSettings(tmp_path / "broker", free_port(), free_port(), heap_megabytes=256)
    records: list[ProcessRecord] = []

    def restart(copy_to: Path | None = None, copy_from: Path | None = None) -> None:
        stop([records.pop()])
        if copy_to:
            shutil.copytree(settings.home, copy_to)
        if copy_from:
            shutil.rmtree(settings.home)
            shutil.copytree(copy_from, settings.home)
        records.append(start_broker(settings, lambda line: None))

    with java_options(QUICK):
        records.append(start_broker(settings, lambda line: None))
        try:
            with fresh_ground(settings.bootstrap, tmp_path / "ground") as ground:
                ground.set_environment(monkeypatch)
                create_topic(settings.bootstrap, ground.name, 1)
                pipeline = make_pipeline(ground)
                ground.send_rows(0, 30)
                restart(copy_to=tmp_path / "copy")
                ground.send_rows(0, 20, 30)
                assert ground.run(pipeline).rows == 50
                restart(copy_from=tmp_path / "copy")
                ground.send_rows(0, 25, 1_000)
                with pytest.raises(LogTruncated, match=f"{ground.name}:0: the records before offset 50 are no longer"):
                    ground.run(pipeline)
                for _ in range(2):
                    with pytest.raises(OffsetsLost, match=r"log was cut.*accept-loss"):
                        ground.run(pipeline)
                assert CliRunner().invoke(app, ["status", pipeline.name]).exit_code == 1
                accept = ["accept-loss", pipeline.name, "--partition", f"{ground.name}:0=30"]
                shown = CliRunner().invoke(app, [*accept, "--dry-run"])
                assert "resumes at 30" in shown.output and "is read a second time" in shown.output
                done = CliRunner().invoke(app, [*accept, "--json"])
                assert done.exit_code == 0, done.output
                (reset,) = json.loads(done.stdout)["resets"]
                assert (reset["committed"], reset["restart"], reset["first"], reset["reason"]) == (
                    50,
                    30,
                    0,
                    "truncated",
                )
                rows = ground.rows()
                offsets = sorted(rows["_kafka_offset"].to_pylist())
                assert offsets == sorted([*range(50), *range(30, 55)])
                assert len(set(rows["_hoodie_record_key"].to_pylist())) == rows.num_rows == 75
                with pytest.raises(NothingToDo):
                    ground.run(pipeline)
                assert CliRunner().invoke(app, ["status", pipeline.name]).exit_code == 0
                ground.send_rows(0, 3, 2_000)
                assert ground.run(pipeline).rows == 3
        finally:
            stop(records, grace_seconds=0)
