"""P1, P5: whatever a crash leaves of hoodie.properties, a table that has commits is never taken for no table."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.timeline import properties_file
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable, committed_state
from hudi_ingest.hudi.timeline.properties_file import PropertiesFile, whole
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.transaction.plan.planning import mark_if_committed
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.support.properties_text import empty_properties, properties_text

BEFORE = {"hoodie.table.metadata.partitions": "files", "hudi_ingest.pipeline": "orders"}
# As Hudi 1.2.0 wrote it, without some of its lines.
WRITTEN_BY_HUDI = b"""#Updated at 2026-11-22T18:12:51.807356453Z
#Sun Nov 22 18:12:51 UTC 2026
hoodie.table.create.schema={"type"\\:"record","name"\\:"record"}
hoodie.table.checksum=922963182
hoodie.table.metadata.partitions.inflight=
hoodie.table.name=tbb9367fa71
hoodie.client.heartbeat.tolerable.misses=2
"""


@pytest.fixture
def hoodie(tmp_path: Path) -> Path:
    folder = tmp_path / ".hoodie"
    (folder / "timeline").mkdir(parents=True)
    (folder / "timeline" / "20261122100000000_20261122100001000.commit").touch()
    (folder / "hoodie.properties").write_text(properties_text(BEFORE))
    return folder


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties_file, "_SETTLED_SECONDS", 0.05)
    monkeypatch.setattr(properties_file, "_LOOK_SECONDS", 0.01)


def test_every_cut_of_a_rewritten_file_leaves_the_table_as_it_was(hoodie: Path) -> None:
    primary, backup = hoodie / "hoodie.properties", hoodie / "hoodie.properties.backup"
    rewritten = properties_text({**BEFORE, "hoodie.index.type": "SIMPLE"}).encode()
    backup.write_text(properties_text(BEFORE))
    timeline = Timeline(str(hoodie.parent))
    for length in range(len(rewritten)):
        primary.write_bytes(rewritten[:length])
        assert timeline.exists()
        assert timeline.properties().items() >= BEFORE.items(), rewritten[:length]
    primary.write_bytes(rewritten)
    assert timeline.properties()["hoodie.index.type"] == "SIMPLE"
    assert not timeline.restore_properties()


def test_every_cut_of_a_backup_leaves_the_file_in_force(hoodie: Path) -> None:
    timeline = Timeline(str(hoodie.parent))
    text = (hoodie / "hoodie.properties").read_bytes()
    for length in range(len(text)):
        (hoodie / "hoodie.properties.backup").write_bytes(text[:length])
        assert timeline.properties().items() >= BEFORE.items()
        assert not timeline.restore_properties()
    assert (hoodie / "hoodie.properties").read_bytes() == text


@pytest.mark.parametrize("cut_at", [0, 30])
def test_p5_a_damaged_file_is_restored_from_its_backup(hoodie: Path, cut_at: int) -> None:
    text = (hoodie / "hoodie.properties").read_bytes()
    (hoodie / ".hoodie.properties.crc").write_text("of the damaged one")
    empty_properties(hoodie.parent, cut_at)
    assert Timeline(str(hoodie.parent)).restore_properties()
    assert (hoodie / "hoodie.properties").read_bytes() == text
    assert not (hoodie / ".hoodie.properties.crc").exists()
    assert not Timeline(str(hoodie.parent)).restore_properties()


def test_p5_a_tick_restores_it_before_it_asks_about_a_transaction(hoodie: Path, write: Write, tmp_path: Path) -> None:
    # As much as hudi-rs needs, which reads the file itself.
    needed = {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9", "hoodie.timeline.layout.version": "2"}
    text = properties_text({**BEFORE, **needed}).encode()
    (hoodie / "hoodie.properties").write_bytes(text)
    (hoodie / "timeline" / "20261122100000000_20261122100001000.commit").unlink()
    empty_properties(hoodie.parent)
    table = PipelineTable(load(write, table__base_path=str(hoodie.parent)))
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        assert not mark_if_committed(table, ledger, "t1")
    assert (hoodie / "hoodie.properties").read_bytes() == text


def test_a_file_that_is_being_written_is_left_to_its_writer(hoodie: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_properties(hoodie.parent)
    rewritten = properties_text({**BEFORE, "hoodie.index.type": "SIMPLE"})

    def writer_goes_on(seconds: float) -> None:
        (hoodie / "hoodie.properties").write_text(rewritten)

    monkeypatch.setattr("hudi_ingest.hudi.timeline.properties_file.time.sleep", writer_goes_on)
    assert not PropertiesFile(LocalStorage(str(hoodie.parent))).restore()
    assert (hoodie / "hoodie.properties").read_text() == rewritten


def test_the_file_of_a_table_that_is_being_made_is_awaited(hoodie: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi creates it empty, and then writes it, without a backup."""
    text, made = (hoodie / "hoodie.properties").read_text(), [0, 30]
    monkeypatch.setattr(properties_file, "_SETTLED_SECONDS", 60.0)

    def writer_goes_on(seconds: float) -> None:
        (hoodie / "hoodie.properties").write_text(text[: made.pop()] if made else text)

    (hoodie / "hoodie.properties").write_text("")
    monkeypatch.setattr("hudi_ingest.hudi.timeline.properties_file.time.sleep", writer_goes_on)
    assert PropertiesFile(LocalStorage(str(hoodie.parent))).read().items() >= BEFORE.items()
    assert not made


def test_p1_commits_without_properties_are_not_a_new_table(hoodie: Path) -> None:
    (hoodie / "hoodie.properties").write_text("")
    with pytest.raises(TableUnreachable, match=r"damaged .hoodie/hoodie.properties: it is empty, and .* is missing"):
        committed_state(Timeline(str(hoodie.parent)), "checkpoint", "transaction")
    (hoodie / "hoodie.properties").unlink()
    with pytest.raises(TableUnreachable, match=r"has commits but no .hoodie/hoodie.properties"):
        committed_state(Timeline(str(hoodie.parent)), "checkpoint", "transaction")


def test_no_files_are_no_table(tmp_path: Path) -> None:
    assert not Timeline(str(tmp_path)).exists()


def test_a_checksum_is_hudis() -> None:
    found = whole(WRITTEN_BY_HUDI)
    assert found is not None
    assert found["hoodie.table.create.schema"] == '{"type":"record","name":"record"}'
    assert whole(WRITTEN_BY_HUDI.replace(b"tbb9367fa71", b"other")) is None
