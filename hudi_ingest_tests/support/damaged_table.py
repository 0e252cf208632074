"""A table of files alone, whose timeline looks as a power cut may leave it."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import TIMELINE
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.timeline_repair import repair_timeline

EARLIER, OURS, SERVICE, LATER = (f"202611231000{second}000" for second in ("00", "10", "20", "30"))


def avro_long(value: int) -> bytes:
    value, text = value << 1, b""
    while value > 0x7F:
        text, value = text + bytes([value & 0x7F | 0x80]), value >> 7
    return text + bytes([value])


def avro_file(content: bytes = b"a record") -> bytes:
    marker = bytes(range(16))
    header = b"Obj\x01" + avro_long(1) + avro_long(11) + b"avro.schema" + avro_long(2) + b"{}" + avro_long(0) + marker
    return header + avro_long(1) + avro_long(len(content)) + content + marker


def inflight_of(pipeline: str) -> bytes:
    plan = json.dumps({"transaction_id": "t2", "pipeline": pipeline}).encode()
    return avro_file(f"hudi_ingest.transaction.{pipeline}".encode() + avro_long(len(plan)) + plan)


class DamagedTable:
    """A table whose second transaction may be damaged; its files are an hour old."""

    def __init__(self, pipeline: Pipeline, ledger: Ledger) -> None:
        self.pipeline, self.ledger = pipeline, ledger
        self.storage = LocalStorage(pipeline.table.base_path)
        self.epoch = TableEpoch(self.storage)
        deadline = datetime.now(timezone.utc) + timedelta(minutes=5)
        plan = IngestPlan(pipeline.name, "t2", 2, (Slice("orders", 0, 10, 20),))
        self.epoch.advance(
            ledger.transactions.begin(
                plan, table=pipeline.table.base_path, owner=Owner.this_process(), deadline=deadline
            ),
            "t2",
        )
        ledger.transactions.record_instant("t2", OURS)
        self.put(f"{EARLIER}_{EARLIER}.commit", avro_file())
        self.put(f"{OURS}.commit.requested", b"")
        self.put(f"{OURS}.inflight", inflight_of(pipeline.name))

    def put(self, name: str, content: bytes, seconds_ago: float = 3600) -> Path:
        path = Path(self.storage.base_path, TIMELINE, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time.time() - seconds_ago,) * 2)
        return path

    def names(self, folder: str = TIMELINE) -> set[str]:
        return {name for name in self.storage.names(folder) if not name.startswith(".")}

    def repair(self) -> tuple[str, ...]:
        return repair_timeline(PipelineTable(self.pipeline), self.ledger)
