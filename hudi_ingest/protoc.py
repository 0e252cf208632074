"""Compiles `.proto` texts to descriptor sets. The compiler is protoc itself, as the package grpcio-tools brings it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

_SECONDS = 60


def compile_protos(name: str, texts: Mapping[str, str]) -> bytes:
    """The descriptor set of the file `name` with all that it imports; `texts`: import path -> text, `name` among them.

    Protobuf's own files (google/protobuf/...) need not be given. Raises ValueError with what protoc says.
    """
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-protoc-") as folder:
        # Resolved, because what is compared to it is too.
        root, out = Path(folder, "protos").resolve(), Path(folder, "descriptors")
        root.mkdir()
        for path, text in texts.items():
            file = (root / path).resolve()
            if not file.is_relative_to(root) or file == root:
                raise ValueError(
                    f"{path!r} is not an import path of a .proto file: it leads out of the schema's folder"
                )
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        own = files("grpc_tools") / "_proto"
        paths = [f"--proto_path={root}", f"--proto_path={own}"]
        # As a program: in this process it would write its messages to the process's standard error.
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            *paths,
            "--include_imports",
            f"--descriptor_set_out={out}",
        ]
        done = subprocess.run(
            [*command, str(root / name)], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            said = " ".join(done.stderr.replace(f"{root}/", "").split())
            raise ValueError(f"protoc refuses {name}: {said or f'exit code {done.returncode}'}")
        return out.read_bytes()
