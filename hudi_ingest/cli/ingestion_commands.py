"""Live ingestion: validate, plan, sample, run, accept-loss, pause, resume, status."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.cli.app import (
    AsJson,
    DryRun,
    PipelineName,
    app,
    clock,
    ended_by_nothing_to_do,
    err,
    is_pattern,
    named_pipeline,
    names_beginning,
    out,
    partition_offset,
    pipelines_like,
    print_json,
    print_nothing_to_do,
    print_plan,
    print_receipt,
    print_result,
    say,
    say_left_out,
    show_schema,
)
from hudi_ingest.exceptions import ConfigError, IngestError, NothingToDo
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home

if TYPE_CHECKING:
    from hudi_ingest.operations.upkeep.approvals import SchemaChange
    from hudi_ingest.pipeline.pipeline import Pipeline


@app.command()
def new(
    topic: Annotated[
        str, typer.Argument(help="A topic; or those of a Debezium connector, as a pattern in quotes: 'shop.public.*'.")
    ],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="Brokers, host:port. Default: KAFKA_BOOTSTRAP_SERVERS, which the file then names."),
    ] = None,
    schema_registry: Annotated[
        str | None, typer.Option(help="Address of the schema registry, if there is one.")
    ] = None,
    base_path: Annotated[
        str | None, typer.Option(help="Folder of the table, also s3a://…; {topic} for a pattern.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The pipeline's name. Default: the topic's.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting below `source`, such as security.protocol=SASL_SSL, 'security.password=${KAFKA_PASSWORD}' or "
            "schema_registry.username=me, for each a --source.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and write nothing.")] = False,
) -> None:
    """Read a sample of a topic, and write a pipeline file that fits: format, columns, key, mode and partitions, with the reason of each,
    tried on the sample."""
    from hudi_ingest.operations.new_pipeline import new_file
    from hudi_ingest.operations.pipeline_files import PipelineFiles

    home = Home.from_environment()
    with clock(f"looking at {topic}"):
        file = new_file(topic, home, bootstrap_servers, schema_registry, base_path, name, source or ())
    if dry_run:
        say(file.text.rstrip())
        err.print(file.tried, markup=False)
        return
    home.pipelines.mkdir(parents=True, exist_ok=True)
    stored, validation = PipelineFiles(home).create(file.text)
    for reason in file.reasons:
        say(reason)
    say(file.tried)
    if validation.problems:
        raise ConfigError(
            f"the proposal for {topic}", [*validation.problems, f"nothing was written; it was:\n{file.text}"]
        )
    then = (
        f"topics {stored.path.stem} --refresh"
        if "*" in topic
        else f"run {stored.name} && hudi-ingest head {stored.name}"
    )
    say(f"wrote {stored.path}; look at it, then: hudi-ingest {then}")


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…")],
    online: Annotated[
        bool, typer.Option("--online", help="Also ask the brokers, the schema registry, the table and the catalog.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check pipeline files, and engine.yaml, housekeeping.yaml and alerts.yaml if they exist, and report every problem at once."""
    from hudi_ingest.cli.views import checked_lines
    from hudi_ingest.operations.validation import check_files
    from hudi_ingest.pipeline.code_location import load_alert_settings, load_housekeeping_settings

    others = (load_housekeeping_settings, load_alert_settings)
    found = check_files(Home.from_environment(), files, online, others)
    for warning in found.warnings:
        err.print(warning, markup=False)
    if as_json:
        print_json(found.to_dict(files, online))
    else:
        for error in found.errors.values():
            err.print(str(error), markup=False)
        for line in checked_lines(found):
            say(line)
    if found.errors:
        raise typer.Exit(1)


@app.command()
def plan(name: PipelineName, as_json: AsJson = False) -> None:
    """Show what the next transaction would read, and the table's columns after it. Changes nothing."""
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.next_plan import next_plan

    pipeline = named_pipeline(name)
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        planned = next_plan(pipeline, ledger)
    if as_json:
        print_json(planned.to_dict())
        return
    if planned.plan is not None:
        print_plan(planned.plan, as_json)
    elif planned.skip is not None:
        print_nothing_to_do(planned.skip, as_json)
    show_schema(planned.schema)
    if planned.buckets is not None:
        say(planned.buckets)


@app.command("approve-schema")
def approve_schema(
    name: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="Name of a pipeline, or a pattern of names, such as 'shop_*'.")
    ],
    fingerprint: Annotated[
        str | None, typer.Option(help="Fingerprint of the change you reviewed; nothing else is approved.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Approve the pending schema change of a table with on_schema_change: refuse. Later changes need their own approval."""
    from hudi_ingest.operations.upkeep.approvals import SchemaChange, approve_schema_change, schema_change

    def change_of(pipeline: Pipeline) -> SchemaChange:
        return schema_change(pipeline) if dry_run else approve_schema_change(pipeline, fingerprint)

    if not is_pattern(name):
        with ended_by_nothing_to_do(as_json):
            change = change_of(named_pipeline(name))
        print_result(as_json, change.to_dict(), _change_text(change))
        return
    pipelines = pipelines_like(name)
    changes, errors = list[SchemaChange](), dict[str, str]()
    for pipeline in pipelines:
        try:
            changes.append(change_of(pipeline))
        except NothingToDo:
            continue
        except IngestError as error:
            errors[pipeline.name] = str(error)
    if as_json:
        print_json({"changes": [change.to_dict() for change in changes], "errors": errors})
    else:
        for change in changes:
            say(_change_text(change))
        if not changes and not errors:
            say(f"no change waits in {counted(len(pipelines), 'pipeline')}")
    for error_text in errors.values():
        err.print(f"error: {error_text}", markup=False)
    if errors:
        raise typer.Exit(1)


def _change_text(change: SchemaChange) -> str:
    outcome = f"{'approved' if change.approved else 'not approved'}: {change.fingerprint}, {change.origin}"
    return "\n".join([f"{change.pipeline}:", *change.changes, outcome])


@app.command()
def sample(
    name: PipelineName,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="TOPIC:PARTITION:OFFSET",
            help="Where to start; repeatable. Default: where the next transaction starts or, if no record waits, the newest.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of records, in total.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Preview a few records: their rows, or why they are bad. Starts no Spark and writes nothing."""
    from hudi_ingest.cli.sample_view import sample_view
    from hudi_ingest.operations.sample import take_sample

    starts = dict(partition_offset(start) for start in from_ or ())
    if len(starts) < len(from_ or ()):
        raise typer.BadParameter("--from names a partition twice; name each partition once")
    taken = take_sample(named_pipeline(name), starts or None, limit)
    print_result(as_json, taken.to_dict(), sample_view(taken))


@app.command()
def run(
    name: PipelineName,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Run further transactions until the offsets that the topic had after the first one are read. --json: a list.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one transaction now, in this process. Uses the engine if one is running."""
    from hudi_ingest.transaction.plan.planning import observe
    from hudi_ingest.transaction.run import run_transaction

    pipeline = named_pipeline(name)
    with ended_by_nothing_to_do(as_json), clock() as report:
        receipts = [run_transaction(pipeline, report=report)]
    if not until_caught_up:
        print_receipt(receipts[0], as_json)
        return
    ends = {source: marks.end for source, marks in observe(pipeline).watermarks.items()}
    while True:
        newest = receipts[-1]
        if not as_json:
            print_receipt(newest, as_json)
        if all(newest.checkpoint.offsets.get(source, end) >= end for source, end in ends.items()):
            break
        try:
            with clock() as report:
                receipts.append(run_transaction(pipeline, report=report))
        except NothingToDo:
            break
    if as_json:
        print_json([receipt.to_dict() for receipt in receipts])


@app.command("accept-loss")
def accept_losses(
    name: PipelineName,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION[=OFFSET|end|divergence|first]",
            help="A stopped partition, and where it goes on: at an offset, at the broker's end, where a log that was cut parts from the one "
            "that was read, or at the broker's first offset, which is the default; repeatable.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic that is another one now: recreated, or on another cluster; repeatable."),
    ] = None,
    offsets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with partitions and the offsets where they go on, one TOPIC:PARTITION=OFFSET a line, or as Kafka's tools print them.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Accept that stopped partitions have lost offsets, or that their topic has moved, and let them go on, in one transaction."""
    from hudi_ingest.operations.upkeep.approvals import accept_loss, resume_at, resumes_in
    from hudi_ingest.transaction.plan.planning import plan_accepting

    pipeline = named_pipeline(name)
    if not partition and not topic and offsets is None:
        raise typer.BadParameter("name at least one --partition TOPIC:PARTITION or --topic TOPIC, or --offsets FILE")
    try:
        listed = resumes_in(offsets.read_text().splitlines(), str(offsets), pipeline.group_id) if offsets else {}
        places = dict(resume_at(text) for text in partition or ())
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--offsets: {offsets} cannot be read: {error}") from error
    except ValueError as error:
        raise typer.BadParameter(f"--partition: {error}") from error
    if len(places) < len(partition or ()) or places.keys() & listed.keys():
        raise typer.BadParameter("a partition is named twice; name each partition once")
    sources = [source for source, at in places.items() if at is None]
    resumes = {**listed, **{source: at for source, at in places.items() if at is not None}}
    if dry_run:
        print_plan(plan_accepting(pipeline, sources, topic or (), resumes), as_json)
    else:
        with clock() as report:
            receipt = accept_loss(pipeline, Home.from_environment(), sources, topic or (), report, resumes)
        print_receipt(receipt, as_json)


@app.command()
def pause(name: PipelineName, as_json: AsJson = False) -> None:
    """Pause the pipeline: no transaction of it begins until it is resumed. The ledger keeps the switch. A transaction that is running
    still finishes."""
    _switch(name, False, as_json)


@app.command()
def resume(name: PipelineName, as_json: AsJson = False) -> None:
    """Turn the pipeline on, so that its transactions begin. The ledger keeps the switch."""
    _switch(name, True, as_json)


def _switch(name: str, on: bool, as_json: bool) -> None:
    from hudi_ingest.orchestration.switch import switch

    pipeline = named_pipeline(name)
    changed = switch(Home.from_environment(), pipeline, on)
    text = f"{pipeline.name} {'is' if changed else 'was already'} {'on' if on else 'paused'}"
    print_result(as_json, {"pipeline": pipeline.name, "on": on, "changed": changed}, text)


@app.command()
def status(
    name: Annotated[
        str, typer.Argument(metavar="[PIPELINE]", help="Default: all pipelines.", autocompletion=names_beginning)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show committed offsets, lag and recent transactions; of several pipelines, a line for each. Exits with 1 if a partition is stopped
    or has no leader, a table does not list or account for what its commits say, a pipeline's status cannot be read, a file cannot be
    loaded or a part of the embedded Dagster hangs."""
    from hudi_ingest.cli.views import by_error, status_view, summary_view
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.local.stack import hanging_parts
    from hudi_ingest.operations.state import states as states_of
    from hudi_ingest.orchestration.switch import activities
    from hudi_ingest.pipeline.folder import load_each
    from hudi_ingest.transaction.columns.decoding import format_problems

    home = Home.from_environment()
    pipelines, broken = ((named_pipeline(name),), ()) if name else load_each(home.pipelines, check=format_problems)
    with Ledger.open(home.ledger_url) as ledger:
        answers = states_of(pipelines, ledger)
    doing = activities(home, pipelines)
    hanging = hanging_parts(home)
    states = [
        replace(answer, on=doing[name][0], activity=doing[name][1])
        for name, answer in answers.items()
        if not isinstance(answer, IngestError)
    ]
    failed = {name: str(answer) for name, answer in answers.items() if isinstance(answer, IngestError)}
    errors = {**failed, **{state.name: str(state.error) for state in states if state.error}}
    if as_json:
        facts = [state.to_dict() for state in states]
        failures = [{"pipeline": name, "error": error} for name, error in failed.items()]
        files = [{"pipeline": file.name, "file": str(file.path), "error": "\n".join(file.problems)} for file in broken]
        print_json([*facts, *failures, *files])
    else:
        if name or len(pipelines) == 1:
            for state in states:
                out.print(status_view(state))
        elif not pipelines and not broken:
            say(f"there is no pipeline file in {home.pipelines}; `hudi-ingest new TOPIC` writes one")
        elif states:
            out.print(summary_view(states, datetime.now(timezone.utc)))
            say("`hudi-ingest status PIPELINE` shows partitions and transactions")
        for state in states:
            say_left_out(state.name, state.stopped)
        for names, error in by_error(errors):
            err.print(f"error: {names}: {error}", style="red", markup=False)
        for file in broken:
            err.print(f"error: {file.in_one_line}", style="red", markup=False)
    for why in hanging:
        err.print(f"error: {why}", style="red", markup=False)
    if errors or broken or hanging or any(each.stopped or each.lag is None or each.is_table_broken for each in states):
        raise typer.Exit(1)


@app.command()
def topics(
    name: Annotated[str, typer.Argument(metavar="TEMPLATE", help="Name of a pipeline file with {topic}.")],
    refresh: Annotated[
        bool, typer.Option("--refresh", help="List the broker's topics now, and give new ones a pipeline.")
    ] = False,
    forget: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Forget a topic that was deleted for good; its table stays.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the topics of a template and their pipelines."""
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.topic_discovery import forget_topic, refresh_topics, template_topics
    from hudi_ingest.pipeline.folder import find_template

    home, now = Home.from_environment(), datetime.now(timezone.utc)
    template = find_template(home.pipelines, name)
    discovery = None
    if not template.finds_topics and (refresh or forget):
        raise typer.BadParameter(f"{template.path.name} makes no pipelines of topics that appear")
    if refresh or forget:
        with Ledger.open(home.ledger_url) as ledger:
            if forget:
                forget_topic(template, forget, home, ledger, now)
            discovery = refresh_topics(template, home, ledger, now)
    listed = template_topics(template, discovery)
    if as_json:
        print_json([topic.to_dict() for topic in listed])
        return
    for topic in listed:
        gone = "; NOT ON THE BROKER, so its pipeline fails" if topic.missing else ""
        appeared = f", since {topic.seen_at.isoformat(timespec='seconds')}" if topic.seen_at else ""
        say(f"{topic.topic} → {topic.pipeline}{appeared}{gone}")
    if not listed:
        say(
            f"no topic has matched {template.source.topics_pattern} yet"
            + ("" if refresh else "; --refresh asks the broker now")
        )
