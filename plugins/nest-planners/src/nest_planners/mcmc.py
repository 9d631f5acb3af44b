"""Random searches over plans, which all price equally many.

Metropolis search, as FlexFlow (arXiv 1807.05358, section 6.2) and TopoOpt (arXiv 2202.00433) have it, the same with
cooling, and plans drawn at random.
"""

from collections.abc import Mapping
from math import exp, inf
from random import Random
from typing import Self

from attrs import evolve, frozen

from nest.hooks.planning import PlannerContext, Proposal, whole_options
from nest.instance import Instance, Schedule, Solution, chunks_of
from nest_planners.shapes import Choices, Units, dealt, even_cuts, modes, partition, replica_counts, units

COLDNESS = 50.0
"""A plan slower by a share `x` is gone on from with the probability `exp(-COLDNESS * x)`: one that is 2 % slower about
every third time. FlexFlow leaves its constant open; this one is our choice."""

PATIENCE = 20
"""Proposals for each plan that may be priced: those met before cost nothing, and where all were met the search ends."""

RESTLESS = 100
"""Proposals in a row that lead to no new plan, after which the walk goes on from a plan drawn at random: FlexFlow, too,
starts from several. Else one it cannot leave, such as a fast one that does not quite fit, would hold it for good."""

WARM, COLD = 10.0, 500.0
"""Coldness of the annealed walk at its first and last plan, in geometric steps between (Kirkpatrick, Gelatt and Vecchi,
Science 220, 1983): a plan that is 10 % slower is gone on from about every third time at first, at last never."""

LISTED = 5
"""Decisions that are one of a list for all stages alike."""


class _Steered:
    """A search that draws random numbers, with its own `seed` and `evaluations` where options give them."""

    name: str
    cooling, walking = False, True

    def __init__(self, steering: Mapping[str, int] | None = None) -> None:
        self._steering = dict(steering or {})

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The search with another `seed` or number of `evaluations`."""
        return type(self)(whole_options(self.name, options, {"evaluations": 1, "seed": 0}))

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The best plan met within so many evaluations."""
        seed, evaluations = (self._steering.get(name, getattr(context, name)) for name in ("seed", "evaluations"))
        steered = evolve(context, seed=seed, evaluations=evaluations)
        return _Walk(instance, steered, self.cooling, self.walking).best()


class Mcmc(_Steered):
    """A random walk from plain data parallelism, one decision changed at a time; the best plan met is taken.

    A change is gone along with as Metropolis and Hastings have it: always where the plan is no slower, else with the
    probability `exp(-COLDNESS * slower)`. A plan that does not fit counts as slower by the square of how many times the
    memory it needs, so that the walk finds its way to plans that do. Where it meets nothing new it goes on elsewhere.
    """

    name = "mcmc"
    summary = "a random walk over plans, one decision changed at a time; --seed and --evaluations steer it"


class Annealing(_Steered):
    """The walk of `mcmc`, at first more willing to go on from slower plans and less and less so (WARM, COLD)."""

    name = "annealing"
    summary = "mcmc's walk with cooling: simulated annealing over as many plans"
    cooling = True


class RandomSearch(_Steered):
    """Plans drawn at random, each on its own; the best is taken."""

    name = "random"
    summary = "plans drawn at random, as many as mcmc prices"
    walking = False


@frozen
class _State:
    """A plan of stages alike.

    Attributes:
        choices: what they have in common.
        cuts: units in front of each stage but the first; of several chunks only their number counts.
    """

    choices: Choices
    cuts: tuple[int, ...]


class _Walk:
    """A walk.

    Args:
        instance: the problem.
        context: with the number of plans it may price.
        cooling: whether it gets colder from `WARM` to `COLD`; else it has one coldness.
        walking: whether proposals are changes of the plan at hand; else each is drawn at random.
    """

    def __init__(
        self, instance: Instance, context: PlannerContext, cooling: bool = False, walking: bool = True
    ) -> None:
        self._instance = instance
        self._cooling = cooling
        self._walking = walking
        self._context = context
        self._random = Random(context.seed)
        self._pieces: Units = units(instance)
        every = range(len(instance.candidates))
        self._usable = [each for each in every if modes(instance, instance.candidates[each])]
        self._seen: dict[Solution, float] = {}
        self._priced = 0
        self._best: tuple[bool, float, Solution] | None = None

    def best(self) -> Proposal:
        if not self._usable:
            return Proposal(None, ("no candidate has a recompute mode that the problem allows.",))
        state = self._start()
        energy = self._energy(state)
        idle = 0
        for _ in range(PATIENCE * self._context.evaluations):
            if self._priced >= self._context.evaluations:
                break
            if idle == RESTLESS:
                state = self._elsewhere(state)
                energy, idle = self._energy(state), 0
            met = len(self._seen)
            other = self._changed(state) if self._walking else self._elsewhere(state)
            reached = self._energy(other)
            idle = 0 if len(self._seen) > met else idle + 1
            if reached <= energy or self._random.random() < _acceptance(energy, reached, self._coldness()):
                state, energy = other, reached
        if self._best is None:
            return Proposal(None, (f"none of the {len(self._seen)} plans it tried is one of the problem.",))
        note = f"{self._priced} plans priced, seed {self._context.seed}."
        return Proposal(self._best[2], (note,))

    def _coldness(self) -> float:
        if not self._cooling:
            return COLDNESS
        return float(WARM * (COLD / WARM) ** (self._priced / self._context.evaluations))

    def _start(self) -> _State:
        """Data parallelism of the narrowest block, which FlexFlow starts from too."""
        instance, space = self._instance, self._instance.space
        index = min(self._usable, key=lambda each: instance.candidates[each].width)
        candidate = instance.candidates[index]
        fixed = space.partition
        stages = len(fixed) if fixed else 1
        replicas = next(replica_counts(instance, candidate, stages), 1)
        mode = modes(instance, candidate)[0]
        choices = Choices(
            index, replicas, space.rank_orders[0], space.schedules[0], mode, space.zero[0], space.zero_degrees[0]
        )
        return _State(choices, even_cuts(len(self._pieces), min(stages, len(self._pieces))))

    def _changed(self, state: _State) -> _State:
        """The plan with one decision changed at random."""
        changes = (self._other_candidate, self._other_stages, self._moved_cut, self._other_replicas, self._other_listed)
        return self._random.choice(changes)(state)

    def _elsewhere(self, state: _State) -> _State:
        """A plan drawn at random."""
        state = self._other_stages(self._other_candidate(state))
        for listed in range(LISTED):
            state = self._drawn(state, listed)
        return state

    def _other_candidate(self, state: _State) -> _State:
        index = self._random.choice(self._usable)
        allowed = modes(self._instance, self._instance.candidates[index])
        mode = state.choices.recompute if state.choices.recompute in allowed else allowed[0]
        return self._with_replicas(evolve(state, choices=evolve(state.choices, candidate=index, recompute=mode)))

    def _other_stages(self, state: _State) -> _State:
        width = self._instance.candidates[state.choices.candidate].width
        most = max(min(len(self._pieces), self._instance.cluster.size // width), 1)
        count = self._random.randint(1, most)
        return self._with_replicas(evolve(state, cuts=even_cuts(len(self._pieces), count)))

    def _moved_cut(self, state: _State) -> _State:
        if not state.cuts:
            return state
        which = self._random.randrange(len(state.cuts))
        ends = (0, *state.cuts, len(self._pieces))
        moved = state.cuts[which] + self._random.choice((-1, 1))
        if not ends[which] < moved < ends[which + 2]:
            return state
        return evolve(state, cuts=(*state.cuts[:which], moved, *state.cuts[which + 1 :]))

    def _other_replicas(self, state: _State) -> _State:
        candidate = self._instance.candidates[state.choices.candidate]
        counts = list(replica_counts(self._instance, candidate, len(state.cuts) + 1))
        if not counts:
            return state
        return evolve(state, choices=evolve(state.choices, replicas=self._random.choice(counts)))

    def _with_replicas(self, state: _State) -> _State:
        """As many replicas as there is room for: a new shape is to be judged with all devices in use."""
        candidate = self._instance.candidates[state.choices.candidate]
        most = next(replica_counts(self._instance, candidate, len(state.cuts) + 1), 1)
        return evolve(state, choices=evolve(state.choices, replicas=most))

    def _other_listed(self, state: _State) -> _State:
        """Another of what the problem lists: order of ranks, schedule, recomputation, ZeRO."""
        return self._drawn(state, self._random.randrange(LISTED))

    def _drawn(self, state: _State, listed: int) -> _State:
        space, draw = self._instance.space, self._random.choice
        candidate = self._instance.candidates[state.choices.candidate]
        choices = state.choices
        if listed == 0:
            choices = evolve(choices, rank_order=draw(space.rank_orders))
        elif listed == 1:
            choices = evolve(choices, schedule=draw(space.schedules))
        elif listed == 2:
            choices = evolve(choices, recompute=draw(modes(self._instance, candidate)))
        elif listed == 3:
            choices = evolve(choices, zero=draw(space.zero))
        else:
            choices = evolve(choices, zero_degree=draw(space.zero_degrees))
        return evolve(state, choices=choices)

    def _solution(self, state: _State) -> Solution | None:
        schedule: Schedule = state.choices.schedule
        if chunks_of(schedule) > 1:
            split = dealt(self._instance, schedule, len(state.cuts) + 1)
        else:
            split = partition(self._pieces, state.cuts)
        fixed = self._instance.space.partition
        if fixed is not None and chunks_of(schedule) == 1:
            split = tuple((tuple(sorted(layers)),) for layers in fixed) if len(fixed) == len(state.cuts) + 1 else None
        return None if split is None else state.choices.solution(self._instance, split)

    def _energy(self, state: _State) -> float:
        """Seconds, more where the plan does not fit; without end where it is none."""
        solution = self._solution(state)
        if solution is None:
            return inf
        if solution in self._seen:
            return self._seen[solution]
        seen = self._context.assess(solution)
        energy = inf
        if seen.priced is not None:
            self._priced += 1
            energy = seen.priced.batch_time * (1 + seen.missing / seen.priced.capacity) ** 2
            rank = (not seen.admitted, energy, solution)
            if self._best is None or rank[:2] < self._best[:2]:
                self._best = rank
        self._seen[solution] = energy
        return energy


def _acceptance(energy: float, reached: float, coldness: float) -> float:
    """The probability of going on to a slower plan; 0 where it is none."""
    return exp(-coldness * (reached / energy - 1)) if 0 < energy < inf and reached < inf else 0.0
