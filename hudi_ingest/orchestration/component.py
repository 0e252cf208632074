"""The Dagster component: a pipeline in a `dg` project, in a few lines of its defs.yaml.

    type: hudi_ingest.KafkaToHudi
    attributes:
      pipeline_file: orders.yaml

Instead of `pipeline_file`, the attributes may be the keys of a pipeline file themselves. `io_manager_key` may be set with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from dagster import Component, ComponentLoadContext, Definitions
from dagster.components.component.component import ComponentTypeSpec
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.orchestration.housekeeping_job import housekeeping_definitions
from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions
from hudi_ingest.orchestration.resources import IO_MANAGER
from hudi_ingest.orchestration.topic_assets import topic_assets, topics_by_pipeline
from hudi_ingest.pipeline.describe import keys
from hudi_ingest.pipeline.file import load_pipeline, pipeline_from
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.decoding import format_problems

_FILE = "pipeline_file"
_RESULTS = "io_manager_key"


class _Attributes(BaseModel):
    """The attributes that `dg` knows. Their values are validated like those of a pipeline file, with the same messages."""

    model_config = ConfigDict(extra="forbid")

    pipeline_file: str | None = Field(
        default=None,
        description="Path of a pipeline file, relative to the folder of defs.yaml; no key of a pipeline file may be set with it.",
    )
    io_manager_key: str = Field(
        default=IO_MANAGER,
        description="Resource through which a run's ops hand each other their results, small JSON values; for projects whose "
        "io_manager stores only tables.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_or_the_other(cls, value: object) -> object:
        if not isinstance(value, Mapping) or value.get(_FILE) is None:
            return value
        if others := ", ".join(key for key in value if key not in (_FILE, _RESULTS)):
            raise ValueError(f"pipeline_file cannot be combined with other keys; remove it, or remove {others}")
        return value


def _attributes() -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key, info in keys(Pipeline).items():
        # Below the top level `dg` accepts any value, because it may be a template like {{ env.TOPIC }}, which has no type yet.
        block = isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
        kind = Mapping[str, Any] if block else Any
        fields[key] = (kind | None, Field(default=None, description=info.description))
    return create_model("KafkaToHudiAttributes", __base__=_Attributes, **fields)


class KafkaToHudi(Component):
    """Ingest Kafka topics into one Apache Hudi table, exactly once: the table as an asset with its checks, the coordinator
    sensor, and the jobs of transactions, table services and sweeps."""

    def __init__(self, pipeline: Pipeline, io_manager_key: str = IO_MANAGER) -> None:
        self.pipeline = pipeline
        self.io_manager_key = io_manager_key

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        spec: dict[str, Any] = {"tags": ["kafka", "hudi", "spark"]}
        # Older Dagster versions do not have it.
        if "produces" in signature(ComponentTypeSpec).parameters:
            spec["produces"] = ["asset", "asset_check", "job", "sensor", "schedule"]
        return ComponentTypeSpec(**spec)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return _ATTRIBUTES

    @classmethod
    def load(cls, attributes: BaseModel | None, context: ComponentLoadContext) -> KafkaToHudi:
        """Load the pipeline. Raises ConfigError with all problems."""
        attributes_set = attributes.model_dump(exclude_unset=True) if attributes is not None else {}
        settings = dict(context.resolution_context.resolve_value(attributes_set))
        io_manager_key = settings.pop(_RESULTS, IO_MANAGER)
        folder = context.path if context.path.is_dir() else context.path.parent
        file = settings.get(_FILE)
        where = folder / ("defs.yaml" if file is None else file)
        pipeline = pipeline_from(settings, folder, str(where)) if file is None else load_pipeline(where)
        if problems := format_problems(pipeline):
            raise ConfigError(str(where), problems)
        return cls(pipeline, io_manager_key)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        pipelines = [component.pipeline for component in context.component_tree.get_all_components(KafkaToHudi)]
        topics = topics_by_pipeline(pipelines or [self.pipeline])
        specs = topic_assets(self.pipeline, topics[self.pipeline.name])
        definitions = pipeline_definitions(self.pipeline, specs, io_manager_key=self.io_manager_key)
        # Once for the whole project: the job finds the pipelines of all components.
        first = not pipelines or pipelines[0].name == self.pipeline.name
        return Definitions.merge(definitions, housekeeping_definitions()) if first else definitions


_ATTRIBUTES = _attributes()
