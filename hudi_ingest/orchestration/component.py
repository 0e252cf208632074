"""The Dagster component: a pipeline in a `dg` project, in a few lines of its defs.yaml.

    type: hudi_ingest.KafkaToHudi
    attributes:
      pipeline_file: orders.yaml

Instead of `pipeline_file`, the attributes may be the keys of a pipeline file themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from dagster import Component, ComponentLoadContext, Definitions
from dagster.components.component.component import ComponentTypeSpec
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions
from hudi_ingest.orchestration.topic_assets import topic_assets, topics_by_pipeline
from hudi_ingest.pipeline.describe import keys
from hudi_ingest.pipeline.file import load_pipeline, pipeline_from
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.decoding import format_problems

_FILE = "pipeline_file"


class _Attributes(BaseModel):
    """The attributes that `dg` knows. Their values are validated like those of a pipeline file, with the same messages."""

    model_config = ConfigDict(extra="forbid")

    pipeline_file: str | None = Field(
        default=None,
        description="Path of a pipeline file, relative to the folder of defs.yaml; no other key may be set with it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_or_the_other(cls, value: object) -> object:
        if isinstance(value, Mapping) and value.get(_FILE) is not None and len(value) > 1:
            others = ", ".join(key for key in value if key != _FILE)
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

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

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
        settings = context.resolution_context.resolve_value(attributes_set)
        folder = context.path if context.path.is_dir() else context.path.parent
        file = settings.get(_FILE)
        where = folder / ("defs.yaml" if file is None else file)
        pipeline = pipeline_from(settings, folder, str(where)) if file is None else load_pipeline(where)
        if problems := format_problems(pipeline):
            raise ConfigError(str(where), problems)
        return cls(pipeline)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        pipelines = [component.pipeline for component in context.component_tree.get_all_components(KafkaToHudi)]
        topics = topics_by_pipeline(pipelines or [self.pipeline])
        return pipeline_definitions(self.pipeline, topic_assets(self.pipeline, topics[self.pipeline.name]))


_ATTRIBUTES = _attributes()
