"""The frame around every fast path: each value comes out once, in its place, however the fast path doubts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.converter import Mismatch
from hudi_ingest.records.convert.fast_path import Doubt, Limits, Proved, decode_in_pieces, record_by_record
from hudi_ingest_tests.support.outcomes import outcome

SCHEMA = pa.schema([pa.field("value", pa.binary(), False)])


@dataclass
class Paths:
    """b"bad" is no row, and whatever begins with d is in doubt; the fast path proves no value with a p."""

    tried: list[int] = field(default_factory=list)
    """Values in each piece that the fast path was given."""

    def fast(self, values: pa.BinaryArray) -> Proved:
        self.tried.append(len(values))
        texts = values.to_pylist()
        if any(text == b"bad" or text.startswith(b"d") for text in texts):
            raise Doubt
        which = np.array([b"p" not in text for text in texts], np.bool_)
        rows = pa.RecordBatch.from_arrays([values.filter(pa.array(which))], schema=SCHEMA)
        return Proved(rows, None if which.all() else which)

    def exact(self, value: bytes) -> dict[str, bytes]:
        if value == b"bad":
            raise Mismatch("another", "this")
        return {"value": value}


@given(
    st.lists(st.sampled_from([b"", b"good", b"partly", b"doubted", b"bad"]), max_size=12),
    st.sampled_from([0, 300, 700]),
    st.builds(
        Limits, rows=st.sampled_from([1, 50, 10_000]), bytes=st.sampled_from([1, 500, 10_000]), doubts=st.integers(0, 5)
    ),
)
def test_every_value_comes_out_in_its_place(some: list[bytes], others: int, limits: Limits) -> None:
    texts = [*some, *(b"%d" % number for number in range(others)), *some]
    paths, values = Paths(), pa.array(texts, pa.binary())
    decoded = decode_in_pieces(SCHEMA, values, paths.fast, record_by_record(SCHEMA, paths.exact), limits)
    alone = decode_in_pieces(SCHEMA, values, None, record_by_record(SCHEMA, paths.exact))
    assert outcome(decoded, len(texts), SCHEMA) == outcome(alone, len(texts), SCHEMA)
    assert [rejected.index for rejected in decoded.rejected] == [i for i, text in enumerate(texts) if text == b"bad"]
    assert all(rows == 1 or rows <= limits.rows for rows in paths.tried)


def test_a_batch_of_doubtful_records_is_not_tried_piece_by_piece_to_its_end() -> None:
    paths, values = Paths(), pa.array([b"doubted"] * 16_000, pa.binary())
    decode_in_pieces(SCHEMA, values, paths.fast, record_by_record(SCHEMA, paths.exact), Limits(doubts=2))
    assert paths.tried == [16_000, 1_000, 63, 63, 1_000, 63, 63]
