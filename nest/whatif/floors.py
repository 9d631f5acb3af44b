"""Candidates of a problem that may have plans of so many seconds when one of its numbers changes."""

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from nest.formulate.instance import Wanted, formulate
from nest.formulate.priced_models import PricedModels
from nest.formulate.worth import can_be_worth
from nest.hooks.registry import Registry
from nest.instance import Instance
from nest.spec import Problem
from nest.whatif.parameters import Parameter

if TYPE_CHECKING:
    from nest.solve.dp import SearchCache

FURTHER = 1.1
"""Factor over a known or requested step time up to which candidates are priced: many answers are slightly slower."""

NEAR = 1.5  # Largest speed-up for which bounds on the original network exclude more than they cost.
Floors = Callable[[float], Collection[str]]  # From seconds to the names of candidates that may have such plans.


def never_slower(problem: Problem, parameter: Parameter) -> bool:
    """True if more of a parameter makes no plan slower.

    Certain for memory, and for bandwidth between levels and peaks with the built-in models.
    """
    built_in = problem.costs is None and problem.collectives is None and problem.layer_times is None
    priced = parameter.unit in ("bytes/s", "FLOP/s") and built_in and problem.cluster.topology is None
    return parameter.unit == "bytes" or priced


@define(eq=False)
class CandidateBounds:
    """Lower bounds on candidates of several problems."""

    plugins: Registry
    priced: PricedModels  # Models priced before.
    _known: dict[tuple[str, bool], tuple[float, dict[str, float]]] = field(factory=dict, init=False)
    _with_room: dict[str, dict[str, float]] = field(factory=dict, init=False)
    _cache: "list[SearchCache]" = field(factory=list, init=False)

    @property
    def cache(self) -> "SearchCache":
        """Tables of the latest searches."""
        from nest.solve.dp import SearchCache

        if not self._cache:
            self._cache.append(SearchCache())
        return self._cache[0]

    def begin(self, cache: "SearchCache") -> None:
        """Start with tables of other searches."""
        self._cache[:] = [cache]

    def of(
        self,
        problem: Problem,
        parameter: Parameter,
        factor: float,
        known: float | None,
        instance: Callable[..., Instance],
    ) -> Floors | None:
        """See `nest.whatif.solver.Solver.floors`; the problem's best plan takes `known` seconds.

        `instance` builds a problem's instance, complete to `up_to` seconds of a step.
        """
        if parameter.unit == "bytes" or not never_slower(problem, parameter):
            return None
        if (
            problem.profile is not None
            or problem.cluster.pools is not None
            or not can_be_worth(problem.search, self.plugins)
        ):
            return None
        gain, silent = max(factor, 1.0), factor > 1 and parameter.unit == "bytes/s"
        key = problem.text

        def within(seconds: float) -> Collection[str]:
            if not silent:
                return self._within((key, False), problem, instance, seconds * gain, known)
            names = self._within((key, True), problem, instance, seconds)
            if gain > NEAR:
                return names
            # No level so many times as fast makes a plan faster by more.
            return {*names}.intersection(self._within((key, False), problem, instance, seconds * gain, known))

        return within

    def _within(
        self,
        key: tuple[str, bool],
        problem: Problem,
        instance: Callable[..., Instance],
        seconds: float,
        known: float | None = None,
    ) -> Collection[str]:
        """Candidates that may have such plans of a problem or, if the key says so, with free communication."""
        from nest.solve.dp import SearchCache, candidate_floors

        if known is not None and seconds <= known * FURTHER:
            # Most questions are about plans hardly slower than the best: it pays to look more closely, once.
            if key[0] not in self._with_room:
                near = instance(problem, up_to=known * FURTHER)
                self._with_room[key[0]] = candidate_floors(near, self.cache, known * FURTHER)
            return [name for name, least in self._with_room[key[0]].items() if least <= seconds]
        if self._known.get(key, (0.0, {}))[0] < seconds:
            reach = seconds * FURTHER
            if key[1]:
                found = candidate_floors(self._silent(problem, reach), SearchCache())
            else:
                found = candidate_floors(instance(problem, up_to=reach), self.cache)
            self._known[key] = reach, found
        return [name for name, least in self._known[key][1].items() if least <= seconds and least < inf]

    def _silent(self, problem: Problem, seconds: float) -> Instance:
        """Instance of a problem with free communication except latencies between stages.

        It has all candidates that may then have plans of so many seconds.
        """
        instance, formulation = self.plugins.run(
            lambda: formulate(
                problem, self.plugins, Wanted(step_time_limit=seconds, compute_only_limit=seconds), self.priced
            )
        )
        levels = tuple(evolve(level, bandwidth=inf, lines=()) for level in instance.cluster.levels)
        cluster = evolve(instance.cluster, levels=levels)
        return evolve(instance, candidates=formulation.computing(), cluster=cluster)
