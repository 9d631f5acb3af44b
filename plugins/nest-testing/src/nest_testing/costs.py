"""Checks of models of cost, of layer times and of collectives."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isclose, prod
from typing import Any

import numpy
from attrs import evolve, frozen

from nest.catalogue import devices
from nest.errors import InputError
from nest.graph import COLLECTIVES, Operator, OperatorGraph
from nest.hooks.protocols import CollectiveModel, CostModel, LayerTimes, OperatorCost
from nest.instance import Array, Level
from nest.public.checks import (
    COMMUNICATION,
    MATRIX,
    MEMBERS,
    VECTOR,
    amount,
    called_with,
    operator_cost,
    require_rising,
    takes,
)
from nest.spec import DeviceSpec, Training
from nest.tolerances import AGREEMENT
from nest_testing.finding import Finding, Problems, Tally
from nest_testing.samples import SAMPLE_MODELS, SAMPLES, SampleModel, loaded


def check_cost_model(
    model: CostModel, *, models: Sequence[SampleModel] = SAMPLE_MODELS, on: Sequence[DeviceSpec] | None = None
) -> tuple[Finding, ...]:
    """Price every operator of small models on devices.

    A model may refuse a device that cannot run a precision with an `InputError`; it must price at least one device.

    Args:
        model: from `nest_cost_models`.
        models: whose operators are priced.
        on: devices; None: all of the catalogue.
    """
    tally = Tally()
    priced: list[DeviceSpec] = []
    refusals: list[str] = []
    for device in tuple(devices().values()) if on is None else on:
        for sample in models:
            operators = [*loaded(sample).with_samples(SAMPLES).operators, _UNKNOWN]
            where = f"{sample.name}, {device.name}"
            asked = model, operators, device, sample.training
            with tally.untouched(where, operators, device, sample.training):
                tally.run("costs are finite and not negative", where, _bad_costs, *asked, priced)
                refusals += _refusals(model, operators[0], device, sample.training)
                tally.steady("it says the same every time", where, partial(_prices, *asked))
                tally.run("names of operators mean nothing", where, _by_name, *asked)
                tally.run("more work never takes less time", where, _cheaper_when_more, *asked)
    tally.run("some device is priced", "the devices", _nothing_priced, priced, refusals)
    return tally.findings()


_UNKNOWN = Operator("layer/stranger", "layer", "a kind of a plug-in", inputs=(), outputs=())
"""An operator of an unknown kind, as plug-ins may add (`nest.graph.Operator`); cost models take it as memory-bound."""


def _prices(
    model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training
) -> list[OperatorCost | None]:
    return [_price(model, operator, device, training) for operator in operators]


def _price(model: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost | None:
    try:
        return model.price(operator, device, training)
    except InputError:
        return None


def _bad_costs(
    model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training, priced: list[DeviceSpec]
) -> Problems:
    for operator in operators:
        cost = _price(model, operator, device, training)
        if cost is None:
            continue
        operator_cost(cost)
        priced.append(device)
        if operator.flops > 0 and not cost.forward > 0:
            yield f"operator {operator.name!r} has {operator.flops:g} FLOP, but takes no time"


def _cheaper_when_more(
    model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training
) -> Problems:
    """Object if four times the samples take an operator less time (measurements may, by noise)."""
    graph = OperatorGraph(tuple(operators), tuple(dict.fromkeys(operator.layer for operator in operators)))
    for operator, larger in zip(operators, graph.with_samples(4).operators, strict=True):
        less, more = (_price(model, each, device, training) for each in (operator, larger))
        if less is None or more is None or less.measured is not None or more.measured is not None:
            continue
        for way in ("forward", "backward"):
            if getattr(more, way) < getattr(less, way) * (1 - AGREEMENT):
                yield (
                    f"operator {operator.name!r} takes {getattr(less, way):g} s {way}, and {getattr(more, way):g} s "
                    "of four times the samples"
                )


def _by_name(model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training) -> Problems:
    """Object if names change a price: one layer of each kind is priced for all."""
    for operator in operators:
        renamed = evolve(operator, name=f"other/{operator.name}", layer="other")
        if _price(model, operator, device, training) != _price(model, renamed, device, training):
            yield f"operator {operator.name!r} costs something else under another name or in another layer"


def _refusals(model: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> list[str]:
    try:
        model.price(operator, device, training)
    except InputError as error:
        return [str(error)]
    except (Exception, SystemExit):  # A finding already.
        pass
    return []


def _nothing_priced(priced: Sequence[DeviceSpec], refusals: Sequence[str]) -> Problems:
    if not priced:
        reason = f" ({refusals[0]})" if refusals else ""
        yield f"every one was refused{reason}, so nothing was looked at; give check_cost_model a device that suits it"


def check_layer_times(model: LayerTimes) -> tuple[Finding, ...]:
    """Combine operators: none, one, and several in chains and side by side, on one engine and on several."""
    tally = Tally()
    for durations, engines, precedence in _layers():
        where = f"{len(durations)} operators on {len(set(engines))} engines, {len(precedence)} waiting"
        arguments = durations, engines, precedence
        seconds = partial(model.seconds, *arguments)
        tally.run("seconds are finite and not negative", where, _bad_seconds, seconds)
        tally.steady("it says the same every time", where, seconds)
        tally.run("a layer takes as long as what must follow one another", where, _too_short, model, *arguments)
    return tally.findings()


Pairs = Sequence[tuple[int, int]]


def _layers() -> Iterator[tuple[tuple[float, ...], tuple[str, ...], Pairs]]:
    names = (MATRIX, VECTOR, COMMUNICATION)
    for count in (0, 1, 2, 5, 9):
        durations = tuple(1e-3 * (1 + index % 4) for index in range(count))
        chain = tuple((index, index + 1) for index in range(count - 1))
        fork = tuple((0, index) for index in range(1, count))
        for engines in (1, 2, 3):
            on = tuple(names[index % engines] for index in range(count))
            for precedence in (chain, fork, ()):
                yield durations, on, precedence
    yield (0.0, 0.0), (MATRIX, MATRIX), ((0, 1),)


def _bad_seconds(seconds: Callable[[], float]) -> None:
    amount(seconds(), "the time")


def _too_short(model: LayerTimes, durations: Sequence[float], engines: Sequence[str], waits: Pairs) -> Problems:
    """Object to less than the longest chain of waiting operators, which come in that order."""
    ends = list(durations)
    for index in range(len(ends)):
        ends[index] += max((ends[before] for before, after in waits if after == index), default=0.0)
    seconds, least = model.seconds(durations, engines, waits), max(ends, default=0.0)
    if seconds < least * (1 - AGREEMENT):
        yield f"operators that wait for one another take {least:g} seconds, the layer only {seconds:g}"


BYTES = (0.0, 1.0, 4096.0, 1e6, 1.5e6, 1e9, 1e12)
"""Sizes of buffers, ascending: from nothing over a number to more than a device holds."""

Shape = tuple[int, ...]

NETWORKS: tuple[tuple[tuple[Level, ...], tuple[tuple[Shape, int], ...]], ...] = (
    ((Level("node", 8, 4e11, 3e-6),), (((1,), 1), ((2,), 2), ((3,), 3), ((8,), 8))),
    (
        (Level("node", 8, 4e11, 3e-6, "nvlink4"), Level("spine", 4, 5e10, 5e-6, "infiniband-ndr")),
        (((1, 1), 1), ((8, 1), 8), ((1, 4), 4), ((2, 3), 6), ((2, 3), 4), ((8, 4), 32), ((8, 4), 25)),
    ),
    (
        (Level("node", 4, 9e11, 0.0), Level("leaf", 4, 5e10, 1e-5), Level("core", 8, 5e9, 1e-4)),
        (((1, 1, 1), 1), ((4, 1, 8), 32), ((4, 4, 8), 128), ((4, 4, 8), 14)),
    ),
)
"""Networks, innermost level first, each with sets of devices by shape and members (PROBLEM.md section 1).

One names its links. In some sets not all groups are as full as the fullest, so there are fewer members than the
shape's."""


@frozen
class _Query:
    """A kind of collective on a set of devices, with the model that prices it."""

    model: CollectiveModel
    kind: str
    shape: Sequence[int]
    levels: Sequence[Level]
    members: int

    def time(self, size: float) -> float:
        """Return seconds of so many bytes; a model that takes members gets them."""
        seconds: float = self._priced(self.model.time, size)
        return seconds

    def by_size(self) -> list[float]:
        """Return seconds of all `BYTES`, with fresh lists for the shape and the levels."""
        other = evolve(self, shape=list(self.shape), levels=list(self.levels))
        return [other.time(size) for size in BYTES]

    def times(self, sizes: Array) -> Array:
        """Return seconds of many sizes at once, for a model with that method."""
        many: Callable[..., Array] = self.model.times  # type: ignore[attr-defined]
        seconds: Array = self._priced(many, sizes)
        return seconds

    def per_byte(self) -> float:
        """Return the least seconds per byte, for a model with that method."""
        least = called_with(self.model.per_byte, MEMBERS)  # type: ignore[attr-defined]
        return float(least(self.kind, self.shape, self.levels, members=self.members))

    def _priced(self, method: Callable[..., Any], size: Any) -> Any:
        return called_with(method, MEMBERS)(self.kind, size, self.shape, self.levels, members=self.members)


def check_collective_model(model: CollectiveModel) -> tuple[Finding, ...]:
    """Price every kind of collective, from nothing to a terabyte, among devices of one to three levels."""
    tally = Tally()
    counts = takes(model.time, MEMBERS)
    offers_times = getattr(model, "times", None) is not None
    for kind in COLLECTIVES:
        for levels, sets in NETWORKS:
            for shape, members in sets:
                query = _Query(model, kind, shape, levels, members)
                uneven = f", {members} in all" if members < prod(shape) else ""
                where = f"{kind} among {'x'.join(map(str, shape))} devices{uneven}"
                with tally.untouched(where, levels):
                    tally.run("times are finite and not negative", where, _bad, query)
                    tally.steady("it says the same every time", where, query.by_size)
                tally.run("more bytes never take less time", where, _shrinking, query)
                tally.run("no bytes cost nothing", where, _no_bytes, query)
                if members == 1:
                    tally.run("one member costs nothing", where, _one_member, query)
                else:
                    tally.run("bytes among several members take time", where, _free, query)
                    tally.run("no more is sent than the links carry", where, _beyond_links, query)
                if counts and not uneven:
                    tally.run("left out, the members are those of the shape", where, _uncounted, query)
                if offers_times:
                    tally.run("`times` agrees with `time`", where, _arrays, query)
                if getattr(model, "per_byte", None) is not None:
                    tally.run("no bytes take less than `per_byte` says", where, _below_least, query)
    return tally.findings()


def _bad(query: _Query) -> None:
    for size, seconds in zip(BYTES, query.by_size(), strict=True):
        amount(seconds, f"the time of {size:g} bytes")


def _shrinking(query: _Query) -> None:
    require_rising(numpy.array(BYTES), numpy.array(query.by_size()))


def _no_bytes(query: _Query) -> Problems:
    seconds = query.time(0.0)
    if seconds != 0:
        yield f"to send nothing takes {seconds:g} seconds; plans never ask for it, others may"


def _one_member(query: _Query) -> Problems:
    for size in BYTES:
        seconds = query.time(size)
        if seconds != 0:
            yield f"one device, which sends nothing, takes {seconds:g} seconds for {size:g} bytes"


def _free(query: _Query) -> Problems:
    if query.time(BYTES[-1]) == 0:
        yield f"{BYTES[-1]:g} bytes take no time"


def _beyond_links(query: _Query) -> Problems:
    """Object if members send or receive their different data faster than all their ports allow.

    Even in-network sums take at least the time of `(k - 1) / k n` of `n` bytes (Patarasuk and Yuan, JPDC 69(2), 2009,
    halved as the switch adds up and multicasts).
    """
    share = 1.0 if query.kind == "point_to_point" else 1 - 1 / query.members
    for size in BYTES[-2:]:
        least, seconds = share * size / sum(level.bandwidth for level in query.levels), query.time(size)
        if seconds < least * (1 - AGREEMENT):
            yield f"{size:g} bytes take {seconds:g} seconds, and all links of a device together {least:g}"


def _uncounted(query: _Query) -> Problems:
    for size in BYTES:
        counted, left_out = query.time(size), query.model.time(query.kind, size, query.shape, query.levels)
        if not isclose(counted, left_out, rel_tol=AGREEMENT):
            yield f"{size:g} bytes take {counted:g} seconds among {query.members} members, {left_out:g} untold"


def _arrays(query: _Query) -> Problems:
    sizes = numpy.array(BYTES)
    answers = query.times(sizes)
    if not numpy.array_equal(sizes, BYTES):
        yield "`times` changed the sizes it was given"
    if numpy.shape(answers) != (len(BYTES),):
        yield f"`times` of {len(BYTES)} sizes has the shape {numpy.shape(answers)}"
        return
    for size, seconds in zip(BYTES, numpy.asarray(answers).tolist(), strict=True):
        single = query.time(size)
        if not isclose(seconds, single, rel_tol=AGREEMENT):
            yield f"`times` says {seconds:g} seconds for {size:g} bytes, `time` says {single:g}"


def _below_least(query: _Query) -> Problems:
    least = query.per_byte()
    amount(least, "`per_byte`")
    for size in BYTES:
        if query.time(size) < least * size * (1 - AGREEMENT):
            yield f"{size:g} bytes take {query.time(size):g} seconds, by `per_byte` at least {least * size:g}"
