"""Layers of a program, from the modules its operators run in."""

import re
from collections import Counter
from collections.abc import Collection, Sequence

from attrs import frozen

from nest_torch.program.values import Recorded

FIRST, LAST, ONLY = "embedding", "head", "model"
"""Layers of what runs in front of and behind all blocks, as in nest's own models; of a module without parts."""

_NUMBERED = re.compile(r"(?P<container>(?:[^.]+\.)*?)(?P<index>\d+)(?:\.|$)")

_SERIES = re.compile(r"(?P<container>(?:[^.]+\.)*?[A-Za-z]\w*_)(?P<index>\d+)(?:\.|$)")
"""Members of an ordered dictionary of modules, such as `layers.encoder_layer_0` of torchvision."""


@frozen
class Layering:
    """Layer of each operator.

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
    `embedding`, behind the last `head`, and between two of them part of the one before; between two lists, of the one
    that its modules stand beside, as the embedding of a decoder behind an encoder does. Without lists, every module
    below the top is a layer. A layer never runs twice: what returns to an earlier one belongs to the latest.
    """
    series = _series(operators)
    names = [_member(operator.path, series) for operator in operators]
    if not any(names):
        names = [operator.path.partition(".")[0] for operator in operators]
        first = last = ""
    else:
        first, last = FIRST, LAST
        names = _beside(operators, names)
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
    return Layering(tuple(layers), _blocks(operators, layers, of, series), tuple(of))


def _beside(operators: Sequence[Recorded], names: Sequence[str]) -> list[str]:
    """`names` of layers, with those of the member behind for what runs between two lists and stands beside the second.

    Args:
        operators: of a program.
        names: for each the member that it runs in; empty: it runs in none.
    """
    found = list(names)
    behind = ""
    for index in reversed(range(len(names))):
        behind = names[index] or behind
        before = next((name for name in reversed(names[:index]) if name), "") if not names[index] else ""
        if before and behind and before.rpartition(".")[0] != behind.rpartition(".")[0]:
            path = operators[index].path
            if _shared(path, behind) > _shared(path, before):
                found[index] = behind
    return found


def _shared(one: str, other: str) -> int:
    """Number of common modules around two."""
    count = 0
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if left != right:
            break
        count += 1
    return count


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


def _series(operators: Sequence[Recorded]) -> frozenset[str]:
    """Prefix of the names of modules that are numbered from 0."""
    found = {(match["container"], match["index"]) for each in operators if (match := _SERIES.match(each.path))}
    return frozenset(container for container, index in found if index == "0" and (container, "1") in found)


def _member(path: str, series: Collection[str] = ()) -> str:
    """The outermost member of a list or series of modules that a path leads through; empty: it leads through none."""
    found = _match(path, series)
    return f"{found['container']}{found['index']}" if found else ""


def _match(path: str, series: Collection[str]) -> re.Match[str] | None:
    listed, named = _NUMBERED.match(path), _SERIES.match(path)
    if named is None or named["container"] not in series:
        return listed
    return named if listed is None or named.end() < listed.end() else listed


def _blocks(
    operators: Sequence[Recorded], layers: Sequence[str], of: Sequence[int], series: Collection[str]
) -> tuple[str, ...]:
    """The members of the list that holds most parameters in members that do the same as others; or the only one."""
    done: list[list[str]] = [[] for _ in layers]
    held = [0] * len(layers)
    counted: set[int] = set()
    for operator, layer in zip(operators, of, strict=True):
        done[layer].append(f"{operator.target} {operator.path.removeprefix(layers[layer])}")
        for parameter in operator.parameters:
            held[layer] += 0 if id(parameter) in counted else parameter.elements
            counted.add(id(parameter))
    containers = [found["container"] if (found := _match(name, series)) else None for name in layers]
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
