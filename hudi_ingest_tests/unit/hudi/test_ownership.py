from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.hudi.options import METADATA_PARTITIONS_PROPERTY
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import METADATA_TABLE
from hudi_ingest.hudi.timeline.ownership import require_metadata_table, require_own_table
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, Timeline
from hudi_ingest_tests.support.pipeline_files import Write, load


def test_p6_a_table_whose_metadata_table_is_gone_is_refused_before_hudi_looks_for_it(tmp_path: Path) -> None:
    storage, named = LocalStorage(str(tmp_path)), {METADATA_PARTITIONS_PROPERTY: "files"}
    with pytest.raises(TableMismatch, match=f"could not begin a transaction on {tmp_path}.*delete_metadata_table"):
        require_metadata_table(storage, named)
    # It is yet to be made, or Hudi has been asked to delete it.
    require_metadata_table(storage, {})
    require_metadata_table(storage, {METADATA_PARTITIONS_PROPERTY: ""})
    (tmp_path / METADATA_TABLE).mkdir(parents=True)
    require_metadata_table(storage, named)


@pytest.mark.parametrize("version", ["6", "8", "10"])
def test_p7_a_table_that_somebody_has_up_or_downgraded_is_not_changed_back(write: Write, version: str) -> None:
    pipeline = load(write)
    properties = {PIPELINE_PROPERTY: pipeline.name}
    require_own_table(pipeline, {**properties, "hoodie.table.version": "9"})
    with pytest.raises(TableMismatch, match=rf"has version {version}, .*somebody has changed it.*upgrade_table"):
        require_own_table(pipeline, {**properties, "hoodie.table.version": version})


def test_a_table_of_a_newer_hudi_is_no_table_that_cannot_be_reached(tmp_path: Path) -> None:
    """With hudi-rs's own words. A mismatch is not tried again."""
    timeline = tmp_path / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    (timeline / "20260101000000000_20260101000001000.commit").write_bytes(b"Obj")
    (tmp_path / ".hoodie" / "hoodie.properties").write_text(
        "hoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=10\nhoodie.timeline.layout.version=2\n"
    )
    with pytest.raises(TableMismatch, match=r"Found: 10\. A newer Hudi has upgraded it") as raised:
        Timeline(str(tmp_path)).completed()
    assert "power cut" not in str(raised.value)
