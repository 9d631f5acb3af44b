"""Constraints: text to a syntax tree, and its evaluation. Nothing here calls `eval`.

The language: names, numbers, quoted words, `+ - * / // %`, comparisons (chains too), `in [...]`, `and or not`,
parentheses, and the functions `same_stage("a", "b", ...)` and `uniform(zero)` or `uniform(recompute)`, which stand
alone as a whole constraint.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from nest.errors import InputError

Value = int | float | str | bool


@frozen
class Name:
    """A name whose value the plan gives."""

    name: str


@frozen
class Literal:
    """A number, word or list of them."""

    value: Value | tuple[Value, ...]


@frozen
class Arithmetic:
    """An operation on numbers."""

    symbol: str
    operands: "tuple[Expression, ...]"


@frozen
class Comparison:
    """A chain `first op second op third ...`."""

    operands: "tuple[Expression, ...]"
    symbols: tuple[str, ...]


@frozen
class Logic:
    """`and`, `or` or `not` of conditions."""

    word: str
    operands: "tuple[Expression, ...]"


Expression = Name | Literal | Arithmetic | Comparison | Logic

_ARITHMETIC: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("/", 2): operator.truediv,
    ("//", 2): operator.floordiv,
    ("%", 2): operator.mod,
    ("-", 1): operator.neg,
}
_COMPARISON: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: item in items,
    "not in": lambda item, items: item not in items,
}


def names(expression: Expression) -> Iterator[str]:
    """The names `expression` reads."""
    match expression:
        case Name(name):
            yield name
        case Arithmetic(operands=operands) | Comparison(operands=operands) | Logic(operands=operands):
            for operand in operands:
                yield from names(operand)


def is_condition(expression: Expression) -> bool:
    """Whether `expression` is true or false, rather than a number or a word."""
    match expression:
        case Comparison() | Literal(value=bool()):
            return True
        case Logic(operands=operands):
            return all(is_condition(operand) for operand in operands)
    return False


def evaluate(expression: Expression, values: Mapping[str, Value]) -> Any:
    """Value of `expression` where names have `values`.

    Raises:
        TypeError: a word stands where a number belongs, or the other way round.
        ArithmeticError: a division by zero, or a number too large for floating point.
    """
    match expression:
        case Name(name):
            return values[name]
        case Literal(value):
            return value
        case Logic("not", operands):
            return not evaluate(operands[0], values)
        case Logic(word, operands):
            results = (bool(evaluate(operand, values)) for operand in operands)
            return all(results) if word == "and" else any(results)
        case Comparison(operands, symbols):
            found = [evaluate(operand, values) for operand in operands]
            return all(_COMPARISON[s](a, b) for s, a, b in zip(symbols, found, found[1:], strict=False))
        case Arithmetic(symbol, operands):
            # Python also multiplies and formats words, into texts that fill the memory.
            numbers = [_number(evaluate(operand, values), symbol) for operand in operands]
            return _ARITHMETIC[symbol, len(numbers)](*numbers)


def _number(value: Any, symbol: str) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"{symbol} takes numbers, not {value!r:.40}")


__all__ = ["PLAN_NAMES", "STAGE_NAMES", "Constraint", "Value", "equals", "parse"]

STAGE_NAMES = frozenset({"zero", "recompute"})
"""Names whose value each stage chooses for itself."""

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
"""Names with one value for the whole plan, beside the strategies' degrees."""

LONGEST = 1000
"""Characters of one constraint."""

DEEPEST = 50
"""Levels of nesting of one constraint."""

_ASSIGNMENT = re.compile(r"(?<![<>=!])=(?!=)")

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


@frozen
class Constraint:
    """One compiled constraint.

    Attributes:
        text: as written.
        expression: for a condition on numbers and words; None for `same_stage` and `uniform`.
        same_stage: layer names that must share a stage.
        uniform: the stage choice that must be the same on every stage.
        reason: why it is there, where not a person asked for it: a clause that reads on after "because".
    """

    text: str
    expression: Expression | None = None
    same_stage: tuple[str, ...] = ()
    uniform: str | None = None
    reason: str | None = None

    def names(self) -> frozenset[str]:
        """Names the expression reads."""
        return frozenset(names(self.expression)) if self.expression is not None else frozenset()

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
        except (TypeError, ArithmeticError) as error:
            raise InputError(f"constraint `{_short(self.text)}` cannot be computed: {error}.") from None


def equals(name: str, value: Value) -> Constraint:
    """The constraint `name == value`."""
    shown = repr(value) if isinstance(value, str) else value
    return Constraint(f"{name} == {shown}", Comparison((Name(name), Literal(value)), ("==",)))


def parse(text: str) -> Constraint:
    """The constraint that `text` says.

    Raises:
        InputError: the text is not in the language of this module; names the part that is not.
    """
    tree = _tree(text)
    if isinstance(tree, ast.Call):
        return _call(tree, text)
    constraint = Constraint(text.strip(), _convert(tree, text))
    if constraint.expression is None or not is_condition(constraint.expression):
        raise InputError(
            f"constraint `{_short(text)}` is neither true nor false; compare it with something, as in `tp * cp <= 8`."
        )
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
        equality = "; equality is written `==`" if _ASSIGNMENT.search(text) else ""
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
            return Arithmetic(_BINARY[type(op)], (_convert(left, text), _convert(right, text)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Arithmetic("-", (_convert(operand, text),))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Logic("not", (_convert(operand, text),))
        case ast.BoolOp(op=op, values=parts):
            return Logic("and" if isinstance(op, ast.And) else "or", tuple(_convert(part, text) for part in parts))
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in _COMPARE for op in ops):
            symbols = tuple(_COMPARE[type(op)] for op in ops)
            return Comparison(tuple(_convert(part, text) for part in (left, *rest)), symbols)
        case ast.Call(func=ast.Name(id="same_stage" | "uniform" as name)):
            raise InputError(f"constraint `{_short(text)}`: {name}(...) stands alone; list it on its own.")
    part = ast.unparse(tree)
    raise InputError(
        f"constraint `{_short(text)}`: `{_short(part)}` is not allowed here; see docs/reference/constraints.md."
    )
