"""Worth of each pool of a cluster: the best plan without it, and with one more node of it."""

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from operator import mul

from attrs import evolve, frozen

from nest.public.changes import Solver
from nest.public.text import counted
from nest.spec import PlanDocument, PoolSpec, Problem, ProfileSpec
from nest_whatif.outcome import Outcome, outcome


@frozen
class PoolChange:
    """A pool with more devices or none, and the resulting problem."""

    pool: str  # Its name.
    change: str  # For people: `without it`, `one node more (8 devices)`.
    devices: int  # How many more; below 0: fewer.
    problem: Problem


@frozen
class PoolWorth:
    """Worth of a change of a pool."""

    pool: str  # Its name.
    change: str  # For people.
    devices: int  # How many more; below 0: fewer.
    outcome: Outcome  # Best plan then, compared with the problem's best plan.

    def to_dict(self) -> dict[str, object]:
        """Convert to plain mappings, lists and numbers."""
        return {"pool": self.pool, "change": self.change, "devices": self.devices, **self.outcome.to_dict()}


def pool_changes(problem: Problem) -> tuple[PoolChange, ...]:
    """Each pool left out, and each with one more node; empty: one kind of device."""
    pools = problem.cluster.pools or ()
    without = _without(problem, pools) if len(pools) > 1 else ()
    return (*without, *(_one_more(problem, pools, index) for index in range(len(pools))))


def _without(problem: Problem, pools: tuple[PoolSpec, ...]) -> Iterator[PoolChange]:
    for index, pool in enumerate(pools):
        left = (*pools[:index], *pools[index + 1 :])
        between = tuple(each for each in problem.cluster.between or () if pool.name not in each.pools)
        cluster, profile = evolve(problem.cluster, pools=left, between=between or None), problem.profile
        fixed = problem.fixed if problem.fixed is None else evolve(problem.fixed, pools=None)
        if isinstance(profile, ProfileSpec):
            candidates = tuple(each for each in profile.candidates if each.pool != pool.name)
            if not candidates:
                continue  # Nothing runs on any other pool.
            profile = evolve(profile, candidates=candidates)
        yield PoolChange(
            pool.name, "without it", -_size(pool), evolve(problem, cluster=cluster, profile=profile, fixed=fixed)
        )


def _one_more(problem: Problem, pools: tuple[PoolSpec, ...], index: int) -> PoolChange:
    """Add a group of the level below the outermost: a node, if nodes make up the pool."""
    pool = pools[index]
    *inner, outer = pool.levels
    devices = prod(level.fanout for level in inner)
    grown = evolve(pool, levels=(*inner, evolve(outer, fanout=outer.fanout + 1)), hosts=None)
    changed = evolve(problem.cluster, pools=(*pools[:index], grown, *pools[index + 1 :]))
    what = "one device more" if not inner else f"one {_called(pool)} more ({counted(devices, 'device')})"
    return PoolChange(pool.name, what, devices, evolve(problem, cluster=changed, profile=_aligned(problem, grown)))


def _aligned(problem: Problem, pool: PoolSpec) -> ProfileSpec | str | None:
    """Profile without candidates that do not align with the pool's levels (PROBLEM.md section 2)."""
    profile = problem.profile
    if not isinstance(profile, ProfileSpec):
        return profile
    sizes = tuple(accumulate((level.fanout for level in pool.levels), mul))
    candidates = tuple(
        each
        for each in profile.candidates
        if each.pool != pool.name or all(size % each.width == 0 or each.width % size == 0 for size in sizes)
    )
    return evolve(profile, candidates=candidates or profile.candidates)


def _called(pool: PoolSpec) -> str:
    return pool.levels[-2].name or ("node" if len(pool.levels) == 2 else "group")


def _size(pool: PoolSpec) -> int:
    return prod(level.fanout for level in pool.levels)


def worth(best: PlanDocument, change: PoolChange, solver: Solver) -> PoolWorth:
    """Find the worth of a change of a pool for the problem's best plan, which may be infeasible; one solve."""
    plan = solver.plan(change.problem, f"pool {change.pool}, {change.change}")
    return PoolWorth(change.pool, change.change, change.devices, outcome(best, plan, solver.plugins))
