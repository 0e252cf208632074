"""Pipeline files over REST: what is written, what is refused, and what nobody gets to see."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline import hudi_options
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections import kafka_client
from hudi_ingest.pipeline.settings.describe import path_keys
from hudi_ingest.rest.access import Allowed
from hudi_ingest_tests.support.pipeline_files import SECRET, document
from hudi_ingest_tests.support.rest_api import READ_TOKEN, RestApi, running_rest_api

pytestmark = pytest.mark.fast

TEXT = f"# why this pipeline exists\n{yaml.safe_dump(document(), sort_keys=False)}enabled: true  # from the start\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestApi]:
    root = tmp_path_factory.mktemp("rest")
    home = Home(root / "home", root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    with running_rest_api(home, Allowed(("KAFKA_PASSWORD",), ("allowed_package:*",))) as api:
        yield api


@pytest.fixture
def api(server: RestApi) -> RestApi:
    """With an empty folder of pipelines."""
    server.home.pipelines.mkdir(exist_ok=True)
    for path in server.home.pipelines.iterdir():
        path.unlink()
    return server


def files(api: RestApi) -> dict[str, str]:
    return {path.name: path.read_text() for path in api.home.pipelines.iterdir()}


def test_a_file_is_created_read_changed_and_deleted_as_the_text_it_is(api: RestApi) -> None:
    created = api.ask("POST", "/pipelines", TEXT)
    assert (created.status, created.headers["location"]) == (201, "/api/v1/pipelines/orders")
    assert files(api) == {"orders.yaml": TEXT}
    read = api.ask("GET", "/pipelines/orders")
    assert read.headers["etag"] == created.headers["etag"]
    assert (read.body["text"], read.body["settings"]["name"], read.body["problems"]) == (TEXT, "orders", [])
    listed = api.ask("GET", "/pipelines").body
    assert [(row["name"], row["state"], row["enabled"]) for row in listed] == [("orders", "on", True)]

    path = api.home.pipelines / "orders.yaml"
    path.chmod(0o640)
    changed = TEXT.replace("enabled: true", "enabled: false")
    answer = api.ask("PUT", "/pipelines/orders", changed, If_Match=read.headers["etag"])
    assert (answer.status, files(api)) == (200, {"orders.yaml": changed})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert api.ask("PUT", "/pipelines/orders", TEXT, If_Match=read.headers["etag"]).status == 412
    assert api.ask("PUT", "/pipelines/orders", TEXT).status == 428
    assert api.ask("DELETE", "/pipelines/orders").status == 428
    assert api.ask("DELETE", "/pipelines/orders", If_Match='"other"').status == 412
    assert files(api) == {"orders.yaml": changed}
    assert api.ask("DELETE", "/pipelines/orders", If_Match=answer.headers["etag"]).status == 204
    assert files(api) == {}
    assert api.ask("GET", "/pipelines/orders").status == 404


def test_json_becomes_yaml(api: RestApi) -> None:
    assert api.ask("POST", "/pipelines", {"settings": document()}).status == 201
    assert yaml.safe_load(files(api)["orders.yaml"]) == document()
    assert api.ask("POST", "/pipelines", {"text": TEXT, "settings": document()}).status == 422


def test_nothing_that_is_wrong_is_written_and_all_of_it_is_said(api: RestApi) -> None:
    assert api.ask("POST", "/pipelines", TEXT).status == 201
    wrong = document(name="other", source__format="jsn", table__schema="id strin")
    answer = api.ask("POST", "/pipelines", yaml.safe_dump(wrong, sort_keys=False))
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    problems = {problem["place"]: problem for problem in answer.body["problems"]}
    assert set(problems) == {"source.format", "table.schema"}
    assert problems["source.format"]["line"] == 6
    assert "json" in problems["source.format"]["allowed"]
    assert problems["source.format"]["help"]
    nameless = document(name="other", source__topics=["a b"])
    (nameless_topic,) = api.ask("POST", "/validate", yaml.safe_dump(nameless)).body["problems"]
    assert nameless_topic["place"] == "source.topics[0]" and nameless_topic["help"]

    beside = yaml.safe_dump(document(name="other"))
    (conflict,) = api.ask("POST", "/validate", beside).body["problems"]
    assert "both have the table.base_path /data/orders" in conflict["text"]
    assert api.ask("POST", "/pipelines", beside).status == 422
    assert api.ask("POST", "/validate", TEXT).body["valid"] is False, "the name is taken"
    nested = api.ask("POST", "/validate", "name: &a [*a]\n").body["problems"]
    assert any("anchors and aliases" in problem["text"] for problem in nested), "placed where no list belongs"
    own = api.ask("POST", "/validate?name=orders", TEXT).body
    assert (own["valid"], own["problems"]) == (True, [])
    assert api.ask("POST", "/pipelines", TEXT).status == 409
    renamed = api.ask("PUT", "/pipelines/orders", beside, If_Match="*")
    assert (renamed.status, renamed.body["problems"][0]["place"]) == (422, "name")
    assert api.ask("POST", "/pipelines", "a: [").body["problems"][0]["line"] == 1
    assert files(api) == {"orders.yaml": TEXT}


@pytest.mark.parametrize("name", ["../orders", "/etc/cron.d/orders", "a/b", ".hidden", "x.yaml", "", "..", "a\x00b"])
def test_no_name_leads_out_of_the_folder(api: RestApi, name: str) -> None:
    before = sorted(api.home.pipelines.parent.rglob("*"))
    assert api.ask("POST", "/pipelines", yaml.safe_dump(document(name=name))).status == 422
    assert sorted(path for path in api.home.pipelines.parent.rglob("*") if path.suffix != ".lock") == [
        path for path in before if path.suffix != ".lock"
    ]


def test_only_the_folder_s_files_have_names(api: RestApi, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(TEXT)
    for name in ("..%2Fsecret", "%2e%2e", "secret.yaml", str(tmp_path / "secret.yaml").replace("/", "%2F")):
        for path in (f"/pipelines/{name}", f"/pipelines/{name}/status", f"/pipelines/{name}/plan"):
            assert api.ask("GET", path).status in (404, 405), path


def test_no_answer_has_a_secret(api: RestApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    login = {"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u", "password": "${KAFKA_PASSWORD}"}
    reference = yaml.safe_dump(document(source__security=login), sort_keys=False)
    assert api.ask("POST", "/pipelines", reference).status == 201
    read = api.ask("GET", "/pipelines/orders")
    assert (read.body["text"], read.body["masked"]) == (reference, [])
    assert read.body["settings"]["source"]["security"]["password"] == "${KAFKA_PASSWORD}"

    written = reference.replace("${KAFKA_PASSWORD}", SECRET)
    answers = [api.ask("PUT", "/pipelines/orders", written, If_Match="*"), api.ask("GET", "/pipelines/orders")]
    assert files(api) == {"orders.yaml": written}
    assert answers[1].body["masked"] == ["source.security.password"]
    masked = answers[1].body["text"]
    answers.append(api.ask("PUT", "/pipelines/orders", masked, If_Match="*"))
    assert (answers[-1].status, answers[-1].body["problems"][0]["place"]) == (422, "source.security.password")
    assert files(api) == {"orders.yaml": written}, "the mask did not replace the secret"
    for broken in (written.replace("password:", "pasword:"), written + "a: [", written.replace("u\n", "[u]\n")):
        answers += [api.ask("POST", "/validate?name=orders", broken)]
        (api.home.pipelines / "orders.yaml").write_text(broken)
        answers += [api.ask("GET", path) for path in ("/pipelines", "/status", "/pipelines/orders")]
    assert {answer.status for answer in answers} <= {200, 404, 422}
    assert SECRET not in "".join(answer.text for answer in answers)


def test_the_server_s_variables_and_files_are_named_and_shown_only_if_they_are_allowed(
    api: RestApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    for name in ("HUDI_INGEST_TOKEN", "PGPASSWORD", "KAFKA_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "internal.example:9092")
    login = {"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u", "password": "${PGPASSWORD}"}
    forbidden = {
        "source.topics[0]": document(source__topics=["t_${HUDI_INGEST_TOKEN}"]),
        "table.base_path": document(table__base_path="/data/${PGPASSWORD:-x}"),
        "source.format": document(source__format="${HUDI_INGEST_TOKEN}"),
        "source.security.password": document(source__security=login),
        "table.schema": document(table__schema=f"${{file:{secret}}} string"),
    }
    answers = []
    for place, changed in forbidden.items():
        text = yaml.safe_dump(changed, sort_keys=False)
        for method, path in (("POST", "/pipelines"), ("POST", "/validate")):
            answers.append(api.ask(method, path, text))
            (problem,) = answers[-1].body["problems"]
            assert (problem["place"], "--allow-reference" in problem["text"]) == (place, True)
            assert problem["line"]
    assert files(api) == {}
    # Files that somebody put there may name everything, but no secret where everybody sees it.
    monkeypatch.setenv("PLACE", "value-of-a-variable")
    file = api.home.pipelines / "orders.yaml"
    slow = {"source__bootstrap_servers": "127.0.0.1:9", "source__request_timeout_seconds": 0.5}
    file.write_text(yaml.safe_dump(document(**slow, table__base_path=f"{tmp_path}/${{PLACE}}")))
    listed = [api.ask("GET", path) for path in ("/pipelines", "/status")]
    answers += listed
    assert [answer.body[0]["base_path"] for answer in listed] == [f"{tmp_path}/${{PLACE}}"] * 2
    assert "value-of-a-variable" not in "".join(answer.text for answer in listed)
    assert (listed[0].body[0]["state"], listed[1].body[0]["on"]) == ("paused", None)
    assert "no Dagster is here" in listed[1].body[0]["activity"]
    file.write_text(yaml.safe_dump(document(table__base_path=f"/${{file:{secret}}}")))
    (row,) = api.ask("GET", "/pipelines").body
    assert "takes no secret" in row["problems"][0]["text"]
    file.write_text(yaml.safe_dump(document(source__topics=["t ${HUDI_INGEST_TOKEN}"])))
    answers += [
        api.ask("GET", path) for path in ("/pipelines", "/status", "/pipelines/orders", "/pipelines/orders/plan")
    ]
    # A variable that is allowed, in a place where it does not belong.
    answers.append(api.ask("POST", "/validate", yaml.safe_dump(document(source__format="${KAFKA_PASSWORD}"))))
    assert "found '****'" in answers[-1].body["problems"][0]["text"]
    assert SECRET not in "".join(answer.text for answer in answers)


def test_code_comes_over_rest_only_if_it_is_allowed(api: RestApi) -> None:
    function = "subprocess:call"
    login = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth": {"token_function": function}}
    step = {"python": {"function": function, "schema": "id string"}}
    for place, changed in {
        "source.format": document(source__format=function),
        "source.key.format": document(source__key={"format": function, "schema": "id string"}),
        "source.security.oauth.token_function": document(source__security=login),
        "transforms[0].python.function": document(transforms=[step]),
    }.items():
        text = yaml.safe_dump(changed, sort_keys=False)
        for method, path in (("POST", "/pipelines"), ("POST", "/validate")):
            (problem,) = api.ask(method, path, text).body["problems"]
            assert (problem["place"], "--allow-code subprocess:call" in problem["text"]) == (place, True)
    assert files(api) == {}
    assert api.ask("POST", "/pipelines", TEXT).status == 201
    replaced = api.ask("PUT", "/pipelines/orders", yaml.safe_dump(document(source__format=function)), If_Match="*")
    assert (replaced.status, files(api)) == (422, {"orders.yaml": TEXT})
    allowed = api.ask("POST", "/validate?name=orders", yaml.safe_dump(document(source__format="allowed_package:Some")))
    assert "importing allowed_package failed" in allowed.body["problems"][0]["text"]


def test_who_may_only_read_changes_nothing(api: RestApi) -> None:
    reader = replace(api, token=READ_TOKEN)
    assert reader.ask("POST", "/validate", TEXT).body["valid"] is True
    assert [reader.ask("GET", path).status for path in ("/pipelines", "/status")] == [200, 200]
    answer = reader.ask("POST", "/pipelines", TEXT)
    assert (answer.status, answer.body["title"], files(api)) == (403, "Read-only token", {})
    assert replace(api, token="none").ask("GET", "/pipelines").status == 401


def test_a_file_for_many_topics_is_one_file_of_several_pipelines(api: RestApi) -> None:
    text = yaml.safe_dump(
        document(name="shop_{topic}", source__topics=["orders", "refunds"], table__base_path="/data/{topic}"),
        sort_keys=False,
    )
    created = api.ask("POST", "/pipelines", text)
    assert (created.status, list(files(api))) == (201, ["shop.yaml"])
    assert [row["name"] for row in api.ask("GET", "/pipelines").body] == ["shop_orders", "shop_refunds"]
    for name in ("shop", "shop_orders", "shop_%7Btopic%7D"):
        read = api.ask("GET", f"/pipelines/{name}")
        assert (read.body["name"], read.body["text"]) == ("shop_{topic}", text)
    etag = created.headers["etag"]
    assert api.ask("DELETE", "/pipelines/shop_orders", If_Match=etag).status == 404, "not all for one"
    assert api.ask("PUT", "/pipelines/shop", f"# more\n{text}", If_Match=etag).status == 200
    assert api.ask("DELETE", created.headers["location"].removeprefix("/api/v1"), If_Match="*").status == 204
    waiting = text.replace("topics:\n  - orders\n  - refunds\n", "topics_pattern: shop-.+\n")
    assert api.ask("POST", "/pipelines", waiting).status == 201
    assert [row["state"] for row in api.ask("GET", "/pipelines").body] == ["waiting"]


def test_a_file_that_cannot_be_loaded_is_listed_and_can_be_mended(api: RestApi) -> None:
    api.home.pipelines.joinpath("broken.yaml").write_text("a: [")
    (listed,) = api.ask("GET", "/pipelines").body
    assert (listed["name"], listed["file"], listed["state"]) == (None, "broken.yaml", "broken")
    assert listed["problems"]
    assert api.ask("GET", "/pipelines/broken.yaml").body["text"] is None
    assert api.ask("PUT", "/pipelines/broken.yaml", TEXT, If_Match="*").status == 200
    assert api.ask("GET", "/pipelines").body[0]["state"] == "on"


def test_a_folder_that_cannot_be_written_says_so(api: RestApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*arguments: object, **options: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr("hudi_ingest.operations.pipeline_files.tempfile.mkstemp", read_only)
    answer = api.ask("POST", "/pipelines", TEXT)
    assert answer.status == 409
    assert "Read-only file system. The pipelines folder is read-only for the server" in answer.body["detail"]
    monkeypatch.undo()
    target = api.home.pipelines.parent / "elsewhere"
    target.write_text(TEXT)
    (api.home.pipelines / "orders.yaml").symlink_to(target)
    linked = api.ask("PUT", "/pipelines/orders", TEXT.replace("why", "how"), If_Match="*")
    assert (linked.status, target.read_text()) == (409, TEXT)
    assert "symbolic link" in linked.body["detail"]


CERTIFICATE = "/etc/shadow"
OAUTH = {"token_url": "http://h/t", "client_id": "c", "client_secret": "s"}
LOGIN = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
REGISTRY = {"url": "http://h:1"}
PATHS = {
    "source.security.ca_file": document(source__security={"protocol": "SSL", "ca_file": CERTIFICATE}),
    "source.security.certificate_file": document(source__security={"protocol": "SSL", "certificate_file": CERTIFICATE}),
    "source.security.key_file": document(source__security={"protocol": "SSL", "key_file": CERTIFICATE}),
    "source.security.oauth.ca_file": document(source__security={**LOGIN, "oauth": {**OAUTH, "ca_file": CERTIFICATE}}),
    "source.schema_registry.ca_file": document(source__schema_registry={**REGISTRY, "ca_file": CERTIFICATE}),
    "source.schema_registry.key_file": document(source__schema_registry={**REGISTRY, "key_file": CERTIFICATE}),
    "source.avro.schema_files[0]": document(source__avro={"schema_files": [CERTIFICATE]}),
    "source.protobuf.descriptor_file": document(source__protobuf={"descriptor_file": CERTIFICATE}),
    "source.key.protobuf.descriptor_file": document(source__key={"protobuf": {"descriptor_file": CERTIFICATE}}),
    "source.kafka.ssl.keystore.location": document(source__kafka={"ssl.keystore.location": CERTIFICATE}),
    "source.kafka.ssl.crl.location": document(source__kafka={"ssl.crl.location": "${KAFKA_PASSWORD}"}),
    "source.kafka.sasl.kerberos.keytab": document(source__kafka={"sasl.kerberos.keytab": CERTIFICATE}),
    "table.schema_file": document(table__schema_file="../../../../../../../../../etc/shadow"),
    "table.take_over.spark_checkpoint": document(table__take_over={"spark_checkpoint": "file:///etc/shadow"}),
    "table.hudi.hoodie.memory.spillable.map.path": document(
        table__hudi={"hoodie.memory.spillable.map.path": CERTIFICATE}
    ),
    "tables.orders.schema_file": document(tables={"orders": {"schema_file": CERTIFICATE}}),
    "route.tables.a.schema_file": document(route={"field": "f", "tables": {"a": {"schema_file": CERTIFICATE}}}),
    "route.tables.b.hudi.hoodie.filesystem.view.spillable.dir": document(
        route={"field": "f", "tables": {"b": {"hudi": {"hoodie.filesystem.view.spillable.dir": CERTIFICATE}}}}
    ),
}


@pytest.mark.parametrize("place", PATHS)
def test_a_path_comes_over_rest_only_from_where_files_are_allowed(
    api: RestApi, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CERTIFICATE)
    text = yaml.safe_dump(PATHS[place], sort_keys=False)
    for method, path in (("POST", "/pipelines"), ("POST", "/validate")):
        (problem,) = api.ask(method, path, text).body["problems"]
        assert problem["place"] == place
        assert f"{CERTIFICATE} may not be named over REST" in problem["text"]
        assert f"--allow-reference file:{CERTIFICATE}" in problem["text"]
    assert files(api) == {}


def test_each_setting_of_the_model_that_is_a_path_is_tried_above() -> None:
    tried = {place.removesuffix("[0]").rpartition(".")[2] for place in PATHS}
    libraries = {name.rpartition(".")[2] for name in kafka_client.FILES | hudi_options.FILES}
    assert tried == path_keys(Pipeline) | libraries


def test_paths_below_what_is_allowed_are_taken_and_links_out_of_it_are_not(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "out.avsc").symlink_to("/etc/shadow")
    allowed = Allowed((f"file:{tmp_path}/schemas/*",))

    def found(path: str) -> tuple[str, ...]:
        return allowed.problems(yaml.safe_dump(document(table__schema=None, table__schema_file=path)), tmp_path)

    assert found("schemas/orders.avsc") == found(f"{tmp_path}/schemas/{{topic}}.avsc") == ()
    for outside in ("orders.avsc", "schemas/../orders.avsc", "schemas/out.avsc", "/etc/shadow"):
        assert "may not be named over REST" in "".join(found(outside)), outside
    for unknown in ("schemas/{route}", "{route}"):
        assert "a path is written out" in "".join(found(unknown)), unknown
    relative = document(table__hudi={"hoodie.memory.spillable.map.path": "schemas/x"})
    assert "begins with /" in "".join(allowed.problems(yaml.safe_dump(relative), tmp_path))
    vault = document(source__kafka={"ssl.crl.location": "${vault:x}"})
    assert "without a vault" in "".join(Allowed(("vault:x", "file:*")).problems(yaml.safe_dump(vault), tmp_path))


def test_a_client_writes_what_it_sends_to_the_log_only_if_a_person_says_so(api: RestApi) -> None:
    for name in kafka_client.ONLY_IN_FILES:
        (problem,) = api.ask("POST", "/pipelines", yaml.safe_dump(document(source__kafka={name: "7"}))).body["problems"]
        assert (problem["place"], "over REST" in problem["text"]) == (f"source.kafka.{name}", True)


@pytest.mark.parametrize(
    ("kafka", "hudi"),
    [
        ({"sasl.oauthbearer.assertion.file": "/etc/shadow"}, {}),
        ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, {}),
        ({}, {"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "JMX"}),
        ({}, {"hoodie.write.commit.callback.http.url": "http://h"}),
    ],
)
def test_no_file_and_no_port_of_the_server_is_opened_to_others(
    api: RestApi, kafka: dict[str, str], hudi: dict[str, str]
) -> None:
    text = yaml.safe_dump(document(source__kafka=kafka, table__hudi=hudi))
    answer = api.ask("POST", "/pipelines", text)
    assert (answer.status, files(api)) == (422, {})
    assert all("cannot be set here" in problem["text"] for problem in answer.body["problems"])


LARGEST = 100_000
ONCE = yaml.safe_dump(document(), sort_keys=False)


@pytest.mark.parametrize(
    "text",
    [
        ONCE + "".join(f"a{number}: 1\n" for number in range(3_000)),
        ONCE + f"x: [{', '.join(['${A}'] * 3_000)}]\n",
        ONCE.replace("source:\n", f"source:\n  kafka: {{{', '.join(f'a{n}: 1' for n in range(3_000))}}}\n"),
        ONCE.replace("table:\n", f"table:\n  hudi: {{{', '.join(f'hoodie.a{n}: 1' for n in range(1_500))}}}\n"),
        ONCE + f"source: {{kafka: {{{', '.join(f'a{n}.location: /x' for n in range(1_500))}}}}}\n",
    ],
    ids=["keys", "references", "properties", "options", "twice"],
)
def test_validate_of_a_file_that_is_wrong_throughout_ends_soon_with_few_problems(api: RestApi, text: str) -> None:
    before = time.process_time()
    answer = replace(api, token=READ_TOKEN).ask("POST", "/validate", text)
    assert answer.status == 200
    assert 1 <= len(answer.body["problems"]) <= 101
    # A second on a slow machine, and thrice as much with the largest file that is taken.
    assert time.process_time() - before < 10


def test_no_more_problems_are_looked_for_than_are_shown(tmp_path: Path) -> None:
    many = document(source__avro={"schema_files": ["/etc/shadow"] * 500})
    found = Allowed().problems(yaml.safe_dump(many), tmp_path)
    assert (len(found), found[-1]) == (101, "perhaps more; correct these 100 first")


def test_a_file_that_no_pipeline_needs_is_not_read(api: RestApi) -> None:
    text = ONCE + "# " + "x" * LARGEST
    for method, path in (("POST", "/validate"), ("POST", "/pipelines")):
        answer = api.ask(method, path, text)
        assert (answer.status, answer.body["title"]) == (413, "Pipeline file too large")
