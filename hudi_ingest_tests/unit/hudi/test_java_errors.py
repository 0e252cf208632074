"""What is made of errors of the JVM, from the texts that it gave."""

from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem, TableUnreachable
from hudi_ingest.hudi.java_errors import java_errors
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.write_client import HudiWriter


class JavaError:
    """A Java exception with its causes."""

    def __init__(self, kind: str, message: str, cause: JavaError | None = None) -> None:
        self._kind, self._message, self._cause = kind, message, cause
        self._target_id = "o1"

    def getClass(self) -> JavaError:
        return self

    def getSimpleName(self) -> str:
        return self._kind

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> JavaError | None:
        return self._cause


class Raised(Py4JJavaError):  # type: ignore[misc]
    def __init__(self, error: JavaError) -> None:
        Exception.__init__(self)
        self.java_exception = error


def test_p6_a_full_disk_in_a_commit_is_named_with_what_to_do() -> None:
    disk = JavaError("IOException", "No space left on device")
    with (
        pytest.raises(TableUnreachable, match=r"commit instant 1 of /lake/t: .*Its disk is full.*df -i.*sweep"),
        java_errors("commit instant 1 of /lake/t"),
    ):
        raise Raised(JavaError("HoodieIOException", "Failed to create /lake/t/.hoodie/timeline/1.commit", disk))


def test_p6_libraries_that_java_may_not_run_in_tmp_have_a_remedy() -> None:
    link = "/tmp/libzstd-jni-1.5.6.so: failed to map segment from shared object: Operation not permitted"
    with (
        pytest.raises(EnvironmentProblem, match=r"compact /lake/t: .*noexec.*-Djava\.io\.tmpdir=.*ZstdTempFolder"),
        java_errors("compact /lake/t"),
    ):
        raise Raised(JavaError("SparkException", f"Job aborted: java.lang.UnsatisfiedLinkError: {link}"))


class Gone:
    """A client whose JVM has died."""

    _base_path, _lock = "/lake/t", ""

    def _schema_json(self, schema: object) -> str:
        raise ConnectionRefusedError("[Errno 111] Connection refused")


def test_p5_an_engine_that_is_gone_before_a_commits_first_call_is_lost() -> None:
    with pytest.raises(EngineLost, match="the Spark driver went away while trying to commit instant i1 of /lake/t"):
        HudiWriter.commit(cast("Any", Gone()), cast("Publication", _Publication()))


class _Publication:
    instant, epoch, schema = "i1", None, None
