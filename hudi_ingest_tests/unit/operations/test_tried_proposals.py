"""`hudi-ingest new`: what is proposed for the topics that people have, and what becomes of the sample with it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import FileExists
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.new_pipeline import Tried, file_text, new_file, tried
from hudi_ingest.operations.proposal import propose
from hudi_ingest.operations.sampled_values import Observed, SeenRecord
from hudi_ingest_tests.support.proposed_files import written

pytestmark = pytest.mark.fast

ROWS: list[dict[str, Any]] = [{"id": f"o-{n}", "n": n % 3, "amount": n * 1.5} for n in range(12)]


def as_json(rows: Sequence[Any]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def events(rows: Sequence[Any], with_schema: bool = False) -> list[bytes]:
    found = [{"before": None, "after": row, "op": "c", "source": {"lsn": 1}, "ts_ms": 1} for row in rows]
    schema = {"type": "struct", "fields": []}
    return as_json([{"schema": schema, "payload": each} for each in found] if with_schema else found)


def seen(values: Sequence[bytes], keys: Sequence[bytes] = ()) -> Observed:
    own: Sequence[bytes | None] = keys or [None] * len(values)
    records = [SeenRecord(f"t:0:{n}", key, value) for n, (key, value) in enumerate(zip(own, values, strict=True))]
    return Observed("t", 2, records)


def lines(*texts: str, count: int = 1) -> list[bytes]:
    return [text.encode() for text in texts] * count


READINGS = [f'2026-01-0{n}T00:00:00+00:00;plant-1;"pump {n}, hall 0";{20 + n}.34;OK;1' for n in range(1, 8)]
SENTENCE = "the values are text of no known structure"
AGENT = '"Mozilla/5.0 (X11; Linux x86_64) Safari/537.36"'
TEXTS_OF_THE_FIELD: dict[str, tuple[list[bytes], str, str]] = {
    "csv with semicolons and quotes that have commas": (
        lines(*READINGS),
        "csv",
        "c1 timestamp, c2 string, c3 string, c4 double, c5 string, c6 long",
    ),
    "tabs and a header": (
        lines("id\tunit name\tprice", *(f"{n}\tkg\t{n}.5" for n in range(6))),
        "csv",
        "id string NOT NULL, unit_name string, price string",
    ),
    "a header alone, and texts": (lines("name,colour", "pump,red", "valve,blue"), "csv", "c1 string, c2 string"),
    "log4j": (
        lines(*(f"2026-01-31 12:00:0{n},123 INFO [main] com.shop.Order accepted" for n in range(5))),
        "string",
        "value string",
    ),
    "syslog with a comma": (
        lines(*(f"Jan 31 12:00:0{n} host app[12]: accepted {n}, rejected none at all" for n in range(5))),
        "string",
        "value string",
    ),
    "a sentence with two commas": (
        lines(*(f"order {n} came, was paid, and left" for n in range(5))),
        "string",
        "value string",
    ),
    "nginx with one agent": (
        lines(
            *(f'10.0.0.{n} - - [31/Jan/2026:12:00:0{n} +0000] "GET / HTTP/1.1" 200 612 "-" {AGENT}' for n in range(5))
        ),
        "string",
        "value string",
    ),
    "arrays": ([b'[{"id": 0}, {"id": -1}]'] * 5, "string", "value string"),
    "numbers": (lines("1", "2", "30"), "string", "value string"),
    "one pipe in some": (lines("a|b", "c", "d|e|f"), "string", "value string"),
}


@pytest.mark.parametrize("name", TEXTS_OF_THE_FIELD)
def test_texts_are_csv_only_if_the_reader_of_csv_reads_them_and_they_are_no_prose(name: str, tmp_path: Path) -> None:
    topic, kind, columns = TEXTS_OF_THE_FIELD[name]
    observed = seen(topic)
    proposal = propose(observed)
    assert (proposal.source.get("format"), proposal.table["schema"]) == (kind, columns)
    header = name == "tabs and a header"
    count = len(observed.records)
    assert tried(written(proposal), tmp_path, observed.records) == Tried(count, count - header)
    if header:
        assert proposal.transforms == [
            {"filter": {"field": "id", "op": "!=", "value": "id"}},
            {"cast": {"id": "long", "price": "double"}},
        ]


NAMED = {
    "@timestamp": "2026-01-31T12:00:00Z",
    "http.status": 200,
    "user-id": "u",
    "1st": True,
    "ok": "x",
    "user_id": "v",
}


def test_names_that_no_column_can_have_are_renamed(tmp_path: Path) -> None:
    observed = seen(as_json([NAMED] * 3))
    proposal = propose(observed)
    assert proposal.table["schema"] == (
        "`@timestamp` timestamp, `http.status` long, `user-id` string, `1st` boolean, ok string, user_id string"
    )
    names = {"@timestamp": "timestamp", "http.status": "http_status", "user-id": "user_id_2", "1st": "c_1st"}
    assert proposal.transforms == [{"rename": names}]
    assert proposal.table["partition_by"] == ["day(timestamp)"]
    assert any("`@timestamp` → timestamp" in note for note in proposal.notes)
    assert tried(written(proposal), tmp_path, observed.records) == Tried(3, 3)


def test_a_field_that_no_type_holds_is_left_out_with_a_note_and_the_others_stay(tmp_path: Path) -> None:
    rows = [
        {
            "id": n,
            "mixed": n if n % 2 else "x",
            "at": {"ok": 1, "bad": [1] if n else "y", "user-id": 1},
            "nothing": {},
            "list": [{"a": 1}],
        }
        for n in range(6)
    ]
    observed = seen(as_json(rows))
    proposal = propose(observed)
    assert proposal.table["schema"] == "id long, at struct<ok:long>, list array<struct<a:long>>"
    left_out = {found[1] for note in proposal.notes if (found := re.match(r"`(\S+)` is left out", note))}
    assert left_out == {"mixed", "at.bad", "at.user-id", "nothing"}
    assert tried(written(proposal), tmp_path, observed.records) == Tried(6, 6)


def test_columns_are_required_where_a_large_sample_has_no_null_and_stand_in_lines_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"id": n, "at": "2026-01-31T12:00:00Z", "note": None if n == 50 else "x", "lines": [{"price": "1.50"}]}
        for n in range(120)
    ]
    observed = seen(as_json(rows))
    proposal = propose(observed)
    assert proposal.table["schema"] == (
        "id long NOT NULL, at timestamp NOT NULL, note string, lines array<struct<price:decimal(18,2)>> NOT NULL"
    )
    assert proposal.table["partition_by"] == ["day(at)"]
    text = file_text({"name": "t", "table": proposal.table}, proposal)
    assert "  schema: |\n    id long NOT NULL,\n    at timestamp NOT NULL,\n    note string,\n    lines array" in text
    assert tried(written(proposal), tmp_path, observed.records) == Tried(120, 120)


def test_small_partitions_and_numbers_that_are_times_are_said() -> None:
    rows = [{"day": f"2026-01-{n % 28 + 1:02}", "ts": 1_767_225_600_000 + n, "n": n} for n in range(60)]
    proposal = propose(replace(seen(as_json(rows)), count=60_000))
    assert proposal.table["partition_by"] == ["day"]
    assert any("many small files" in note for note in proposal.notes)
    assert "`timestamp: {fields: [ts], format: epoch_millis}`" in proposal.reasons["schema.ts"]
    assert "since 1970" not in proposal.reasons["schema.n"]
    large = propose(replace(seen(as_json(rows)), count=600_000_000))
    assert not any("small files" in note for note in large.notes)
    changes = [{"id": n, "created_at": 1_767_225_600_000_000 + n, "birthday": 7_000 + n, "stock": n} for n in range(12)]
    plain = propose(seen(events(changes), as_json([{"id": n} for n in range(12)])))
    assert any(
        "created_at (microseconds), birthday (days)." in note and "schemas.enable" in note for note in plain.notes
    )
    assert "schema.created_at" in plain.reasons
    assert not propose(seen(events(changes, True), as_json([{"id": n} for n in range(12)]))).notes[1:]


def test_an_existing_name_is_refused_before_a_broker_is_asked(tmp_path: Path) -> None:
    home = Home.from_environment({"HUDI_INGEST_HOME": str(tmp_path), "HUDI_INGEST_PIPELINES": str(tmp_path / "files")})
    home.pipelines.mkdir(parents=True)
    (home.pipelines / "payments.yaml").write_text("name: payments\n")
    with pytest.raises(FileExists, match="payments has a file already"):
        new_file("payments", home, "127.0.0.1:1", None)


def test_a_file_that_makes_the_sample_bad_is_seen(tmp_path: Path) -> None:
    observed = seen(as_json(ROWS))
    settings = written(propose(observed))
    settings["table"]["schema"] = "id string, n string"
    outcome = tried(settings, tmp_path, observed.records)
    assert outcome.bad == len(ROWS)
    assert outcome.text.startswith(
        "0 of 12 sampled records become rows, 12 are bad, such as t:0:0 field n: expected string"
    )
