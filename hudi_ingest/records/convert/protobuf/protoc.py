"""Compile `.proto` texts to descriptor sets, with protoc itself from the package grpcio-tools."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

SECONDS = 60
"""Limit of processor time, which unlike wall-clock time does not depend on how busy the machine is."""
_PROGRAM = """
import resource, sys
from grpc_tools import protoc
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds} + 1))
sys.exit(protoc.main(["protoc", *sys.argv[1:]]))
"""
_OF_THE_NAME = {errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}


def compile_protos(names: str | Sequence[str], texts: Mapping[str, str], imported: bytes = b"") -> bytes:
    """Return the descriptor set of the files `names` and all their imports; `texts`: import path -> text, `names` included.

    `imported`: a descriptor set of imported files that have no text here. Protobuf's own files (google/protobuf/...) need
    not be given. Each file follows its imports. Raises ValueError with protoc's message.
    """
    targets = [names] if isinstance(names, str) else [*names]
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-protoc-") as folder:
        # Resolved, like the paths that are compared with it.
        root, out = Path(folder, "protos").resolve(), Path(folder, "descriptors")
        root.mkdir()
        for path, text in texts.items():
            file = (root / path).resolve()
            if not file.is_relative_to(root) or file == root:
                raise ValueError(
                    f"{path!r} is not an import path of a .proto file: it leads out of the schema's folder"
                )
            _write(file, path, text)
        own = files("grpc_tools") / "_proto"
        paths = [f"--proto_path={root}", f"--proto_path={own}"]
        if imported:
            # protoc searches it for imports that the folders do not have.
            imported_set = Path(folder, "imported")
            imported_set.write_bytes(imported)
            paths.append(f"--descriptor_set_in={imported_set}")
        # In a process of its own: here it would write its messages to this process's standard error.
        command = [
            sys.executable,
            "-c",
            _PROGRAM.format(seconds=SECONDS),
            *paths,
            "--include_imports",
            f"--descriptor_set_out={out}",
        ]
        result = subprocess.run(
            [*command, *(str(root / name) for name in targets)],
            capture_output=True,
            text=True,
            check=False,
        )
        if -result.returncode in (signal.SIGXCPU, signal.SIGKILL):
            raise ValueError(f"protoc needs more than {SECONDS} s of processor time for {targets[-1]}")
        if result.returncode:
            complaint = " ".join(result.stderr.replace(f"{root}/", "").split())
            raise ValueError(f"protoc refuses {targets[-1]}: {complaint or f'exit code {result.returncode}'}")
        return out.read_bytes()


def _write(file: Path, path: str, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno not in _OF_THE_NAME:
            raise
        shown = path if len(path) <= 80 else f"{path[:79]}…"
        raise ValueError(f"{shown!r} cannot be an import path of a .proto file: {error.strerror}") from None
