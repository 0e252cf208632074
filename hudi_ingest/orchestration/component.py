"""The Dagster component: a pipeline in a `dg` project, or those of a template, in a few lines of its defs.yaml.

    type: hudi_ingest.KafkaToHudi
    attributes:
      pipeline_file: orders.yaml

Instead of `pipeline_file`, the attributes may be the keys of a pipeline file themselves. `io_manager_key` and `translation` may be set
with either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from dagster import AssetSpec, Component, ComponentLoadContext, Definitions
from dagster.components import AssetAttributesModel, scaffold_with
from dagster.components.component.component import ComponentTypeSpec
from dagster.components.utils.translation import TranslatorResolvingInfo
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.orchestration.code_location import definitions_of, shared_definitions
from hudi_ingest.orchestration.component_scaffolder import KafkaToHudiScaffolder
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, RESOURCES
from hudi_ingest.orchestration.jobs.table_asset import table_spec
from hudi_ingest.orchestration.pipeline_definitions import maintenance_of
from hudi_ingest.pipeline.file import LoadedFile, pipeline_from
from hudi_ingest.pipeline.folder import LoadedFolder, conflicts, load_file_alone
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import keys, purposes
from hudi_ingest.transaction.columns.decoding import format_problems

_FILE = "pipeline_file"
_RESULTS = "io_manager_key"
_TRANSLATION = "translation"
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
        if others := ", ".join(key for key in value if key not in (_FILE, _RESULTS, _TRANSLATION)):
            raise ValueError(f"pipeline_file cannot be combined with other keys; remove it, or remove {others}")
        return value


def _attributes() -> type[BaseModel]:
    # Not in the class above, because type checkers know no types that are made at run time.
    translation = Field(
        default=None,
        description="Attributes of each table's asset, such as key, deps, owners, tags and metadata. Templates may use `spec`, the "
        "asset's spec, and `pipeline`.",
    )
    fields: dict[str, Any] = {_TRANSLATION: (str | AssetAttributesModel | None, translation)}
    for key, info in keys(Pipeline).items():
        # Below the top level `dg` accepts any value, because it may be a template like {{ env.TOPIC }}, which has no type yet.
        block = isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
        kind = Mapping[str, Any] if block else Any
        fields[key] = (kind | None, Field(default=None, description=purposes(Pipeline)[key]))
    return create_model("KafkaToHudiAttributes", __base__=_Attributes, **fields)


@scaffold_with(KafkaToHudiScaffolder)
class KafkaToHudi(Component):
    """Ingest Kafka topics into Apache Hudi tables, exactly once: each table as an asset with its checks. Components of a project share
    the coordinator, maintenance jobs, alerts, overview and housekeeping."""

    def __init__(
        self,
        content: LoadedFolder,
        where: Path,
        io_manager_key: str = IO_MANAGER,
        translation: Callable[[AssetSpec, Pipeline], AssetSpec] | None = None,
    ) -> None:
        """`content`: one pipeline, or those of a template; `where`: the file that they are in; `translation`: what `get_asset_spec` does."""
        self.content = content
        self.where = where
        self.io_manager_key = io_manager_key
        self.translation = translation

    def get_asset_spec(self, pipeline: Pipeline) -> AssetSpec:
        """Return what the asset of the pipeline's table is. A subclass may change its key, add dependencies, owners, tags or metadata; the
        table's topics remain dependencies."""
        spec = table_spec(pipeline)
        return spec if self.translation is None else self.translation(spec, pipeline)

    @cached_property
    def _specs(self) -> Mapping[str, AssetSpec]:
        return {pipeline.name: self.get_asset_spec(pipeline) for pipeline in self.content.pipelines}

    @property
    def _content(self) -> LoadedFolder:
        """The pipelines, with the keys of their specs."""
        keys = {name: tuple(spec.key.path) for name, spec in self._specs.items()}
        pipelines = self.content.pipelines
        return replace(
            self.content, pipelines=tuple(pipeline.with_asset_key(keys[pipeline.name]) for pipeline in pipelines)
        )

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
        attributes_set = (
            attributes.model_dump(exclude_unset=True, exclude={_TRANSLATION}) if attributes is not None else {}
        )
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
        model = getattr(attributes, _TRANSLATION, None)
        if model is None:
            return cls(content, where, io_manager_key)
        translator = TranslatorResolvingInfo(model, context.resolution_context, _TRANSLATION)

        def translation(spec: AssetSpec, pipeline: Pipeline) -> AssetSpec:
            return translator.get_asset_spec(spec, {"spec": spec, "pipeline": pipeline})

        return cls(content, where, io_manager_key, translation)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Raises ConfigError if two components of the project have a pipeline's name or a table in common."""
        components = context.component_tree.get_all_components(KafkaToHudi) or [self]
        loaded = [
            LoadedFile(component.where, pipeline.name, pipeline)
            for component in components
            for pipeline in component._content.pipelines
        ]
        if problems := [problem for _, problem in conflicts(loaded)]:
            raise ConfigError(str(self.where), problems)
        own = self._specs
        pipelines = [file.pipeline for file in loaded if file.pipeline is not None]
        definitions, _ = definitions_of(
            self._content,
            io_manager_key=self.io_manager_key,
            others=[pipeline for pipeline in pipelines if pipeline.name not in own],
            jobs=None,
            specs=own,
        )
        if components[0].where != self.where:
            return definitions
        # Once for the whole project. The location may also merge `ingest_definitions`, which has the same without the suffix.
        templates = [template for component in components for template in component.content.templates]
        shared = shared_definitions(LoadedFolder(tuple(pipelines), (), tuple(templates)), _SUFFIX)
        return Definitions.merge(definitions, maintenance_of(pipelines, _SUFFIX).definitions(RESOURCES), shared)


_ATTRIBUTES = _attributes()
