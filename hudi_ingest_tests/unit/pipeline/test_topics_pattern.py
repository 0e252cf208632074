"""`source.topics_pattern`: what a file may say, and which topics it means."""

from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest_tests.support.pipeline_files import Write, load, problem

pytestmark = pytest.mark.fast

PATTERN: dict[str, Any] = {"source__topics": None, "source__topics_pattern": r"shop\..+"}


def test_k1_a_pattern_is_matched_against_the_whole_name_and_never_internal_topics(write: Write) -> None:
    source = load(write, **PATTERN).source
    names = ["shop.orders", "shop.", "myshop.orders", "shop.orders.v2", "__consumer_offsets"]
    assert [name for name in names if source.reads(name)] == ["shop.orders", "shop.orders.v2"]
    everything = load(write, source__topics=None, source__topics_pattern=".*").source
    assert [name for name in ("a", "__consumer_offsets", "_schemas") if everything.reads(name)] == ["a", "_schemas"]


def test_what_a_run_reads_is_a_plain_list(write: Write) -> None:
    pipeline = load(write, **PATTERN)
    reading = pipeline.reading(["shop.a", "shop.b"])
    assert (reading.source.topics, reading.source.topics_pattern) == (("shop.a", "shop.b"), None)
    assert (reading.rows_digest, reading.chain) == (pipeline.rows_digest, pipeline.chain)
    listed = load(write)
    assert listed.reading(["other"]) is listed


def test_a_wrong_pattern_is_refused_in_words(write: Write) -> None:
    def said(**changes: Any) -> str:
        return problem(write, **{**PATTERN, **changes})

    assert "source.topics: missing; list the topics, or set `topics_pattern`" in said(source__topics_pattern=None)
    assert "cannot be combined with `topics`" in said(source__topics=["orders"])
    assert "not a regular expression: " in said(source__topics_pattern="shop(")
    assert "does not match source.topics_pattern" in said(source__starting_offsets={"orders": {0: 1}})
    assert "a table is taken over with the topics" in said(table__take_over="hudi_streamer")
    letters = said(on_bad_record="dead_letter", dead_letters={"topic": "shop.dead"})
    assert "'shop.dead', which matches source.topics_pattern" in letters
    load(write, **PATTERN, source__starting_offsets={"shop.orders": {0: 1}})


def test_a_misspelt_topics_is_one_problem(write: Write) -> None:
    said = problem(write, source__topics=None, source__topcs=["orders"])
    assert "source.topcs: unknown key" in said and "did you mean topics?" in said
    assert "missing" not in said
