"""`transaction` of a pipeline file: how often, how much, how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from hudi_ingest.pipeline.model import Model as _Model
from hudi_ingest.pipeline.model import Seconds, Whole

TICK_SECONDS = 5
"""How often a pipeline's sensor looks."""


class Transaction(_Model):
    """How much is published at a time, and how long it may take."""

    interval_seconds: Annotated[Seconds, Field(ge=TICK_SECONDS)] = Field(
        default=60.0,
        json_schema_extra={"allowed": f"a number of at least {TICK_SECONDS}: the sensor looks every {TICK_SECONDS} s"},
    )
    """A transaction begins at most this often, unless `max_records` are waiting."""

    min_records: Annotated[Whole, Field(ge=1)] = 1
    """Fewer waiting records than this begin no transaction until `max_wait_seconds` have passed."""

    max_wait_seconds: Annotated[Seconds, Field(ge=0)] = 600.0
    """Records that `min_records` holds back are written once the table's last transaction began this long ago, and at the
    earliest when `interval_seconds` allows. The first transaction takes whatever is there."""

    max_records: Annotated[Whole, Field(ge=1)] = Field(default=5_000_000, validate_default=True)
    """A transaction takes at most this many records; the rest waits for the next one."""

    max_bytes: Annotated[Whole, Field(ge=1)] | None = None
    """A transaction takes at most about this many bytes of records, estimated from the mean record size of the last
    transaction. Without it only `max_records` limits."""

    timeout_seconds: Annotated[Whole, Field(ge=10)] = 300
    """A transaction that has not committed after this time is rolled back, and the next one reads the same offsets."""

    max_tasks: Annotated[Whole, Field(ge=1)] = 8
    """A transaction writes with at most this many Dagster ops; with more Kafka partitions, an op takes several."""

    fan_out_from: Annotated[Whole, Field(ge=0)] = 100_000
    """From this many records on, a transaction's ops run side by side, each in a process of its own. The ops of a smaller one
    run one after another in the run's process, which saves seconds. 0 makes the ops of every transaction run side by side."""

    single_op: bool = False
    """Whether one op writes all Kafka partitions of a transaction below `fan_out_from` records, which saves a part of a second
    for each partition. It gives up what an op for each partition brings: a failed op is then tried again with all partitions, and the run
    does not show which of them took how long."""

    retries: Annotated[Whole, Field(ge=0)] = 2
    """How often a failed write op is tried again."""

    retry_delay_seconds: Annotated[Seconds, Field(ge=0)] = 5.0
    """How long to wait before a write op is tried again."""

    def fans_out(self, count: int) -> bool:
        """Whether a transaction of `count` records has ops side by side, in processes of their own."""
        return count >= self.fan_out_from

    def write_ops(self, count: int) -> int:
        """With at most how many ops a transaction of `count` records writes."""
        return 1 if self.single_op and not self.fans_out(count) else self.max_tasks

    @field_validator("max_records")
    @classmethod
    def _not_below_min_records(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min_records")
        if least is not None and value < least:
            raise ValueError(f"found {value}; allowed: at least min_records, which is {least}")
        return value
