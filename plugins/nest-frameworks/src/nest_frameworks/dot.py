"""A plan as a picture for Graphviz: device groups inside the groups of the cluster's levels, stages joined by edges.

The language is that of https://graphviz.org/doc/info/lang.html.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import mul

from nest.deployment import Deployment
from nest.deployment.ranks import first_devices
from nest.hooks.pipelines import deployed
from nest.instance import Level, recompute_words
from nest.spec import PlanDocument
from nest.units import format_bytes, format_seconds
from nest_frameworks.common import plan_levels

FILE = "plan.dot"

MOST_BLOCKS = 64
"""Blocks drawn at most: of plans with more, one replica stands for all, or what could be read is lost."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """The graph.

    Raises:
        InputError: the plan is infeasible, or nobody knows its cluster.
    """
    shape = deployed(plan)
    return {FILE: "\n".join(_lines(plan, shape, plan_levels(plan))) + "\n"}


def _lines(plan: PlanDocument, shape: Deployment, levels: Sequence[Level]) -> Iterator[str]:
    drawn = shape.replicas if shape.replicas * shape.stages <= MOST_BLOCKS else 1
    yield "digraph plan {"
    yield f"  graph [label={_quoted(_title(plan, shape, drawn))}, labelloc=t, rankdir=LR, compound=true];"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white];'
    blocks = _blocks(plan, shape, drawn)
    yield from _grouped(plan, shape, blocks, levels)
    for replica in range(drawn):
        for here, there in _neighbours(plan, shape):
            label = _boundary(plan, shape, here, there, levels)
            drawn_as = "" if there == here + 1 else ", style=dashed, constraint=false"
            yield f"  {_name(replica, here)} -> {_name(replica, there)} [label={_quoted(label)}{drawn_as}];"
    yield "}"


def _neighbours(plan: PlanDocument, shape: Deployment) -> list[tuple[int, int]]:
    """The stages that send activations to another one, and that; with two copies both ways."""
    pairs = dict.fromkeys((one.stage, two.stage) for one, two in pairwise(shape.runs) if one.stage != two.stage)
    if plan.summary.get("copies", 1) > 1:
        pairs |= dict.fromkeys((there, here) for here, there in list(pairs))
    return list(pairs)


def _title(plan: PlanDocument, shape: Deployment, drawn: int) -> list[str]:
    degrees = ", ".join(f"{name} {degree}" for name, degree in shape.degrees.items() if degree > 1)
    lines = [
        f"{shape.stages} stages x {shape.replicas} replicas of {shape.width} devices"
        + (f": {degrees}" * bool(degrees)),
        f"{shape.schedule}, {shape.micro_batches} micro-batches of {shape.micro_batch}, {shape.rank_order}",
    ]
    if plan.batch_time is not None:
        lines.append(f"batch time {format_seconds(plan.batch_time)}")
    if drawn < shape.replicas:
        lines.append(f"replica 1 of {shape.replicas} is shown")
    return lines


Block = tuple[int, int, int]
"""Replica, stage, and first device along the levels."""


def _blocks(plan: PlanDocument, shape: Deployment, drawn: int) -> list[Block]:
    firsts = [list(first_devices(plan, shape, stage)) for stage in range(len(plan.stages))]
    return [(replica, stage, firsts[stage][replica]) for replica in range(drawn) for stage in range(len(plan.stages))]


def _grouped(plan: PlanDocument, shape: Deployment, blocks: Sequence[Block], levels: Sequence[Level]) -> Iterator[str]:
    """The blocks, each inside the groups of levels that hold all of it, the outermost group first.

    On a network that is no hierarchy a plan says where blocks lie by the names of their devices.
    """
    capacities = list(accumulate((level.fanout for level in levels), mul))
    named = plan.placement is not None
    inside: dict[tuple[int, ...], dict[str, list[str]]] = {}
    for block in sorted(blocks, key=lambda each: each[2]):
        first, last = block[2], block[2] + plan.stages[block[1]].devices[1] - 1
        path = tuple(first // size for size in reversed(capacities) if first // size == last // size and not named)
        inside.setdefault(path, {})[_name(*block[:2])] = _described(plan, shape, *block)
    yield from _group((), inside, levels)


def _group(
    path: tuple[int, ...], inside: Mapping[tuple[int, ...], Mapping[str, list[str]]], levels: Sequence[Level]
) -> Iterator[str]:
    """The group at `path` and all in it."""
    depth = "  " * (len(path) + 1)
    for name, lines in inside.get(path, {}).items():
        yield f"{depth}{name} [label={_quoted(lines)}];"
    deeper = dict.fromkeys(other[: len(path) + 1] for other in inside if other[: len(path)] == path != other)
    for child in deeper:
        level = len(levels) - len(child)
        yield f"{depth}subgraph cluster_{'_'.join(map(str, child))} {{"
        yield f"{depth}  label={_quoted([f'{levels[level].name} {child[-1]}'])};"
        yield from _group(child, inside, levels)
        yield f"{depth}}}"


def _described(plan: PlanDocument, shape: Deployment, replica: int, stage: int, first: int) -> list[str]:
    record = plan.stages[stage]
    runs = [run.layers for run in shape.runs if run.stage == stage]
    layers = ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    width = record.devices[1]
    where = f"device {first}" if width == 1 else f"devices {first} to {first + width - 1}"
    if plan.placement is not None:
        where = ", ".join(plan.placement.replicas[replica][stage])
    return [
        f"stage {stage + 1}, replica {replica + 1}",
        f"{len(record.layers)} layers: {layers}",
        where,
        f"{format_seconds(record.time)} per micro-batch, {format_bytes(record.memory)}",
        f"recompute {recompute_words(record.recompute_name)}, ZeRO {record.zero}",
    ]


def _boundary(plan: PlanDocument, shape: Deployment, here: int, there: int, levels: Sequence[Level]) -> list[str]:
    """Traffic from one stage to another: level, bytes and time per micro-batch (`p2p`, PROBLEM.md section 1).

    A stage that sends to two others states bytes and level of both together: then only the level is told, if stages lie
    on levels.
    """
    sender, several = plan.stages[here], len([one for one, _ in _neighbours(plan, shape) if one == here]) > 1
    level = sender.level_out
    if several:
        level = -1 if plan.placement is not None else _level(plan, shape, here, there, levels)
    if not 0 <= level < len(levels):
        return []
    lines = [levels[level].name]
    if sender.bytes_out is not None and not several:
        seconds = levels[level].latency + sender.bytes_out / levels[level].bandwidth
        lines += [format_bytes(sender.bytes_out), format_seconds(seconds if sender.bytes_out else 0.0)]
    return lines


def _level(plan: PlanDocument, shape: Deployment, here: int, there: int, levels: Sequence[Level]) -> int:
    """The level of the boundary between two stages: the worst over the replicas (PROBLEM.md section 3)."""
    one, two = min(here, there), max(here, there)
    ends = [first + plan.stages[two].devices[1] - 1 for first in first_devices(plan, shape, two)]
    pairs = list(zip(first_devices(plan, shape, one), ends, strict=True))
    sizes = accumulate((level.fanout for level in levels), mul)
    return next((level for level, size in enumerate(sizes) if all(a // size == b // size for a, b in pairs)), -1)


def _name(replica: int, stage: int) -> str:
    return f"r{replica}s{stage}"


def _quoted(lines: Sequence[str]) -> str:
    """A label of these lines; what means something else there is escaped, and white space in names is a space."""
    result = []
    for line in lines:
        escaped = " ".join(line.split())
        for mark, meant in (("\\", "\\\\"), ('"', '\\"'), ("&", "&amp;")):
            escaped = escaped.replace(mark, meant)
        result.append(escaped)
    return '"' + "\\n".join(result) + '"'
