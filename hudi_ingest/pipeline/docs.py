"""Writes docs/configuration.md from the models of pipeline files: `python -m hudi_ingest.pipeline.docs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from hudi_ingest.pipeline.pipeline import Pipeline, allowed, default, keys, nested_model
from hudi_ingest.records.schema.columns import AVRO_TYPES, DDL_TYPES

TARGET = Path(__file__).parent.parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
# Pipeline files

<!-- Written by `python -m hudi_ingest.pipeline.docs` from hudi_ingest/pipeline/pipeline.py. Change that, not this file. -->

A pipeline is one YAML file in the folder of pipeline files (`HUDI_INGEST_PIPELINES`, `./pipelines` when not set).
`hudi-ingest validate FILE…` reports all problems of a file at once, each with its place. This is a whole file; everything
else has a default:

```yaml
name: orders
source:
  bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS:-127.0.0.1:9092}
  topics: [orders]
table:
  base_path: /data/orders
  schema: |
    id string NOT NULL, ts long, amount double, dt string
  partition_by: [dt]
```

No two pipelines may have one name or one table, and no table may be inside another's folder.

## Values from the environment and from files

Any text value may hold `${NAME}`, which must be set, or `${NAME:-default}`, which takes the default when NAME is not set or
is empty. `${file:PATH}` stands for what is in a file, without the newline at its end, as Docker and Kubernetes hand out
secrets; the path is relative to the pipeline file. `$${` stands for a plain `${`. Inside `[ ]` and `{ }` YAML wants such a
value in quotes: `["${TOPIC}"]`. Give passwords in one of these ways.

## What YAML reads differently

Unquoted `yes`, `no`, `on`, `off`, `true` and `false` are booleans and unquoted digits are numbers; put them in quotes where
text is meant. Keys that are there twice, unknown keys, anchors (`&`), aliases (`*`), merge keys (`<<`) and tags (`!`) are
refused.
"""

_TYPES = f"""\
## Column types

`table.schema` is what Spark takes for columns: `name type` or `name: type`, with `NOT NULL` and `COMMENT '…'` where wanted
(comments are not kept), names in backticks where they are no plain words. Types:
`{DDL_TYPES}`.

| Spark DDL | Avro, in `table.schema_file` | Stored as |
|---|---|---|
| `boolean` | `boolean` | boolean |
| `int`, `integer` | `int` | 32-bit integer |
| `long`, `bigint` | `long` | 64-bit integer |
| `float`, `real` | `float` | 32-bit float |
| `double` | `double` | 64-bit float |
| `decimal(p,s)` | `bytes` or `fixed` with `decimal` | decimal, p up to 38 |
| `string`, `varchar(n)` (the length is not checked) | `string`, `enum` | UTF-8 text |
| `binary` | `bytes`, `fixed` | bytes |
| `date` | `int` with `date` | days |
| `timestamp` | `long` with `timestamp-millis` or `timestamp-micros` | microseconds, UTC |
| `array<…>` | `array` | list |
| `map<string,…>` | `map` | map with text keys |
| `struct<…>` | `record` | struct |

`table.schema_file` is an Avro record. Allowed in it:
{AVRO_TYPES}.
A field that is not a union with null is required;
defaults, aliases and docs are read over.

Refused, because the table would not hold what was asked for: `tinyint`, `smallint` (Hudi has only `int`), `char(n)`, maps
with other keys than text, unions of more than null and one type, names other than letters, digits and `_`, names that
differ in case only, and names that begin with `_hoodie_` or `_kafka_`.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_sections(Pipeline, ""), _TYPES])


def _sections(model: type[BaseModel], place: str) -> Iterator[str]:
    title = f"`{place}`" if place else "The top level"
    rows = [
        f"| `{key}` | {_cell(allowed(info))} | {_cell(_default(info_default))} | {_cell(info.description or '')} |"
        for key, info in keys(model).items()
        for info_default in [default(info)]
    ]
    yield (
        "\n".join(
            [
                f"## {title}",
                "",
                inspect.getdoc(model) or "",
                "",
                "| Key | Value | Default | Meaning |",
                "|---|---|---|---|",
                *rows,
            ]
        )
        + "\n"
    )
    for key, info in keys(model).items():
        below = nested_model(info)
        if below is not None:
            yield from _sections(below, f"{place}.{key}".lstrip("."))


def _default(text: str | None) -> str:
    if text is None:
        return "required"
    return text if text.startswith(("none", "the ")) else f"`{text}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main() -> None:
    TARGET.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")


if __name__ == "__main__":
    main()
