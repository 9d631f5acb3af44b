"""Checks of results of plug-ins, by kind and member: each returns the value, or raises."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NoReturn

import numpy

from nest.deployment import MEGATRON_ORDER, Limits, Reading
from nest.graph import Block
from nest.hooks import protocols
from nest.hooks.graph_results import instance_of, one_line, sound_block, sound_graph, sound_network
from nest.hooks.kinds import KINDS, InvalidResult
from nest.hooks.planning import Proposal
from nest.hooks.protocols import MeasuredOperator, OperatorCost
from nest.instance import Array, Instance, Level, Solution, StageDecision, modes_of
from nest.instance.recompute import partial as recomputed_part
from nest.instance.schedule import PASSES, ROUND, Held, Pass, V, Weighted, Weights
from nest.plan.certificate import RAYS, least_of_rays
from nest.spec import StackDefaults
from nest.spec.problem import RANK_ORDERS
from nest.tolerances import AGREEMENT
from nest.units import LARGEST

MOST_COMPARED = 4096
"""Most sizes of one call whose collective times are compared."""


def whole(value: Any, what: str, least: int = 1) -> int:
    """Check an integer from `least` to `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= LARGEST:
        raise InvalidResult(f"{what} is {one_line(value)}, no whole number from {least} to {LARGEST:g}")
    return int(value)


def amount(value: Any, what: str) -> float:
    """Check a number from 0 to `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= LARGEST:
        raise InvalidResult(f"{what} is {one_line(value)}, no number from 0 to {LARGEST:g}")
    return float(value)


def truth(value: Any) -> bool:
    """Check a boolean."""
    if not isinstance(value, (bool, numpy.bool_)):
        raise InvalidResult(f"{one_line(value)} is neither true nor false")
    return bool(value)


def _sequence(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InvalidResult(f"{one_line(value)} is no sequence of {what}")
    return value


def _names(result: Any) -> tuple[str, ...]:
    names = tuple(result)
    if isinstance(result, str) or not all(isinstance(name, str) for name in names):
        raise InvalidResult(f"{one_line(result)} is no sequence of names")
    return names


def _degrees(result: Any, block: Block, context: Any) -> tuple[int, ...]:
    return tuple(whole(degree, "a degree") for degree in _sequence(result, "degrees"))


def operator_cost(result: Any) -> OperatorCost:
    """Check an `OperatorCost` of plain numbers."""
    instance_of(OperatorCost)(result)
    names = ("forward", "backward", "update", "saved", "transient", "host")
    weights = result.weight_gradients
    if weights is not None and amount(weights, "weight_gradients") > result.backward:
        raise InvalidResult(f"weight_gradients is {weights:g}, more than backward, {result.backward:g}")
    figures = {name: amount(getattr(result, name), name) for name in names}
    measured = None if result.measured is None else _measured(result.measured)
    return OperatorCost(**figures, weight_gradients=weights, measured=measured)


def _measured(result: Any) -> MeasuredOperator:
    instance_of(MeasuredOperator)(result)
    sizes, at = (
        tuple((name, whole(size, f"the size {name}")) for name, size in dict(getattr(result, key)).items())
        for key in ("sizes", "measured_at")
    )
    return MeasuredOperator(sizes, at, truth(result.backward))


def _times(result: Any, kind: str, sizes: Array, *_: Any, **__: Any) -> Array:
    times = numpy.asarray(result)
    if times.shape != sizes.shape or times.dtype.kind not in "fiu":
        raise InvalidResult(f"{one_line(result)} is no array of {len(sizes)} times")
    good = (times >= 0) & (times <= LARGEST)
    if not good.all():
        amount(times[~good][0].item(), "a time")
    require_rising(sizes, times)
    return times.astype(numpy.float64)


def require_rising(sizes: Array, times: Array) -> None:
    """Check that more bytes never take less time, for a sample of many sizes (docs/explanation/proofs.md).

    Raises:
        InvalidResult: some do.
    """
    some = slice(None, None, -(-len(sizes) // MOST_COMPARED) or 1)
    order = sizes[some].argsort(kind="stable")
    less, more = sizes[some][order], times[some][order]
    longest = numpy.maximum.accumulate(more)
    falling = numpy.flatnonzero(more < longest * (1 - AGREEMENT))
    if len(falling):
        place = int(falling[0])
        before = int(longest[: place + 1].argmax())
        _falls((float(less[before]), float(more[before])), (float(less[place]), float(more[place])))


def _falls(less: tuple[float, float], more: tuple[float, float]) -> NoReturn:
    raise InvalidResult(f"{more[0]:g} bytes take {more[1]:g} s, and {less[0]:g} bytes {less[1]:g} s")


class _Rising:
    """Checks the time of a collective, also against the previous call of its kind: more bytes never take less."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def __call__(
        self,
        result: Any,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        key, now = (kind, tuple(shape), tuple(levels), members), (float(bytes), amount(result, "the time"))
        less, more = sorted((self._last.get(key, now), now))
        if more[1] < less[1] * (1 - AGREEMENT):
            _falls(less, more)
        self._last[key] = now
        return now[1]


def sound_weights(result: Any, micro_batches: int, stages: int) -> Weighted:
    """Check the weights `A` and `B` of a schedule, or `A`, `Bf`, `Bb` and `Bw`: at least those of one stage.

    Else a plan would take less than the work of its slowest stage (PROBLEM.md section 4).
    """
    weighted = plain_weights(result)
    weights = Weights(*weighted) if len(weighted) == 4 else Weights(weighted[0], *weighted[1:] * 3)
    for parts, least in zip(RAYS, least_of_rays(weights), strict=True):
        if least < micro_batches * (1 - AGREEMENT):
            raise InvalidResult(
                f"a pipeline with all its work in one stage takes {least:g} times the time of that stage "
                f"(A + B{parts}), which has {micro_batches} micro-batches to run ({stages} stages)"
            )
    return weighted


def plain_weights(result: Any) -> Weighted:
    """Check for weights of plain numbers, sufficient for one stage or not."""
    count = len(_sequence(result, "weights"))
    if count not in (2, 4):
        raise InvalidResult(f"{one_line(result)} is no pair of weights, nor `A`, `Bf`, `Bb` and `Bw`")
    if count == 2:
        return amount(result[0], "a weight"), amount(result[1], "a weight")
    slowest, forward, inputs = (amount(each, "a weight") for each in result[:3])
    if isinstance(result[3], bool) or not isinstance(result[3], Real) or not math.isfinite(result[3]):
        raise InvalidResult(f"{one_line(result[3])} is no weight of the gradients of weights")
    weights = float(result[3])
    if inputs + weights < 0:
        raise InvalidResult(
            f"the gradients of weights, weighed {weights:g}, make up for more than gradients of inputs ({inputs:g}) add"
        )
    return slowest, forward, inputs, weights


def sound_in_flight(result: Any, stage: int, stages: int, micro_batches: int) -> Held:
    """Check micro-batches in flight: from 1 to all, or rows by chunk."""
    if not isinstance(result, Sequence) or isinstance(result, str):
        if isinstance(result, bool) or not isinstance(result, Real) or not 1 <= result <= micro_batches:  # type: ignore[operator]
            raise InvalidResult(f"{one_line(result)} micro-batches are in flight; there are {micro_batches}")
        return int(result) if isinstance(result, Integral) else float(result)
    rows = result if result and isinstance(result[0], Sequence) else (result,)
    for row in rows:
        for each in _sequence(row, "micro-batches in flight"):
            if amount(each, "what a chunk holds in flight") > micro_batches:
                raise InvalidResult(f"{one_line(each)} micro-batches are in flight; there are {micro_batches}")
        if len(row) != len(rows[0]) or not row:
            raise InvalidResult(f"{one_line(result)} is no row of micro-batches in flight for each chunk")
    return tuple(tuple(row) for row in rows)


def _placement(result: Any, stages: int | None = None) -> str | tuple[int, ...]:
    """Check the name of a placement, or the stages of chunks."""
    if stages is None:
        if result not in (ROUND, V):
            raise InvalidResult(f"{one_line(result)} is no placement; it is {ROUND!r}, {V!r}, or a method")
        return str(result)
    rows = tuple(whole(each, "the stage of a chunk", 1) for each in _sequence(result, "stages"))
    counts = Counter(rows)
    if sorted(counts) != list(range(1, stages + 1)) or len(set(counts.values())) > 1:
        raise InvalidResult(f"{one_line(result)} does not give each of {stages} stages as many chunks")
    return rows


def _copies(result: Any) -> int:
    if whole(result, "the number of copies", 1) > 2:
        raise InvalidResult(f"{one_line(result)} copies are held; there are one or two")
    return int(result)


def _order(result: Any, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    for each in _sequence(result, "passes"):
        if not isinstance(each, Pass) or each.kind not in PASSES:
            raise InvalidResult(f"{one_line(each)} is not a pass ({', '.join(PASSES)})")
        whole(each.micro_batch, "the micro-batch of a pass", 0)
        whole(each.chunk, "the chunk of a pass", 0)
    return tuple(result)


def files_by_name(result: Any) -> dict[str, str]:
    """Check texts by names of files inside a folder."""
    if not isinstance(result, Mapping):
        raise InvalidResult(f"{one_line(result)} is no mapping of file names to contents")
    for name, text in result.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidResult(f"{one_line(name)} is not the name of a file with its text")
        for path in (PurePosixPath(name), PureWindowsPath(name)):
            if not path.name or path.anchor or ".." in path.parts:
                raise InvalidResult(f"{one_line(name)} is not the name of a file inside a folder")
    return dict(result)


def _rank_order(result: Any) -> tuple[str, ...]:
    if sorted(names := _names(result)) != sorted(MEGATRON_ORDER):
        raise InvalidResult(f"{one_line(result)} is no permutation of {', '.join(MEGATRON_ORDER)}")
    return names


_word = instance_of(str, "name")

CHECKS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("strategies", "after"): _names,
    ("strategies", "by_default"): truth,
    ("cost_models", "from_measurements"): truth,
    ("strategies", "rank_column"): truth,
    ("strategies", "follows"): _word,
    ("strategies", "within"): _word,
    ("model_importers", "accepts"): truth,
    ("model_importers", "load"): sound_graph,
    ("topology_importers", "accepts"): truth,
    ("topology_importers", "load"): sound_network,
    ("cost_models", "price"): operator_cost,
    ("layer_times", "seconds"): partial(amount, what="the time"),
    ("schedules", "chunks"): partial(whole, what="the number of chunks"),
    ("schedules", "with_chunks"): instance_of(protocols.Schedule, "schedule"),
    ("schedules", "fills"): truth,
    ("schedules", "staggered"): truth,
    ("schedules", "copies"): _copies,
    ("planners", "summary"): _word,
    ("planners", "with_options"): instance_of(protocols.Planner),
    ("exporters", "summary"): _word,
    ("exporters", "limits"): instance_of(Limits),
    ("exporters", "rank_order"): _rank_order,
    ("exporters", "export"): files_by_name,
    ("exporters", "refuse"): lambda _: None,
    ("plan_readers", "summary"): _word,
    ("plan_readers", "read"): instance_of(Reading, "nest.deployment.Reading"),
    ("plan_readers", "read_launch"): instance_of(Reading, "nest.deployment.Reading"),
    ("engines", "summary"): _word,
    ("stacks", "description"): _word,
    ("stacks", "version"): _word,
    ("stacks", "targets"): _names,
    ("stacks", "sources"): _names,
    ("stacks", "pipeline_overlap"): _names,
    ("stacks", "training"): instance_of(StackDefaults),
}
"""Checks of results. Members in neither table, such as those of newer versions of nest, are used unchecked."""

CHECKS_WITH_ARGUMENTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("strategies", "degrees"): _degrees,
    ("strategies", "searched"): _degrees,
    ("collective_models", "times"): _times,
    ("schedules", "weights"): sound_weights,
    ("schedules", "in_flight"): sound_in_flight,
    ("schedules", "order"): _order,
    ("schedules", "placement"): _placement,
    ("schedules", "admits"): lambda result, *_: truth(result),
    ("planners", "plan"): lambda result, instance, context: sound_proposal(result, instance),
}
"""Checks of results that also get the member's arguments."""


def members_of(kind: str) -> tuple[str, ...]:
    """Required and possible members of an object of `kind`."""
    checked = (member for of, member in (*CHECKS, *CHECKS_WITH_ARGUMENTS) if of == kind)
    return tuple(dict.fromkeys([*KINDS[kind].members, *checked]))


def check_of(kind: str, name: str, member: str) -> Callable[..., Any]:
    """Check of a member of the object of `kind` called `name`: gets the result and the arguments."""
    if (kind, member) == ("strategies", "apply"):
        return lambda result, block, degree, context: sound_block(result, name, block, degree)
    if (kind, member) == ("collective_models", "time"):
        return _Rising()
    check = CHECKS.get((kind, member))
    if check is not None:
        return lambda result, *_, **__: check(result)
    return CHECKS_WITH_ARGUMENTS.get((kind, member)) or (lambda result, *_, **__: result)


def sound_proposal(result: Any, instance: Instance) -> Proposal:
    """Check a proposal of plain numbers that refers only to parts of `instance`; it may be no plan.

    Raises:
        InvalidResult: it is invalid.
    """
    instance_of(Proposal)(result)
    remarks, solution, decisions = result.remarks, result.solution, result.decisions
    if not all(isinstance(each, str) for each in _sequence(remarks, "remarks")):
        raise InvalidResult("the remarks are no sentences")
    bound = None if result.bound is None else amount(result.bound, "the bound")
    if solution is None:
        if decisions is not None and not (
            isinstance(decisions, Mapping) and all(isinstance(k, str) for k in decisions)
        ):
            raise InvalidResult(f"{one_line(decisions)} are no decisions by name")
        return Proposal(None, tuple(remarks), bound, None if decisions is None else dict(decisions))
    if decisions is not None:
        raise InvalidResult("there are both a solution and decisions")
    instance_of(Solution)(solution)
    if not _sequence(solution.stages, "stages"):
        raise InvalidResult("there are no stages")
    if solution.rank_order not in RANK_ORDERS:
        raise InvalidResult(f"the rank order is {one_line(solution.rank_order)}, none of {', '.join(RANK_ORDERS)}")
    degree = solution.zero_degree
    decided = Solution(
        whole(solution.replicas, "replicas"),
        solution.rank_order,
        solution.schedule,
        tuple(_sound_stage(stage, instance) for stage in solution.stages),
        whole(solution.chunks, "chunks"),
        None if degree is None else whole(degree, "zero_degree"),
    )
    return Proposal(decided, tuple(remarks), bound)


def _sound_stage(stage: Any, instance: Instance) -> StageDecision:
    instance_of(StageDecision)(stage)
    layers, *chunks = (
        tuple(sorted(whole(layer, "a layer", 0) for layer in _sequence(each, "layers")))
        for each in (stage.layers, *_sequence(stage.chunks, "chunks"))
    )
    if layers and layers[-1] >= len(instance.graph.layers):
        raise InvalidResult(f"a stage names layer {layers[-1]}, and there are {len(instance.graph.layers)}")
    candidate = whole(stage.candidate, "a candidate", 0)
    if candidate >= len(instance.candidates):
        raise InvalidResult(f"a stage names candidate {candidate}, and there are {len(instance.candidates)}")
    own, part = {mode.name for mode in instance.candidates[candidate].recompute}, recomputed_part(stage.recompute)
    counted = part is None or 0 < part.layers < len(instance.space.units)  # Whether it is allowed is another question.
    if not ({*modes_of(stage.recompute)} <= own and counted):
        raise InvalidResult(f"a stage names the recompute mode {stage.recompute!r}, which its candidate lacks")
    if (zero := whole(stage.zero, "the ZeRO stage", 0)) > 3:
        raise InvalidResult(f"a stage has ZeRO stage {zero}, not 0 to 3")
    offset = whole(stage.offset, "the offset of a stage", 0)
    return StageDecision(layers, candidate, stage.recompute, zero, offset, tuple(chunks))
