"""Inputs of a module in words: `int64[batch,sequence=2048]`, or by keyword `input_ids=int64[...]`."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen

from nest.errors import InputError
from nest_torch.machine import FORMATS
from nest_torch.program.axis_names import BATCH

TYPES = ("int64", "int32", "bool", "float", "float32", "float16", "bfloat16")
"""Data types of inputs; `float` is that of the weights."""

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<type>\w+)\[(?P<axes>[\w\s,=]+)\]")
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)?(?:(?(name)=)(?P<size>[0-9]{1,12}))?")


@frozen
class Inputs:
    """Arguments of a module, without numbers.

    Attributes:
        positional: tensors in order.
        keywords: tensors by name.
        axes: names of the axes of each tensor, positional ones first.
    """

    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    axes: tuple[tuple[str, ...], ...]


def inputs(words: Sequence[str], precision: str) -> Inputs:
    """Tensors without numbers, one for each of `words`; with a name and `=` in front, it is an argument by keyword.

    Raises:
        InputError: one of them cannot be read, or none has a batch.
    """
    read = [_input(text, precision) for text in words]
    if not any(BATCH in axes for _, _, axes in read):
        raise InputError("--input: one axis must be called batch, as in 'int64[batch,sequence=2048]'.")
    ordered = [row for row in read if not row[0]]
    named = [row for row in read if row[0]]
    twice = next((name for index, (name, _, _) in enumerate(named) if name in [row[0] for row in named[:index]]), None)
    if twice is not None:
        raise InputError(f"--input: {twice} is given twice.")
    return Inputs(
        tuple(tensor for _, tensor, _ in ordered),
        {name: tensor for name, tensor, _ in named},
        tuple(axes for _, _, axes in (*ordered, *named)),
    )


def _input(text: str, precision: str) -> tuple[str, Any, tuple[str, ...]]:
    found = _INPUT.fullmatch(text.strip())
    if found is None:
        raise InputError(f"--input {text!r:.60}: expected a type and axes, as in 'int64[batch,sequence=2048]'.")
    if found["type"] not in TYPES:
        raise InputError(f"--input {text!r:.60}: the type must be one of {', '.join(TYPES)}.")
    axes = [_axis(text, each.strip()) for each in found["axes"].split(",")]
    dtype = getattr(torch, FORMATS[precision] if found["type"] == "float" else found["type"])
    tensor = torch.empty([size for _, size in axes], dtype=dtype, device="meta")
    return found["name"] or "", tensor, tuple(name for name, _ in axes)


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
