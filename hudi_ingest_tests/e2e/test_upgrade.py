"""Tables of the code before 0.2.0 go on under this one while records come in; its ledger is refused, and rebuilt from them."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTable

from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.verification import verify
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.support.command_line import COMMAND, environment, hudi_ingest
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]

OLD = "9ffadbb3"
"""The last commit of 0.1.0."""
REPOSITORY = Path(__file__).parent.parent.parent
KEYED = "customers"
KEYS = 5


def test_p1_p2_what_the_version_before_has_begun_goes_on_while_records_come_in(tmp_path: Path) -> None:
    kafka_port, ui_port = free_port(), free_port()
    ports = (
        "--kafka-port",
        str(kafka_port),
        "--ui-port",
        str(ui_port),
        "--master",
        "local[2]",
        "--memory",
        "1g",
    )
    old = old_version(tmp_path / "old")
    with fresh_ground(f"127.0.0.1:{kafka_port}", tmp_path / "home") as ground:
        write_pipelines(ground)
        topics = {ground.name: ground.base_path, KEYED: str(tmp_path / "tables" / KEYED)}
        try:
            run_old(old, ground, "up", *ports)
            for topic in topics:
                create_topic(ground.bootstrap_servers, topic, 1)
            with records_coming_in(ground):
                wait_for(lambda: all(has_rows(path) for path in topics.values()), "the old version has committed", 300)
                before = {path: newest_commit(path) for path in topics.values()}
                run_old(old, ground, "down")
                refused = hudi_ingest(ground.home, "status", ground.name)
                assert refused.returncode == 1
                assert "`hudi-ingest recover PIPELINE`" in refused.stderr
                for file in ground.home.root.glob("ledger.db*"):
                    file.rename(file.with_name(f"old-{file.name}"))
                for name in topics:
                    recovered = hudi_ingest(ground.home, "recover", name, timeout=400)
                    assert recovered.returncode == 0, recovered.stderr
                upgraded = hudi_ingest(ground.home, "up", *ports, timeout=400)
                assert upgraded.returncode == 0, upgraded.stderr
                wait_for(
                    lambda: all(newest_commit(path) > before[path] for path in topics.values()),
                    "each table has a commit of the new version",
                    300,
                )
            count = len(ground.produced)
            wait_for(lambda: oracle.count(oracle.StoredTable.on_disk(ground.base_path)) == count, "all is read", 300)
            assert verify(ground.base_path, ground.produced).exact
            newest = {f"k{number % KEYS}": number for number in range(count)}
            wait_for(
                lambda: {row["id"]: row["n"] for row in rows(topics[KEYED]).to_pylist()} == newest, "keys are read", 300
            )
            status = hudi_ingest(ground.home, "status", ground.name, "--json")
            assert status.returncode == 0, status.stderr
            assert json.loads(status.stdout)[0]["lag"] == 0
            recorded = {row.instant for row in ground.ledger.transactions.history(ground.name, 10_000)}
            assert recorded >= {before[ground.base_path], newest_commit(ground.base_path)}
            doctor = hudi_ingest(ground.home, "doctor")
            assert doctor.returncode == 0, doctor.stdout + doctor.stderr
        finally:
            hudi_ingest(ground.home, "down")


def old_version(folder: Path) -> Path:
    """The source of the version before, unpacked from the repository's history."""
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", OLD, "hudi_ingest", "dagster.yaml", "workspace.yaml", "setup.py"],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"the repository's history does not reach back to {OLD}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def run_old(old: Path, ground: Ground, *arguments: str) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=old,
        env=environment(ground.home, {"PYTHONPATH": str(old)}),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def write_pipelines(ground: Ground) -> None:
    """One that appends, and one with a key."""
    often = {"interval_seconds": 5}
    tables = ground.home.root.parent / "tables"
    write_pipeline(ground, enabled=True, transaction=often)
    keyed = {"base_path": str(tables / KEYED), "schema": "id string not null, n long", "partition_by": []}
    write_pipeline(
        ground,
        KEYED,
        enabled=True,
        transaction=often,
        source={"topics": [KEYED]},
        table=keyed | {"mode": "upsert", "key": ["id"], "buckets": 1},
    )


@contextmanager
def records_coming_in(ground: Ground) -> Iterator[None]:
    """Sends the same numbers to both topics, some every second, until the block ends."""
    ended = threading.Event()

    def send() -> None:
        number = 0
        # Meanwhile the broker restarts; the producer waits for it.
        while not ended.wait(1.0):
            ground.send_rows(0, KEYS, number)
            for each in range(number, number + KEYS):
                value = json.dumps({"id": f"k{each % KEYS}", "n": each}).encode()
                ground.producer.produce(KEYED, value, partition=0)
            assert ground.producer.flush(240) == 0
            number += KEYS

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        try:
            yield
        finally:
            ended.set()
        sent.result()


def rows(base_path: str) -> pa.Table:
    return pa.Table.from_batches(HudiTable(base_path).read())


def has_rows(base_path: str) -> bool:
    return newest_commit(base_path) > ""


def newest_commit(base_path: str) -> str:
    """The instant of the newest commit, "" before the first."""
    stored = oracle.StoredTable.on_disk(base_path)
    return max(oracle.own_instants(stored), default="") if stored.exists(".hoodie/hoodie.properties") else ""
