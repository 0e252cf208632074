"""The compiled JSON kernel alone: what it proves is the exact path's, it proves what topics hold, and it stays inside its buffers."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import mmap
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.converter import Mismatch
from hudi_ingest.records.convert.json import converter as json_fast
from hudi_ingest.records.convert.json.converter import FastPath, JsonConverter
from hudi_ingest.records.convert.json.exact import RecordReader
from hudi_ingest.records.convert.json.kernel import columns
from hudi_ingest_tests.support.outcomes import outcome
from hudi_ingest_tests.unit.records.convert.test_json import RELAXED, corrupted, objects, schemas, values_of, written


def proved(schema: pa.Schema, values: pa.BinaryArray) -> list[bool]:
    """Which values the kernel proves, after a look at their rows: they are the exact path's, to the sign of a zero."""
    found = FastPath(schema).read(values)
    which = [True] * len(values) if found.which is None else found.which.tolist()
    reader, rows = RecordReader(schema), []
    for text in itertools.compress(values.to_pylist(), which):
        try:
            rows.append(reader.read(text))
        except Mismatch:
            pytest.fail(f"not a row of {schema}: {text!r}")
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    expected = pa.RecordBatch.from_arrays(columns, schema=schema)
    found.rows.validate(full=True)
    assert repr(found.rows.to_pylist()) == repr(expected.to_pylist())
    assert found.rows.equals(expected, check_metadata=True)
    return which


POINT = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.float64())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("größe", pa.string()),
        pa.field("a name that is longer than a block", pa.decimal128(38, 18)),
        pa.field("point", POINT),
        pa.field("points", pa.list_(POINT)),
        pa.field("counts", pa.map_(pa.string(), pa.int16())),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("amount", pa.float64()),
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        '{"id":1,"größe":"ü","at":"2026-11-23T10:00:00.123Z","amount":24.53}',
        '{"amount":1,"at":null,"größe":"a\\n\\"b\\" \\u00fc \\ud83d\\ude00","id":1}',
        '{"id":1,"gr\\u00f6\\u00dfe":"x","a name that is longer than a block":"123456789012345678.123456789012345678"}',
        '{"id":1,"a name that is longer than a block":1.5,"not declared and longer than a block, too":1}',
        ' {\n "id" : 1 ,\t"points" : [ { "x" : 1 , "y" : 2 } , null , { "x" : 2 } ] }\r\n',
        '{"id":1,"point":{"y":1e22,"x":-5},"counts":{"a":1,"b":null,"":3},"points":[]}',
        '{"id":1,"z":{"z":[1,-2.5E+3,true,false,null,NaN,-Infinity,"\\ud800 \\u12ab",{},[]],"z":1}}',
        '{"id":1,"amount":0.1000000000000000055511151231257827021181583404541015625}',
        '{"id":1,"amount":-52.520006599999997,"größe":"%s"}' % ("long ü" * 1000),
    ],
)
def test_it_proves_what_topics_hold(text: str) -> None:
    assert proved(SCHEMA, values_of([text, text])) == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":1,"id":1}',
        '{"id":1,"\\u0069d":1}',
        '{"id":1,"größe":"\\ud800"}',
        '{"id":1,"größe":"\\ude00\\ud83d"}',
        '{"id":1,"counts":{"a":1,"\\u0061":1}}',
        '{"id":null}',
        "{}",
        '{"id":1,"point":{"y":1}}',
        '{"id":1} {}',
        '{"id":1,"z":%s}' % ("[" * 70 + "]" * 70),
        '{"id":1,"%s":1}' % ("z" * 2000),
    ],
)
def test_what_it_leaves_to_the_exact_path_leaves_no_trace(text: str) -> None:
    good = '{"id":2,"größe":null,"points":[{"x":1}],"counts":{"k":1}}'
    assert proved(SCHEMA, values_of([good, text, good])) == [True, False, True]


def test_a_record_that_fails_late_leaves_no_trace() -> None:
    late = '{"größe":"x","point":null,"points":[{"x":1},null],"counts":{"k":null},"at":null,"id":"x"}'
    good = '{"id":2,"größe":"y","point":{"x":1},"points":[{"x":2}],"counts":{"k":1},"at":"2026-01-01"}'
    assert proved(SCHEMA, values_of([late, good, late, late, good])) == [False, True, False, False, True]


def test_there_is_room_for_what_nothing_foretold() -> None:
    small, large = '{"id":%d,"points":[]}', '{"id":%d,"größe":"%s","points":[%s],"counts":{%s}}'
    chance, texts = random.Random(1), []
    for number in range(400):
        if number > 70 and chance.random() < 0.2:
            size = chance.randrange(300)
            keys = ",".join(f'"{key}":{key}' for key in range(size))
            texts.append(large % (number, "x" * size * 10, ",".join(['{"x":1}'] * size * 3), keys))
        else:
            texts.append(small % number)
    assert all(proved(SCHEMA, values_of(texts)))


def numbers(chance: random.Random) -> list[str]:
    texts = []
    for _ in range(300):
        double = struct.unpack("d", struct.pack("Q", chance.randrange(0x7FE << 52)))[0]
        middle = (Decimal(double) + Decimal(math.nextafter(double, math.inf))) / 2
        single = struct.unpack("f", struct.pack("I", chance.randrange(0x7F800000)))[0]
        digits = str(chance.randrange(10 ** chance.randrange(1, 42)))
        point = chance.randrange(len(digits))
        texts += [
            repr(double),
            f"{middle:.{chance.randrange(15, 40)}e}",
            repr(chance.uniform(-1000, 1000)),
            f"{Decimal(single)}".replace("E", "e"),
            f"{digits[:point].lstrip('0') or '0'}.{digits[point:]}",
            f"-{digits.lstrip('0') or '0'}",
            f"{chance.randrange(1 << 63)}e{chance.randrange(-345, 310)}",
            f"0.{'0' * chance.randrange(40)}{digits}",
            str(2**63 + chance.randrange(-2, 2)),
        ]
    return texts


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.int64(), pa.decimal128(38, 18), pa.decimal128(20, 4)])
def test_numbers_are_the_nearest_or_doubtful(type_: pa.DataType) -> None:
    texts = numbers(random.Random(5))
    which = proved(pa.schema([("a", type_)]), values_of([f'{{"a":{text}}}' for text in texts]))
    if pa.types.is_float64(type_):
        assert sum(which) > 0.7 * len(texts), (
            "only numbers halfway between two floats, and some denormal ones, are doubtful"
        )


# ---- Memory


class Guarded:
    """Bytes behind which there is a page that nobody may read or write."""

    def __init__(self, size: int) -> None:
        pages = -(-size // mmap.PAGESIZE)
        self._map = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._guard = self._begin + pages * mmap.PAGESIZE
        self.address = self._guard - size
        self._protect(mmap.PROT_READ & 0)

    def _protect(self, allowed: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._guard), ctypes.c_size_t(mmap.PAGESIZE), allowed):
            raise OSError(ctypes.get_errno(), "mprotect")

    def __del__(self) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)

    def buffer(self, size: int) -> pa.Buffer:
        memory = (ctypes.c_char * size).from_address(self.address)
        memory.guarded = self  # type: ignore[attr-defined]
        return pa.py_buffer(memory)


def guarded(messages: Sequence[bytes]) -> pa.BinaryArray:
    values, data = pa.array(messages, pa.binary()), b"".join(messages)
    bytes_ = Guarded(len(data)).buffer(len(data))
    np.frombuffer(bytes_, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, values.buffers()[1], bytes_])


@pytest.mark.skipif(sys.platform != "linux", reason="guards its memory by Linux's means")
@RELAXED
@given(st.data(), st.integers(0, 2**32))
def test_random_bytes_never_lead_it_out_of_its_memory(data: st.DataObject, seed: int) -> None:
    schema = data.draw(schemas(maps=True))
    records = data.draw(st.lists(objects(list(schema)), min_size=1, max_size=5))
    chance = random.Random(seed)
    form = written(chance.random() < 0.3, chance.random() < 0.5, chance.random() < 0.5)
    good = [form(record).encode() for _, record in records]
    own = SimpleNamespace(**vars(pa))
    own.allocate_buffer = lambda size: Guarded(size).buffer(size)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "pa", own)
        patched.setattr(columns, "_FIRST_ITEMS", 1)
        # So little room that the kernel stops for more again and again.
        patched.setattr(columns, "_SPARE", 0.01)
        patched.setattr(json_fast, "_PROBED", 1)
        proved(schema, guarded(good * chance.randrange(1, 40)))
        proved(schema, guarded(corrupted(good, chance)))
        proved(schema, guarded([message[: chance.randrange(len(message) + 1)] for message in good]))


# ---- Loading


def test_few_records_do_without_a_compiler_and_many_do_not() -> None:
    code = """
import pickle, sys
converter, values = pickle.load(sys.stdin.buffer)
converter.decode(values.slice(0, 10))
few = "numba" in sys.modules
converter.decode(values)
sys.stdout.buffer.write(pickle.dumps((few, "numba" in sys.modules, converter.decode(values))))
"""
    values = values_of([json.dumps({"id": number, "größe": "x" * 100}) for number in range(3000)])
    asked = pickle.dumps((JsonConverter(SCHEMA), values))
    few, many, decoded = pickle.loads(
        subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True, check=True).stdout
    )
    assert (few, many) == (False, True)
    assert decoded == JsonConverter(SCHEMA).decode(values)


def test_names_that_json_escapes_are_read_exactly() -> None:
    schema = pa.schema([pa.field('a"', pa.int64()), pa.field("b", pa.string())])
    values = values_of([json.dumps({'a"': 1, "b": "x"}), '{"a":1,"b":"y"}'])
    decoded = JsonConverter(schema).decode(values)
    assert outcome(decoded, 2, schema)
    rows: list[dict[str, Any]] = decoded.rows.to_pylist()
    assert rows == [{'a"': 1, "b": "x"}, {'a"': None, "b": "y"}]
