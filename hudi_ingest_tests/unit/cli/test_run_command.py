"""`hudi-ingest run`: what it says of a commit, and when it goes on."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.cli.views import receipt_text
from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.home.folder import PIPELINES_VARIABLE
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import marker_path
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import BaseFile, CommitReceipt, LogFile, SliceReport
from hudi_ingest.transaction import protocol, run
from hudi_ingest.transaction.plan import planning
from hudi_ingest_tests.support.pipeline_files import document

pytestmark = pytest.mark.fast

SOURCE = TopicPartition("orders", 0)


def receipt(start: int, end: int, **report: Any) -> CommitReceipt:
    slice_ = Slice("orders", 0, start, end)
    plan = IngestPlan("orders", f"orders-{end}", 1, (slice_,))
    reports = (SliceReport(slice_, 0, **{"rows": slice_.count, **report}),)
    return CommitReceipt(plan, "20260131120000000", Checkpoint(1, plan.transaction_id, {SOURCE: end}), reports)


def test_a_keyed_table_gets_changes_of_which_the_last_of_each_key_are_written() -> None:
    log = LogFile("", "g", ".g.log.1_0-0-0", 8, 2, 64, 0, 39, file_rows=8)
    keyed = receipt_text(receipt(0, 40, log_files=(log,), superseded=32, deletes=3))
    assert ": 40 changes (3 of them deletes, 32 replaced by later ones of their keys) in 1 file" in keyed
    assert ": 1 change in 1 file" in receipt_text(receipt(0, 1, log_files=(log,)))
    base = BaseFile("", "a", "a_b_c.parquet", 40, 512, 0, 39)
    assert ": 40 rows in 1 file" in receipt_text(receipt(0, 40, files=(base,)))


def test_the_parts_of_a_transactions_time_never_exceed_their_total() -> None:
    began = datetime.now(timezone.utc) - timedelta(seconds=2)
    transaction: Any = SimpleNamespace(begin_seconds=17.0, began_at=began)
    seconds = protocol._phases(transaction, receipt(0, 1, seconds=180.0).reports, 5.0)
    assert (seconds["total"], seconds["between"]) == (202.0, 0.0)
    later: Any = SimpleNamespace(begin_seconds=1.0, began_at=began - timedelta(seconds=98))
    seconds = protocol._phases(later, receipt(0, 1, seconds=10.0).reports, 5.0)
    assert seconds["total"] == pytest.approx(sum(seconds[part] for part in ("begin", "write", "commit", "between")))


@pytest.mark.parametrize(
    ("options", "ran"), [([], [3]), (["--until-caught-up"], [3, 6, 8]), (["--until-caught-up", "--json"], [3, 6, 8])]
)
def test_until_caught_up_means_the_ends_after_the_first_transaction(
    options: list[str], ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document(table__base_path=str(tmp_path / "table"))))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path))
    ends, done = iter([3, 6, 8, 11, 14]), list[int]()

    def transaction(pipeline: Any, **_: Any) -> CommitReceipt:
        done.append(next(ends))
        return receipt(0, done[-1])

    marks = SimpleNamespace(watermarks={SOURCE: SimpleNamespace(end=7)})
    monkeypatch.setattr(run, "run_transaction", transaction)
    monkeypatch.setattr(planning, "observe", lambda pipeline: marks)
    told = CliRunner().invoke(app, ["run", "orders", *options])
    assert told.exit_code == 0, told.output
    assert done == ran, "records that come meanwhile are not waited for"
    if "--json" in options:
        assert [each["transaction_id"] for each in json.loads(told.stdout)] == [f"orders-{end}" for end in ran]
    else:
        assert told.stdout.count("committed orders-") == len(ran)


def test_until_caught_up_ends_where_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document(table__base_path=str(tmp_path / "table"))))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path))
    answers = iter([receipt(0, 3)])

    def transaction(pipeline: Any, **_: Any) -> CommitReceipt:
        found = next(answers, None)
        if found is None:
            raise NothingToDo("orders", "a partition has no leader")
        return found

    monkeypatch.setattr(run, "run_transaction", transaction)
    marks = SimpleNamespace(watermarks={SOURCE: SimpleNamespace(end=7)})
    monkeypatch.setattr(planning, "observe", lambda pipeline: marks)
    told = CliRunner().invoke(app, ["run", "orders", "--until-caught-up"])
    assert (told.exit_code, told.stdout.count("committed orders-")) == (0, 1)


def test_while_it_writes_a_local_table_it_says_how_much_and_how_fast(tmp_path: Path) -> None:
    storage, instant = LocalStorage(str(tmp_path)), "20260131120000000"
    started = time.monotonic() - 2
    assert run._written_so_far(storage, instant, started) == "", "no file is begun"
    for path, size in (("day=1/a.parquet", 3_000_000), ("day=2/b.parquet", 5_000_000)):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(b"x" * size)
        storage.write(marker_path(instant, path), b"")
    storage.write(marker_path(instant, "day=1/c.parquet"), b"")
    (tmp_path / "day=1" / "of_another_instant.parquet").write_bytes(b"x" * 1_000_000)
    assert re.match(r", 8\.0 MB written, [1-4]\.\d MB a second$", run._written_so_far(storage, instant, started))
