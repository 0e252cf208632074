from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.hudi.options import METADATA_PARTITIONS_PROPERTY
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import METADATA_TABLE
from hudi_ingest.hudi.timeline.ownership import require_metadata_table


def test_p6_a_table_whose_metadata_table_is_gone_is_refused_before_hudi_looks_for_it(tmp_path: Path) -> None:
    storage, named = LocalStorage(str(tmp_path)), {METADATA_PARTITIONS_PROPERTY: "files"}
    with pytest.raises(TableMismatch, match=f"could not begin a transaction on {tmp_path}.*delete_metadata_table"):
        require_metadata_table(storage, named)
    # It is yet to be made, or Hudi has been asked to delete it.
    require_metadata_table(storage, {})
    require_metadata_table(storage, {METADATA_PARTITIONS_PROPERTY: ""})
    (tmp_path / METADATA_TABLE).mkdir(parents=True)
    require_metadata_table(storage, named)
