"""Read Hudi's log files, by a decoder that shares nothing with the encoder."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

DELETES, AVRO, PARQUET = 1, 3, 5
_INSTANT, _SCHEMA = 0, 2


@dataclass(frozen=True)
class Block:
    """A block of a log file; of `rows` and `deletes` one is empty."""

    kind: int
    instant: str
    schema: str
    rows: pa.Table | None
    deletes: list[tuple[str, str, Any]]
    """Record key, table partition and ordering value."""


class _Bytes(io.BytesIO):
    def take(self, count: int) -> bytes:
        taken = self.read(count)
        assert len(taken) == count, "the file ends in the middle of a block"
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def long(self) -> int:
        shift = encoded = 0
        while True:
            byte = self.take(1)[0]
            encoded |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (encoded >> 1) ^ -(encoded & 1)

    def text(self) -> bytes:
        return self.take(self.long())


def read_log(content: bytes) -> list[Block]:
    """Read all blocks; the lengths must fit, and nothing may follow them."""
    data, blocks = _Bytes(content), []
    while data.tell() < len(content):
        start = data.tell()
        assert data.take(6) == b"#HUDI#"
        length = data.number(8)
        version, kind = data.number(4), data.number(4)
        assert version == 1
        header = {data.number(4): data.take(data.number(4)).decode() for _ in range(data.number(4))}
        body = _Bytes(data.take(data.number(8)))
        assert data.number(4) == 0, "no footer"
        assert data.tell() - start - 14 + 8 == length
        assert data.number(8) == length + 6
        rows = pq.read_table(body) if kind == PARQUET else _rows(body, header[_SCHEMA]) if kind == AVRO else None
        deletes = _deletes(body) if kind == DELETES else []
        blocks.append(Block(kind, header[_INSTANT], header[_SCHEMA], rows, deletes))
    return blocks


def _rows(data: _Bytes, schema: str) -> pa.Table:
    assert data.number(4) == 3
    parsed = fastavro.parse_schema(json.loads(schema))
    rows = []
    for _ in range(data.number(4)):
        datum = _Bytes(data.take(data.number(4)))
        rows.append(fastavro.schemaless_reader(datum, parsed, None))
        assert not datum.read(), "nothing follows a datum"
    assert not data.read(), "nothing follows the last row"
    return pa.Table.from_pylist(rows)


def _deletes(data: _Bytes) -> list[tuple[str, str, Any]]:
    assert data.number(4) == 3
    size = data.number(4)
    assert size == len(data.getvalue()) - 8
    found = []
    while count := data.long():
        for _ in range(count):
            assert data.long() == 1
            key = data.text().decode()
            assert data.long() == 1
            found.append((key, data.text().decode(), _ordering(data)))
    assert data.tell() == len(data.getvalue())
    return found


def _ordering(data: _Bytes) -> Any:
    """("int", 5), or a list of such."""
    branch = data.long()
    if branch == 12:
        assert data.long() == 1
        count = data.long()
        values = [_ordering(data) for _ in range(count)]
        assert data.long() == 0
        return values
    if branch == 7:
        return ("string", data.text().decode())
    if branch == 9:
        return ("decimal", Decimal(int.from_bytes(data.text(), "big", signed=True)).scaleb(-15, Context(prec=40)))
    assert branch == 3
    return ("long", data.long())
