"""Several chunks, weights of parts and messages that hide: CP-SAT against every plan there is, priced one by one."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, product

import numpy
import pytest
from attrs import evolve, frozen

from cpsat_tests.asking import CLOSE, ask, settles
from cpsat_tests.without_bounds import leave_cases_to_models
from nest.hooks.registry import registry
from nest.instance import (
    Candidate,
    Cluster,
    Instance,
    Level,
    ParameterGroup,
    RecomputeMode,
    Solution,
    Space,
    StageDecision,
    admits,
    chunks_of,
    route,
)
from nest.plan.evaluate import evaluate
from nest.plan.layout import replica_size
from nest.solve.effort import Deadline
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT
from nest_cpsat import chunk_models, graph_search, search
from tests.seeds import blocks, seeds
from tests.small_instances import chain


@frozen
class Drawn:
    """A schedule of no sense but that of its numbers."""

    name: str
    parts: tuple[float, ...]
    held: tuple[tuple[float, ...], ...] | float
    chunks: int = 1
    copies: int = 1
    shifted: bool = False
    turns: str = "round"

    @property
    def placement(self) -> object:
        """A name, or a table in which each turn begins a stage later."""
        if not self.shifted:
            return self.turns
        return lambda stages: [1 + (place + place // stages) % stages for place in range(stages * self.chunks)]

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Every number of micro-batches, but one."""
        return micro_batches != 3

    def weights(self, micro_batches: int, stages: int) -> tuple[float, ...]:
        """`A` grows with the micro-batches."""
        return (micro_batches - self.parts[0], *self.parts[1:])

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> object:
        """Fewer on later stages."""
        if isinstance(self.held, float):
            return max(min(self.held, micro_batches) - 0.25 * stage, 1.0)
        return tuple(tuple(min(each + (stages - stage), micro_batches) for each in row) for row in self.held)


def draw_schedule(random: numpy.random.Generator, chunks: int) -> Drawn:
    """A schedule of so many chunks."""
    k = float(random.choice([0.25, 0.5, 2 / 3]))
    parts: tuple[float, ...] = (k, k) if random.random() < 0.5 else (0.0, k, k * random.choice([1.0, 2.0]), -k)
    held: object = float(random.integers(1, 4))
    if random.random() < 0.6:
        held = tuple(tuple(float(each) for each in random.integers(0, 3, chunks)) for _ in range(random.integers(1, 3)))
    shifted = bool(chunks > 1 and random.random() < 0.3)
    turns = str(random.choice(["round", "v"]))
    return Drawn("drawn", parts, held, chunks, int(random.choice([1, 2])), shifted, turns)


def draw(seed: int, chunks: int | None = None) -> Instance:
    """A small problem whose only schedule is drawn, of so many chunks; None: of any number."""
    random = numpy.random.default_rng(seed)
    chunks = chunks or int(random.choice([1, 2, 2, 3]))
    count = int(random.integers(2 * chunks, 2 * chunks + 2)) if chunks > 1 else int(random.integers(2, 4))
    levels = (Level("node", 2, 100.0, 0.01), Level("network", 2, 8.0, 0.03))
    machines = Cluster(levels, 1e9, float(random.uniform(0.0, 1.0)))
    kinds = int(random.choice([1, 2, count]))
    kind = numpy.sort(random.integers(0, kinds, count)) if random.random() < 0.7 else random.integers(0, kinds, count)
    ports = random.random() < 0.25

    def row(low: float, high: float) -> numpy.ndarray:
        values = random.uniform(low, high, kinds)[kind]
        values[0] += random.choice([0.0, 0.5])
        return values

    def busy() -> numpy.ndarray | None:
        return numpy.array([row(0.0, 3.0) for _ in levels]) if ports else None

    forward = row(0.5, 2.0)
    backward = forward * random.uniform(1.0, 2.5)
    used = Candidate(
        name="c",
        degrees={"tp": 1},
        width=int(random.choice([1, 1, 2])),
        samples=1,
        forward=forward,
        backward=backward,
        state=(ParameterGroup("dense", (0,), row(1, 4), row(1, 4), row(4, 20), row(0.0, 0.3)),),
        recompute=(
            RecomputeMode("none", 0 * forward, row(3, 6), row(3, 6), row(0, 3), stash_inputs=False, busy=busy()),
            RecomputeMode("full", forward, row(0.5, 1), row(0, 1), row(1, 5), stash_inputs=bool(random.random() < 0.7)),
        ),
        tensor_bytes=random.uniform(0.5, 20.0, count - 1) if random.random() < 0.5 else numpy.full(count - 1, 6.0),
        busy=busy(),
        weight_gradients=None if random.random() < 0.5 else backward / 2 * 0.7,
    )
    ends = tuple((layer,) for layer in range(count)) if random.random() < 0.4 and count > 3 else ()
    units = ends or tuple((layer,) for layer in range(count))
    if ends:
        units = ((0, 1), *((layer,) for layer in range(2, count - 2)), (count - 2, count - 1))
    schedule = draw_schedule(random, chunks)
    space = Space(
        global_batch=int(random.choice([4, 6, 8])),
        uneven_batch=False,
        exposed=float(random.choice([0.0, 0.5, 1.0])),
        schedules=(schedule,),
        rank_orders=("pp-inner", "dp-inner"),
        zero=tuple(sorted(int(each) for each in random.choice(4, 2, replace=False))),
        blocks=units,
        blocks_and_ends=ends,
        hidden_messages=("drawn",) if random.random() < 0.4 else (),
        hiding=bool(random.random() < 0.3),
        even=bool(chunks > 1 and not ends and random.random() < 0.15),
    )
    problem = Instance(machines, chain(count), (used,), space, registry().collective_models()["alpha-beta"])
    needed = sorted(each[1] for each in every_price(problem))
    if needed and random.random() < 0.8:
        memory = needed[int(random.integers(0, max(len(needed) // 2, 1)))]
        problem = evolve(problem, cluster=evolve(machines, memory=float(memory)))
    return problem


def compositions(units: Sequence[tuple[int, ...]], parts: int, *, even: bool) -> Iterator[list[tuple[int, ...]]]:
    """Every way to make so many runs of units, as layers."""
    count = len(units)
    if even and parts > 0 and count % parts:
        return
    for inner in combinations(range(1, count), parts - 1):
        runs = [units[one:two] for one, two in pairwise((0, *inner, count))]
        if not even or len({len(run) for run in runs}) == 1:
            yield [tuple(layer for unit in run for layer in unit) for run in runs]


def every_plan(problem: Instance) -> Iterator[Solution]:
    """Every plan of the space, too large ones among them."""
    (schedule,), (used,), space = problem.space.schedules, problem.candidates, problem.space
    chunks = chunks_of(schedule)
    layers = tuple((layer,) for layer in range(len(problem.graph.layers)))
    units = layers if chunks == 1 else space.blocks_and_ends or space.blocks
    modes = list(product(problem.recompute_names(0), space.zero))
    alike = any(each.uniform == "recompute" for each in space.constraints)
    for replicas in range(1, problem.cluster.size // used.width + 1):
        micro_batches = problem.micro_batches(used, replicas)
        slots = replica_size(problem.cluster, used.width, replicas) // used.width
        for stages in range(1 if chunks == 1 else 2, min(slots, len(units)) + 1 if micro_batches else 0):
            if not admits(schedule, stages, micro_batches or 0):
                continue
            homes = route(schedule, stages)
            for runs in compositions(units, stages * chunks, even=space.even and chunks > 1):
                own = [tuple(run for run, home in zip(runs, homes, strict=True) if home == i) for i in range(stages)]
                held = [tuple(sorted(layer for run in each for layer in run)) for each in own]
                for taken in product(modes, repeat=stages):
                    if alike and len({name for name, _ in taken}) > 1:
                        continue
                    for places in combinations(range(slots), stages):
                        decided = tuple(
                            StageDecision(held[i], 0, *taken[i], places[i] * used.width, own[i] if chunks > 1 else ())
                            for i in range(stages)
                        )
                        for order in space.rank_orders:
                            yield Solution(replicas, order, schedule.name, decided, chunks)


def every_price(problem: Instance) -> list[tuple[float, float]]:
    """The step time of every plan, and the most memory of a stage."""
    priced = (evaluate(problem, plan) for plan in every_plan(problem))
    return [(each.batch_time, max(stage.memory for stage in each.stages)) for each in priced]


def examine(problem: Instance, plans: Callable[[Instance], Iterator[Solution]] = every_plan) -> None:
    """The best of these plans is proved, a worse one refuted."""
    every = [evaluate(problem, plan) for plan in plans(problem)]
    settles(problem, min((each.batch_time for each in every if each.fits), default=None), 1.5)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(5, 60))
def test_it_agrees_with_every_plan_priced(seed: int) -> None:
    examine(draw(seed))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_its_models_agree_with_every_plan_priced(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds settle most cases; here they leave them to the models."""
    monkeypatch.setattr(chunk_models.ChunkModels, "bound", lambda *_: 0.0)
    leave_cases_to_models(monkeypatch)
    examine(draw(seed))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_where_cuts_are_too_many_to_list_it_never_contradicts_plans_priced(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_CUTS", 0)
    problem = draw(seed, chunks=1)
    every = [(evaluate(problem, plan), plan) for plan in every_plan(problem)]
    fitting = [(priced.batch_time, plan) for priced, plan in every if priced.fits]
    best, worst = (each(fitting, key=lambda pair: pair[0], default=(None, None)) for each in (min, max))
    assert ask(problem, best[0]).status in ("proved", "open")
    if best[0] is None:
        return
    assert graph_search.price(problem, worst[1]) == pytest.approx(worst[0], rel=AGREEMENT)
    found = graph_search.solve(problem, (worst[1], worst[0]), Deadline(None))
    assert found.lower_bound <= best[0] * (1 + AGREEMENT)
    if found.status == "optimal":
        assert found.batch_time == pytest.approx(best[0], rel=CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 1300))
def test_it_agrees_with_every_plan_priced_on_many(block: range) -> None:
    for seed in block:
        examine(draw(seed))


def with_parts(problem: Instance, random: numpy.random.Generator) -> Instance:
    """The problem where stages may recompute their first layers, but for those at the ends that may be in no block."""
    count = len(problem.graph.layers)
    units = tuple((layer,) for layer in range(int(random.integers(0, 2)), count - int(random.integers(0, 2))))
    counts = sorted({int(each) for each in random.integers(1, max(len(units), 2), 2)})
    parts = tuple(f"full:{count}:none" for count in counts if count < len(units))
    alike = (parse("uniform(recompute)"),) if random.random() < 0.4 else ()
    return evolve(problem, space=evolve(problem.space, units=units, partial=parts, constraints=alike))


@pytest.mark.longer
@pytest.mark.parametrize("chunks", [[1], [2, 2, 3]])
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_first_layers_agree_with_every_plan_priced(seed: int, chunks: list[int]) -> None:
    random = numpy.random.default_rng(seed)
    examine(with_parts(draw(seed, chunks=int(random.choice(chunks))), random))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_models_of_first_layers_of_chunks_agree_with_every_plan_priced(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_models.ChunkModels, "bound", lambda *_: 0.0)
    leave_cases_to_models(monkeypatch)
    random = numpy.random.default_rng(seed + 100)
    examine(with_parts(draw(seed + 100, chunks=int(random.choice([2, 2, 3]))), random))
