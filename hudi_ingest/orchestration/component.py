"""The Dagster component: a pipeline in a `dg` project, or those of a template, in a few lines of its defs.yaml.

    type: hudi_ingest.KafkaToHudi
    attributes:
      pipeline_file: orders.yaml

Instead of `pipeline_file`, the attributes may be the keys of a pipeline file themselves. `io_manager_key` may be set with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from dagster import Component, ComponentLoadContext, Definitions
from dagster.components.component.component import ComponentTypeSpec
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.orchestration.code_location import definitions_of, shared_definitions
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, RESOURCES
from hudi_ingest.orchestration.pipeline_definitions import maintenance_of
from hudi_ingest.pipeline.file import LoadedFile, pipeline_from
from hudi_ingest.pipeline.folder import LoadedFolder, conflicts, load_file_alone
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import keys
from hudi_ingest.transaction.columns.decoding import format_problems

_FILE = "pipeline_file"
_RESULTS = "io_manager_key"
_SUFFIX = "_components"


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
    """Ingest Kafka topics into Apache Hudi tables, exactly once: each table as an asset with its checks, and the coordinator sensor.
    Components of a project share maintenance jobs, alerts, overview and housekeeping."""

    def __init__(self, content: LoadedFolder, where: Path, io_manager_key: str = IO_MANAGER) -> None:
        """`content`: one pipeline, or those of a template; `where`: the file that they are in."""
        self.content = content
        self.where = where
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
        content = (
            LoadedFolder((pipeline_from(settings, folder, str(where)),)) if file is None else load_file_alone(where)
        )
        if problems := [problem for pipeline in content.pipelines for problem in format_problems(pipeline)]:
            raise ConfigError(str(where), problems)
        return cls(content, where, io_manager_key)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Raises ConfigError if two components of the project have a pipeline's name or a table in common."""
        components = context.component_tree.get_all_components(KafkaToHudi) or [self]
        loaded = [
            LoadedFile(component.where, pipeline.name, pipeline)
            for component in components
            for pipeline in component.content.pipelines
        ]
        if problems := [problem for _, problem in conflicts(loaded)]:
            raise ConfigError(str(self.where), problems)
        own = {pipeline.name for pipeline in self.content.pipelines}
        pipelines = [file.pipeline for file in loaded if file.pipeline is not None]
        definitions, _ = definitions_of(
            self.content,
            io_manager_key=self.io_manager_key,
            others=[pipeline for pipeline in pipelines if pipeline.name not in own],
            maintained=False,
        )
        if components[0].where != self.where:
            return definitions
        # Once for the whole project. The location may also merge `ingest_definitions`, which has the same without the suffix.
        shared = shared_definitions(pipelines, suffix=_SUFFIX)
        return Definitions.merge(definitions, maintenance_of(pipelines, _SUFFIX).definitions(RESOURCES), shared)


_ATTRIBUTES = _attributes()
