from __future__ import annotations

from dataclasses import replace

import pytest

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import LogFile, SliceReport
from hudi_ingest.transaction.checks import require_complete, shape_of
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast


def test_p8_ops_that_would_place_keys_in_other_buckets_are_not_of_one_transaction(write: Write) -> None:
    def shape(buckets: int) -> str:
        return shape_of(load(write, table__mode="upsert", table__key=["id"], table__buckets=buckets))

    assert shape(4) == shape(4) != shape(8)


def test_p4_a_log_file_is_published_with_the_reports_of_all_its_kafka_partitions_or_not_at_all() -> None:
    part = LogFile("", "00000000-x-0", ".00000000-x-0_1.log.1_0-0-1", 2, 1, 60, 0, 2, file_rows=5)
    other = replace(part, upserts=2, deletes=0, size_bytes=40, first_offset=7, last_offset=8)
    first = SliceReport(Slice("orders", 0, 0, 3), 0, rows=3, log_files=(part,))
    second = SliceReport(Slice("orders", 1, 7, 9), 0, rows=2, log_files=(other,))
    plan = IngestPlan("orders", "t1", 1, (first.slice, second.slice))
    require_complete(plan, [first, second])
    again = replace(second, attempt=1, log_files=(replace(other, path=".00000000-x-0_1.log.1_0-0-2"),))
    with pytest.raises(WriteIncomplete, match=r"log\.1_0-0-1 holds 5 rows .* have 3 of them.*run the op"):
        require_complete(plan, [first, again])
