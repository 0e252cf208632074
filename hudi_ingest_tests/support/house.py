"""The size and shape of the package, for whoever changes it. `make house` prints them."""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hudi_ingest

PACKAGE = Path(hudi_ingest.__file__).parent
_MANY_PARAMETERS = 8
_PIPELINES = 100
_PIPELINE = """
name: orders_{number}
source: {{bootstrap_servers: "127.0.0.1:9", topics: [orders_{number}]}}
table: {{base_path: "/tables/orders_{number}", schema: "id string"}}
"""


def shape() -> Iterator[tuple[str, str]]:
    """What is measured, and how much of it there is."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    yield "modules", f"{len(texts):,}"
    yield "lines of Python", f"{lines:,}"
    comments = sum(len(re.findall(r"^ *#", text, re.MULTILINE)) for text in texts.values())
    yield (
        "docstrings and comments",
        f"{(comments + sum(map(_docstring_lines, trees.values()))) / lines:.1%} of the lines",
    )
    folder, files = Counter(path.parent for path in texts).most_common(1)[0]
    yield "files in the largest folder", f"{files} in {folder.relative_to(PACKAGE.parent)}"
    private = Counter(path for path, tree in trees.items() for _ in _private_imports(tree))
    outside = [path for path in private if "embedded" not in path.parts]
    yield (
        "imports of private Dagster modules",
        f"{private.total()} in {len(private)} modules, {len(outside)} of them not embedded",
    )
    wide = [
        function.name
        for tree in trees.values()
        for function in _functions(tree)
        if _width(function) >= _MANY_PARAMETERS
    ]
    yield f"functions with {_MANY_PARAMETERS} parameters or more", f"{len(wide)}: {', '.join(wide)}"


def definitions() -> Iterator[tuple[str, str]]:
    """Dagster's definitions of many pipelines, each with a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_PIPELINES):
            Path(folder, f"orders_{number}.yaml").write_text(_PIPELINE.format(number=number), encoding="utf-8")
        os.environ["HUDI_INGEST_HOME"] = folder
        repository = hudi_ingest.ingest_definitions(folder).get_repository_def()

        from dagster._core.remote_representation.external_data import RepositorySnap
        from dagster._serdes import serialize_value

        jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
        yield f"jobs of {_PIPELINES} pipelines", f"{len(jobs)}"
        yield f"schedules of {_PIPELINES} pipelines", f"{len(repository.schedule_defs)}"
        size = len(serialize_value(RepositorySnap.from_def(repository)).encode())
        yield f"snapshot of {_PIPELINES} pipelines", f"{size / 1e6:.1f} MB"


def _docstring_lines(tree: ast.Module) -> int:
    """Lines of the texts that stand alone: docstrings, and those below constants and fields."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _private_imports(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            imported = [name.name for name in node.names]
        if any(re.match(r"dagster(_\w+)?\.(\w+\.)*_[a-z]", f"{name}.") for name in imported):
            yield node


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _width(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([argument for argument in every if argument.arg not in ("self", "cls")])


if __name__ == "__main__":
    for measure, value in (*shape(), *definitions()):
        print(f"{measure:40} {value}")
