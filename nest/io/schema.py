"""Record classes to JSON schemas (draft 2020-12) that accept what `structuring` reads."""

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from nest.units import COUNTS, LARGEST, QUANTITIES, count_pattern

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
HOLDS = "holds"  # Key of a field's metadata: the record class whose written form the field holds as a plain mapping.

_SCALARS: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_OF_LISTS = frozenset({"minItems", "uniqueItems", "items"})
_OF_MAPPINGS = frozenset({"minProperties", "items"})


def schema(cls: Any, title: str) -> Schema:
    """Return the schema of files with a record of class `cls`, or of one of several classes (a union)."""
    definitions: dict[str, Schema] = {}
    if attrs.has(cls):
        whole = _record(cls, definitions)
        definitions.pop(cls.__name__, None)
    else:
        whole = _value(cls, {}, definitions)
    ordered = {name: definitions[name] for name in sorted(definitions)}
    return {"$schema": DRAFT, "title": title, **whole, "$defs": ordered}


def field_descriptions(cls: Any) -> dict[str, str]:
    """Return the descriptions of fields in the `Attributes` section of a class's docstring."""
    _, _, section = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")
    section = section.partition("\n\n")[0]
    descriptions: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w+:)", section):
        name, _, text = entry.strip().partition(":")
        if text:
            descriptions[name] = " ".join(text.split())
    return descriptions


def _record(cls: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a record as a mapping; the classes it refers to join `definitions`."""
    definitions.setdefault(cls.__name__, {})
    fields, hints, described = attrs.fields_dict(cls), get_type_hints(cls, include_extras=True), field_descriptions(cls)
    rest, short = getattr(cls, "REST_IN", None), getattr(cls, "WRITTEN_SHORT", None)
    properties = {}
    for name, field in fields.items():
        if name != rest:
            properties[name] = _field(field, hints[name], described.get(name), definitions)
    written: Schema = {
        "type": "object",
        "properties": properties,
        "required": [n for n, f in fields.items() if f.default is attrs.NOTHING and n != rest],
        "additionalProperties": False,
    }
    if rest:
        written["additionalProperties"] = _value(get_args(hints[rest])[1], {}, definitions)
    if not written["required"]:
        del written["required"]
    description = {"description": _sentence(cls)}
    if short is None:
        return {**description, **written}
    return {**description, "anyOf": [{"type": "string"}, written]}


def _sentence(cls: Any) -> str:
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())


def _field(field: Any, hint: Any, description: str | None, definitions: dict[str, Schema]) -> Schema:
    held = field.metadata.get(HOLDS)
    rule = getattr(field.validator, "keywords", {})
    field_schema = _reference(held, definitions) if held is not None else _value(hint, rule, definitions)
    if description:
        field_schema = {"description": description, **field_schema}
    default = field.default
    if isinstance(default, tuple):
        default = list(default)
    plain = default if isinstance(default, list) else [default]
    if default is not None and all(isinstance(item, (bool, int, float, str)) for item in plain):
        field_schema["default"] = default
    return field_schema


def _value(hint: Any, rule: Mapping[str, Any], definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a value of the type `hint` that passes the validator of keywords `rule`."""
    if hint is Any:
        return {}
    if hint in QUANTITIES:
        return {**_quantity(hint, definitions), **_without(rule, _OF_LISTS | _OF_MAPPINGS)}
    if hint in COUNTS:
        return {"type": ["integer", "string"], "pattern": count_pattern(hint), **_scalar_rule(int, rule)}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint], **_scalar_rule(hint, rule)}
    if attrs.has(hint):
        return _reference(hint, definitions)
    if get_origin(hint) is tuple:
        return _sequence(get_args(hint), rule, definitions)
    if get_origin(hint) is dict:
        return _mapping(get_args(hint)[1], rule, definitions)
    if get_origin(hint) in (Union, types.UnionType):
        return _union(get_args(hint), rule, definitions)
    raise TypeError(f"no file can hold a {hint}")


def _without(rule: Mapping[str, Any], names: Iterable[str]) -> Schema:
    return {name: value for name, value in rule.items() if name not in names and name != "minLength"}


def _scalar_rule(hint: Any, rule: Mapping[str, Any]) -> Schema:
    rules = _without(rule, _OF_LISTS | _OF_MAPPINGS)
    if hint is bool:
        return {}
    return {**rules, "minLength": rule["minLength"]} if hint is str and "minLength" in rule else rules


def _quantity(kind: Any, definitions: dict[str, Schema]) -> Schema:
    quantity = QUANTITIES[kind]
    definitions[kind.__name__] = {
        "description": quantity.sentence[0].upper() + quantity.sentence[1:],
        "type": ["number", "string"],
        "maximum": LARGEST,
        "pattern": quantity.pattern,
    }
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _reference(cls: Any, definitions: dict[str, Schema]) -> Schema:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = _record(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _sequence(arguments: tuple[Any, ...], rule: Mapping[str, Any], definitions: dict[str, Schema]) -> Schema:
    """Return the schema of lists; one item may stand for a list of one, if any number is allowed."""
    below = rule.get("items", {})
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _value(arguments[0], below, definitions)
        own = {name: rule[name] for name in ("minItems", "uniqueItems") if name in rule}
        many = {"type": "array", "items": item, **own}
        single = tuple(member for member in _members(arguments[0]) if member in QUANTITIES or member in _SCALARS)
        if not single:
            return many
        one = item if len(single) == len(_members(arguments[0])) else _union(single, below, definitions)
        return {"anyOf": [many, one]}
    items = [_value(argument, below, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _mapping(hint: Any, rule: Mapping[str, Any], definitions: dict[str, Schema]) -> Schema:
    mapping_schema: Schema = {"type": "object"}
    if hint is not Any:
        mapping_schema["additionalProperties"] = _value(hint, rule.get("items", {}), definitions)
    if "minProperties" in rule:
        mapping_schema["minProperties"] = rule["minProperties"]
    return mapping_schema


def _union(members: tuple[Any, ...], rule: Mapping[str, Any], definitions: dict[str, Schema]) -> Schema:
    tags = [member.WRITTEN_UNDER for member in members if hasattr(member, "WRITTEN_UNDER")]
    choices = []
    for member in members:
        if member is type(None):
            choices.append({"type": "null"})
            continue
        choice = _value(member, rule, definitions)
        tag = getattr(member, "WRITTEN_UNDER", None)
        if tag is not None:
            choice = {"description": _sentence(member), **choice}
            choice = {"type": "object", "properties": {tag: choice}, "required": [tag], "additionalProperties": False}
        elif tags and get_origin(member) is dict:
            choice["not"] = {"anyOf": [{"required": [tag]} for tag in tags]}
        choices.append(choice)
    return {"anyOf": choices}
