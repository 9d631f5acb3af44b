"""Checks of importers of models and topologies."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from math import prod
from typing import Any

import numpy
from attrs import asdict, evolve

from nest.catalogue import network_levels
from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.hooks.protocols import ModelImporter, TopologyImporter
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.public.checks import sound_network
from nest.spec import Training
from nest_testing.conservation import bad_numbers
from nest_testing.finding import Finding, Problems, Tally, unsteady
from nest_testing.samples import STRANGE, TRAINING, model_sources, topology_sources

Load = Callable[[Any], Any]


def check_model_importer(
    importer: ModelImporter, *, sources: Sequence[Any] | None = None, training: Training = TRAINING
) -> tuple[Finding, ...]:
    """Load accepted sources.

    Args:
        importer: from `nest_model_importers`; its attribute `examples`, if any, holds accepted sources.
        sources: to be loaded; None: `examples`, and samples of everything nest reads.
        training: of the models.
    """
    tally = Tally()
    mine = (*getattr(importer, "examples", ()), *model_sources()) if sources is None else tuple(sources)
    _check_accepts(tally, importer, (*mine, *STRANGE))

    def load(source: Any) -> Any:
        return importer.load(deepcopy(source), training)

    def careless(source: Any) -> Any:
        return importer.load(source, training)

    for source in _accepted(tally, importer, mine, sources is not None):
        where = _label(source)
        tally.run("it leaves its source as it is", where, _changed_source, careless, deepcopy(source))
        _check_load(tally, load, source, where)
        tally.run("it loads an operator graph of one sample", where, _bad_graph, load, source, training)
        if training.sequence_length is not None:
            longer = evolve(training, sequence_length=2 * training.sequence_length)
            tally.run("longer samples take more work", where, _not_longer, importer, source, training, longer)
    return tally.findings()


def check_topology_importer(importer: TopologyImporter, *, sources: Sequence[Any] | None = None) -> tuple[Finding, ...]:
    """Load accepted sources.

    Args:
        importer: from `nest_topology_importers`; its attribute `examples`, if any, holds accepted sources.
        sources: to be loaded; None: `examples`, and samples of everything nest reads.
    """
    tally = Tally()
    mine = (*getattr(importer, "examples", ()), *topology_sources()) if sources is None else tuple(sources)
    _check_accepts(tally, importer, (*mine, *STRANGE))

    def load(source: Any) -> Any:
        return importer.load(deepcopy(source))

    for source in _accepted(tally, importer, mine, sources is not None):
        where = _label(source)
        tally.run("it leaves its source as it is", where, _changed_source, importer.load, deepcopy(source))
        _check_load(tally, load, source, where)
        tally.run("it loads a cluster, links or pairs", where, _bad_network, load, source)
    return tally.findings()


def _label(source: Any) -> str:
    if isinstance(source, Mapping) and isinstance(source.get("model_type"), str):
        return f"a configuration of {source['model_type']}"
    text = " ".join(repr(source).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_accepts(tally: Tally, importer: ModelImporter | TopologyImporter, sources: Sequence[Any]) -> None:
    for source in sources:
        tally.run("it accepts or declines, whatever it is asked about", _label(source), _bad_answer, importer, source)


def _bad_answer(importer: ModelImporter | TopologyImporter, source: Any) -> Problems:
    if not isinstance(importer.accepts(source), bool):
        yield f"`accepts` answered {importer.accepts(source)!r}; it says True or False"
    yield from unsteady(partial(importer.accepts, source))


def _accepted(
    tally: Tally, importer: ModelImporter | TopologyImporter, sources: Sequence[Any], all_of_them: bool
) -> list[Any]:
    """Return the accepted sources; none, or not all if all should be, is a finding."""

    def refused() -> Problems:
        if all_of_them and len(result) < len(sources):
            yield f"{len(sources) - len(result)} of the {len(sources)} sources given are declined"
        elif not result:
            yield (
                "none of the samples, so that `load` was not tried; give the importer an attribute `examples` with "
                "sources it accepts"
            )

    result = []
    for source in sources:
        try:
            if importer.accepts(source) is True:
                result.append(source)
        except (Exception, SystemExit):  # A finding already.
            continue
    tally.run("it accepts something that was tried", "the sources", refused)
    return result


def _check_load(tally: Tally, load: Load, source: Any, where: str) -> None:
    tally.steady("it loads the same every time", where, partial(load, source), _equal)
    if isinstance(source, Mapping):
        tally.run("a key that is missing is told, not stumbled over", where, _stumbles, load, source)


def _equal(first: Any, second: Any) -> bool:
    """Compare, also inside arrays."""
    if isinstance(first, Imported) and isinstance(second, Imported):
        rest = [(each.hosts, each.device, each.assumptions, each.devices_per_host) for each in (first, second)]
        return rest[0] == rest[1] and _equal(first.network, second.network)
    if not isinstance(first, LinkGraph | Pairs):
        return bool(first == second)
    if type(first) is not type(second):
        return False
    rows, others = asdict(first), asdict(second)
    return all(numpy.array_equal(rows[key], others[key]) for key in rows)


def _changed_source(load: Load, source: Any) -> Problems:
    before = deepcopy(source)
    load(source)
    if source != before:
        yield "`load` changed what it was given"


def _stumbles(load: Load, source: Mapping[str, Any]) -> Problems:
    """Object if a user's mistake ends in anything but a result or an `InputError`."""
    for key in source:
        try:
            load({name: value for name, value in source.items() if name != key})
        except InputError:
            continue
        except (Exception, SystemExit) as error:
            raised = f"{type(error).__name__}: {error}"
            yield f"without {key!r}, `load` raises {raised}; raise an InputError whose sentence names the key"


def _bad_graph(load: Load, source: Any, training: Training) -> Problems:
    graph: OperatorGraph = load(source)
    yield from bad_numbers(graph)
    tokens = training.sequence_length or 0
    blocks = {tokens // size for size in range(2, tokens + 1)} if tokens in _lengths(graph) else set()
    for name, operators in zip(graph.layers, graph.by_layer, strict=True):
        if not operators:
            yield f"layer {name!r} has no operators"
    for operator in graph.operators:
        if operator.collective is not None or operator.split:
            yield f"operator {operator.name!r} is divided or communicates; the graph is that of a single device"
        for axis, expected in (("batch", 1), ("sequence", training.sequence_length)):
            sizes = {size for tensor in operator.outputs for name, size in tensor.shape if name == axis}
            if sizes - {expected} - (blocks if axis == "sequence" else set()):
                yield f"operator {operator.name!r} has an axis {axis!r} of {max(sizes)}; the graph is for {expected}"
    for crossing in graph.layer_tensors:
        if crossing.consumers[0] < crossing.producer:
            yield f"tensor {crossing.tensor.name!r} is read by a layer in front of the one that makes it"
    if not graph.parameter_count:
        yield "the model learns nothing: it has no parameters"


def _lengths(graph: OperatorGraph) -> set[int]:
    """Return the tokens, and numbers of blocks of tokens, along the axis `sequence` of results."""
    shapes = (tensor.shape for operator in graph.operators for tensor in operator.outputs)
    return {size for shape in shapes for axis, size in shape if axis == "sequence"}


def _not_longer(importer: ModelImporter, source: Any, training: Training, longer: Training) -> Problems:
    try:
        less, more = (importer.load(deepcopy(source), query) for query in (training, longer))
    except InputError:  # Some models have no longer samples.
        return
    if not more.flops > less.flops:
        yield (
            f"samples of {longer.sequence_length} tokens take {more.flops:g} FLOP, of {training.sequence_length} "
            f"tokens {less.flops:g}; `training.sequence_length` must count"
        )
    if fixed := {size for size in _lengths(less) if 2 * size not in _lengths(more)}:
        yield f"an axis 'sequence' of {max(fixed)} does not grow with `training.sequence_length`"


def _bad_network(load: Load, source: Any) -> Problems:
    answer = sound_network(load(source))
    network = answer.network if isinstance(answer, Imported) else answer
    if isinstance(answer, Imported):
        yield from _bad_hosts(answer)
    devices = 2
    if isinstance(network, LinkGraph | Pairs):
        devices = len(network.devices) if isinstance(network, LinkGraph) else network.size
    elif isinstance(network, Cluster) and network.size < 1:
        yield "the cluster has no devices"
    if devices < 2:
        yield f"the network joins {devices} devices; it takes two at least"


def _bad_hosts(imported: Imported) -> Problems:
    """Object if hosts and devices disagree, or levels name missing links."""
    if not isinstance(imported.network, tuple | Cluster):
        if imported.hosts:
            yield "hosts are named along levels only; the devices of links are called `HOST.INDEX`"
        return
    levels = imported.network.levels if isinstance(imported.network, Cluster) else imported.network
    devices = prod(level.fanout for level in levels)
    per_host = imported.devices_per_host
    if imported.hosts and (devices % len(imported.hosts) or per_host not in (None, devices // len(imported.hosts))):
        yield f"{len(imported.hosts)} hosts of {per_host or 'equally many'} devices do not make {devices} devices"
    if isinstance(imported.network, tuple):
        try:
            network_levels(imported.network)
        except InputError as error:
            yield f"a level cannot be used: {error}"
