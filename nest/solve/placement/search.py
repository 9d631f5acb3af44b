"""Branch and check: plans best first on a level that beats the network everywhere, placed and priced on the network.

The dynamic program runs on the optimistic level (`Instance.network`), so its proof for a configuration bounds all its
plans, wherever their blocks are. Its plan of each configuration that may still be best is placed, and the time on the
network counts. If bound and best plan do not meet, CP-SAT looks case by case for a better plan, partition and placement
together; if it finds none, that is the proof.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.instance import Instance, Result, Solution
from nest.solve.dp import TooManyCuts
from nest.solve.dp import solve as solve_on_levels
from nest.solve.effort import Deadline
from nest.solve.placement.arrange import Arranger
from nest.solve.search import Incumbent, Progress
from nest.tolerances import PROOF

if TYPE_CHECKING:
    from nest_cpsat import Verification

MOST_EFFORT = 30.0
"""CP-SAT's deterministic seconds for a proof without a time limit, about a minute; a wall-clock limit would make plans
depend on the machine."""


def solve(
    instance: Instance,
    solve_branched: Callable[..., Result],
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    besides: Sequence[Solution] = (),
) -> Result:
    """Find the fastest plan on the network, proved if bounds meet or CP-SAT can; arguments as in `dp.solve`.

    `solve_branched` solves on levels if the graph has too many cuts.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit, patience=inf)
    arranger = Arranger(instance)

    def placed(plan: Incumbent) -> Incumbent:
        solution, seconds = arranger.place(plan.solution)
        return plan._replace(solution=solution, value=seconds)

    options: Any = {"known": known, "runner_up": False, "besides": besides, "placed": placed}
    try:
        result = solve_on_levels(instance, deadline, progress, **options)
    except TooManyCuts:
        return _branched(instance, solve_branched, arranger, deadline, progress, besides)
    result = evolve(result, runner_up=None)  # Those met on the way were hardly placed.
    if result.status != "feasible" or besides or deadline.passed or not instance.complete:
        return result
    if not _provable(instance):
        return result
    if not instance.space.mixed:
        return _proved(instance, result, arranger, deadline, progress)
    # Plans of several candidates are not placed by CP-SAT, but those of one are, which may be better than what was met.
    alone = evolve(instance, space=evolve(instance.space, mixed=False))
    return _bounded(_proved(alone, result, arranger, deadline, progress), result.lower_bound or 0.0)


def _branched(
    instance: Instance,
    solve_branched: Callable[..., Result],
    arranger: Arranger,
    deadline: Deadline,
    progress: Progress | None,
    besides: Sequence[Solution],
) -> Result:
    """Best plan of a graph with too many cuts on the optimistic level, placed, with its bound there."""
    relaxed = evolve(instance, network=None)
    result = solve_branched(relaxed, deadline, progress, besides=besides, runner_up=False)
    if result.solution is None:
        return result
    solution, seconds = arranger.place(result.solution)
    placed = evolve(result, solution=solution, batch_time=seconds, runner_up=None)
    return _bounded(placed, result.lower_bound or 0.0)


def _bounded(result: Result, bound: float) -> Result:
    """Result with a bound on all plans: optimal if the two meet (PROBLEM.md section 5)."""
    assert result.batch_time is not None
    if bound >= result.batch_time * (1 - PROOF):
        return evolve(result, status="optimal", lower_bound=result.batch_time)
    return evolve(result, status="feasible", lower_bound=bound)


def _provable(instance: Instance) -> bool:
    """True if CP-SAT can improve on the optimistic level for some plans of the network."""
    from nest_cpsat.placed_model import MOST_CELLS
    from nest_cpsat.tier_model import tiers

    assert instance.network is not None
    return instance.cluster.size**2 <= MOST_CELLS or bool(tiers(instance.network.model))


def _proved(
    instance: Instance, result: Result, arranger: Arranger, deadline: Deadline, progress: Progress | None
) -> Result:
    """Result, or a better one from CP-SAT, with its proof."""
    assert result.batch_time is not None
    proof = prove(
        instance,
        result.batch_time,
        arranger,
        time_limit=deadline,
        progress=progress,
        most_effort=MOST_EFFORT if deadline.left == inf else inf,
    )
    if proof.better is not None:
        result = evolve(result, solution=proof.better, batch_time=proof.better_batch_time)
    return _bounded(result, inf if proof.settled else max(result.lower_bound or 0.0, proof.bound or 0.0))


def prove(
    instance: Instance, batch_time: float | None, arranger: Arranger | None = None, **options: Any
) -> "Verification":
    """Prove that no plan on the network is better than `batch_time` by more than 1e-6 of it, or find one, placed.

    Args:
        batch_time: seconds of the given plan; None: claim that there is no plan.
        arranger: places plans if CP-SAT does not; None: a new one.
        options: those of `nest_cpsat.verify`.

    Raises:
        InputError: a constraint cannot be computed.
        InternalError: a model and exact pricing disagree on a plan.
    """
    from nest_cpsat import Price, verify

    assert instance.network is not None
    network, arranging = instance.network, arranger or Arranger(instance)
    placed: dict[Solution, Solution] = {}

    def pricing(solution: Solution) -> Price:
        if solution.placement is None:  # Of a network too large for CP-SAT to place every rank.
            solution = placed.setdefault(solution, arranging.place(solution)[0])
        return Price(*network.price(instance, solution))

    proof = verify(instance, batch_time, pricing, **options)
    return proof if proof.better is None else evolve(proof, better=placed.get(proof.better, proof.better))
