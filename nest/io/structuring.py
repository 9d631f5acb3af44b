"""Plain mappings to frozen records and back: cattrs dispatches on types, and mistakes are collected with their paths.

A record class may set its written form by class variables:

- `WRITTEN_UNDER = "transformer"`: beside other kinds of value it is written as `{transformer: {...}}`.
- `REST_IN = "values"`: keys that are no fields are gathered in this field.
- `WRITTEN_SHORT = "name"`: a single word stands for a record with only this field.
- `KEEP_NONE = True`: fields that are None by default are written too.
"""

import operator
import types
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import attrs

from nest.errors import FieldError, FieldErrors, InputError, Steps
from nest.io.names import nearest
from nest.units import COUNTS, LARGEST_WHOLE, QUANTITIES, displayed, parse, parse_count

if TYPE_CHECKING:
    from cattrs import Converter


@cache
def converter(own: bool = False) -> "Converter":
    """Return the converter of every file; nest's `own` files keep numbers and texts as they are."""
    from cattrs import Converter

    made = Converter(forbid_extra_keys=True, detailed_validation=False)
    for plain, hook in ((int, _integer), (float, _float), (bool, _boolean), (str, _word)):
        made.register_structure_hook(plain, _as_is if own else hook)
    for kind in QUANTITIES:
        made.register_structure_hook_func(partial(operator.is_, kind), _as_is if own else _quantity)
    for kind in COUNTS:
        made.register_structure_hook_func(partial(operator.eq, kind), _as_is if own else _count)
    made.register_structure_hook_factory(attrs.has, partial(_record_hook, made=made))
    for origins, of_cls in (((tuple,), _tuple_hook), ((dict,), _mapping_hook), ((Union, types.UnionType), _union_hook)):
        made.register_structure_hook_factory(partial(_has_origin, origins), partial(of_cls, made=made))
    return made


def _has_origin(origins: tuple[Any, ...], cls: Any) -> bool:
    return get_origin(cls) in origins


def _as_is(value: Any, _: Any) -> Any:
    return value


def _integer(value: Any, _: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        quoted = "; leave the quotes out" if isinstance(value, str) and value.strip().isdecimal() else ""
        raise FieldError((), f"must be a whole number, is {displayed(value)}{quoted}")
    if abs(value) > LARGEST_WHOLE:
        raise FieldError((), "is too large: whole numbers go up to 2**53")
    return value


def _float(value: Any, _: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        percent = "; write a share, such as 0.05 for 5 %" if isinstance(value, str) and value.endswith("%") else ""
        raise FieldError((), f"must be a number, is {displayed(value)}{percent}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number != number or number in (float("inf"), float("-inf")):
        raise FieldError((), f"must be a finite number, is {displayed(value)}")
    return number


def _boolean(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldError((), f"must be true or false, is {displayed(value)}")
    return value


def _word(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise FieldError((), f"must be text, is {displayed(value)}")
    return value


def _quantity(value: Any, kind: Any) -> float:
    try:
        return parse(value, kind)
    except ValueError as error:
        raise FieldError((), str(error)) from None


def _count(value: Any, kind: Any) -> int:
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            value = parse_count(value, kind)
        except ValueError as error:
            raise FieldError((), str(error)) from None
    return _integer(value, int)


def _tuple_hook(cls: Any, made: "Converter") -> Callable[[Any, Any], tuple[Any, ...]]:
    """Convert lists to tuples; one item may stand for a list of one, if any number is allowed."""
    arguments = get_args(cls)
    open_ended = len(arguments) == 2 and arguments[1] is Ellipsis

    def structure(value: Any, _: Any) -> tuple[Any, ...]:
        if open_ended and isinstance(value, (bool, int, float, str)):
            return (made.structure(value, arguments[0]),)
        if not isinstance(value, (list, tuple)):
            raise FieldError((), f"must be a list, is {displayed(value)}")
        if not open_ended and len(value) != len(arguments):
            raise FieldError((), f"must be a list of {len(arguments)} items, has {len(value)}")
        kinds = [arguments[0]] * len(value) if open_ended else arguments
        items, mistakes = [], []
        for index, (item, kind) in enumerate(zip(value, kinds, strict=True)):
            try:
                items.append(made.structure(item, kind))
            except FieldErrors as wrong:
                mistakes += wrong.below(index)
        if mistakes:
            raise FieldErrors(mistakes)
        return tuple(items)

    return structure


def _mapping_hook(cls: Any, made: "Converter") -> Callable[[Any, Any], dict[str, Any]]:
    kind = get_args(cls)[1]

    def structure(value: Any, _: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise FieldError((), f"must hold keys and values, is {displayed(value)}")
        items, mistakes = {}, []
        for key, item in value.items():
            try:
                items[key] = item if kind is Any else made.structure(item, kind)
            except FieldErrors as wrong:
                mistakes += wrong.below(key)
        if mistakes:
            raise FieldErrors(mistakes)
        return items

    return structure


def _union_hook(cls: Any, made: "Converter") -> Callable[[Any, Any], Any]:
    """Choose the member of a union by the kind of value, and by `WRITTEN_UNDER`."""
    members = [member for member in get_args(cls) if member is not type(None)]
    optional = len(members) < len(get_args(cls))
    records = [member for member in members if attrs.has(member)]

    def structure(value: Any, _: Any) -> Any:
        if value is None and optional:
            return None
        if len(members) == 1:
            return made.structure(value, members[0])
        if any(isinstance(value, record) for record in records):
            return value
        member = _written_as(value, members)
        if member is None:
            raise FieldError((), f"must be {_messages(members)}, is {displayed(value)}")
        tag = getattr(member, "WRITTEN_UNDER", None)
        return made.structure(value, member) if tag is None else _below_tag(value, tag, member)

    def _below_tag(value: Mapping[str, Any], tag: str, record: Any) -> Any:
        extra = [FieldError((key,), f"cannot stand beside {tag}") for key in value if key != tag]
        if extra:
            raise FieldErrors(extra)
        try:
            return made.structure(value[tag], record)
        except FieldErrors as wrong:
            raise FieldErrors(wrong.below(tag)) from None

    return structure


def _written_as(value: Any, members: list[Any]) -> Any:
    for member in members:
        if type(value) is member:
            return member
    return next((member for member in members if _may_stand_for(value, member)), None)


def _may_stand_for(value: Any, member: Any) -> bool:
    if isinstance(value, Mapping):
        tag = getattr(member, "WRITTEN_UNDER", None)
        return get_origin(member) is dict or (attrs.has(member) and (tag is None or tag in value))
    if isinstance(value, (list, tuple)):
        return get_origin(member) is tuple
    if isinstance(value, str):
        # A list of one may be written without brackets, as where there is no union.
        return member in QUANTITIES or member in COUNTS or member is str or get_args(member)[1:] == (...,)
    if isinstance(value, bool) or value is None:
        return False
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return member in QUANTITIES or member is float or ((member is int or member in COUNTS) and whole)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _messages(members: list[Any]) -> str:
    words = [
        _WORDS.get(int if member in COUNTS else member)
        or (QUANTITIES[member].sentence if member in QUANTITIES else None)
        or ("a list" if get_origin(member) is tuple else "keys and values")
        for member in members
    ]
    return " or ".join(dict.fromkeys(words))


def _record_hook(cls: Any, made: "Converter") -> Callable[[Any, Any], Any]:
    fields = attrs.fields_dict(cls)
    hints = get_type_hints(cls, include_extras=True)
    rest = getattr(cls, "REST_IN", None)
    short = getattr(cls, "WRITTEN_SHORT", None)

    def structure(value: Any, _: Any) -> Any:
        if isinstance(value, cls):
            return value
        if short is not None and isinstance(value, str):
            value = {short: value}
        if not isinstance(value, Mapping):
            raise FieldError((), f"must hold keys and values, is {displayed(value)}")
        given = {key: item for key, item in value.items() if key in fields and key != rest}
        others = {key: item for key, item in value.items() if key not in given}
        mistakes = [] if rest else _unknown(others, fields)
        values: dict[str, Any] = {}
        for name, item in given.items():
            if item is None and fields[name].default is not attrs.NOTHING and type(None) not in get_args(hints[name]):
                mistakes.append(FieldError((name,), "has no value; give one or leave the key out"))
                continue
            mistakes += _into(values, name, (name,), item, hints[name], made)
        if rest:
            mistakes += _into(values, rest, (), others, hints[rest], made)
        missing = [n for n, f in fields.items() if f.default is attrs.NOTHING and n not in value and n != rest]
        mistakes += [FieldError((name,), "is missing") for name in missing]
        mistakes += _validate(fields, values)
        if mistakes:
            raise FieldErrors(mistakes)
        return _build(cls, values)

    return structure


def _into(values: dict[str, Any], name: str, steps: Steps, item: Any, hint: Any, made: "Converter") -> list[FieldError]:
    try:
        values[name] = item if hint is Any else made.structure(item, hint)
    except FieldErrors as wrong:
        return wrong.below(*steps)
    return []


def _unknown(keys: Mapping[str, Any], fields: Mapping[str, Any]) -> list[FieldError]:
    return [
        FieldError((key,), f"is not a known key; {nearest(str(key), fields, value)}") for key, value in keys.items()
    ]


def _validate(fields: Mapping[str, Any], values: Mapping[str, Any]) -> list[FieldError]:
    """Run each field's validator separately, so that one mistake hides no other."""
    mistakes: list[FieldError] = []
    for name, value in values.items():
        validator = fields[name].validator
        if validator is not None:
            try:
                validator(None, fields[name], value)
            except FieldErrors as error:
                mistakes += error.errors
    return mistakes


def _build(cls: Any, values: Mapping[str, Any]) -> Any:
    try:
        return cls(**values)
    except InputError as error:
        raise FieldError((), str(error).rstrip(".")) from None


def unstructure(value: Any) -> Any:
    """Convert `value` to mappings, lists and scalars, as `structure` reads them.

    A field that is None by default is left out, unless its class says `KEEP_NONE = True`.
    """
    if attrs.has(type(value)):
        written = _record(value)
        tag = getattr(value, "WRITTEN_UNDER", None)
        return {tag: written} if tag is not None else written
    if isinstance(value, Mapping):
        return {str(key): unstructure(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [unstructure(item) for item in value]
    return value


def _record(record: Any) -> dict[str, Any]:
    rest = getattr(record, "REST_IN", None)
    keep = getattr(record, "KEEP_NONE", False)
    values: dict[str, Any] = {}
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if field.name == rest:
            values.update(unstructure(value))
        elif value is not None or field.default is not None or keep:
            values[field.name] = unstructure(value)
    return values
