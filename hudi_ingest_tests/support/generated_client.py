"""A Python client that openapi-generator makes of the REST API's document, as a user's build would."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.support.java import QUICK_SPARK

_PARTS = "apis,models,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false"


def generated_client(document: dict[str, Any], folder: Path) -> Any:
    """Generate the package `ingest_client` below the folder, and import it."""
    source = folder / "openapi.json"
    source.write_text(json.dumps(document))
    jar = resources.files("openapi_generator_cli") / "openapi-generator.jar"
    command = [str(find_java()), *QUICK_SPARK.split(), "-jar", str(jar), "generate"]
    options = ["-i", str(source), "-g", "python", "-o", str(folder / "client"), "--package-name", "ingest_client"]
    done = subprocess.run(
        [*command, *options, "--global-property", _PARTS], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder / "client"))
    try:
        return importlib.import_module("ingest_client")
    finally:
        sys.path.pop(0)
