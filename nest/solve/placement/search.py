"""Branch and check: plans best first on a level that nothing on the network beats, placed and priced on the network.

The dynamic program runs on the optimistic level (`Instance.network`), so that what it proves of a configuration bounds
all its plans, wherever their blocks lie. Its plan of each configuration that may still be the best is placed, and what
that takes on the network is what counts. Where bound and best plan do not meet, CP-SAT is asked case by case for a
better plan, partition and placement together; where it finds none, that is the proof.
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
    from nest.solve.cpsat import Verification

MOST_EFFORT = 30.0
"""CP-SAT's deterministic seconds for a proof without a time limit, a minute or so by the clock. A limit by the clock
would make plans depend on the machine."""


def solve(
    instance: Instance,
    solve_branched: Callable[..., Result],
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    besides: Sequence[Solution] = (),
) -> Result:
    """The plan of least step time on the network, proved where bounds meet or CP-SAT can; arguments as of `dp.solve`.

    `solve_branched` solves on levels where the graph has too many cuts for that.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
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
    best = _proved(alone, result, arranger, deadline, progress)
    return _bounded(best, result.lower_bound or 0.0)


def _branched(
    instance: Instance,
    solve_branched: Callable[..., Result],
    arranger: Arranger,
    deadline: Deadline,
    progress: Progress | None,
    besides: Sequence[Solution],
) -> Result:
    """Of a graph with too many cuts to list: the best plan on the optimistic level, placed, with its bound there."""
    relaxed = evolve(instance, network=None)
    result = solve_branched(relaxed, deadline, progress, besides=besides, runner_up=False)
    if result.solution is None:
        return result
    solution, seconds = arranger.place(result.solution)
    placed = evolve(result, solution=solution, batch_time=seconds, runner_up=None)
    return _bounded(placed, result.lower_bound or 0.0)


def _bounded(result: Result, bound: float) -> Result:
    """The result with a bound on all plans: optimal where the two meet (PROBLEM.md section 5)."""
    assert result.batch_time is not None
    if bound >= result.batch_time * (1 - PROOF):
        return evolve(result, status="optimal", lower_bound=result.batch_time)
    return evolve(result, status="feasible", lower_bound=bound)


def _provable(instance: Instance) -> bool:
    """Whether CP-SAT can say more of some plans of the network than the optimistic level does."""
    from nest.solve.cpsat.placed_model import MOST_CELLS
    from nest.solve.cpsat.tier_model import tiers

    assert instance.network is not None
    return instance.cluster.size**2 <= MOST_CELLS or bool(tiers(instance.network.model))


def _proved(
    instance: Instance, result: Result, arranger: Arranger, deadline: Deadline, progress: Progress | None
) -> Result:
    """The result, or a better one that CP-SAT finds, with what it proves."""
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
    """Whether no plan on the network is better than `batch_time` by more than 1e-6 of it, or a better one, placed.

    Args:
        instance: the problem.
        batch_time: seconds of the plan given; None: the claim is that there is no plan at all.
        arranger: places plans where CP-SAT does not say where their blocks lie; None: a new one.
        options: those of `nest.solve.cpsat.verify`.

    Raises:
        InputError: a constraint cannot be computed.
        InternalError: a model and exact pricing disagree on a plan.
    """
    from nest.solve.cpsat import Price, verify

    assert instance.network is not None
    network, arranging = instance.network, arranger or Arranger(instance)
    placed: dict[Solution, Solution] = {}

    def pricing(solution: Solution) -> Price:
        if solution.placement is None:  # Of a network too large for CP-SAT to place every rank.
            solution = placed.setdefault(solution, arranging.place(solution)[0])
        return Price(*network.price(instance, solution))

    proof = verify(instance, batch_time, pricing, **options)
    return proof if proof.better is None else evolve(proof, better=placed.get(proof.better, proof.better))
