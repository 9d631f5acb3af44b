"""Frozen records to plain mappings, as `structuring` reads them back."""

from collections.abc import Mapping
from typing import Any

import attrs


def plain(value: Any) -> Any:
    """`value` as mappings, lists and scalars.

    A field that is None by default is left out, unless its class says `KEEP_NONE = True`.
    """
    if attrs.has(type(value)):
        written = _record(value)
        tag = getattr(value, "WRITTEN_UNDER", None)
        return {tag: written} if tag is not None else written
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _record(record: Any) -> dict[str, Any]:
    rest = getattr(record, "REST_IN", None)
    keep = getattr(record, "KEEP_NONE", False)
    found: dict[str, Any] = {}
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if field.name == rest:
            found.update(plain(value))
        elif value is not None or field.default is not None or keep:
            found[field.name] = plain(value)
    return found
