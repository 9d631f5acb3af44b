"""Constraints: text parsed into Python's syntax tree, checked and evaluated without `eval`.

The language: names, numbers, quoted words, `+ - * / // %`, comparisons (chains too), `in [...]`, `and or not`,
parentheses, and the functions `same_stage("a", "b", ...)` and `uniform(zero)` or `uniform(recompute)`, each of which is
a whole constraint.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from attrs import field, frozen

from nest.errors import InputError
from nest.records import Record

Value = int | float | str | bool

_ARITHMETIC: Mapping[type[ast.operator | ast.unaryop], tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.USub: ("-", operator.neg),
}
_COMPARISON: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}

UNIFORM_NAMES = frozenset({"zero", "recompute"})
"""Possible arguments of `uniform`."""

STAGE_NAMES = UNIFORM_NAMES | {"recompute_layers"}
"""Names with a value by stage."""

PLAN_NAMES = frozenset(
    {
        "pp",
        "dp",
        "replicas",
        "micro_batch",
        "micro_batches",
        "devices",
        "width",
        "schedule",
        "chunks",
        "rank_order",
        "zero_degree",
    }
)
"""Names with one value for the whole plan, besides the strategies' degrees."""

LONGEST = 1000
"""Most characters of a constraint."""

DEEPEST = 50
"""Most levels of nesting of a constraint."""

_ASSIGNMENT = r"(?<![<>=!])=(?!=)"


@frozen(eq=False, repr=False, slots=False)
class Constraint(Record):
    """One compiled constraint.

    Attributes:
        text: as written.
        expression: of a condition on numbers and words, checked; None for `same_stage` and `uniform`.
        same_stage: layer names that must share a stage.
        uniform: the stage choice that must be the same on every stage.
        reason: origin if not from the user: a clause after "because".
    """

    text: str
    expression: ast.expr | None = field(default=None, eq=False)
    same_stage: tuple[str, ...] = ()
    uniform: str | None = None
    reason: str | None = None

    def names(self) -> frozenset[str]:
        """Names in the expression."""
        return self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        # Listings of cases ask a hundred thousand times.
        nodes = () if self.expression is None else ast.walk(self.expression)
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name))

    @property
    def per_stage(self) -> bool:
        """True if the expression reads a choice made by stage."""
        return bool(self.names() & STAGE_NAMES)

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Evaluate the expression for `values`.

        Raises:
            InputError: the values cannot be combined (a division by zero, a word added to a number).
        """
        if self.expression is None:
            return True
        try:
            return bool(_evaluated(self.expression, values))
        except (TypeError, ArithmeticError) as error:
            raise InputError(f"constraint `{_short(self.text)}` cannot be computed: {error}.") from None


def equals(name: str, value: Value) -> Constraint:
    """Constraint `name == value`."""
    value_text = repr(value) if isinstance(value, str) else value
    text = f"{name} == {value_text}"
    return Constraint(text, ast.parse(text, mode="eval").body)


@lru_cache(maxsize=2**12)  # Limits of frameworks are the same texts for every plan: half of what pricing one took.
def parse(text: str) -> Constraint:
    """Parse a constraint.

    Raises:
        InputError: the text is not in the language of this module; names the faulty part.
    """
    tree = _tree(text)
    if isinstance(tree, ast.Call):
        return _call(tree, text)
    _check(tree, text)
    if not _is_condition(tree):
        raise InputError(
            f"constraint `{_short(text)}` is neither true nor false; compare it with something, as in `tp * cp <= 8`."
        )
    constraint = Constraint(text.strip(), tree)
    if not constraint.names():
        constraint.holds({})
    return constraint


def _tree(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise InputError(f"constraint `{_short(text)}` is longer than {LONGEST} characters; split it.")
    try:
        with warnings.catch_warnings():  # Python warns of odd escapes in quoted words.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        equality = "; equality is written `==`" if re.search(_ASSIGNMENT, text) else ""
        raise InputError(
            f"constraint `{_short(text)}` is not an expression such as `tp * cp <= 8`{equality}."
        ) from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise InputError(f"constraint `{_short(text)}` is nested more than {DEEPEST} levels deep; split it.")
    return tree


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _call(tree: ast.Call, text: str) -> Constraint:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    if name == "same_stage" and not tree.keywords:
        layers = [a.value for a in tree.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if len(layers) == len(tree.args) >= 2:
            return Constraint(text.strip(), same_stage=tuple(layers))
        raise InputError(f"constraint `{_short(text)}`: same_stage takes two or more quoted layer names.")
    if name == "uniform" and not tree.keywords:
        if len(tree.args) == 1 and isinstance(tree.args[0], ast.Name) and tree.args[0].id in UNIFORM_NAMES:
            return Constraint(text.strip(), uniform=tree.args[0].id)
        raise InputError(f"constraint `{_short(text)}`: uniform takes one of {', '.join(sorted(UNIFORM_NAMES))}.")
    raise InputError(
        f"constraint `{_short(text)}` calls something unknown; the functions are same_stage(...) and uniform(...)."
    )


def _check(tree: ast.expr, text: str) -> None:
    """Refuse everything outside the language.

    Raises:
        InputError: the text names the part.
    """
    parts: list[ast.expr] | None = None
    match tree:
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                _check(item, text)
            if all(isinstance(item, ast.Constant) for item in items):
                return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            parts = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=part):
            parts = [part]
        case ast.BoolOp(values=conditions):
            parts = conditions
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISON for op in ops):
            parts = [left, *others]
        case ast.Call(func=ast.Name(id="same_stage" | "uniform" as name)):
            raise InputError(f"constraint `{_short(text)}`: {name}(...) stands alone; list it on its own.")
    if parts is None:
        source = _short(ast.unparse(tree))
        raise InputError(
            f"constraint `{_short(text)}`: `{source}` is not allowed here; see docs/reference/constraints.md."
        )
    for each in parts:
        _check(each, text)


def _is_condition(tree: ast.expr) -> bool:
    """True if a checked tree is a truth value, not a number or a word."""
    match tree:
        case ast.Compare() | ast.Constant(value=bool()):
            return True
        case ast.BoolOp(values=parts):
            return all(map(_is_condition, parts))
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return _is_condition(part)
    return False


def _evaluated(tree: Any, values: Mapping[str, Value]) -> Any:
    """Value of a checked tree for the `values` of names.

    Raises:
        TypeError: a word in place of a number, or the reverse.
        ArithmeticError: a division by zero, or a number too large for floating point.
    """
    match tree:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.Compare(left=left, ops=ops, comparators=others):
            operand_values = [_evaluated(each, values) for each in (left, *others)]
            return all(
                _COMPARISON[type(op)](a, b) for op, a, b in zip(ops, operand_values, operand_values[1:], strict=False)
            )
        case ast.BoolOp(op=op, values=parts):
            results = (bool(_evaluated(part, values)) for part in parts)
            return all(results) if isinstance(op, ast.And) else any(results)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _evaluated(part, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _computed(op, (left, right), values)
        case ast.UnaryOp(op=op, operand=part):
            return _computed(op, (part,), values)
    return tuple(item.value for item in tree.elts)


def _computed(op: ast.operator | ast.unaryop, parts: Sequence[ast.expr], values: Mapping[str, Value]) -> Any:
    symbol, function = _ARITHMETIC[type(op)]
    numbers = []
    for part in parts:
        numbers.append(_evaluated(part, values))
        # Python also multiplies and formats words, into texts that fill the memory.
        if not isinstance(numbers[-1], (int, float)):
            raise TypeError(f"{symbol} takes numbers, not {numbers[-1]!r:.40}")
    return function(*numbers)
