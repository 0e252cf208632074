"""A Spark SQL session that knows a Hive metastore and nothing else, in a process of its own: `python -m … THRIFT_URI HOME`.

Reads a statement a line from stdin, and answers with its rows as a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.session import own_session

_PARTITIONS = "metastore partitions "


class CatalogReader:
    """That process."""

    def __init__(self, uri: str, home: Path) -> None:
        command = [sys.executable, "-m", __name__, uri, str(home)]
        log = (home / "reader.log").open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()

    def rows(self, statement: str) -> list[list[Any]]:
        """The rows of one statement. Raises AssertionError with Spark's own words."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, list), answer
        return answer

    def table(self, table: str, columns: str = "count(*)", where: str = "true") -> list[list[Any]]:
        """Some columns of a table, as a session that has just begun would read them."""
        self.rows(f"refresh table {table}")
        return sorted(self.rows(f"select {columns} from {table} where {where}"), key=str)

    def partitions(self, table: str) -> list[str]:
        """The names of the metastore's own partitions; `show partitions` would list the table's folders."""
        return sorted(row[0] for row in self.rows(f"{_PARTITIONS}{table}"))

    def property(self, table: str, key: str) -> str:
        return str(self.rows(f"show tblproperties {table}('{key}')")[0][1])

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


def _partitions(session: SparkSession, statement: str) -> list[list[Any]]:
    database, _, table = statement.strip().removeprefix(_PARTITIONS).partition(".")
    if not statement.startswith(_PARTITIONS):
        return []
    jvm: Any = session._jvm
    catalog: Any = session._jsparkSession.sharedState().externalCatalog()
    names = catalog.listPartitionNames(database, table, jvm.scala.Option.empty())
    return [[names.apply(index)] for index in range(names.size())]


def main(uri: str, home: str) -> None:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    session = own_session(EngineSettings(master="local[1]", driver_memory="512m"), settings)
    for statement in sys.stdin:
        try:
            rows = _partitions(session, statement) or [list(row) for row in session.sql(statement).collect()]
            answer = json.dumps(rows, default=str)
        except PySparkException as error:
            answer = json.dumps({"error": str(error)[:2000]})
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
