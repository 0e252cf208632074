"""A selection is read by the same rules, and refused in the same words, whichever surface it comes from."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.operations.requests.asked_ranges import (
    EmptyRange,
    Names,
    OffsetRange,
    Selection,
    WrongSelection,
    iso_time,
    named_time,
    select,
)
from hudi_ingest.orchestration.jobs.request_jobs import BackfillConfig, RangeConfig, ReplayConfig, _selected
from hudi_ingest.rest.models import BackfillBody, ReplayBody
from hudi_ingest_tests.support.pipeline_files import Write, load

NAMES = Names("a; b; c", "partition", "start", "end", "from", "to", "ranges[{}]: ")
KEYED: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]}
P0 = TopicPartition("orders", 0)
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
LATER = datetime(2026, 1, 31, 13, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"ranges": [(P0, 3, 9)]}, Selection((OffsetRange(P0, 3, 9),))),
        ({"from_time": NOON, "to_time": LATER}, Selection(from_time=NOON, to_time=LATER)),
        ({"read_by": "t-1"}, Selection(read_by="t-1")),
    ],
)
def test_a_selection_is_made_in_exactly_one_way(write: Write, given: dict[str, Any], found: Selection) -> None:
    pipeline = load(write)
    assert select(NAMES, pipeline, **given) == found
    other = {"read_by": "t-2"} if "ranges" in given else {"ranges": [(P0, 3, 9)]}
    for wrong in ({}, given | other):
        with pytest.raises(WrongSelection, match=r"^give one of: a; b; c$"):
            select(NAMES, pipeline, **wrong)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranges": [(P0, 3, 9), (P0, 3, None)]}, "ranges[1]: partition, start and end go together"),
        ({"from_time": NOON}, "from and to go together; a keyed table needs no to"),
    ],
)
def test_only_a_keyed_table_needs_no_end(write: Write, given: dict[str, Any], words: str) -> None:
    assert select(NAMES, load(write, **KEYED), **given)
    with pytest.raises(WrongSelection) as told:
        select(NAMES, load(write), **given)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranges": [(None, 3, 9)]}, "ranges[0]: partition, start and end go together"),
        ({"ranges": [(P0, None, 9)]}, "ranges[0]: partition, start and end go together"),
        ({"ranges": [(P0, -1, 9)]}, "ranges[0]: start must be 0 or more; found -1"),
        ({"ranges": [(P0, 9, 9)]}, "ranges[0]: start 9 is not before end 9"),
        ({"from_time": LATER, "to_time": NOON}, "from 2026-01-31 13:00:00+00:00 is not before to"),
        ({"to_time": NOON}, "from and to go together"),
    ],
)
def test_a_wrong_selection_names_its_part(write: Write, given: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongSelection) as told:
        select(NAMES, load(write, **KEYED), **given)
    assert words in str(told.value)
    assert isinstance(told.value, EmptyRange) == ("is not before" in words)


def test_a_time_is_iso_8601_with_a_time_zone() -> None:
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00.000000000+01:00", "2026-01-31 12:00+00:00"):
        assert named_time("from", text) == NOON
    assert named_time("from", None) is None
    for text in ("yesterday", "2026-01-31", "2026-01-31T12:00:00", "1769860800", ""):
        with pytest.raises(WrongSelection, match=r"^from expects ISO 8601 with a time zone, .* found "):
            named_time("from", text)
    with pytest.raises(ValueError, match="found 1769860800"):
        iso_time(1769860800)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ReplayConfig(), "give one of: `ranges`; `from_time` and `to_time`; `transaction` (replay only)"),
        (BackfillConfig(from_time="today"), "`from_time` expects ISO 8601 with a time zone"),
        (BackfillConfig(from_time="2026-01-31T12:00:00Z"), "`from_time` and `to_time` go together"),
        (
            BackfillConfig(ranges=[RangeConfig(topic="orders", partition=0, start=3)]),
            "ranges[0]: `partition`, `start` and `end` go together; a keyed table needs no `end`",
        ),
        (
            BackfillConfig(ranges=[RangeConfig(topic="orders", partition=0, start=3, end=3)]),
            "ranges[0]: `start` 3 is not before `end` 3",
        ),
    ],
)
def test_the_launchpad_refuses_a_wrong_config_before_anything_is_asked_of_a_broker(
    write: Write, config: BackfillConfig | ReplayConfig, words: str
) -> None:
    with pytest.raises(ConfigError) as told:
        _selected(load(write), config)
    assert words in str(told.value)


def test_rest_reads_the_same_selection_from_its_bodies(write: Write) -> None:
    keyed, appended = load(write, **KEYED), load(write)
    body = BackfillBody.model_validate({"offsets": {"topic": "orders", "partition": 0, "start": 3}})
    with pytest.raises(WrongSelection, match=r"^partition, start and end go together; a keyed table needs no end$"):
        body.selection(appended)
    assert body.selection(keyed) == Selection((OffsetRange(P0, 3, None),)), "up to the committed offset"
    times = {"start": "2026-01-31T12:00:00Z", "end": "2026-01-31T13:00:00Z"}
    assert BackfillBody.model_validate({"times": times}).selection(appended) == Selection(from_time=NOON, to_time=LATER)
    replay = ReplayBody.model_validate({"transaction": "t-1"})
    assert replay.selection(appended, replay.transaction) == Selection(read_by="t-1")
