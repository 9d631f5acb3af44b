"""Inputs of a module in words: `int64[batch,sequence=2048]`."""

import re
from collections.abc import Sequence
from typing import Any

import torch

from nest.errors import InputError
from nest_torch.machine import FORMATS
from nest_torch.program.axis_names import BATCH

TYPES = ("int64", "int32", "bool", "float", "float32", "float16", "bfloat16")
"""Data types of inputs; `float` is that of the weights."""

_INPUT = re.compile(r"(?P<type>\w+)\[(?P<axes>[\w\s,=]+)\]")
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)?(?:(?(name)=)(?P<size>[0-9]{1,12}))?")


def inputs(words: Sequence[str], precision: str) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], ...]]:
    """Tensors without numbers, one for each of `words`, and the names of their axes.

    Raises:
        InputError: one of them cannot be read, or none has a batch.
    """
    read = [_input(text, precision) for text in words]
    if not any(BATCH in names for _, names in read):
        raise InputError("--input: one axis must be called batch, as in 'int64[batch,sequence=2048]'.")
    return tuple(tensor for tensor, _ in read), tuple(names for _, names in read)


def _input(text: str, precision: str) -> tuple[Any, tuple[str, ...]]:
    found = _INPUT.fullmatch(text.strip())
    if found is None:
        raise InputError(f"--input {text!r:.60}: expected a type and axes, as in 'int64[batch,sequence=2048]'.")
    if found["type"] not in TYPES:
        raise InputError(f"--input {text!r:.60}: the type must be one of {', '.join(TYPES)}.")
    axes = [_axis(text, each.strip()) for each in found["axes"].split(",")]
    dtype = getattr(torch, FORMATS[precision] if found["type"] == "float" else found["type"])
    return torch.empty([size for _, size in axes], dtype=dtype, device="meta"), tuple(name for name, _ in axes)


def _axis(text: str, axis: str) -> tuple[str, int]:
    found = _AXIS.fullmatch(axis)
    if found is None or not axis:
        raise InputError(f"--input {text!r:.60}: an axis is a size, or a name with = and a size; got {axis!r:.40}.")
    name, size = found["name"] or "", int(found["size"] or 0)
    if name == BATCH:
        return name, size or 1
    if size < 1:
        raise InputError(f"--input {text!r:.60}: axis {axis!r:.40} needs a size of at least 1, as in sequence=2048.")
    return name, size
