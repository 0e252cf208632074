"""The size and shape of the package, as numbers with the places that make them up. `make house` prints them.

Everything is read from the modules' syntax trees. Imports inside functions count like others; those for type checkers only do not.

- *modules*, *lines*: the package's Python files, and the lines in them.
- *lines of code*: lines that are not blank and not only a comment or a docstring.
- *docstrings and comments in 100 lines*, *longest line*, *characters in a line of code*: so that fewer lines are not made by cramming.
- *import circles*: sets of modules that reach each other by imports.
- *modules on the way …*, *climbs on the way …*: how many modules a parameter enters by calls that pass it on, and how often its next
  module is in a higher room (`walk.py`). house.json's `ways` say where each begins and which functions it leaves out.
- *assignments to other packages' attributes*: to an attribute of a name that is imported from outside the package, or in place of a method,
  which mypy calls `method-assign`.
- *imports of private Dagster modules*, *folders with private Dagster imports*: of modules such as `dagster._core`.
- *imports of hudi-ingest in the folder of private Dagster names*: of modules outside that folder.
- *mutable containers at module level*: lists, dicts, sets and the like that are assigned at module level and changed by a function of the module.
  house.json's `containers` have the reason for each.
- *constructions of PipelineTable*, *thread pools*: calls that make one.
- *rows of docs/configuration.md*: those that begin with a key, a type or an option. *settings that no test names*: keys of files for users
  that no test gives a value.
- *functions of complexity above 30*: branches, loops, handlers, conditions of `and` and `or`, and comprehensions, plus one; not in the
  compiled reader of JSON, where a call costs what a branch does not.
- *functions with 8 parameters or more*: not in `cli`, where each is an option.
- *docstrings that begin with a fragment*: with Of, By, As, From, Those, For or After.

The order of rooms and of orchestration's storeys is held by import contracts (pyproject.toml). Not counted, since no rule finds them:
records that say how a pipeline is, stores of its switch, ways in which a run's process begins, and parsers and trees of schemas.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hudi_ingest
from hudi_ingest_tests.support import configuration_page
from hudi_ingest_tests.support.source import Module, Source, circles
from hudi_ingest_tests.support.walk import Function, Walker

BUDGETS = Path(__file__).parent.parent / "surfaces" / "house.json"
TESTS = Path(__file__).parent.parent
AT_LEAST = {"docstrings and comments in 100 lines"}
"""Measures that may not fall; all others may not rise."""
_STEADY = {*AT_LEAST, "characters in a line of code"}
"""Ratios, which each change moves a little: their budgets have some room, and stay."""
_MANY_PARAMETERS = 8
_COMPLEX = 30
_COMPILED = "records/convert/json/kernel/"
_FRAGMENT = re.compile(r"\s*(Of|By|As|From|Those|For|After)\b")
_PRIVATE = re.compile(r"dagster(_\w+)?\.(\w+\.)*_[a-z]")
_POOLS = {"ThreadPoolExecutor", "ThreadPool"}
_CONTAINERS = {
    "dict",
    "list",
    "set",
    "defaultdict",
    "deque",
    "Counter",
    "OrderedDict",
    "WeakKeyDictionary",
    "WeakValueDictionary",
}
_CHANGES = {
    *(
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "remove",
    ),
    *("setdefault", "update"),
}
_PIPELINES = 100
_PIPELINE = """
name: orders_{number}
source: {{bootstrap_servers: "127.0.0.1:9", topics: [orders_{number}]}}
table: {{base_path: "/tables/orders_{number}", schema: "id string"}}
"""


@dataclass(frozen=True)
class Measure:
    """A number, and the places that it counts, where it counts places."""

    name: str
    value: float
    places: Sequence[str] = ()


def budgets() -> Mapping[str, Any]:
    """house.json: `budgets` and `goals` by measure, `ways`, and `containers` with reasons."""
    return json.loads(BUDGETS.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def measures(rules: Mapping[str, Any], source: Source | None = None) -> Iterator[Measure]:
    """All that is measured. `rules`: house.json."""
    source = source or Source()
    yield from _size(source)
    found = circles(source.imports)
    yield Measure("import circles", len(found), [" <-> ".join(each) for each in found])
    walker = Walker(source)
    for name, way in rules["ways"].items():
        gone = walker.way(way["begins"], way["leaves_out"])
        yield Measure(f"modules on the way {name}", len(gone.modules), gone.modules)
        yield Measure(f"climbs on the way {name}", len(gone.climbs), gone.climbs)
    yield _places("assignments to other packages' attributes", _foreign_assignments(source))
    private = [(module, node.lineno) for module in source.modules for node in _private_imports(module)]
    yield Measure(
        "imports of private Dagster modules", len(private), [f"{module.path}:{line}" for module, line in private]
    )
    folders = Counter("/".join(module.path.split("/")[:2]) for module, _ in private)
    yield Measure("folders with private Dagster imports", len(folders), sorted(folders))
    if folders:
        yield _places(
            "imports of hudi-ingest in the folder of private Dagster names",
            _out_of(source, folders.most_common(1)[0][0]),
        )
    yield _places("mutable containers at module level", _containers(source))
    yield _places("constructions of PipelineTable", _calls(source, {"PipelineTable"}))
    yield _places("thread pools", _calls(source, _POOLS))
    yield Measure("rows of docs/configuration.md", configuration_page.render().count("\n| `"))
    yield _places("settings that no test names", configuration_page.settings_named_by_no_test())
    yield _places(f"functions of complexity above {_COMPLEX}", _complex(source))
    yield _places(f"functions with {_MANY_PARAMETERS} parameters or more", _wide(source))
    yield _places("docstrings that begin with a fragment", _fragments(source))


def over_budget(measure: Measure, rules: Mapping[str, Any]) -> bool:
    """Whether a measure is worse than its budget."""
    budget = rules["budgets"][measure.name]
    return bool(measure.value < budget if measure.name in AT_LEAST else measure.value > budget)


def lowered(rules: Mapping[str, Any], found: Iterable[Measure]) -> dict[str, Any]:
    """The rules with the budgets of those measures that have become better, and without the containers that are gone."""
    kept = {measure.name: measure for measure in found}
    best = {
        name: budget if name in _STEADY or name not in kept else min(budget, kept[name].value)
        for name, budget in rules["budgets"].items()
    }
    containers = {*kept["mutable containers at module level"].places}
    reasons = {name: reason for name, reason in rules["containers"].items() if name in containers}
    return {**rules, "budgets": best, "containers": reasons}


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


def _places(name: str, places: Iterable[str]) -> Measure:
    found = [*places]
    return Measure(name, len(found), found)


def _size(source: Source) -> Iterator[Measure]:
    yield Measure("modules", len(source.modules))
    lines = [line for module in source.modules for line in module.text.splitlines()]
    yield Measure("lines", len(lines))
    code: list[str] = []
    texts = 0
    for module in source.modules:
        of_code, of_text = _kinds_of_lines(module)
        code += [module.text.splitlines()[number - 1] for number in sorted(of_code)]
        texts += len(of_text - of_code)
    yield Measure("lines of code", len(code))
    yield Measure("docstrings and comments in 100 lines", round(100 * texts / len(lines), 1))
    yield Measure("longest line", max(map(len, lines)))
    yield Measure("characters in a line of code", round(sum(len(line.strip()) for line in code) / len(code), 1))


def _kinds_of_lines(module: Module) -> tuple[set[int], set[int]]:
    """The numbers of a module's lines with code, and of those with a docstring or a comment."""
    docstrings = {
        number
        for node in _docstrings(module.tree)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code: set[int] = set()
    texts = {*docstrings}
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        numbers = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            texts.update(numbers)
        elif token.type not in silent and not docstrings.issuperset(numbers):
            code.update(numbers)
    return code, texts


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """The texts that stand alone: docstrings, and those below constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def _foreign_assignments(source: Source) -> Iterator[str]:
    for module in source.modules:
        foreign = {*_foreign_names(module, source.package)}
        lines = module.text.splitlines()
        for node in ast.walk(module.tree):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else []
            if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and (
                    _root(target) in foreign or "ignore[method-assign]" in lines[target.lineno - 1]
                ):
                    yield f"{module.path}:{target.lineno} {ast.unparse(target)}"


def _foreign_names(module: Module, package: str) -> Iterator[str]:
    """Names that a module imports from outside the package."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (
                (each.asname or each.name).partition(".")[0] for each in node.names if not each.name.startswith(package)
            )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(package):
            yield from (each.asname or each.name for each in node.names)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _private_imports(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(module.tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        if any(_PRIVATE.match(f"{name}.") for name in names):
            yield node


def _out_of(source: Source, folder: str) -> Iterator[str]:
    for module in source.modules:
        if module.path.startswith(f"{folder}/"):
            for target in sorted(source.imports[module.name]):
                path = source.by_name[target].path
                if not path.startswith(f"{folder}/"):
                    yield f"{module.path} -> {path}"


def _containers(source: Source) -> Iterator[str]:
    for module in source.modules:
        changed = {*_changed_names(module.tree)}
        for node in module.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(target, ast.Name) and target.id in changed and _is_container(value):
                yield f"{module.path}:{target.id}"


def _is_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in _CONTAINERS
    return isinstance(value, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp))


def _changed_names(tree: ast.Module) -> Iterator[str]:
    """Names whose containers the functions of a module change."""
    for function in _functions(tree):
        for node in ast.walk(function):
            changed: ast.expr | None = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
                changed = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                changed = node.func.value
            elif isinstance(node, ast.AugAssign):
                changed = node.target
            if isinstance(changed, ast.Name):
                yield changed.id


def _calls(source: Source, names: set[str]) -> Iterator[str]:
    for module in source.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in names:
                    yield f"{module.path}:{node.lineno}"


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _complex(source: Source) -> Iterator[str]:
    for module in source.modules:
        for function in _functions(module.tree) if not module.path.startswith(_COMPILED) else ():
            if (found := complexity(function)) > _COMPLEX:
                yield f"{module.path}:{function.lineno} {function.name} {found}"


def complexity(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many ways lead through a function, those of its inner functions included."""
    ways = 1
    for node in ast.walk(function):
        if isinstance(
            node, (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Assert, ast.ExceptHandler, ast.match_case)
        ):
            ways += 1
        elif isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            ways += 1 + len(node.ifs)
    return ways


def _wide(source: Source) -> Iterator[str]:
    for module in source.modules:
        for function in _functions(module.tree) if module.room != "cli" else ():
            every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            if len([argument for argument in every if argument.arg not in ("self", "cls")]) >= _MANY_PARAMETERS:
                yield f"{module.path}:{function.lineno} {function.name}"


def _fragments(source: Source) -> Iterator[str]:
    for module in source.modules:
        for node in _docstrings(module.tree):
            text = str(ast.literal_eval(node.value))
            if _FRAGMENT.match(text):
                yield f"{module.path}:{node.lineno} {' '.join(text.split()[:6])}"


def main() -> None:
    """Print each measure with its budget. `--places NAME`: also its places; `--lower`: write the budgets that can be lower."""
    rules = budgets()
    found = [*measures(rules)]
    if "--lower" in sys.argv:
        BUDGETS.write_text(json.dumps(lowered(rules, found), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    wanted = sys.argv[sys.argv.index("--places") + 1].lower() if "--places" in sys.argv else ""
    for measure in found:
        budget, goal = rules["budgets"].get(measure.name), rules["goals"].get(measure.name)
        print(
            f"{measure.name:68} {measure.value:>10,}   budget {budget}" + (f", goal {goal}" if goal is not None else "")
        )
        if wanted and wanted in measure.name.lower():
            print(*(f"  {place}" for place in measure.places), sep="\n")
    if not wanted:
        for name, value in definitions():
            print(f"{name:66} {value:>10}")


if __name__ == "__main__":
    main()
