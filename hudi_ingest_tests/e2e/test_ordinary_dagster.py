"""R10: pipelines in a Dagster that a team already runs: a stock instance on PostgreSQL, the team's own code location in another
process, its executor and its IO manager; nothing of ours but the definitions."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from dagster import AssetCheckKey, AssetKey, DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import ProcessRecord, accepts_connections, free_port, start, stop, wait_until
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.health.judgement import FILES_LARGE_ENOUGH, QUESTIONS
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator.runs import ENDING_SECONDS
from hudi_ingest.pipeline.sections.transaction import TICK_SECONDS
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.command_line import environment
from hudi_ingest_tests.support.dg_project import make_project
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, write_pipeline
from hudi_ingest_tests.support.launching import await_end, launch, terminate
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.tier(3),
    pytest.mark.skipif(postgres.programs() is None, reason="PostgreSQL is not installed"),
]

REPOSITORY = Path(__file__).parent.parent.parent
READY_SECONDS = 180
RUN_SECONDS = 240
TIMEOUT_SECONDS = 60
"""The struck pipeline's, in which a dead run is noticed."""
STARTING_SECONDS = 180
"""How long a stock Dagster may take from the sensor's request to begin: its tick, its queue, its processes."""

TEAM = '''
    import json
    from pathlib import Path

    import shop
    from dagster import AssetKey, Definitions, IOManager, asset, load_from_defs_folder, multiprocess_executor

    from hudi_ingest import ingest_definitions

    class JsonFiles(IOManager):
        """Keeps op results as JSON; a table would be an error."""

        def _file(self, context):
            return Path({results!r}, *context.get_identifier()).with_suffix(".json")

        def handle_output(self, context, obj):
            assert not context.has_asset_key
            self._file(context).parent.mkdir(parents=True, exist_ok=True)
            self._file(context).write_text(json.dumps(obj))

        def load_input(self, context):
            return json.loads(self._file(context.upstream_output).read_text())

    @asset(deps=[AssetKey([{table!r}])])
    def report() -> None: ...

    defs = Definitions.merge(
        ingest_definitions(),
        load_from_defs_folder(path_within_project=Path(shop.__file__).parent),
        Definitions(assets=[report], executor=multiprocess_executor, resources={{"io_manager": JsonFiles()}}),
    )
'''


@dataclass(frozen=True)
class Team:
    """A team's Dagster: `url` of its webserver, its instance's folder, and the code server as it runs now."""

    url: str
    folder: Path
    bring_up_code: Callable[[], ProcessRecord]


@contextmanager
def running_team(home: Home, database: sa.URL, table: str, project: Path) -> Iterator[Team]:
    """Dagster's own commands on a stock dagster.yaml with PostgreSQL. The code location has the home's pipelines and the
    components of a `dg` project."""
    folder = home.root / "dagster"
    folder.mkdir()
    storage = {
        "postgres": {"postgres_url": database.set(drivername="postgresql").render_as_string(hide_password=False)}
    }
    (folder / "dagster.yaml").write_text(yaml.safe_dump({"storage": storage, "telemetry": {"enabled": False}}))
    code_port, ui_port = free_port(), free_port()
    server = {"host": "127.0.0.1", "port": code_port, "location_name": webserver.LOCATION}
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
    (folder / "team.py").write_text(textwrap.dedent(TEAM.format(results=str(home.root / "results"), table=table)))
    path = os.pathsep.join([str(project / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    variables = environment(home, {"DAGSTER_HOME": str(folder), "PYTHONPATH": path})
    dagster = str(Path(sys.executable).parent / "dagster")
    with ExitStack() as started:

        def bring_up(name: str, *command: str) -> ProcessRecord:
            record = start(name, command, log=home.root / f"{name}.log", env=variables, cwd=folder)
            started.callback(stop, [record])
            return record

        def bring_up_code() -> ProcessRecord:
            options = ["-h", "127.0.0.1", "-p", str(code_port), "-f", "team.py", "--location-name", webserver.LOCATION]
            code = bring_up("code", dagster, "code-server", "start", *options)
            wait_until(
                lambda: accepts_connections(code_port),
                what="the code server serves",
                timeout_seconds=READY_SECONDS,
                records_to_watch=[code],
            )
            return code

        team = Team(f"http://127.0.0.1:{ui_port}", folder, bring_up_code)
        workspace = str(folder / "workspace.yaml")
        # Only one process at a time makes an instance's tables.
        with DagsterInstance.from_config(str(folder)):
            pass
        others = [
            bring_up("daemon", f"{dagster}-daemon", "run", "-w", workspace),
            bring_up("webserver", f"{dagster}-webserver", "-h", "127.0.0.1", "-p", str(ui_port), "-w", workspace),
        ]
        wait_until(
            lambda: webserver.daemons_are_healthy(team.url),
            what="the daemon is well",
            timeout_seconds=READY_SECONDS,
            records_to_watch=others,
        )
        yield team


def end_host(code: ProcessRecord) -> None:
    """What the end of a machine or a pod does to the code server, and to all runs and ops that it has started."""
    os.killpg(code.pid, signal.SIGKILL)
    stop([code])


def states(ledger: Ledger, pipeline: str) -> list[TransactionState]:
    """Newest first."""
    return [row.state for row in ledger.transactions.history(pipeline)]


def committed(ledger: Ledger, pipeline: str) -> int:
    return states(ledger, pipeline).count(TransactionState.COMMITTED)


def test_r10_p5_everything_works_in_a_stock_dagster_and_a_run_that_died_with_its_host_is_replaced_in_time(
    ground: Ground, topic: str, fault: Fault
) -> None:
    calm = Ground(f"{ground.name}_calm", ground.bootstrap_servers, ground.home)
    create_topic(ground.bootstrap_servers, calm.name, 2)
    # Within the tests' own home, so that the tables do not meet.
    calm_table = str(ground.home.root / "calm")
    write_pipeline(ground, enabled=True, transaction={"timeout_seconds": TIMEOUT_SECONDS, "interval_seconds": 5})
    component = write_pipeline(
        calm,
        enabled=True,
        table={"base_path": calm_table},
        source={"starting_offsets": {calm.name: {0: 10}}},
        transaction={"interval_seconds": 5},
    )
    project = make_project(ground.home.root / "project", calm=yaml.safe_load(component.read_text()))
    component.unlink()
    with ExitStack() as stack:
        url = stack.enter_context(postgres.running())
        assert url is not None
        home = Home(root=ground.home.root, pipelines=ground.home.pipelines, ledger_url=url)
        ledger = stack.enter_context(Ledger.open(url))
        stack.enter_context(running_engine(home))
        team = stack.enter_context(running_team(home, sa.make_url(url), ground.name, project))
        instance = stack.enter_context(DagsterInstance.from_config(str(team.folder)))
        code = team.bring_up_code()

        # A run dies with its host in the middle of an op.
        ground.send_rows(0, 20)
        ground.send_rows(1, 20)
        fault.arm("slices_written", "stop")
        fault.await_reached("slices_written", READY_SECONDS + RUN_SECONDS)
        end_host(code)
        died = time.monotonic()
        (dead,) = instance.get_runs(RunsFilter(tags={"hudi_ingest/pipeline": ground.name}))
        assert not dead.is_finished
        code = team.bring_up_code()

        # Meanwhile the other pipeline does all that there is to do.
        fault.arm("slices_written", "raise")
        calm.send_rows(0, 25)
        calm.send_rows(1, 20)
        wait_for(lambda: committed(ledger, calm.name) == 1, "the first commit", RUN_SECONDS, 0.5)
        (live,) = instance.get_runs(RunsFilter(tags={"hudi_ingest/pipeline": calm.name}))
        (retried,) = instance.all_logs(live.run_id, of_type=DagsterEventType.STEP_UP_FOR_RETRY)
        assert ".write[" in str(retried.step_key)
        await_end(team.url, live.run_id, RUN_SECONDS)
        processes = {
            event.get_dagster_event().engine_event_data.metadata["pid"].value
            for event in instance.all_logs(live.run_id, of_type=DagsterEventType.STEP_WORKER_STARTED)
        }
        assert len(processes) == 5, "begin, two write ops, one of them twice, and commit"
        ranges = {"topic": calm.name, "partition": 0, "start": 0, "end": 10}
        for kind, range_ in (("backfill", ranges), ("replay", {**ranges, "start": 5, "end": 15})):
            config = {"ops": {kind: {"config": {"ranges": [range_]}}}}
            run_id = launch(team.url, f"hudi_ingest_{kind}_components", config, partition=calm.name)
            assert await_end(team.url, run_id, RUN_SECONDS) == "SUCCESS"
        assert verify(calm_table, calm.produced).exact

        # Cancelled in the UI while its begin op waits for the table; the next tick plans the same offsets again.
        with ledger.table_lock(calm_table):
            calm.send_rows(1, 5, 20)
            wait_for(lambda: unfinished_begin(instance, calm.name), "a run waits for the table", RUN_SECONDS, 0.5)
            waiting = unfinished_begin(instance, calm.name)
            terminate(team.url, waiting)
            assert await_end(team.url, waiting, RUN_SECONDS) == "CANCELED"
        wait_for(lambda: committed(ledger, calm.name) == 4, "the commit of what was cancelled", RUN_SECONDS, 0.5)
        assert verify(calm_table, calm.produced).exact

        # The dead run is known by its transaction's deadline; Dagster alone would show it as started for ever.
        bound = TIMEOUT_SECONDS + ENDING_SECONDS + TICK_SECONDS + STARTING_SECONDS
        left = max(0.0, died + bound - time.monotonic())
        wait_for(lambda: len(ledger.transactions.history(ground.name)) > 1, "the next transaction begins", left, 0.2)
        *_, second, first = ledger.transactions.history(ground.name)
        assert (second.began_at - first.began_at).total_seconds() < bound
        assert first.owner == Owner.dagster_run(dead.run_id)
        dead = instance.get_runs(RunsFilter(run_ids=[dead.run_id]))[0]
        assert dead.status is DagsterRunStatus.FAILURE
        # On a machine whose cores are all busy, the next one may not be ready in time either.
        wait_for(lambda: states(ledger, ground.name)[0] is TransactionState.COMMITTED, "its commit", RUN_SECONDS, 0.5)
        assert set(states(ledger, ground.name)[1:]) == {TransactionState.ABORTED}
        assert verify(ground.base_path, ground.produced).exact
        for name in (ground.name, calm.name):
            wait_for(lambda name=name: checks_pass(instance, name), "the checks pass", RUN_SECONDS, 0.5)  # type: ignore[misc]


def unfinished_begin(instance: DagsterInstance, pipeline: str) -> str:
    """The run of the pipeline whose begin op is at work; "" if there is none."""
    for run in instance.get_runs(RunsFilter(tags={tags.PIPELINE: pipeline}), limit=3):
        if not run.is_finished and instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_START):
            return run.run_id
    return ""


def checks_pass(instance: DagsterInstance, pipeline: str) -> bool:
    keys = [AssetCheckKey(AssetKey([pipeline]), name) for name in QUESTIONS]
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    passed = {key.name for key, record in records.items() if record.status.value == "SUCCEEDED"}
    # Transactions of a few records, one after another, do leave small files.
    return passed | {FILES_LARGE_ENOUGH} == set(QUESTIONS)
