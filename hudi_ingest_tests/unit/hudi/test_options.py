from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError, TableMismatch
from hudi_ingest.hudi.files.read_amplification import SMALL_PART
from hudi_ingest.hudi.options import (
    BY_LISTING,
    STATISTICS_PROPERTY,
    WITHOUT_CLEANING,
    begins_a_service,
    clustering_options,
    compaction_options,
    folder_options,
    key_generator,
    lock_place,
    renewable_ms,
    statistics_properties,
    table_properties,
    take_over_properties,
    write_options,
)
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, RECORD_PROPERTY
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.hudi_options import ALLOWED, FILES, option_problems, reason_against
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.hudi_option_names import kept_names

pytestmark = pytest.mark.fast


def make(folder: Path, base_path: str, lock: dict[str, str] | None = None, **more: Any) -> Pipeline:
    table = {"base_path": base_path, "schema": "id string", **({"lock": lock} if lock else {}), **more}
    source = {"bootstrap_servers": "b:9092", "topics": ["orders"]}
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump({"name": "orders", "source": source, "table": table}))
    return load_pipeline(path, {})


def test_p7_the_lock_is_in_the_tables_properties_and_in_our_clients_options(tmp_path: Path) -> None:
    here = {"zookeeper": "zk1:2181, zk2:2181", "path": "/a/locks"}
    for pipeline, provider in (
        (make(tmp_path, "/data/orders"), "InProcessLockProvider"),
        (make(tmp_path, "/data/orders", here), "ZookeeperBasedLockProvider"),
    ):
        properties = table_properties(pipeline, ())
        assert properties["hoodie.write.lock.provider"] == f"org.apache.hudi.client.transaction.lock.{provider}"
        options = write_options(pipeline, "files")
        assert {each for each in properties.items() if "lock" in each[0]} <= options.items()
    assert properties["hoodie.write.lock.zookeeper.url"] == "zk1:2181,zk2:2181"
    node = f"{properties['hoodie.write.lock.zookeeper.base_path']}/{properties['hoodie.write.lock.zookeeper.lock_key']}"
    assert lock_place(pipeline.table) == f"in ZooKeeper at zk1:2181,zk2:2181, node {node}"
    assert node.startswith("/a/locks/")


def test_p7_other_writers_leave_a_leased_instant_and_carry_the_checkpoint_on(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "/data/orders")
    properties = table_properties(pipeline, ())
    assert properties["hoodie.clean.failed.writes.policy"] == "LAZY"
    assert properties["hoodie.write.rolling.metadata.keys"] == pipeline.checkpoint_key
    beats = int(properties["hoodie.client.heartbeat.interval_in_ms"])
    lease = beats * int(properties["hoodie.client.heartbeat.tolerable.misses"])
    assert lease == 1000 * pipeline.transaction.timeout_seconds
    assert lease - renewable_ms(pipeline.transaction.timeout_seconds) == 5000
    assert renewable_ms(10) == 9000
    assert properties.items() - {(PIPELINE_PROPERTY, pipeline.name)} <= write_options(pipeline, "files").items()


def test_s11_whatever_we_set_is_refused_in_a_pipeline_file_with_the_remedy(tmp_path: Path) -> None:
    lock = {"zookeeper": "zk1:2181"}
    keyed = make(tmp_path, "/data/orders", lock, mode="upsert", key=["id"], cdc=True)
    append = make(tmp_path, "/data/orders", column_statistics=True)
    ours = {
        **WITHOUT_CLEANING,
        **BY_LISTING,
        **folder_options(2),
        **clustering_options(append.table, 4),
        **compaction_options(keyed.table, 5 << 20),
        **take_over_properties({}, parse_ddl("id string"), ["id"]),
        **write_options(append, "files,record_index,bloom_filters", "id", record_key="id"),
        **write_options(keyed, "files"),
        RECORD_PROPERTY: "",
    }
    assert [name for name in ours if name.startswith("hoodie.") and reason_against(name) is None] == []
    with pytest.raises(ConfigError) as raised:
        make(tmp_path, "/data/orders", hudi={**ours, "retain": 3})
    assert "table.hudi.hoodie.clean.commits.retained: cannot be set here: set `table.retain_commits` instead" in str(
        raised.value
    )
    assert "table.hudi.retain: not an option of Hudi; allowed: names that begin with `hoodie.`" in str(raised.value)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (
            "hoodie.metrics.on",
            "the engine would open ports to everybody, or send commits and metrics to any address; see docs/metrics.md, and `lineage` and "
            "`alerts` in the documentation",
        ),
        ("hoodie.table.cdc.supplemental.logging.mode", "set `table.cdc` instead"),
        ("hoodie.table.version", "hudi-ingest or Hudi sets it, for the table or for each write"),
        ("hoodie.write.lock.zookeeper.port", "set `table.lock` instead"),
        ("hoodie.memory.own.class", "it names a class that every driver would load"),
        ("hoodie.metadata.compact.max.delta.commits", None),
        ("hoodie.clustering.plan.strategy.sort.columns", None),
        ("hoodie.clean.parallelism", None),
    ],
)
def test_s11_the_longest_name_with_a_reason_decides(option: str, reason: str | None) -> None:
    assert reason_against(option) == reason


def test_s11_every_option_of_the_shipped_hudi_is_allowed_or_refused_by_name() -> None:
    names = kept_names()
    assert len(names) > 700
    assert names >= ALLOWED
    assert [name for name in sorted(names) if (name in ALLOWED) == (reason_against(name) is not None)] == []


@pytest.mark.parametrize(
    "option",
    [
        "hoodie.metrics.reporter.type",
        "hoodie.metrics.jmx.port",
        "hoodie.metrics.configs.properties",
        "hoodie.metrics.pushgateway.host",
        "hoodie.metrics.executor.enable",
        "hoodie.metadata.metrics.enable",
        "hoodie.write.commit.callback.on",
        "hoodie.write.commit.callback.http.url",
        "hoodie.rollback.instant.backup.dir",
        "hoodie.filesystem.operation.retry.exceptions",
    ],
)
def test_s11_no_option_opens_a_port_asks_an_address_or_loads_a_class(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=f"table.hudi.{option}: cannot be set here: "):
        make(tmp_path, "/data/orders", hudi={option: "x"})


def test_s11_an_allowed_option_that_sounds_like_more_than_a_number_is_a_known_path() -> None:
    sounds = (
        "path",
        "dir",
        "url",
        "host",
        "port",
        "class",
        "file",
        "properties",
        "provider",
        "uri",
        "address",
        "command",
        "on",
    )
    assert {name for name in ALLOWED if name.rpartition(".")[2] in sounds} == FILES


def test_s11_an_option_that_no_list_has_is_refused_with_the_closest(tmp_path: Path) -> None:
    (problem,) = dict(option_problems(["hoodie.clean.paralelism"])).items()
    assert problem[1].startswith(
        "not one of the options that hudi-ingest passes to Hudi; did you mean hoodie.clean.parallelism?"
    )
    assert len([*option_problems(f"hoodie.x{number}" for number in range(60_000))]) == 200


def test_s11_any_other_option_reaches_each_client_and_never_the_tables_properties(tmp_path: Path) -> None:
    options = {"hoodie.filesystem.operation.retry.enable": True, "hoodie.memory.merge.max.size": 1000}
    modes: list[dict[str, Any]] = [{}, {"mode": "upsert", "key": ["id"]}]
    for more in modes:
        pipeline = make(tmp_path, "/data/orders", hudi=options, **more)
        assert (
            write_options(pipeline, "files").items()
            >= {
                "hoodie.filesystem.operation.retry.enable": "true",
                "hoodie.memory.merge.max.size": "1000",
            }.items()
        )
        assert not options.keys() & table_properties(pipeline, ()).keys()


def test_r11_archival_keeps_enough_to_tell_whether_compaction_is_due(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "/data/orders", mode="upsert", key=["id"], compaction={"delta_commits": 40})
    options = write_options(pipeline, "files")
    assert options["hoodie.compact.inline.max.delta.commits"] == "40"
    planning = {**options, **compaction_options(pipeline.table, 5 << 20)}
    assert planning["hoodie.compact.inline.max.delta.commits"] == "0"
    assert planning["hoodie.compaction.target.io"] == "5"
    assert "hoodie.compact.inline.max.delta.commits" not in write_options(make(tmp_path, "/data/orders"), "files")


def test_r11_cleaning_never_retains_more_than_the_timeline(tmp_path: Path) -> None:
    for retained, least, most in ((1, 20, 30), (10, 20, 30), (11, 21, 31), (500, 510, 520)):
        path = tmp_path / "orders.yaml"
        table = {"base_path": "/data/orders", "schema": "id string", "retain_commits": retained}
        source = {"bootstrap_servers": "b:9092", "topics": ["orders"]}
        path.write_text(yaml.safe_dump({"name": "orders", "source": source, "table": table}))
        options = write_options(load_pipeline(path, {}), "files")
        kept = [options[f"hoodie.{key}"] for key in ("clean.commits.retained", "keep.min.commits", "keep.max.commits")]
        assert kept == [str(retained), str(least), str(most)]


@pytest.mark.parametrize(("commits", "begins"), [(None, 10), ("2", 2), ("1", 1), ("0", 1), ("50", 10), ("often", 10)])
def test_s11_begins_look_after_the_metadata_table_as_often_as_it_is_to_be_compacted(
    tmp_path: Path, commits: str | None, begins: int
) -> None:
    hudi = {} if commits is None else {"hoodie.metadata.compact.max.delta.commits": commits}
    assert begins_a_service(make(tmp_path, "/data/orders", hudi=hudi).table) == begins


def test_r11_clustering_takes_what_the_check_calls_small(tmp_path: Path) -> None:
    options = clustering_options(make(tmp_path, "/data/orders").table, 4)
    assert options["hoodie.clustering.plan.strategy.small.file.limit"] == str(128 * 1024 * 1024 // SMALL_PART)
    assert options["hoodie.clustering.plan.strategy.target.file.max.bytes"] == str(128 * 1024 * 1024)


def test_each_table_has_a_lock_of_its_own_however_its_path_is_written(tmp_path: Path) -> None:
    def place(base_path: str) -> str:
        return lock_place(make(tmp_path, base_path, {"zookeeper": "zk:2181"}).table)

    assert place("/data/orders") == place("file:///data/orders/")
    assert place("/data/orders") != place("/data/orders2")


def test_h4_what_folders_are_called_is_the_tables_for_ever(tmp_path: Path) -> None:
    hive = make(tmp_path, "/data/orders", partition_by=["id"])
    plain = make(tmp_path, "/data/orders", partition_by=["id"], hive_style=False)
    key = "hoodie.datasource.write.hive_style_partitioning"
    assert [write_options(each, "files")[key] for each in (hive, plain)] == ["true", "false"]
    there = {"hudi_ingest.pipeline": "orders", "hoodie.table.partition.fields": "id"}
    require_own_table(hive, {**there, key: "true"})
    require_own_table(plain, {**there, key: "false"})
    with pytest.raises(TableMismatch, match=r"names its folders column=value.*Set table\.hive_style to true"):
        require_own_table(plain, {**there, key: "true"})
    with pytest.raises(TableMismatch, match=r"names its folders by values alone.*Set table\.hive_style to false"):
        require_own_table(hive, {**there, key: "false"})
    # Without partitions there is nothing to call.
    whole = make(tmp_path, "/data/orders", hive_style=False)
    require_own_table(whole, {"hudi_ingest.pipeline": "orders", key: "true"})


def test_column_statistics_are_kept_where_they_are_or_are_wanted(tmp_path: Path) -> None:
    name = "hoodie.metadata.index.column.stats.enable"
    pipeline = make(tmp_path, "/data/orders")
    assert write_options(pipeline, "")[name] == "false"
    assert write_options(pipeline, "files,column_stats,partition_stats")[name] == "true"
    wanted = make(tmp_path, "/data/orders", column_statistics=True)
    assert write_options(wanted, "")[name] == write_options(wanted, "files")[name] == "true"


def _made_with(*names: str, partition_by: str = "dt") -> dict[str, str]:
    fields = [{"name": name, "type": "string"} for name in names]
    return {
        "hoodie.table.partition.fields": partition_by,
        "hoodie.table.create.schema": json.dumps({"type": "record", "name": "record", "fields": fields}),
    }


def _schema(ddl: str) -> TransactionSchema:
    text = spark_json(parse_ddl(ddl))
    return TransactionSchema("declared", text, text)


def test_columns_that_a_partitioned_table_was_not_made_with_have_no_statistics() -> None:
    made = _made_with("id", "s", "dt")
    assert statistics_properties(made, _schema("id string, s struct<x:int>, dt string")) == {}
    assert statistics_properties(made, _schema("id string, s struct<x:int>, dt string, more array<int>")) == {}
    found = statistics_properties(made, _schema("id string, s struct<x:int>, dt string, more int"))
    assert found == {STATISTICS_PROPERTY: "id,dt"}
    assert statistics_properties(_made_with("id", partition_by=""), _schema("id string, more int")) == {}
    wide = [f"c{number}" for number in range(40)]
    ddl = ", ".join(f"{name} int" for name in wide)
    assert statistics_properties(_made_with(*wide), _schema(f"{ddl}, more int")) == {}, (
        "Hudi takes the first 32 columns"
    )


def test_the_client_keeps_statistics_of_the_columns_that_the_table_names(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "/data/orders")
    assert STATISTICS_PROPERTY not in write_options(pipeline, "files")
    assert write_options(pipeline, "files", "id,dt")[STATISTICS_PROPERTY] == "id,dt"


def keyed(tmp_path: Path, **table: Any) -> Pipeline:
    return make(tmp_path, "/data/orders", **{"mode": "upsert", "key": ["id"], **table})


@pytest.mark.parametrize(
    ("key", "partition_by", "generator"),
    [
        (["id"], [], "NonpartitionedKeyGenerator"),
        (["id", "n"], [], "NonpartitionedKeyGenerator"),
        (["id"], ["dt"], "SimpleKeyGenerator"),
        (["id", "n"], ["dt"], "ComplexKeyGenerator"),
        (["id"], ["dt", "n"], "ComplexKeyGenerator"),
    ],
)
def test_other_writers_make_the_same_keys(
    tmp_path: Path, key: list[str], partition_by: list[str], generator: str
) -> None:
    table = keyed(tmp_path, key=key, partition_by=partition_by, schema="id string, n long, dt string").table
    assert key_generator(table, table.key_columns) == f"org.apache.hudi.keygen.{generator}"


def test_a_keyed_table_tells_every_writer_how_to_find_a_key(tmp_path: Path) -> None:
    properties = table_properties(keyed(tmp_path, buckets=16), ["id"])
    assert properties["hoodie.index.type"] == "BUCKET"
    assert properties["hoodie.bucket.index.num.buckets"] == "16"
    assert properties["hoodie.bucket.index.hash.field"] == "id"
    assert table_properties(make(tmp_path, "/data/orders"), ())["hoodie.index.type"] == "SIMPLE"


def test_what_decides_where_a_key_is_can_never_change(tmp_path: Path) -> None:
    pipeline = keyed(tmp_path)
    there = {
        **table_properties(pipeline, pipeline.table.key_columns),
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.ordering.fields": "_kafka_offset",
    }
    require_own_table(pipeline, there)
    with pytest.raises(
        TableMismatch, match=r"with `mode: upsert`, and pipeline orders says append.*Restore table\.mode"
    ):
        require_own_table(make(tmp_path, "/data/orders"), there)
    with pytest.raises(TableMismatch, match=r"with `mode: append`, and pipeline orders says upsert"):
        require_own_table(pipeline, {**there, "hoodie.table.type": "COPY_ON_WRITE"})
    with pytest.raises(
        TableMismatch, match=r"with table\.buckets 4, and pipeline orders says 8.*Restore table\.buckets"
    ):
        require_own_table(keyed(tmp_path, buckets=8), there)
    with pytest.raises(TableMismatch, match=r"with table\.ordering _kafka_offset, and pipeline orders says n"):
        require_own_table(keyed(tmp_path, ordering="n", schema="id string, n long"), there)
    with pytest.raises(TableMismatch, match=r"with table\.cdc false, and pipeline orders says true"):
        require_own_table(keyed(tmp_path, cdc=True), there)
    with pytest.raises(TableMismatch, match=r"with table\.key id, and pipeline orders says id,n"):
        require_own_table(keyed(tmp_path, key=["id", "n"], schema="id string, n long"), there)
