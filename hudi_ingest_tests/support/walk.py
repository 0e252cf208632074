"""The way of one parameter through the package: the functions that are entered by calls that pass it on, read from the syntax trees.

A call passes it on when the parameter, an attribute of it, an object made with it, or another form of it (`sorted(it)`, `[*it]`) is among
the arguments, or is the object whose method is called. What a function of the package returns is a new value, and an error that is raised
is no call. Calls are taken in the order in which they are evaluated, all branches one after the other; a function that was entered
before is entered, but not followed again. A function is found by its name, as imported; a method by the class of its object, as
annotations and constructors give it, else by its name where one class alone has it.

Nothing is run: a call through a value, such as a callback, is not seen.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from logging import Logger
from pathlib import Path
from typing import IO

from hudi_ingest_tests.support.source import Module, Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BUILTIN = {
    name for kind in (dict, list, set, str, bytes, deque, Path, Logger, datetime, Future, IO) for name in dir(kind)
}
"""Methods of common objects, whose class nothing may say."""


@dataclass(frozen=True)
class Way:
    """Where the parameter came by: the modules' paths in their order, each followed by another, and the functions entered."""

    stops: tuple[str, ...]
    functions: tuple[str, ...]
    climbs: tuple[str, ...]
    """Steps from a module to one in a higher room, as `from -> to`."""

    @property
    def modules(self) -> list[str]:
        return sorted({*self.stops})


@dataclass(frozen=True)
class _Class:
    module: Module
    name: str
    node: ast.ClassDef


@dataclass(frozen=True)
class _Function:
    module: Module
    name: str
    node: Function
    of: _Class | None = None

    @property
    def place(self) -> str:
        return f"{self.module.path}:{self.name}"

    @property
    def parameters(self) -> list[str]:
        arguments = self.node.args
        return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]


class Walker:
    """Walks through a package."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._functions: dict[str, dict[str, _Function]] = {}
        self._classes: dict[str, dict[str, _Class]] = {}
        self._names: dict[str, dict[str, tuple[str, str]]] = {}
        self._methods: dict[str, list[_Function]] = {}
        for module in source.modules:
            self._read(module)

    def _read(self, module: Module) -> None:
        functions: dict[str, _Function] = {}
        classes: dict[str, _Class] = {}
        names: dict[str, tuple[str, str]] = {}
        for node in module.tree.body:
            if isinstance(node, Function):
                functions[node.name] = _Function(module, node.name, node)
            elif isinstance(node, ast.ClassDef):
                owner = classes[node.name] = _Class(module, node.name, node)
                for method in node.body:
                    if isinstance(method, Function):
                        found = _Function(module, f"{node.name}.{method.name}", method, owner)
                        functions[found.name] = found
                        self._methods.setdefault(method.name, []).append(found)
        for each in ast.walk(module.tree):
            if isinstance(each, ast.ImportFrom):
                names |= {alias.asname or alias.name: (str(each.module), alias.name) for alias in each.names}
            elif isinstance(each, ast.Import):
                names |= {alias.asname: (alias.name, "") for alias in each.names if alias.asname}
        self._functions[module.name], self._classes[module.name], self._names[module.name] = functions, classes, names

    def way(self, start: str, without: Iterable[str] = ()) -> Way:
        """Follow a parameter. `start`: `path/of/module.py:function:parameter`, a method as `Class.method`; `without`: functions, likewise,
        that are not entered. Raises LookupError where there is none."""
        path, name, parameter = start.split(":")
        try:
            (module,) = (each for each in self._source.modules if each.path == path)
            function = self._functions[module.name][name]
        except (ValueError, KeyError):
            raise LookupError(f"{start}: there is no such function") from None
        if parameter not in function.parameters:
            raise LookupError(f"{start}: the function has no such parameter")
        trip = _Trip(self, {*without})
        trip.enter(function, {parameter})
        stops: list[str] = []
        for entered in trip.entered:
            if not stops or stops[-1] != entered.module.path:
                stops.append(entered.module.path)
        floor = {module.path: self._source.floors[module.room] for module in self._source.modules}
        climbs = [f"{low} -> {high}" for low, high in pairwise(stops) if floor[high] > floor[low]]
        return Way(tuple(stops), tuple(dict.fromkeys(each.place for each in trip.entered)), tuple(climbs))

    def named(self, module: str, name: str) -> _Function | _Class | str | None:
        """A function, a class or, by its name, a module that a name stands for in a module; None where it is none of the package's."""
        for _ in range(8):
            if name in self._functions.get(module, {}):
                return self._functions[module][name]
            if name in self._classes.get(module, {}):
                return self._classes[module][name]
            if name not in self._names.get(module, {}):
                return None
            origin, attribute = self._names[module][name]
            below = f"{origin}.{attribute}" if attribute else origin
            if below in self._source.by_name:
                return below
            module, name = origin, attribute
        return None

    def method(self, owner: _Class, name: str) -> _Function | None:
        """The method of a class or of one that it is made of."""
        found = self._functions[owner.module.name].get(f"{owner.name}.{name}")
        if found is not None:
            return found
        for base in owner.node.bases:
            above = self.named(owner.module.name, base.id) if isinstance(base, ast.Name) else None
            if isinstance(above, _Class) and above != owner and (found := self.method(above, name)):
                return found
        return None

    def only_method(self, name: str) -> _Function | None:
        """The method of that name where one class has it."""
        found = [] if name in _BUILTIN else self._methods.get(name, [])
        return found[0] if len(found) == 1 else None

    def class_of(self, module: str, annotation: ast.expr | None) -> _Class | None:
        """The package's class that an annotation names: the first of a union."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        if isinstance(annotation, ast.BinOp):
            return self.class_of(module, annotation.left) or self.class_of(module, annotation.right)
        found = self.named(module, annotation.id) if isinstance(annotation, ast.Name) else None
        return found if isinstance(found, _Class) else None

    def part(self, owner: _Class, name: str) -> _Class | None:
        """The class of an attribute: of a field, a property, or of what the constructor was given for it."""
        module = owner.module.name
        for node in owner.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return self.class_of(module, node.annotation)
            if isinstance(node, Function) and node.name == name:
                return self.class_of(module, node.returns)
        begin = self._functions[module].get(f"{owner.name}.__init__")
        for each in ast.walk(begin.node) if begin else ():
            target = (
                each.targets[0]
                if isinstance(each, ast.Assign)
                else each.target
                if isinstance(each, ast.AnnAssign)
                else None
            )
            if not (isinstance(target, ast.Attribute) and target.attr == name and begin):
                continue
            if isinstance(each, ast.AnnAssign):
                return self.class_of(module, each.annotation)
            classes = {
                a.arg: self.class_of(module, a.annotation) for a in (*begin.node.args.args, *begin.node.args.kwonlyargs)
            }
            assert isinstance(each, ast.Assign)
            return self.value(module, each.value, classes)
        for base in owner.node.bases:
            above = self.named(module, base.id) if isinstance(base, ast.Name) else None
            if isinstance(above, _Class) and above != owner:
                return self.part(above, name)
        return None

    def value(self, module: str, node: ast.expr, known: Mapping[str, _Class | None]) -> _Class | None:
        """The class of an expression's value, None where nothing says it."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(module, node.value, known)
            return self.part(owner, node.attr) if owner else None
        if isinstance(node, ast.Call):
            called = self.called(module, node.func, known)
            if isinstance(called, _Class):
                return called
            return self.class_of(called.module.name, called.node.returns) if called else None
        if isinstance(node, ast.IfExp):
            return self.value(module, node.body, known) or self.value(module, node.orelse, known)
        if isinstance(node, ast.BoolOp):
            return next(filter(None, (self.value(module, each, known) for each in node.values)), None)
        return None

    def called(self, module: str, func: ast.expr, known: Mapping[str, _Class | None]) -> _Function | _Class | None:
        """The function or the class that a call names."""
        if isinstance(func, ast.Name):
            found = self.named(module, func.id)
            return None if isinstance(found, str) else found
        if not isinstance(func, ast.Attribute):
            return None
        if isinstance(func.value, ast.Name) and func.value.id not in known:
            owner = self.named(module, func.value.id)
            if isinstance(owner, str):
                found = self.named(owner, func.attr)
                return None if isinstance(found, str) else found
            if isinstance(owner, _Class):
                return self.method(owner, func.attr)
        if isinstance(func.value, ast.Call) and isinstance(func.value.func, ast.Name) and func.value.func.id == "super":
            return None
        kind = self.value(module, func.value, known)
        return self.method(kind, func.attr) if kind else self.only_method(func.attr)


class _Trip:
    def __init__(self, walker: Walker, without: set[str]) -> None:
        self._walker = walker
        self._without = without
        self._returned: dict[str, set[str]] = {}
        self.entered: list[_Function] = []

    def enter(self, function: _Function, carried: set[str]) -> set[str]:
        """Follow a function whose parameters, or attributes of them, hold it. Returns the attributes of the object that do, for a
        constructor, such as `.offset`."""
        if function.place in self._without:
            return set()
        self.entered.append(function)
        if function.place not in self._returned:
            self._returned[function.place] = set()
            body = _Body(self, self._walker, function, carried)
            body.follow(function.node.body)
            self._returned[function.place] = body.returned
        return self._returned[function.place]


class _Body:
    """One function's body. `carried`: the names and attributes that hold the parameter, a part of it, or what became of it."""

    def __init__(self, trip: _Trip, walker: Walker, function: _Function, carried: set[str]) -> None:
        self._trip = trip
        self._walker = walker
        self._module = function.module.name
        self._carried = {*carried}
        self._results: dict[ast.Call, set[str]] = {}
        arguments = function.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self._known: dict[str, _Class | None] = {
            each.arg: walker.class_of(self._module, each.annotation) for each in every
        }
        self._begins = function.node.name == "__init__"
        if function.of is not None and function.parameters and not _is_static(function.node):
            self._known[function.parameters[0]] = function.of

    @property
    def returned(self) -> set[str]:
        return {path[4:] for path in self._carried if path.startswith("self.")} if self._begins else set()

    def follow(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self._follow(node)

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise):
            return
        if isinstance(node, ast.Assign):
            self._follow(node.value)
            for target in node.targets:
                self._follow(target)
                self._bind(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if node.value is not None:
                self._follow(node.value)
                self._bind(node.target, node.value)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._known[node.target.id] = self._walker.class_of(self._module, node.annotation)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._follow(node.iter)
            self._bind(node.target, node.iter)
            self.follow((*node.body, *node.orelse))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._follow(item.context_expr)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr)
            self.follow(node.body)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for loop in node.generators:
                self._follow(loop.iter)
                self._bind(loop.target, loop.iter)
                self.follow(loop.ifs)
            self.follow((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,))
        elif isinstance(node, ast.Call):
            self._results[node] = self._call(node)
        else:
            self.follow(ast.iter_child_nodes(node))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for number, each in enumerate(target.elts):
                self._bind(each, values[number] if len(values) == len(target.elts) else value)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value)
        elif path := _path(target):
            if isinstance(target, ast.Name):
                self._known[path] = self._walker.value(self._module, value, self._known)
            self._carried |= {path + part for part in self._parts(value)}

    def _parts(self, node: ast.AST) -> set[str]:
        """The parts of an expression's value that hold it: "" is all, ".offset" the attribute."""
        if path := _path(node):
            whole = {""} if any(f"{path}.".startswith(f"{held}.") for held in self._carried) else set()
            return whole | {held[len(path) :] for held in self._carried if held.startswith(f"{path}.")}
        if isinstance(node, ast.Call):
            return self._results.get(node, set())
        if isinstance(node, ast.Attribute):
            parts = self._parts(node.value)
            return ({""} & parts) | {
                part[len(node.attr) + 1 :] for part in parts if f"{part}.".startswith(f".{node.attr}.")
            }
        if isinstance(node, (ast.Compare, ast.JoinedStr, ast.Lambda, ast.Constant)):
            return set()
        if isinstance(node, (ast.IfExp, ast.BoolOp, ast.Await, ast.NamedExpr)):
            values = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*ast.iter_child_nodes(node)]
            return set().union(*map(self._parts, values))
        if isinstance(node, ast.Subscript):
            return {""} if self._parts(node.value) else set()
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return {""} if self._parts(node.elt) else set()
        return {""} if any(self._parts(child) for child in ast.iter_child_nodes(node)) else set()

    def _call(self, node: ast.Call) -> set[str]:
        self._follow(node.func)
        self.follow(node.args)
        self.follow(keyword.value for keyword in node.keywords)
        called = self._walker.called(self._module, node.func, self._known)
        given = node.func.value if isinstance(node.func, ast.Attribute) else None
        if called is None:
            # Another form of it.
            if isinstance(node.func, ast.Name) and node.func.id in _OTHER_VALUES:
                return set()
            values = [*node.args, *(keyword.value for keyword in node.keywords), *([given] if given else [])]
            return {""} if any("" in self._parts(value) for value in values) else set()
        if isinstance(called, _Class):
            begin = self._walker.method(called, "__init__")
            if begin is None:
                fields = [
                    each.target.id
                    for each in called.node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]
                return {f".{name}" for name in self._arguments(fields, node, 0)}
            called, given, shift = begin, None, 1
        else:
            shift = 1 if called.of and given is not None and not _is_static(called.node) else 0
        parameters = called.parameters
        carried = {*self._arguments(parameters, node, shift)}
        if shift and given is not None:
            carried |= {parameters[0] + part for part in self._parts(given)}
        return self._trip.enter(called, carried) if carried else set()

    def _arguments(self, parameters: Sequence[str], node: ast.Call, shift: int) -> Iterator[str]:
        for number, value in enumerate(node.args):
            name = parameters[number + shift] if number + shift < len(parameters) else "*"
            yield from (name + part for part in self._parts(value))
        for keyword in node.keywords:
            yield from (f"{keyword.arg or '**'}{part}" for part in self._parts(keyword.value))


_OTHER_VALUES = {"len", "isinstance", "bool", "any", "all", "repr", "str", "hash", "id", "type", "hasattr", "callable"}
"""Functions whose value is not another form of their argument."""


def _path(node: ast.AST) -> str:
    """`a.b.c` of a name and its attributes, "" of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _path(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _is_static(function: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in function.decorator_list)
