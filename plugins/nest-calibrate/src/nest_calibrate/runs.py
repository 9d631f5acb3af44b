"""Measured runs as arrays: predicted step times for many values of a device's coefficients.

Operators are priced by the cost model itself, each that differs once; what is added up here is what
`nest.formulate` and `nest.plan` add up for one plan (PROBLEM.md section 4), and tests hold both to agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
from attrs import astuple, evolve, frozen
from numpy.typing import NDArray

from nest.graph import Operator
from nest.hooks.protocols import CostModel
from nest.instance import Array, Weights
from nest.public.planning import (
    CostBreakdown,
    Direction,
    PricedOperator,
    computing_weight_gradients,
    data_parallel_exposure,
    evaluate,
    matrix_peak,
)
from nest.spec import DeviceSpec, Training

Indices = NDArray[numpy.int64]

EXPOSED = ("tensor_exposed", "experts_exposed", "dispatch_exposed")
"""Coefficients: shares that show of collectives that hide under a layer's computation."""


_SHOWN: dict[str, Any] = dict.fromkeys(
    (*EXPOSED, "ring_exposed", "data_exposed", "gathers_exposed", "synchronisation", "sharded_synchronisation"), 1.0
)
"""Coefficients that are about collectives alone, at a value that all may have."""

REMEMBERED = 32
"""Prices that are remembered: more than a fit asks for before it is back at those it compares with."""


@frozen(eq=False)
class Prices:
    """Seconds of the operators that differ. Arrays of shape `(operators,)`."""

    forward: Array
    backward: Array
    update: Array
    host: Array
    weight_gradients: Array


class Operators:
    """The operators that differ, each with its device and training."""

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._places: dict[Any, int] = {}
        self._rows: list[tuple[Operator, str, Training]] = []
        self._known: dict[str, Prices] = {}

    def place(self, operator: Operator, device: str, training: Training) -> int:
        """Index of the prices of `operator`."""
        # Names and the size of the batch change no price of one micro-batch.
        key = (_content(operator), device, repr(evolve(training, global_batch=1, micro_batch=None)))
        if key not in self._places:
            self._places[key] = len(self._rows)
            self._rows.append((operator, device, training))
        return self._places[key]

    def prices(self, devices: Mapping[str, DeviceSpec]) -> Prices:
        """Prices of the cost model on devices by name; kept, since hiding changes none of them."""
        key = repr(
            {name: evolve(each, calibration=evolve(each.calibration, **_SHOWN)) for name, each in devices.items()}
        )
        if key not in self._known:
            while len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = self._priced(devices)
        else:
            self._known[key] = self._known.pop(key)
        return self._known[key]

    def _priced(self, devices: Mapping[str, DeviceSpec]) -> Prices:
        prices = [self._costs.price(operator, devices[name], training) for operator, name, training in self._rows]
        rows = [
            (each.forward, each.backward, each.update, each.host, computing_weight_gradients(row[0], each))
            for row, each in zip(self._rows, prices, strict=True)
        ]
        return Prices(*numpy.array(rows).reshape(-1, 5).T)


def _content(operator: Operator) -> tuple[object, ...]:
    def shapes(tensors: Iterable[Any]) -> tuple[object, ...]:
        return tuple((each.shape, each.itemsize, each.differentiable) for each in tensors)

    learned = tuple((each.shape, each.group, each.frozen) for each in operator.parameters)
    figures = (operator.kind, operator.space, operator.flops_per_point, operator.backward_flops_ratio)
    work = (operator.contracted, operator.steps, operator.passes)
    return (*figures, shapes(operator.inputs), shapes(operator.outputs), learned, *work)


@frozen(eq=False)
class _Calls:
    """Collectives of layers in one direction. Arrays of shape `(calls,)`.

    Attributes:
        layer: whose they are.
        seconds: of each, hidden or not.
        weight_gradients: of these, what serves nothing but gradients of weights.
        under: the operator that hides it, by place; where there is none, any, with `share` 0.
        share: of that operator's time under which it hides.
        launches: calls the host makes.
        hides: which coefficient says the share that shows where the framework hides them under the layer's
            computation, an index into `EXPOSED`; its length where it does not.
    """

    layer: Indices
    seconds: Array
    under: Indices
    share: Array
    launches: Array
    hides: Indices
    weight_gradients: Array


@frozen(eq=False)
class _Direction:
    """Work of layers in one direction: their operators, and the collectives between them."""

    layer: Indices
    operator: Indices
    calls: _Calls


class Runs:
    """Runs whose step times are predicted together."""

    def __init__(self, breakdowns: Sequence[CostBreakdown], costs: CostModel) -> None:
        self.breakdowns = breakdowns
        self._operators = Operators(costs)
        self._devices = [each.pricing.device.name for each in breakdowns]
        self._layers()
        self._stages()

    def _layers(self) -> None:
        flat = [(run, breakdown, layer) for run, breakdown in enumerate(self.breakdowns) for layer in breakdown.layers]
        self._run_of_layer = numpy.array([run for run, _, _ in flat], dtype=numpy.int64)
        ahead, behind, again = _Collector(), _Collector(), _Collector()
        for index, (_, breakdown, layer) in enumerate(flat):
            device, training = breakdown.pricing.device.name, breakdown.problem.training
            computing = [row for row in layer.rows if row.operator.collective is None]
            place = {row.operator.name: self._operators.place(row.operator, device, training) for row in computing}
            for row in layer.rows:
                ahead.add(index, row, place, Direction.FORWARD)
                behind.add(index, row, place, Direction.BACKWARD)
                if row.operator.name in layer.again:
                    again.add(index, row, place, Direction.FORWARD)
        self._ahead, self._behind, self._again = ahead.done(), behind.done(), again.done()

    def _stages(self) -> None:
        first = numpy.cumsum([0, *(len(each.layers) for each in self.breakdowns)])
        counts: list[tuple[int, int, int]] = []
        stages: list[tuple[float, ...]] = []
        sharded: list[bool] = []
        schedules: list[tuple[float, ...]] = []
        replayed: list[float] = []
        for run, breakdown in enumerate(self.breakdowns):
            exposed = evaluate(_exposing(breakdown, 1.0), breakdown.solution)
            overlapped = evaluate(_exposing(breakdown, 0.0), breakdown.solution)
            priced = evaluate(breakdown.instance, breakdown.solution)
            schedules.append(astuple(priced.weights))
            replayed.append(priced.batch_time / priced.closed_form)
            hides = breakdown.instance.space.hides(breakdown.solution.schedule)
            for own, alone, under, full in zip(
                breakdown.stages, exposed.stages, overlapped.stages, priced.stages, strict=True
            ):
                counts += [(len(stages), int(first[run]) + kind, count) for kind, count in own.items()]
                # Of what ZeRO sends in every micro-batch, what it does in forward passes.
                ahead = (alone.forward - under.forward) / (alone.sharding or 1.0)
                ports = [*zip(full.ports or (), full.once_ports or (), strict=True)]
                busiest = max((often for often, _ in ports), default=0.0)
                used = max((often for often, once in ports if once > 0), default=-numpy.inf)
                synced = (alone.sync - under.sync, under.sync)
                received = (alone.arriving, alone.returning, hides)
                stages.append((run, *received, alone.sharding, ahead, *synced, busiest, used, priced.micro_batches))
            sharded += [stage.zero > 0 for stage in breakdown.solution.stages]
        self._counts = numpy.array(counts, dtype=numpy.int64)
        self._sharded = numpy.array(sharded)
        self._run_of_stage = numpy.array([row[0] for row in stages], dtype=numpy.int64)
        columns = numpy.array([row[1:] for row in stages], dtype=numpy.float64).T
        self._arriving, self._returning, self._hiding_messages = columns[:3]
        self._sharding, self._ahead_share, self._sync, self._update = columns[3:7]
        self._busiest, self._busiest_used, self._micro_batches = columns[7:]
        self._weights = Weights(*numpy.array(schedules).T[:, self._run_of_stage])
        # What a replay adds to the closed form changes little with the coefficients: runs are not replayed for each.
        self._replayed = numpy.array(replayed)
        measured_on = {each.pricing.device.name: each.pricing.device for each in self.breakdowns}
        hosts = [each.pricing.host for each in self.breakdowns]
        here = numpy.array([host is None or not host.holds_optimizer for host in hosts])[self._run_of_stage]
        # A step that the host takes is the same on every device.
        self._updates = here * self._of_stages(self._of_layers(self._ahead, self._operators.prices(measured_on).update))
        space = [each.instance.space for each in self.breakdowns]
        self._hiding = numpy.array([each.hiding for each in space])

    def predict(self, devices: Mapping[str, DeviceSpec]) -> Array:
        """Step times on devices by name, seconds. Shape `(runs,)`."""
        prices = self._operators.prices(devices)
        terms = [devices[name].calibration for name in self._devices]
        exposed = numpy.array(
            [self._per_layer([getattr(each, name) for each in terms]) for name in EXPOSED]
            + [numpy.ones(len(self._run_of_layer))]
        )
        ring = self._per_layer([each.ring_exposed for each in terms])
        launch = self._per_layer(
            [
                breakdown.problem.training.host_launch(devices[name])
                for breakdown, name in zip(self.breakdowns, self._devices, strict=True)
            ]
        )
        forward, backward, again = (
            self._seconds(direction, seconds, prices.host, (exposed, ring), launch)
            for direction, seconds in (
                (self._ahead, prices.forward),
                (self._behind, prices.backward),
                (self._again, prices.forward),
            )
        )
        calls = self._behind.calls
        weights = self._of_layers(self._behind, prices.weight_gradients)
        weights += self._add(calls.layer, exposed[calls.hides, calls.layer] * calls.weight_gradients)
        weights = numpy.minimum(weights, backward / 2)
        compute = self._of_stages(forward + backward + again)
        return self._batch_times(compute, self._of_stages(forward), self._of_stages(weights), devices, prices)

    def _seconds(
        self, direction: _Direction, seconds: Array, host: Array, exposed: tuple[Array, Array], launch: Array
    ) -> Array:
        """Of each layer in one direction (`nest.formulate.operator_costs`).

        `exposed` are the shares that show: of what hides under a layer's computation, a row of layers for each of
        `EXPOSED` and one for what does not hide, and of rings, which hide under one operator.
        """
        calls = direction.calls
        under = calls.share * seconds[calls.under]
        least = numpy.where(under > 0, exposed[1][calls.layer], 0.0) * calls.seconds
        seconds_exposed = numpy.maximum(calls.seconds - under, least)
        beside = self._add(calls.layer, exposed[0][calls.hides, calls.layer] * seconds_exposed)
        computation = self._of_layers(direction, seconds)
        launching = self._of_layers(direction, numpy.where(seconds > 0, host, 0.0))
        launching += launch * self._add(calls.layer, calls.launches)
        communication = self._add(calls.layer, calls.seconds)
        return numpy.maximum(numpy.maximum(computation + beside, communication), launching)

    def _batch_times(
        self, compute: Array, forward: Array, weights: Array, devices: Mapping[str, DeviceSpec], prices: Prices
    ) -> Array:
        """PROBLEM.md section 4, for all runs.

        `compute` are the seconds of stages per micro-batch, `forward` and `weights` those of them that run forward and
        that find gradients of weights.
        """
        predicted = [
            data_parallel_exposure(breakdown.problem.training, devices[name], breakdown.problem.model is not None)
            for breakdown, name in zip(self.breakdowns, self._devices, strict=True)
        ]
        share, often, waiting, sharded = (
            numpy.array([getattr(each, name) for each in predicted], dtype=numpy.float64)[self._run_of_stage]
            for name in ("exposed", "exposed_often", "synchronisation", "sharded_synchronisation")
        )
        often = numpy.where(numpy.isnan(often), share, often)
        once = waiting * numpy.where(self._sharded, sharded, 1.0) * self._sync
        hides = self._hiding[self._run_of_stage]

        def exposed(seconds: Array, least: Array) -> Array:
            return numpy.where(hides, numpy.maximum(least * seconds, seconds - compute), least * seconds)

        before = self._updates
        now = self._of_stages(self._of_layers(self._ahead, prices.update))
        ratio = numpy.divide(now, before, out=numpy.ones_like(now), where=before > 0)
        between, sharding = self._arriving + self._returning, exposed(self._sharding, often)
        whole = compute + between + sharding
        unhindered = whole - numpy.where(self._hiding_messages, numpy.minimum(between, compute), 0.0)
        times = numpy.maximum(unhindered, self._busiest)
        # What hides does so under what ports leave free (PROBLEM.md section 4, Ports).
        held_up = numpy.where(share < 1, once - self._micro_batches * (times - self._busiest_used), 0.0)
        ahead = forward + self._ahead_share * sharding
        filling = self._weights.of_parts(ahead, compute + sharding - ahead - weights, weights)
        filling += self._weights.of_messages(self._arriving, self._returning)
        filling += self._weights.waiting * (times - unhindered)
        return self._replayed * numpy.asarray(
            self._most(self._weights.slowest * times)
            + numpy.bincount(self._run_of_stage, filling, minlength=len(self.breakdowns))
            + self._most(numpy.maximum(exposed(once, share), held_up) + ratio * self._update)
        )

    def _per_layer(self, values: Sequence[float]) -> Array:
        return numpy.array(values)[self._run_of_layer]

    def _add(self, layer: Indices, values: Array) -> Array:
        return numpy.bincount(layer, values, minlength=len(self._run_of_layer)).astype(numpy.float64)

    def _of_layers(self, direction: _Direction, values: Array) -> Array:
        return self._add(direction.layer, values[direction.operator])

    def _of_stages(self, layers: Array) -> Array:
        stage, layer, count = self._counts.T
        return numpy.bincount(stage, layers[layer] * count, minlength=len(self._run_of_stage)).astype(numpy.float64)

    def _most(self, stages: Array) -> Array:
        largest = numpy.zeros(len(self.breakdowns))
        numpy.maximum.at(largest, self._run_of_stage, stages)
        return largest


def at_peak(breakdown: CostBreakdown) -> float:
    """Seconds of a step at the least: all FLOP of the busiest stage at the matrix peak, and nothing else."""
    peak = matrix_peak(breakdown.pricing.device, breakdown.problem.training.precision)
    flops = [sum(row.operator.flops + row.operator.backward_flops for row in layer.rows) for layer in breakdown.layers]
    busiest = max(sum(count * flops[layer] for layer, count in stage.items()) for stage in breakdown.stages)
    return evaluate(breakdown.instance, breakdown.solution).micro_batches * busiest / peak


def _exposing(breakdown: CostBreakdown, share: float) -> Any:
    """The instance with `share` of data-parallel communication exposed, whatever could hide it, and without ports."""
    space = evolve(
        breakdown.instance.space,
        exposed=share,
        exposed_often=None,
        hiding=False,
        synchronisation=1.0,
        sharded_synchronisation=1.0,
    )
    candidates = tuple(
        evolve(each, busy=None, recompute=tuple(evolve(mode, busy=None) for mode in each.recompute))
        for each in breakdown.instance.candidates
    )
    return evolve(breakdown.instance, space=space, candidates=candidates)


class _Collector:
    """Gathers what layers do in one direction, row by row."""

    def __init__(self) -> None:
        self._computing: list[tuple[int, int]] = []
        self._calls: list[tuple[float, ...]] = []

    def add(self, layer: int, row: PricedOperator, place: Mapping[str, int], direction: Direction) -> None:
        """Add one operator; `place` says where those of the layer that compute are priced."""
        made = row.operator.collective
        if made is None:
            self._computing.append((layer, place[row.operator.name]))
            return
        calls = made.forward if direction is Direction.FORWARD else made.backward
        seconds = sum(row.times(direction)[1:]) + row.hidden[direction]
        under, share = (place[made.under], made.share) if made.under in place else (0, 0.0)
        hides = EXPOSED.index(row.coefficient) if row.coefficient else len(EXPOSED)
        of_weights = 0.0 if direction is Direction.FORWARD else row.weight_gradients
        self._calls.append((layer, seconds, under, share, len(calls), hides, of_weights))

    def done(self) -> _Direction:
        """All that was added."""
        computing = numpy.array(self._computing, dtype=numpy.int64).reshape(-1, 2).T
        layer, seconds, under, share, launches, hides, of_weights = _columns(self._calls)
        calls = _Calls(
            layer.astype(numpy.int64),
            seconds,
            under.astype(numpy.int64),
            share,
            launches,
            hides.astype(numpy.int64),
            of_weights,
        )
        return _Direction(computing[0], computing[1], calls)


def _columns(rows: Sequence[tuple[float, ...]]) -> Array:
    return numpy.asarray(numpy.array(rows, dtype=numpy.float64).reshape(-1, 7).T)
