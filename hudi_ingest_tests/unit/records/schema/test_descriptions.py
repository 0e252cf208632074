"""What schemas say about columns, and what broken ones do not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.schema.avro import avro_descriptions
from hudi_ingest.records.schema.json_schema import json_schema_descriptions

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string", "doc": "The order's number,\n  as customers see it"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "doc": "  "},
    ],
}


def test_docs_of_an_avro_record_describe_its_columns() -> None:
    assert avro_descriptions(json.dumps(ORDER)) == {"id": "The order's number, as customers see it"}


def test_the_columns_of_events_are_those_of_after() -> None:
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", ORDER]},
            {"name": "after", "type": ["null", {**ORDER, "name": "After"}], "doc": "not a column"},
        ],
    }
    assert avro_descriptions(json.dumps(envelope), of_events=True) == {"id": "The order's number, as customers see it"}


def test_descriptions_of_properties_describe_columns() -> None:
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "string", "description": "Number", "title": "Id"},
            "amount": {"type": "number", "title": "Amount in euros"},
            "open": True,
        },
    }
    assert json_schema_descriptions(json.dumps(schema)) == {"id": "Number", "amount": "Amount in euros"}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "fields", "name", "doc", "properties", "description", "after", "aliases", "symbols"]
            ),
            inner,
        )
    ),
)


@given(_json, st.booleans())
def test_any_json_has_descriptions_or_none(document: object, of_events: bool) -> None:
    text = json.dumps(document)
    for described in (avro_descriptions(text, of_events), json_schema_descriptions(text)):
        assert all(isinstance(name, str) and value.strip() for name, value in described.items())


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_not_json_describes_nothing(text: str) -> None:
    assert avro_descriptions(text) == json_schema_descriptions(text) == {}
