"""Planning operator by operator: to whom belongs what strategies inserted, and what cannot be parted."""

from collections.abc import Sequence

from nest.formulate.layer_kinds import LayerKinds
from nest.formulate.recompute import runs_again
from nest.graph import Operator, OperatorGraph

Group = tuple[int, ...]


def owners(originals: Sequence[Operator], rewritten: Sequence[Operator]) -> tuple[int, ...]:
    """For each operator of a rewritten layer, the index of the original operator that it counts towards.

    An operator that strategies inserted counts towards the one whose result it completes; otherwise it prepares, and
    counts towards the next one.
    """
    by_name = {operator.name: index for index, operator in enumerate(originals)}
    maker = {tensor.name: index for index, operator in enumerate(originals) for tensor in operator.outputs}
    found = []
    following = len(originals) - 1
    for operator in reversed(rewritten):
        completed = [maker[tensor.name] for tensor in operator.outputs if tensor.name in maker]
        if operator.name in by_name:
            following = by_name[operator.name]
        found.append(completed[0] if completed and operator.name not in by_name else following)
    return tuple(reversed(found))


def inseparable(operators: Sequence[Operator], selective: Sequence[str], repeated: bool) -> tuple[Group, ...]:
    """Operators of one layer, as indices, whose bytes cannot be told apart.

    Several operators that keep the same tensor for the backward pass keep it once, and what is selectively run again
    in one go keeps nothing between; nor do operators keep what is made again for them. A cut between them would change
    the sums.

    Args:
        operators: of one layer, in order.
        selective: kinds and names of operators that selective recomputation runs again.
        repeated: whether the layer is a transformer block; others are not recomputed.
    """
    sharing: dict[str, set[int]] = {}
    for index, operator in enumerate(operators):
        names = set(operator.saves)
        if repeated and runs_again(operator, selective):
            names |= {tensor.name for tensor in (*operator.inputs, *operator.outputs)}
        for name in names:
            sharing.setdefault(name, set()).add(index)
    return _merged(len(operators), list(sharing.values()))


def _merged(count: int, sets: Sequence[set[int]]) -> tuple[Group, ...]:
    """The sets of numbers below `count`, those that overlap made one; without those of one member."""
    home = list(range(count))

    def root(index: int) -> int:
        while home[index] != index:
            index = home[index]
        return index

    for members in sets:
        first = min(root(member) for member in members)
        for member in members:
            home[root(member)] = first
    groups: dict[int, list[int]] = {}
    for index in range(count):
        groups.setdefault(root(index), []).append(index)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def kept_whole(graph: OperatorGraph, layers: LayerKinds, selective: Sequence[str]) -> tuple[Group, ...]:
    """The inseparable operators of the whole graph, as indices of planned layers."""
    position = {name: index for index, name in enumerate(layers.layers)}
    repeated = frozenset(graph.blocks or graph.layers)
    return tuple(
        tuple(position[operators[member].name] for member in group)
        for name, operators in zip(graph.layers, graph.by_layer, strict=True)
        for group in inseparable(operators, selective, name in repeated)
    )


def passing(operators: Sequence[Operator], groups: Sequence[Group]) -> tuple[str, ...]:
    """Names of the tensors that a cut inside a layer may part from an operator that reads them, in order."""
    group_of = {member: number for number, group in enumerate(groups) for member in group}
    maker = {tensor.name: index for index, operator in enumerate(operators) for tensor in operator.outputs}
    found: dict[str, None] = {}
    for index, operator in enumerate(operators):
        for tensor in operator.inputs:
            group = group_of.get(index)
            if group is None or group_of.get(maker.get(tensor.name, -1)) != group:
                found.setdefault(tensor.name)
    return tuple(found)
