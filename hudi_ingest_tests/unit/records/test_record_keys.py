"""X6: record keys as Hudi's key generators make them; the integration tests compare with Hudi's own rows."""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.records.record_keys import keyless, record_keys

ROWS = pa.table(
    {"a": ["x", None, "", "", None], "n": pa.array([1, 2, None, 4, None], pa.int64())},
    schema=pa.schema([("a", pa.string()), ("n", pa.int64())]),
)


def test_x6_a_single_column_is_the_key_itself_and_several_are_named() -> None:
    assert record_keys(ROWS, ["n"]).to_pylist()[:2] == ["1", "2"]
    assert record_keys(ROWS, ["a", "n"]).to_pylist()[:4] == [
        "a:x,n:1",
        "a:__null__,n:2",
        "a:__empty__,n:__null__",
        "a:__empty__,n:4",
    ]


def test_x6_a_row_whose_key_columns_are_all_null_or_empty_has_no_key() -> None:
    assert keyless(ROWS, ["a"]).to_pylist() == [False, True, True, True, True]
    assert keyless(ROWS, ["a", "n"]).to_pylist() == [False, False, True, False, True]
