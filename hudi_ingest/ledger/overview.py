"""What a ledger holds of all pipelines, for metrics: few statements, however many pipelines there are. Called inside the ledger's
database transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

import sqlalchemy as sa

from hudi_ingest.ledger import counters, service_runs
from hudi_ingest.ledger.requests import RequestState
from hudi_ingest.ledger.service_runs import ServiceRun
from hudi_ingest.ledger.tables import COORDINATORS, METADATA, REQUESTS, TRANSACTIONS, TransactionRow
from hudi_ingest.model.transaction import TransactionState


@dataclass(frozen=True, slots=True)
class Overview:
    """`counters` and `open` are by base path, `ticked` by pipeline, `requests` (the active ones) by pipeline and kind, `rows` by
    table of the ledger. `size_bytes` counts its tables, with SQLite the whole file."""

    counters: Mapping[str, Mapping[str, float]]
    open: Mapping[str, TransactionRow]
    ticked: Mapping[str, datetime]
    requests: Mapping[tuple[str, str], int]
    rows: Mapping[str, int]
    size_bytes: int
    services: tuple[ServiceRun, ...] = ()


def read(connection: sa.Connection) -> Overview:
    opened = sa.select(TRANSACTIONS).where(TRANSACTIONS.c.state == TransactionState.OPEN.value)
    rows = map(TransactionRow.from_mapping, connection.execute(opened).mappings())
    ticked = connection.execute(sa.select(COORDINATORS.c.pipeline, COORDINATORS.c.ticked_at))
    active = (
        sa.select(REQUESTS.c.pipeline, REQUESTS.c.kind, sa.func.count())
        .where(REQUESTS.c.state == RequestState.ACTIVE.value)
        .group_by(REQUESTS.c.pipeline, REQUESTS.c.kind)
    )
    tables = METADATA.sorted_tables
    counted = sa.select(*(sa.select(sa.func.count()).select_from(table).scalar_subquery() for table in tables))
    return Overview(
        counters=counters.read(connection),
        open={row.table: row for row in rows},
        ticked={row.pipeline: row.ticked_at for row in ticked},
        requests={(pipeline, kind): count for pipeline, kind, count in connection.execute(active)},
        rows=dict(zip((table.name for table in tables), connection.execute(counted).one(), strict=True)),
        size_bytes=_size(connection),
        services=service_runs.read(connection),
    )


def _size(connection: sa.Connection) -> int:
    if connection.dialect.name == "sqlite":
        pages = connection.exec_driver_sql("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        return int(pages.scalar_one())
    sizes = [sa.func.pg_total_relation_size(sa.func.to_regclass(table.name)) for table in METADATA.sorted_tables]
    return int(connection.execute(sa.select(reduce(add, sizes))).scalar_one())


def last_commits(connection: sa.Connection) -> dict[str, datetime]:
    newest = (
        sa.select(TRANSACTIONS.c.base_path, sa.func.max(TRANSACTIONS.c.ended_at, type_=TRANSACTIONS.c.ended_at.type))
        .where(TRANSACTIONS.c.state == TransactionState.COMMITTED.value)
        .group_by(TRANSACTIONS.c.base_path)
    )
    return {base_path: ended_at for base_path, ended_at in connection.execute(newest) if ended_at is not None}
