"""Errors are data: whichever process they cross to, they keep class, attributes and text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hudi_ingest.exceptions import (
    BadRecord,
    ChannelFailed,
    ConfigError,
    Fenced,
    IngestError,
    KafkaRefused,
    KafkaUnreachable,
    NoSuchOffset,
    NoSuchPipeline,
    NothingToDo,
    OffsetsLost,
    RangeRefused,
    RegistryRefused,
    RegistryUnreachable,
    SchemaMissing,
    SchemaNotApproved,
    SchemaOutdated,
    WriteIncomplete,
    concerning,
)
from hudi_ingest.local.processes import ProcessEnded
from hudi_ingest.model.report import BadRecordNote


def classes(above: type[IngestError] = IngestError) -> Iterator[type[IngestError]]:
    if above.__module__.startswith("hudi_ingest."):
        yield above
    for each in above.__subclasses__():
        yield from classes(each)


def sorted_classes() -> list[type[IngestError]]:
    return sorted(classes(), key=lambda kind: kind.__name__)


text = st.text(max_size=20)
number = st.integers(0, 2**63 - 1)
at_kafka = {"message": text, "servers": text, "topic": text, "partition": number, "offset": number}
at_registry = {"message": text, "url": text, "subject": text, "schema_id": number, "status": number}
notes = st.builds(BadRecordNote, text, number, number, text, text, text)
FACTS: dict[type[IngestError], dict[str, st.SearchStrategy[Any]]] = {
    ConfigError: {"where": text, "problems": st.lists(text, max_size=3)},
    NoSuchPipeline: {"where": text, "problems": st.lists(text, max_size=3)},
    RangeRefused: {"where": text, "problems": st.lists(text, max_size=3)},
    NothingToDo: {"pipeline": text, "reason": text},
    ChannelFailed: {"channel": text, "reason": text},
    SchemaNotApproved: {"pipeline": text, "origin": text, "changes": st.lists(text, max_size=3), "fingerprint": text},
    SchemaOutdated: {"schema_id": number, "subjects": text, "changes": st.lists(text, max_size=3)},
    BadRecord: {
        "pipeline": text,
        "limit": text,
        "count": number,
        "records": st.lists(notes, max_size=3),
        "alternative": text,
    },
    **dict.fromkeys((KafkaUnreachable, KafkaRefused, NoSuchOffset, OffsetsLost), at_kafka),
    **dict.fromkeys((RegistryUnreachable, RegistryRefused, SchemaMissing), at_registry),
    Fenced: {"message": text, "transaction_id": text, "instant": text},
}
"""Of classes with facts of their own; the others are given a sentence."""
MORE: dict[type[IngestError], dict[str, object]] = {ProcessEnded: {"killed": True}}
"""What classes are given beside a sentence."""


def test_errors_of_other_modules_are_among_those_tried() -> None:
    assert {IngestError, KafkaUnreachable, *FACTS, *MORE} <= set(classes())


@pytest.mark.parametrize("kind", sorted_classes())
@settings(max_examples=20)
@given(st.data())
def test_every_error_survives_pickling_with_its_attributes_and_text(
    kind: type[IngestError], data: st.DataObject
) -> None:
    facts = {name: data.draw(values) for name, values in FACTS.get(kind, {}).items()}
    error = kind(**facts) if facts else kind(data.draw(text), **MORE.get(kind, {}))
    if data.draw(st.booleans()):
        error.topic, error.partition, error.offset = data.draw(st.tuples(text, number, number))
    if data.draw(st.booleans()):
        error.locate("transaction t-1, orders:3[0,5)", data.draw(st.sampled_from(["", "Nothing of it is visible."])))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert vars(again) == vars(error)
        assert (str(again), again.args) == (str(error), error.args)
        assert (again.topic, again.partition, again.offset) == (error.topic, error.partition, error.offset)


def test_an_operation_and_an_outcome_stand_around_the_sentence() -> None:
    error = KafkaUnreachable("no answer.")
    error.locate("transaction t-1", "Nothing of it is visible.")
    assert str(error) == "transaction t-1: no answer. Nothing of it is visible."
    assert error.args == ("no answer.",)


def test_an_error_keeps_the_place_that_it_has() -> None:
    with pytest.raises(WriteIncomplete) as raised, concerning("orders", 3, 0), concerning("orders", 3, 7):
        raise WriteIncomplete("no")
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 3, 7)


def test_a_long_sentence_about_bad_records_is_not_repeated() -> None:
    sentence, other = f"a value: {'because ' * 20}", "a row: " + "therefore " * 20
    notes = [
        BadRecordNote("t", 0, offset, f"f{offset}", text, "x")
        for offset, text in enumerate((sentence, other, sentence))
    ]
    error = BadRecord(pipeline="p", limit="3 bad", count=3, records=notes, alternative="raise that limit")
    assert (str(error).count(sentence), str(error).count(other)) == (2, 1), "the one before is another's"
    notes[1:1] = [BadRecordNote("t", 0, 9, "f9", sentence, "y")]
    error = BadRecord(pipeline="p", limit="4 bad", count=4, records=notes, alternative="raise that limit")
    assert "\n  - t:0:9 field f9: expected the same, found y\n" in str(error)


def test_bad_records_are_named_by_the_first_of_them() -> None:
    records = [BadRecordNote("orders", 3, offset, "n", "int", "x") for offset in (17, 18)]
    error = BadRecord(pipeline="p", limit="3 bad", count=3, records=records, alternative="raise that limit")
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 17)
    assert (error.field, error.expected, error.found) == ("n", "int", "x")
    assert str(error) == (
        "pipeline p: 3 bad, so the transaction is refused and none of it is visible:\n"
        "  - orders:3:17 field n: expected int, found x\n"
        "  - orders:3:18 field n: expected int, found x\n"
        "  - and 1 more\n"
        "Correct the producer and the records, or change table.schema, transforms or table.partition_by to fit them, or "
        "raise that limit. Then try again: Materialize on the asset's page, or `hudi-ingest run p`."
    )
