"""`transaction` of a pipeline file: how often, how much, how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from hudi_ingest.pipeline.settings.model import A_YEAR, Seconds, Whole
from hudi_ingest.pipeline.settings.model import Model as _Model

TICK_SECONDS = 5
"""How often Dagster's own daemon looks for sensors that are due. The embedded stack's looks more often if a pipeline asks for it."""
LEAST_INTERVAL_SECONDS = 1
FREQUENT_SECONDS = 60
"""Tables with a shorter interval get so many small files that a merge a night would leave their readers too many."""
MOST_OPS = 8
"""Write ops of a transaction; with more Kafka partitions, an op takes several."""
FAN_OUT_FROM = 100_000
"""Records from which on a transaction is worth the seconds that a process for each op takes."""
LONGEST_TICK_SECONDS = 30
"""Ticks also pick up requests, what a dead run has left, and a backlog, so they are never rarer."""


class Transaction(_Model):
    """How much one transaction publishes, and how long it may take."""

    interval_seconds: Annotated[Seconds, Field(ge=LEAST_INTERVAL_SECONDS, le=A_YEAR)] = 60.0
    """While records come, a transaction begins once in this time, or sooner if `max_records` are waiting. The sensor ticks about ten times
    as often, but at least every 30 s, and at most every second, or every 5 s with Dagster's own daemon. Short intervals cost CPU; see
    docs/operations.md."""

    min_records: Annotated[Whole, Field(ge=1)] = 1
    """With fewer waiting records than this, no transaction begins until `max_wait_seconds` have passed."""

    max_wait_seconds: Annotated[Seconds, Field(ge=0, le=A_YEAR)] = 600.0
    """Records that `min_records` holds back are written once the table's last transaction began this long ago, but no
    sooner than `interval_seconds` allows. The first transaction takes whatever there is."""

    max_records: Annotated[Whole, Field(ge=1)] = Field(default=5_000_000, validate_default=True)
    """A transaction takes at most this many records; the rest wait for the next one."""

    max_bytes: Annotated[Whole, Field(ge=1)] | None = None
    """A transaction takes at most about this many bytes of records, estimated from the mean record size of the last
    transaction. Without it only `max_records` limits."""

    timeout_seconds: Annotated[Whole, Field(ge=10, le=A_YEAR)] = 300
    """A transaction that has not committed after this time is rolled back, and the next one reads the same offsets."""

    ops: Literal["auto", "one", "parallel"] = "auto"
    """Dagster ops that write a transaction: one for each Kafka partition that has records, up to 8, which then take several. `auto`: from
    100,000 records on they run in parallel, each in its own process, and below that one after another in the run's process, which saves
    seconds; in a Dagster of your own only with our executor (docs/operations.md), because others start a process for each op. `one`: below
    100,000 records a single op writes all partitions, which saves a fraction of a second per partition. In upsert mode its partitions share
    log files, and the fewer these are, the faster the table is read until it is compacted. The price: a failed op is retried with all
    partitions, and the run does not show how long each partition took. `parallel`: always in parallel."""

    retries: Annotated[Whole, Field(ge=0, le=100)] = 2
    """How often a failed write op is retried."""

    retry_delay_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = 5.0
    """How long to wait before a write op is retried."""

    @property
    def tick_seconds(self) -> int:
        """The shortest time between two ticks that the pipeline needs: a tenth of the interval, from 5 s on in steps of 5 s."""
        tenth = int(self.interval_seconds // 10)
        return max(1, tenth) if tenth < TICK_SECONDS else min(LONGEST_TICK_SECONDS, tenth - tenth % TICK_SECONDS)

    @property
    def is_frequent(self) -> bool:
        """Whether the table's small files are merged when they are due, not only once a night."""
        return self.interval_seconds < FREQUENT_SECONDS

    def fans_out(self, count: int) -> bool:
        """Whether the ops of a transaction of `count` records run in parallel, each in its own process."""
        return self.ops == "parallel" or count >= FAN_OUT_FROM

    def write_ops(self, count: int) -> int:
        """The maximum number of ops that write a transaction of `count` records."""
        return 1 if self.ops == "one" and not self.fans_out(count) else MOST_OPS

    @field_validator("max_records")
    @classmethod
    def _not_below_min_records(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min_records")
        if least is not None and value < least:
            raise ValueError(f"found {value}; allowed: at least min_records, which is {least}")
        return value
