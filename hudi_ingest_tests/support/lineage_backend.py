"""A lineage backend on this machine, which takes only documents that fit the OpenLineage client's own classes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openlineage.client import event_v2
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)

import hudi_ingest.lineage as emitter
from hudi_ingest.lineage.events import OffsetRange, OffsetsInputDatasetFacet
from hudi_ingest_tests.support.http_server import QuietHandler, serving

FACETS: dict[str, Any] = {
    "processing_engine": processing_engine_run.ProcessingEngineRunFacet,
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


class Backend:
    """What a lineage backend has received, checked with the client's classes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.documents: list[dict[str, Any]] = []
        self.refusal: Exception | None = None

    def take(self, body: bytes) -> None:
        document = json.loads(body)
        try:
            checked(document)
        except Exception as error:
            self.refusal = error
            raise
        self.documents.append(document)


@contextmanager
def backend(status: int = 201) -> Iterator[Backend]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            received.take(self.body())
            self.answer(status)

    with serving(Handler) as url:
        received = Backend(url)
        yield received
    assert received.refusal is None, received.refusal


def checked(document: dict[str, Any]) -> event_v2.RunEvent:
    """Build the event again. Raises TypeError for what the classes do not know, ValueError for what they refuse."""
    fields = without_meta(document)
    run, job = fields.pop("run"), fields.pop("job")
    return event_v2.RunEvent(
        run=event_v2.Run(run["runId"], facets(run.get("facets"))),
        job=event_v2.Job(job["namespace"], job["name"], facets(job.get("facets"))),
        inputs=[
            event_v2.InputDataset(**{**one, "inputFacets": facets(one["inputFacets"]), "facets": {}})
            for one in fields.pop("inputs", ())
        ],
        outputs=[
            event_v2.OutputDataset(
                **{**one, "outputFacets": facets(one["outputFacets"]), "facets": facets(one["facets"])}
            )
            for one in fields.pop("outputs", ())
        ],
        **{**fields, "eventType": event_v2.RunState(fields["eventType"])},
    )


def facets(found: dict[str, Any] | None) -> dict[str, Any]:
    return {name: facet(name, without_meta(fields)) for name, fields in (found or {}).items() if name != "tags"}


def facet(name: str, fields: dict[str, Any]) -> Any:
    if name == "schema":
        return schema_dataset.SchemaDatasetFacet(
            [schema_dataset.SchemaDatasetFacetFields(**column) for column in fields["fields"]]
        )
    if name == "columnLineage":
        lineage = {
            column: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(
                        **{
                            **one,
                            "transformations": [
                                column_lineage_dataset.Transformation(**kind) for kind in one["transformations"]
                            ],
                        }
                    )
                    for one in origin["inputFields"]
                ]
            )
            for column, origin in fields["fields"].items()
        }
        return column_lineage_dataset.ColumnLineageDatasetFacet(lineage)
    if name == "hudi_ingest_offsets":
        return OffsetsInputDatasetFacet([OffsetRange(**one) for one in fields["ranges"]])
    return FACETS[name](**fields)


def without_meta(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in {"_producer", "_schemaURL", "schemaURL"}}


@contextmanager
def told_of_transactions() -> Iterator[Backend]:
    """A backend that this process's transactions are configured to tell, and no longer afterwards."""
    with backend() as found:
        os.environ["OPENLINEAGE_URL"] = found.url
        emitter._client.cache_clear()
        try:
            yield found
        finally:
            # The client copies the variable to some of its own.
            for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
                del os.environ[name]
            emitter._client.cache_clear()
