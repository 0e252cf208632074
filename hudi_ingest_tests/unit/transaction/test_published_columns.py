"""P7: the columns that a commit publishes, where another writer has changed the table's while the transaction was open."""

from __future__ import annotations

import pytest

from hudi_ingest.exceptions import CommitRefused
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.records.schema.columns import parse_spark_json, spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.table_preparation import with_columns_of_others


def ours(ddl: str) -> TransactionSchema:
    return TransactionSchema("declared", "", spark_json(parse_ddl(ddl)))


@pytest.mark.parametrize(
    ("mine", "there", "published"),
    [
        ("id string NOT NULL, n int", "id string NOT NULL, n int", "id string NOT NULL, n int"),
        ("id string, n long, more int", "id string, n int", "id string, n long, more int"),
        ("id string, n int", "id string, n int, theirs date", "id string, n int, theirs date"),
        ("id string, n int, more int", "id string, n long, theirs date", "id string, n long, theirs date, more int"),
    ],
)
def test_p7_what_another_writer_added_stays(mine: str, there: str, published: str) -> None:
    found = with_columns_of_others(ours(mine), parse_ddl(there), "t1")
    assert parse_spark_json(found.columns) == parse_ddl(published)


def test_p7_columns_that_do_not_go_together_refuse_the_commit() -> None:
    with pytest.raises(CommitRefused, match=r"t1: another writer has changed .* column n: expected string.*found long"):
        with_columns_of_others(ours("n long"), parse_ddl("n string"), "t1")
