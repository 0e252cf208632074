"""docs/by-symptom.md has the messages of the code."""

from __future__ import annotations

import pytest

from hudi_ingest import exceptions
from hudi_ingest.exceptions import IngestError
from hudi_ingest_tests.support.symptoms_page import TARGET, messages, render

pytestmark = pytest.mark.fast
FAMILIES = {"IngestError", "Transient", "Terminal"}


def test_the_page_is_what_the_code_says() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_each_error_has_messages_there() -> None:
    errors = {
        name
        for name, kind in vars(exceptions).items()
        if isinstance(kind, type) and issubclass(kind, IngestError) and not name.startswith("_")
    }
    assert errors - FAMILIES <= {message.kind for message in messages()}


@pytest.mark.parametrize(
    "words",
    [
        # Within the error's own class, in a function that words it, and in a condition.
        ("BadRecord", "so the transaction is refused and none of it is visible"),
        ("NothingToDo", "no new records: all … partitions are read to their ends"),
        ("TableMismatch", "was created with `mode: …`"),
        ("finding", "Daemons of the instance in … do not run"),
    ],
)
def test_a_message_is_found_wherever_it_is_put_together(words: tuple[str, str]) -> None:
    kind, text = words
    assert [message for message in messages() if message.kind == kind and text in message.text]


def test_a_message_is_split_where_its_first_sentence_ends_outside_of_code_and_brackets() -> None:
    [found] = [message for message in messages() if "this pipeline took the table over" in message.text][:1]
    symptom, remedy = found.symptom_and_remedy
    assert symptom.endswith("after this pipeline took the table over.")
    assert remedy.endswith("then this pipeline continues.")
