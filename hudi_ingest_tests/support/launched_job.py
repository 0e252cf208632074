"""Jobs for the tests of forked runs: in a module of its own, as the run's process imports it anew."""

import os
import subprocess
import sys
import time
from pathlib import Path

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, Definitions, In, Nothing, OpExecutionContext, job, op

from hudi_ingest.orchestration.executor import EXECUTOR
from hudi_ingest_tests.support.waiting import wait_for

PIDS = "pids"
"""Config of each op: a folder where it leaves its process id under its own name."""


@op(config_schema={PIDS: str})
def first(context: OpExecutionContext) -> None:
    leave_pid(context)


@op(config_schema={PIDS: str}, ins={"before": In(Nothing)})
def endless(context: OpExecutionContext) -> None:
    leave_pid(context)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        time.sleep(0.05)


@op(config_schema={PIDS: str}, ins={"before": In(Nothing)})
def last(context: OpExecutionContext) -> None:
    leave_pid(context)


def leave_pid(context: OpExecutionContext) -> None:
    folder = Path(context.op_config[PIDS])
    partial = folder / f".{context.op.name}"
    partial.write_text(str(os.getpid()))
    partial.rename(folder / context.op.name)
    sys.stdout.write(f"{context.op.name} has printed\n")
    subprocess.run(["/bin/sh", "-c", f"echo a child of {context.op.name} has printed >&2"], check=True)


@op(ins={"before": In(Nothing)})
def fail() -> None:
    raise ArithmeticError("this op always fails")


@job(executor_def=EXECUTOR)
def short_job() -> None:
    last(first())


@job(executor_def=EXECUTOR)
def failing_job() -> None:
    fail(first())


@job(executor_def=EXECUTOR)
def endless_job() -> None:
    endless(first())


definitions = Definitions(jobs=[short_job, endless_job, failing_job])


def run_config(pids: Path, *ops: str) -> dict[str, object]:
    return {"ops": {name: {"config": {PIDS: str(pids)}} for name in ops if name != fail.name}}


def found(instance: DagsterInstance, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def await_end(instance: DagsterInstance, run_id: str, status: DagsterRunStatus) -> None:
    wait_for(lambda: found(instance, run_id).is_finished, "the run ends")
    assert found(instance, run_id).status == status, [each.user_message for each in instance.all_logs(run_id)]
