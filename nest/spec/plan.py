"""Plan documents of `nest solve` (FORMATS.md, "Plan")."""

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from nest.errors import InputError
from nest.records import Record
from nest.spec.problem import Problem
from nest.spec.validators import at_least, between, each, one_of
from nest.tolerances import AGREEMENT

STATUSES = ("optimal", "near-optimal", "feasible", "infeasible")


@frozen(eq=False, repr=False)
class CandidateSummary(Record):
    """The candidate of a plan.

    Attributes:
        name: of the candidate.
        degrees: of strategies.
        width: devices per block.
        samples: samples per micro-batch.
        micro_batch: samples per micro-batch of one data-parallel rank, fewer if a block has several copies of the
            attention part; None: `samples`.
    """

    name: str
    degrees: dict[str, int] = field(validator=each(at_least(1)))
    width: int = field(validator=at_least(1))
    samples: int = field(validator=at_least(1))
    micro_batch: int | None = field(default=None, validator=at_least(1))


@frozen(eq=False, repr=False)
class MemoryBreakdown(Record):
    """Parts of a stage's memory, bytes; they sum to it.

    Attributes:
        weights: parameters.
        gradients: of the parameters.
        optimizer: its state.
        activations: of all micro-batches in flight.
        transient: bytes that exist only while a layer runs, without communication.
        communication: buffers of communication.
        framework: of driver and libraries.
        fragmentation: unusable part of the memory for activations.
        reserve: kept free.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    transient: float
    communication: float
    framework: float
    fragmentation: float
    reserve: float


class _Recomputing(Record):
    """Common part of the records of a stage."""

    __slots__ = ()
    recompute: str
    recompute_layers: int | None
    recompute_rest: str | None

    @property
    def recompute_name(self) -> str:
        if self.recompute_layers is None:
            return self.recompute
        return f"{self.recompute}:{self.recompute_layers}:{self.recompute_rest}"


@frozen(eq=False, repr=False)
class StageRecord(_Recomputing):
    """One pipeline stage of a plan.

    Attributes:
        layers: names of its layers.
        candidate: name of its candidate.
        recompute: recompute mode.
        zero: ZeRO stage.
        devices: first device and number of devices in replica 0.
        time: seconds per micro-batch (`t_i` of PROBLEM.md section 4).
        sync_time: seconds once per batch (`y_i`).
        memory: estimated bytes, with the reserve.
        in_flight: micro-batches in flight; a fraction with several chunks.
        level_in: level of the boundary before it, -1 for none; of several chunks the outermost.
        level_out: level of the boundary behind it, -1 for none; of several chunks the outermost.
        upper_memory: bytes compared with a device's: largest expected need, at `training.memory_risk` or with
            `training.memory_margin` of the estimate on top, with the reserve; None: `memory`.
        memory_breakdown: parts of `memory`; None: unknown.
        bytes_out: bytes that each device sends to its counterpart in the next stage per micro-batch, in all chunks;
            None: unknown.
        chunks: names of the layers of each of its chunks, in pipeline order; None: one chunk, or those of the even
            split.
        pool: name of the pool of these devices; None: the cluster has no pools. Levels are the pool's, and next to a
            stage of another pool one above its outermost.
        recompute_layers: number of first transformer blocks, of the stage or of each of its chunks, in mode
            `recompute`; None: all.
        recompute_rest: recompute mode of the others; None: there are none.
    """

    layers: tuple[str, ...]
    candidate: str
    recompute: str
    zero: int
    devices: tuple[int, int]
    time: float
    sync_time: float
    memory: float
    in_flight: float
    level_in: int
    level_out: int
    upper_memory: float | None = None
    memory_breakdown: MemoryBreakdown | None = None
    bytes_out: float | None = None
    chunks: tuple[tuple[str, ...], ...] | None = None
    pool: str | None = None
    recompute_layers: int | None = None
    recompute_rest: str | None = None


@frozen(eq=False, repr=False)
class StageDecisions(_Recomputing):
    """Decisions on one stage; the rest of a `StageRecord` follows.

    Attributes:
        layers: names of its layers.
        candidate: name of its candidate.
        recompute: recompute mode.
        zero: ZeRO stage.
        devices: first device and number of devices in replica 0.
        chunks: names of the layers of each of its chunks, in pipeline order; None: one chunk, or those of the even
            split.
        pool: name of its pool; None: the cluster has no pools.
        recompute_layers: see `StageRecord`.
        recompute_rest: see `StageRecord`.
    """

    layers: tuple[str, ...]
    candidate: str
    recompute: str
    zero: int
    devices: tuple[int, int]
    chunks: tuple[tuple[str, ...], ...] | None = None
    pool: str | None = None
    recompute_layers: int | None = None
    recompute_rest: str | None = None


@frozen(eq=False, repr=False)
class Decisions(Record):
    """Decisions of a plan; the rest of a `PlanDocument` follows.

    Attributes:
        candidate: of its widest stage, the first of them in pipeline order.
        data_parallel: replicas.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        chunks: runs of layers of each stage.
        zero_degree: most ranks for ZeRO sharding; None: all with equal parameters.
        stages: in pipeline order.
    """

    KEEP_NONE: ClassVar[bool] = True

    candidate: CandidateSummary
    data_parallel: int
    rank_order: str
    schedule: str
    chunks: int
    zero_degree: int | None
    stages: tuple[StageDecisions, ...]


@frozen(eq=False, repr=False)
class TimeRange(Record):
    """Predicted range of a batch's time.

    Attributes:
        probability: of the range.
        low: seconds.
        high: seconds.
    """

    probability: float
    low: float
    high: float


@frozen(eq=False, repr=False)
class UnknownFact(Record):
    """A key of `training` that the problem does not settle, and step times under its other value.

    Attributes:
        key: such as `overlap.data`.
        taken: its value, which the search and its proof are about.
        other: its other value.
        batch_time: seconds per optimizer step of the plan under that.
        others: the same of other plans in the document, by their key there.
    """

    KEEP_NONE: ClassVar[bool] = True

    key: str
    taken: Any
    other: Any
    batch_time: float
    others: dict[str, float] = field(factory=dict)


@frozen(eq=False, repr=False)
class OtherPlan(Record):
    """Another plan of the problem, besides the first one.

    Attributes:
        label: the plan's degrees in a few words.
        batch_time: seconds per optimizer step.
        slower_by: share by which that exceeds the step time of the document's plan; below 0: shorter.
        fit_probability: probability that no stage needs more memory than a device has; None: bytes are exact.
        memory: bytes of its fullest stage.
        decisions: basis of all these figures.
    """

    KEEP_NONE: ClassVar[bool] = True

    label: str
    batch_time: float
    slower_by: float
    fit_probability: float | None
    memory: float
    decisions: Decisions


@frozen(eq=False, repr=False)
class PlacementRecord(Record):
    """Placement of a plan's blocks on a non-hierarchical network.

    Attributes:
        replicas: of each replica, for each stage, names of its devices in the order of their ranks.
    """

    replicas: tuple[tuple[tuple[str, ...], ...], ...]


@frozen(eq=False, repr=False)
class PlanDocument(Record):
    """A plan file, key for key.

    Attributes:
        nest: version of the format.
        status: `optimal`; `near-optimal`, the simplest plan within `search.within` of the least step time; `feasible`
            or `infeasible`.
        batch_time: seconds per optimizer step; None when infeasible.
        lower_bound: no plan is faster, seconds; None when infeasible.
        throughput: samples per second; None when infeasible.
        fits: whether the plan is more likely than not to fit, at any `training.memory_risk`; with
            `training.memory_margin`, whether every stage's `upper_memory` is within a device's.
        candidate: None when infeasible.
        data_parallel: replicas `d`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        micro_batches: micro-batches per replica `M`.
        stages: in pipeline order; empty when infeasible.
        verification: result of a proof by another solver.
        problem: the problem, complete.
        chunks: runs of layers of each stage; None when infeasible.
        diagnosis: when infeasible, the tightest limit and by how much, in words.
        summary: derived figures: tokens per second and device, model FLOP utilisation, idle share, ...
        runner_up: the best plan met with other degrees, why it lost, the network levels whose last per cents of
            bandwidth decide that, and its `Decisions`, the basis of these.
        statistics: of the search.
        plugins: versions of the distributions involved, by name.
        placement: on a non-hierarchical network, the devices of every block; None: those of the levels.
        zero_degree: most ranks for ZeRO sharding; None: all with equal parameters.
        violates: unsatisfied constraints of a decided plan, as written; a search satisfies all.
        fit_probability: probability that the fullest stage needs no more memory than a device has; None when
            infeasible, or unknown.
        batch_time_range: likely range of the batch's time, over all values of `unknown`; None when infeasible, with the
            measured times of a profile, or unknown.
        unknown: keys that the problem does not settle and that change the step time; the costliest first.
        to_measure: plans worth a launch each before one is taken, by their key here; `plan` is this one.
        runs_on: names of the exporters for frameworks that accept the plan; None: unknown.
        space: part of the plans in which this is the best, in words; None: all that the problem allows.
        fastest: with `near-optimal`, the fastest plan found, of step time `lower_bound` unless the search left a gap.
        safer: a plan that is likelier to fit at little cost.
        simpler: an even simpler plan at little cost.
        outside: decisions that a search of the problem without `fixed` does not try, in words; None: unknown.
    """

    KEEP_NONE: ClassVar[bool] = True

    nest: int = field(validator=one_of((1,)))
    status: str = field(validator=one_of(STATUSES))
    batch_time: float | None
    lower_bound: float | None
    throughput: float | None
    fits: bool
    candidate: CandidateSummary | None
    data_parallel: int | None
    rank_order: str | None
    schedule: str | None
    micro_batches: int | None
    stages: tuple[StageRecord, ...]
    verification: dict[str, Any] | None
    problem: dict[str, Any] = field(metadata={"holds": Problem})
    chunks: int | None = field(default=1, validator=at_least(1))
    diagnosis: str | None = None
    summary: dict[str, Any] = field(factory=dict)
    runner_up: dict[str, Any] | None = None
    statistics: dict[str, Any] = field(factory=dict)
    plugins: dict[str, str] = field(factory=dict)
    placement: PlacementRecord | None = None
    zero_degree: int | None = None
    violates: tuple[str, ...] = ()
    fit_probability: float | None = field(default=None, validator=between(0, 1))
    outside: tuple[str, ...] | None = None
    space: str | None = None
    batch_time_range: TimeRange | None = None
    unknown: tuple[UnknownFact, ...] = ()
    to_measure: tuple[str, ...] = ()
    runs_on: tuple[str, ...] | None = None
    fastest: OtherPlan | None = None
    safer: OtherPlan | None = None
    simpler: OtherPlan | None = None

    @property
    def uncalibrated(self) -> bool:
        """True if step times center on another than predicted, as on devices without measured runs."""
        span, times = self.batch_time_range, [self.batch_time or 0.0, *(each.batch_time for each in self.unknown)]
        return span is not None and abs(span.low * span.high - min(times) * max(times)) > AGREEMENT * max(times) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain mappings, lists and numbers."""
        from nest.io.structuring import unstructure

        written: dict[str, Any] = unstructure(self)
        return written

    @staticmethod
    def refuse_partial(problem: Any) -> None:
        """Refuse the problem of a plan file if a mandatory section is missing or no mapping.

        Raises:
            InputError: there is such a section.
        """
        for name in ("cluster", "training") if isinstance(problem, Mapping) else ():
            if not isinstance(problem.get(name), Mapping):
                raise InputError(f"problem.{name} is missing, or holds no keys and values; solve the problem again.")
