"""What the trial stands on: a whole stack without pipelines, `hudi-ingest serve`, Prometheus, and a producer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count as count_from
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest.rest.access import TOKEN_FILE
from hudi_ingest_tests.support.command_line import COMMAND, environment, hudi_ingest
from hudi_ingest_tests.support.waiting import wait_for

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "hudi-ingest-alerts.yml"
SCRAPE_SECONDS = 5
HOLD_SECONDS = 10
"""How long an alert's condition must hold, instead of the rules' minutes and hours."""
_START_SECONDS = 120


class RestRefused(Exception):
    """The REST API's answer was a problem."""


class Stage:
    """Use it with `with`; all that it started is stopped again. `say` gets progress lines."""

    def __init__(self, root: Path, say: Callable[[str], None]) -> None:
        self.home = Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
        self.sent: dict[str, list[str]] = defaultdict(list)
        """By topic: the ids of the records that belong into its table."""
        self._refused: list[str] = []
        self._numbers = count_from(1)
        self._root = root
        self._say = say
        self._running = ExitStack()

    def __enter__(self) -> Stage:
        self.home.pipelines.mkdir(parents=True)
        try:
            self.stack: Stack = bring_up(self.home, StackSettings(free_port(), free_port()), self._say)
            self._running.callback(bring_down, self.home, self._say)
            self._servers = {"bootstrap.servers": self.stack.bootstrap_servers, "log_level": 0}
            self._admin = AdminClient(self._servers)
            self._producer = self._new_producer()
            self.rest_url = self._running.enter_context(self._serve())
            self.prometheus_url = self._running.enter_context(self._prometheus())
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    # ---- Kafka

    def create_topic(self, name: str) -> None:
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and return when the broker does not know it any more."""
        self._admin.delete_topics([name])[name].result(30)
        wait_for(lambda: name not in self._admin.list_topics(timeout=30).topics, f"topic {name} is deleted", 60, 0.2)
        # The old one goes on numbering the records of the old topic.
        self._producer = self._new_producer()

    def produce(self, topic: str, count: int) -> None:
        """Send records whose ids are new, and wait until the broker has them."""
        for _ in range(count):
            identifier = f"{topic}-{next(self._numbers):08d}"
            self._produce(topic, json.dumps({"id": identifier, "amount": 1.5}))
            self.sent[topic].append(identifier)
        self._flush()

    def produce_text(self, topic: str, text: str) -> None:
        self._produce(topic, text)
        self._flush()

    def end_offset(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        answer = self._admin.list_offsets({partition: OffsetSpec.latest()})[partition]
        return int(answer.result(30).offset)

    def delete_records(self, topic: str, before: int) -> None:
        partition = TopicPartition(topic, 0, before)
        for answer in self._admin.delete_records([partition]).values():
            answer.result(30)

    def _new_producer(self) -> Producer:
        return Producer({**self._servers, "enable.idempotence": True, "linger.ms": 20})

    def _produce(self, topic: str, text: str) -> None:
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                self._refused.append(str(error))

        self._producer.produce(topic, text, on_delivery=delivered)

    def _flush(self) -> None:
        if self._producer.flush(60):
            raise TimeoutError("the broker did not take all records within 60 s")
        if self._refused:
            raise KafkaUnreachable(f"the broker refused {len(self._refused)} records: {self._refused[0]}")

    # ---- REST, metrics, commands

    def rest(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Call the REST API below /api/v1 and return the answer. Raises RestRefused with the problem's text."""
        request = urllib.request.Request(f"{self.rest_url}/api/v1{path}", method=method)
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {self._token()}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=120) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise RestRefused(f"{error.code} {method} {path}: {error.read().decode()}") from None
        return json.loads(content) if content else None

    def _token(self) -> str:
        return (self.home.root / TOKEN_FILE).read_text().strip()

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Ask Prometheus. Returns the samples, each with `metric` and `value`."""
        path = f"/api/v1/query?query={quote(expression)}"
        with urllib.request.urlopen(f"{self.prometheus_url}{path}", timeout=30) as answer:
            result: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
        return result

    def firing(self) -> dict[str, Mapping[str, Any]]:
        """Return the alerts that fire, by name and what they are about."""
        with urllib.request.urlopen(f"{self.prometheus_url}/api/v1/alerts", timeout=30) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {_about(alert): alert for alert in alerts if alert["state"] == "firing"}

    def doctor(self, subject: str) -> list[str]:
        """Return what `hudi-ingest doctor` says about a subject that is not well."""
        answer = json.loads(hudi_ingest(self.home, "doctor", "--json").stdout)
        return [
            f"{diagnosis['text']} {diagnosis['remedy']}".strip()
            for diagnosis in answer["diagnoses"]
            if diagnosis["subject"] == subject and diagnosis["state"] != "ok"
        ]

    @contextmanager
    def _serve(self) -> Iterator[str]:
        self._say("starting hudi-ingest serve")
        log = self._root / "serve.log"
        # In the stack's environment, as a service beside it would be.
        variables = environment(self.home, dict(self.stack.environment))
        with _process([*COMMAND, "serve", "--port", "0", "--json"], log, variables):
            wait_for(lambda: '"url"' in log.read_text(), "hudi-ingest serve listens", _START_SECONDS)
            match = re.search(r'"url": "([^"]+)"', log.read_text())
            assert match is not None
            yield match[1]

    @contextmanager
    def _prometheus(self) -> Iterator[str]:
        self._say("starting Prometheus")
        folder = self._root / "prometheus"
        folder.mkdir()
        (folder / "rules.yml").write_text(quick_rules(RULES.read_text()))
        target = self.rest_url.removeprefix("http://")
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                # As long as the interval, which may not be shorter.
                {
                    "job_name": "hudi-ingest",
                    "authorization": {"credentials": self._token()},
                    "scrape_timeout": "10s",
                    "scrape_interval": "10s",
                }
                | {"static_configs": [{"targets": [target]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        url = f"127.0.0.1:{free_port()}"
        command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        log = folder / "prometheus.log"
        with _process([*command, f"--web.listen-address={url}"], log, None):
            wait_for(lambda: "ready to receive" in log.read_text(), "Prometheus is ready", _START_SECONDS)
            yield f"http://{url}"


def quick_rules(text: str) -> str:
    """Return the alert rules with conditions that need to hold for HOLD_SECONDS only."""
    return re.sub(r"(?m)^(\s+for:) \w+$", rf"\1 {HOLD_SECONDS}s", text)


def _about(alert: Mapping[str, Any]) -> str:
    labels = alert["labels"]
    about = labels.get("pipeline") or labels.get("file") or labels.get("instance", "")
    return f"{labels['alertname']} {about}"


@contextmanager
def _process(command: list[str], log: Path, variables: Mapping[str, str] | None) -> Iterator[None]:
    with log.open("w") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
        try:
            yield
        finally:
            running.terminate()
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def elapsed_since(began: float) -> str:
    return f"{time.monotonic() - began:6.0f} s"


def print_now(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
