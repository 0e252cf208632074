"""Buckets of record keys, as `BucketIdentifier.getBucketId` of Hudi 1.2.0 returned them for 1,000,003 buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.buckets import bucket_ids

MANY = 1_000_003
HUDIS: list[tuple[list[str], str, int]] = [
    (["id"], "", 31),
    (["id"], "a", 128),
    (["id"], "o-1", 108146),
    (["id"], "42", 1693),
    (["id"], "-7", 1481),
    (["id"], "ä", 259),
    (["id"], "漢字", 905364),
    (["id"], "😀", 772927),
    (["id"], "a😀b", 849554),
    (["id"], "x,y", 116836),
    (["id"], "x:y", 117270),
    (["id"], "2014-10-22 13:50:42", 890061),
    (["id"], "x,y:z", 251220),
    (["id"], "id:5,x", 52448),
    (["id"], ",:", 1453),
    (["id"], ":,", 1873),
    (["id"], "id:,", 75),
    (["id"], "a:b,c", 404814),
    (["id"], "üüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü", 854510),
    (["id"], "__null__", 821906),
    (["id"], "__empty__", 918148),
    (["id"], "id:__null__,x", 536728),
    (["a", "b"], "a:1,b:x", 2600),
    (["a", "b"], "a:__null__,b:x", 1081),
    (["a", "b"], "a:1,b:__empty__", 2480),
    (["a", "b"], "a:1,b:2014-10-22 13:50:42", 892510),
    (["a", "b"], "a:x,y,b:z", 622029),
    (["a", "b"], "a:x:y,b:z", 635483),
    (["a", "b"], "a:,b:", 961),
    (["a", "b"], "a:1,2,b:3:4,5", 383242),
    (["a", "b"], "a:1,b:x,y", 119285),
    (["a", "b"], "a:😀,b:漢", 989118),
    (["a", "b"], "a:b:1,b:a:2", 72792),
    (["a", "b"], "a:1,b:__null__", 2480),
    (["a", "b"], "b:1,a:2", 2530),
    (["a", "b", "c"], "a:1,b:2,c:3", 78481),
    (["a", "b", "c"], "a:1,b:x:y,z,c:,", 302356),
    (["a", "b", "c"], "a:__null__,b:__empty__,c:1", 29840),
    (["a", "b", "c"], "a:c,b:c,c:a", 128096),
]


def java_hash(text: str) -> int:
    hashed = 0
    for unit in np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2").tolist():
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed


@pytest.mark.parametrize(("columns", "key", "bucket"), HUDIS)
def test_a_key_is_in_the_bucket_where_hudi_looks_for_it(columns: list[str], key: str, bucket: int) -> None:
    # Beside others, and in a slice, so that it does not begin where the array does.
    keys = pa.array(["x", key, "y:1,"]).slice(1)
    assert bucket_ids(keys, columns, MANY)[0] == bucket


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(1, 1000))
def test_a_key_of_one_column_is_hashed_as_java_does(keys: list[str], buckets: int) -> None:
    plain = [key.replace(",", ";") for key in keys]
    expected = [((31 + java_hash(key)) & 0x7FFFFFFF) % buckets for key in plain]
    assert bucket_ids(pa.array(plain, pa.string()), ["id"], buckets).tolist() == expected


def test_a_key_that_hudi_cannot_parse_has_a_bucket() -> None:
    key = "a:b:c,d"
    assert bucket_ids(pa.array([key]), ["id"], MANY).tolist() == [((31 + java_hash(key)) & 0x7FFFFFFF) % MANY]
