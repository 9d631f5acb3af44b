"""Small operators of one module as one: what a compiler, or a framework's own kernels, make of them.

A norm written out in six calls passes six times over memory when it is run as it stands; nobody trains like that. All
that only touches every number, or sums over rows, runs as one operator with what stands beside it in the same module
and waits for the same products.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from nest_torch.program.scans import SCAN
from nest_torch.program.targets import ACTIVATIONS, REDUCTIONS
from nest_torch.program.values import Recorded, Stored

FUSED = ("elementwise", "activation", "norm", "softmax", SCAN)
"""Kinds of operator that run together; all others run alone."""

CURVED = (*ACTIVATIONS, "erf", "exp")
"""Calls that make an activation of what stands beside them."""

ROOTS = ("rsqrt", "sqrt", "reciprocal")
"""Calls that, with a reduction, make a norm."""

Key = tuple[str, int]


def fused(operators: Sequence[Recorded]) -> list[Recorded]:
    """`operators` with those of one module that run together as one, in an order in which they can run."""
    owners = _owners(operators)
    makers = {each: operator for operator in operators for stored in operator.outputs for each in stored.whole()}
    keys = _keys(operators, owners, makers)
    groups: dict[Key | int, list[Recorded]] = {}
    for operator in operators:
        key = keys[id(operator)]
        groups.setdefault(key if operator.kind in FUSED else id(operator), []).append(operator)
    readers: dict[Stored, list[Recorded]] = {}
    for operator in operators:
        for each in _whole(operator.inputs):
            readers.setdefault(each, []).append(operator)
    merged = [rows[0] if len(rows) == 1 else _one(rows, readers, owners) for rows in groups.values()]
    return _in_order([each for each in merged if each.outputs])


def _owners(operators: Sequence[Recorded]) -> dict[str, str]:
    """For each module the innermost around it, or itself, with parameters of its own or inside."""
    learned = {operator.path for operator in operators if operator.parameters}
    holding = {path[:end] for path in learned for end in _ends(path)}
    found = {}
    for path in {operator.path for operator in operators}:
        owner = path
        while owner and owner not in holding:
            owner = owner.rpartition(".")[0]
        found[path] = owner
    return found


def _ends(path: str) -> Iterable[int]:
    yield len(path)
    yield from (index for index, letter in enumerate(path) if letter == ".")


def _keys(
    operators: Sequence[Recorded], owners: Mapping[str, str], makers: Mapping[Stored, Recorded]
) -> dict[int, Key]:
    """Module and depth of each operator: how often the longest way to it leaves a module or passes a lone operator.

    A way that leaves a group comes back deeper, so groups never wait for each other.
    """
    keys: dict[int, Key] = {}
    for operator in operators:
        owner, depth = owners[operator.path], 0
        for stored in _whole(operator.inputs):
            maker = makers.get(stored)
            if maker is None or maker is operator:
                continue
            before, reached = keys[id(maker)]
            apart = before != owner or maker.kind not in FUSED or operator.kind not in FUSED
            depth = max(depth, reached + apart)
        keys[id(operator)] = (owner, depth)
    return keys


def _whole(stored: Iterable[Stored]) -> list[Stored]:
    return list(dict.fromkeys(each for one in stored for each in one.whole()))


def _one(rows: Sequence[Recorded], readers: Mapping[Stored, Sequence[Recorded]], owners: Mapping[str, str]) -> Recorded:
    """The operator that does what all of `rows` do."""
    members = {id(operator) for operator in rows}
    made = _whole(stored for operator in rows for stored in operator.outputs)
    inside = set(made)
    inputs = [each for each in _whole(s for operator in rows for s in operator.inputs) if each not in inside]
    leaving = [
        each for each in made if not readers.get(each) or any(id(reader) not in members for reader in readers[each])
    ]
    leaving.sort(key=lambda stored: -stored.elements)
    main = _main(rows)
    return Recorded(
        main.target,
        owners[main.path] if len({operator.path for operator in rows}) > 1 else main.path,
        _kind(rows),
        inputs,
        list(dict.fromkeys(each for operator in rows for each in operator.parameters)),
        leaving,
        reduced=[dim for operator in rows for dim in operator.reduced],
        saves=_saves(rows, inside, set(leaving)),
        flops_per_point=sum(operator.flops_per_point * operator.outputs[0].elements for operator in rows)
        / max(1, leaving[0].elements if leaving else 1),
    )


def _main(rows: Sequence[Recorded]) -> Recorded:
    """The member that names them all: the first whose kind is theirs."""
    kind = _kind(rows)
    return next((operator for operator in rows if operator.kind == kind), rows[0])


def _kind(rows: Sequence[Recorded]) -> str:
    kinds, targets = {operator.kind for operator in rows}, {operator.target for operator in rows}
    if SCAN in kinds:
        return SCAN
    if "norm" in kinds or (targets & set(ROOTS) and targets & set(REDUCTIONS)):
        return "norm"
    if "softmax" in kinds:
        return "softmax"
    return "activation" if "activation" in kinds or targets & set(CURVED) else "elementwise"


def _saves(rows: Sequence[Recorded], inside: set[Stored], leaving: set[Stored]) -> list[Stored]:
    """Tensors for the backward pass: of those that stay inside, the inputs they are made from again."""
    sources: dict[Stored, dict[Stored, None]] = {}
    kept: dict[Stored, None] = {}

    def origins(stored: Stored) -> dict[Stored, None]:
        if stored not in inside:
            return {stored: None} if stored.differentiable or stored.origin == "made" else {}
        return sources.get(stored, {})

    for operator in rows:
        before = {each: None for stored in _whole(operator.inputs) for each in origins(stored)}
        for stored in _whole(operator.outputs):
            sources[stored] = before
        for stored in _whole(operator.saves):
            if stored in inside and stored not in leaving:
                kept.update(origins(stored))
            else:
                kept[stored] = None
    return list(kept)


def _in_order(operators: Sequence[Recorded]) -> list[Recorded]:
    """`operators` so that each comes behind what it reads, and else as they stand."""
    place = {each: index for index, operator in enumerate(operators) for each in _whole(operator.outputs)}
    before = [
        {place[each] for each in _whole(operator.inputs) if each in place and place[each] != index}
        for index, operator in enumerate(operators)
    ]
    behind: dict[int, list[int]] = {}
    for index, waits in enumerate(before):
        for each in waits:
            behind.setdefault(each, []).append(index)
    missing = [len(waits) for waits in before]
    ready = [index for index, count in enumerate(missing) if not count]
    heapify(ready)
    found = []
    while ready:
        index = heappop(ready)
        found.append(operators[index])
        for each in behind.get(index, ()):
            missing[each] -= 1
            if not missing[each]:
                heappush(ready, each)
    return found
