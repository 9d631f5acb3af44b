"""Expressions of the constraint language: a small syntax tree and its evaluation. Nothing here calls `eval`."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

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
