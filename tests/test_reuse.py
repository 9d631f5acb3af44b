"""What objects remember, and what goes when there is no room."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import define, field

from nest.reuse import BoundedCache, remembered

NEST = Path(__file__).resolve().parent.parent / "nest"
BY_IDENTITY = {"hooks/graph_results.py", "hooks/unchanged.py", "io/source.py", "solve/dp/stages.py"}
"""Where one call asks which objects are the same, of objects that it holds: nothing is remembered by that."""

FEW_ARGUMENTS = {
    "catalogue/load.py _names",
    "catalogue/load.py estimate_error",
    "catalogue/load.py time_spread",
    "cli/app.py _commands_of",
    "hooks/registry.py _shared",
    "hooks/unchanged.py _reader",
    "io/structuring.py converter",
    "network/circuits.py all_orders",
    "records.py _compared",
}
"""Functions that may be asked about a few names, classes or small numbers alone."""

NO_CACHES = {"io/source.py _pipes", "solve/dp/screen.py NO_BOUNDS"}
"""Mappings of modules that are no caches: what cannot be read again, and one that stays empty."""


@cache
def _trees() -> tuple[tuple[str, ast.Module], ...]:
    return tuple((path.relative_to(NEST).as_posix(), ast.parse(path.read_text())) for path in NEST.rglob("*.py"))


def _name(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _decorated(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from ((node, _name(each)) for each in node.decorator_list)


@pytest.mark.longer
def test_nothing_is_remembered_by_identity() -> None:
    calls = ((name, node) for name, tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert {name for name, call in calls if _name(call) == "id"} == BY_IDENTITY


@pytest.mark.longer
def test_no_method_is_remembered_for_all_objects() -> None:
    """`functools.cache` on a method keeps every object that was ever asked."""
    of_all = [
        f"{name} {node.name}.{method.name}"
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for method, decorator in _decorated(ast.Module(node.body, []))
        if decorator in ("cache", "lru_cache")
    ]
    assert not of_all


@pytest.mark.longer
def test_what_functions_remember_is_bounded() -> None:
    unbounded = {
        f"{name} {function.name}"
        for name, tree in _trees()
        for function, decorator in _decorated(tree)
        if decorator == "cache" and (function.args.args or function.args.vararg)
    }
    assert unbounded == FEW_ARGUMENTS
    sizes = [each for name, tree in _trees() for each in ast.walk(tree) if isinstance(each, ast.Call)]
    assert all(each.keywords or each.args for each in sizes if _name(each) == "lru_cache")


@pytest.mark.longer
def test_no_module_has_a_mapping_for_a_cache() -> None:
    kinds = ("dict", "OrderedDict", "defaultdict", "WeakKeyDictionary", "WeakValueDictionary")
    empty = {
        f"{name} {ast.unparse(target)}"
        for name, tree in _trees()
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if ast.unparse(node.value) == "{}"
        or (
            isinstance(node.value, ast.Call)
            and not node.value.args
            and not node.value.keywords
            and _name(node.value) in kinds
        )
    }
    assert empty == NO_CACHES


@define(eq=False, slots=False)
class _Adder:
    asked: list[str] = field(factory=list)

    @remembered
    def plus(self, one: int, other: int = 1) -> int:
        self.asked.append(f"{one} + {other}")
        return one + other

    @remembered
    def nothing(self, of: object) -> None:
        self.asked.append("nothing")


def test_an_object_asks_itself_once_for_the_same_arguments() -> None:
    adder, other = _Adder(), _Adder()
    assert [adder.plus(1, 2), adder.plus(1, 2), adder.plus(2, 1), adder.plus(1, other=2)] == [3, 3, 3, 3]
    assert adder.asked == ["1 + 2", "2 + 1", "1 + 2"]
    assert other.plus(1, 2) == 3
    assert other.asked == ["1 + 2"]


def test_none_and_the_identity_of_objects_without_equality_are_remembered() -> None:
    adder, one = _Adder(), _Adder()
    for each in (one, one, _Adder()):
        assert adder.nothing(each) is None
    assert adder.asked == ["nothing", "nothing"]


def test_an_override_remembers_apart_from_what_it_overrides() -> None:
    class Doubling(_Adder):
        @remembered
        def plus(self, one: int, other: int = 1) -> int:
            return 2 * super().plus(one, other)

    doubling = Doubling()
    assert [doubling.plus(1, 2), doubling.plus(1, 2), _Adder.plus(doubling, 1, 2)] == [6, 6, 3]


def test_a_failure_is_not_remembered() -> None:
    @define(slots=False)
    class Failing:
        left: int = 1

        @remembered
        def value(self) -> int:
            self.left -= 1
            if self.left >= 0:
                raise ValueError
            return self.left

    failing = Failing()
    with pytest.raises(ValueError, match=r"^$"):
        failing.value()
    assert failing.value() == failing.value() == -1


def test_what_was_used_longest_ago_makes_room_and_the_latest_stays() -> None:
    made: list[int] = []
    values = BoundedCache[int](5, float)

    def value(size: int) -> int:
        def make() -> int:
            made.append(size)
            return size

        return values.of(size, make)

    assert [value(each) for each in (2, 3, 2, 1, 3, 9, 9, 1)] == [2, 3, 2, 1, 3, 9, 9, 1]
    assert made == [2, 3, 1, 3, 9, 1]
