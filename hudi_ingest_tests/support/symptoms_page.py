"""Writes docs/by-symptom.md from the messages in the code: `python -m hudi_ingest_tests.support.symptoms_page`.

A message is found where an error, a finding or a problem is made, by reading the syntax trees: texts are followed through local
variables, constants, conditions, and functions of the package, and each value in them is shown as an ellipsis.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from dagster import DagsterInvariantViolationError

import hudi_ingest
from hudi_ingest import exceptions
from hudi_ingest.exceptions import IngestError, Transient

PACKAGE = Path(hudi_ingest.__file__).parent
TARGET = PACKAGE.parent / "docs" / "by-symptom.md"
HOLE = "…"
_MOST_VARIANTS = 24
_ERRORS = {
    name: kind for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, IngestError)
} | {"DagsterInvariantViolationError": DagsterInvariantViolationError}
_PROBLEMS = {"ValueError", "PlacedProblems", "ProblemsFromTop", "SchemaProblem", "BadParameter"}
"""What settings, schemas and options raise: ConfigError lists their texts, a usage error quotes one."""
_SHOWN = ("pipeline/", "records/", "transaction/columns/", "operations/", "cli/", "rest/")
"""Rooms whose problems users see; those of others are between modules."""
_SECOND_ARGUMENT = {"ConfigError", "NoSuchPipeline", "RangeRefused", "NothingToDo", "ChannelFailed"}
"""Errors whose first argument is a place or a name, and whose second is the text."""
_FINDINGS = {"warning": 1, "problem": 1, "answer": 3}
"""By function of model/finding.py: the position of the text."""

_INTRODUCTION = """\
# By symptom

<!-- Written by `python -m hudi_ingest_tests.support.symptoms_page` from the code. Change the messages there, not this file. -->

Every message that hudi-ingest writes, with what to do. Got a message? Search this page for part of it.

[Documentation](README.md) · [Glossary](glossary.md)

An ellipsis (…) stands for the names and numbers in your message. Where the second column is empty, the message itself says what was
found and what was expected: correct that. [Operations](operations.md) explains the more frequent messages at greater length, and
`hudi-ingest doctor` examines an installation.
"""


@dataclass(frozen=True, slots=True)
class Message:
    """A text with holes. `remedy`: what to do, if it does not stand in the text."""

    kind: str
    room: str
    text: str
    remedy: str = ""

    @property
    def symptom_and_remedy(self) -> tuple[str, str]:
        """The text up to the end of its first sentence or clause, and what follows."""
        if self.remedy:
            return self.text, self.remedy
        depth, code = 0, False
        for index, character in enumerate(self.text):
            code ^= character == "`"
            depth += (character in "([") - (character in ")]")
            ends = self.text[index : index + 2] in (". ", "; ") and not self.text[:index].endswith(("e.g", "i.e"))
            # A line that ends in a colon begins a list.
            ends |= character == "\n" and self.text[index - 1] != ":" and not self.text.startswith("-", index + 1)
            if ends and not code and depth <= 0 and _words(self.text[:index]) >= 4:
                rest = self.text[index + 1 :].strip()
                return self.text[: index + (character == ".")], rest[:1].upper() + rest[1:]
        return self.text, ""


@dataclass(frozen=True, slots=True)
class Site:
    """A call that makes an error, a finding or a problem; or what a function that words one returns."""

    module: Module
    kind: str
    call: ast.expr
    function: ast.FunctionDef | ast.AsyncFunctionDef | None

    @property
    def place(self) -> str:
        return f"{self.module.room}:{self.call.lineno}"


@dataclass(frozen=True)
class Module:
    """A module of the package: its path there, and its syntax tree."""

    room: str
    tree: ast.Module

    @cached_property
    def name(self) -> str:
        return ".".join(["hudi_ingest", *Path(self.room).with_suffix("").parts]).removesuffix(".__init__")

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {
            node.name: node for node in ast.walk(self.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    @cached_property
    def imports(self) -> Mapping[str, tuple[str, str]]:
        """By name in this module: the module that it comes from, and its name there."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hudi_ingest")
            for alias in node.names
            if node.module
        }

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """The module's constants that are texts or numbers, as a message shows them."""
        return {
            target.id: f"{node.value.value:g}" if isinstance(node.value.value, float) else str(node.value.value)
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, (str, int, float))
            for target in node.targets
            if isinstance(target, ast.Name)
        }


@cache
def modules() -> Mapping[str, Module]:
    """The modules of the package by their dotted names."""
    found = [
        Module(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
        if "migrations/versions" not in path.as_posix()
    ]
    return {module.name: module for module in found}


@cache
def sites() -> tuple[Site, ...]:
    """All calls that make an error, a finding or a problem."""
    return tuple(site for module in modules().values() for site in _sites(module, module.tree, None))


def _sites(module: Module, node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[Site]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function = node
    if isinstance(node, ast.ClassDef) and node.name in _ERRORS:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
                yield Site(module, node.name, call, module.functions["__init__"])
    # A call of a class outside of `raise` counts too: errors are returned, and kept until they are raised.
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        imported = name in module.imports or isinstance(node.func, ast.Attribute)
        shown = name in _PROBLEMS and module.room.startswith(_SHOWN)
        if name in _ERRORS or shown or (name in _FINDINGS and imported and _is_finding(module, name)):
            yield Site(module, name, node, function)
    for child in ast.iter_child_nodes(node):
        yield from _sites(module, child, function)


def _is_finding(module: Module, name: str) -> bool:
    return module.imports.get(name, ("",))[0] == "hudi_ingest.model.finding"


def messages() -> Iterator[Message]:
    """The messages of all sites, each once."""
    seen = set()
    for site in sites():
        for message in messages_of(site):
            if message not in seen:
                seen.add(message)
                yield message


def messages_of(site: Site) -> Iterator[Message]:
    """The messages that a site may have. A text that is mostly holes is left out: its words are another site's."""
    call = site.call
    assert isinstance(call, ast.Call)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if site.kind in _FINDINGS:
        if site.kind == "answer" and isinstance(call.args[2], ast.Constant) and call.args[2].value is True:
            return
        place = _FINDINGS[site.kind]
        text = call.args[place] if len(call.args) > place else given.get("text")
        advice = call.args[2] if site.kind != "answer" and len(call.args) > 2 else given.get("remedy")
        for words in _texts(site, text):
            for remedy in _texts(site, advice) if advice is not None else [""]:
                yield Message("finding", site.module.room, words, remedy)
        return
    if site.kind in _SECOND_ARGUMENT:
        parts = [*call.args[1:], *(value for name, value in given.items() if name == "problems")]
    else:
        parts = [*call.args[:1], *(value for name, value in given.items() if name in ("message", "problems"))]
    for part in parts:
        for words in _texts(site, part):
            yield Message(site.kind, site.module.room, words)


def _texts(site: Site, node: ast.expr | None) -> list[str]:
    found = (
        (re.sub(rf"{HOLE}(\W?{HOLE})+", HOLE, _one_space(text)) for text in _variants(site, node, 3))
        if node is not None
        else ()
    )
    return [text for text in dict.fromkeys(found) if _words(text) >= 3]


def _one_space(text: str) -> str:
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()


def _words(text: str) -> int:
    return len(re.findall(r"[A-Za-z]{2,}", text.replace(HOLE, " ")))


def _variants(site: Site, node: ast.expr, depth: int) -> list[str]:
    """The texts that an expression may be, up to _MOST_VARIANTS; a hole for what cannot be known."""
    return list(dict.fromkeys(_each(site, node, depth)))[:_MOST_VARIANTS] or [HOLE]


def _each(site: Site, node: ast.expr, depth: int) -> Iterable[str]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return _joined(_variants(site, part, depth) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _in_a_hole(site, node.value, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined(_variants(site, part, depth) for part in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return [*_variants(site, node.body, depth), *_variants(site, node.orelse, depth)]
    if isinstance(node, ast.BoolOp):
        return [text for part in node.values for text in _variants(site, part, depth)]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [text for part in node.elts for text in _variants(site, _unstarred(part), depth)]
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _variants(site, node.elt, depth)
    if isinstance(node, ast.Name) and depth:
        return _of_name(site, node.id, depth)
    if isinstance(node, ast.Call) and depth:
        return _of_call(site, node, depth)
    return [HOLE]


def _in_a_hole(site: Site, node: ast.expr, depth: int) -> Iterable[str]:
    """A value within a text is a hole, unless it is a constant or a choice of texts."""
    if isinstance(node, ast.Name) and (text := _constant(site.module, node.id)) is not None:
        return [text]
    if isinstance(node, (ast.IfExp, ast.JoinedStr)) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return _variants(site, node, depth)
    return [HOLE]


def _joined(parts: Iterable[list[str]]) -> Iterable[str]:
    chosen = list(parts)
    count = 1
    for index, texts in enumerate(chosen):
        count *= len(texts)
        if count > _MOST_VARIANTS:
            chosen[index] = [max(texts, key=len)]
            count //= len(texts)
    return ["".join(texts) for texts in product(*chosen)]


def _unstarred(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _constant(module: Module, name: str) -> str | None:
    if name in module.imports:
        origin, there = module.imports[name]
        return modules()[origin].constants.get(there) if origin in modules() else None
    return module.constants.get(name)


def _of_name(site: Site, name: str, depth: int) -> Iterable[str]:
    text = _constant(site.module, name)
    if text is not None:
        return [text]
    function = site.function
    if function is None:
        return [HOLE]
    added = [
        value
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{name}.append", f"{name}.extend")
        for value in node.args
    ]
    given = [value for node in ast.walk(function) for value in _given(node, name)] if added else []
    reaching = [*added, *given] or _reaching(function.body, site.call, name)
    return [text for value in reaching for text in _variants(site, value, depth - 1)] or [HOLE]


def _reaching(block: list[ast.stmt], call: ast.expr, name: str) -> list[ast.expr]:
    """The values that a variable may have at a call somewhere in a block: those of the statements before, back to one that always assigns."""
    found: list[ast.expr] = []
    for statement in reversed([each for each in block if each.lineno <= call.lineno]):
        if (statement.end_lineno or 0) >= call.lineno:
            inner = [
                value
                for field in ("body", "orelse", "handlers", "finalbody", "cases")
                for value in _reaching(getattr(statement, field, None) or [], call, name)
            ]
            # A condition of the statement itself may assign, too.
            found += inner or [value for node in ast.walk(statement) for value in _given(node, name)]
            if inner:
                break
            continue
        given = [value for node in ast.walk(statement) for value in _given(node, name)]
        found += given
        if given and isinstance(statement, (ast.Assign, ast.AnnAssign)):
            break
    return found


def _given(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """The value that an assignment gives to a variable."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) or node.value is None:
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Name) and target.id == name:
            yield node.value
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            yield from (value for to, value in pairs if isinstance(to, ast.Name) and to.id == name)


def _of_call(site: Site, call: ast.Call, depth: int) -> Iterable[str]:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name in ("list", "tuple", "str", "sorted") and call.args:
        return _variants(site, call.args[0], depth)
    module = site.module
    if isinstance(call.func, ast.Name) and name in module.imports:
        origin, name = module.imports[name]
        if origin not in modules():
            return [HOLE]
        module = modules()[origin]
    function = module.functions.get(name)
    own = isinstance(call.func, ast.Name) or ast.unparse(call.func).startswith(("self.", "cls."))
    if function is None or not own:
        return [HOLE]
    returned = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None
    ]
    found = (_variants(Site(module, site.kind, value, function), value, depth - 1) for value in returned)
    return [text for texts in found for text in texts] or [HOLE]


def render() -> str:
    """Render the whole page."""
    by_kind: dict[str, list[Message]] = defaultdict(list)
    for message in messages():
        by_kind[message.kind if message.kind in _ERRORS and message.kind not in ("ConfigError",) else ""].append(
            message
        )
    others = by_kind.pop("")
    parts = [_INTRODUCTION]
    for kind in sorted(by_kind):
        again = "The step is tried again by itself." if issubclass(_ERRORS[kind], Transient) else ""
        about = (inspect.getdoc(_ERRORS[kind]) or "").partition("\n\n")[0]
        parts.append(f"## {kind}\n\n{' '.join(filter(None, [about, again]))}\n\n{_table(by_kind[kind])}")
    findings = [message for message in others if message.kind == "finding"]
    parts.append(
        "## Checks and doctor\n\nFindings of `hudi-ingest doctor`, of the checks of a table in Dagster, and of alerts.\n\n"
        + _table(findings)
    )
    settings = [message for message in others if message.kind != "finding"]
    parts.append(
        "## Pipeline files, schemas, records and options\n\nProblems that `validate`, a tick or a command lists, each with its key and line.\n"
    )
    for title, rooms in _SETTINGS.items():
        rows = [message for message in settings if message.room.startswith(rooms)]
        parts.append(f"### {title}\n\n{_table(rows)}")
        settings = [message for message in settings if message not in rows]
    parts.append(f"### Everything else\n\n{_table(settings)}")
    return "\n".join(parts)


_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "Pipeline files and other settings": ("pipeline/",),
    "Schemas": ("records/schema/", "transaction/columns/"),
    "Formats, transforms and records": ("records/",),
    "Commands": ("cli/",),
    "REST": ("rest/",),
}


def _table(found: Iterable[Message]) -> str:
    rows = sorted(
        {message.symptom_and_remedy for message in found}, key=lambda row: (row[0].lstrip(f"{HOLE} `'").lower(), row)
    )
    return "| message | what to do |\n|---|---|\n" + "".join(f"| {_cell(a)} | {_cell(b)} |\n" for a, b in rows)


def _cell(text: str) -> str:
    text = " ".join(text.split())
    # Within backticks all but the pipe stands for itself.
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = [text.replace("`", "'")]
    outside = [re.sub(r"([*_\[\]<>#])", lambda found: f"\\{found[1]}", part) for part in parts]
    return "`".join(part if index % 2 else outside[index] for index, part in enumerate(parts)).replace("|", "\\|")


def main() -> None:
    TARGET.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")


if __name__ == "__main__":
    main()
