"""Counts a table's rows as a reader that knows only the catalog, in a Spark of its own.

`python -m hudi_ingest.local.catalog_count TABLE SETTINGS COUNT`: SETTINGS is a JSON file of Spark settings, COUNT the file that
gets the number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from hudi_ingest.home.folder import Home, write_private
from hudi_ingest.local.cluster_stack import Platform, ingest_environment, s3a_settings
from hudi_ingest.local.processes import start, stop, wait_until
from hudi_ingest.local.progress import Report, elapsed
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.jars import s3_jars, spark_jars
from hudi_ingest.spark.session import own_session

COUNT_SECONDS = 240
_MASTER = "local[2]"
_MEMORY = "1g"


def count_rows(table: str, platform: Platform, report: Report) -> int:
    """Return what `select count(*)` says of the catalog's table. Raises EnvironmentProblem if there is no answer in time."""
    home, store = platform.home, platform.store
    settings, count = home.root / "catalog-count.json", home.root / "catalog-count.txt"
    write_private(settings, json.dumps(_spark_settings(platform, report)))
    # In the environment, because Spark shows settings in the arguments of its JVM.
    login = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
    command = [sys.executable, "-m", "hudi_ingest.local.catalog_count", table, str(settings), str(count)]
    environment = {**ingest_environment(home), **login}
    record = start("catalog-count", command, log=home.logs / "catalog-count.log", env=environment, cwd=home.root)
    try:
        with elapsed(report, f"counting the rows of {table}"):
            wait_until(
                count.exists,
                what=f"Spark has counted the rows of {table}",
                timeout_seconds=COUNT_SECONDS,
                records_to_watch=[record],
            )
    finally:
        stop([record])
    return int(count.read_text())


def _spark_settings(platform: Platform, report: Report) -> Mapping[str, str]:
    jars = [*spark_jars(report), *s3_jars(report)]
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": platform.metastore,
        "spark.sql.warehouse.dir": str(platform.home.root / "warehouse"),
        "spark.jars": ",".join(map(str, jars)),
        # Most of its time goes into loading classes, for a single statement.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **{f"spark.hadoop.{key}": value for key, value in s3a_settings(platform.store).items()},
    }


def main(table: str, settings: str, count: str) -> None:
    more: Mapping[str, str] = json.loads(Path(settings).read_text())
    session = own_session(EngineSettings(master=_MASTER, driver_memory=_MEMORY), more, Home.from_environment().spark)
    rows = session.sql(f"select count(*) from {table}").collect()[0][0]
    write_private(Path(count), str(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
