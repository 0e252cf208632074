"""Sample orders, produced to Kafka."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from confluent_kafka import KafkaException, Message, Producer

from hudi_ingest.exceptions import KafkaUnreachable

TOPIC = "orders"
PARTITIONS = 4
_FLUSH_SECONDS = 60
_NOTES = ("leave at the door", "gift wrapped, please", "call before delivery", "no substitutes", "fragile: two boxes")
_DAYS = 3


def orders(seed: int, now: datetime) -> Iterator[dict[str, object]]:
    """Yield orders of the last three days, endlessly; the same seed and time yield the same orders."""
    rng = random.Random(seed)
    number = 0
    while True:
        at = now - timedelta(seconds=rng.randrange(_DAYS * 86_400))
        yield {
            "id": f"o-{seed}-{number:09d}",
            "ts": int(at.timestamp() * 1000),
            "user": f"u{rng.randrange(50_000):05d}",
            "amount": round(rng.lognormvariate(3.2, 0.8), 2),
            "note": f"{rng.choice(_NOTES)}; basket of {rng.randrange(1, 30)}",
            "dt": at.strftime("%Y-%m-%d"),
        }
        number += 1


class OrderProducer:
    """Produces orders to the demo's topic, keyed by user, and remembers each acknowledged offset and its order's id."""

    def __init__(self, bootstrap_servers: str, seed: int) -> None:
        self.acknowledged: dict[tuple[int, int], str] = {}
        """(partition, offset) → id of the order that the broker keeps there; filled by `produce` only."""
        self.count = 0
        self._failed: list[str] = []
        self._orders = orders(seed, datetime.now(timezone.utc))
        self._bootstrap_servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 50,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )

    def produce(self, count: int) -> None:
        """Produce `count` orders and return when all are acknowledged. Raises KafkaUnreachable."""
        for order in (next(self._orders) for _ in range(count)):
            identifier = str(order["id"])

            def delivered(error: object, message: Message, identifier: str = identifier) -> None:
                if error is not None:
                    self._failed.append(str(error))
                else:
                    self.acknowledged[message.partition(), message.offset()] = identifier

            self._send(order, delivered)
        self._flush()

    def keep_producing(self, per_second: int, stopping: threading.Event) -> None:
        """Produce about `per_second` orders a second until `stopping`, without remembering them. Raises KafkaUnreachable."""
        while not stopping.wait(0.1):
            for _ in range(max(1, per_second // 10)):
                self._send(next(self._orders), self._noted)
        self._flush()

    def _noted(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _send(self, order: dict[str, object], delivered: object) -> None:
        value = json.dumps(order, separators=(",", ":")).encode()
        try:
            while True:
                try:
                    self._producer.produce(TOPIC, value, key=str(order["user"]).encode(), on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.5)
        except KafkaException as error:
            raise KafkaUnreachable(
                f"cannot produce to {TOPIC} at {self._bootstrap_servers}: {error}",
                servers=self._bootstrap_servers,
                topic=TOPIC,
            ) from error
        self.count += 1
        self._producer.poll(0)

    def _flush(self) -> None:
        remaining = self._producer.flush(_FLUSH_SECONDS)
        if remaining or self._failed:
            reason = self._failed[0] if self._failed else f"{remaining} were not acknowledged within {_FLUSH_SECONDS} s"
            raise KafkaUnreachable(
                f"producing orders to {TOPIC} at {self._bootstrap_servers} failed: {reason}",
                servers=self._bootstrap_servers,
                topic=TOPIC,
            )
