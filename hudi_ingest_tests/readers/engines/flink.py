"""Flink, in a JVM of its own: Iceberg tables that a catalog of SQLite names. Hudi's bundles for Flink could not be had."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from hudi_ingest.spark.jars import pyspark_jars
from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.readers.environments import FLINK, ReaderFailed
from hudi_ingest_tests.readers.rows import Map

_OPEN = ("java.lang", "java.net", "java.nio", "java.util")
_ROW = "row "


def iceberg(catalog: Path, table: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of `default.<table>`. `catalog`: the SQLite file. Raises ReaderFailed."""
    hadoop = [jar for name in ("hadoop-client-*", "commons-logging-1*") for jar in pyspark_jars().glob(f"{name}.jar")]
    iceberg = [FLINK.folder / artifact.file_name for artifact in FLINK.artifacts]
    flink = FLINK.folder.glob("lib/python*/site-packages/pyflink/lib/*.jar")
    options = [option for name in _OPEN for option in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    command = [str(find_java()), "-Xmx1g", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", *options]
    command += ["-cp", ":".join(map(str, [*flink, *iceberg, *hadoop])), str(Path(__file__).with_name("Flink.java"))]
    found = subprocess.run(
        [*command, str(catalog), table], capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    if found.returncode:
        raise ReaderFailed(found.stderr[-2000:])
    printed = (line.removeprefix(_ROW) for line in found.stdout.splitlines() if line.startswith(_ROW))
    return [{name: _value(value) for name, value in json.loads(line).items()} for line in printed]


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"float": text}:
            return float(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case {"time": text}:
            return datetime.fromisoformat(text.replace("Z", "+00:00"))
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"map": pairs}:
            return Map((_value(key), _value(each)) for key, each in pairs)
    return {name: _value(each) for name, each in value.items()}
