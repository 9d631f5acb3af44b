"""Breakpoints: the bandwidth, memory, peak or batch at which another plan becomes the best, found by solving."""

from collections.abc import Sequence
from math import inf, log, sqrt

from attrs import asdict, evolve, frozen

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.public.changes import PLENTY, Parameter, Solver, needed_memory, never_slower, once, parameters, with_memory
from nest.public.planning import build_cluster
from nest.spec import PlanDocument, Problem
from nest.tolerances import HARDLY_FASTER
from nest_whatif.outcome import Outcome, outcome, signature

PRECISION = 0.01  # Relative precision of a breakpoint.

REACH = 4.0
"""Largest factor over, and smallest part of, the problem's value: two doublings, as between network generations two
apart."""

MOST_SOLVES = 16
"""Most solves for one breakpoint; halving the reach on a logarithmic scale takes 8, crossings mostly 3."""

CLOSER = 0.9  # Share of the range, on a logarithmic scale, below which a guess must shrink it; else it is halved next.

NARROW = 0.03
"""Range of memory within which a plan's need is often the breakpoint; farther ranges have many best plans, and doubling
then halving strides are faster."""

FINER = 20  # Factor by which crossings of known plans are found more precisely: pricing takes a hundredth of a search.
ASIDE = 1e-6  # Relative distance of both sides of a known breakpoint: a plan's memory.

LESS, MORE = "less", "more"


@frozen
class Breakpoint:
    """Value of a parameter at which another plan becomes the best, all else equal."""

    parameter: str  # Its name.
    unit: str
    value: float  # Of the problem.
    direction: str  # `less` or `more` than that.
    same_at: float  # Farthest value solved with the same best plan.
    changed_at: float | None = None  # Nearest value solved with another; None: it is the best within reach.
    # Share by which the plan is slower than the best at `changed_at`; None: it does not fit, or there is no plan.
    kept: float | None = None
    # Same at `same_at`: above 0, or None, if the best plan there differs only in decisions that are no breakpoint, such
    # as the layers of each stage, or is faster by at most `HARDLY_FASTER`.
    same_kept: float | None = None
    outcome: Outcome | None = None  # Best plan at `changed_at` compared with the original; None: nothing changes.
    proved: bool = True  # All plans it rests on are proved.
    # The values are neighbours, or at most `PRECISION` apart; else the search ended at `MOST_SOLVES`.
    precise: bool = True

    def is_within(self, share: float) -> bool:
        """True if a bandwidth lower by at most this share makes another plan the best."""
        less = self.unit == "bytes/s" and self.direction == LESS and self.changed_at is not None
        return less and self.same_at >= self.value * (1 - share)

    def to_dict(self) -> dict[str, object]:
        """Convert to plain mappings, lists and numbers."""
        return {**asdict(self, recurse=False), "outcome": None if self.outcome is None else self.outcome.to_dict()}


@frozen
class Sweep:
    """A parameter, and the direction of a breakpoint."""

    parameter: Parameter
    direction: str


def sweeps(best: PlanDocument, problem: Problem, known: Registry) -> tuple[Sweep, ...]:
    """Parameters and directions of breakpoints of a problem's best plan.

    Without the number of devices, which changes the replicas. If there is no plan, more memory may give one.
    """
    varied = [each for each in parameters(problem, known) if each.unit != "devices"]
    if best.status == "infeasible":
        varied = [each for each in varied if each.unit == "bytes"]
        return tuple(Sweep(each, MORE) for each in varied)
    return tuple(Sweep(each, direction) for each in varied for direction in (LESS, MORE) if _can_vary(each, direction))


def _can_vary(parameter: Parameter, direction: str) -> bool:
    """True if there are values to try: half an odd batch is none."""
    return direction == MORE or not parameter.multiple_of or parameter.allows(parameter.value / 2)


def breakpoint_of(best: PlanDocument, problem: Problem, sweep: Sweep, solver: Solver) -> Breakpoint:
    """Find the breakpoint nearest to the problem's value, by solves.

    A plan stays the best if the best plan decides the same (`signature`), or if the unchanged plan is slower by
    at most `HARDLY_FASTER`: nobody would change a plan for less. First the best plan is found halfway through the reach
    and, if nothing changes, at its end. If it differs, the known plans are priced along the parameter, without search,
    to find a crossing: their lower envelope is an upper bound on the best step time (Eisner and Severance, J. ACM
    23(4), 1976). For memory the plans' needs are used. Solves on both sides of that value confirm it, or find a better
    plan, until the breakpoint is known to `PRECISION`.

    The best plan with some memory that fits into less is also the best with that, without a solve (`Solver.within`).
    Shorter ranges in between with another best plan are missed.

    Args:
        best: the problem's best plan; infeasible: the least memory with a plan is sought.
        problem: self-contained.
    """
    search = _Search(best, problem, sweep, solver)
    if sweep.parameter.multiple_of:
        same, changed = search.ladder()
    else:
        same, changed = search.bracket()
    parameter = sweep.parameter
    unchanged = Breakpoint(
        parameter.name, parameter.unit, parameter.value, sweep.direction, same.value, proved=same.proved
    )
    unchanged = evolve(unchanged, same_kept=search.longer(same))
    if changed is None:
        return unchanged
    return evolve(
        unchanged,
        changed_at=changed.value,
        kept=search.longer(changed),
        # What makes the difference to the plan as it was is the parameter.
        outcome=evolve(outcome(best, changed.plan, solver.plugins), reason=None),
        proved=same.proved and changed.proved,
        precise=parameter.multiple_of > 0 or _apart(same, changed) <= PRECISION,
    )


@frozen
class _Evaluation:
    """Best plan at one value of the parameter; None: there is no such problem."""

    value: float
    plan: PlanDocument | None

    @property
    def proved(self) -> bool:
        """True if the plan, or that there is none, is proved."""
        return self.plan is None or self.plan.status != "feasible"


class _Search:
    """Search for one breakpoint."""

    def __init__(self, best: PlanDocument, problem: Problem, sweep: Sweep, solver: Solver) -> None:
        self.best, self.problem, self.sweep, self.solver = best, problem, sweep, solver
        self.signature = signature(best, solver.plugins)
        self.met: list[PlanDocument] = []
        self._times: dict[float, float | None] = {}
        if problem.cluster.pools is not None:
            return
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        self.size = cluster.size
        if best.status != "feasible":
            solver.know(with_memory(problem, cluster.device_memory), best)  # The same problem, written out.
            solver.within(problem, self.size, cluster.device_memory, self.size)

    def ladder(self) -> tuple[_Evaluation, _Evaluation | None]:
        """Neighbours among the doublings (or halvings) of an integer between which the plan changes."""
        parameter, same = self.sweep.parameter, _Evaluation(self.sweep.parameter.value, self.best)
        factor = 2.0
        while factor <= REACH:
            value = parameter.value * factor if self.sweep.direction == MORE else parameter.value / factor
            if value % parameter.multiple_of or not parameter.allows(value):
                break
            evaluation = self.evaluate(value)
            if self.differs(evaluation):
                return same, evaluation
            same, factor = evaluation, factor * 2
        return same, None

    def bracket(self) -> tuple[_Evaluation, _Evaluation | None]:
        """Two values within the precision between which the plan changes."""
        parameter = self.sweep.parameter
        same = _Evaluation(parameter.value, self.best)
        reach = REACH if self.signature else PLENTY  # Where there is no plan, any memory that makes one is of interest.
        end = parameter.value * (reach if self.sweep.direction == MORE else 1 / reach)
        if not parameter.allows(end):  # Memory below the reserve.
            end = parameter.at_least * (1 + PRECISION)
        memory = parameter.unit == "bytes"
        if memory and self.signature and self.needed(same, same) is not None:
            same, nearest = self.strides(same, end)
            if nearest is None:
                return same, None
            same, changed = self.as_lean(same, nearest)
        else:
            changed, flat = self.end_where_flat(same, end) if self.signature else (self.evaluate(end), True)
            if not flat:
                changed = self.evaluate(sqrt(parameter.value * end))
                if not self.differs(changed):
                    same, changed = changed, self.evaluate(end)
            if not self.differs(changed):
                return changed, None
        left, halving = MOST_SOLVES - 2, False
        # What a plan needs tells a breakpoint of memory more precisely than strides do.
        while left > 0 and _apart(same, changed) > (PRECISION if left < MOST_SOLVES - 2 or not memory else ASIDE):
            before = log(1 + _apart(same, changed))
            for value in (_middle(same, changed),) if halving else self.guesses(same, changed):
                evaluation = self.evaluate(value)
                left -= 1
                if self.differs(evaluation):
                    changed = evaluation
                    break
                same = evaluation
            same, changed = self.as_lean(same, changed)
            # Guesses may come close from one side only.
            far = log(1 + _apart(same, changed)) > before * CLOSER
            halving = (memory and _apart(same, changed) > NARROW) or (far and not halving)
        return same, changed

    def end_where_flat(self, same: _Evaluation, end: float) -> tuple[_Evaluation, bool]:
        """Best plan at the end, and whether the original is hardly slower than the best halfway there.

        No plan is faster there than the best with more: what is hardly slower than that is hardly slower.
        """
        there, more = self.at(sqrt(same.value * end)), self.sweep.direction == MORE
        ahead = self.at(end) if more else self.best.batch_time
        if there is None or ahead is None or there > ahead * (1 + HARDLY_FASTER):
            return same, False
        if self.best.status != "optimal" or not never_slower(self.problem, self.sweep.parameter):
            return same, False
        far = self.evaluate(end)
        fastest = far.plan.batch_time if more and far.plan is not None else self.best.batch_time
        return far, (far.proved or not more) and fastest is not None and there <= fastest * (1 + HARDLY_FASTER)

    def strides(self, same: _Evaluation, end: float) -> tuple[_Evaluation, _Evaluation | None]:
        """Two amounts of memory between which the plan changes, near the first: strides double up to the end.

        More memory makes no plan slower: if the original is hardly slower than the best at the end, it is so in
        between, and its free memory changes nothing either.
        """
        more, stride = self.sweep.direction == MORE, 1 + NARROW
        if more:
            far = changed = self.evaluate(end)
            if not self.differs(far) and not self.keeps(far):
                changed = self.evaluate(sqrt(same.value * end))
            if not self.differs(changed):
                return far, None
            end = changed.value
        while True:
            needed = None if more else self.needed(same, same)
            if needed is not None and needed < same.value:
                same = self.evaluate(needed)  # Implied.
            value = same.value * stride if more else same.value / stride
            beyond = value >= end if more else value <= end
            if beyond and more:
                return same, changed
            evaluation = self.evaluate(end if beyond else value)
            if self.differs(evaluation):
                return same, evaluation
            same, stride = evaluation, stride**2
            if beyond:
                return same, None

    def as_lean(self, same: _Evaluation, changed: _Evaluation) -> tuple[_Evaluation, _Evaluation]:
        """Lower the value with more memory than its plan needs to that need: the plan is the best there, too."""
        needed = self.needed(same, changed) if self.sweep.parameter.name == "memory" else None
        low, high = sorted((same.value, changed.value))
        if needed is None or not low < needed < high:
            return same, changed
        lean = self.evaluate(needed)  # Implied by the other.
        return (same, lean) if self.differs(lean) else (lean, changed)

    def evaluate(self, value: float) -> _Evaluation:
        """Best plan at a value."""
        parameter = self.sweep.parameter
        asking = f"{self.sweep.direction} {parameter.name}"
        less_memory = parameter.unit == "bytes" and self.sweep.direction == LESS
        if less_memory and self.best.status == "optimal" and self.at(value) is not None:
            return _Evaluation(value, self.best)  # Fewer plans fit into less, and those that do take as long as before.
        try:
            if parameter.name == "memory":
                plan = self.solver.within(self.problem, self.size, value, self.size, asking, self.best)
            else:
                floors = self.solver.floors(self.problem, parameter, value / parameter.value)
                plan = self.solver.plan(parameter.changed(self.problem, value), asking, self.best, floors)
        except InputError:
            return _Evaluation(value, None)
        if plan is not None and plan.batch_time is not None:
            self.met.append(plan)
        return _Evaluation(value, plan)

    def differs(self, evaluation: _Evaluation) -> bool:
        """True if the original is not the best there."""
        if evaluation.plan is None or evaluation.plan.batch_time is None:
            return bool(self.signature)
        return signature(evaluation.plan, self.solver.plugins) != self.signature and not self.keeps(evaluation)

    def keeps(self, evaluation: _Evaluation) -> bool:
        """True if the unchanged original is hardly slower than the best there."""
        longer = self.longer(evaluation)
        return longer is not None and longer <= HARDLY_FASTER

    def longer(self, evaluation: _Evaluation) -> float | None:
        """Share by which the unchanged original is slower; None: it does not fit, or none does."""
        longer = self.at(evaluation.value)
        rival = None if evaluation.plan is None else evaluation.plan.batch_time
        return None if longer is None or rival is None else longer / rival - 1

    def at(self, value: float) -> float | None:
        """Seconds of the original at a value; None: it is impossible, or does not fit."""
        if self.best.status == "infeasible":
            return None
        return once(self._times, value, lambda: self.times((self.best,), value)[0])

    def guesses(self, same: _Evaluation, changed: _Evaluation) -> tuple[float, ...]:
        """Values on either side of the presumed breakpoint, the side of the original first."""
        memory = self.sweep.parameter.unit == "bytes"
        guess = self.needed(same, changed) if memory else self.crossing(same, changed)
        low, high = sorted((same.value, changed.value))
        if guess is None or not low < guess < high * (1 + ASIDE):
            return (_middle(same, changed),)
        # Memory that a plan needs is enough for it, any less is not.
        below, above = (ASIDE, 0.0) if memory else (PRECISION / 3, PRECISION / 3)
        near, far = guess * (1 - below), guess * (1 + above)
        sides = (far, near) if self.sweep.direction == LESS else (near, far)
        return tuple(value for value in sides if low < value < high) or (_middle(same, changed),)

    def needed(self, same: _Evaluation, changed: _Evaluation) -> float | None:
        """Memory of the plan gained with more of it, or lost with less."""
        wider = same.plan if self.sweep.direction == LESS else changed.plan
        pool = self.sweep.parameter.pool
        used = None if wider is None else any(pool in (None, stage.pool) for stage in wider.stages)
        return needed_memory(wider, pool) if wider is not None and used else None

    def crossing(self, same: _Evaluation, changed: _Evaluation) -> float | None:
        """Value at which a known plan becomes sufficiently faster than the original and its kind; None: nowhere."""
        known = self.solver.plugins
        kin = [each for each in self.met if signature(each, known) == self.signature]
        others = [each for each in self.met if signature(each, known) != self.signature]
        every = [self.best, *kin, *others]

        def lag(value: float) -> float:
            """Logarithm of how much the original and its kind are too slow."""
            times = [inf if each is None else each for each in self.times(every, value)]
            own = min(times[0] / (1 + HARDLY_FASTER), min(times[1 : len(kin) + 1], default=inf))
            other = min(times[len(kin) + 1 :], default=inf)
            return log(own / other) if max(own, other) < inf else inf if other < own else -inf

        # Transfers and products take a time that is linear in the reciprocal.
        near, far = 1 / same.value, 1 / changed.value
        ahead, behind = lag(same.value), lag(changed.value)
        if not ahead <= 0 < behind:
            return None
        while abs(far / near - 1) > PRECISION / FINER and abs(near / far - 1) > PRECISION / FINER:
            share = ahead / (ahead - behind) if -inf < ahead and behind < inf else 0.5
            between = near + (far - near) * min(max(share, 1 / FINER), 1 - 1 / FINER)
            lags = lag(1 / between)
            if lags <= 0:
                near, ahead = between, lags
            else:
                far, behind = between, lags
        return 2 / (near + far)

    def times(self, plans: Sequence[PlanDocument], value: float) -> tuple[float | None, ...]:
        """Same for each of some plans with decisions."""
        try:
            return self.solver.times_on(self.sweep.parameter.changed(self.problem, value), plans)
        except InputError:
            return (None,) * len(plans)


def _apart(one: _Evaluation, other: _Evaluation) -> float:
    low, high = sorted((one.value, other.value))
    return high / low - 1


def _middle(one: _Evaluation, other: _Evaluation) -> float:
    return sqrt(one.value * other.value)
