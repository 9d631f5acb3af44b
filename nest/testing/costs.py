"""Cost models and models of layer times: what their protocols promise, tried on the operators of small models."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from attrs import evolve

from nest.catalogue import devices
from nest.errors import InputError
from nest.graph import Operator
from nest.hooks.protocols import CostModel, LayerTimes, OperatorCost
from nest.spec import DeviceSpec, Training
from nest.spec.cluster import COMMUNICATION, MATRIX, VECTOR
from nest.testing.finding import Finding, Problems, Tally
from nest.testing.samples import SAMPLE_MODELS, SAMPLES, SampleModel, loaded
from nest.tolerances import AGREEMENT


def check_cost_model(
    model: CostModel, *, models: Sequence[SampleModel] = SAMPLE_MODELS, on: Sequence[DeviceSpec] | None = None
) -> tuple[Finding, ...]:
    """Price every operator of small models on devices.

    A device that cannot run a precision may be refused with an `InputError`; one device at least must be priced.

    Args:
        model: as `nest_cost_models` returns it.
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
            tally.run("costs are finite and not negative", where, _bad_costs, model, operators, device, sample, priced)
            refusals += _refusals(model, operators[0], device, sample.training)
            tally.run("it says the same every time", where, _unsteady, model, operators, device, sample.training)
            tally.run("names of operators mean nothing", where, _by_name, model, operators, device, sample.training)
    tally.run("some device is priced", "the devices", _nothing_priced, priced, refusals)
    return tally.findings()


_UNKNOWN = Operator("layer/stranger", "layer", "a kind of a plug-in", inputs=(), outputs=())
"""Plug-ins may add kinds of operator (`nest.graph.Operator`); a cost model takes them to be bound by memory."""


def _price(model: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost | None:
    """The cost; None where the device is refused."""
    try:
        return model.price(operator, device, training)
    except InputError:
        return None


def _bad_costs(
    model: CostModel, operators: Sequence[Operator], device: DeviceSpec, sample: SampleModel, priced: list[DeviceSpec]
) -> Problems:
    for operator in operators:
        cost: Any = _price(model, operator, device, sample.training)
        if cost is None:
            continue
        if not isinstance(cost, OperatorCost):
            yield f"the price of operator {operator.name!r} is a {type(cost).__name__}, not an OperatorCost"
            continue
        priced.append(device)
        for part in ("forward", "backward", "update", "saved", "transient", "host"):
            amount = getattr(cost, part)
            if not isinstance(amount, int | float) or not isfinite(amount) or amount < 0:
                yield f"`{part}` of operator {operator.name!r} is {amount!r}"
        if operator.flops > 0 and not cost.forward > 0:
            yield f"operator {operator.name!r} has {operator.flops:g} FLOP, but takes no time"


def _unsteady(model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training) -> Problems:
    for operator in operators:
        if _price(model, operator, device, training) != _price(model, operator, device, training):
            yield f"operator {operator.name!r} priced twice has two prices"


def _by_name(model: CostModel, operators: Sequence[Operator], device: DeviceSpec, training: Training) -> Problems:
    """One layer of each kind is priced for all, whatever they are called."""
    for operator in operators:
        renamed = evolve(operator, name=f"other/{operator.name}", layer="other")
        if _price(model, operator, device, training) != _price(model, renamed, device, training):
            yield f"operator {operator.name!r} costs something else under another name or in another layer"


def _refusals(model: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> list[str]:
    """Why a device is refused, if it is."""
    try:
        model.price(operator, device, training)
    except InputError as error:
        return [str(error)]
    except (Exception, SystemExit):  # A finding already.
        pass
    return []


def _nothing_priced(priced: Sequence[DeviceSpec], refusals: Sequence[str]) -> Problems:
    if not priced:
        told = f" ({refusals[0]})" if refusals else ""
        yield f"every one was refused{told}, so nothing was looked at; give check_cost_model a device that suits it"


def check_layer_times(model: LayerTimes) -> tuple[Finding, ...]:
    """Put operators together: none, one, and several in chains and side by side, on one engine and on several."""
    tally = Tally()
    for durations, engines, precedence in _layers():
        where = f"{len(durations)} operators on {len(set(engines))} engines, {len(precedence)} waiting"
        arguments = model, durations, engines, precedence
        tally.run("seconds are finite and not negative", where, _bad_seconds, *arguments)
        tally.run("it says the same every time", where, _unsteady_seconds, *arguments)
        tally.run("a layer takes as long as what must follow one another", where, _too_short, *arguments)
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


def _bad_seconds(model: LayerTimes, durations: Sequence[float], engines: Sequence[str], waits: Pairs) -> Problems:
    seconds = model.seconds(durations, engines, waits)
    if not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
        yield f"the layer takes {seconds!r} seconds"


def _unsteady_seconds(model: LayerTimes, durations: Sequence[float], engines: Sequence[str], waits: Pairs) -> Problems:
    first, second = (model.seconds(durations, engines, waits) for _ in range(2))
    if first != second:
        yield f"the same layer takes {first!r} seconds, then {second!r}"


def _too_short(model: LayerTimes, durations: Sequence[float], engines: Sequence[str], waits: Pairs) -> Problems:
    """Less than the longest chain of operators that wait for one another; operators come in such an order."""
    ends = list(durations)
    for index in range(len(ends)):
        ends[index] += max((ends[before] for before, after in waits if after == index), default=0.0)
    seconds, least = model.seconds(durations, engines, waits), max(ends, default=0.0)
    if seconds < least * (1 - AGREEMENT):
        yield f"operators that wait for one another take {least:g} seconds, the layer only {seconds:g}"
