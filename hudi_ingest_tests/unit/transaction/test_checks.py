from __future__ import annotations

import pytest

from hudi_ingest.transaction.checks import shape_of
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast


def test_p8_ops_that_would_place_keys_in_other_buckets_are_not_of_one_transaction(write: Write) -> None:
    def shape(buckets: int) -> str:
        return shape_of(load(write, table__mode="upsert", table__key=["id"], table__buckets=buckets))

    assert shape(4) == shape(4) != shape(8)
