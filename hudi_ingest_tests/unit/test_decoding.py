"""What a pipeline's converter is made of, and records of schemas that are newer than their transaction."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hudi_ingest.decoding import NoneNewer
from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.registered_schema import RegisteredSchema
from hudi_ingest.schema import parse_ddl


@dataclass(frozen=True)
class Registered:
    """A registry that has these records' fields by schema id."""

    fields: Mapping[int, str]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        fields = self.fields.get(schema_id)
        text = f'{{"type": "record", "name": "R", "fields": [{fields}]}}'
        return None if fields is None else RegisteredSchema(text)


ID, N = '{"name": "id", "type": "string"}', '{"name": "n", "type": "%s"}'
UNION = '{"name": "u", "type": ["int", "string"]}'


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (ID, None),
        (f"{ID}, {N % 'int'}", None),
        (f"{ID}, {N % 'long'}, " + '{"name": "more", "type": "int"}', "column more int is added"),
        (f"{ID}, {N % 'double'}", "column n becomes double; it was long"),
        (f"{ID}, {N % 'string'}", "column n: expected long, as in the table, found string"),
        (f"{ID}, {UNION}", "a table cannot have its columns: column u: found a union"),
    ],
)
def test_d2_a_newer_schema_ends_the_transaction_when_it_has_more(fields: str, problem: str | None) -> None:
    registry = Registered({1: f"{ID}, {UNION}", 2: fields})
    lookup = pickle.loads(
        pickle.dumps(NoneNewer(registry, frozenset([1]), parse_ddl("id string, n long"), "orders-value"))
    )
    assert lookup.schema(1) == registry.schema(1), "what the transaction knew is the converter's matter"
    assert lookup.schema(3) is None
    if problem is None:
        assert lookup.schema(2) == registry.schema(2)
        return
    with pytest.raises(SchemaOutdated, match=r"schema id 2, which the registry had not under orders-value") as raised:
        lookup.schema(2)
    assert problem in str(raised.value)
