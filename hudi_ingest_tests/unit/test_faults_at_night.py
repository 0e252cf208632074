"""Faults that an operator meets at night, with messages, docs/by-symptom.md and docs/operations.md alone: each is named, with a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from hudi_ingest_tests.support.symptoms_page import render

DOCS = Path(__file__).parents[2] / "docs"
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """`message`: words of one row of by-symptom.md; `operations`: of one row of operations.md, or of the page that it leads to. `proved_by`:
    the test in which the real fault makes the message."""

    message: tuple[str, ...]
    operations: tuple[str, ...]
    proved_by: tuple[str, str]
    page: str = "operations.md"


FAULTS = {
    "a token of S3 has expired": Fault(
        # The store's errors are a list of their own: storage.py has the sentence.
        (),
        ("expired token", "correct `table.storage`"),
        ("unit/hudi/test_store_errors.py", "test_an_error_of_the_store_says_what_to_do"),
        "object-stores.md",
    ),
    "the broker was restored from an older copy": Fault(
        ("or was restored from an older copy", "`hudi-ingest status` names the commands"),
        ("hudi-ingest accept-loss", "=divergence", "where the logs part"),
        ("kafka/test_cut_logs.py", "test_p1_a_log_is_recognized_after_a_restart_and_not_after_the_restore_of_a_copy"),
    ),
    "the disk is full in a commit": Fault(
        ("Its disk is full", "df -h", "df -i", "sweep"),
        ("The first try failed", "No space left on device", "df -i", "sweep"),
        ("unit/hudi/test_java_errors.py", "test_p6_a_full_disk_in_a_commit_is_named_with_what_to_do"),
    ),
    "the engine's JVM was killed for its memory": Fault(
        ("was killed from outside (SIGKILL)", "dmesg", "smaller --memory"),
        ("was killed from outside (SIGKILL)", "dmesg", "smaller `--memory`"),
        ("unit/spark/test_spark_start.py", "test_an_engine_that_was_killed_does_not_get_a_larger_heap"),
    ),
    "Dagster's daemon hangs": Fault(
        ("Dagster's daemon (pid …) hangs", "`hudi-ingest up` replaces it"),
        ("(pid …) hangs", "`hudi-ingest up`", "ends that process"),
        ("e2e/test_stack_repair.py", "test_p5_up_replaces_a_part_of_dagster_that_hangs_and_status_names_it"),
    ),
    "the ledger's PostgreSQL is read-only": Fault(
        ("The server is read-only", "HUDI_INGEST_LEDGER_URL", "target_session_attrs=read-write"),
        ("The server is read-only", "failed over", "HUDI_INGEST_LEDGER_URL"),
        ("unit/ledger/test_postgresql.py", "test_p5_a_read_only_server_is_named_and_left_at_the_next_call"),
    ),
    "the metadata table has lost a commit": Fault(
        ("hides rows that are committed", "recover … --metadata-table"),
        ("hides rows that are committed", "recover PIPELINE --metadata-table"),
        (
            "integration/test_hidden_rows.py",
            "test_p5_p7_rows_that_the_metadata_table_has_lost_are_told_and_brought_back",
        ),
    ),
    "a Kafka login has lost a right": Fault(
        ("The broker lets … in, but not", "kafka-acls.sh", "--operation Read"),
        ("but not READ topic", "access rule", "the command in the message"),
        ("kafka/test_security.py", "test_a_right_that_is_missing_is_named_with_who_needs_it"),
    ),
}


def row_with(page: str, words: tuple[str, ...]) -> bool:
    lines = (line.replace("\\_", "_") for line in page.splitlines())
    return any(all(word in line for word in words) for line in lines)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_a_message_that_names_it_and_a_page_with_what_to_do(name: str) -> None:
    fault = FAULTS[name]
    assert row_with(render(), fault.message), f"no row of by-symptom.md has {fault.message}"
    page = (DOCS / fault.page).read_text(encoding="utf-8")
    assert row_with(page, fault.operations), f"no row of {fault.page} has {fault.operations}"


@pytest.mark.parametrize("name", FAULTS)
def test_a_faults_message_is_proved(name: str) -> None:
    file, test = FAULTS[name].proved_by
    assert f"{test}" in (TESTS / file).read_text(encoding="utf-8")
