"""Every plan of a small instance of one chunk or of several, and the fastest of them by the pricing of plans."""

from collections.abc import Iterator
from itertools import combinations, product

from attrs import frozen

from nest.instance import Instance, Schedule, Solution, StageDecision, admits, chunks_of, route
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.tolerances import CONTENDING_MEMORY_SLACK


@frozen
class Odd:
    """A schedule that says whatever it is told to.

    Attributes:
        said: its weights.
        flying: micro-batches in flight by stage, repeated where there are more stages: what `in_flight` returns.
        chunks: of each stage.
        placement: of the chunks.
        copies: of parameters.
        even: whether it has plans of even numbers of stages only.
    """

    said: tuple[float, ...]
    flying: tuple[object, ...]
    chunks: int = 1
    placement: object = "round"
    copies: int = 1
    even: bool = False
    name: str = "odd"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, ...]:
        slowest, *parts = self.said
        return slowest * (1 + stages % 3), *(each * (1 + stages * 7 % 4) for each in parts)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> object:
        return self.flying[(stage * 5 + stages) % len(self.flying)]

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        return not self.even or stages % 2 == 0


def sizes(units: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut so many units into runs of one or more."""
    for cuts in combinations(range(1, units), parts - 1):
        yield tuple(second - first for first, second in zip((0, *cuts), (*cuts, units), strict=True))


def plans(instance: Instance) -> Iterator[Solution]:
    """Every plan of chunks of consecutive units, legal but for memory and constraints."""
    space = instance.space
    for index, candidate in enumerate(instance.candidates):
        choices = list(product(instance.recompute_names(index), space.zero))
        for schedule, order in product(space.schedules, space.rank_orders):
            units = _units(instance, schedule)
            for replicas in range(1, instance.cluster.size // candidate.width + 1):
                micro_batches = instance.micro_batches(candidate, replicas)
                slots, chunks = instance.cluster.size // (candidate.width * replicas), chunks_of(schedule)
                for count in range(1, min(slots, len(units) // chunks) + 1):
                    if micro_batches is None or not admits(schedule, count, micro_batches):
                        continue
                    for held in sizes(len(units), count * chunks):
                        if chunks > 1 and not space.partition and not alike(_blocks_of(instance, units, held)):
                            continue
                        for chosen in product(choices, repeat=count):
                            for places in combinations(range(slots), count):
                                offsets = [place * candidate.width for place in places]
                                stages = _stages(instance, schedule, index, units, held, chosen, offsets)
                                yield Solution(replicas, order, schedule.name, stages, chunks)


def alike(blocks: list[int]) -> bool:
    """Whether chunks of so many blocks are searched: as many, give or take one, but for smaller ones at the ends."""
    inner = blocks[1:-1]
    return max(blocks) - min(inner, default=0) <= 1 if inner else True


def _blocks_of(instance: Instance, units: tuple[tuple[int, ...], ...], held: tuple[int, ...]) -> list[int]:
    """Blocks in each chunk of so many units; embedding and head by themselves are none."""
    ends = len(instance.space.blocks_and_ends) - 1 if instance.space.blocks_and_ends else -1
    counted = [0 if ends >= 0 and place in (0, ends) else 1 for place in range(len(units))]
    starts = [sum(held[:index]) for index in range(len(held))]
    return [sum(counted[start : start + size]) for start, size in zip(starts, held, strict=True)]


def _units(instance: Instance, schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    if chunks_of(schedule) == 1:
        return tuple((layer,) for layer in range(len(instance.graph.layers)))
    return instance.space.blocks_and_ends or instance.space.blocks


def _stages(
    instance: Instance,
    schedule: Schedule,
    candidate: int,
    units: tuple[tuple[int, ...], ...],
    held: tuple[int, ...],
    chosen: tuple[tuple[str, int], ...],
    offsets: list[int],
) -> tuple[StageDecision, ...]:
    ends = [sum(held[: index + 1]) for index in range(len(held))]
    runs = [
        tuple(sorted(layer for unit in units[end - size : end] for layer in unit))
        for size, end in zip(held, ends, strict=True)
    ]
    homes = route(schedule, len(offsets))
    stages = []
    for stage, ((mode, zero), offset) in enumerate(zip(chosen, offsets, strict=True)):
        own = tuple(run for run, home in zip(runs, homes, strict=True) if home == stage)
        layers = tuple(sorted(layer for run in own for layer in run))
        stages.append(StageDecision(layers, candidate, mode, zero, offset, own if chunks_of(schedule) > 1 else ()))
    return tuple(stages)


def fastest(instance: Instance) -> tuple[float, Solution | None]:
    """The step time of the fastest plan that fits, and the plan."""
    best: tuple[float, Solution | None] = (float("inf"), None)
    for plan in plans(instance):
        if _restricted(instance) and (permission_violations(instance, plan) or structure_violations(instance, plan)):
            continue
        priced = evaluate(instance, plan)
        if priced.batch_time < best[0] and not any(priced.exceeding(CONTENDING_MEMORY_SLACK)):
            best = priced.batch_time, plan
    return best


def _restricted(instance: Instance) -> bool:
    return bool(instance.space.constraints or instance.space.together or instance.space.partition)


def fits(priced: PricedPlan) -> bool:
    """Whether no stage needs more memory than there is."""
    return priced.admitted
