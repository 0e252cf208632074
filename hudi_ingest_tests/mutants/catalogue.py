"""The mutants: each replaces a text that occurs once in a module or in a class of Java, and names what must find it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TESTS = "hudi_ingest_tests/unit"
JAVA_TESTS = "hudi_ingest_tests/integration"


@dataclass(frozen=True)
class Mutant:
    """`path` is a module's below hudi_ingest. `found_by`: a file of fast tests or a test in it, below TESTS, or a seed of the simulation; for a
    class of Java a test below JAVA_TESTS."""

    path: str
    old: str
    new: str
    found_by: str | int

    @property
    def tests(self) -> str:
        return JAVA_TESTS if self.path.endswith(".java") else TESTS

    @property
    def module(self) -> str:
        return f"hudi_ingest/{self.path}".removesuffix(".py").replace("/", ".")

    def applied_to(self, source: str) -> str:
        """Raises ValueError if the module has changed so that this must be renewed."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.path} has {source.count(self.old)} places with {self.old!r}, not one")
        return source.replace(self.old, self.new)


MUTANTS: Mapping[str, Mutant] = {
    # What a first user meets
    "a plan of another pipeline's table begins at 0": Mutant(
        "operations/next_plan.py",
        "    require_writable_table(pipeline, own_table, ledger)\n",
        "",
        "operations/test_online_check.py",
    ),
    "a validation does not look whose a local table is": Mutant(
        "operations/validation.py",
        "                    require_own_local_table(pipeline, where)\n",
        "                    pass\n",
        "operations/test_online_check.py",
    ),
    "the trial of a proposal counts no bad record": Mutant(
        "operations/new_pipeline.py", "found.bad + len(outcome.bad)", "found.bad", "operations/test_tried_proposals.py"
    ),
    "a delimiter is proposed that the reader of CSV refuses": Mutant(
        "operations/sampled_values.py",
        "        except Mismatch:\n            return None\n",
        "        except Mismatch:\n            continue\n",
        "operations/test_tried_proposals.py",
    ),
    "a field that no type holds stays a column": Mutant(
        "operations/sampled_values.py",
        "            columns = pa.schema([*_without([*columns], path)])\n            left_out",
        "            left_out",
        "operations/test_tried_proposals.py",
    ),
    "a new file's name is not looked for before the broker is asked": Mutant(
        "operations/new_pipeline.py",
        "    PipelineFiles(home).require_none(name)\n",
        "",
        "operations/test_tried_proposals.py",
    ),
    "a run without a plan keeps one that is outdated": Mutant(
        "orchestration/jobs/table_asset.py",
        "(_planned_now(context, pipeline) if plans_anew else plan)",
        "plan",
        "orchestration/test_begun.py",
    ),
    "a run without a plan fails when its plan is outdated": Mutant(
        "orchestration/jobs/table_asset.py",
        "(TransactionInFlight, PlanOutdated) if plans_anew else",
        "(TransactionInFlight,) if plans_anew else",
        "orchestration/test_begun.py",
    ),
    # transaction/protocol.py
    "a begin does not end what a dead transaction left": Mutant(
        "transaction/protocol.py", "            clear_dead_transaction(self, owner, run_is_finished)\n", "", 0
    ),
    "a begin does not advance the epoch": Mutant(
        "transaction/protocol.py", "self.epoch.advance(epoch, plan.transaction_id)", "pass", 0
    ),
    "a begin does not flush what the one before it may not have flushed": Mutant(
        "transaction/protocol.py", "                self.flush_all()\n", "                pass\n", 4085179
    ),
    "a begin leaves expired instants": Mutant(
        "transaction/protocol.py", "self.instants.roll_back_expired()", "pass", 0
    ),
    "a begin does not compare its plan with the checkpoint": Mutant(
        "transaction/protocol.py",
        "            require_current(plan, committed.checkpoint)\n            require_off",
        "            require_off",
        "transaction/test_protocol_steps.py",
    ),
    "a begin that fails is not rolled back": Mutant(
        "transaction/protocol.py",
        'roll_back(self, plan.transaction_id, f"begin failed: {type(error).__name__}: {error}")',
        "pass",
        "transaction/test_protocol_steps.py",
    ),
    "a transaction id is used again": Mutant(
        "transaction/protocol.py",
        "replace(self._with_unused_id(plan), ",
        "replace(plan, ",
        "transaction/test_protocol_steps.py",
    ),
    "a commit does not ask whether it has landed before": Mutant(
        "transaction/protocol.py",
        "            published = self.table.instant_of(plan.transaction_id)\n            if published is not None and",
        "            published = None\n            if published is not None and",
        "transaction/test_protocol_steps.py",
    ),
    "a commit that is called again does not look for what a power cut has damaged": Mutant(
        "transaction/protocol.py",
        "if published is not None and self._repair():",
        "if published is not None and not published:",
        "transaction/test_protocol_steps.py",
    ),
    "a commit does not ask the ledger whether its transaction is open": Mutant(
        "transaction/protocol.py",
        "        self._require_open(transaction)\n        require_time(transaction)\n",
        "        require_time(transaction)\n",
        "transaction/test_protocol_steps.py",
    ),
    "a commit does not look at its deadline": Mutant(
        "transaction/protocol.py",
        "        require_time(transaction)\n        self._require_epoch(transaction)\n",
        "        self._require_epoch(transaction)\n",
        "transaction/test_protocol_steps.py",
    ),
    "a commit does not look at its epoch": Mutant(
        "transaction/protocol.py",
        "        self._require_epoch(transaction)\n        require_current(",
        "        require_current(",
        "transaction/test_protocol_steps.py",
    ),
    "a commit of unknown outcome counts as refused": Mutant(
        "transaction/protocol.py",
        "if isinstance(error, (CommitRefused, Fenced)):",
        "if isinstance(error, IngestError):",
        "transaction/test_protocol_steps.py",
    ),
    "an unknown commit is rolled back at once": Mutant(
        "transaction/protocol.py",
        "                return False\n            if isinstance(error, (CommitRefused, Fenced)):\n",
        "                return False\n            roll_back(self, plan.transaction_id, str(error))\n            if isinstance(error, (CommitRefused, Fenced)):\n",
        "transaction/test_protocol_steps.py",
    ),
    "the guard does not get the expected checkpoint": Mutant(
        "transaction/protocol.py",
        "expected_checkpoint=committed.checkpoint_text",
        "expected_checkpoint=None",
        0,
    ),
    "a replay's commit does not replace the old files": Mutant(
        "transaction/protocol.py", "replaced=plan.replaces", "replaced=()", 0
    ),
    "copies of other rows are not in the commit": Mutant(
        "transaction/protocol.py",
        "for file in (*report.files, *report.copies)]\n        groups",
        "for file in report.files]\n        groups",
        0,
    ),
    "copies of other rows are not flushed": Mutant(
        "transaction/protocol.py",
        "(*report.written, *report.copies))\n        letters",
        "report.written)\n        letters",
        0,
    ),
    "dead letters are not flushed": Mutant(
        "transaction/protocol.py",
        "self.durability.sync_files([*files, *letters])",
        "self.durability.sync_files([*files])",
        0,
    ),
    "the ledger gets the receipt of a commit that was not flushed": Mutant(
        "transaction/protocol.py", "flushed = not warnings", "flushed = True", "transaction/test_protocol_steps.py"
    ),
    "a commit does not flush what it changed": Mutant(
        "transaction/protocol.py",
        "                self.durability.sync_changes(before)\n",
        "                pass\n",
        "transaction/test_protocol_steps.py",
    ),
    "the consumer group does not get the commit's offsets": Mutant(
        "transaction/protocol.py",
        "self.groups.commit_group_offsets(group, receipt.checkpoint.offsets)",
        "None",
        "transaction/test_protocol_steps.py",
    ),
    "an error after the commit makes it a failed one": Mutant(
        "transaction/protocol.py",
        "    except Exception as error:\n        # Broad, because",
        "    except KeyError as error:\n        # Broad, because",
        "transaction/test_protocol_steps.py",
    ),
    "no step takes the table's lock": Mutant(
        "transaction/protocol.py",
        "return self.ledger.table_lock(self.pipeline.table.base_path, stale_seconds=stale)",
        "import contextlib; return contextlib.nullcontext()",
        "transaction/test_protocol_steps.py",
    ),
    # ledger/locks.py
    "a lock is taken from whoever has it": Mutant(
        "ledger/locks.py",
        ".on_conflict_do_nothing()",
        ".on_conflict_do_update(index_elements=[LOCKS.c.name], set_=values)",
        "ledger/test_ledger.py::TestTableLock",
    ),
    "a lock's expiry is not looked at": Mutant(
        "ledger/locks.py",
        "if not -lease <= now - self.renewed_at <= lease:",
        "if False:",
        "ledger/test_ledger.py::TestTableLock",
    ),
    "a lock is stale although nothing fences its holder": Mutant(
        "ledger/locks.py",
        "if stale_seconds is not None and not self.unfenced and",
        "if stale_seconds is not None and",
        "ledger/test_ledger.py::TestTableLock",
    ),
    "a lock is not renewed": Mutant(
        "ledger/locks.py",
        "        self._renewing.start()\n",
        "        self._renewing.start()\n        self._released.set()\n",
        "ledger/test_ledger.py::TestTableLock",
    ),
    "a release lets go of another's lock": Mutant(
        "ledger/locks.py",
        "sa.and_(LOCKS.c.name == name, LOCKS.c.token == self._token)",
        "sa.and_(LOCKS.c.name == name)",
        "ledger/test_ledger.py::TestTableLock",
    ),
    "a lock is looked at after it was taken from a holder that has renewed it": Mutant(
        "ledger/locks.py",
        "LOCKS.update().where(unchanged, LOCKS.c.renewed_at == found.renewed_at)",
        "LOCKS.update().where(unchanged)",
        "ledger/test_ledger.py::TestTableLock",
    ),
    # cli, spark and kafka: what is inherited, asked for or forbidden
    "another Spark is used": Mutant(
        "spark/session.py",
        "    require_own_spark()\n",
        "",
        "spark/test_spark_start.py::test_another_spark_is_refused_and_the_same_is_not",
    ),
    "a folder of jars with a comma is used": Mutant(
        "spark/jars.py",
        'if wrong := {*",:"}.intersection(str(folder)):',
        "if wrong := set[str]():",
        "spark/test_jars.py",
    ),
    "up ignores an option": Mutant(
        "cli/stack_commands.py", "    require_as_asked(stack, changes)\n", "", "cli/test_stack_commands.py"
    ),
    "status says nothing of a part that hangs": Mutant(
        "cli/ingestion_commands.py",
        "    hanging = hanging_parts(home)\n",
        "    hanging: list[str] = []\n",
        "local/test_stack.py",
    ),
    "a right that is missing is a broker that is away": Mutant(
        "kafka/client_settings.py",
        "if lacking := _NOT_ALLOWED.search(said):",
        "if lacking := None:",
        "kafka/test_missing_rights.py",
    ),
    "a question to this machine goes through a proxy": Mutant(
        "local/dagster_api.py",
        "urllib.request.ProxyHandler({})",
        "urllib.request.ProxyHandler()",
        "local/test_dagster_api.py",
    ),
    # hudi/timeline/ownership.py
    "a table that somebody downgraded is written to": Mutant(
        "hudi/timeline/ownership.py", "if version != TABLE_VERSION:", "if False:", "hudi/test_ownership.py"
    ),
    # ledger/database.py
    "a read-only server is a bug of ours": Mutant(
        "ledger/database.py",
        "(OperationalError, InterfaceError, InternalError)",
        "(OperationalError, InterfaceError)",
        "ledger/test_postgresql.py",
    ),
    "status is content with a table that hides rows": Mutant(
        "cli/ingestion_commands.py",
        " or each.is_table_broken for each in states",
        " for each in states",
        "cli/test_status_command.py",
    ),
    # transaction/protocol.py
    "why a commit failed first is forgotten": Mutant(
        "transaction/protocol.py",
        "self.ledger.transactions.note_failure(plan.transaction_id, str(error))",
        "pass",
        "transaction/test_protocol_steps.py",
    ),
    "a begin takes its first look for the one after its epoch": Mutant(
        "transaction/protocol.py",
        "            self.epoch.advance(epoch, plan.transaction_id)\n            self.timeline.forget()\n",
        "            self.epoch.advance(epoch, plan.transaction_id)\n",
        "transaction/test_protocol_steps.py",
    ),
    "a long transaction loses its lock after a minute": Mutant(
        "transaction/protocol.py",
        "max(SHORTEST_STALE_SECONDS, self",
        "min(SHORTEST_STALE_SECONDS, self",
        "transaction/test_protocol_steps.py",
    ),
    "a write does not look at its epoch": Mutant(
        "transaction/protocol.py",
        "            self._require_epoch(transaction)\n            attempts",
        "            attempts",
        "transaction/test_protocol_steps.py",
    ),
    "a write does not look at its deadline": Mutant(
        "transaction/protocol.py",
        "            require_time(transaction)\n            require_same_shape",
        "            require_same_shape",
        "transaction/test_protocol_steps.py",
    ),
    "a begin that is interrupted by Ctrl-C leaves its transaction open": Mutant(
        "transaction/protocol.py",
        "        except BaseException as error:\n            # Whatever",
        "        except Exception as error:\n            # Whatever",
        "transaction/test_protocol_steps.py",
    ),
    "a commit that the timeline does not show gets a receipt": Mutant(
        "transaction/protocol.py",
        "if checkpoint is None or checkpoint.sequence < plan.sequence:",
        "if checkpoint is None:",
        "transaction/test_protocol_steps.py",
    ),
    "a commit of unknown attempts does not look for its files": Mutant(
        "transaction/protocol.py",
        "if attempts.get(report.slice.source) != 1]",
        "if attempts.get(report.slice.source, 1) != 1]",
        "transaction/test_protocol_steps.py",
    ),
    "a commit looks for its files only if nothing is known of attempts": Mutant(
        "transaction/protocol.py",
        "if attempts.get(report.slice.source) != 1]",
        "if report.slice.source not in attempts]",
        "transaction/test_protocol_steps.py",
    ),
    "a commit for change queries does not name the files before": Mutant(
        "transaction/protocol.py",
        "            before=groups.before,\n",
        "            before={},\n",
        "transaction/test_protocol_steps.py",
    ),
    "a commit leaves out the first files of new groups": Mutant(
        "transaction/protocol.py",
        "files=[*files, *groups.first_files]",
        "files=[*files]",
        "transaction/test_protocol_steps.py",
    ),
    "marks are not confirmed at the commit": Mutant(
        "transaction/protocol.py",
        "self.confirm_marks(plan.marks)",
        "dict(plan.marks)",
        "transaction/test_protocol_steps.py",
    ),
    "a begin does not judge a take-over": Mutant(
        "transaction/protocol.py",
        "                require_take_over(self, plan)\n",
        "                pass\n",
        "transaction/test_protocol_steps.py",
    ),
    "a commit does not judge a take-over": Mutant(
        "transaction/protocol.py",
        "        require_take_over(self, transaction.plan, transaction.instant)\n",
        "",
        "transaction/test_protocol_steps.py",
    ),
    "the guard does not know what a take-over has judged": Mutant(
        "transaction/protocol.py",
        "            seen=seen,\n",
        "            seen=(),\n",
        "transaction/test_protocol_steps.py",
    ),
    "a begin does not look whether the table lists its commits' files": Mutant(
        "transaction/protocol.py",
        "            require_sound(self.table, committed, is_list_due(plan, self.timeline.storage.is_local))\n",
        "",
        "transaction/test_protocol_steps.py",
    ),
    "a commit that only the ledger has is read again without a word": Mutant(
        "transaction/protocol.py",
        "            self._note_lost(newest, committed)\n",
        "",
        "transaction/test_protocol_steps.py",
    ),
    # transaction/rollback.py
    "a rollback does not end the epoch": Mutant(
        "transaction/rollback.py",
        '        ports.epoch.retire(transaction_id)\n        reach("abort_retired")',
        '        reach("abort_retired")',
        "transaction/test_protocol_steps.py",
    ),
    "an open instant is rolled back before its writers are fenced": Mutant(
        "transaction/rollback.py",
        "        ports.epoch.retire(opened.transaction_id)\n        begun",
        "        begun",
        "transaction/test_protocol_steps.py",
    ),
    "a commit that landed meanwhile is recorded as aborted": Mutant(
        "transaction/rollback.py",
        "        instant = ports.table.instant_of(transaction_id)\n        if",
        "        instant = None\n        if",
        "transaction/test_rollback.py",
    ),
    "a commit that landed is recorded as aborted when the ledger fails": Mutant(
        "transaction/rollback.py",
        '        return\n    except IngestError as error:\n        _logger.warning("%s is not',
        '    except IngestError as error:\n        _logger.warning("%s is not',
        "transaction/test_rollback.py",
    ),
    "a commit that landed during the rollback of its instant does not stand": Mutant(
        "transaction/rollback.py", "    if not rolled_back:\n", "    if False:\n", "transaction/test_rollback.py"
    ),
    "a transaction past its deadline is ended under its commit": Mutant(
        "transaction/rollback.py",
        "        _require_no_commit_at_work(ports, row)\n",
        "",
        "transaction/test_protocol_steps.py",
    ),
    "a living transaction that the ledger does not know is ended": Mutant(
        "transaction/rollback.py",
        "        elif opened.leased:\n",
        "        elif False:\n",
        "transaction/test_protocol_steps.py",
    ),
    "a living owner is taken for dead": Mutant(
        "transaction/rollback.py",
        "elif is_dead(row.owner, run_is_finished) or",
        "elif True or",
        "transaction/test_protocol_steps.py",
    ),
    "a commit whose op died is not recorded": Mutant(
        "transaction/rollback.py",
        "    instant = ports.table.instant_of(row.transaction_id)\n",
        "    instant = None\n",
        "transaction/test_protocol_steps.py",
    ),
    "a commit whose op died is recorded before it is flushed": Mutant(
        "transaction/rollback.py",
        "    ports.flush_all()\n    if",
        "    if",
        "transaction/test_protocol_steps.py",
    ),
    "dead letters of what was rolled back stay": Mutant(
        "transaction/rollback.py",
        "        ports.letters.forget(opened.instant)\n",
        "        pass\n",
        "transaction/test_protocol_steps.py",
    ),
    "a rollback leaves uploads open": Mutant(
        "transaction/rollback.py",
        "            storage.abort_upload(upload)",
        "            pass",
        "hudi/test_s3_storage.py::test_p4_a_rollback_aborts_the_open_uploads_of_its_instant",
    ),
    "a rollback aborts the uploads of others": Mutant(
        "transaction/rollback.py",
        r'if re.search(rf"_{instant}\.(parquet$|log\.)", upload.path):',
        "if True:",
        "hudi/test_s3_storage.py::test_p4_a_rollback_aborts_the_open_uploads_of_its_instant",
    ),
    "another thread of a process is taken for dead": Mutant(
        "transaction/rollback.py",
        "(row.owner == owner and owner.has_one_begin)",
        "row.owner == owner",
        "transaction/test_protocol_steps.py",
    ),
    # transaction/checks.py
    "a plan's number is not compared": Mutant(
        "transaction/checks.py", "if plan.sequence != sequence + 1 or jumps:", "if jumps:", "transaction/test_checks.py"
    ),
    "a plan may begin behind the committed offset": Mutant(
        "transaction/checks.py",
        "committed.get(source, start) != start:",
        "committed.get(source, start) > start:",
        "transaction/test_checks.py",
    ),
    "a plan may begin before the committed offset": Mutant(
        "transaction/checks.py",
        "committed.get(source, start) != start:",
        "committed.get(source, start) < start:",
        "transaction/test_checks.py",
    ),
    "a reset may give up other offsets than are lost": Mutant(
        "transaction/checks.py",
        "        if not _is_lost(loss, lost_now.get(loss.source))\n",
        "        if loss.source not in lost_now\n",
        "transaction/test_checks.py",
    ),
    "a stopped partition may be read": Mutant(
        "transaction/checks.py",
        "if is_stopped(source, plan.stopped):",
        "if False:",
        "transaction/test_checks.py",
    ),
    "a topic's generation is not counted": Mutant(
        "transaction/checks.py",
        "planned.generation != known.generation + bool(reset_sources):",
        "False:",
        "transaction/test_offset_losses.py",
    ),
    "a backfill may write what the table has": Mutant(
        "transaction/checks.py",
        "elif inside != (whole if isinstance(plan, ReplayPlan) else ()):",
        "elif False:",
        "transaction/test_checks.py",
    ),
    "a backfill may read past the committed offset": Mutant(
        "transaction/checks.py",
        "if slice_.end > committed.get(slice_.source, 0):",
        "if False:",
        "transaction/test_checks.py",
    ),
    "the offsets of a report need not add up": Mutant(
        "transaction/checks.py", "if not report.accounted:", "if False:", "transaction/test_checks.py"
    ),
    "rows in files need not be those reported": Mutant(
        "transaction/checks.py", "if report.rows_in_files != in_files:", "if False:", "transaction/test_checks.py"
    ),
    "a slice may be missing or twice": Mutant(
        "transaction/checks.py", "    if planned != reported:\n", "    if False:\n", "transaction/test_checks.py"
    ),
    "rows beside a replay need not be copied": Mutant(
        "transaction/checks.py", "    if expected != copied:\n", "    if False:\n", "transaction/test_checks.py"
    ),
    "two files may be one file group": Mutant(
        "transaction/checks.py", "    if len(by_id) < len(files):\n", "    if False:\n", "transaction/test_checks.py"
    ),
    "a commit's totals need not lead to its checkpoint": Mutant(
        "transaction/checks.py", "    if mismatches:\n", "    if False:\n", "transaction/test_offset_losses.py"
    ),
    "a replay may move the offsets": Mutant(
        "transaction/checks.py",
        "        if after.offsets != committed:\n",
        "        if False:\n",
        "transaction/test_checks.py",
    ),
    "ops may go on under another pipeline file": Mutant(
        "transaction/checks.py",
        "(table.base_path, table.partition_columns, columns, pipeline.rows_digest, bad)",
        "(table.base_path, table.partition_columns, columns)",
        "transaction/test_checks.py",
    ),
    # transaction/plan
    "a partition resumes one offset late": Mutant(
        "transaction/plan/arithmetic.py",
        "{source: committed[source] for source in starts.keys()",
        "{source: committed[source] + 1 for source in starts.keys()",
        "transaction/test_plan_arithmetic.py",
    ),
    "the next offset is taken for lost": Mutant(
        "transaction/plan/arithmetic.py",
        "elif offset < marks.begin:",
        "elif offset <= marks.begin:",
        "transaction/test_offset_losses.py",
    ),
    "the partition's end is taken for lost": Mutant(
        "transaction/plan/arithmetic.py",
        "elif source in cuts or offset > marks.end:",
        "elif source in cuts or offset >= marks.end:",
        "transaction/test_offset_losses.py",
    ),
    "a truncated partition is not noticed": Mutant(
        "transaction/plan/arithmetic.py",
        "elif source in cuts or offset > marks.end:",
        "elif source in cuts:",
        "transaction/test_offset_losses.py",
    ),
    "a truncated partition goes on once it has grown": Mutant(
        "transaction/plan/arithmetic.py",
        "elif source in cuts or offset > marks.end:",
        "elif offset > marks.end:",
        "transaction/test_cut_logs.py",
    ),
    "without topic ids a truncated partition goes on once it has grown": Mutant(
        "transaction/plan/arithmetic.py",
        "offset > watermarks[source].end or source in cuts:",
        "offset > watermarks[source].end:",
        "transaction/test_cut_logs.py",
    ),
    "a partition that ends at its committed offset is remembered as cut": Mutant(
        "transaction/plan/arithmetic.py",
        "marks is not None and offset > marks.end and",
        "marks is not None and offset >= marks.end and",
        "transaction/test_cut_logs.py",
    ),
    "a person's offset is not compared with what the broker has": Mutant(
        "transaction/plan/arithmetic.py",
        "if not marks.begin <= offset <= marks.end:",
        "if False:",
        "transaction/test_cut_logs.py",
    ),
    "a partition of an unknown topic may start behind its end": Mutant(
        "transaction/plan/arithmetic.py",
        "min(max(first.get(source, marks.begin), marks.begin), marks.end)",
        "max(first.get(source, marks.begin), marks.begin)",
        "transaction/test_cut_logs.py",
    ),
    # transaction/plan/cut_logs.py and the records by which a log is recognized
    "a cut is not remembered": Mutant(
        "transaction/plan/cut_logs.py", "    if cuts != known:\n", "    if False:\n", "transaction/test_cut_logs.py"
    ),
    "a log that is back stays stopped": Mutant(
        "transaction/plan/cut_logs.py",
        "            del cuts[source]\n",
        "            pass\n",
        "transaction/test_cut_logs.py",
    ),
    "a log that is not back goes on": Mutant(
        "transaction/plan/cut_logs.py",
        "if answer is True and",
        "if answer is not None and",
        "transaction/test_cut_logs.py",
    ),
    "a cut is forgotten by a commit of what was read before": Mutant(
        "transaction/plan/cut_logs.py",
        "checkpoint.offsets.get(cut.source, -1) >= cut.committed",
        "checkpoint.offsets.get(cut.source, -1) == cut.committed",
        "transaction/test_cut_logs.py",
    ),
    "a range of a log that was cut may be replayed": Mutant(
        "operations/requests/planning.py",
        "cuts = {**others, **situation.cuts}",
        "cuts = situation.cuts",
        "transaction/test_cut_logs.py",
    ),
    "a task does not say its last record": Mutant(
        "transaction/write/task.py",
        "last=anchors.last.get(outcome.source)",
        "last=None",
        "transaction/write/test_write.py",
    ),
    "a later range of a partition comes after the plan's last record": Mutant(
        "transaction/write/task.py",
        " if firsts.get(each.source) == each.start}",
        " if each.source in firsts}",
        "transaction/write/test_write.py",
    ),
    "an accepted cut is remembered": Mutant(
        "transaction/protocol.py",
        "        if accepted:\n            text",
        "        if False:\n            text",
        "transaction/test_protocol_steps.py",
    ),
    "a cut that a write finds is not remembered": Mutant(
        "transaction/protocol.py",
        "        if isinstance(error, LogTruncated):",
        "        if False:",
        "transaction/test_protocol_steps.py",
    ),
    "a begin does not say which record a slice follows": Mutant(
        "transaction/protocol.py", "            follows=_follows(plan, checkpoint),\n", "", 110
    ),
    "a commit does not keep the last record": Mutant(
        "transaction/protocol.py",
        "certified=certified, last=last",
        "certified=certified",
        "transaction/test_protocol_steps.py",
    ),
    "a begin does not compare its plan in its own epoch": Mutant(
        "transaction/protocol.py",
        "if instants.completed - {commit.instant for commit in commits}:",
        "if False:",
        23347,
    ),
    "the last record of a log that was given up is kept": Mutant(
        "model/report.py",
        "        for loss in plan.resets:\n            last.pop(loss.source, None)\n",
        "",
        "transaction/test_cut_logs.py",
    ),
    "a log with another record before is read": Mutant(
        "kafka/range_reader.py",
        "if record is None or not record.is_same(_record_at(address)):",
        "if record is None:",
        "kafka/test_range_reader.py",
    ),
    "a log with a new record before the range is read": Mutant(
        "kafka/range_reader.py",
        "        if record is None or not record.is_same",
        "        if record is not None and not record.is_same",
        "kafka/test_range_reader.py",
    ),
    "the record before a range is not read": Mutant(
        "kafka/range_reader.py",
        "positions, trouble = anchors.starts(positions), Trouble()",
        "trouble = Trouble()",
        "kafka/test_range_reader.py",
    ),
    "a log that ends before its range is not recognized": Mutant(
        "kafka/range_reader.py",
        "        if message.offset < slice_.start:\n",
        "        if False:\n",
        "kafka/test_range_reader.py",
    ),
    "leader epochs do not count": Mutant(
        "model/offsets.py", "self.epoch == other.epoch or not known", "True", "kafka/test_range_reader.py"
    ),
    "a begin does not look whether the chosen offset is still there": Mutant(
        "transaction/checks.py", " and now.restart <= planned.restart", "", "transaction/test_cut_logs.py"
    ),
    "a topic of unknown id is read once more": Mutant(
        "transaction/plan/planning.py",
        "loss.reason is not LossReason.RECREATED or bool(ids)",
        "True",
        "transaction/test_cut_logs.py",
    ),
    "a partition that is added later begins where the file says": Mutant(
        "transaction/plan/planning.py",
        "{source: marks.begin for source, marks in new.items()} if known else (cluster",
        "(cluster",
        "transaction/test_cut_logs.py",
    ),
    "a recreated topic is not noticed": Mutant(
        "transaction/plan/arithmetic.py",
        "            if version.topic_id != found_id:",
        "            if False:",
        "transaction/test_offset_losses.py",
    ),
    "the number of lost records is off by one": Mutant(
        "transaction/plan/arithmetic.py",
        "lost = marks.begin - offset\n",
        "lost = marks.begin - offset + 1\n",
        "transaction/test_offset_losses.py",
    ),
    "partitions of a recreated topic go on": Mutant(
        "transaction/plan/arithmetic.py",
        "loss.source == source or (loss.topic == source.topic and loss.reason is LossReason.RECREATED)",
        "loss.source == source",
        "transaction/test_offset_losses.py",
    ),
    "offsets of new partitions may order keys": Mutant(
        "transaction/plan/arithmetic.py", "    if new:\n", "    if False:\n", "transaction/test_offset_order.py"
    ),
    "a busy partition starves the others": Mutant(
        "transaction/plan/arithmetic.py",
        "even_share = -(-remaining // (len(by_size) - position))",
        "even_share = remaining",
        "transaction/test_plan_arithmetic.py",
    ),
    "a transaction that begins late delays those after it": Mutant(
        "transaction/plan/arithmetic.py",
        "math.ceil((last - limits.phase_seconds) / interval + 0.25)",
        "((last - limits.phase_seconds) / interval + 1)",
        "transaction/test_plan_arithmetic.py",
    ),
    "a transaction may be due just after the last": Mutant(
        "transaction/plan/arithmetic.py", " / interval + 0.25)", " / interval)", "transaction/test_plan_arithmetic.py"
    ),
    "a transaction is due more than an interval after the last": Mutant(
        "transaction/plan/arithmetic.py", "due -= interval / 2", "pass", "transaction/test_plan_arithmetic.py"
    ),
    "a clock that was ahead holds transactions back": Mutant(
        "transaction/plan/arithmetic.py",
        "        last_at = None\n",
        "        pass\n",
        "transaction/test_plan_arithmetic.py",
    ),
    "a transaction that began late delays the next": Mutant(
        "transaction/plan/planning.py",
        "min(self.planned_at, began_at) if self.planned_at and began_at else began_at",
        "began_at",
        "transaction/test_plan_arithmetic.py",
    ),
    "a slice ends one offset late": Mutant(
        "transaction/plan/planning.py",
        "starts[source] + shares.get(source, 0))\n",
        "starts[source] + shares.get(source, 0) + 1)\n",
        "transaction/test_plan_arithmetic.py",
    ),
    "an accepted loss waits for records": Mutant(
        "transaction/plan/planning.py",
        "has_to_commit = bool(resets or situation.take_over)",
        "has_to_commit = bool(situation.take_over)",
        "transaction/test_offset_losses.py",
    ),
    "a first start at the end is not committed": Mutant(
        "transaction/plan/planning.py",
        "and (starts_at_ends or any(",
        "and (any(",
        "transaction/test_plan_arithmetic.py",
    ),
    "a first start goes on without a leader": Mutant(
        "transaction/plan/planning.py",
        "    if checkpoint is None:\n        # Where the first",
        "    if False:\n        # Where the first",
        "transaction/test_leaderless.py",
    ),
    "a generation does not increase": Mutant(
        "transaction/plan/planning.py",
        "version.generation + repeats)",
        "version.generation)",
        "transaction/test_offset_losses.py",
    ),
    "a tick asks about a transaction before it restores hoodie.properties": Mutant(
        "transaction/plan/planning.py",
        "    table.timeline.restore_properties()\n    pipeline = table.pipeline\n    instant",
        "    pipeline = table.pipeline\n    instant",
        "hudi/test_properties_file.py::test_p5_a_tick_restores_it_before_it_asks_about_a_transaction",
    ),
    "the consumer group is not made up for": Mutant(
        "transaction/plan/planning.py",
        "        cluster.commit_group_offsets(pipeline.group_id, committed)\n",
        "        pass\n",
        "orchestration/test_idle_ticks.py",
    ),
    "an idle tick does not look at the consumer group": Mutant(
        "orchestration/coordinator/look.py",
        "trouble = [memory.keep_group_told(sight.situation, cluster)]",
        'trouble = [""]',
        "orchestration/test_idle_ticks.py",
    ),
    "a group that is ahead of the table is left": Mutant(
        "transaction/plan/planning.py",
        "group_offsets.get(source) != offset for",
        "group_offsets.get(source, 0) < offset for",
        "orchestration/test_idle_ticks.py",
    ),
    "marks of topics whose producers set the times count": Mutant(
        "transaction/plan/planning.py",
        "        if kinds[partition.topic] is not False\n",
        "",
        "orchestration/test_idle_ticks.py",
    ),
    # transaction/commit_contents.py
    "Hudi Streamer gets offsets of other topics": Mutant(
        "transaction/commit_contents.py",
        " for source, offset in checkpoint.offsets.items() if source.topic == topic}",
        " for source, offset in checkpoint.offsets.items()}",
        "hudi/test_other_writers.py",
    ),
    "log files may be in a group that another writer replaced": Mutant(
        "transaction/commit_contents.py",
        "    require_current_ids(log_files, ids, transaction.plan.transaction_id)\n",
        "",
        "transaction/test_file_groups.py",
    ),
    "log files may be in a group that nobody has listed": Mutant(
        "transaction/commit_contents.py",
        "        require_current_ids(log_files, {}, transaction.plan.transaction_id)\n",
        "",
        "transaction/test_file_groups.py",
    ),
    "that another writer was here is forgotten": Mutant(
        "transaction/commit_contents.py",
        '            ports.instants.update_properties({OTHER_WRITERS_PROPERTY: "true"})\n',
        "            pass\n",
        "transaction/test_file_groups.py",
    ),
    # transaction/dead_letters
    "a retried dead letter waits on": Mutant(
        "transaction/dead_letters/log.py",
        "            waiting.pop(path, None)\n",
        "            pass\n",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "a full page of dead letters forgets those before": Mutant(
        "transaction/dead_letters/log.py",
        "            previous, page = head.manifest, []\n",
        "            page = []\n",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "a replay leaves dead letters of its range": Mutant(
        "transaction/dead_letters/log.py",
        "replaced = plan.slices if rewrites_all and head else ()",
        "replaced = ()",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "a replay takes dead letters of another generation": Mutant(
        "transaction/dead_letters/log.py",
        "if entry.generations.get(slice_.topic, 0) == earlier.generations.get(slice_.topic, 0):",
        "if True:",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "a retry may lose letters": Mutant(
        "transaction/dead_letters/log.py",
        "    if counted != retry.letters:\n",
        "    if False:\n",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "copies of letters that nobody acknowledged count": Mutant(
        "transaction/dead_letters/copies.py",
        "if unacknowledged or failed:",
        "if failed:",
        "transaction/dead_letters/test_copies.py",
    ),
    "copies of letters that the broker refused count": Mutant(
        "transaction/dead_letters/copies.py",
        "if unacknowledged or failed:",
        "if unacknowledged:",
        "transaction/dead_letters/test_copies.py",
    ),
    "what was copied is not noted": Mutant(
        "transaction/dead_letters/copies.py",
        "            self._note(copied)\n",
        "",
        "transaction/dead_letters/test_copies.py",
    ),
    # transaction/write
    "records may come out of order": Mutant(
        "transaction/write/task.py",
        "if first <= before or (len(steps) and pc.min(steps).as_py() < 1):",
        "if False:",
        "transaction/write/test_write.py",
    ),
    "a record may come twice": Mutant(
        "transaction/write/task.py",
        "pc.min(steps).as_py() < 1):",
        "pc.min(steps).as_py() < 0):",
        "transaction/write/test_write.py::test_offsets_that_do_not_grow_are_refused",
    ),
    "two counters are swapped": Mutant(
        "transaction/write/task.py",
        "skipped=outcome.skipped,\n            filtered=outcome.filtered + dropped,",
        "skipped=outcome.filtered + dropped,\n            filtered=outcome.skipped,",
        "transaction/write/test_write.py",
    ),
    "a refused task leaves its files": Mutant(
        "transaction/write/task.py",
        "            writer.discard()\n",
        "            pass\n",
        "transaction/write/test_write.py",
    ),
    "one bad record too many is allowed": Mutant(
        "transaction/write/task.py",
        "for progress in progress_of.values()) > most",
        "for progress in progress_of.values()) > most + 1",
        "transaction/dead_letters/test_dead_letters.py",
    ),
    "a gap begins with the record before it": Mutant(
        "transaction/write/task.py",
        "(offsets[place].as_py() + 1, ",
        "(offsets[place].as_py(), ",
        "transaction/write/test_write.py",
    ),
    "attempts of a task share their files' names": Mutant(
        "transaction/write/task.py",
        "{context.taskAttemptId() if context else 0}",
        "0",
        "transaction/write/test_write.py",
    ),
    "attempts of an op share their files' names": Mutant(
        "transaction/write/task.py", "-{attempts[source]}-", "-0-", "transaction/write/test_write.py"
    ),
    "the least important error of tasks is raised": Mutant(
        "transaction/write/task.py",
        "    return not isinstance(error, Terminal), ",
        "    return isinstance(error, Terminal), ",
        "transaction/write/test_write.py",
    ),
    "tasks may read beyond their slice": Mutant(
        "transaction/write/reports.py",
        "or task.last_offset >= slice_.end:",
        "or task.last_offset > slice_.end:",
        "transaction/write/test_write.py",
    ),
    "tasks may overlap": Mutant(
        "transaction/write/reports.py", "if task.first_offset < expected or", "if", "transaction/write/test_write.py"
    ),
    "a gap is not looked for behind a slice's last record": Mutant(
        "transaction/write/reports.py", "    yield (expected, slice_.end)\n", "", "transaction/write/test_write.py"
    ),
    "a record that the broker has may count as a gap": Mutant(
        "transaction/write/reports.py", "    if records:\n", "    if False:\n", "kafka/test_range_reader.py"
    ),
    "a replay may lose rows that were compacted away": Mutant(
        "transaction/write/reports.py",
        "        if read_again[source] != length(offsets)\n",
        "        if False\n",
        "transaction/write/test_write.py",
    ),
    "a part of a slice is in two tasks": Mutant(
        "transaction/write/job.py",
        "(Slice(slice_.topic, slice_.partition, start, end) for start",
        "(Slice(slice_.topic, slice_.partition, start, end + (end < slice_.end)) for start",
        "transaction/write/test_task_ranges.py",
    ),
    "a write does not ask the broker for its gaps": Mutant(
        "transaction/write/job.py",
        "            require_true_gaps(pipeline, longest_gaps(busy, task_reports))\n",
        "",
        "transaction/write/test_write_slices.py",
    ),
    "tasks do not compare the record before their slices": Mutant(
        "transaction/write/job.py",
        "extra_columns, transaction.follows)",
        "extra_columns, {})",
        "transaction/write/test_write_slices.py",
    ),
    "a write does not ask whether its topics were recreated": Mutant(
        "transaction/write/job.py",
        "            require_same_topics(pipeline, plan, {slice_.topic for slice_ in busy})\n",
        "",
        "transaction/write/test_write_slices.py",
    ),
    "a replay does not ask for rows that were compacted away": Mutant(
        "transaction/write/job.py",
        "        require_all_replaced(plan.transaction_id, replaced, task_reports)\n",
        "",
        "transaction/write/test_write_slices.py",
    ),
    "a replay writes rows that somebody deleted": Mutant(
        "transaction/write/job.py",
        "only_replaced=isinstance(plan, ReplayPlan) and plan.respect_deletes",
        "only_replaced=False",
        "transaction/write/test_write_slices.py",
    ),
    "record keys do not have their topic's generation": Mutant(
        "transaction/write/job.py",
        "        generations=transaction.plan.generations,\n",
        "        generations={},\n",
        "transaction/write/test_write_slices.py",
    ),
    "a replay does not copy the rows beside its range": Mutant(
        "transaction/write/job.py",
        "[file for file in plan.replaces if file.kept and file.source in sources]",
        "[]",
        "transaction/write/test_write_slices.py",
    ),
    "a transaction that was rolled back is not told from one that failed": Mutant(
        "transaction/write/job.py",
        "            if fenced is not None:\n                raise fenced from error\n",
        "",
        "transaction/write/test_write_slices.py",
    ),
    "errors of tasks are left": Mutant(
        "transaction/write/job.py",
        "            require_none(outcome for outcome in result if isinstance(outcome, bytes))\n",
        "",
        "transaction/write/test_write_slices.py",
    ),
    "a retry counts as having read its slices": Mutant(
        "transaction/write/job.py",
        "() if is_retry else tuple(",
        "tuple(",
        "transaction/write/test_write_slices.py",
    ),
    # transaction/timeline_repair.py
    "a file that is being written is repaired": Mutant(
        "transaction/timeline_repair.py",
        "        if now < safe:\n",
        "        if False:\n",
        "transaction/test_timeline_repair.py",
    ),
    "a repair does not fence the damaged commit's writer": Mutant(
        "transaction/timeline_repair.py",
        "            self.epoch.retire(damaged.transaction_id)\n",
        "            pass\n",
        "transaction/test_timeline_repair.py",
    ),
    "a repair leaves Hadoop's checksum": Mutant(
        "transaction/timeline_repair.py",
        '        self._storage.delete(f"{folder}/.{name}.crc")\n',
        "",
        "transaction/test_timeline_repair.py",
    ),
    "a repair is not flushed": Mutant(
        "transaction/timeline_repair.py",
        "        self._storage.sync([folder])\n",
        "",
        "transaction/test_timeline_repair.py",
    ),
    "a damaged commit that later ones build on is repaired": Mutant(
        "transaction/timeline_repair.py",
        "        if later:\n",
        "        if False:\n",
        "transaction/test_timeline_repair.py",
    ),
    "the claim of a damaged service stays": Mutant(
        "transaction/timeline_repair.py",
        "ServiceClaim(self._storage, cast(Service, damaged.action)).drop()",
        "pass",
        "transaction/test_timeline_repair.py",
    ),
    # hudi/timeline
    "an epoch may come twice": Mutant(
        "hudi/timeline/epoch.py",
        "            if number <= current.number:\n",
        "            if number < current.number:\n",
        "hudi/test_epoch.py",
    ),
    "only a greater epoch fences": Mutant(
        "hudi/timeline/epoch.py",
        "        if current != epoch:\n",
        "        if current.number > epoch.number:\n",
        "hudi/test_epoch.py",
    ),
    "retiring does not raise the epoch": Mutant(
        "hudi/timeline/epoch.py", 'Epoch(current.number + 1, "")', 'Epoch(current.number, "")', "hudi/test_epoch.py"
    ),
    "retiring ends another transaction's epoch": Mutant(
        "hudi/timeline/epoch.py",
        "if current.transaction_id != transaction_id:",
        "if not current.transaction_id:",
        "hudi/test_epoch.py",
    ),
    "an epoch that another process changed meanwhile counts as advanced": Mutant(
        "hudi/timeline/epoch.py",
        "                # Another process was faster: look again whether its epoch is above this one.\n                continue\n",
        "                pass\n",
        "hudi/test_epoch.py",
    ),
    "a store without conditional writes is not noticed": Mutant(
        "hudi/timeline/epoch.py",
        "self._storage.require_conditional_writes()",
        "pass",
        "hudi/test_epoch.py",
    ),
    "an instant may be equal to the one before": Mutant(
        "hudi/timeline/clock.py", "timedelta(milliseconds=1)", "timedelta(milliseconds=0)", "hudi/test_clock.py"
    ),
    "a clock that is an hour behind is waited for": Mutant(
        "hudi/timeline/clock.py", "            raise ClockBehind(", "            return str(", "hudi/test_clock.py"
    ),
    "milliseconds are taken for seconds": Mutant(
        "hudi/timeline/clock.py", "milliseconds() / 1000, ", "milliseconds(), ", "hudi/test_clock.py"
    ),
    "the newest instant's checkpoint counts, whoever wrote it": Mutant(
        "hudi/timeline/pipeline_table.py",
        "key=lambda carrier: carrier[1].sequence)",
        "key=lambda carrier: carrier[0].instant)",
        "hudi/test_committed_state.py",
    ),
    "the newest commit may be missing": Mutant(
        "hudi/timeline/pipeline_table.py",
        "for number in range(first, checkpoint.sequence + 1)",
        "for number in range(first, checkpoint.sequence)",
        "hudi/test_committed_state.py",
    ),
    "a commit beside a savepoint counts as rolled back": Mutant(
        "hudi/timeline/pipeline_table.py", "if instant not in savepoints]", "]", "hudi/test_committed_state.py"
    ),
    "a truncated hoodie.properties counts": Mutant(
        "hudi/timeline/properties_file.py",
        "(second is None or second.keys() <= first.keys())",
        "True",
        "hudi/test_properties_file.py",
    ),
    "a line of hoodie.properties that is cut off counts": Mutant(
        "hudi/timeline/properties_file.py", 'text.endswith(b"\\n") and ', "", "hudi/test_properties_file.py"
    ),
    "a restored hoodie.properties keeps the damaged one's checksum": Mutant(
        "hudi/timeline/properties_file.py",
        "        self._storage.delete(PRIMARY_CHECKSUM)\n",
        "",
        "hudi/test_properties_file.py",
    ),
    "hoodie.properties is restored while Hudi writes it": Mutant(
        "hudi/timeline/properties_file.py",
        "            if time.monotonic() > settled:",
        "            if True:",
        "hudi/test_properties_file.py",
    ),
    "an instant that is cut off counts as whole": Mutant(
        "records/avro_bytes.py",
        "if data.take(_SYNC_BYTES) != marker:",
        "if data.take(_SYNC_BYTES) == b'':",
        "transaction/test_timeline_repair.py",
    ),
    "an instant without a block counts as whole": Mutant(
        "hudi/timeline/damaged_instants.py", "len(blocks) > 0", "True", "transaction/test_timeline_repair.py"
    ),
    "an instant is completed before its file has its name": Mutant(
        "hudi/storage/paths.py", "(?P<rest>[a-z]+(?:\\.[a-z]+)?)", "(?P<rest>.+)", "hudi/test_instant_files.py"
    ),
    "commits whose receipts are in the ledger are read again": Mutant(
        "hudi/timeline/damaged_instants.py",
        " if entry.instant not in known))",
        "))",
        "transaction/test_timeline_repair.py",
    ),
    "the milliseconds of an instant are taken for microseconds": Mutant(
        "hudi/timeline/timeline.py",
        "microsecond=int(instant[14:17] or 0) * 1000",
        "microsecond=int(instant[14:17] or 0)",
        "hudi/test_clock.py",
    ),
    "a pending rollback is not seen": Mutant(
        "hudi/timeline/timeline.py",
        'elif file["rest"].startswith(("rollback.", "restore.")):',
        "elif False:",
        "hudi/test_orphans.py",
    ),
    "the commits that were used last are forgotten first": Mutant(
        "hudi/timeline/timeline.py",
        "self._kept.popitem(last=False)",
        "self._kept.popitem(last=True)",
        "hudi/test_read_commits.py",
    ),
    "an answer is held beyond its step": Mutant(
        "hudi/timeline/timeline.py",
        "            self._held = _Held()\n\n",
        "            pass\n\n",
        "hudi/test_s3_storage.py::test_p3_a_step_looks_once_at_the_timeline_until_it_changes_it",
    ),
    "a table that lost its checkpoint is begun anew": Mutant(
        "hudi/timeline/pipeline_table.py",
        "        _require_no_lost_checkpoint(timeline, checkpoint_key, commits)\n",
        "",
        "hudi/test_committed_state.py",
    ),
    "another system that has read on is not noticed": Mutant(
        "hudi/timeline/pipeline_table.py",
        "    _require_nobody_ahead(timeline.base_path, best, commits, own_instants)\n",
        "",
        "hudi/test_committed_state.py",
    ),
    "a transaction counts as completed when it began": Mutant(
        "hudi/timeline/pipeline_table.py",
        "next((commit.completed_at for commit, _ in own if commit.instant == newest), began)",
        "began",
        "hudi/test_committed_state.py",
    ),
    # hudi/files
    "files are reported without another look at the fence": Mutant(
        "hudi/files/new_files.py",
        "        self._fence.require_open(source)\n        for",
        "        for",
        "hudi/test_base_file.py",
    ),
    "a rolled-back instant may be written": Mutant(
        "hudi/files/new_files.py",
        "if not self._storage.exists(heartbeat_path(self._instant)):",
        "if False:",
        "hudi/test_base_file.py",
    ),
    "a newer epoch does not stop a writer": Mutant(
        "hudi/files/new_files.py", "            required()\n", "            pass\n", "hudi/test_base_file.py"
    ),
    "the marker comes after the data": Mutant(
        "hudi/files/new_files.py",
        "lambda: [call.result() for call in first]",
        "lambda: None",
        "hudi/test_s3_storage.py::test_p3_nothing_of_a_file_is_on_the_store_before_its_marker",
    ),
    "a file has no marker": Mutant(
        "hudi/files/new_files.py",
        '        self._storage.write(marker_path(self._instant, path), b"")\n',
        "",
        "hudi/test_base_file.py",
    ),
    "files of a failed attempt stay": Mutant(
        "hudi/files/new_files.py",
        "                self._storage.delete(path)\n",
        "                pass\n",
        "hudi/test_base_file.py",
    ),
    "a file is deleted before it is closed": Mutant(
        "hudi/files/new_files.py",
        "            self._pool.shutdown()\n        for stream",
        "            pass\n        for stream",
        "hudi/test_s3_storage.py::test_p3_a_file_that_is_being_closed_is_deleted_once_it_is_there",
    ),
    "an empty partition metadata file is left": Mutant(
        "hudi/files/new_files.py",
        "if existing is None or not existing.size_bytes:",
        "if existing is None:",
        "hudi/test_base_file.py",
    ),
    "a file has one row too many": Mutant(
        "hudi/files/base_file.py",
        "part = rows.slice(start, self._layout.rows_per_file - file.rows)",
        "part = rows.slice(start, self._layout.rows_per_file - file.rows + 1)",
        "hudi/test_base_file.py",
    ),
    "a file says that it ends with its first row": Mutant(
        "hudi/files/base_file.py",
        "part[OFFSET][part.num_rows - 1].as_py()",
        "part[OFFSET][0].as_py()",
        "hudi/test_base_file.py",
    ),
    "a file has rows of two Kafka partitions": Mutant(
        "hudi/files/base_file.py",
        "            self._finish_source()\n            self._source = source\n",
        "            self._source = source\n",
        "hudi/test_base_file.py",
    ),
    "offsets that come again get the same record keys": Mutant(
        "hudi/files/base_file.py", "self._layout.generations.get(source.source.topic, 0)", "0", "hudi/test_base_file.py"
    ),
    "the first file of a new file group has no marker": Mutant(
        "hudi/files/base_file.py", '    storage.write(marker_path(instant, path), b"")\n', "", "hudi/test_base_file.py"
    ),
    "two commits make files with one id": Mutant(
        "hudi/files/file_groups.py",
        '"\\0".join((topic, partition_path, instant))',
        '"\\0".join((topic, partition_path))',
        "hudi/test_file_ids.py",
    ),
    "log files may be in a file group that was replaced": Mutant(
        "hudi/files/file_groups.py",
        "        if current != file.file_id:\n",
        "        if False:\n",
        "hudi/test_file_groups.py",
    ),
    "a bucket may have two file groups": Mutant(
        "hudi/files/file_groups.py",
        "elif number >= buckets or live.setdefault(place, group.file_id) != group.file_id:",
        "elif number >= buckets or not live.setdefault(place, group.file_id):",
        "hudi/test_file_groups.py",
    ),
    "log files merge in the order of their digits": Mutant(
        "hudi/files/file_groups.py", "{number:019d}", "{number}", "hudi/test_keyed_writer.py"
    ),
    "a negative hash is another bucket": Mutant(
        "hudi/files/buckets.py",
        "ids[number] = (hashed & 0x7FFFFFFF) % buckets",
        "ids[number] = hashed % buckets",
        "hudi/test_buckets.py",
    ),
    "the first change of a key wins": Mutant(
        "hudi/files/buckets.py",
        "for step in range(len(order) - 1, -1, -1):",
        "for step in range(len(order)):",
        "hudi/test_keyed_writer.py",
    ),
    "a late change is written although a delete may be forgotten": Mutant(
        "hudi/files/late_changes.py",
        "read >= known.complete_from else FORGOTTEN",
        "read >= known.complete_from else True",
        "hudi/test_late_changes.py",
    ),
    "an older change undoes a newer row": Mutant(
        "hudi/files/late_changes.py",
        "is_greater(known.ordering, ordering) or (known.ordering == ordering and",
        "(known.ordering == ordering and",
        "hudi/test_late_changes.py",
    ),
    "a late change needs no deletes of the slice before the last": Mutant(
        "hudi/files/late_changes.py", "return before[-2]", "return before[-1]", "hudi/test_late_changes.py"
    ),
    "a changed key that is sent again loses its row": Mutant(
        "hudi/files/left_out.py",
        "            if here in self._own:\n",
        "            if False:\n",
        "hudi/test_left_out.py",
    ),
    "a changed key is filled from a row that its key got later": Mutant(
        "hudi/files/left_out.py",
        "(not isinstance(ordering, int) or ordering <= self._offsets[place])",
        "True",
        "hudi/test_left_out.py",
    ),
    "a null of the table fills what was left out": Mutant(
        "hudi/files/left_out.py",
        "start + place, bool(valid[place])",
        "start + place, True",
        "hudi/test_left_out.py",
    ),
    "a null of an earlier change fills what was left out": Mutant(
        "hudi/files/left_out.py", "place, self._is_valid(name, place)", "place, True", "hudi/test_left_out.py"
    ),
    "a change that counts in the place of a refused one keeps its placeholder": Mutant(
        "hudi/files/left_out.py",
        "if place is not None and place != to_fill[first]",
        "if False",
        "hudi/test_left_out.py",
    ),
    "arrays are in Avro blocks": Mutant(
        "hudi/files/keyed_writer.py",
        "        return bool(pa.types.is_nested(kind))\n",
        "        return False\n",
        "hudi/test_keyed_writer.py",
    ),
    "a table forgets which source table its changes are of": Mutant(
        "transaction/columns/schema_change.py",
        "        source_table=_known_source(pipeline, properties),\n",
        "",
        "transaction/test_change_formats.py",
    ),
    "a begin does not find which source table the changes are of": Mutant(
        "transaction/columns/schema_change.py",
        "if schema.source_table is None and has_one_source(pipeline):",
        "if False:",
        "transaction/test_change_formats.py",
    ),
    "changes are not judged by their source table": Mutant(
        "transaction/columns/decoding.py",
        "own = values.source_table if has_one_source(pipeline) else ()",
        "own: tuple[str, ...] = ()",
        "transaction/test_change_formats.py",
    ),
    "changes of another source table are rows": Mutant(
        "records/convert/connect/debezium.py",
        "pc.or_(pc.not_equal(owners, self.owner), pc.not_equal(names, self.name))",
        "pc.not_equal(owners, self.owner)",
        "records/convert/test_debezium.py",
    ),
    "a file of an open instant is an orphan": Mutant(
        "hudi/files/orphans.py",
        "    if candidate.instant in instants.pending:\n",
        "    if False:\n",
        "hudi/test_orphans.py",
    ),
    "a file of a transaction that is about to begin is an orphan": Mutant(
        "hudi/files/orphans.py", "    if candidate.instant > newest:\n", "    if False:\n", "hudi/test_orphans.py"
    ),
    "a live file is an orphan": Mutant(
        "hudi/files/orphans.py", "        if file.path in listed or ", "        if ", "hudi/test_orphans.py"
    ),
    "a young file is an orphan": Mutant(
        "hudi/files/orphans.py", "if candidate.file.modified >= older_than:", "if False:", "hudi/test_orphans.py"
    ),
    "orphans are looked for during a rollback": Mutant(
        "hudi/files/orphans.py",
        "    if instants.undoing or not newest:\n",
        "    if not newest:\n",
        "hudi/test_orphans.py",
    ),
    "another writer's file is an orphan": Mutant(
        "hudi/files/orphans.py", 'if base["id"] in own_ids else None', "", "hudi/test_orphans.py"
    ),
    "a checkpoint that contradicts its accounting counts": Mutant(
        "transaction/checks.py", "        if wrong:\n", "        if False:\n", "transaction/test_protocol_steps.py"
    ),
    "a table that hides rows is written to": Mutant(
        "transaction/checks.py", "    if unlisted:\n", "    if False:\n", "transaction/test_protocol_steps.py"
    ),
    "accountings behind a gap contradict the checkpoint": Mutant(
        "model/accounting.py",
        "if accounting.sequence != checkpoint.sequence - number:",
        "if False:",
        "model/test_accounting.py",
    ),
    "a partition that is gone from the checkpoint is not missed": Mutant(
        "model/accounting.py",
        "if source not in known and checkpoint.offsets.get(source) != end:",
        "if source not in known and checkpoint.offsets.get(source, end) != end:",
        "model/test_accounting.py",
    ),
    "a replaced file is missed": Mutant(
        "hudi/files/live_files.py", "if group_of(path) not in replaced and ", "if ", "hudi/test_live_files.py"
    ),
    "a compacted log file is missed": Mutant(
        "hudi/files/live_files.py",
        "return base is None or base <= commit.completed_at",
        "return True",
        "hudi/test_live_files.py",
    ),
    "a log file that a reader cannot list is missed": Mutant(
        "hudi/files/live_files.py", " and group_of(path) in based", "", "hudi/test_live_files.py"
    ),
    "a replaced file whose replacement is archived would not show": Mutant(
        "hudi/files/live_files.py", " or group_of(path) in shown", "", "hudi/test_live_files.py"
    ),
    "all commits but the newest are looked at": Mutant(
        "hudi/timeline/pipeline_table.py", "if at in judged}", "if at not in judged}", "hudi/test_live_files.py"
    ),
    "one look at the list is enough": Mutant(
        "hudi/timeline/pipeline_table.py",
        "if not missing or missing == found:",
        "if True:",
        "hudi/test_live_files.py",
    ),
    "a part of the history that is missing is an empty one": Mutant(
        "hudi/timeline/archived_commits.py",
        "            raise FileNotFoundError(_VERSION)\n",
        "            pass\n",
        "hudi/test_archived_commits.py",
    ),
    "a file of an archived commit is an orphan": Mutant(
        "hudi/files/orphans.py",
        "is_named = is_data and path in archive.files.get(instant, ())",
        "is_named = False",
        "operations/test_sweep.py",
    ),
    "a file of an instant that the ledger has as committed is an orphan": Mutant(
        "hudi/files/orphans.py", "and instant in archive.receipts:", "and False:", "operations/test_sweep.py"
    ),
    "a file of which nothing is known is an orphan": Mutant(
        "hudi/files/orphans.py",
        "            reason = archive.doubt\n",
        "            pass\n",
        "operations/test_sweep.py",
    ),
    "a sweep does not ask the archived commits": Mutant(
        "operations/upkeep/sweep.py",
        "        files = judge_archived(files, self._archive(files, commits))\n",
        "",
        "operations/test_sweep.py",
    ),
    "a sweep takes waiting dead letters": Mutant(
        "operations/upkeep/sweep.py",
        "        known |= self._listed_letters(stored, committed)\n",
        "",
        "operations/test_sweep.py",
    ),
    "a sweep deletes what has changed since its first look": Mutant(
        "operations/upkeep/sweep.py",
        "                    if orphan in orphans_before\n",
        "",
        "operations/test_sweep.py",
    ),
    "a sweep does not say that rows are hidden": Mutant(
        "operations/upkeep/sweep.py",
        "            unlisted = self._unlisted(kept)\n",
        "",
        "operations/test_sweep.py",
    ),
    "a metadata table is built beside open instants": Mutant(
        "operations/upkeep/recovery.py", "    if pending:\n", "    if False:\n", "operations/test_recovery.py"
    ),
    "a metadata table is built although rows of no commit would show": Mutant(
        "operations/upkeep/recovery.py", "    if foreign:\n", "    if False:\n", "operations/test_recovery.py"
    ),
    "a metadata table that was built again is not compared": Mutant(
        "operations/upkeep/recovery.py", "    if unlisted:\n", "    if False:\n", "operations/test_recovery.py"
    ),
    # hudi/storage
    "an atomic write is not flushed": Mutant(
        "hudi/storage/local.py", "        _sync(self._absolute(partial))\n", "", "hudi/test_durability.py"
    ),
    "the name of an atomic write is not flushed": Mutant(
        "hudi/storage/local.py",
        "        _sync_folder(os.path.dirname(self._absolute(path)))\n",
        "",
        "hudi/test_durability.py",
    ),
    "folders are not flushed": Mutant(
        "hudi/storage/local.py",
        "            list(pool.map(_sync_folder, sorted(folders)))\n",
        "",
        "hudi/test_durability.py",
    ),
    "the epoch is written in place": Mutant(
        "hudi/storage/local.py",
        "        self.replace(path, content)\n",
        "        self.write(path, content)\n",
        "hudi/test_epoch.py",
    ),
    "a folder's metadata is not flushed": Mutant(
        "hudi/storage/storage.py",
        "self._storage.sync([*files, *(path for path in partitions if self._storage.exists(path))])",
        "self._storage.sync([*files])",
        "hudi/test_durability.py",
    ),
    "what changed below .hoodie is not flushed": Mutant(
        "hudi/storage/storage.py",
        "self._storage.sync(file.path for file in changed)",
        "pass",
        "hudi/test_durability.py",
    ),
    "a lost answer is taken for another's change": Mutant(
        "hudi/storage/s3.py",
        "            if now.content == content:\n",
        "            if False:\n",
        "hudi/test_s3_storage.py::test_p5_a_change_whose_answer_was_lost_is_recognized",
    ),
    "a write that lost a race counts as done": Mutant(
        "hudi/storage/s3.py",
        "            if now.version != before.version:\n                raise WriteConflict(path)\n",
        "            if now.version != before.version:\n                return\n",
        "hudi/test_s3_storage.py::test_p4_of_two_begins_at_once_one_is_fenced",
    ),
    "a write's condition is not sent": Mutant(
        "hudi/storage/s3.py",
        "Key=self._key_of(path), Body=content, **condition)",
        "Key=self._key_of(path), Body=content)",
        "hudi/test_s3_storage.py::test_p4_only_one_of_two_makes_the_first_epoch",
    ),
    "a listing ends with its first page": Mutant(
        "hudi/storage/s3.py",
        '            if not page.get("IsTruncated"):\n                return\n            arguments',
        "            return\n            arguments",
        "hudi/test_s3_storage.py::test_many_files_are_listed_and_deleted_in_pages",
    ),
    "an upload of which a part is missing counts as complete": Mutant(
        "hudi/storage/s3.py",
        'if head is None or head["ContentLength"] != size_bytes:',
        "if head is None:",
        "hudi/test_s3_storage.py::test_p3_a_lost_upload_is_not_complete_because_another_file_is_there",
    ),
    "an error completes a file": Mutant(
        "hudi/storage/s3.py",
        "        else:\n            self._give_up()\n",
        "        else:\n            self.close()\n",
        "hudi/test_s3_storage.py::test_p3_a_file_that_an_error_leaves_or_nobody_closes_does_not_appear",
    ),
    "parts of an upload change places": Mutant(
        "hudi/storage/s3.py",
        "number = len(self._etags) + 1\n",
        "number = len(self._etags) % 2 + 1\n",
        "hudi/test_s3_storage.py::test_a_big_file_is_uploaded_in_equal_parts_without_checksums_at_their_ends",
    ),
    "a file that vanishes ends the flush of the others": Mutant(
        "hudi/storage/storage.py",
        "                changed &= self.look()\n",
        "                return\n",
        "hudi/test_durability.py",
    ),
    "folders are flushed before the files that they name": Mutant(
        "hudi/storage/local.py",
        "            list(pool.map(_sync, sorted(files)))\n            list(pool.map(_sync_folder, sorted(folders)))\n",
        "            list(pool.map(_sync_folder, sorted(folders)))\n            list(pool.map(_sync, sorted(files)))\n",
        "hudi/test_durability.py",
    ),
    "a write that lost a race tries on": Mutant(
        "hudi/storage/s3.py",
        "            if now.version != before.version:\n                raise WriteConflict(path)\n",
        "",
        "hudi/test_s3_storage.py::test_p4_a_write_that_lost_a_race_asks_once",
    ),
    "an upload ends in an empty part": Mutant(
        "hudi/storage/s3.py",
        "full = (len(content) - 1) // PART_BYTES",
        "full = len(content) // PART_BYTES",
        "hudi/test_s3_storage.py::test_a_file_of_whole_parts_ends_in_one_of_them",
    ),
    "objects that the store keeps count as deleted": Mutant(
        "hudi/storage/s3.py",
        'for problem in answer.get("Errors", ()):',
        "for problem in ():",
        "hudi/test_s3_storage.py::test_objects_that_the_store_refuses_to_delete_are_not_taken_for_deleted",
    ),
    # hudi, the rest
    "Hudi rolls failed writes back eagerly": Mutant("hudi/options.py", '"LAZY"', '"EAGER"', "hudi/test_options.py"),
    "another writer's commit does not carry the checkpoint": Mutant(
        "hudi/options.py",
        '        "hoodie.write.rolling.metadata.keys": pipeline.checkpoint_key,\n',
        "",
        "hudi/test_options.py",
    ),
    "a lease is a hundredth of the timeout": Mutant(
        "hudi/options.py", "timeout_seconds * 1000 // 2", "timeout_seconds * 10 // 2", "hudi/test_options.py"
    ),
    "cleaning retains more than the timeline": Mutant(
        "hudi/options.py", "max(20, table.retain_commits + 10)", "20", "hudi/test_options.py"
    ),
    "tables share a lock": Mutant(
        "hudi/options.py", "hashlib.sha256(table.base_path.encode())", 'hashlib.sha256(b"")', "hudi/test_options.py"
    ),
    "deletes of a log file are not counted": Mutant(
        "hudi/timeline/publication.py", '"numDeletes": file.deletes', '"numDeletes": 0', "hudi/test_write_stats.py"
    ),
    "group offsets that the coordinator refuses count as set": Mutant(
        "kafka/cluster.py",
        "if place.error and place.error.code() not in _NOT_A_TOPIC:",
        "if False:",
        "kafka/test_group_client.py::test_an_offset_that_the_coordinator_refuses_is_not_taken_for_set",
    ),
    # operations/requests
    "a file that ends behind a replay's range is replaced whole": Mutant(
        "operations/requests/replaced_files.py",
        "and high < slice_.end",
        "and high <= slice_.end",
        "operations/test_replaced_files.py",
    ),
    "a file that ends with a replay's first offset is left": Mutant(
        "operations/requests/replaced_files.py",
        "_meets(file.offsets, slice_.start, slice_.end - 1)",
        "_meets(file.offsets, slice_.start + 1, slice_.end - 1)",
        "operations/test_replaced_files.py",
    ),
    "a file that begins before a replay's range is replaced whole": Mutant(
        "operations/requests/replaced_files.py",
        "and slice_.start <= low and",
        "and slice_.start <= low + 1 and",
        "operations/test_replaced_files.py",
    ),
    "a file that begins with a replay's last offset is left": Mutant(
        "operations/requests/replaced_files.py",
        "slice_.start, slice_.end - 1)",
        "slice_.start, slice_.end - 2)",
        "operations/test_replaced_files.py",
    ),
    "a backfill is in the way of itself": Mutant(
        "operations/requests/planning.py",
        "request.skip_covered or bool(progress.commits)",
        "request.skip_covered",
        "operations/test_request_progress.py",
    ),
    "a replay does a range that it has done": Mutant(
        "operations/requests/planning.py",
        "for slice_ in without(requested, progress.done)]",
        "for slice_ in without(requested, ())]",
        "operations/test_request_progress.py",
    ),
    "a request's commit that landed is done once more": Mutant(
        "operations/requests/planning.py",
        "        mark_if_committed(PipelineTable(pipeline), ledger, row.transaction_id)\n",
        "        pass\n",
        "operations/test_request_progress.py",
    ),
    # model
    "a newer mark replaces one that is still to be reached": Mutant(
        "model/complete_through.py",
        "            elif pending is None:\n",
        "            else:\n",
        "model/test_complete_through.py",
    ),
    "the mark of a partition that begins once more stays": Mutant(
        "model/complete_through.py",
        "            state = replace(state, pending=None)\n",
        "            pass\n",
        "model/test_complete_through.py::test_the_mark_of_a_partition_that_begins_once_more_is_of_other_offsets",
    ),
    # orchestration
    "a run that the instance does not know counts as ended": Mutant(
        "orchestration/jobs/run_config.py",
        "return None if run is None else run.is_finished",
        "return run is None or run.is_finished",
        "orchestration/test_run_config.py",
    ),
    "an idle tick does not record a commit that landed": Mutant(
        "orchestration/coordinator/look.py",
        "        mark_if_committed(table, ledger, row.transaction_id)\n",
        "",
        "orchestration/test_idle_ticks.py",
    ),
    "an idle tick does not copy dead letters": Mutant(
        "orchestration/coordinator/look.py",
        "        keep_letters_copied(sight.pipeline, sight.situation)\n",
        "        pass\n",
        "orchestration/test_idle_ticks.py",
    ),
    # kafka
    "uncommitted records are read": Mutant(
        "kafka/client_settings.py",
        '"isolation.level": "read_committed"',
        '"isolation.level": "read_uncommitted"',
        "kafka/test_range_reader.py",
    ),
    "a missing offset is read elsewhere": Mutant(
        "kafka/client_settings.py",
        '"auto.offset.reset": "error"',
        '"auto.offset.reset": "earliest"',
        "kafka/test_range_reader.py",
    ),
    "the consumer commits offsets by itself": Mutant(
        "kafka/client_settings.py",
        '"enable.auto.commit": "false"',
        '"enable.auto.commit": "true"',
        "kafka/test_range_reader.py",
    ),
    "damaged records are not noticed": Mutant(
        "kafka/range_reader.py", '"check.crcs": "true"', '"check.crcs": "false"', "kafka/test_range_reader.py"
    ),
    "a partition may end within a range": Mutant(
        "kafka/range_reader.py",
        "        if message.offset < slice_.end:\n",
        "        if False:\n",
        "kafka/test_range_reader.py",
    ),
    "a range ends one record early": Mutant(
        "kafka/range_reader.py",
        "backlog.advance(range_, run.last_offset + 1)",
        "backlog.advance(range_, run.last_offset + 2)",
        "kafka/test_range_reader.py",
    ),
    "a record behind the range is read": Mutant(
        "kafka/message_columns.py",
        "        if offset < end:\n",
        "        if offset <= end:\n",
        "kafka/test_range_reader.py",
    ),
    "records of two partitions are one batch": Mutant(
        "kafka/message_columns.py",
        "            or _half_word(message + _PARTITION) != partition\n",
        "",
        "kafka/test_range_reader.py",
    ),
    "the last header of a record is lost": Mutant(
        "kafka/message_columns.py",
        "            counts[row] = index\n",
        "            counts[row] = index - 1\n",
        "kafka/test_range_reader.py",
    ),
    "a header's null is an empty value": Mutant(
        "kafka/message_columns.py",
        "lengths[2 * total + 1] = value_length if value else -1",
        "lengths[2 * total + 1] = value_length",
        "kafka/test_range_reader.py",
    ),
    "headers do not count for the size of a batch": Mutant(
        "kafka/message_columns.py", "            header_bytes += headers\n", "", "kafka/test_range_reader.py"
    ),
    "a timestamp is of another record": Mutant(
        "kafka/message_columns.py",
        "timestamps[row] = _call(timestamp_of, (message, kind))",
        "timestamps[row] = _call(timestamp_of, (addresses[start], kind))",
        "kafka/test_range_reader.py",
    ),
    "a tombstone is an empty value": Mutant(
        "kafka/message_columns.py",
        "            if _word(message + _VALUE) == 0:\n                value_nulls += 1\n",
        "            if _word(message + _VALUE) == 0:\n                value_nulls += 0\n",
        "kafka/test_range_reader.py",
    ),
    "a range that is held is read from its start again": Mutant(
        "kafka/backlog.py",
        "return {source: range_.position for source, range_ in self._open.items()}",
        "return {source: range_.slice.start for source, range_ in self._open.items()}",
        "kafka/test_backlog.py",
    ),
    "the last batch of a range is lost": Mutant(
        "kafka/backlog.py", "    if pending:\n        yield _joined(pending)\n", "", "kafka/test_backlog.py"
    ),
    "silence is taken for progress": Mutant(
        "kafka/backlog.py",
        'partition["next_offset"] > self._positions[source]:',
        'partition["next_offset"] >= self._positions[source]:',
        "kafka/test_fetch_positions.py",
    ),
    "a partition ends with what is not committed": Mutant(
        "kafka/cluster.py",
        "        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,\n    ) -> dict[TopicPartition, int | IngestError]:",
        "        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,\n    ) -> dict[TopicPartition, int | IngestError]:",
        "kafka/test_cluster.py",
    ),
    "a leader that is being chosen is not waited for": Mutant(
        "kafka/cluster.py",
        "if errors != {LeaderMissing} or time.monotonic() > deadline:",
        "if True:",
        "kafka/test_cluster.py",
    ),
    "the end is asked for before the time of the look": Mutant(
        "kafka/cluster.py",
        "asked_at = _milliseconds()",
        "asked_at = 0",
        "kafka/test_cluster.py",
    ),
    "clients that failed are lent again": Mutant(
        "kafka/admin_clients.py", "usable = not clients.has_failed", "usable = True", "kafka/test_admin_clients.py"
    ),
    "a gap is not looked at": Mutant(
        "kafka/records.py",
        "inside = error is None and slice_.start <= message.offset() < slice_.end",
        "inside = False",
        "kafka/test_range_reader.py",
    ),
    "a record behind a gap counts as in it": Mutant(
        "kafka/records.py",
        "inside = error is None and slice_.start <= message.offset() < slice_.end",
        "inside = error is None",
        "kafka/test_range_reader.py",
    ),
    "every tick waits for a cluster that is away": Mutant(
        "kafka/shared_clusters.py",
        "        raise KafkaUnreachable(silence.text, servers=source.bootstrap_servers)\n",
        "        pass\n",
        "kafka/test_silent_clusters.py",
    ),
    "a token that expired ends a client": Mutant(
        "kafka/client_settings.py",
        "and self.all_down and not token_may_have_expired",
        "and self.all_down",
        "kafka/test_client_errors.py",
    ),
    # certificates and audits
    "a certificate is of a task's last batch": Mutant(
        "transaction/write/task.py",
        "own + progress.certificate if progress.certificate else own",
        "own",
        "transaction/write/test_write.py",
    ),
    "the running certificate survives a reset": Mutant(
        "model/report.py", "        certified.pop(loss.source, None)\n", "        pass\n", "operations/test_audit.py"
    ),
    "slices from before a running certificate are subtracted from it": Mutant(
        "model/stretches.py",
        "if each.start >= total.start]",
        "if each.start >= 0]",
        "operations/test_audit.py",
    ),
    "stretches keep what was read before a reset": Mutant(
        "model/stretches.py", "            if loss.repeats:\n", "            if False:\n", "operations/test_audit.py"
    ),
    "names that readers give a meaning are columns": Mutant(
        "records/schema/columns.py",
        "        if owner := _READERS_OWN.get(name.lower()):\n",
        "        if owner := None:\n",
        "records/schema/test_schema.py",
    ),
    "a table that Spark would fill with garbage is written on": Mutant(
        "transaction/columns/schema_change.py",
        "if problems := tuple(unreadable_names(existing.names)):",
        "if problems := ():",
        "records/schema/test_schema.py",
    ),
    "a version that protoc refuses stops declared columns": Mutant(
        "transaction/columns/decoding.py",
        ' if not unreadable(schema, "PROTOBUF"))',
        ")",
        "transaction/test_decoding.py",
    ),
    "columns come from a version that nothing can be read with": Mutant(
        "transaction/columns/schema_change.py",
        "through_readable(subject_versions, kind) for",
        "subject_versions for",
        "transaction/test_decoding.py",
    ),
    "a record of a schema that cannot be compiled ends the transaction": Mutant(
        "transaction/columns/decoding.py",
        "if unreadable(schema, self.kind):",
        "if False:",
        "transaction/test_decoding.py",
    ),
    "a log block may have two lengths": Mutant(
        "hudi/files/log_reader.py",
        'if struct.unpack_from(">q", content, end - 8) != (len(MAGIC) + length,):',
        "if False:",
        "operations/test_keyed_audit.py",
    ),
    "pages of log blocks are not compared with their checksums": Mutant(
        "hudi/files/log_reader.py",
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        "operations/test_keyed_audit.py",
    ),
    "an audit does not compare the sizes of log files": Mutant(
        "operations/keyed_audit.py",
        "if self.sizes.get(path, len(content)) != len(content):",
        "if False:",
        "operations/test_keyed_audit.py",
    ),
    "a damaged file of a keyed table leaves the rest as it was written": Mutant(
        "operations/audit.py",
        "            self.doubtful |= self.asked\n",
        "            pass\n",
        "operations/test_keyed_audit.py",
    ),
    "keys of a damaged bucket are lost one by one": Mutant(
        "operations/keyed_audit.py",
        "if change[_GROUP] in self.unreadable:",
        "if False:",
        "operations/test_keyed_audit.py",
    ),
    "a keyed audit counts records that it could not read as compared": Mutant(
        "operations/audit.py",
        "if index not in self.readable and is_keyed:",
        "if False:",
        "operations/test_keyed_audit.py",
    ),
    "later records than those that were asked for are not read": Mutant(
        "operations/audit.py",
        "            for index in self.readable\n            if self.stretches[index].source not in self.unknown\n",
        "            for index in self.readable & self.asked\n            if self.stretches[index].source not in self.unknown\n",
        "operations/test_keyed_audit.py",
    ),
    "an audit takes rows from before a reset for today's": Mutant(
        "operations/audit.py",
        "(numbers < generation)",
        "(numbers < 0)",
        "operations/test_audit.py",
    ),
    "rows that are lost with a file are named one by one": Mutant(
        "operations/audit.py", "        self._attribute_lost()\n", "", "operations/test_audit.py"
    ),
    "an audit does not look at commit times": Mutant(
        "operations/audit.py",
        "        self._note_commit_times(path, rows, codes, found)\n",
        "",
        "operations/test_audit.py",
    ),
    "an answer is whole although something was not examined": Mutant(
        "operations/audit.py",
        "return self.is_right and not self.unexamined",
        "return self.is_right",
        "operations/test_audit.py",
    ),
    "files of pending instants are strays": Mutant(
        "operations/audit.py",
        'if instant in instants.pending or instant > max(seen, default=""):',
        "if False:",
        "operations/test_audit.py",
    ),
    "a number of more than 38 digits is no text": Mutant(
        "records/convert/connect/values.py",
        "        return _one_by_one(target, scales.to_pylist(), unscaled)",
        "        raise",
        "records/convert/test_connect_json.py",
    ),
    "digits are rounded away": Mutant(
        "records/convert/connect/values.py",
        "context = Context(prec=target.precision, traps=[InvalidOperation, Inexact])",
        "context = Context(prec=target.precision, traps=[InvalidOperation])",
        "records/convert/test_connect_json.py",
    ),
    "a few bytes of a record become gigabytes of zeros": Mutant(
        "records/convert/connect/values.py",
        " or scale not in _SCALES:",
        ":",
        "records/convert/test_connect_json.py::test_a_number_that_its_column_does_not_hold_is_shown_with_the_remedy",
    ),
    "a decimal that is right is blamed": Mutant(
        "records/convert/connect/json.py",
        "if self._is_decimal(second) and second.found.startswith",
        "if second.found.startswith('no') and second.found.startswith",
        "records/convert/test_connect_json.py",
    ),
    "an Avro datum may have bytes behind it": Mutant(
        "records/convert/avro/datums.py",
        "walk(root, at, end, done) == end",
        "walk(root, at, end, done) != 0",
        "records/convert/test_avro.py",
    ),
    "money has no column in Avro": Mutant(
        "records/schema/avro.py",
        "    elif precision == UNKNOWN_PRECISION:\n        precision = 38\n",
        "",
        "records/convert/test_connect_avro.py",
    ),
    "the default of a column has more digits than it": Mutant(
        "records/schema/avro.py",
        "10 ** min(tree.precision, 38)",
        "10**tree.precision",
        "records/convert/test_connect_avro.py",
    ),
    "a name finds a pipeline that the folder keeps out": Mutant(
        "pipeline/folder.py",
        "        if not file.problems:\n            return pipeline, file.path\n",
        "        return pipeline, file.path\n",
        "pipeline/test_template.py",
    ),
    # what files may not say
    "a property of Kafka's client that no list has is passed on": Mutant(
        "pipeline/sections/kafka_client.py",
        "        elif name not in ALLOWED:\n",
        "        elif False:\n",
        "pipeline/test_client_properties.py",
    ),
    "a property becomes a command of a shell": Mutant(
        "pipeline/sections/kafka_client.py",
        "not _PLAIN.fullmatch(value.get_secret_value())",
        "False",
        "pipeline/test_client_properties.py",
    ),
    "all properties of tokens but those that are known are passed on": Mutant(
        "pipeline/sections/kafka_client.py",
        '        "sasl.oauthbearer.",\n',
        "",
        "pipeline/test_client_properties.py",
    ),
    "Hudi's reporters of metrics may be set": Mutant(
        "pipeline/hudi_options.py", '        "hoodie.metrics.",\n', "", "hudi/test_options.py"
    ),
    "an option of Hudi that no list has is passed on": Mutant(
        "pipeline/hudi_options.py",
        "        if option in ALLOWED:\n",
        "        if option in ALLOWED or reason_against(option) is None:\n",
        "hudi/test_options.py",
    ),
    "any path may be named over REST": Mutant(
        "rest/access.py",
        'setting in _PATHS and not _matches(f"file:{path}", self.references)',
        "False",
        "rest/test_pipelines.py",
    ),
    "links lead out of what is allowed over REST": Mutant(
        "rest/access.py",
        "return (folder / path).resolve()",
        "return (folder / path).absolute()",
        "rest/test_pipelines.py",
    ),
    "a token endpoint's answer is quoted": Mutant(
        "kafka/client_settings.py",
        "_without_the_answer(error.str())",
        "error.str()",
        "kafka/test_client_errors.py",
    ),
    "the answer of a server that is no registry is quoted": Mutant(
        "kafka/registry.py",
        "error.error_code > 0 and",
        "True and",
        "kafka/test_registry_faults.py",
    ),
    "handshakes that nobody ends are all kept": Mutant(
        "rest/application.py",
        "                if len(self._open) >= _MOST_HANDSHAKES:\n",
        "                if False:\n",
        "rest/test_server.py::test_handshakes_that_nobody_ends_keep_nobody_out",
    ),
    # turns of a fleet
    "topics that moved wait behind all that are idle": Mutant(
        "orchestration/coordinator/fleet.py",
        "return in_turn([*self._waiting], moved(self.memory.of_each([on[name] for name in self._waiting])))",
        "return self._waiting",
        "orchestration/test_fleet.py",
    ),
    "those whose topics moved keep the others from their turns": Mutant(
        "orchestration/coordinator/fleet.py",
        "front[:_FIRST_FOR_ONE] + rest[:1]",
        "front[:_FIRST_FOR_ONE] + ([] if front else rest[:1])",
        "orchestration/test_fleet.py::test_each_has_its_turn_however_many_come_first",
    ),
    "no topic ever moves": Mutant(
        "orchestration/coordinator/quiet_ticks.py",
        "            if seen is not None and seen != ends:\n",
        "            if False:\n",
        "orchestration/test_idle_ticks.py",
    ),
    "an audit lists the table once, whatever is committed meanwhile": Mutant(
        "operations/audit.py",
        "if (before.sequence if before else 0) == (after.sequence if after else 0):",
        "if True:",
        "operations/test_audit.py",
    ),
    "rows are compared with columns that the table got after them": Mutant(
        "operations/audit.py",
        "part if names is None else part.select([name for name in part.column_names if name in names])",
        "part",
        "operations/test_audit.py",
    ),
}
"""By the fault."""


_READS_JAVA = '.joinpath(f"{name}.java").read_text()'


def in_write_client(mutant: Mutant) -> Mutant:
    """The mutant of a class of Java as one of the module that hands its source to the driver's compiler."""
    changed = f"{_READS_JAVA}.replace({mutant.old!r}, {mutant.new!r})"
    return Mutant("hudi/write_client.py", _READS_JAVA, changed, mutant.found_by)


JAVA_MUTANTS: Mapping[str, Mutant] = {
    "the guard does not ask for the epoch": Mutant(
        "hudi/CommitGuard.java",
        "      requireEpoch(fresh);\n",
        "",
        "test_transactions.py::test_p4_a_newer_epoch_fences_op_and_commit_whatever_the_ledger_and_the_heartbeat_say",
    ),
    "the guard does not ask for a planned rollback": Mutant(
        "hudi/CommitGuard.java",
        "      requireNoRollback(fresh);\n",
        "",
        "test_transactions.py::test_p4_an_instant_that_another_writer_is_rolling_back_is_not_committed",
    ),
    "the guard does not compare the checkpoint": Mutant(
        "hudi/CommitGuard.java",
        "      requireCheckpoint(fresh);\n",
        "",
        "test_transactions.py::test_p4_the_guard_in_hudis_lock_refuses_a_second_publisher",
    ),
    "the guard of a keyed table does not ask for its clock": Mutant(
        "hudi/CommitGuard.java",
        "        requireClock(fresh);\n",
        "",
        "test_keyed_compaction.py::test_p8_a_compaction_that_is_ahead_of_the_drivers_clock_hides_no_rows",
    ),
    "the guard of a keyed table passes commits of others": Mutant(
        "hudi/CommitGuard.java",
        "if (keyed && transaction == null && ",
        "if (false && ",
        "test_keyed_table.py",
    ),
    "the guard does not ask whether files to be replaced are live": Mutant(
        "hudi/CommitGuard.java",
        "        requireLive(fresh);\n",
        "",
        "test_replay.py::test_p4_p7_a_replay_of_files_that_another_writer_changed_meanwhile_is_refused",
    ),
    "the guard of a take-over passes commits that nobody has judged": Mutant(
        "hudi/CommitGuard.java",
        "        requireSeen(fresh);\n",
        "",
        "test_take_over.py::test_x6_p4_the_guard_refuses_a_take_over_of_a_table_that_was_not_seen_as_it_is",
    ),
    "a commit renews a lease that has run out": Mutant(
        "hudi/LeasedCommit.java",
        "if (System.currentTimeMillis() - last > renewable) {",
        "if (false) {",
        "test_other_writers.py::test_p4_a_late_commit_is_refused_before_a_cleaner_with_another_clock_takes_it_for_dead",
    ),
    "a rollback does not wait for a commit inside Hudi's lock": Mutant(
        "hudi/CommitBarrier.java",
        "    manager.beginStateChange(Option.empty(), Option.empty());\n    manager.endStateChange(Option.empty());\n",
        "",
        "test_transactions.py::test_p1_a_rollback_waits_for_a_commit_that_runs_and_leaves_it_alone",
    ),
    "a service that was taken for dead commits all the same": Mutant(
        "hudi/TableService.java",
        "      if (!current.equals(claim)) {",
        "      if (false) {",
        "test_keyed_compaction.py::test_p5_a_compaction_that_died_is_done_by_the_next_services_and_its_zombie_is_refused",
    ),
}
"""Found by whole stacks, in minutes each."""
