"""P5: what a power cut left of an instant is repaired if it is provably ours and nothing builds on it, else nothing is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableUnreachable, TransactionInFlight
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import PUT_ASIDE, TIMELINE
from hudi_ingest.hudi.timeline.damaged_instants import is_whole, transaction_in
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.ownership import ServiceClaim
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest_tests.support.damaged_table import LATER, OURS, SERVICE, DamagedTable, avro_file, inflight_of
from hudi_ingest_tests.support.pipeline_files import Write, load


def refusal(table: DamagedTable, kind: type[Exception] = TableUnreachable) -> str:
    """The error of a repair that must change nothing."""
    names, epoch = table.names(), table.epoch.current()
    with pytest.raises(kind) as raised:
        table.repair()
    assert (table.names(), table.epoch.current()) == (names, epoch)
    row = table.ledger.transactions.find("t2")
    assert row is not None
    assert row.state is TransactionState.OPEN
    return str(raised.value)


@pytest.fixture
def table(write: Write, tmp_path: Path) -> Iterator[DamagedTable]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        yield DamagedTable(load(write, table__base_path=str(tmp_path / "table")), ledger)


def test_no_part_of_an_avro_file_is_a_whole_one() -> None:
    content = avro_file(bytes(300))
    assert is_whole(content)
    assert not [length for length in range(len(content)) if is_whole(content[:length])]
    assert not is_whole(content[:200] + bytes(len(content) - 200)), (
        "zeros instead of the rest, as some file systems leave"
    )


def test_the_writer_of_an_inflight_file_is_known() -> None:
    assert transaction_in(inflight_of("orders"), "hudi_ingest.transaction.orders") == "t2"
    assert transaction_in(inflight_of("orders2"), "hudi_ingest.transaction.orders") == ""
    assert transaction_in(avro_file(), "hudi_ingest.transaction.orders") == ""
    assert transaction_in(b"", "hudi_ingest.transaction.orders") == ""


def test_p5_another_power_cut_brings_no_damaged_file_back(table: DamagedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.put(f"{OURS}_{SERVICE}.commit", b"")
    synced: list[str] = []
    monkeypatch.setattr(LocalStorage, "sync", lambda storage, paths: synced.extend(paths))
    table.repair()
    assert synced == [TIMELINE]


@pytest.mark.parametrize("content", [b"", avro_file()[:-9], bytes(40)], ids=["empty", "cut off", "zeros"])
def test_p5_a_damaged_commit_of_ours_becomes_pending_and_its_transaction_is_over(
    table: DamagedTable, content: bytes
) -> None:
    name = f"{OURS}_{SERVICE}.commit"
    table.put(name, content)
    table.put(f".{name}.crc", b"crc of it")
    # Cleaning follows each twentieth commit, before our flush.
    table.put(f"{LATER}_{LATER}.clean", avro_file())
    epoch = table.epoch.current()
    (text,) = table.repair()
    assert name in text
    assert "the next transaction reads its offsets again" in text
    assert not {stored for stored in table.storage.names(TIMELINE) if name in stored}
    assert {f"{OURS}.commit.requested", f"{OURS}.inflight"} <= table.names()
    assert table.storage.read(f"{PUT_ASIDE}/{name}") == content
    assert table.epoch.current() == Epoch(epoch.number + 1, "")
    row = table.ledger.transactions.find("t2")
    assert row is not None
    assert (row.state, row.reason) == (TransactionState.ABORTED, text)
    assert table.repair() == ()


def test_p5_what_may_still_be_being_written_is_left_to_its_writer(table: DamagedTable) -> None:
    table.put(f"{OURS}_{SERVICE}.commit", b"", seconds_ago=2)
    assert "its writer may still be at it" in refusal(table, TransactionInFlight).replace("Its", "its")


def test_p6_another_writers_damaged_commit_is_left_alone(table: DamagedTable) -> None:
    path = table.put(f"{LATER}_{LATER}1.commit", b"")
    message = refusal(table)
    assert "another writer made it" in message
    assert f"mv {path} " in message


def test_p6_a_damaged_commit_that_later_ones_carry_on_is_left_alone(table: DamagedTable) -> None:
    table.put(f"{OURS}_{SERVICE}.commit", b"")
    table.put(f"{LATER}_{LATER}1.commit", avro_file())
    assert f"later instants may build on it ({LATER}_{LATER}1.commit)" in refusal(table)


def test_a_commit_whose_receipt_is_in_the_ledger_reached_the_disk(table: DamagedTable) -> None:
    table.put(f"{OURS}_{SERVICE}.commit", avro_file()[:-1])
    plan = IngestPlan(table.pipeline.name, "t2", 2, (Slice("orders", 0, 10, 20),))
    table.ledger.transactions.mark_committed(CommitReceipt(plan, OURS, Checkpoint(2, "t2", {}), ()))
    assert table.repair() == ()


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_p5_a_damaged_table_service_is_pending_again(table: DamagedTable, service: str) -> None:
    completed = f"{SERVICE}_{SERVICE}1.{'commit' if service == 'compaction' else 'replacecommit'}"
    table.put(f"{SERVICE}.{service}.requested", avro_file())
    table.put(f"{SERVICE}.{service}.inflight", b"")
    table.put(completed, b"")
    claim = ServiceClaim(table.storage, service)  # type: ignore[arg-type]
    assert "hudi-ingest's services did not execute it" in refusal(table)
    claim.take(SERVICE)
    later = table.put(f"{LATER}_{LATER}1.clean", avro_file())
    assert "later instants may build on it" in refusal(table)
    later.unlink()
    (text,) = table.repair()
    assert "the next services redo it" in text
    assert not claim.owns(SERVICE), "a process that was taken for dead must not commit"
    assert {f"{SERVICE}.{service}.requested", f"{SERVICE}.{service}.inflight"} <= table.names()
    assert completed not in table.names()


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_p5_a_damaged_plan_of_a_table_service_is_dropped(table: DamagedTable, service: str) -> None:
    table.put(f"{SERVICE}.{service}.requested", b"")
    assert "hudi-ingest's services did not plan it" in refusal(table)
    claim = ServiceClaim(table.storage, service)  # type: ignore[arg-type]
    claim.plan(LATER)
    assert "hudi-ingest's services did not plan it" in refusal(table), "it is older than what they were planning"
    claim.plan(OURS)
    (text,) = table.repair()
    assert "the next services make a new one" in text
    assert f"{SERVICE}.{service}.requested" not in table.names()


def test_p5_a_damaged_plan_of_our_cleaning_is_dropped_and_that_of_another_writer_stops_nothing(
    table: DamagedTable,
) -> None:
    """Hudi reads the other files of cleanings and rollbacks even if they are empty; this plan stops every cleaning."""
    plan = table.put(f"{LATER}.clean.requested", b"")
    assert table.repair() == ()
    table.put(f"{OURS}_{SERVICE}.commit", avro_file())
    (text,) = table.repair()
    assert "the next cleaning makes a new one" in text
    assert not plan.exists()
