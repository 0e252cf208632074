"""Compiles `.proto` texts to descriptor sets. The compiler is protoc itself, as the package grpcio-tools brings it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

_SECONDS = 60


def compile_protos(names: str | Sequence[str], texts: Mapping[str, str], imported: bytes = b"") -> bytes:
    """The descriptor set of the files `names` with all that they import; `texts`: import path -> text, `names` among them.

    `imported`: a descriptor set of files that are imported and have no text here. Protobuf's own files (google/protobuf/...)
    need not be given. A file stands behind those that it imports. Raises ValueError with what protoc says.
    """
    wanted = [names] if isinstance(names, str) else [*names]
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
        if imported:
            # protoc looks into it for what the folders do not have.
            given = Path(folder, "imported")
            given.write_bytes(imported)
            paths.append(f"--descriptor_set_in={given}")
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
            [*command, *(str(root / name) for name in wanted)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            said = " ".join(done.stderr.replace(f"{root}/", "").split())
            raise ValueError(f"protoc refuses {wanted[-1]}: {said or f'exit code {done.returncode}'}")
        return out.read_bytes()
