"""The run: begin → one mapped op per Kafka partition → commit; its result is the Hudi table, an asset."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from dagster import (
    AssetsDefinition,
    AssetSpec,
    DynamicOut,
    DynamicOutput,
    FreshnessPolicy,
    GraphDefinition,
    In,
    InputMapping,
    MetadataValue,
    NodeInvocation,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    OutputMapping,
    graph,
)

from hudi_ingest.exceptions import (
    ConfigError,
    Fenced,
    IngestError,
    NothingToDo,
    PlanOutdated,
    Terminal,
    TransactionInFlight,
)
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import small_files_warning
from hudi_ingest.ledger import Ledger, RequestState
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.operations.health.judgement import runs_succeed
from hudi_ingest.operations.observation import Observation, look_at
from hudi_ingest.operations.requests.planning import completed, settled_progress
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import source_keys, table_key
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.resources import (
    IO_MANAGER,
    LEDGER,
    SPARK,
    require_ledger_of_begin,
    require_ledger_of_sensor,
)
from hudi_ingest.orchestration.jobs.run_config import (
    BEGIN,
    BeginConfig,
    first_failure,
    plan_in,
    pool,
    retry_policy,
    run_is_finished,
    run_tags,
    stopped,
)
from hudi_ingest.orchestration.reports.checks import evaluation
from hudi_ingest.orchestration.reports.complete_periods import said_through
from hudi_ingest.orchestration.reports.materialization import (
    SLICE_COLUMNS,
    by_kind,
    lag_metadata,
    materialization,
    metadata_table,
    pipeline_columns,
    row_count,
    slice_row,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.transaction.plan.arithmetic import group_slices, left_out_text
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.run import protocol_for, when_table_is_free

WRITE = "write"
COMMIT = "commit"
_Result = TypeVar("_Result", dict[str, Any], list[dict[str, Any]])
_LEDGER = "ledger"
"""Key of what begin hands on, beside the transaction's own: where its ledger is."""


def table_spec(pipeline: Pipeline) -> AssetSpec:
    """Describe the pipeline's table as an asset downstream of its topics."""
    asset = pipeline.asset
    # Otherwise the check `up_to_date` knows better than materializations do.
    is_overdue = asset.fresh_within_seconds is not None and not pipeline.declares_complete
    return AssetSpec(
        table_key(pipeline),
        deps=source_keys(pipeline),
        description=_description(pipeline),
        metadata=_definition_metadata(pipeline),
        skippable=True,
        group_name=asset.group or pipeline.name,
        owners=asset.owners,
        tags=asset.tags,
        kinds={"kafka", "hudi", "spark"},
        freshness_policy=FreshnessPolicy.time_window(timedelta(seconds=asset.fresh_within_seconds or 0))
        if is_overdue
        else None,
    )


def table_asset(
    pipeline: Pipeline, io_manager_key: str = IO_MANAGER, spec: AssetSpec | None = None
) -> AssetsDefinition:
    """Build the pipeline's table as a graph-backed asset. `io_manager_key`: the resource that keeps what its ops hand on; `spec`: what the
    asset is, with the pipeline's key, instead of `table_spec`. Raises ConfigError for partitions: a commit has records of any time."""
    spec = spec or table_spec(pipeline)
    if spec.partitions_def is not None:
        raise ConfigError(
            pipeline.name,
            [
                "the asset of a table cannot have partitions, because each commit has records of any time; `asset.complete` adds an asset "
                "with hours or days"
            ],
        )
    # Dagster takes dependencies of a graph as its inputs only.
    given = {dep.asset_key for dep in spec.deps}
    spec = spec.replace_attributes(deps=[*(key for key in source_keys(pipeline) if key not in given), *spec.deps])
    inputs = {f"topic_{index}": dep.asset_key for index, dep in enumerate(spec.deps)}
    table = AssetsDefinition.from_graph(
        _transaction_graph(pipeline, io_manager_key, [*inputs], spec.description),
        keys_by_input_name=inputs,
        keys_by_output_name={"result": spec.key},
    )
    return table.map_asset_specs(lambda _: spec)


def mapping_keys(groups: Sequence[Sequence[Slice]]) -> list[str]:
    """Return distinct names for the mapped ops: topic and partition, or the group's number. Dagster allows letters, digits and _."""
    names = [
        re.sub(r"[^A-Za-z0-9_]", "_", f"{group[0].topic}_{group[0].partition}") if len(group) == 1 else f"group_{index}"
        for index, group in enumerate(groups)
    ]
    # Topics "a.b" and "a_b" would share a name.
    return names if len(set(names)) == len(names) else [f"{name}__{index}" for index, name in enumerate(names)]


def _transaction_graph(
    pipeline: Pipeline, io_manager_key: str, inputs: Sequence[str], description: str | None
) -> GraphDefinition:
    ops = dict(zip(_GIVEN, _ops(pipeline, io_manager_key, inputs), strict=True))
    return GraphDefinition(
        pipeline.name,
        description=description,
        node_defs=[*ops.values()],
        dependencies={NodeInvocation(op.name, name): _GIVEN[name] for name, op in ops.items()},
        input_mappings=[
            InputMapping(graph_input_name=upstream, mapped_node_name=BEGIN, mapped_node_input_name=upstream)
            for upstream in inputs
        ],
        output_mappings=[OutputMapping("result", COMMIT, "result")],
    )


_BEGIN_CONFIG = BeginConfig.to_config_schema()
_UPSTREAM = In(Nothing)
_WRITE_INS = {"transaction": In(dict), "slices": In(list)}
_COMMIT_INS = {"transaction": In(dict), "reports": In(list)}
# There is no output value, so no IO manager adds a path of its own to the table's metadata. A retry commits nothing, and
# materializes nothing, if none of its dead letters can become a row.
_COMMIT_OUT = {"result": Out(Nothing, is_required=False)}


def _outline() -> GraphDefinition:
    """Return the graph of any transaction, of ops that are never executed. Traced once, not for each of hundreds of pipelines."""
    begin = OpDefinition(lambda *_: None, BEGIN, outs={"transaction": Out(dict), "slices": DynamicOut(list)})
    write = OpDefinition(lambda *_: None, WRITE, ins=_WRITE_INS, outs={"result": Out(list)})
    commit = OpDefinition(lambda *_: None, COMMIT, ins=_COMMIT_INS, outs=_COMMIT_OUT)

    @graph
    def transaction() -> None:
        opened, slices = begin()
        reports = slices.map(lambda group: write(transaction=opened, slices=group)).collect()
        commit(transaction=opened, reports=reports)

    return transaction


_GIVEN = {node.alias or node.name: inputs for node, inputs in _outline().dependencies.items()}
"""The outputs that each op is given, by its name in the graph and the name of its input."""


@cache
def _begin_outs(io_manager_key: str) -> Mapping[str, Out]:
    # Without a transaction the later ops are skipped: see _is_harmless.
    return {
        "transaction": Out(dict, is_required=False, io_manager_key=io_manager_key),
        "slices": DynamicOut(list, io_manager_key=io_manager_key),
    }


@cache
def _write_out(io_manager_key: str) -> Mapping[str, Out]:
    return {"result": Out(list, io_manager_key=io_manager_key)}


def _ops(pipeline: Pipeline, io_manager_key: str, inputs: Sequence[str]) -> tuple[OpDefinition, ...]:
    """Build the ops of a pipeline. Dagster's decorators would inspect each function, and describe its config, anew for each of perhaps
    hundreds of pipelines, so they are not used: what does not differ is shared."""

    def begin(context: OpExecutionContext, inputs: Mapping[str, Any]) -> Iterator[Any]:
        yield from _begin(context, pipeline, BeginConfig(**context.op_config))

    def write(context: OpExecutionContext, inputs: Mapping[str, Any]) -> Iterator[Any]:
        yield _write(context, pipeline, **inputs)

    def commit(context: OpExecutionContext, inputs: Mapping[str, Any]) -> Iterator[Any]:
        yield from _commit(context, pipeline, **inputs)

    retries = retry_policy(pipeline)
    return (
        OpDefinition(
            begin,
            f"{pipeline.name}__begin",
            ins=dict.fromkeys(inputs, _UPSTREAM),
            outs=_begin_outs(io_manager_key),
            description="Checks that the plan starts at the committed offsets, rolls back what a dead transaction left, and opens an instant.",
            config_schema=_BEGIN_CONFIG,
            required_resource_keys={SPARK, LEDGER},
            retry_policy=retries,
            pool=pool(pipeline),
        ),
        OpDefinition(
            write,
            f"{pipeline.name}__write",
            ins=_WRITE_INS,
            outs=_write_out(io_manager_key),
            description="Reads a bounded offset range of its Kafka partitions and writes their base files.",
            required_resource_keys={SPARK, LEDGER},
            retry_policy=retries,
        ),
        OpDefinition(
            commit,
            f"{pipeline.name}__commit",
            ins=_COMMIT_INS,
            outs=_COMMIT_OUT,
            description="Publishes one Hudi commit with all files and offsets, then updates the consumer group and the ledger.",
            required_resource_keys={SPARK, LEDGER},
            retry_policy=retries,
        ),
    )


def _begin(context: OpExecutionContext, pipeline: Pipeline, config: BeginConfig) -> Iterator[Any]:
    with as_dagster_failures(), _protocol(context, pipeline) as protocol:
        require_ledger_of_sensor(protocol.ledger, pipeline.name, context.run.tags.get(tags.LEDGER, ""))
        given = plan_in(context.run, pipeline, config)
        plan = given or _planned_now(context, pipeline)
        # A sensor's run has them already; one from the asset's page does not.
        if not (planned := run_tags(pipeline, plan)).items() <= context.run.tags.items():
            context.instance.add_run_tags(context.run_id, planned)
        try:
            transaction = _begun(context, pipeline, protocol, plan, plans_anew=given is None)
        except NothingToDo as nothing:
            context.log.warning(f"nothing to do in this run, because another transaction came first: {nothing}")
            return
        except (PlanOutdated, TransactionInFlight) as error:
            if not _is_harmless(context):
                raise
            context.log.warning(f"nothing to do in this run; the coordinator will plan again: {error}")
            return
        plan = transaction.plan
        # Those of a plan that was made anew differ.
        begun_tags = run_tags(pipeline, plan) if given is None else {tags.TRANSACTION: plan.transaction_id}
        context.instance.add_run_tags(context.run_id, {**begun_tags, tags.INSTANT: transaction.instant})
        context.log.info(f"{plan.transaction_id}: instant {transaction.instant} is open for {plan.count} offsets")
        if plan.take_over is not None:
            context.log.info(f"{plan.take_over}")
        for title, text in left_out_text(pipeline.name, plan.stopped, plan.resets, plan.leaderless).items():
            context.log.warning(f"{title}:\n{text}")
        context.log.info(f"columns {transaction.schema.origin}")
        for line in plan.schema_changes:
            context.log.info(f"the table's schema evolves: {line}")
        for line in transaction.schema.warnings:
            context.log.warning(line)
        opened = _plain({**transaction.to_dict(), _LEDGER: protocol.ledger.place})
    yield Output(opened, "transaction", metadata={"instant": transaction.instant})
    groups = group_slices(plan.busy, pipeline.transaction.write_ops(plan.count))
    for name, group in zip(mapping_keys(groups), groups, strict=True):
        yield DynamicOutput([asdict(slice_) for slice_ in group], output_name="slices", mapping_key=name)


def _planned_now(context: OpExecutionContext, pipeline: Pipeline) -> TransactionPlan:
    return replace(plan_now(pipeline), said_through=said_through(pipeline, context.instance))


def _begun(
    context: OpExecutionContext,
    pipeline: Pipeline,
    protocol: TransactionProtocol,
    plan: TransactionPlan,
    plans_anew: bool,
) -> OpenTransaction:
    """Begin the plan's transaction. If another is in its way, wait for as long as that one may last. `plans_anew`: whether nobody has
    chosen the plan, so that a new one takes its place after each wait; then NothingToDo means that the other left nothing."""
    if plan.request:
        plan = _planned_request(pipeline, protocol.ledger, plan)
    owner, finished = Owner.dagster_run(context.run_id), run_is_finished(context.instance)
    first = iter([plan])

    def begin() -> OpenTransaction:
        latest = next(first, None) or (_planned_now(context, pipeline) if plans_anew else plan)
        return protocol.begin(latest, owner, finished)

    passing = (TransactionInFlight, PlanOutdated) if plans_anew else (TransactionInFlight,)
    return when_table_is_free(begin, pipeline.transaction.timeout_seconds, context.log.info, passing)


def _is_harmless(context: OpExecutionContext) -> bool:
    """Whether it is no mistake that the table has moved on since the plan: a tick planned it, and another transaction came
    between. A run that a person launched or relaunched fails and says so."""
    return tags.SENSOR in context.run.tags and context.run.parent_run_id is None


def _planned_request(pipeline: Pipeline, ledger: Ledger, plan: TransactionPlan) -> TransactionPlan:
    request = ledger.requests.find(plan.request)
    if request is None or request.state is not RequestState.ACTIVE:
        state = request.state.value if request else "not known to this ledger"
        raise PlanOutdated(
            f"plan {plan.transaction_id} belongs to request {plan.request}, which is {state}. Nothing was written, and nothing needs to be "
            "done."
        )
    progress = settled_progress(pipeline, ledger, request.request_id)
    return completed(look_at(pipeline).whole(), request, progress, plan)


def _write(
    context: OpExecutionContext, pipeline: Pipeline, transaction: dict[str, Any], slices: list[dict[str, Any]]
) -> Output[list[dict[str, Any]]]:
    opened = OpenTransaction.from_dict(transaction)
    with as_dagster_failures(), _protocol(context, pipeline, transaction) as protocol:
        try:
            reports = protocol.write(opened, [Slice(**fields) for fields in slices], context.retry_number)
        except Fenced as error:
            own = {(fields["topic"], fields["partition"]) for fields in slices}
            culprit = first_failure(protocol.ledger.attempts.of_transaction(opened.plan.transaction_id), own)
            if culprit is None:
                raise
            raise stopped(culprit) from error
        except Terminal as error:
            # No other attempt can save this transaction, so delete its files now, not when its lease expires.
            protocol.abort(opened, str(error))
            raise
    return Output(
        _plain([report.to_dict() for report in reports]),
        metadata={
            "rows": sum(report.rows for report in reports),
            "files": len({file.path for report in reports for file in report.written}),
            "bytes": sum(report.size_bytes for report in reports),
            "attempt": max(report.attempt for report in reports),
            "slices": metadata_table(SLICE_COLUMNS, [slice_row(report) for report in reports]),
        },
    )


def _commit(
    context: OpExecutionContext,
    pipeline: Pipeline,
    transaction: dict[str, Any],
    reports: list[list[dict[str, Any]]],
) -> Iterator[Output[None]]:
    opened = OpenTransaction.from_dict(transaction)
    slice_reports = [SliceReport.from_dict(fields) for group in reports for fields in group]
    with as_dagster_failures(), _protocol(context, pipeline, transaction) as protocol:
        try:
            receipt = protocol.commit(opened, slice_reports)
        except NothingToDo as nothing:
            protocol.abort(opened, str(nothing))
            context.log.warning(str(nothing))
            return
        except Terminal as error:
            protocol.abort(opened, str(error))
            raise
        small = small_files_warning(pipeline, {file.path: file.size_bytes for file in receipt.written})
        for warning in (*receipt.warnings, *filter(None, [small])):
            context.log.warning(warning)
        observation = _observed_now(context, pipeline)
        metadata = materialization(receipt, observation.situation.lag.by_partition if observation else {}, small)
        if observation is not None:
            metadata |= _report_checks_with_commit(context, observation)
    context.log.info(
        f"{opened.plan.transaction_id}: {counted(receipt.rows, 'change' if pipeline.table.is_keyed else 'row')} published by {receipt.instant}"
    )
    columns = parse_spark_json(opened.schema.columns)
    yield Output(
        None,
        metadata={
            **by_kind(receipt.plan.kind, metadata),
            **row_count(pipeline, receipt.checkpoint),
            **pipeline_columns(pipeline, columns, opened.schema.descriptions),
        },
    )


def _plain(value: _Result) -> _Result:
    """Return an op's result as it comes back from a store of JSON, so that it passes through any IO manager unchanged."""
    plain: _Result = json.loads(json.dumps(value))
    return plain


def _observed_now(context: OpExecutionContext, pipeline: Pipeline) -> Observation | None:
    """Observe table and broker, or return None if they cannot be reached, which must not fail a durable commit."""
    try:
        return look_at(pipeline).whole()
    except IngestError as error:
        context.log.warning(f"the commit is durable, but the lag is unknown: {error}")
        return None


def _report_checks_with_commit(context: OpExecutionContext, observation: Observation) -> dict[str, Any]:
    """Report the checks in the run that materializes the table, because Dagster would show earlier ones as not evaluated.
    Returns the rest of the materialization's metadata."""
    pipeline = observation.pipeline
    try:
        findings = [*observation.findings_now, *observation.findings_on_commits, runs_succeed(pipeline, 0)]
        # The embedded storage has it, Dagster's own have not.
        together = getattr(context.instance.event_log_storage, "together", nullcontext)
        with together():
            for finding in findings:
                # Dagster accepts these events here, although its annotation does not say so.
                context.log_event(evaluation(pipeline, finding))  # type: ignore[arg-type]
        return lag_metadata(observation.situation.lag.total, observation.oldest_seconds)
    except IngestError as error:
        context.log.warning(f"the commit is durable, but its checks are left to the next tick: {error}")
        return {}


def _description(pipeline: Pipeline) -> str:
    if pipeline.asset.description is not None:
        return pipeline.asset.description
    pattern = pipeline.source.topics_pattern
    topics = f"topics like `{pattern}`" if pattern else ", ".join(f"`{topic}`" for topic in pipeline.source.topics)
    return f"Hudi table `{pipeline.table.base_path}`, ingested exactly once from Kafka {topics}."


def _definition_metadata(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "table path": MetadataValue.path(pipeline.table.base_path),
        "dagster/uri": pipeline.table.base_path,
        "dagster/storage_kind": "hudi",
        **({"dagster/table_name": pipeline.catalog_table} if pipeline.catalog else {}),
        "partitioned by": ", ".join(pipeline.table.partition_columns) or "none",
        **(pipeline_columns(pipeline, pipeline.table_schema.columns) if pipeline.table.declares_schema else {}),
    }


@contextmanager
def _protocol(
    context: OpExecutionContext, pipeline: Pipeline, opened: Mapping[str, Any] | None = None
) -> Iterator[TransactionProtocol]:
    """Yield the protocol for an op. `opened`: what begin handed to it; None in begin itself."""
    ledger_resource, spark_resource = (getattr(context.resources, key) for key in (LEDGER, SPARK))
    with ledger_resource.open() as ledger:
        if opened is not None:
            require_ledger_of_begin(ledger, opened["plan"]["transaction_id"], opened.get(_LEDGER, ""))
        yield protocol_for(pipeline, ledger, spark_resource.spark_session, Home.from_environment())
