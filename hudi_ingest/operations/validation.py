"""Checks pipelines before they are used: first all that can be known without Kafka, registry and table, then against these.

Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path  # files: pipeline files
from typing import Any

from hudi_ingest.exceptions import ConfigError, IngestError, TableMismatch
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.home.liveness import first_listening
from hudi_ingest.hudi.timeline.ownership import require_own_table, require_same_folders, require_same_keys
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, Timeline
from hudi_ingest.kafka.cluster import KafkaCluster, kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.pipeline.engine import load_engine_settings, local_table_warning, untried_master_warning
from hudi_ingest.pipeline.file import MASK, shown_file
from hudi_ingest.pipeline.folder import folder_files, load_file_alone
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.record import needs_registry
from hudi_ingest.records.schema.registered import KINDS
from hudi_ingest.transaction.columns.decoding import format_problems, row_maker_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema, source_text
from hudi_ingest.transaction.iceberg_sync import IcebergSync
from hudi_ingest.transaction.table_preparation import require_writable_table


@dataclass(frozen=True, slots=True)
class Validation:
    """The problems of a pipeline file. `name`: as written; `columns`: where the table's columns come from, in words."""

    name: str | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    columns: str = ""
    namesake: Path | None = None
    """Another file with the same name."""


def require_valid(pipeline: Pipeline, where: str) -> str:
    """Check what loading a file does not, and say where the columns come from. Raises ConfigError."""
    problems = format_problems(pipeline, import_user_code=True)
    if problems:
        raise ConfigError(where, problems)
    return source_text(pipeline)


def require_own_local_table(pipeline: Pipeline, where: str) -> None:
    """Check that a table on this machine, if there is one, is the pipeline's, as a begin would; one elsewhere is asked online only. Raises
    ConfigError."""
    timeline = Timeline.of(pipeline.table)
    try:
        if timeline.storage.is_local and timeline.exists():
            properties = timeline.properties()
            if pipeline.table.take_over is None or PIPELINE_PROPERTY in properties:
                require_own_table(pipeline, properties)
    except TableMismatch as problem:
        raise ConfigError(where, [f"table.base_path: {problem}"]) from None


def validate_text(home: Home, path: Path, text: str, keep_name: str | None = None) -> Validation:
    """Check the text of a file as if it were at `path`, together with the other files of its folder.

    `keep_name`: the name that it must have. Raises ConfigError if the folder cannot be read.
    """
    problems = [
        f"{place}: {MASK} is shown instead of a secret; write a reference to the secret, ${{NAME}} or ${{file:PATH}}"
        for place in shown_file(text).were_masks
    ]
    files = folder_files(path.parent, {path: text})
    checked = next(file for file in files if file.path == path)
    namesakes = [
        file.path for file in files if file.path != path and checked.name is not None and file.name == checked.name
    ]
    problems += checked.problems
    if keep_name not in (None, checked.name) and not problems:
        problems.append(
            f"name: found {checked.name}, but this is the file of {keep_name}. A renamed pipeline is another one, and needs another "
            "table: create it, and delete this one"
        )
    columns, warnings = "", list[str]()
    for pipeline in checked.pipelines if not problems else ():
        try:
            columns = require_valid(pipeline, str(path))
            warnings += cluster_warnings(home, pipeline)
        except ConfigError as error:
            problems += error.problems
    return Validation(checked.name, tuple(problems), tuple(warnings), columns, next(iter(namesakes), None))


def cluster_warnings(home: Home, pipeline: Pipeline) -> list[str]:
    """Warn of an untried cluster manager, of a table that executors may not reach, and of engines that cannot read it. Raises ConfigError
    if engine.yaml is broken."""
    master = load_engine_settings(home).master
    return [*filter(None, (untried_master_warning(master), *_table_warnings(pipeline, master)))]


def _table_warnings(pipeline: Pipeline, master: str | None) -> tuple[str | None, ...]:
    local = local_table_warning(pipeline.table.base_path, master) if master else None
    return local, pipeline.catalog.readers_warning if pipeline.catalog and not pipeline.table.iceberg else None


@dataclass(slots=True)
class OnlineCheck:
    """Findings, each line with the part that it is about: `kafka`, `schema`, `table`, `catalog` or `iceberg`."""

    problems: list[str] = field(default_factory=list)
    """Why the pipeline would stop now."""
    changes: list[str] = field(default_factory=list)
    """The changes of the table's columns by its next transaction."""
    facts: list[str] = field(default_factory=list)
    """Everything that is as it should be."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @contextmanager
    def part(self, name: str) -> Iterator[Callable[[str], None]]:
        """Note an IngestError of the block as a problem of this part; the block gets what notes a fact of it."""
        try:
            yield lambda text: self.facts.append(f"{name}: {text}")
        except IngestError as error:
            self.problems.append(f"{name}: {error}")


@dataclass(slots=True)
class CheckedFiles:
    """The outcome of a check of settings files: what is wrong, by the file's name or, for variables, where it is."""

    errors: dict[str, ConfigError] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    valid: dict[str, Sequence[Pipeline]] = field(default_factory=dict)
    """The pipelines of the files without an error."""
    online: dict[str, OnlineCheck] = field(default_factory=dict)

    def to_dict(self, files: Sequence[Path], asked_online: bool) -> dict[str, Any]:
        """Return the problems of each file, with what the services say if they were asked, for users' scripts."""
        places = dict.fromkeys([*(place for place in self.errors if place not in map(str, files)), *map(str, files)])
        problems = {place: list(self.errors[place].problems) if place in self.errors else [] for place in places}
        if not asked_online:
            return problems
        nothing = OnlineCheck()
        return {
            place: {**self.online.get(place, nothing).to_dict(), "problems": found} for place, found in problems.items()
        }


def check_files(
    home: Home, files: Sequence[Path], online: bool, loads: Sequence[Callable[[Home], object]] = ()
) -> CheckedFiles:
    """Check pipeline files, engine.yaml, and other settings of the home by what `loads` them. `online`: also ask the services that pipelines
    name."""
    found = CheckedFiles()
    master: str | None = None
    try:
        master = load_engine_settings(home).master
        if untried := untried_master_warning(master):
            found.warnings.append(f"warning: {untried}")
    except ConfigError as error:
        found.errors[error.where] = error
    for load in loads:
        try:
            load(home)
        except ConfigError as error:
            found.errors[error.where] = error
    for file in files:
        where = str(file)
        try:
            pipelines = load_file_alone(file).pipelines
            for pipeline in pipelines:
                require_valid(pipeline, where)
                if not online:
                    require_own_local_table(pipeline, where)
            warnings = (warning for pipeline in pipelines for warning in _table_warnings(pipeline, master))
            found.warnings += (f"{file}: warning: {warning}" for warning in warnings if warning)
            if online:
                with Ledger.open(home.ledger_url) as ledger:
                    found.online[where] = check_all_online(pipelines, ledger)
                if found.online[where].problems:
                    raise ConfigError(where, found.online[where].problems)
            found.valid[where] = pipelines
        except ConfigError as error:
            found.errors[where] = error
    return found


def check_all_online(pipelines: Sequence[Pipeline], ledger: Ledger) -> OnlineCheck:
    """Check the pipelines of one file; each line of several says whose it is. Raises no IngestError."""
    if len(pipelines) == 1:
        return check_online(pipelines[0], ledger)
    whole = OnlineCheck()
    for pipeline in pipelines:
        check = check_online(pipeline, ledger)
        for lines, own in (
            (whole.problems, check.problems),
            (whole.changes, check.changes),
            (whole.facts, check.facts),
        ):
            lines += [f"{pipeline.name}: {line}" for line in own]
    return whole


def check_online(pipeline: Pipeline, ledger: Ledger | None = None) -> OnlineCheck:
    """Ask every part, whatever is wrong with the others. `ledger`: None if its other table is looked for elsewhere. Raises no
    IngestError."""
    check = OnlineCheck()
    topics: tuple[str, ...] = pipeline.source.topics
    with check.part("kafka") as note, kept_cluster(pipeline.source) as cluster:
        topics = cluster.topic_names()
        _check_topics(pipeline, topics, cluster, check, note)
    table = PipelineTable(pipeline)
    timeline = table.timeline
    with check.part("table") as note:
        _check_table(pipeline, timeline, check, note)
        if ledger is not None and not any(problem.startswith("table: ") for problem in check.problems):
            require_writable_table(pipeline, table, ledger)
    if topics:
        with check.part("schema") as note:
            _check_schema(pipeline.reading(topics), timeline, check, note)
    if pipeline.catalog is not None:
        _check_catalog(pipeline.catalog.uris, check)
    if pipeline.table.iceberg is not None:
        with check.part("iceberg") as note:
            note(IcebergSync(pipeline, timeline, Home.from_environment()).newest_text())
    return check


def _check_topics(
    pipeline: Pipeline,
    topics: tuple[str, ...],
    cluster: KafkaCluster,
    check: OnlineCheck,
    note: Callable[[str], None],
) -> None:
    source, letters = pipeline.source, pipeline.dead_letters.topic
    if not topics:
        check.problems.append(f"kafka: no topic on {source.bootstrap_servers} matches source.topics_pattern")
    described = cluster.each_topic([*topics, *([letters] if letters else [])])
    check.problems += [f"kafka: {answer}" for answer in described.values() if isinstance(answer, IngestError)]
    known = {name: answer.partitions for name, answer in described.items() if not isinstance(answer, IngestError)}
    for name in cluster.without_read_access(name for name in known if name in topics):
        check.problems.append(
            f"kafka: the broker lets {_who(pipeline)} describe topic {name}, but not read it; allow the operation READ on it"
        )
    for topic, offsets in source.starting_offsets.items() if isinstance(source.starting_offsets, dict) else ():
        numbers = {partition.partition for partition in known.get(topic, ())}
        missing = sorted(offsets.keys() - numbers) if topic in known else []
        check.problems += [
            f"kafka: source.starting_offsets names partition {number} of topic {topic}, which has {counted(len(numbers), 'partition')}"
            for number in missing
        ]
    marks = cluster.each_watermarks(partition for name in topics for partition in known.get(name, ()))
    check.problems += [f"kafka: {answer}" for answer in marks.values() if isinstance(answer, IngestError)]
    records = sum(answer.end - answer.begin for answer in marks.values() if not isinstance(answer, IngestError))
    for name in filter(known.__contains__, topics):
        note(f"topic {name} has {counted(len(known[name]), 'partition')}")
    note(f"the broker holds {counted(records, 'offset')} of them")


def _who(pipeline: Pipeline) -> str:
    security = pipeline.source.security
    return f"user {security.username}" if security is not None and security.username else "this login"


def _check_table(pipeline: Pipeline, timeline: Timeline, check: OnlineCheck, note: Callable[[str], None]) -> None:
    path = pipeline.table.base_path
    if not timeline.exists():
        note(f"there is none at {path} yet; the first transaction creates it")
        timeline.storage.require_creatable()
        return
    properties = timeline.properties()
    taken_over = pipeline.table.take_over is not None and PIPELINE_PROPERTY not in properties
    # All that differs, and not only what a begin would refuse first.
    rules = (require_same_folders,) if taken_over else (require_own_table, require_same_folders, require_same_keys)
    for rule in rules:
        with check.part("table"):
            rule(pipeline, properties)
    check.problems[:] = dict.fromkeys(check.problems)
    note(f"there is one at {path}")


def _check_schema(pipeline: Pipeline, timeline: Timeline, check: OnlineCheck, note: Callable[[str], None]) -> None:
    schema = proposed_schema(pipeline, timeline)
    check.changes += [f"table: {change}" for change in schema.changes]
    note(f"columns {schema.origin}")
    check.facts += [f"schema: {warning}" for warning in schema.warnings]
    if needs_registry(pipeline.source) or (pipeline.source.key is not None and needs_registry(pipeline.source.key)):
        row_maker_of(pipeline, schema, datetime.now(timezone.utc))
        _require_subjects(pipeline)


def _require_subjects(pipeline: Pipeline) -> None:
    """Raises SchemaMissing if a subject that records name is not in the registry; declared columns need not ask for it."""
    # Imported here, because its libraries are an extra.
    from hudi_ingest.kafka.registry import RegistryClient

    registry, source = pipeline.source.schema_registry, pipeline.source
    assert registry is not None, "checked with the pipeline file"
    wanted: list[tuple[str, str | None]] = []
    if needs_registry(source):
        wanted += [(source.format, registry.subject_of(topic)) for topic in source.topics]
    if source.key is not None and needs_registry(source.key):
        wanted += [(source.key.format, registry.key_subject_of(topic)) for topic in source.topics]
    for format, subject in dict.fromkeys(wanted):
        if subject is not None:
            RegistryClient(registry, KINDS[format]).latest(subject)


def _check_catalog(uris: str, check: OnlineCheck) -> None:
    """Check that one of the metastores accepts connections."""
    listening, refusals = first_listening(uris.split(","))
    if listening is not None:
        check.facts.append(f"catalog: {listening} accepts connections")
        return
    failures = "; ".join(f"{uri}: {error.strerror or error}" for uri, error in refusals.items())
    check.problems.append(f"catalog: no metastore accepts connections ({failures}); start it, or correct catalog.uris")
