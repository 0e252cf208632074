"""When partitions are dropped, and when that would be in vain. The age of partitions has tests of its own."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from hudi_ingest.exceptions import ServiceRefused
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep import partition_ttl
from hudi_ingest.operations.upkeep.partition_ttl import PartitionTtl, run_ttl
from hudi_ingest.operations.upkeep.savepoints import Savepoints
from hudi_ingest.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.fast

NOW = datetime(2026, 3, 10, tzinfo=timezone.utc)


def pipeline_of(base_path: Path, **table: Any) -> Pipeline:
    block = {"base_path": str(base_path), "schema": "id string, dt string", "partition_by": ["dt"], **table}
    source = {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"]}
    return Pipeline.model_validate({"name": "orders", "source": source, "table": block})


class Client:
    """A table with an old partition, which another run drops after it was seen `looks` times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.deleted: list[list[str]] = []

    def file_groups(self, partition_paths: None) -> tuple[FileGroup, ...]:
        self.looks -= 1
        return (FileGroup("dt=2026-01-01", "f"),) if self.looks >= 0 else ()

    def delete(self, partitions: list[str]) -> str:
        self.deleted.append(partitions)
        return "20260310000000000"


class Made:
    """Savepoints that were made."""

    def __init__(self) -> None:
        self.comments: list[str] = []

    def create(self, comment: str, report: object) -> str:
        self.comments.append(comment)
        return "20260309000000000"


@pytest.mark.parametrize(("looks", "dropped"), [(2, [["dt=2026-01-01"]]), (1, [])])
def test_s12_what_another_run_has_dropped_meanwhile_is_not_dropped_again(
    looks: int, dropped: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timeline, "exists", lambda self: True)
    monkeypatch.setattr(Timeline, "properties", lambda self: {})
    monkeypatch.setattr(partition_ttl, "require_own_table", lambda pipeline, properties: None)
    client, savepoints = Client(looks), Made()
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        ttl = PartitionTtl(
            pipeline_of(tmp_path / "table", ttl={"days": 30}), ledger, client, cast(Savepoints, savepoints)
        )
        result = ttl.run(NOW, lambda line: None, savepoint=True)
    assert client.deleted == dropped
    assert len(savepoints.comments) == len(dropped)
    assert (result.instant is None) == (not dropped)


def test_without_the_setting_no_spark_is_started(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path, "nothing of the kind")
    with pytest.raises(ServiceRefused, match=r"add `table\.ttl`"):
        run_ttl(pipeline_of(tmp_path / "table"), home)
