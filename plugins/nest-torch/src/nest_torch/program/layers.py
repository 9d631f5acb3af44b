"""Layers of a program, from the modules its operators run in."""

import re
from collections import Counter
from collections.abc import Sequence

from attrs import frozen

from nest_torch.program.values import Recorded

FIRST, LAST, ONLY = "embedding", "head", "model"
"""Layers of what runs in front of and behind all blocks, as in nest's own models; of a module without parts."""

_NUMBERED = re.compile(r"(?P<container>(?:[^.]+\.)*?)(?P<index>\d+)(?:\.|$)")


@frozen
class Layering:
    """Which layer each operator belongs to.

    Attributes:
        layers: names, in the order in which they run.
        blocks: of these, the members of the list of modules that holds most parameters.
        of: for each operator the index of its layer, never lower than that of an operator before it.
    """

    layers: tuple[str, ...]
    blocks: tuple[str, ...]
    of: tuple[int, ...]


def layering(operators: Sequence[Recorded]) -> Layering:
    """The layers of `operators`, which are in the order in which they run.

    Every member of a list of modules (`layers.0`, `layers.1`) is a layer. What runs in front of the first is the layer
    `embedding`, behind the last `head`, and between two of them part of the one before. Without lists, every module
    below the top is a layer. A layer never runs twice: what returns to an earlier one belongs to the latest.
    """
    names = [_member(operator.path) for operator in operators]
    if not any(names):
        names = [operator.path.partition(".")[0] for operator in operators]
        first = last = ""
    else:
        first, last = FIRST, LAST
    final = max((index for index, name in enumerate(names) if name), default=-1)
    layers: list[str] = []
    of: list[int] = []
    for index, name in enumerate(names):
        wanted = name or (last if index > final else "")
        if not layers:
            layers.append(wanted or first or next((name for name in names if name), ONLY))
        elif wanted and wanted not in layers:
            layers.append(wanted)
        of.append(len(layers) - 1)
    return Layering(tuple(layers), _blocks(operators, layers, of), tuple(of))


def shorten(operators: Sequence[Recorded]) -> None:
    """Leave out of every path the modules around all lists of modules: `model.layers.0.mlp` becomes `layers.0.mlp`."""
    members = {name for operator in operators if (name := _member(operator.path))}
    parents = [name.split(".")[:-2] for name in sorted(members)]
    if not parents:
        return
    common = 0
    while all(len(words) > common and words[common] == parents[0][common] for words in parents):
        common += 1
    prefix = ".".join(parents[0][:common])
    for operator in operators:
        if prefix and (operator.path == prefix or operator.path.startswith(f"{prefix}.")):
            operator.path = operator.path[len(prefix) :].removeprefix(".")


def _member(path: str) -> str:
    """The outermost member of a list of modules that a path leads through; empty: it leads through none."""
    found = _NUMBERED.match(path)
    return f"{found['container']}{found['index']}" if found else ""


def _blocks(operators: Sequence[Recorded], layers: Sequence[str], of: Sequence[int]) -> tuple[str, ...]:
    """The members of the list that holds most parameters in members that do the same as others; or the only one."""
    done: list[list[str]] = [[] for _ in layers]
    held = [0] * len(layers)
    counted: set[int] = set()
    for operator, layer in zip(operators, of, strict=True):
        done[layer].append(f"{operator.target} {operator.path.removeprefix(layers[layer])}")
        for parameter in operator.parameters:
            held[layer] += 0 if id(parameter) in counted else parameter.elements
            counted.add(id(parameter))
    containers = [found["container"] if (found := _NUMBERED.match(name)) else None for name in layers]
    alike = Counter((container, *what) for container, what in zip(containers, done, strict=True))
    repeated: dict[str, int] = {}
    for container, what, count in zip(containers, done, held, strict=True):
        if container is not None and alike[(container, *what)] > 1:
            repeated[container] = repeated.get(container, 0) + count
    if not repeated:
        lone = [name for name, container in zip(layers, containers, strict=True) if container is not None]
        return tuple(lone) if len(lone) == 1 else ()
    most = max(repeated, key=lambda container: repeated[container])
    return tuple(name for name, container in zip(layers, containers, strict=True) if container == most)
