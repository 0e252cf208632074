"""The pipeline file of a topic, proposed from what broker, registry and a sample of records say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase, translate
from operator import attrgetter
from pathlib import Path  # files: of pipelines
from tempfile import TemporaryDirectory  # files: none, where no table is
from typing import Any

import pyarrow as pa
import yaml

from hudi_ingest.exceptions import ConfigError, SchemaRefused, TopicMissing
from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, TABLES_VARIABLE, Home
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.kafka.records import RECORDS, ReadRequest, read_records
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.report import BadRecordNote
from hudi_ingest.operations.pipeline_files import PipelineFiles
from hudi_ingest.operations.proposal import Proposal, propose
from hudi_ingest.operations.sampled_values import KnownSchema, NoProposal, Observed, SeenRecord
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.file import environment_or_own, pipeline_from
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, read_schema_id
from hudi_ingest.records.schema.columns import ddl
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import KINDS, RegisteredSchema, SchemaKind
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.registered_columns import columns_of, message_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.arithmetic import fair_shares

SAMPLE_RECORDS = 1000
"""Half of them the first that the broker has, half the newest."""
_SAMPLE_BYTES = 32 * 1024 * 1024
_MOST_TOPICS = 50
"""Topics of a pattern that are looked at; the file is for all of them."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """The text of a new pipeline file, the reasons of its settings, one line each, and what became of the sample with it."""

    text: str
    reasons: tuple[str, ...]
    tried: str


def new_file(
    topic: str,
    home: Home,
    servers: str | None,
    registry: str | None,
    base_path: str | None = None,
    name: str | None = None,
    settings_given: Sequence[str] = (),
) -> NewFile:
    """Propose the file of a topic or, with `*` in it, of all topics that match. `home`: where the file will be; `servers`: None if it
    names a variable for them, whose value is used now; `settings_given`: `key=value` below `source`, such as a login's.

    Raises SchemaRefused if nothing fits; FileExists, ConfigError, KafkaUnreachable, KafkaRefused, TopicMissing, RegistryUnreachable,
    RegistryRefused.
    """
    is_pattern = "*" in topic
    stem = re.sub(r"\W+", "_", name or topic, flags=re.ASCII).strip("_")
    stem = stem if stem[:1].isalpha() else f"t_{stem}"
    own, name = ("{topic}", f"{stem}_{{topic}}") if is_pattern else (stem, stem)
    PipelineFiles(home).require_none(name)
    if servers is None and not environment_or_own(None).get(BOOTSTRAP_VARIABLE):
        problem = f"no brokers are named; give --bootstrap-servers host:port, set {BOOTSTRAP_VARIABLE}, or start some with `hudi-ingest up`"
        raise ConfigError("hudi-ingest new", [problem])
    head: dict[str, Any] = {"bootstrap_servers": servers or f"${{{BOOTSTRAP_VARIABLE}}}"}
    given = _nested(settings_given)
    registry_given = {**({"url": registry} if registry else {}), **given.pop("schema_registry", {})}
    source, config = _connections({**head, **given}, registry_given, topic, home.pipelines)
    try:
        topics = _matching(source, topic) if is_pattern else (topic,)
        seen = {each: _observed(source, each, config) for each in topics[:_MOST_TOPICS]}
        proposals = {each: propose(observed) for each, observed in seen.items()}
        proposal = _one_of(proposals) if is_pattern else proposals[topic]
    except NoProposal as problem:
        raise SchemaRefused(f"no pipeline file can be proposed for {topic}: {problem}") from None
    if base_path is None:
        proposal.reasons["base_path"] = (
            f"below this home, unless {TABLES_VARIABLE} is set; or write where it should stay"
        )
    pattern = {"topics_pattern": translate(topic).removeprefix("(?s:").removesuffix(r")\Z").replace(".*", ".+")}
    head |= {**(pattern if is_pattern else {"topics": [topic]}), **given}
    needs = proposal.source.get("format") in KINDS or proposal.source.get("key", {}).get("format") in KINDS
    settings: dict[str, Any] = {
        "name": name,
        "source": {**head, **proposal.source, **({"schema_registry": registry_given} if needs else {})},
        "table": {"base_path": base_path or f"${{{TABLES_VARIABLE}:-{home.tables}}}/{own}", **proposal.table},
        **({"transforms": proposal.transforms} if proposal.transforms else {}),
        **proposal.other,
    }
    tries = [
        tried(_of_topic(settings, each, proposals[each]), home.pipelines, observed.records)
        for each, observed in seen.items()
    ]
    rows, bad, records = (sum(map(attrgetter(name), tries)) for name in ("rows", "bad", "records"))
    if bad * 20 > records:
        failed = next(each for each in tries if each.bad)
        raise SchemaRefused(
            f"no pipeline file can be proposed for {topic}: with the one that came nearest, {failed.text}. Write the file by hand "
            f"(docs/formats.md); that one was:\n{file_text(settings, proposal)}"
        )
    text = "; ".join(
        dict.fromkeys(f"{each}: {found.text}" for each, found in zip(seen, tries, strict=True) if found.bad)
    )
    text = text or f"{rows:,} of {records:,} sampled records become rows"
    reasons = (f"{setting}: {reason}" for setting, reason in proposal.reasons.items())
    return NewFile(file_text(settings, proposal), (*reasons, *proposal.notes), text)


def _of_topic(settings: Mapping[str, Any], topic: str, proposal: Proposal) -> dict[str, Any]:
    """The settings of one topic's pipeline."""
    source = {name: value for name, value in settings["source"].items() if name != "topics_pattern"}
    rest = {name: value for name, value in settings.items() if name != "tables"}
    return {**rest, "name": "new", "source": {**source, "topics": [topic]}, "table": proposal.table}


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of `records` sampled records. `rows`: with those that delete one."""

    records: int
    rows: int
    bad: int = 0
    example: str = ""

    @property
    def text(self) -> str:
        rows = f"{self.rows:,} of {self.records:,} sampled records become rows"
        return f"{rows}, {self.bad:,} are bad, such as {self.example}" if self.bad else rows


def tried(settings: Mapping[str, Any], folder: Path, records: Sequence[SeenRecord]) -> Tried:
    """Read a sample as the pipeline with these settings would, into a new table. Raises ConfigError, SchemaRefused, and what
    `proposed_schema` raises."""
    with TemporaryDirectory() as scratch:
        table = {**settings["table"], "base_path": f"{scratch}/table"}
        pipeline = pipeline_from({**settings, "table": table}, folder, "hudi-ingest new")
        schema = proposed_schema(pipeline, Timeline.of(pipeline.table))
    maker = row_maker_of(pipeline, schema, datetime.now(timezone.utc))
    found = Tried(0, 0)
    for source, batch in _batches(records):
        outcome = maker.make(source, batch)
        example = found.example
        if outcome.bad and not example:
            bad = outcome.bad[0]
            at = (source.topic, source.partition, batch["offset"][bad.index].as_py())
            example = str(BadRecordNote(*at, bad.field, bad.expected, bad.found))
        rows = outcome.rows.num_rows - outcome.moves
        found = Tried(found.records + batch.num_rows, found.rows + rows, found.bad + len(outcome.bad), example)
    return found


def _batches(records: Sequence[SeenRecord]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The records as `read_records` returns them, without headers."""
    found: dict[TopicPartition, dict[int, SeenRecord]] = {}
    for record in records:
        place, _, offset = record.place.rpartition(":")
        found.setdefault(TopicPartition.parse(place), {})[int(offset)] = record
    for source, by_offset in sorted(found.items()):
        rows = [
            {"topic": source.topic, "partition": source.partition, "offset": offset, "timestamp": 0}
            | {"key": by_offset[offset].key, "value": by_offset[offset].value, "headers": []}
            for offset in sorted(by_offset)
        ]
        yield source, pa.RecordBatch.from_pylist(rows, RECORDS)


def _nested(given: Sequence[str]) -> dict[str, Any]:
    """The settings by section. Raises ConfigError."""
    found: dict[str, Any] = {}
    for each in given:
        key, equals, value = each.partition("=")
        # The properties of Kafka's clients have dots in their names.
        *sections, last = key.split(".", 1) if key.startswith("kafka.") else key.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        if not equals or not all((*sections, last)) or last in place or not isinstance(place, dict):
            problem = f"--source takes each setting once, as key=value, such as security.protocol=SASL_SSL; found {quoted(key)}"
            raise ConfigError("hudi-ingest new", [problem])
        place[last] = value
    return found


def _connections(
    settings: Mapping[str, Any], registry: Mapping[str, Any], topic: str, folder: Path
) -> tuple[KafkaSource, SchemaRegistry | None]:
    """Raises ConfigError."""
    named = {"topics_pattern": ".+"} if "*" in topic else {"topics": [topic]}
    framed = {"format": "avro", "schema_registry": dict(registry)} if registry else {}
    table = {"base_path": "/table", **({} if registry else {"schema": "infer"})}
    whole = {"name": "new", "source": {**settings, **named, **framed}, "table": table}
    try:
        source = pipeline_from(whole, folder, "hudi-ingest new").source
    except ConfigError as error:
        arguments = {"bootstrap_servers": "--bootstrap-servers", "schema_registry.url": "--schema-registry"}
        problems = [problem.removeprefix("source.").partition(":") for problem in error.problems]
        ours = [f"{arguments.get(name, f'--source {name}')}:{text}" for name, _, text in problems]
        raise ConfigError(error.where, ours) from None
    return source.model_copy(update={"format": "json", "schema_registry": None}), source.schema_registry


def _matching(source: KafkaSource, pattern: str) -> tuple[str, ...]:
    with kept_cluster(source) as cluster:
        names = tuple(name for name in cluster.topic_names() if fnmatchcase(name, pattern))
    if not names:
        raise TopicMissing(
            f"no topic on {source.bootstrap_servers} has a name like {pattern}; correct the pattern, or create one."
        )
    return names


def _one_of(proposals: Mapping[str, Proposal]) -> Proposal:
    """The proposal for all topics; what differs is below `tables`. Raises NoProposal."""
    rows = [each for each in proposals.values() if each.source.get("envelope") == "debezium"]
    if (
        len({str((each.source.get("format"), each.source.get("envelope"))) for each in proposals.values()}) > 1
        or not rows
    ):
        what = "; ".join(f"{topic}: {each.reasons['format']}" for topic, each in proposals.items())
        raise NoProposal(
            f"only topics of a Debezium connector get one file for all. Propose one for each of the others. {what}"
        )
    whole = next((each for each in rows if each.table["mode"] == "upsert"), rows[0])
    for topic, each in proposals.items():
        if each.table["mode"] != whole.table["mode"]:
            whole.other.setdefault("tables", {})[topic] = {"mode": "append"}
            whole.notes.append(f"{topic} has no key, as of a table without a primary key: its rows are only added.")
    whole.reasons["tables"] = "what single tables have of their own"
    return whole


def _observed(source: KafkaSource, topic: str, config: SchemaRegistry | None) -> Observed:
    one = source.model_copy(update={"topics": (topic,), "topics_pattern": None})
    with kept_cluster(one) as cluster:
        try:
            partitions = cluster.topics()[topic].partitions
        except TopicMissing:
            similar = suggestion(topic, cluster.topic_names())
            raise TopicMissing(
                f"topic {topic} is not on the broker at {source.bootstrap_servers}{similar or '.'} Name one that is there, create it and "
                "produce some records, or correct --bootstrap-servers."
            ) from None
        settings = cluster.topic_settings(topic)
        marks = cluster.watermarks(partitions)
    slices = [Slice(each.topic, each.partition, marks[each].begin, marks[each].end) for each in sorted(partitions)]
    shares = fair_shares({each.source: each.count for each in slices}, SAMPLE_RECORDS)
    first = {each.source: ReadRequest(each, -(-shares[each.source] // 2)) for each in slices if each.count}
    ends = [replace(each, start=max(each.start, each.end - shares[each.source] // 2)) for each in slices if each.count]
    found: dict[str, SeenRecord] = {}
    for requests in ([*first.values()], [ReadRequest(each, each.count) for each in ends if each.count]):
        for at, batch in read_records(
            one, "hudi-ingest.new", requests, most_bytes=_SAMPLE_BYTES, skip_gone=True
        ).items():
            for offset, key, value in zip(
                *(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True
            ):
                found.setdefault(f"{at}:{offset}", SeenRecord(f"{at}:{offset}", key, value))
    records = [*found.values()]
    return Observed(
        topic,
        len(partitions),
        records,
        settings.get("cleanup.policy") or "delete",
        known_schemas(records, config) if config is not None else None,
        sum(each.count for each in slices),
    )


def known_schemas(records: Sequence[SeenRecord], config: SchemaRegistry) -> dict[int, KnownSchema]:
    """The schemas that keys and values name, with what they hold. Raises RegistryUnreachable, RegistryRefused, ConfigError."""
    try:
        extras.require("registry")
    except ValueError as problem:
        raise ConfigError("hudi-ingest new", [f"--schema-registry: {problem}"]) from None
    from hudi_ingest.kafka.registry import RegistryClient

    clients = {kind: RegistryClient(config, kind) for kind in KINDS.values()}
    payloads: dict[int, list[bytes]] = {}
    for payload in (each for record in records for each in (record.key, record.value) if each and each[0] == 0):
        if len(payload) > HEADER_BYTES:
            payloads.setdefault(read_schema_id(payload[:HEADER_BYTES]), []).append(payload)
    answers = ((each, kind, client.schema(each)) for each in sorted(payloads) for kind, client in clients.items())
    return {
        each: known_schema(kind, schema, config, payloads[each]) for each, kind, schema in answers if schema is not None
    }


def known_schema(
    kind: SchemaKind, schema: RegisteredSchema, config: SchemaRegistry, payloads: Sequence[bytes]
) -> KnownSchema:
    rows: list[Mapping[str, Any]] = []
    is_event = False
    if kind == "AVRO":
        # Imported here, because its library is an extra.
        from hudi_ingest.records.schema.avro import plain_values

        parsed, data = plain_values(schema, [each[HEADER_BYTES:] for each in payloads])
        if isinstance(parsed, str) or parsed.get("type") in ("string", "long", "int"):
            simple = {"long": pa.int64(), "int": pa.int32()}.get(
                parsed if isinstance(parsed, str) else parsed["type"], pa.string()
            )
            return KnownSchema(kind, pa.schema([("", simple)]), rows=[{"key": each} for each in data])
        is_event = {"op", "after"} <= {each["name"] for each in parsed.get("fields", ())}
        rows = [each["after"] or {} for each in data] if is_event else data
    elif kind == "JSON":
        rows = [each for each in (json.loads(payload[HEADER_BYTES:]) for payload in payloads) if isinstance(each, dict)]
    try:
        message = None
        if kind == "PROTOBUF":
            from hudi_ingest.kafka.registry import SubjectVersion

            message = message_of(config, [SubjectVersion("", 0, 0, schema)], [], "source")
        columns = columns_of(schema, kind, message, is_event)
    except ValueError:
        return KnownSchema(kind, None, is_event, rows)
    return KnownSchema(kind, columns, is_event, rows)


def file_text(settings: Mapping[str, Any], proposal: Proposal) -> str:
    """YAML, each setting after the reason for it."""
    lines = [f"# {each}" for each in proposal.notes]
    for name, value in settings.items():
        if name in ("source", "table"):
            lines.append(f"{name}:")
            for setting, own in value.items():
                lines += [f"  # {each}" for each in _why(setting, proposal)]
                lines += _columns(own) if setting == "schema" and "," in own else [f"  {_one(setting, own)}"]
            left = ("format",) if name == "source" else ("mode", "schema", "partition_by")
            lines += [
                f"  # {each}"
                for setting in left
                if setting not in value
                for each in _why(setting, proposal, f"{setting}: ")
            ]
        else:
            lines += [f"# {each}" for each in _why(name, proposal)] + [_one(name, value)]
    return (
        "\n".join(lines) + "\n# one transaction per minute by default; set transaction.interval_seconds to change it\n"
    )


def _columns(text: str) -> list[str]:
    """Columns as DDL, one a line."""
    own = [ddl(pa.schema([column])) for column in parse_ddl(text, renamable=True)]
    return ["  schema: |", *(f"    {column}," for column in own[:-1]), f"    {own[-1]}"]


def _why(setting: str, proposal: Proposal, prefix: str = "") -> list[str]:
    own = [prefix + proposal.reasons[setting]] if setting in proposal.reasons else []
    return own + [
        f"  {name.removeprefix('schema.')}: {reason}"
        for name, reason in proposal.reasons.items()
        if setting == "schema" and name.startswith("schema.")
    ]


def _one(name: str, value: Any) -> str:
    flow = yaml.safe_dump({name: value}, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return flow.strip()[1:-1]
