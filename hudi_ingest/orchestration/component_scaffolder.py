"""The defs.yaml that `dg scaffold defs hudi_ingest.KafkaToHudi` writes, with a pipeline of one topic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from pydantic import BaseModel, Field


class PipelineParams(BaseModel):
    """The parameters of the command, each an option like `--bootstrap-servers`."""

    topic: str = Field(description="Topic to ingest.")
    base_path: str = Field(description="Folder of the table: an absolute path, or s3a://bucket/path.")
    bootstrap_servers: str = Field(default="${KAFKA_BOOTSTRAP_SERVERS}", description="Kafka's brokers.")
    format: str = Field(default="json", description="Format of the records' values.")
    schema_registry: str | None = Field(default=None, description="URL of the registry that has the columns.")
    columns: str | None = Field(default=None, description="Columns of the table in Spark DDL; otherwise inferred.")
    key: Sequence[str] = Field(default=(), description="Columns of the key, if the table keeps one row for each.")


class KafkaToHudiScaffolder(Scaffolder[PipelineParams]):
    """Writes the component's defs.yaml. The pipeline has the name of its folder."""

    @classmethod
    def get_scaffold_params(cls) -> type[PipelineParams]:
        return PipelineParams

    def scaffold(self, request: ScaffoldRequest[PipelineParams]) -> None:
        scaffold_component(request, pipeline_of(request.target_path.name, request.params))


def pipeline_of(name: str, params: PipelineParams) -> dict[str, Any]:
    """Return the pipeline, with no key that has its default. `name`: in a form that folders may have."""
    columns = params.columns or (None if params.schema_registry else "infer")
    return {
        "name": re.sub(r"\W", "_", name, flags=re.ASCII),
        "source": {
            "bootstrap_servers": params.bootstrap_servers,
            "topics": [params.topic],
            "format": params.format,
            **({"schema_registry": {"url": params.schema_registry}} if params.schema_registry else {}),
        },
        "table": {
            "base_path": params.base_path,
            **({"schema": columns} if columns else {}),
            **({"mode": "upsert", "key": [*params.key]} if params.key else {}),
        },
    }
