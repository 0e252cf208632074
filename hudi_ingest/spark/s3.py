"""Gives a running driver and its executors Hadoop's S3 client, and the settings of a pipeline's bucket.

Not before a table on S3 is opened, because an engine may be older than the pipeline file. The settings are per bucket, so
pipelines with different stores share a driver. They hold no secret.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.model.storage_options import SecretReference, StorageOptions
from hudi_ingest.pipeline.engine import is_local
from hudi_ingest.spark.jars import cache_root, s3_jars

_logger = logging.getLogger(__name__)
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_FILES = "HudiIngestS3Files"
_CREDENTIALS = "HudiIngestCredentials"
_DEFAULT_CREDENTIALS = "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"
_APPLIED = "hudi-ingest.applied"
"""Key, below a bucket's prefix, of the digest of the settings that were set last."""

_BOUNDS = {
    # By default a store that is down takes Hadoop's client hours to give up; with these it takes about half a minute, and
    # the step is retried anyway.
    "connection.establish.timeout": "5000",
    "connection.timeout": "30000",
    "attempts.maximum": "3",
    "retry.limit": "5",
    "retry.interval": "500ms",
    "retry.throttle.limit": "6",
    "retry.throttle.interval": "500ms",
}

_OPTIONAL = {
    "endpoint",
    "connection.ssl.enabled",
    "endpoint.region",
    "hudi-ingest.access.key",
    "hudi-ingest.secret.key",
    "hudi-ingest.session.token",
    "hudi-ingest.profile",
}
"""Keys that not every bucket has."""


def bucket_settings(options: StorageOptions) -> dict[str, str]:
    """Build the Hadoop settings of a bucket, without the prefix `fs.s3a.bucket.<bucket>.`; pure."""
    settings = {
        **_BOUNDS,
        "path.style.access": str(options.path_style).lower(),
        # Deleting the markers of parent folders takes requests at each write. Hadoop before 3.2.2 misreads kept ones.
        "directory.marker.retention": "keep",
    }
    if options.endpoint is not None:
        settings["endpoint"] = options.endpoint
        settings["connection.ssl.enabled"] = str(not options.endpoint.startswith("http://")).lower()
    if options.region is not None:
        settings["endpoint.region"] = options.region
    references = {f"hudi-ingest.{key.replace('_', '.')}": _place(secret) for key, secret in options.secrets}
    if options.profile is not None:
        references["hudi-ingest.profile"] = options.profile
    settings["aws.credentials.provider"] = _CREDENTIALS if references else _DEFAULT_CREDENTIALS
    return {**settings, **references}


def connect_bucket(jvm: Any, context: Any, bucket: str, options: StorageOptions) -> None:
    """Let the driver and its executors reach the bucket. Cheap if they already can. `context` is the JavaSparkContext.

    Raises EnvironmentProblem when the jars cannot be fetched, and py4j's errors.
    """
    hadoop = context.hadoopConfiguration()
    prefix = f"fs.s3a.bucket.{bucket}."
    settings = bucket_settings(options)
    local = is_local(str(context.sc().master()))
    scratch = context.sc().conf().get("spark.local.dir", "")
    if local and scratch:
        # By default files are buffered in /tmp, where other users can read them.
        settings["buffer.dir"] = f"{scratch}/s3a"
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    applied = hadoop.get(prefix + _APPLIED)
    if applied == digest:
        return
    _add_classes(jvm, hadoop.getClassLoader(), context, local=local)
    for scheme in ("s3", "s3a"):
        hadoop.set(f"fs.{scheme}.impl", _FILES)
    for key in _OPTIONAL - settings.keys():
        hadoop.unset(prefix + key)
    for key, value in settings.items():
        # Whoever set other bounds in the engine's Spark settings had a reason.
        if key not in _BOUNDS or hadoop.get(prefix + key) is None:
            hadoop.set(prefix + key, value)
    if applied is not None:
        _forget_file_system(jvm, bucket, hadoop)
    hadoop.set(prefix + _APPLIED, digest)


def _place(reference: SecretReference) -> str:
    """Write a reference in a form that Hadoop leaves alone: it expands `${…}` itself."""
    content = reference.text.removeprefix("${").removesuffix("}")
    return content if content.startswith("file:") else f"env:{content}"


def _add_classes(jvm: Any, loader: Any, context: Any, *, local: bool) -> None:
    """Add what is missing to the driver's class path. On a cluster, executors load it from the driver."""

    def add(jars: Sequence[Path]) -> None:
        for jar in jars:
            if not local:
                # First, because a process that dies in between must not leave a driver whose executors lack the classes.
                context.addJar(str(jar))
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())

    if not _has_class(loader, _FILE_SYSTEM):
        add(s3_jars(_logger.info))
    for name in (_CREDENTIALS, _FILES):
        if not _has_class(loader, name):
            add([_compiled_jar(jvm, loader, name)])


def _has_class(loader: Any, name: str) -> bool:
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None


def _compiled_jar(jvm: Any, loader: Any, name: str) -> Path:
    """Compile a class of ours with the Janino bundled with Spark, into a jar in the cache that executors can load."""
    source = resources.files("hudi_ingest.spark").joinpath(f"{name}.java").read_text()
    jar = cache_root(os.environ) / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}.jar"
    if zipfile.is_zipfile(jar):
        # Not if a power cut has left it empty.
        return jar
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    compiled = compiler.getBytecodes()
    store_jar(jar, {str(name): bytes(compiled[name]) for name in compiled})
    return jar


def store_jar(jar: Path, classes: Mapping[str, bytes]) -> None:
    """Write a jar, in one step, because other processes may look for it. Raises EnvironmentProblem."""
    # Not named by the process's number, which processes of other containers share.
    partial = jar.with_name(f"{jar.name}.{uuid.uuid4().hex}.part")
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w") as archive:
            for name, code in classes.items():
                archive.writestr(f"{name}.class", code)
        os.replace(partial, jar)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot store {jar.name} in {jar.parent} ({error}); make that folder writable, or set HUDI_INGEST_JARS to a folder "
            "that is."
        ) from error


def _forget_file_system(jvm: Any, bucket: str, hadoop: Any) -> None:
    """Close the clients that Hadoop caches for the bucket, which have the old settings: Hudi's, which writes the metadata table
    through the other, first. A step that is using one fails and is retried."""
    settings = jvm.org.apache.hadoop.conf.Configuration(hadoop)
    settings.set("fs.hoodie-s3a.impl", "org.apache.hudi.hadoop.fs.HoodieWrapperFileSystem")
    for scheme in ("hoodie-s3a", "s3a"):
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(f"{scheme}://{bucket}"), settings).close()
