"""The best plan of an instance of which a good plan is known: the same answer, found sooner."""

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.decision import simplified
from nest.solve.effort import Deadline
from nest.solve.solver import solve


def solve_beside(
    instance: Instance, deadline: Deadline, known: tuple[Solution, float] | None, simpler_within: float | None
) -> tuple[Result, bool]:
    """What `nest.solve.solver.solve` answers, but for a runner-up, and whether it is the first of the fastest plans.

    It is not where a simpler plan is preferred to that, or nobody knows. Only the dynamic program answers alike
    whatever it begins with; other searches begin with nothing.

    Args:
        instance: the problem.
        deadline: when the search ends.
        known: a plan of the instance, with its step time in seconds; None: no plan is known.
        simpler_within: as `nest.solve.dp.solve` has it.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
    """
    if instance.network is None and not instance.space.direct:
        try:
            first = dp.solve(instance, deadline, known=known, preferred=False, runner_up=False)
        except dp.TooManyCuts:
            pass
        else:
            result = first if simpler_within is None else simplified(instance, first, simpler_within, deadline)
            return result, result.status == "optimal" and result.solution == first.solution
    return solve(instance, deadline, simpler_within=simpler_within, runner_up=False), False
