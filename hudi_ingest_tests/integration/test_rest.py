"""The whole life of a pipeline over REST, by a client that is generated from the server's own description."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hudi_ingest.pipeline.folder import find_pipeline
from hudi_ingest.rest.application import openapi_document
from hudi_ingest_tests.support.certificates import Authority
from hudi_ingest_tests.support.command_line import COMMAND, environment
from hudi_ingest_tests.support.generated_client import generated_client
from hudi_ingest_tests.support.ground import Ground, write_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TOKEN = "a-token-that-nobody-sees"


@pytest.fixture
def client(ground: Ground, tmp_path: Path) -> Iterator[ModuleType]:
    """The generated package, set up for a server with TLS and a token on a port of its own."""
    authority = Authority(tmp_path, "rest")
    identity = authority.issue("server")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    files = ["--token-file", str(token), "--cert", str(identity.certificate), "--key", str(identity.key)]
    server = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--json", *files],
        env=environment(ground.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    try:
        package = generated_client(openapi_document(), tmp_path)
        told = ""
        while not told.rstrip().endswith("}"):
            line = server.stdout.readline()
            assert line, told
            told += line if told or line.startswith("{") else ""  # What comes before is progress.
        package.serving = package.Configuration(
            host=json.loads(told)["url"], access_token=TOKEN, ssl_ca_cert=str(authority.certificate)
        )
        yield package
    finally:
        server.terminate()
        rest, _ = server.communicate(timeout=300)
    assert server.returncode == 0, rest
    assert TOKEN not in told + rest


@pytest.mark.tier(1)
def test_k6_the_life_of_a_pipeline(ground: Ground, topic: str, client: ModuleType) -> None:
    text = (
        "# by REST\n"
        + write_pipeline(ground, on_bad_record="dead_letter", table={"on_schema_change": "refuse"}).read_text()
    )
    (ground.home.pipelines / f"{ground.name}.yaml").unlink()
    name = ground.name
    ground.send_rows(0, 20)
    ground.send(1, [b"{}", b'{"id": "3", "n": "x", "dt": "2026-01-01"}'])
    with client.ApiClient(client.serving) as connection:
        pipelines, state = client.PipelinesApi(connection), client.StateApi(connection)
        requests, letters = client.RequestsApi(connection), client.DeadLettersApi(connection)

        wrong = pipelines.validate_pipeline(client.PipelineText(text=text.replace("n long", "n lng")))
        assert (wrong.valid, wrong.problems[0].place) == (False, "table.schema")
        assert pipelines.validate_pipeline(client.PipelineText(text=text)).valid
        created = pipelines.create_pipeline(client.PipelineText(text=text))
        assert (ground.home.pipelines / created.file).read_text() == text
        assert [(each.name, each.state) for each in pipelines.list_pipelines()] == [(name, "paused")]
        smaller = client.PipelineText(text=text.replace("transaction:", "transaction:\n  max_records: 15"))
        with pytest.raises(client.ApiException) as refused:
            pipelines.update_pipeline(name, smaller)
        assert refused.value.status == 428
        changed = pipelines.update_pipeline(name, smaller, if_match=created.version)
        with pytest.raises(client.ApiException) as refused:
            pipelines.update_pipeline(name, smaller, if_match=created.version)
        assert refused.value.status == 412

        planned = state.plan_pipeline(name)
        assert sum(each.end - each.start for each in planned.slices) == 15
        assert [column["name"] for column in planned.columns][:3] == ["id", "n", "dt"]
        outcomes = [record.outcome for record in state.sample_pipeline(name, client.SampleBody(limit=100)).records]
        assert (outcomes.count("row"), outcomes.count("bad")) == (21, 1)
        before = state.get_status(name)
        assert (before.lag, before.sequence, before.transactions) == (22, 0, [])

        pipeline = find_pipeline(ground.home.pipelines, name)
        ground.run(pipeline)
        ground.run(pipeline)
        (after,) = state.get_all_status()
        assert (after.lag, after.sequence, after.dead_letters) == (0, 2, 1)
        assert {each.state for each in after.transactions} == {"committed"}

        with pytest.raises(client.ApiException) as refused:
            requests.create_backfill(
                name, client.BackfillBody(offsets=client.Offsets(topic=topic, partition=0, start=0, end=20))
            )
        problem = json.loads(refused.value.body)
        assert (problem["status"], problem["title"]) == (409, "Refused")
        assert "is already in the table" in problem["problems"][0]["text"]
        body = client.ReplayBody(offsets=client.Offsets(topic=topic, partition=0, start=3, end=9))
        assert [(each.start, each.end) for each in requests.survey_replay(name, body).ranges] == [(3, 9)]
        replay = requests.create_replay(name, body)
        assert (replay.state, replay.worked_on) == ("active", False)
        assert requests.create_replay(name, body).request == replay.request, "one request for the same work"
        assert requests.cancel_request(replay.request).cancelled
        assert requests.get_request(replay.request).state == "cancelled"

        (group,) = letters.list_dead_letters(name)
        (letter,) = letters.show_dead_letters(name, topic=topic, partition=1)
        assert (group.letters, letter.offset, letter.stage) == (1, 1, group.stage)
        assert "x" in letter.found
        assert letters.survey_retry(name).rows == 0
        retry = letters.create_retry(name)
        assert [each.request for each in requests.list_requests(pipeline=name)] == [retry.request, replay.request]
        with pytest.raises(client.ApiException) as refused:
            partition = client.StoppedPartition(topic=topic, partition=0)
            state.accept_loss(name, client.LossBody(partitions=[partition]))
        assert refused.value.status == 409
        assert "is not stopped" in json.loads(refused.value.body)["detail"]

        table, installation = client.TableApi(connection), client.InstallationApi(connection)
        assert "all columns" in table.get_schema_change(name).skip
        wider = client.PipelineText(text=smaller.text.replace("dt string", "dt string, note string"))
        changed = pipelines.update_pipeline(name, wider, if_match=changed.version)
        waiting = table.get_schema_change(name)
        assert (waiting.approved, len(waiting.changes)) == (False, 1)
        with pytest.raises(client.ApiException) as refused:
            table.approve_schema(name, client.ApprovalBody(fingerprint="another"))
        assert refused.value.status == 409
        assert table.approve_schema(name, client.ApprovalBody(fingerprint=waiting.fingerprint)).approved
        assert table.get_schema_change(name).approved
        examined = installation.get_doctor()
        assert f"pipeline {name}" in {diagnosis.subject for diagnosis in examined.diagnoses}

        pipelines.delete_pipeline(name, if_match=changed.version)
        assert pipelines.list_pipelines() == []
    assert ground.rows().num_rows == 21
