"""Offsets that other tools left in a table's commits, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.hudi.other_writers import OtherWriter, other_writer
from hudi_ingest.transaction import require_not_foreign
from hudi_ingest_tests.support.pipeline_files import Write, load


@pytest.mark.parametrize(
    ("metadata", "found", "starting"),
    [
        (
            {"streamer.checkpoint.key.v2": "orders,0:12,10:9"},
            OtherWriter("Hudi Streamer", "orders", {0: 12, 10: 9}),
            "{orders: {0: 12, 10: 9}}",
        ),
        (
            {"deltastreamer.checkpoint.key": "orders,0:12"},
            OtherWriter("Hudi Streamer", "orders", {0: 12}),
            "{orders: {0: 12}}",
        ),
        ({"deltastreamer.checkpoint.key": "other,0:12"}, OtherWriter("Hudi Streamer", "other", {0: 12}), ""),
        ({"streamer.checkpoint.key.v2": "1700000000000"}, OtherWriter("Hudi Streamer", "1700000000000"), ""),
        (
            {"kafka.commit.offsets": "0=12,1=9"},
            OtherWriter("the Hudi sink of Kafka Connect", "", {0: 12, 1: 9}),
            "{orders: {0: 12, 1: 9}}",
        ),
        ({"_hudi_streaming_sink_checkpoint": '{"query": "7"}'}, OtherWriter("Spark Structured Streaming"), ""),
    ],
)
def test_x6_each_tools_offsets_are_read(metadata: dict[str, str], found: OtherWriter, starting: str) -> None:
    assert other_writer([{}, metadata, {"streamer.checkpoint.key.v2": "orders,0:1"}]) == found
    assert found.starting_offsets(["orders"]) == starting


def test_x6_a_table_of_nobody_we_know_says_nothing() -> None:
    assert other_writer([]) is None
    assert other_writer([{"schema": "{}"}]) is None


def test_x6_the_refusal_says_whose_table_it_is_and_how_to_go_on(write: Write, tmp_path: Path) -> None:
    pipeline = load(write)
    with pytest.raises(TableMismatch) as refused:
        require_not_foreign(pipeline, {}, lambda: other_writer([{"streamer.checkpoint.key.v2": "orders,0:12"}]))
    said = str(refused.value)
    assert "was written by Hudi Streamer" in said
    assert "source.starting_offsets: {orders: {0: 12}}" in said
    with pytest.raises(TableMismatch, match="its offsets are in the checkpointLocation of its query"):
        require_not_foreign(pipeline, {}, lambda: other_writer([{"_hudi_streaming_sink_checkpoint": "{}"}]))
    require_not_foreign(pipeline, {}, lambda: None)
    require_not_foreign(pipeline, {"hudi_ingest.pipeline": "other"}, lambda: OtherWriter("nobody asks"))
