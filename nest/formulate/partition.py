"""Cuts of plans: `fixed.stages` and `search.granularity`, between layers or inside them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.formulate.layer_classes import LayerClasses
from nest.formulate.recompute import is_recomputed
from nest.graph import Operator, OperatorGraph
from nest.instance import LayerGraph


def branched_regions(graph: LayerGraph) -> tuple[tuple[int, ...], ...]:
    """Branched regions: several layers between two neighbouring layers comparable with all others.

    Two layers are comparable if one reads, directly or through others, results of the other. Kept whole, the regions
    and the layers between them form a chain. Returns indices, ascending; time is near linear in layers and edges.
    """
    order = graph.topological_order()
    comparable = _comparable_with_all(graph, order)
    regions: list[list[int]] = [[]]
    for layer in order:
        if comparable[layer]:
            regions.append([])
        else:
            regions[-1].append(layer)
    return tuple(tuple(sorted(region)) for region in regions if region)


def _comparable_with_all(graph: LayerGraph, order: Sequence[int]) -> list[bool]:
    """Mask of layers that all earlier layers in `order` lead to and that lead to all later ones.

    All layers of a prefix of `order` lead to its last one if only that has all readers behind the prefix: every other
    has a reader in it, nearer to the end. Suffixes are symmetric.
    """
    count = len(order)
    position = {layer: index for index, layer in enumerate(order)}
    first_reader, last_read = [count] * count, [-1] * count
    for producer, consumers in graph.tensors:
        made = position[producer]
        for consumer in consumers:
            read = position[consumer]
            first_reader[made] = min(first_reader[made], read)
            last_read[read] = max(last_read[read], made)
    ends = _covering(((made, first_reader[made]) for made in range(count)), count)
    starts = _covering(((last_read[read] + 1, read + 1) for read in range(count)), count)
    return [ends[position[layer]] == starts[position[layer]] == 1 for layer in range(count)]


def _covering(ranges: Iterable[tuple[int, int]], count: int) -> list[int]:
    """Number of half-open ranges that hold each position below `count`."""
    change = [0] * (count + 1)
    for start, end in ranges:
        change[start] += 1
        change[end] -= 1
    return list(accumulate(change[:count]))


def partition(
    stages: Sequence[int | tuple[str, ...]],
    pipeline: object,
    graph: LayerGraph,
    blocks: Sequence[str],
    operators: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Layers of each stage as indices, ascending.

    A count takes the next transformer blocks; other layers stay with the one before them, those before the first block
    go to the first stage and those behind the last to the last.

    Args:
        stages: as written.
        pipeline: `fixed.pp`, if given.
        blocks: names of the transformer blocks; empty: every layer counts as one.
        operators: names of the planned operators of each layer; the layer's name stands for all of them.

    Raises:
        InputError: a layer is unknown, missing or in two stages, counts do not add up, or a stage is empty.
    """
    if pipeline is not None and pipeline != len(stages):
        raise InputError(f"fixed.stages lists {len(stages)} stages, but fixed.pp is {pipeline}; make them equal.")
    if not stages:
        raise InputError("fixed.stages is empty; list the layers of each stage, or leave it out.")
    if all(isinstance(stage, int) for stage in stages):
        counts = [stage for stage in stages if isinstance(stage, int)]
        result = _by_counts(counts, graph, blocks or tuple(operators or graph.layers), operators or {})
    elif all(not isinstance(stage, int) for stage in stages):
        result = _by_names([stage for stage in stages if not isinstance(stage, int)], graph, operators or {})
    else:
        raise InputError("fixed.stages mixes counts and layer names; use one of them for all stages.")
    return result


def unknown_layer(place: str, name: str, graph: LayerGraph, operators: Mapping[str, tuple[str, ...]]) -> InputError:
    """Error for an unknown layer: lists the layers of the model, or the operators of its layer."""
    if not operators:
        return unknown_name(place, "layer", name, graph.layers)
    layer = max((each for each in operators if name.startswith(f"{each}/")), key=len, default=None)
    if layer is None:
        return unknown_name(place, "layer", name, operators)
    return unknown_name(place, "operator", name, operators[layer])


def _by_counts(
    counts: Sequence[int], graph: LayerGraph, blocks: Sequence[str], operators: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[int, ...], ...]:
    counted = set(blocks)
    block_of = {part: block for block in blocks for part in operators.get(block, (block,))}
    if any(count < 0 for count in counts) or sum(counts) != len(counted):
        raise InputError(
            f"fixed.stages: the counts add up to {sum(counts)}, but the model has {len(counted)} transformer blocks."
        )
    order = graph.topological_order()
    ends = [sum(counts[: stage + 1]) for stage in range(len(counts))]
    stages: list[list[int]] = [[] for _ in counts]
    home: dict[str, int] = {}
    stage = 0
    for layer in order:
        block = block_of.get(graph.layers[layer])
        if block is not None and block not in home:
            while len(home) >= ends[stage]:
                stage += 1
            home[block] = stage
        elif block is None and len(home) == len(counted):
            stage = len(counts) - 1
        stages[stage if block is None else home[block]].append(layer)
    for index, layers in enumerate(stages):
        if not layers:
            raise InputError(f"fixed.stages[{index}] has no layer; every stage needs one.")
    return tuple(tuple(sorted(layers)) for layers in stages)


def _by_names(
    stages: Sequence[tuple[str, ...]], graph: LayerGraph, operators: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[int, ...], ...]:
    position = {name: index for index, name in enumerate(graph.layers)}
    home: dict[str, int] = {}
    planned = [[part for name in names for part in operators.get(name, (name,))] for names in stages]
    for index, names in enumerate(planned):
        if not names:
            raise InputError(f"fixed.stages[{index}] has no layer; every stage needs one.")
        for name in names:
            if name not in position:
                raise unknown_layer(f"fixed.stages[{index}]", name, graph, operators)
            if name in home:
                raise InputError(f"fixed.stages: layer {name!r} is listed twice, in stages {home[name]} and {index}.")
            home[name] = index
    missing = [name for name in graph.layers if name not in home]
    if missing:
        missing_names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise InputError(f"fixed.stages leaves out these layers: {missing_names}; every layer needs a stage.")
    return tuple(tuple(sorted(position[name] for name in names)) for names in planned)


def check_order(stages: tuple[tuple[int, ...], ...], graph: LayerGraph) -> None:
    """Refuse a partition whose stages read from later ones, which requires several chunks."""
    home = {layer: index for index, layers in enumerate(stages) for layer in layers}
    for producer, consumers in graph.tensors:
        for consumer in consumers:
            if home[producer] > home[consumer]:
                raise InputError(
                    f"fixed.stages: layer {graph.layers[consumer]!r} in stage {home[consumer]} reads from "
                    f"{graph.layers[producer]!r} in the later stage {home[producer]}."
                )


def check_together(
    stages: tuple[tuple[int, ...], ...], together: tuple[tuple[int, ...], ...], graph: LayerGraph, granularity: str
) -> None:
    """Refuse a partition that separates layers kept together by `search.granularity`."""
    home = {layer: index for index, layers in enumerate(stages) for layer in layers}
    for group in together:
        apart = [layer for layer in group if home[layer] != home[group[0]]]
        if apart:
            one, other = graph.layers[group[0]], graph.layers[apart[0]]
            raise InputError(
                f"fixed.stages: {one!r} is in stage {home[group[0]]} and {other!r} in stage {home[apart[0]]}, but "
                f"search.granularity {granularity} keeps them together; put them into one stage."
            )


def check_even(stages: tuple[tuple[int, ...], ...], blocks: tuple[tuple[int, ...], ...], target: str) -> None:
    """Refuse an uneven partition if the target requires even stages."""
    home = {layer: index for index, layers in enumerate(stages) for layer in layers}
    size, left = divmod(len(blocks), len(stages))
    if left or any(home[layer] != number // size for number, block in enumerate(blocks) for layer in block):
        raise InputError(
            f"fixed.stages: search.target {target} needs equal stages of the {len(blocks)} transformer blocks; make "
            "them equal, leave it out, or choose another target."
        )


Group = tuple[int, ...]


def owners(originals: Sequence[Operator], rewritten: Sequence[Operator]) -> tuple[int, ...]:
    """For each operator of a rewritten layer, the index of the original operator it counts towards.

    Operators inserted by strategies count towards the one whose result they complete, else, as preparation, towards the
    next.
    """
    by_name = {operator.name: index for index, operator in enumerate(originals)}
    maker = {tensor.name: index for index, operator in enumerate(originals) for tensor in operator.outputs}
    result = []
    following = len(originals) - 1
    for operator in reversed(rewritten):
        completed = [maker[tensor.name] for tensor in operator.outputs if tensor.name in maker]
        if operator.name in by_name:
            following = by_name[operator.name]
        result.append(completed[0] if completed and operator.name not in by_name else following)
    return tuple(reversed(result))


def inseparable(operators: Sequence[Operator], selective: Sequence[str], repeated: bool) -> tuple[Group, ...]:
    """Operators of one layer in order, as indices, whose bytes are inseparable.

    Operators that save the same tensor save it once; what is selectively recomputed in one go saves nothing between;
    nor do operators save what is made again for them. A cut between them would change the sums. Only `repeated`
    transformer blocks are recomputed.
    """
    import networkx

    sharing: dict[str, list[int]] = {}
    for index, operator in enumerate(operators):
        names = set(operator.saves)
        if repeated and is_recomputed(operator, selective):
            names |= {tensor.name for tensor in (*operator.inputs, *operator.outputs)}
        for name in names:
            sharing.setdefault(name, []).append(index)
    graph = networkx.Graph()
    for members in sharing.values():
        networkx.add_path(graph, members)
    groups = (tuple(sorted(group)) for group in networkx.connected_components(graph))
    return tuple(sorted(group for group in groups if len(group) > 1))


def inseparable_operators(graph: OperatorGraph, layers: LayerClasses, selective: Sequence[str]) -> tuple[Group, ...]:
    """Inseparable operators of the whole graph, as indices of planned layers."""
    position = {name: index for index, name in enumerate(layers.layers)}
    repeated = frozenset(graph.blocks or graph.layers)
    return tuple(
        tuple(position[operators[member].name] for member in group)
        for name, operators in zip(graph.layers, graph.by_layer, strict=True)
        for group in inseparable(operators, selective, name in repeated)
    )


def passing(operators: Sequence[Operator], groups: Sequence[Group]) -> tuple[str, ...]:
    """Names of the tensors that a cut inside a layer may separate from their readers, in order."""
    group_of = {member: number for number, group in enumerate(groups) for member in group}
    maker = {tensor.name: index for index, operator in enumerate(operators) for tensor in operator.outputs}
    tensors: dict[str, None] = {}
    for index, operator in enumerate(operators):
        for tensor in operator.inputs:
            group = group_of.get(index)
            if group is None or group_of.get(maker.get(tensor.name, -1)) != group:
                tensors.setdefault(tensor.name)
    return tuple(tensors)
