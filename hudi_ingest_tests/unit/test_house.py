"""The size and shape of the package, within the budgets of hudi_ingest_tests/surfaces/house.json. A budget only goes down.

`hudi_ingest_tests/support/house.py` says how each number is measured, and `support/walk.py` how a parameter's way is followed. `make house`
prints all numbers with their budgets and goals, `make house ARGS="--places CIRCLES"` the places that a number counts, and `make docs` writes the
budgets that have become lower. A change that needs more of something takes as much away in the same commit.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from hudi_ingest_tests.support import configuration_page, house
from hudi_ingest_tests.support.source import Source, circles
from hudi_ingest_tests.support.walk import Walker

pytestmark = pytest.mark.fast

RULES = house.budgets()


@cache
def measured() -> dict[str, house.Measure]:
    return {measure.name: measure for measure in house.measures(RULES)}


@pytest.mark.parametrize("name", RULES["budgets"])
def test_a_number_keeps_within_its_budget(name: str) -> None:
    measure = measured()[name]
    places = "".join(f"\n  {place}" for place in measure.places)
    assert not house.over_budget(measure, RULES), (
        f"{name}: {measure.value:,}, and house.json allows {RULES['budgets'][name]:,}. Take something away; house.py says how it is measured.{places}"
    )


def test_each_number_has_a_budget() -> None:
    assert {*measured()} == {*RULES["budgets"]}
    assert {*RULES["goals"]} <= {*RULES["budgets"]}


def test_each_mutable_container_has_a_reason() -> None:
    found = {*measured()["mutable containers at module level"].places}
    assert found - {*RULES["containers"]} == set(), "say in house.json why it must outlive a call, and who empties it"
    assert all(RULES["containers"].values())


def test_the_keys_of_settings_are_those_of_the_page() -> None:
    page = configuration_page.render()
    keys = [*configuration_page.settings()]
    assert len(keys) > 200
    assert [key for key in keys if f"\n| `{key.rpartition('.')[2]}` |" not in page] == []


def package(folder: Path, modules: dict[str, str]) -> Source:
    """A package named `shop` with these modules."""
    for path, text in {"__init__.py": "", **modules}.items():
        folder.joinpath("shop", path).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath("shop", path).write_text(text, encoding="utf-8")
    return Source(folder / "shop")


SHOP = {
    "rest/__init__.py": "",
    "rest/pages.py": """
from shop.stock import Shelf, count, other

def page(order, reader):
    shelf = Shelf(order.item)
    count(3)
    if shelf.has():
        reader(order)
    sizes = [*order.sizes]
    return other(f"{order}"), later(sizes)

def later(sizes):
    number = len(sizes)
    return count(number)
""",
    "stock.py": """
from shop.words import say

class Shelf:
    def __init__(self, item):
        self.item = item
        self.number = 0

    def has(self):
        count(self.number)
        return say(self.item)

def count(number):
    return number

def other(text):
    return count(text)
""",
    "words.py": """
def say(item):
    return item
""",
}


def test_a_way_is_followed_by_calls_that_pass_the_parameter_on(tmp_path: Path) -> None:
    way = Walker(package(tmp_path, SHOP)).way("rest/pages.py:page:order")
    assert way.functions == (
        "rest/pages.py:page",
        "stock.py:Shelf.__init__",
        "stock.py:Shelf.has",
        "words.py:say",
        "rest/pages.py:later",
    )
    assert way.stops == ("rest/pages.py", "stock.py", "words.py", "rest/pages.py")
    assert way.climbs == ("words.py -> rest/pages.py",)
    assert Walker(package(tmp_path, SHOP)).way("rest/pages.py:page:order", ["stock.py:Shelf.has"]).climbs == (
        "stock.py -> rest/pages.py",
    )


@pytest.mark.parametrize("start", ["rest/pages.py:page:orders", "rest/pages.py:pages:order", "pages.py:page:order"])
def test_a_way_that_begins_nowhere_is_refused(tmp_path: Path, start: str) -> None:
    with pytest.raises(LookupError, match=start):
        Walker(package(tmp_path, SHOP)).way(start)


def test_circles_are_found_through_imports_in_functions_and_not_through_those_for_type_checkers(tmp_path: Path) -> None:
    modules = {
        "a.py": "from shop import b\n",
        "b.py": "def use():\n    from shop.c import C\n",
        "c.py": "import shop.a\n",
        "d.py": "from typing import TYPE_CHECKING\nimport shop.a\nif TYPE_CHECKING:\n    import shop.e\n",
        "e.py": "import shop.d\n",
    }
    assert circles(package(tmp_path, modules).imports) == [["shop.a", "shop.b", "shop.c"]]


@pytest.mark.parametrize(
    ("code", "ways"),
    [
        ("return 1", 1),
        ("if a and b or c: return 1", 4),
        ("return [x for x in a if x if y]", 4),
        ("for x in a:\n        try: b()\n        except (E, F): pass\n        except G: pass", 4),
        ("def inner():\n        return 1 if a else 2", 2),
    ],
)
def test_complexity_counts_the_ways_through_a_function(code: str, ways: int) -> None:
    function = ast.parse(f"def f(a, b, c):\n    {code}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert house.complexity(function) == ways


@pytest.mark.parametrize(
    ("value", "over"), [([9, 11], []), ([12, 11], ["lines"]), ([9, 10], ["docstrings and comments in 100 lines"])]
)
def test_a_budget_that_is_kept_only_goes_down(value: Sequence[float], over: Sequence[str]) -> None:
    names = ["lines", "docstrings and comments in 100 lines"]
    rules = {
        "budgets": dict(zip(names, [10, 11], strict=True)),
        "containers": {"a.py:_kept": "why", "b.py:_gone": "why"},
    }
    found = [house.Measure(name, each) for name, each in zip(names, value, strict=True)]
    assert [measure.name for measure in found if house.over_budget(measure, rules)] == over
    lowered = house.lowered(rules, [*found, house.Measure("mutable containers at module level", 1, ["a.py:_kept"])])
    assert lowered["containers"] == {"a.py:_kept": "why"}
    assert lowered["budgets"] == {"lines": min(10, value[0]), names[1]: 11}
