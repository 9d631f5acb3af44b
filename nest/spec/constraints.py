"""Constraint expressions: text to a small syntax tree, and its evaluation. Nothing here calls `eval`.

The language: names, numbers, quoted words, `+ - * / // %`, comparisons (chains too), `in [...]`, `and or not`,
parentheses, and the functions `same_stage("a", "b", ...)` and `uniform(zero)` or `uniform(recompute)`, which stand
alone as a whole constraint.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from nest.errors import InputError

Value = int | float | str | bool
STAGE_NAMES = frozenset({"zero", "recompute"})
"""Names whose value each stage chooses for itself."""

PLAN_NAMES = frozenset(
    {"pp", "dp", "replicas", "micro_batch", "micro_batches", "devices", "width", "schedule", "rank_order"}
)
"""Names with one value for the whole plan, beside the strategies' degrees."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@frozen
class Name:
    """A name whose value the plan gives."""

    name: str


@frozen
class Literal:
    """A number, word or list of them."""

    value: Value | tuple[Value, ...]


@frozen
class Apply:
    """An operation on expressions."""

    symbol: str
    function: Callable[..., Any]
    arguments: "tuple[Expression, ...]"


@frozen
class Comparison:
    """A chain `first op second op third ...`."""

    operands: "tuple[Expression, ...]"
    functions: tuple[Callable[[Any, Any], bool], ...]


@frozen
class Logic:
    """`and` (every) or `or` (any) of expressions."""

    every: bool
    arguments: "tuple[Expression, ...]"


Expression = Name | Literal | Apply | Comparison | Logic


@frozen
class Constraint:
    """One compiled constraint.

    Attributes:
        text: as written.
        expression: for a condition on numbers and words; None for `same_stage` and `uniform`.
        same_stage: layer names that must share a stage.
        uniform: the stage choice that must be the same on every stage.
    """

    text: str
    expression: Expression | None = None
    same_stage: tuple[str, ...] = ()
    uniform: str | None = None

    def names(self) -> frozenset[str]:
        """Names the expression reads."""
        return frozenset(_names(self.expression)) if self.expression is not None else frozenset()

    @property
    def per_stage(self) -> bool:
        """Whether the expression reads a choice each stage makes for itself."""
        return bool(self.names() & STAGE_NAMES)

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the expression is true of `values`.

        Raises:
            InputError: the values cannot be combined as the expression asks (a division by zero, a word added
                to a number).
        """
        if self.expression is None:
            return True
        try:
            return bool(evaluate(self.expression, values))
        except (TypeError, ZeroDivisionError, ArithmeticError) as error:
            raise InputError(f"constraint `{self.text}` cannot be computed: {error}.") from None


def equals(name: str, value: Value) -> Constraint:
    """The constraint `name == value`."""
    shown = repr(value) if isinstance(value, str) else value
    return Constraint(f"{name} == {shown}", Comparison((Name(name), Literal(value)), (operator.eq,)))


def _names(expression: Expression) -> Iterator[str]:
    match expression:
        case Name(name):
            yield name
        case Literal():
            return
        case Comparison(operands=arguments) | Apply(arguments=arguments) | Logic(arguments=arguments):
            for argument in arguments:
                yield from _names(argument)


def evaluate(expression: Expression, values: Mapping[str, Value]) -> Any:
    """Value of `expression` where names have `values`."""
    match expression:
        case Name(name):
            return values[name]
        case Literal(value):
            return value
        case Apply(_, function, arguments):
            return function(*(evaluate(argument, values) for argument in arguments))
        case Logic(every, arguments):
            results = (bool(evaluate(argument, values)) for argument in arguments)
            return all(results) if every else any(results)
        case Comparison(operands, functions):
            numbers = [evaluate(operand, values) for operand in operands]
            return all(f(a, b) for f, a, b in zip(functions, numbers, numbers[1:], strict=False))


def parse(text: str) -> Constraint:
    """The constraint that `text` says.

    Raises:
        InputError: the text is not in the language of this module; names the part that is not.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"constraint `{_short(text)}` is not an expression such as `tp * cp <= 8`.") from None
    if isinstance(tree, ast.Call):
        return _call(tree, text)
    return Constraint(text.strip(), _convert(tree, text))


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
        if len(tree.args) == 1 and isinstance(tree.args[0], ast.Name) and tree.args[0].id in STAGE_NAMES:
            return Constraint(text.strip(), uniform=tree.args[0].id)
        raise InputError(f"constraint `{_short(text)}`: uniform takes one of {', '.join(sorted(STAGE_NAMES))}.")
    raise InputError(
        f"constraint `{_short(text)}` calls something unknown; the functions are same_stage(...) and uniform(...)."
    )


def _convert(tree: ast.expr, text: str) -> Expression:
    match tree:
        case ast.Name(id=name):
            return Name(name)
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return Literal(value)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            values = [_convert(item, text) for item in items]
            if all(isinstance(v, Literal) and not isinstance(v.value, tuple) for v in values):
                return Literal(tuple(v.value for v in values if isinstance(v, Literal)))  # type: ignore[misc]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return Apply(type(op).__name__, _BINARY[type(op)], (_convert(left, text), _convert(right, text)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Apply("USub", operator.neg, (_convert(operand, text),))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Apply("Not", operator.not_, (_convert(operand, text),))
        case ast.BoolOp(op=op, values=parts):
            return Logic(isinstance(op, ast.And), tuple(_convert(part, text) for part in parts))
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in _COMPARE for op in ops):
            return Comparison(
                tuple(_convert(part, text) for part in (left, *rest)), tuple(_COMPARE[type(op)] for op in ops)
            )
        case ast.Call(func=ast.Name(id="same_stage" | "uniform" as name)):
            raise InputError(f"constraint `{_short(text)}`: {name}(...) stands alone; list it on its own.")
    part = ast.unparse(tree)
    raise InputError(
        f"constraint `{_short(text)}`: `{_short(part)}` is not allowed here; see docs/reference/constraints.md."
    )
