"""R4, H1: a file id tells its Kafka partition and first offset, and no two commits share one."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.file_groups import MAX_OFFSET, MAX_PARTITION, FileOrigin, decode, file_id

partitions = st.integers(0, MAX_PARTITION)
offsets = st.integers(0, MAX_OFFSET)
instants = st.integers(10**16, 10**17 - 1).map(str)


@given(st.text(), partitions, offsets, st.text(), instants)
def test_r4_decodes_to_partition_and_first_offset(
    topic: str, partition: int, offset: int, path: str, instant: str
) -> None:
    found = file_id(topic, partition, offset, path, instant)
    assert decode(found) == FileOrigin(partition, offset)
    assert decode(f"{found}_0-0-0_{instant}.parquet") == FileOrigin(partition, offset)
    assert re.fullmatch(r"[a-zA-Z0-9-]+", found), "Hudi's file names allow no other characters in a file id"
    assert uuid.UUID(found.removesuffix("-0")).version == 8
    assert found == file_id(topic, partition, offset, path, instant)


@given(partitions, offsets, instants, instants)
def test_f4_another_instant_topic_or_folder_is_another_id(partition: int, offset: int, one: str, two: str) -> None:
    first = file_id("orders", partition, offset, "dt=1", one)
    assert (first == file_id("orders", partition, offset, "dt=1", two)) == (one == two)
    assert first != file_id("payments", partition, offset, "dt=1", one)
    assert first != file_id("orders", partition, offset, "dt=2", one)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="partition 1048576"):
        file_id("t", MAX_PARTITION + 1, 0, "", "1")
    with pytest.raises(ValueError, match="does not fit"):
        file_id("t", 0, MAX_OFFSET + 1, "", "1")


def test_ids_of_other_writers_tell_nothing() -> None:
    assert decode(f"{uuid.uuid4()}-0") is None
    assert decode("no file id") is None
