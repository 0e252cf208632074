"""The simulation's bucket answers as an S3 store does: the same random programs of requests on both."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from hudi_ingest.hudi.storage.s3_access import client_of
from hudi_ingest_tests.simulation.bucket import BucketClient
from hudi_ingest_tests.simulation.world import World
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.support.s3_table import BUCKET, S3Tables, s3_tables

PROGRAMS = int(os.environ.get("HUDI_INGEST_MODEL_PROGRAMS", "30"))
REQUESTS = 15
KEYS = ("orders/a", "orders/a/b", "orders/a/c", "orders/ab", "orders/b")
PREFIXES = ("orders/", "orders/a", "orders/a/", "orders/b/", "orders/nothing/")
CONTENTS = (b"", b"one", b"two")
STALE = '"00000000000000000000000000000000"'
Call = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def tables() -> Iterator[S3Tables]:
    with s3_tables() as found:
        yield found


def test_the_model_of_a_bucket_answers_like_a_store(tables: S3Tables, write: Write) -> None:
    real, pipeline = client_of(tables.options), load(write)
    for seed in range(PROGRAMS):
        draw, model = random.Random(seed), BucketClient(World(pipeline, pipeline.table_schema))
        real.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in KEYS], "Quiet": True})
        etags = [STALE]
        for number in range(REQUESTS):
            operation, arguments = _drawn(draw, etags)
            answers = [_answer(client, operation, arguments) for client in (model, real)]
            assert answers[0] == answers[1], f"seed {seed}, request {number}: {operation} {arguments}"
            etags += [answers[0]["ETag"]] if isinstance(answers[0], dict) and "ETag" in answers[0] else []


def _drawn(draw: random.Random, etags: Sequence[str]) -> Call:
    """Those that hudi/storage/s3.py sends for small files."""
    key, content = draw.choice(KEYS), draw.choice(CONTENTS)
    puts: tuple[dict[str, str], ...] = ({}, {"IfNoneMatch": "*"}, {"IfMatch": draw.choice(etags[-4:])})
    objects = [{"Key": other} for other in draw.sample(KEYS, draw.randint(1, 3))]
    calls: tuple[Call, ...] = (
        ("put_object", {"Key": key, "Body": content, **draw.choice(puts)}),
        ("put_object", {"Key": key, "Body": content, **draw.choice(puts)}),
        ("get_object", {"Key": key}),
        ("head_object", {"Key": key}),
        ("delete_object", {"Key": key}),
        ("delete_objects", {"Delete": {"Objects": objects, "Quiet": True}}),
        ("list_objects_v2", {"Prefix": draw.choice(PREFIXES)}),
    )
    return draw.choice(calls)


def _answer(client: Any, operation: str, arguments: dict[str, Any]) -> object:
    """What s3.py looks at in an answer, or an error's code."""
    try:
        answer = getattr(client, operation)(Bucket=BUCKET, **arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    seen = {name: answer[name] for name in ("ETag", "ContentLength") if name in answer and operation != "get_object"}
    if operation == "get_object":
        seen = {"ETag": answer["ETag"], "Body": answer["Body"].read()}
    if operation == "list_objects_v2":
        seen = {
            "Contents": [(entry["Key"], entry["Size"]) for entry in answer.get("Contents", ())],
            "IsTruncated": bool(answer.get("IsTruncated")),
        }
    return {**seen, "Errors": answer.get("Errors", [])}
