"""Writes docs/configuration.md from the models of pipeline files, engine.yaml, housekeeping.yaml and alerts.yaml: `python -m hudi_ingest_tests.support.configuration_page`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from hudi_ingest.pipeline.code_location import AlertSettings, HousekeepingSettings
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.pipeline.hudi_options import ALLOWED, REASONS
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import allowed, default, keys, nested_model, purposes
from hudi_ingest.records.schema.avro import AVRO_TYPES
from hudi_ingest.records.schema.columns import DDL_TYPES

_ROOTS: Sequence[tuple[type[BaseModel], str]] = (
    (Pipeline, ""),
    (EngineSettings, "engine.yaml"),
    (HousekeepingSettings, "housekeeping.yaml"),
    (AlertSettings, "alerts.yaml"),
)
"""Each settings file's model, and the file's name on the page."""
TARGET = Path(__file__).parent.parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
# Pipeline files

<!-- Written by `python -m hudi_ingest_tests.support.configuration_page` from hudi_ingest/pipeline/pipeline.py. Change that, not this file. -->

Every setting of a pipeline file. For anyone who writes one.

[Documentation](README.md) · [Glossary](glossary.md)

A pipeline is one YAML file in the pipelines folder (`HUDI_INGEST_PIPELINES`, by default `./pipelines`).
`hudi-ingest validate FILE…` reports all problems of a file at once, each with its location. This is a complete file;
everything else has a default:

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

No two pipelines may have the same name or the same table, and no table may be inside another's folder.

## Values from the environment and from files

Any text value may contain `${NAME}`, which must be set, or `${NAME:-default}`, which uses the default if NAME is not set
or is empty. `${file:PATH}` is replaced by the contents of a file without the final newline, which is how Docker and
Kubernetes provide secrets; the path is relative to the pipeline file. `${SCHEME:REF}` asks a vault, see
[authentication.md](authentication.md#secrets). `$${` is a literal `${`. Inside `[ ]` and `{ }`,
YAML requires quotes around such a value: `["${TOPIC}"]`. Provide passwords in one of these ways,
but not in `name`, topics or `table.base_path`, which everybody sees.

## YAML pitfalls

Unquoted `yes`, `no`, `on`, `off`, `true` and `false` are booleans, and unquoted digits are numbers; quote them if you mean
text. Duplicate keys, unknown keys, anchors (`&`), aliases (`*`), merge keys (`<<`) and tags (`!`) are refused.
"""

_TYPES = f"""\
## Column types

`table.schema` uses Spark's column syntax: `name type` or `name: type`, optionally with `NOT NULL` and `COMMENT '…'`
(comments are not kept). Put names that are not plain words in backticks. Types:
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

`table.schema_file` is an Avro record. It may contain:
{AVRO_TYPES}.
A field that is not a union with null is required. With format avro, a record
whose own schema lacks the field is read by the field's aliases, or gets its default. Docs describe the columns in Dagster.

Refused, because the table could not hold them as declared: `tinyint`, `smallint` (Hudi only has `int`), `char(n)`, maps
with keys other than text, unions of more than null and one type, names that
differ in case only, and, unless a transform renames them, names with anything but letters, digits and `_`, and names that
begin with `_hoodie_`. Names that begin with `_kafka_` are always refused.
"""

_HUDI = f"""\
## Options that `table.hudi` takes

{", ".join(f"`{name}`" for name in sorted(ALLOWED))}.

## Options that `table.hudi` does not take

All others. `…` stands for all names that begin so, except those in another row. Names that end with `.class` or `.classes` are refused,
too: every driver would load such a class.

| Option | Why, or the setting that takes its place |
|---|---|
"""


_ENGINE = """\
# The Spark engine

The file engine.yaml, beside the pipelines folder or at `HUDI_INGEST_ENGINE`, says how Spark is started: by
`hudi-ingest engine`, and by processes that find no engine. It is optional. The environment variables
`HUDI_INGEST_ENGINE_MASTER`, `HUDI_INGEST_ENGINE_DRIVER_HOST` and so on, one for each key but `spark_conf`, override it.
Values from the environment and from files work as in pipeline files. [Clusters](cluster.md) has examples.
"""


_HOUSEKEEPING = """\
# Housekeeping

The file housekeeping.yaml, beside engine.yaml or at `HUDI_INGEST_HOUSEKEEPING`, says how much history Dagster and the ledger
keep. It is optional. The environment variables `HUDI_INGEST_HOUSEKEEPING_DAYS` and so on, one for each key, override it.
[Operations](operations.md#housekeeping) says what is deleted and what never is.
"""

_ALERTS = """\
# Alerts

The file alerts.yaml, beside engine.yaml or at `HUDI_INGEST_ALERTS`, says who is told of failing checks. Without it, nobody
is. It is read at each tick of the sensor `hudi_ingest_alerts`, which exists once the code location has been loaded with
the file. Values from the environment and from files work as in pipeline files; `hudi-ingest test-alerts` sends a test.
[Operations](operations.md#alerts) has an example.
"""


def render() -> str:
    """Render the whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            *_sections(Pipeline, ""),
            _TYPES,
            _HUDI + "".join(f"| {_names(names)} | {reason} |\n" for reason, names in REASONS.items()),
            _ENGINE,
            *_sections(EngineSettings, "engine.yaml"),
            _HOUSEKEEPING,
            *_sections(HousekeepingSettings, "housekeeping.yaml"),
            _ALERTS,
            *_sections(AlertSettings, "alerts.yaml"),
        ]
    )


def settings() -> Iterator[str]:
    """The keys of all rows, each with those above it: `source.topics`, and of other files `engine.yaml.master`."""
    for model, place in _ROOTS:
        yield from _keys(model, place)


def _keys(model: type[BaseModel], place: str) -> Iterator[str]:
    for key, info in keys(model).items():
        whole = f"{place}.{key}".lstrip(".")
        yield whole
        below = nested_model(info)
        if below is not None:
            yield from _keys(below, whole)


def settings_named_by_no_test() -> list[str]:
    """The settings that no test gives a value, by their places."""
    folder = Path(__file__).parent.parent
    texts = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")) if path != Path(__file__)
    )
    words = re.findall(r"""["'\s{(,]([a-z0-9_]+)["']?\s*[:=]""", texts)
    given = {part for word in set(words) for part in word.split("__")}
    return [each for each in settings() if each.rpartition(".")[2] not in given]


def _models(model: type[BaseModel], place: str) -> dict[type[BaseModel], list[str]]:
    """The model and those below it, each with all its places."""
    found: dict[type[BaseModel], list[str]] = {model: [place]}
    for key, info in keys(model).items():
        below = nested_model(info)
        for each, places in _models(below, f"{place}.{key}".lstrip(".")).items() if below else ():
            found.setdefault(each, []).extend(places)
    return found


def _sections(root: type[BaseModel], name: str) -> Iterator[str]:
    for model, places in _models(root, name).items():
        yield _section(model, places)


def _section(model: type[BaseModel], places: Sequence[str]) -> str:
    title = " and ".join(f"`{place}`" for place in places) if places[0] else "The top level"
    rows = [
        f"| `{key}` | {_cell(allowed(info))} | {_cell(_default(info_default))} | {_cell(purposes(model)[key])} |"
        for key, info in keys(model).items()
        for info_default in [default(info)]
    ]
    return (
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


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}…`" if name.endswith(".") else f"`{name}`" for name in names)


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
