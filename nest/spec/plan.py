"""The output of `nest solve` (FORMATS.md, "Plan")."""

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from nest.errors import InputError
from nest.records import Record
from nest.spec.problem import Problem
from nest.spec.validators import at_least, between, each, one_of

STATUSES = ("optimal", "near-optimal", "feasible", "infeasible")


@frozen(eq=False, repr=False)
class CandidateSummary(Record):
    """The candidate a plan uses.

    Attributes:
        name: the candidate's name.
        degrees: strategy degrees.
        width: devices per block.
        samples: samples per micro-batch.
        micro_batch: samples per micro-batch of one data-parallel rank, fewer where a block holds several copies of the
            attention part; None: `samples`.
    """

    name: str
    degrees: dict[str, int] = field(validator=each(at_least(1)))
    width: int = field(validator=at_least(1))
    samples: int = field(validator=at_least(1))
    micro_batch: int | None = field(default=None, validator=at_least(1))


@frozen(eq=False, repr=False)
class MemoryBreakdown(Record):
    """What a stage's memory is made of, bytes; the parts add up to it.

    Attributes:
        weights: parameters.
        gradients: of the parameters.
        optimizer: its state.
        activations: of all micro-batches in flight.
        transient: what lives only while a layer runs, communication apart.
        communication: buffers of communication.
        framework: what driver and libraries hold.
        fragmentation: memory held for activations in which no tensor lies.
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
    """What records of a stage have in common."""

    __slots__ = ()
    recompute: str
    recompute_layers: int | None
    recompute_rest: str | None

    @property
    def recompute_name(self) -> str:
        """What decides its recomputation in one word, as `nest.instance.partial` reads it."""
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
        memory: bytes as estimated, the reserve included.
        in_flight: micro-batches in flight; a fraction where a stage has several chunks.
        level_in: level of the boundary in front, -1 for none; of several chunks the outermost.
        level_out: level of the boundary behind, -1 for none; of several chunks the outermost.
        upper_memory: bytes that are compared with a device's: what the estimate, the reserve apart, is taken to come to
            at most, at `training.memory_risk` or with `training.memory_margin` of it on top; None: `memory`.
        memory_breakdown: what `memory` is made of; None: not told.
        bytes_out: bytes that each device sends to its counterpart in the next stage per micro-batch, in all chunks
            together; None: not told.
        chunks: names of the layers of each of its chunks, in pipeline order; None: it has one chunk, or those of the
            even split.
        pool: name of the pool whose devices these are; None: the cluster has no pools. Levels are the pool's, and
            beside a stage of another pool one above its outermost.
        recompute_layers: how many of its first transformer blocks, or of those of each chunk, run in `recompute`;
            None: all.
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
    """What is decided of one stage; the rest of a `StageRecord` follows.

    Attributes:
        layers: names of its layers.
        candidate: name of its candidate.
        recompute: recompute mode.
        zero: ZeRO stage.
        devices: first device and number of devices in replica 0.
        chunks: names of the layers of each of its chunks, in pipeline order; None: it has one chunk, or those of the
            even split.
        pool: name of its pool; None: the cluster has no pools.
        recompute_layers: as of `StageRecord`.
        recompute_rest: as of `StageRecord`.
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
    """What is decided of a plan; the rest of a `PlanDocument` follows.

    Attributes:
        candidate: of its widest stage, the first of them in pipeline order.
        data_parallel: replicas.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        chunks: runs of layers the schedule gives to each stage.
        zero_degree: ranks over which ZeRO shards, at most; None: all that hold the same parameters.
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
    """Between which times a batch takes when it is run, where times are predicted.

    Attributes:
        probability: that it does.
        low: seconds.
        high: seconds.
    """

    probability: float
    low: float
    high: float


@frozen(eq=False, repr=False)
class OtherPlan(Record):
    """Another plan of the problem, beside the first one.

    Attributes:
        label: the plan's degrees in a few words.
        batch_time: seconds per optimizer step.
        slower_by: by how much that is longer than the step time of the document's plan, as a share; below 0: shorter.
        fit_probability: that no stage needs more memory than a device has; None: bytes are exact.
        memory: bytes of its fullest stage.
        decisions: from which all this follows.
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
    """Where a plan's blocks lie on a network that is no hierarchy.

    Attributes:
        replicas: of each replica, for each stage, the names of its devices in the order of their ranks.
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
        fits: whether the plan is more likely than not to fit, whatever `training.memory_risk` is; with
            `training.memory_margin`, whether every stage's `upper_memory` is within a device's.
        candidate: None when infeasible.
        data_parallel: replicas `d`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        micro_batches: micro-batches per replica `M`.
        stages: in pipeline order; empty when infeasible.
        verification: result of a proof by another solver.
        problem: the problem, complete.
        chunks: runs of layers the schedule gives to each stage; None when infeasible.
        diagnosis: when infeasible, what is tightest and by how much, in words.
        summary: derived figures: tokens per second and device, model FLOP utilisation, idle share, ...
        runner_up: the best plan seen with other degrees, why it lost, the levels of the network whose last per cents of
            bandwidth that takes, and its `Decisions`, from which all that follows.
        statistics: what the search did.
        plugins: the distributions that took part, by name, with their versions.
        placement: on a network that is no hierarchy, the devices of every block; None: those of the levels.
        zero_degree: ranks over which ZeRO shards, at most; None: all that hold the same parameters.
        violates: constraints that a plan already decided does not satisfy, as written; a search keeps to all of them.
        fit_probability: that the fullest stage needs no more memory than a device has; None when infeasible, or not
            told.
        batch_time_range: between which times the batch takes when it is run; None when infeasible, of a profile, whose
            times are measured, or not told.
        runs_on: names of the exporters for frameworks that write their files of the plan; None: nobody looked.
        space: in which part of the plans this is the best, in words; None: in all that the problem allows.
        fastest: with `near-optimal`, the fastest plan found, of step time `lower_bound` unless the search left a gap.
        safer: a plan that is likelier to fit, where one costs little.
        simpler: a plan that is simpler yet, where one costs little.
        outside: decisions that a search of the problem without `fixed` does not try, in words; None: nobody looked.
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
    runs_on: tuple[str, ...] | None = None
    fastest: OtherPlan | None = None
    safer: OtherPlan | None = None
    simpler: OtherPlan | None = None

    def to_dict(self) -> dict[str, Any]:
        """The document as plain mappings, lists and numbers."""
        from nest.io.structuring import unstructure

        written: dict[str, Any] = unstructure(self)
        return written

    @staticmethod
    def refuse_partial(problem: Any) -> None:
        """Refuse the problem of a plan file where a section that every problem has is missing or no mapping.

        Raises:
            InputError: there is such a section.
        """
        for name in ("cluster", "training") if isinstance(problem, Mapping) else ():
            if not isinstance(problem.get(name), Mapping):
                raise InputError(f"problem.{name} is missing, or holds no keys and values; solve the problem again.")
