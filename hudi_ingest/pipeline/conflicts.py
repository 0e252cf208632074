"""Pipelines that cannot be loaded together. Pure, and linear in their number: a template may have hundreds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hudi_ingest.model.storage_options import StorageOptions, bucket_and_key, is_s3
from hudi_ingest.pipeline.file import LoadedFile
from hudi_ingest.pipeline.pipeline import Pipeline

JOBS = (
    "_transaction",
    "_sweep",
    "_services",
    "_ttl",
    "_catalog",
    "_backfill",
    "_backfill_hours",
    "_replay",
    "_retry_dead_letters",
)
"""How the names of a pipeline's jobs in Dagster end, after its own."""
_OPS = ("__begin", "__write", "__commit")


def conflicts(loaded: Sequence[LoadedFile]) -> list[tuple[tuple[int, int], str]]:
    """Pairs of positions, the earlier first, whose pipelines cannot coexist, and why; in the order of the later ones. A position twice:
    only this one is to blame."""
    valid = [(position, file.pipeline) for position, file in enumerate(loaded) if file.pipeline is not None]
    found = [
        *_same(valid, loaded),
        *_jobs(valid, loaded),
        *_catalogs(valid, loaded),
        *_buckets(valid, loaded),
        *_nested(valid, loaded),
    ]
    return [(pair, text) for pair, _, text in sorted(found, key=lambda found: (found[0][1], found[0][0], found[1]))]


_Pair = tuple[int, int]
_Found = tuple[_Pair, int, str]
"""With the place of the text among those of one pair."""


def _same(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    names, tables = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for position, pipeline in valid:
        base_path = pipeline.table.base_path
        for earlier in names[pipeline.name]:
            files = _files(loaded, earlier, position)
            yield (earlier, position), 0, f"{files}: both have the name {pipeline.name}; rename one"
        for earlier in tables[base_path]:
            text = f"both have the table.base_path {base_path}; a table has one pipeline"
            yield (earlier, position), 3, f"{_files(loaded, earlier, position)}: {text}"
        names[pipeline.name].append(position)
        tables[base_path].append(position)


def _jobs(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    """Pipelines with the name of another one's job or op. Only they are to blame, and stop no other pipeline."""
    positions = {pipeline.name: position for position, pipeline in valid}
    for owner, pipeline in valid:
        absent = {
            "_ttl": not pipeline.table.ttl,
            "_catalog": not pipeline.catalog,
            "_backfill_hours": pipeline.table.is_keyed,
        }
        for ending in (*JOBS, *_OPS):
            name = f"{pipeline.name}{ending}"
            if name in positions and not absent.get(ending):
                text = f"the name {name} is that of a job of the pipeline {pipeline.name}; choose another one"
                yield (positions[name],) * 2, 0, f"{_files(loaded, owner, positions[name])}: {text}"


def _catalogs(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    places: defaultdict[tuple[str, str], list[tuple[int, Pipeline]]] = defaultdict(list)
    for position, pipeline in valid:
        if pipeline.catalog is None:
            continue
        own_places = [(pipeline.catalog.uris, table) for table in pipeline.catalog_tables]
        for earlier, other in {earlier: other for place in own_places for earlier, other in places[place]}.items():
            text = f"both have the catalog table {catalog_table_of_both(pipeline, other)}; set catalog.table in one of them"
            yield (earlier, position), 2, f"{_files(loaded, earlier, position)}: {text}"
        for place in own_places:
            places[place].append((position, pipeline))


def catalog_table_of_both(pipeline: Pipeline, other: Pipeline) -> str:
    """A table that both keep in the same catalog, with its address; "" if there is none."""
    if pipeline.catalog is None or other.catalog is None or pipeline.catalog.uris != other.catalog.uris:
        return ""
    shared = next((table for table in pipeline.catalog_tables if table in other.catalog_tables), "")
    return f"{shared} at {pipeline.catalog.uris}" if shared else ""


def _buckets(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    ways: defaultdict[str, defaultdict[StorageOptions, list[int]]] = defaultdict(lambda: defaultdict(list))
    for position, pipeline in valid:
        if not is_s3(pipeline.table.base_path):
            continue
        bucket, _ = bucket_and_key(pipeline.table.base_path)
        way = replace(pipeline.table.storage_options, conditional_writes=True)
        for other_way, others in ways[bucket].items():
            for earlier in others if other_way != way else ():
                text = (
                    f"{_files(loaded, earlier, position)}: their tables are in bucket {bucket}, but their table.storage differs; a "
                    "Spark driver reaches a bucket in one way, so give both the same"
                )
                yield (earlier, position), 1, text
        ways[bucket][way].append(position)


def _nested(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    """Tables inside others: sorted, a folder is followed by everything inside it."""
    above: list[tuple[str, str, int]] = []
    for folder, base_path, position in sorted(
        (f"{pipeline.table.base_path}/", pipeline.table.base_path, position) for position, pipeline in valid
    ):
        while above and not folder.startswith(above[-1][0]):
            above.pop()
        for outer_folder, outer, other in above:
            if outer_folder != folder:
                first, second = min(position, other), max(position, other)
                text = f"table.base_path {base_path} is inside the table {outer}; choose a folder beside it"
                yield (first, second), 3, f"{_files(loaded, first, second)}: {text}"
        above.append((folder, base_path, position))


def _files(loaded: Sequence[LoadedFile], first: int, second: int) -> str:
    return f"{_of(loaded[first])} and {_of(loaded[second])}"


def _of(file: LoadedFile) -> str:
    return f"{file.path.name} ({file.variant.text})" if file.variant is not None else file.path.name
