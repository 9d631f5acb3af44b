"""Plain mappings to frozen records: cattrs dispatches on types, and every mistake is collected with its path.

A record class may say how it is written, by class variables:

- `WRITTEN_UNDER = "transformer"`: in place of other kinds of value it is written as `{transformer: {...}}`.
- `REST_IN = "values"`: keys that are no fields are gathered in this field.
- `WRITTEN_SHORT = "name"`: a single word stands for a record with only this field.
"""

import operator
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
from cattrs import Converter

from nest.errors import FieldError, InputError
from nest.files.source import Mistake, Steps
from nest.units import UNITS, parse

LARGEST = 2**53
"""Whole numbers above this are not all told apart by float64."""


class Mistakes(Exception):  # noqa: N818 - a bundle of mistakes, never shown by this name
    """Everything wrong with one value."""

    def __init__(self, found: list[Mistake]) -> None:
        self.found = found
        super().__init__(found)

    @classmethod
    def one(cls, sentence: str) -> "Mistakes":
        """A single mistake, at the value itself."""
        return cls([Mistake((), sentence)])

    def below(self, *steps: str | int) -> list[Mistake]:
        """The mistakes as seen from further up."""
        return [attrs.evolve(mistake, steps=(*steps, *mistake.steps)) for mistake in self.found]


@cache
def converter() -> Converter:
    """The converter every file goes through."""
    made = Converter(forbid_extra_keys=True, detailed_validation=False)
    made.register_structure_hook(int, _integer)
    made.register_structure_hook(float, _float)
    made.register_structure_hook(bool, _boolean)
    made.register_structure_hook(str, _word)
    for kind in UNITS:
        made.register_structure_hook_func(partial(operator.is_, kind), _quantity)
    made.register_structure_hook_factory(attrs.has, partial(_record_hook, made=made))
    for origins, hook in (((tuple,), _tuple_hook), ((dict,), _mapping_hook), ((Union, types.UnionType), _union_hook)):
        made.register_structure_hook_factory(partial(_has_origin, origins), partial(hook, made=made))
    return made


def _has_origin(origins: tuple[Any, ...], cls: Any) -> bool:
    return get_origin(cls) in origins


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _integer(value: Any, _: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Mistakes.one(f"must be a whole number, is {_shown(value)}")
    if abs(value) > LARGEST:
        raise Mistakes.one("is too large: whole numbers go up to 2**53")
    return value


def _float(value: Any, _: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Mistakes.one(f"must be a number, is {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number != number or number in (float("inf"), float("-inf")):
        raise Mistakes.one(f"must be a finite number, is {_shown(value)}")
    return number


def _boolean(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise Mistakes.one(f"must be true or false, is {_shown(value)}")
    return value


def _word(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise Mistakes.one(f"must be text, is {_shown(value)}")
    return value


def _quantity(value: Any, kind: Any) -> float:
    try:
        return parse(value, kind)
    except ValueError as error:
        raise Mistakes.one(str(error)) from None


def _tuple_hook(cls: Any, made: Converter) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Lists to tuples; where any number of items may stand, one item may stand for a list of one."""
    arguments = get_args(cls)
    open_ended = len(arguments) == 2 and arguments[1] is Ellipsis

    def structure(value: Any, _: Any) -> tuple[Any, ...]:
        if open_ended and not isinstance(value, (list, tuple)) and not _is_mapping_or_nothing(value):
            value = [value]
        if not isinstance(value, (list, tuple)):
            raise Mistakes.one(f"must be a list, is {_shown(value)}")
        if not open_ended and len(value) != len(arguments):
            raise Mistakes.one(f"must be a list of {len(arguments)} items, has {len(value)}")
        kinds = [arguments[0]] * len(value) if open_ended else arguments
        found, mistakes = [], []
        for index, (item, kind) in enumerate(zip(value, kinds, strict=True)):
            try:
                found.append(made.structure(item, kind))
            except Mistakes as wrong:
                mistakes += wrong.below(index)
        if mistakes:
            raise Mistakes(mistakes)
        return tuple(found)

    return structure


def _is_mapping_or_nothing(value: Any) -> bool:
    """Whether `value` cannot be the short form of a list."""
    return isinstance(value, Mapping) or value is None


def _mapping_hook(cls: Any, made: Converter) -> Callable[[Any, Any], dict[str, Any]]:
    kind = get_args(cls)[1]

    def structure(value: Any, _: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Mistakes.one(f"must hold keys and values, is {_shown(value)}")
        found, mistakes = {}, []
        for key, item in value.items():
            try:
                found[key] = item if kind is Any else made.structure(item, kind)
            except Mistakes as wrong:
                mistakes += wrong.below(key)
        if mistakes:
            raise Mistakes(mistakes)
        return found

    return structure


def _union_hook(cls: Any, made: Converter) -> Callable[[Any, Any], Any]:
    """The member of a union that a value is written as: by its kind, and by `WRITTEN_UNDER`."""
    members = get_args(cls)
    records = [member for member in members if attrs.has(member)]
    mappings = [member for member in members if get_origin(member) is dict]
    sequences = [member for member in members if get_origin(member) is tuple]
    scalars = [member for member in members if member in (bool, int, float, str) or member in UNITS]

    def structure(value: Any, _: Any) -> Any:
        if value is None and type(None) in members:
            return None
        if isinstance(value, Mapping):
            return _from_mapping(value)
        if isinstance(value, (list, tuple)) and sequences:
            return made.structure(value, sequences[0])
        for kind in (bool, int, float, str):
            if kind in scalars and type(value) is kind:
                return made.structure(value, kind)
        if scalars:
            return made.structure(value, next((kind for kind in scalars if kind in UNITS), scalars[0]))
        if sequences:
            return made.structure(value, sequences[0])
        if records:
            return made.structure(value, records[0])
        raise Mistakes.one(f"cannot be {_shown(value)}")

    def _from_mapping(value: Mapping[str, Any]) -> Any:
        for record in records:
            tag = getattr(record, "WRITTEN_UNDER", None)
            if tag is None:
                return made.structure(value, record)
            if tag in value:
                extra = [key for key in value if key != tag]
                if extra:
                    raise Mistakes([Mistake((extra[0],), f"cannot stand beside {tag!r}", is_key=True)])
                try:
                    return made.structure(value[tag], record)
                except Mistakes as wrong:
                    raise Mistakes(wrong.below(tag)) from None
        if mappings:
            return made.structure(value, mappings[0])
        raise Mistakes.one(f"must not hold keys and values, expected {_names(members)}")

    return structure


def _names(members: tuple[Any, ...]) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return " or ".join(words.get(member, "a list") for member in members if member is not type(None))


def _record_hook(cls: Any, made: Converter) -> Callable[[Any, Any], Any]:
    fields = attrs.fields_dict(cls)
    hints = get_type_hints(cls)
    rest = getattr(cls, "REST_IN", None)
    short = getattr(cls, "WRITTEN_SHORT", None)

    def structure(value: Any, _: Any) -> Any:
        if isinstance(value, cls):
            return value
        if short is not None and isinstance(value, str):
            value = {short: value}
        if not isinstance(value, Mapping):
            raise Mistakes.one(f"must hold keys and values, is {_shown(value)}")
        given = {key: item for key, item in value.items() if key in fields and key != rest}
        others = {key: item for key, item in value.items() if key not in given}
        mistakes = [] if rest else _unknown(others, fields)
        found: dict[str, Any] = {}
        for name, item in given.items():
            if item is None and fields[name].default is not attrs.NOTHING and type(None) not in get_args(hints[name]):
                mistakes.append(Mistake((name,), "has no value; give one or leave the key out"))
                continue
            mistakes += _into(found, name, (name,), item, hints[name], made)
        if rest:
            mistakes += _into(found, rest, (), others, hints[rest], made)
        missing = [n for n, f in fields.items() if f.default is attrs.NOTHING and n not in value and n != rest]
        mistakes += [Mistake((name,), "is missing") for name in missing]
        mistakes += _validate(fields, found)
        if mistakes:
            raise Mistakes(mistakes)
        return _build(cls, found)

    return structure


def _into(found: dict[str, Any], name: str, steps: Steps, item: Any, hint: Any, made: Converter) -> list[Mistake]:
    """Structure one field into `found`; its mistakes otherwise."""
    try:
        found[name] = item if hint is Any else made.structure(item, hint)
    except Mistakes as wrong:
        return wrong.below(*steps)
    return []


def _unknown(keys: Mapping[str, Any], fields: Mapping[str, Any]) -> list[Mistake]:
    mistakes = []
    for key in keys:
        near = get_close_matches(str(key), fields, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(fields)}"
        mistakes.append(Mistake((key,), f"is not a known key{hint}".rstrip("?"), is_key=True))
    return mistakes


def _validate(fields: Mapping[str, Any], found: Mapping[str, Any]) -> list[Mistake]:
    """Run each field's validator on its own, so that one mistake hides no other."""
    mistakes = []
    for name, value in found.items():
        validator = fields[name].validator
        if validator is not None:
            try:
                validator(None, fields[name], value)
            except FieldError as error:
                mistakes.append(Mistake(steps_of(error.place), error.sentence))
    return mistakes


def _build(cls: Any, found: Mapping[str, Any]) -> Any:
    """The record; checks across fields speak up here."""
    try:
        return cls(**found)
    except FieldError as error:
        raise Mistakes([Mistake(steps_of(error.place), error.sentence)]) from None
    except InputError as error:
        raise Mistakes.one(str(error).rstrip(".")) from None


def steps_of(place: str) -> Steps:
    """`training.micro_batch[1]` as steps."""
    steps: list[str | int] = []
    for part in place.replace("[", ".[").split("."):
        if part.startswith("["):
            steps.append(int(part[1:-1]))
        elif part:
            steps.append(part)
    return tuple(steps)
