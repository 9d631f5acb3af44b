"""Prices of stages and plans: every number of PROBLEM.md section 4."""

from collections.abc import Sequence
from typing import NamedTuple

from nest.instance import EstimateError, Schedule, Weights
from nest.plan.makespan import ChunkSeconds, Stuck, pipeline_length
from nest.spec import MemoryBreakdown
from nest.tolerances import MEMORY_SLACK


class PricedStage(NamedTuple):
    """One stage with every number of PROBLEM.md section 4."""

    compute: float  # Forward and backward seconds per micro-batch, with collectives inside the block.
    collectives: float  # The part added by these; 0 if layers were measured whole.
    recompute: float  # Seconds added to the backward pass per micro-batch.
    arriving: float  # Seconds per micro-batch to receive activations.
    returning: float  # Seconds per micro-batch to receive gradients.
    sharding: float  # Seconds per micro-batch of ZeRO communication.
    hidden: float  # Seconds per micro-batch of received messages that hide under its compute in a full pipeline.
    forward: float  # Seconds per micro-batch of forward passes with gathering, without messages.
    weight_gradients: float  # Seconds per micro-batch for weight gradients (`w_i`).
    # Seconds per micro-batch that the busiest port needs beyond all this (PROBLEM.md section 4, Ports); on a network,
    # the fullest of its links (section 1).
    port_wait: float
    sync: float  # Seconds once per batch: gradient reduction, parameter gathering and optimizer step.
    state: float  # Bytes of weights, gradients and optimizer.
    activations: float  # Bytes of activations of all micro-batches in flight.
    peak: float  # Transient bytes.
    reserve: float  # Bytes kept free.
    in_flight: float  # Micro-batches in flight; a fraction with several chunks.
    level_in: int  # Level of the boundary before, of several chunks the outermost; -1 for none.
    level_out: int  # The same behind.
    first_device: int  # First device in replica 0.
    width: int  # Devices of the block.
    parts: MemoryBreakdown  # Of its memory.
    upper_memory: float  # Largest expected need in bytes, with `training.memory_margin` and the reserve.
    bytes_out: float  # Bytes that each device sends to the next stage per micro-batch.
    # Seconds per micro-batch that a device's port at each level is occupied (`b_i`); None: unknown.
    ports: tuple[float, ...] | None
    once_ports: tuple[float, ...] | None  # The same once per batch.
    capacity: float  # Bytes per device up to which a search admits its estimate (`H`).
    fitting: float  # Bytes per device up to which it is more likely than not to fit.
    device_memory: float  # Bytes per device.
    passes: tuple[ChunkSeconds, ...]  # Times of the passes of its chunks, without waits for ports.

    @property
    def grown_passes(self) -> tuple[ChunkSeconds, ...]:
        """Passes, all longer by one factor if ports make them wait (PROBLEM.md section 4, "Price and replay")."""
        if not self.port_wait:
            return self.passes
        # Not the time less the wait: ports may wait far longer than the stage works.
        alone = self.compute + self.recompute + self.arriving + self.returning + self.sharding - self.hidden
        growth = self.time / alone if alone > 0 else 1.0
        return tuple(
            each._replace(forward=growth * each.forward, backward=growth * each.backward, weights=growth * each.weights)
            for each in self.passes
        )

    @property
    def time(self) -> float:
        """Seconds per micro-batch in a full pipeline (`t_i`)."""
        return self.whole_time - self.hidden

    @property
    def whole_time(self) -> float:
        """Seconds per micro-batch with nothing hidden, as while the pipeline fills and drains."""
        return self.compute + self.recompute + self.arriving + self.returning + self.sharding + self.port_wait

    def weighed(self, weights: Weights) -> float:
        """Part of the sum in the step time, `Bf f + Bb b + Bw w`, for filling and draining the pipeline."""
        if weights.uniform:
            return weights.forward * self.whole_time
        inputs = self.compute + self.recompute + self.sharding - self.forward - self.weight_gradients
        weighed: float = weights.of_parts(self.forward, inputs, self.weight_gradients)
        weighed += weights.of_messages(self.arriving, self.returning)
        return weighed + weights.waiting * self.port_wait

    @property
    def memory(self) -> float:
        """Bytes, with the reserve."""
        return self.state + self.activations + self.peak + self.reserve


class PricedPlan(NamedTuple):
    """A plan with every number.

    Attributes:
        micro_batches: micro-batches per replica (`M`).
        weights: of the schedule.
        stages: in pipeline order.
        capacity: `H` of the fullest stage's devices.
        device_memory: bytes of each of these.
        fit_probability: probability that the fullest stage needs no more.
        time_error: ratio of step time to prediction, on the least known devices; None: it is exact.
        replayed: seconds of its replay; 0: not replayed, as the closed form is its price, or proved to be no shorter.
    """

    micro_batches: int
    weights: Weights
    stages: tuple[PricedStage, ...]
    capacity: float
    device_memory: float
    fit_probability: float
    time_error: EstimateError | None = None
    replayed: float = 0.0

    @property
    def slowest(self) -> float:
        """Seconds per micro-batch of the slowest stage."""
        return max(stage.time for stage in self.stages)

    @property
    def sync(self) -> float:
        """Longest gradient reduction and optimizer step, seconds per batch."""
        return max(stage.sync for stage in self.stages)

    @property
    def batch_time(self) -> float:
        """Seconds per optimizer step: the larger of closed form and replay (PROBLEM.md section 4)."""
        return max(self.closed_form, self.replayed)

    @property
    def closed_form(self) -> float:
        """`A max t + sum (Bf f + Bb b + Bw w) + max y` (PROBLEM.md section 4)."""
        weights = self.weights
        if weights.uniform:
            filling = weights.forward * sum(stage.whole_time for stage in self.stages)
        else:
            filling = sum(stage.weighed(weights) for stage in self.stages)
        return weights.slowest * self.slowest + filling + self.sync

    @property
    def fits(self) -> bool:
        """True if the plan is more likely than not to fit, or within a written `training.memory_margin`."""
        return not any(self.overfull)

    @property
    def overfull(self) -> tuple[bool, ...]:
        """For each stage, whether it is less likely than not to fit."""
        return tuple(stage.memory > stage.fitting * (1 + MEMORY_SLACK) for stage in self.stages)

    @property
    def admitted(self) -> bool:
        """True if every stage's memory is within the capacity of a search at its `training.memory_risk`."""
        return not any(self.exceeding(MEMORY_SLACK))

    def exceeding(self, slack: float) -> tuple[bool, ...]:
        """For each stage, whether its memory exceeds the capacity of a search by more than the share `slack`."""
        return tuple(stage.memory > stage.capacity * (1 + slack) for stage in self.stages)

    @property
    def idle_share(self) -> float:
        """Share of the step in which a device, on average over the stages, waits for others."""
        busy = self.micro_batches * sum(stage.time for stage in self.stages) / len(self.stages)
        whole = self.batch_time
        # Rounding must not make the share of a plan that never waits negative.
        return max((whole - self.sync - busy) / whole, 0.0) if whole > 0 else 0.0


def replayed(schedule: Schedule, micro_batches: int, stages: Sequence[PricedStage]) -> float:
    """Seconds of a plan's replay; 0 if proved to be no longer than the closed form."""
    passes = [stage.grown_passes for stage in stages]
    # One that has the order of another schedule's class says anew whether its weights suffice.
    orders = next((each for each in type(schedule).__mro__ if "order" in vars(each)), object)
    suffices = getattr(schedule, "suffices", None) if "suffices" in vars(orders) else None
    if suffices is not None and not any(stage.hidden for stage in stages):
        both = (
            tuple(sum(getattr(each, kind) for each in stage) for stage in passes) for kind in ("forward", "backward")
        )
        if suffices(*both):
            return 0.0
    try:
        return pipeline_length(schedule, micro_batches, passes) + max(stage.sync for stage in stages)
    except Stuck:  # An order that cannot be run is named when the plan is checked (`nest.simulate.contradiction`).
        return 0.0
