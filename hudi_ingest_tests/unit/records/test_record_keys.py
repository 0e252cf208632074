"""X6: record keys as Hudi's key generators make them; the integration tests compare with Hudi's own rows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.hudi_keys import ambiguous, keyless, record_keys

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


PARTS = st.lists(st.sampled_from(["", "a", "b", ",", ":", ",b:", ",a:", "__empty__", "__", "empty__", "1"]), max_size=4)
TEXTS = PARTS.map("".join)


@given(keys=st.sets(st.tuples(TEXTS, TEXTS, TEXTS), min_size=2, max_size=40))
def test_x6_keys_that_are_not_refused_as_ambiguous_are_told_apart(keys: set[tuple[str, str, str]]) -> None:
    names = ["a", "b", "a_"]
    rows = pa.table([pa.array(column, pa.string()) for column in zip(*keys, strict=True)], names=names)
    refused = {row for _, _, wrong in ambiguous(rows, names) for row, flag in enumerate(wrong.to_pylist()) if flag}
    texts = record_keys(rows, names).to_pylist()
    kept = [text for row, text in enumerate(texts) if row not in refused]
    assert len(set(kept)) == len(kept)


def test_x6_only_a_text_that_makes_another_keys_text_is_ambiguous() -> None:
    rows = pa.table({"a": ["1,b:2", "1", "", "__empty__", "x,y:z", None], "b": ["3", "2,b:3", "n", "n", ",a:", "1"]})
    found = {
        name + str(flags.to_pylist().index(True))
        for name, _, flags in ambiguous(rows, ["a", "b"])
        if any(flags.to_pylist())
    }
    assert found == {"a0", "a3"}
    assert not any(ambiguous(rows, ["a"]))
