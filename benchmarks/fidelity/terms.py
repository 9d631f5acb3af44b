"""The terms of the cost model that can be switched off, and how."""

from collections.abc import Callable

from attrs import evolve, frozen

from nest.catalogue import network_levels
from nest.graph import WHOLE_VOCAB, Operator, has_axis
from nest.hooks import hook
from nest.hooks.protocols import CostModel, OperatorCost
from nest.spec import DeviceSpec, Problem, Training
from nest.units import BytesPerSecond, Seconds

ENDLESS = BytesPerSecond(1e21)
"""Bytes per second of a memory that no operator waits for; those of today have some 1e13."""


WITHOUT = "without"
"""Name of the cost model that lacks a term, as problems give it."""


@frozen
class Term:
    """A term of the cost model. What it does not say stays as it is.

    Attributes:
        name: for tables.
        off: what happens without it.
        unknown: whether an unknown of calibration belongs to it; it is left at the value that switches it off.
        device: the device without it.
        problem: the run without it.
        price: prices of operators without it.
    """

    name: str
    off: str
    unknown: Callable[[str], bool] = lambda name: False
    device: Callable[[DeviceSpec], DeviceSpec] | None = None
    problem: Callable[[Problem], Problem] | None = None
    price: Callable[[CostModel, Operator, DeviceSpec, Training], OperatorCost] | None = None


@frozen
class Without:
    """A cost model without a term; also a plug-in that offers it.

    Attributes:
        inner: the cost model with the term.
        change: what it says without.
        name: as problems name it.
    """

    inner: CostModel
    change: Callable[[CostModel, Operator, DeviceSpec, Training], OperatorCost]
    name: str = WITHOUT

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Cost of `operator` without the term."""
        return self.change(self.inner, operator, device, training)


@frozen
class Plugin:
    """Offers a cost model.

    Attributes:
        costs: which.
    """

    costs: Without

    @hook
    def nest_cost_models(self) -> list[CostModel]:
        """The cost model."""
        return [self.costs]


def coefficient(name: str, off: str) -> Term:
    """The term of one coefficient, or of one with parts as `sustained.DEVICE`."""
    return Term(name, off, unknown=lambda unknown: unknown == name or unknown.startswith(f"{name}."))


def without_protocols(problem: Problem) -> Problem:
    """Collectives by latency and bandwidth (PROBLEM.md section 1), as on levels that state a latency of their own."""
    levels = problem.cluster.levels or ()
    plain = tuple(
        evolve(level, latency=Seconds(priced.latency)) if priced.lines else level
        for level, priced in zip(levels, network_levels(levels), strict=True)
    )
    return evolve(problem, cluster=evolve(problem.cluster, levels=plain)) if levels else problem


def without_hiding(problem: Problem) -> Problem:
    """Only the share that always shows shows, however little there is to hide under."""
    training = problem.training
    return evolve(problem, training=evolve(training, hiding=False)) if training.overlap.data else problem


def without_kernels(device: DeviceSpec) -> DeviceSpec:
    """One speed for all kernels of fused attention."""
    known = {name: share for name, share in device.efficiency.items() if not name.startswith("attention.")}
    return evolve(device, efficiency=known)


def fused(problem: Problem) -> Problem:
    """Attention fused in every precision, also where the frameworks of the time had no such kernel."""
    training = problem.training
    fuses = training.attention is None and training.stores_scores
    return evolve(problem, training=evolve(training, attention="flash")) if fuses else problem


def compiled(problem: Problem) -> Problem:
    """Operators between products fused, also where no framework's kernels do: the clamps of gpt-oss's experts."""
    training = problem.training
    return evolve(problem, training=evolve(training, kernels="fused")) if training.kernels is None else problem


def without_update(inner: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
    """No optimizer step."""
    return evolve(inner.price(operator, device, training), update=0.0)


def without_ends(inner: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
    """No seconds for embedding, vocabulary projection and loss."""
    cost = inner.price(operator, device, training)
    at_end = operator.kind == "embedding" or any(has_axis(operator.space, axis) for axis in ("vocab", WHOLE_VOCAB))
    return evolve(cost, forward=0.0, backward=0.0, host=0.0) if at_end else cost


def without_traffic(inner: CostModel, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
    """Arithmetic only, but for the optimizer step."""
    cost = inner.price(operator, evolve(device, memory_bandwidth=ENDLESS), training)
    return evolve(cost, update=inner.price(operator, device, training).update)


SHARES = ("matmul", "attention", "memory")
"""Unknowns that are shares of roofs, with parts as `matmul.FORMAT`."""

TERMS = (
    Term("calibration", "the catalogue's published figures, nothing fitted", unknown=lambda name: True),
    Term(
        "all coefficients",
        "a plain roofline; shares of roofs are fitted",
        unknown=lambda name: name.partition(".")[0] not in SHARES,
    ),
    Term("formats", "one share of the matrix peak for all formats", unknown=lambda name: name.startswith("matmul.")),
    coefficient("sustained", "devices of one generation differ by published figures only"),
    coefficient("contracted_half", "products lose nothing by a short contracted dimension"),
    coefficient("rows_half", "products lose nothing by few rows"),
    Term(
        "tiles and waves", "products never compute in vain", device=lambda device: evolve(device, multiprocessors=None)
    ),
    coefficient("grouped", "products with one matrix per expert run as fast as others"),
    coefficient("attention_backward", "attention runs backward as fast as forward"),
    coefficient("head_half", "attention loses nothing by small heads"),
    coefficient("sequence_half", "attention loses nothing by short sequences"),
    coefficient("shared_keys", "attention gains nothing by shared key-value heads"),
    coefficient("cast", "conversion to narrow formats takes no time"),
    Term(
        "launch overhead", "kernels start at once", device=lambda device: evolve(device, launch_overhead=Seconds(0.0))
    ),
    Term("host", "it is never late", unknown=lambda unknown: unknown in {"host_launch", "grace_launch"}),
    coefficient("host_launch", "a host of the x86 family is never late"),
    coefficient("grace_launch", "a Grace host launches as fast as one of the x86 family"),
    Term(
        "attention kernels",
        "all fused ones are as fast as `efficiency.attention` says",
        unknown=lambda unknown: unknown.startswith("attention."),
        device=without_kernels,
    ),
    Term("eager norms", "they are as fast as fused ones", unknown=lambda unknown: unknown == "eager"),
    coefficient("routing_launches", "the host launches routing as it does any operator"),
    coefficient("tensor_exposed", "all of a layer's collectives hide where `overlap.tensor` is set"),
    coefficient("experts_exposed", "all of the exchange between experts hides where `overlap.experts` is set"),
    coefficient("dispatch_exposed", "the same, with `dispatch: per-node`"),
    coefficient("ring_exposed", "all that rings send may hide under attention"),
    coefficient("data_exposed", "all that data parallelism sends once per batch may hide where `overlap.data` is set"),
    coefficient("gathers_exposed", "all that ZeRO 2 and 3 send in every micro-batch may hide where it is"),
    Term(
        "synchronisation",
        "ranks never wait for each other",
        unknown=lambda name: name in {"synchronisation", "sharded_synchronisation"},
    ),
    coefficient("sharded_synchronisation", "sharded optimizers' exchange waits as little as plain gradients"),
    Term("protocols", "collectives by one latency and one bandwidth per link", problem=without_protocols),
    Term("hiding", "data-parallel communication hides under nothing, too", problem=without_hiding),
    Term("unfused in fp16", "attention is fused in fp16, too", problem=fused),
    Term("unfused experts", "clamps and biases of experts are fused with their neighbours", problem=compiled),
    Term("memory traffic", "operators take arithmetic only", price=without_traffic),
    Term("ends", "no embedding, vocabulary projection and loss", price=without_ends),
    Term("optimizer step", "it takes no time", price=without_update),
)
"""Terms in the order in which they are told."""
