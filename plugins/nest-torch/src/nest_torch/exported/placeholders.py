"""Parameters, constants and inputs of an exported program: files name them only where they are read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from nest.errors import InputErrors
from nest_torch.exported.node import Node
from nest_torch.program.targets import EMBEDDINGS, NORMS
from nest_torch.program.values import CONSTANT, INPUT, PARAMETER

Sizes = tuple[int, ...]

ORIGINS = {"p_": PARAMETER, "b_": CONSTANT, "c_": CONSTANT, "obj_": CONSTANT, "submod_": CONSTANT}
"""Prefixes of `torch.export` for names of parameters, buffers and the rest (torch.export.graph_signature)."""

TRANSPOSED = ("t", "transpose", "permute", "numpy_T", "mT", "swapaxes", "swapdims")
"""Views that turn a matrix."""

PRODUCTS = ("linear", "mm", "matmul", "addmm", "bmm", "baddbmm", "mv", "dot")
"""Calls that multiply matrices."""


@frozen
class Placeholder:
    """A tensor that comes from outside.

    Attributes:
        name: as nodes read it.
        origin: `PARAMETER`, `CONSTANT` or `INPUT`.
        shape: its sizes.
        dtype: of the node that reads it first; `int64` where rows of a table are asked for.
        guessed: how the rows of a table were told, for notes; empty: the sizes follow from those of nodes.
    """

    name: str
    origin: str
    shape: Sizes
    dtype: str
    guessed: str = ""


def origin(name: str) -> str:
    """Origin of a placeholder of this name."""
    return next((kind for prefix, kind in ORIGINS.items() if name.startswith(prefix)), INPUT)


def plain(name: str) -> str:
    """A parameter's name as `torch.export` spells it for a placeholder, without `p_`."""
    return name.replace(".", "_").lower().removeprefix("p_")


def placeholders(nodes: Sequence[Node], stated: Mapping[str, Sizes]) -> dict[str, Placeholder]:
    """Every placeholder that `nodes` read, by name, with its sizes.

    Args:
        nodes: of the program, placeholders among them or not.
        stated: sizes that somebody said, by the name of the parameter.

    Raises:
        InputErrors: sizes cannot be told from those of the nodes.
    """
    known = {node.name: node for node in nodes if node.target != "placeholder"}
    given = {node.name: node for node in nodes if node.target == "placeholder"}
    spoken = {plain(name): sizes for name, sizes in stated.items()}
    found: dict[str, Placeholder] = {}
    tables: list[tuple[str, Node]] = []
    problems = []
    for name, readers in _readers(known.values()).items():
        if name in known:
            continue
        kind = origin(name)
        if name in given and given[name].shapes:
            found[name] = Placeholder(name, kind, given[name].shape, given[name].dtype)
        elif plain(name) in spoken:
            found[name] = Placeholder(name, kind, spoken[plain(name)], readers[0].dtype)
        elif kind == CONSTANT:
            found[name] = Placeholder(name, kind, (), readers[0].dtype)
        else:
            told = next((sizes for sizes in (_told(name, node, known) for node in readers) if sizes), None)
            if told is not None:
                asked = readers[0].target in EMBEDDINGS and kind == INPUT
                found[name] = Placeholder(name, kind, told, "int64" if asked else readers[0].dtype)
            elif kind == PARAMETER and readers[0].target in EMBEDDINGS and readers[0].shape:
                tables.append((name, readers[0]))
            else:
                problems.append(
                    f"the sizes of {name!r:.80} do not follow from the node that reads it, {readers[0].name!r:.60} "
                    f"({readers[0].target}); say them under `parameters`."
                )
    if problems:
        raise InputErrors(problems[:20])
    for name, node in tables:
        found[name] = _table(name, node, known, found)
    unknown = sorted(name for name in stated if plain(name) not in {plain(each) for each in found})
    if unknown:
        raise InputErrors([f"parameters: {unknown[0]!r:.80} is no parameter that a node reads."])
    return found


def _readers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            found.setdefault(name, []).append(node)
    return found


def _told(name: str, node: Node, known: Mapping[str, Node]) -> Sizes | None:
    """The sizes of a placeholder, from those of a node that reads it."""
    place, result = node.inputs.index(name), node.shape
    if not node.shapes:
        return None
    if node.target in EMBEDDINGS:
        return result[:-1] if place else None
    if node.target in PRODUCTS:
        return _operand(node, place, known)
    if node.target in TRANSPOSED:
        return (*result[:-2], *reversed(result[-2:])) if len(result) > 1 else None
    if node.target.startswith("conv") and place != 2:
        return None
    if origin(name) == INPUT:
        return result
    if node.target in NORMS or node.target.startswith("conv"):
        channels = node.target.startswith("conv") or "batch" in node.target or "group" in node.target
        return (result[1],) if channels and len(result) > 1 else result[-1:]
    if len(node.inputs) == 1:
        return result
    return result[-1:]


def _operand(node: Node, place: int, known: Mapping[str, Node]) -> Sizes | None:
    """The sizes of an operand of a product: of a bias its columns, of a weight rows and columns."""
    bias = {"linear": 2, "addmm": 0, "baddbmm": 0}.get(node.target)
    if place == bias:
        return node.shape[-1:]
    other = known.get(node.inputs[1 if node.target in ("addmm", "baddbmm") else 0])
    weight = 2 if node.target in ("addmm", "baddbmm") else 1
    if place != weight or other is None or not other.shape or not node.shape:
        return None
    matrix = (other.shape[-1], node.shape[-1])
    return matrix[::-1] if node.target == "linear" else matrix


def _table(name: str, node: Node, known: Mapping[str, Node], found: Mapping[str, Placeholder]) -> Placeholder:
    """A table that is only looked up, so that nothing shows its rows.

    What is looked up by the data has a row for each column of the last product, the logits; what is looked up
    by place at least a row for each.
    """
    width = node.shape[-1]
    asked = any(_from_data(each, known, found) for each in node.inputs[1:])
    logits = [
        each
        for each in known.values()
        if each.target in PRODUCTS and each.shape and any(origin(one) == PARAMETER for one in _roots(each, known))
    ]
    if asked and logits and logits[-1].shape[-1] > width:
        return Placeholder(name, PARAMETER, (logits[-1].shape[-1], width), node.dtype, "as the logits have columns")
    rows = node.shape[-2] if len(node.shape) > 1 else 1
    return Placeholder(name, PARAMETER, (rows, width), node.dtype, "as are looked up")


def _roots(node: Node, known: Mapping[str, Node]) -> Iterator[str]:
    """The placeholders that a node reads, through views."""
    for name in node.inputs:
        while name in known and len(known[name].inputs) == 1:
            name = known[name].inputs[0]
        yield name


def _from_data(name: str, known: Mapping[str, Node], found: Mapping[str, Placeholder]) -> bool:
    waiting, seen = [name], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in known:
            if origin(name) == INPUT:
                return True
        else:
            waiting += known[name].inputs
    return False
