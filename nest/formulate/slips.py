"""Slips: valid figures that are unlikely by a factor, reported besides the answer.

A check reads a section of a complete problem, or its plan, and yields sentences: place, figure, reference, likely
intention. Thresholds: `nest.tolerances`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import gcd, log, prod

from attrs import asdict, evolve

from nest.catalogue import Link, known_cluster, links, network_levels, profiles, published_devices
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.instance import options_of
from nest.formulate.model import Model, context_length, load_model, model_facts
from nest.formulate.options import Options
from nest.formulate.stack import device_of
from nest.graph import KINDS
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.io.names import any_of
from nest.spec import BetweenSpec, ClusterSpec, DeviceSpec, LevelSpec, PlanDocument, Problem, Training
from nest.tolerances import (
    ALIKE,
    BEYOND_CONTEXT,
    FASTER_OUTSIDE,
    FIGURE_APART,
    LATENCY_APART,
    LINKS_EACH,
    LONGEST_STEP,
    LONGEST_TRAINING,
    MEMORY_SHARE,
    MORE_MEMORY,
    MORE_SCALE_UP,
    PADDED,
)
from nest.units import format_decimal, format_seconds

Place = tuple[str, LevelSpec | BetweenSpec, int, int, DeviceSpec | None]
"""A link as written: path, link, level (-1 between pools), devices of a machine, and device."""

EVEN = 128  # Tokens: kernels' tiles and usual degrees divide multiples of this, which get no note.


def slips(problem: Problem, known: Registry) -> Iterator[str]:
    """Slips of a complete problem, a sentence each.

    Args:
        problem: within its target, with its files read in.
        known: registered importers and strategies.
    """
    model, training, cluster = problem.model, problem.training, problem.cluster
    if model is None:
        return chain(bandwidths(cluster), latencies(cluster, ()), memories(cluster))
    return chain(
        bandwidths(cluster),
        latencies(cluster, USUAL_LINKS),
        level_order(cluster),
        memories(cluster),
        device_figures(cluster.device),
        sequence_length(training.sequence_length, model),
        operator_kinds(model, training, device_of(cluster), known),
        short_training(training),
        least_step(model, training, cluster, known),
    )


def slips_of_plan(plan: PlanDocument, problem: Problem) -> Iterator[str]:
    """Slips of a problem that its plan shows, a sentence each; none without a plan."""
    if plan.batch_time is not None:
        if problem.model is not None:
            yield from long_step(plan, plan.batch_time, problem.training)
        yield from long_training(plan, problem.training)
        if problem.cluster.pools is None:
            asked = " ".join((*problem.decided, *problem.constraints))
            yield from odd_batch(plan, problem.training, asked, fixed=bool(problem.decided))


def _compared(figure: str, ratio: float, reference: str, meanings: Mapping[str, float], otherwise: str) -> str:
    """Sentence that a figure is `ratio` times the reference, with the likeliest of the meanings, given by ratio.

    `otherwise` is the advice if none fits.
    """
    near = [text for text, factor in meanings.items() if abs(log(ratio / factor)) < log(ALIKE)]
    times = f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"
    hint = f"did you mean {', or '.join(near)}?" if near else otherwise
    return f"{figure} is {times} {reference}; {hint}"


def _members(cluster: ClusterSpec) -> list[tuple[str, ClusterSpec]]:
    """The cluster or each of its pools, by path."""
    if cluster.pools is None:
        return [("cluster", cluster)]
    return [(f"cluster.pools[{index}]", pool.cluster) for index, pool in enumerate(cluster.pools)]


def _machine(cluster: ClusterSpec) -> int:
    """Devices of a machine if known, else of the innermost level."""
    return cluster.devices_per_host or (cluster.levels[0].fanout if cluster.levels else 1)


def _links(cluster: ClusterSpec) -> Iterator[Place]:
    if cluster.assumed is not None:
        return  # An importer read it, from a file that means what it says.
    for place, each in _members(cluster):
        levels, device = each.levels or (), device_of(each)
        for index, level in enumerate(levels):
            yield f"{place}.levels[{index}]", level, index, _machine(each), device
    for index, between in enumerate(cluster.between or ()):
        yield f"cluster.between[{index}]", between, -1, 1, None


def _nominal(link: str | None, level: int, device: DeviceSpec | None) -> Link | None:
    """Link of a level; of a family, or by default inside a machine, the device's usual one."""
    if link is not None and (link not in links() or links()[link].bandwidth is not None):
        return links().get(link)
    if device is None or (link is None and level != 0):
        return None
    own = [each for each in profiles().values() if each.device == device.name]
    tiers = [tier for each in own for tier in (each.host, *each.tiers) if tier is not None]
    usual = [links()[tier.link] for tier in tiers if tier.link is not None]
    fitting = [each for each in usual if (each.scale_up if link is None else each.name.startswith(link))]
    return max((each for each in fitting if each.bandwidth), key=lambda each: each.bandwidth or 0.0, default=None)


def bandwidths(cluster: ClusterSpec) -> Iterator[str]:
    """Bandwidths far from those of the named links: bits for bytes, machine for device, both directions."""
    for place, written, level, machine, device in _links(cluster):
        kind = _nominal(written.link, level, device)
        if kind is None or kind.bandwidth is None or written.bandwidth is None:
            continue
        value, ratio = written.bandwidth, written.bandwidth / kind.bandwidth
        least = 1 / LINKS_EACH if written.link == kind.name else 0.0
        if least <= ratio <= (MORE_SCALE_UP if kind.scale_up else LINKS_EACH):
            continue
        meanings = {
            format_decimal(value, "bit/s"): 8,
            format_decimal(value * 8, "B/s"): 1 / 8,
            f"{format_decimal(value / 2, 'B/s')} in each direction": 2,
            f"{format_decimal(value / machine, 'B/s')} for each of {machine} devices": machine,
        }
        nominal = f"the {format_decimal(kind.bandwidth, 'B/s')} of {kind.name} per device and direction"
        figure = f"{place}.bandwidth: {format_decimal(value, 'B/s')}"
        yield _compared(figure, ratio, nominal, meanings, "give the bandwidth of one device.")


USUAL_LINKS = ("nvlink", "infiniband")
"""Reference links for latencies of levels without a link: inside a machine, and between machines."""


def latencies(cluster: ClusterSpec, usual_links: Sequence[str]) -> Iterator[str]:
    """Latencies far from the links': milliseconds or nanoseconds for microseconds."""
    for place, written, level, *_others in _links(cluster):
        name = written.link or (usual_links[min(level, 1)] if level >= 0 and usual_links else "")
        if name not in links() or not written.latency:
            continue
        value, usual = written.latency, links()[name].latency
        if 1 / LATENCY_APART <= value / usual <= LATENCY_APART:
            continue
        # Of the units that people mix up, the one that comes nearest.
        meant = min((value * 1000.0**power for power in (-2, -1, 1, 2)), key=lambda each: abs(log(each / usual)))
        meanings = {format_seconds(meant): value / usual}
        figure = f"{place}.latency: {format_seconds(value)}"
        yield _compared(figure, value / usual, f"the {format_seconds(usual)} of {name}", meanings, "")


def level_order(cluster: ClusterSpec) -> Iterator[str]:
    """Levels faster than the one inside, as if in the wrong order."""
    try:
        levels = network_levels(cluster.levels or ())
    except InputError:  # Unknown names are reported elsewhere.
        return
    for inner, outer in pairwise(levels):
        if outer.fanout > 1 and outer.bandwidth > FASTER_OUTSIDE * inner.bandwidth:
            yield (
                f"cluster.levels: {outer.name}, {format_decimal(outer.bandwidth, 'B/s')}, is faster than "
                f"{inner.name}, {format_decimal(inner.bandwidth, 'B/s')}, inside it; write levels innermost first."
            )
            return


def memories(cluster: ClusterSpec) -> Iterator[str]:
    """Device memory far from the device's own: a machine's, or another unit."""
    for place, each in _members(cluster):
        device, value = device_of(each), each.memory
        if device is None or value is None or MEMORY_SHARE <= value / device.memory <= MORE_MEMORY:
            continue
        machine = _machine(each)
        meanings = {
            format_decimal(value * 1000, "B"): 1 / 1000,
            format_decimal(value / 1000, "B"): 1000,
            f"{format_decimal(value / machine, 'B')} for each of {machine} devices": machine,
        }
        own = f"the {format_decimal(device.memory, 'B')} of {device.name}"
        figure = f"{place}.memory: {format_decimal(value, 'B')}"
        yield _compared(figure, value / device.memory, own, meanings, "give the memory of one device.")


def device_figures(device: DeviceSpec | str | None) -> Iterator[str]:
    """Device figures in place far from the whole catalogue: another unit."""
    if not isinstance(device, DeviceSpec):
        return
    every = [_figures(each) for each in published_devices().values()]
    for key, (value, unit) in _figures(device).items():
        others = [each[key][0] for each in every if key in each]
        for extreme, word in ((max(others), "most"), (min(others), "least")):
            ratio = value / extreme
            if ratio > FIGURE_APART if word == "most" else ratio < 1 / FIGURE_APART:
                meant = format_decimal(value / 1000 if ratio > 1 else value * 1000, unit)
                known = f"the {word} of any device known, {format_decimal(extreme, unit)}"
                figure = f"cluster.device.{key}: {format_decimal(value, unit)}"
                yield _compared(figure, ratio, known, {meant: ratio}, "")


def _figures(device: DeviceSpec) -> dict[str, tuple[float, str]]:
    peaks = {f"peak.{name}": (peak, "FLOP/s") for name, peak in asdict(device.peak).items() if peak}
    bandwidths = {key: (getattr(device, key), "B/s") for key in ("memory_bandwidth", "host_bandwidth")}
    figures = {"memory": (float(device.memory), "B"), **bandwidths, **peaks}
    return {key: (value, unit) for key, (value, unit) in figures.items() if value}


def sequence_length(length: int | None, model: Model | str) -> Iterator[str]:
    """Samples far longer than the model's context: tokens of a batch."""
    context = None if isinstance(model, str) else context_length(model)
    if length is not None and context is not None and length > BEYOND_CONTEXT * context:
        yield (
            f"training.sequence_length: {length:,} tokens are {length / context:.3g} times the model's context of "
            f"{context:,}; give the tokens of one sample."
        )


def uneven_sequence(problem: Problem, registry: Registry) -> Iterator[str]:
    """Degrees excluded by `training.sequence_length` but not by the nearest multiple of `EVEN`."""
    length = problem.training.sequence_length
    if problem.model is None or length is None or length % EVEN == 0:
        return
    other = max(round(length / EVEN), 1) * EVEN
    try:
        options = options_of(problem, registry)
        even, uneven = _degrees(options, other, registry), _degrees(options, length, registry)
    except InputError:  # Of what is wrong, the search tells; the model may not take the other length.
        return
    lost = {name: sorted(degrees - uneven.get(name, set())) for name, degrees in even.items()}
    degrees_text = " and ".join(f"{name} {', '.join(map(str, degrees))}" for name, degrees in lost.items() if degrees)
    if degrees_text:
        yield (
            f"training.sequence_length: {length} tokens do not divide evenly, which rules out {degrees_text}; "
            f"{other} would not."
        )


def _degrees(options: Options, length: int, registry: Registry) -> dict[str, set[int]]:
    """Degrees of each strategy with samples of so many tokens."""
    from nest.formulate.layer_classes import layer_classes

    training = evolve(options.training, sequence_length=length)
    assert options.model is not None
    graph = layer_classes(load_model(options.model, training, registry)).graph
    context = StrategyContext(build_cluster(options.cluster, registry)[0], training)
    fewest = evolve(options, micro_batches=options.micro_batches[:1])
    blocks = fewest.sharded(graph, context).every()
    every = [each for block in blocks for each in block.degrees]
    return {name: {degree for other, degree in every if other == name} for name, _ in every}


def operator_kinds(model: Model | str, training: Training, device: DeviceSpec | None, known: Registry) -> Iterator[str]:
    """Unknown kinds of operators in a graph: their share of the device's peak is unknown."""
    if not isinstance(model, dict) or "model_type" in model:
        return
    try:
        operators = load_model(model, training, known).operators
    except InputError:  # Told when the problem is formulated.
        return
    listed_kinds = {*KINDS, *(key.split(".")[0] for key in (device.efficiency if device is not None else ()))}
    strange: dict[str, list[str]] = {}
    for operator in operators:
        if operator.kind not in listed_kinds:
            strange.setdefault(operator.kind, []).append(operator.name)
    for kind, names in strange.items():
        first = next(each for each in operators if each.name == names[0])
        # A name inside the other says most (`layernorm`); else what contracts axes is a product.
        inside = [each for each in KINDS if each in kind.lower()]
        nearest = max(inside, key=len, default="matmul" if first.contracted else "elementwise")
        others = f" and {len(names) - 1} more" * (len(names) > 1)
        yield (
            f"model: unknown operator kind {kind!r:.40} ({names[0]:.80}{others}), priced at the device's peak; the "
            f"nearest kind is {nearest}."
        )


def short_training(training: Training) -> Iterator[str]:
    """A training with fewer tokens than a step: missing billions or trillions."""
    if training.tokens is None or training.sequence_length is None:
        return
    step = training.global_batch * training.sequence_length
    if training.tokens < step:
        yield (
            f"training.tokens: {training.tokens:,} tokens are less than one step ({step:,}); give the whole "
            "training, such as 15T."
        )


_STEP = "training.global_batch: a step of {:,} samples takes"


def least_step(model: Model | str, training: Training, cluster: ClusterSpec, known: Registry) -> Iterator[str]:
    """A batch as large as a sample is long whose FLOP take hours at peak: given in tokens.

    Checked before the search, which is slow with so many micro-batches.
    """
    batch, length = training.global_batch, training.sequence_length
    if length is None or not batch >= length > 1:
        return
    try:
        facts = model_facts(model, training, cluster, known)
    except InputError:  # Told when the problem is formulated.
        return
    named = [(each, known_cluster(each.name)) for _, each in _members(cluster)]
    levels = [each.levels or (() if entry is None else entry.levels) for each, entry in named]
    if facts is None or not all(levels):
        return
    devices = sum(prod(level.fanout for level in each) for each in levels)
    least = batch * facts[1] / (devices * max(facts[2].values()))
    if least > LONGEST_STEP:
        yield f"{_STEP.format(batch)} at least {format_seconds(least)}; {_tokens_meant(batch, length)}"


def _tokens_meant(batch: int, length: int) -> str:
    return f"if {batch:,} is in tokens, write {max(round(batch / length), 1):,}."


def long_step(plan: PlanDocument, seconds: float, training: Training) -> Iterator[str]:
    """A step of hours: batch given in tokens."""
    batch, length = training.global_batch, training.sequence_length
    if seconds <= LONGEST_STEP:
        return
    meant = "check the batch and the number of devices."
    if length is not None and batch >= length > 1:
        if seconds * plan.summary.get("model_flops_utilisation", 0.0) > LONGEST_STEP:
            return  # `least_step` told it.
        meant = _tokens_meant(batch, length)
    yield f"{_STEP.format(batch)} {format_seconds(seconds)}; {meant}"


def long_training(plan: PlanDocument, training: Training) -> Iterator[str]:
    """A training of years."""
    time = plan.summary.get("training", {}).get("time", 0.0)
    if time > LONGEST_TRAINING:
        years = time / (365.25 * 24 * 3600)
        yield (f"training.tokens: {training.tokens:.3g} tokens take {years:,.3g} years; check tokens and devices.")


OF_REPLICAS = frozenset({"dp", "replicas", "devices", "micro_batches"})  # Names that determine the number of replicas.


def odd_batch(plan: PlanDocument, training: Training, asked: str, *, fixed: bool) -> Iterator[str]:
    """A batch that does not divide: idle devices, few replicas, or much padding.

    `asked` has the names in decisions and constraints, in a text; `fixed`: there are decisions.
    """
    candidate, replicas = plan.candidate, plan.data_parallel
    devices, used = plan.summary.get("devices"), plan.summary.get("devices_used")
    if not candidate or not replicas or not used or OF_REPLICAS & {*re.findall(r"\w+", asked)}:
        return
    batch, each, samples = training.global_batch, used // replicas, candidate.samples
    filled = batch / (replicas * samples * (plan.micro_batches or 1))
    if plan.problem.get("model") is not None:  # Of a profile's candidates samples are given.
        samples = samples // (candidate.micro_batch or samples) * min(training.micro_batch or (1,))
    place, most = f"training.global_batch: {batch:,} samples", devices // each
    more = [count for count in range(replicas + 1, most + 1) if training.uneven_batch or batch % (count * samples) == 0]
    if used < devices and devices % each == 0 and not more:
        even = _even(batch, most * samples)
        yield f"{place} leave {devices - used} of {devices} devices idle; {even} would use all of them."
    elif filled < 1 - PADDED:
        even = _even(batch, replicas * samples)
        yield f"{place} fill {100 * filled:.3g} % of their micro-batches; {even} would fill all."
    elif each > 1 and used == devices and not fixed and replicas == gcd(batch // samples, devices):
        most = max(count for count in range(1, min(batch // samples, devices) + 1) if devices % count == 0)
        if most > replicas:
            yield (
                f"{place} divide over {replicas} of {devices} data-parallel replicas at most; "
                f"{_even(batch, most * samples)} would allow {most} or more."
            )


def _even(batch: int, unit: int) -> str:
    """Multiples of `unit` around `batch`."""
    return any_of(f"{count * unit:,}" for count in (batch // unit, batch // unit + 1) if count)
