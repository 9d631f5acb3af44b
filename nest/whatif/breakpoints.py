"""At which bandwidth, memory, peak or batch another plan becomes the best: looked for by solving on both sides."""

from collections.abc import Sequence
from math import inf, log, sqrt

from attrs import asdict, evolve, frozen

from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.hooks.registry import Registry
from nest.report.plan_summary import needed_memory
from nest.reuse import once
from nest.spec import PlanDocument, Problem
from nest.tolerances import HARDLY_FASTER
from nest.whatif.floors import never_slower
from nest.whatif.outcome import Outcome, outcome, signature
from nest.whatif.parameters import PLENTY, Parameter, parameters, with_memory
from nest.whatif.solver import Solver

PRECISION = 0.01
"""A breakpoint lies between two values that differ by at most this share."""

REACH = 4.0
"""How many times as much, and how small a part, of what the problem has is looked at: two doublings, as from one
generation of a network to the next but one."""

MOST_SOLVES = 16
"""For one breakpoint; halving the reach on a logarithmic scale comes to the precision in 8, crossings mostly in 3."""

CLOSER = 0.9
"""Share of the stretch, on a logarithmic scale, that a guess must not leave; else it is halved next."""

NARROW = 0.03
"""Stretch of memory up to which what a plan needs is often the breakpoint itself; in farther ones the best plans are
many, and strides that double, then halves, are quicker."""

FINER = 20
"""Times as precisely crossings of plans that are known are found: pricing them takes a hundredth of a search."""

ASIDE = 1e-6
"""Relative distance of the two sides where the breakpoint is known: the memory that a plan needs."""

LESS, MORE = "less", "more"


@frozen
class Breakpoint:
    """Where a parameter, all else as it is, makes another plan the best.

    Attributes:
        parameter: its name.
        unit: its unit.
        value: what the problem has.
        direction: `less` or `more` than that.
        same_at: the farthest value solved at which the plan is still the best.
        changed_at: the nearest value solved at which it is not; None: it is the best as far as was looked.
        kept: by how much the plan takes longer than the best at `changed_at`, as a share of that; None: it does not fit
            there, or there is no plan at all.
        same_kept: the same at `same_at`: above 0, or None, where the best plan there decides the same but for what is
            no breakpoint, such as which stage has which layers, or is faster by `HARDLY_FASTER` at most.
        outcome: the best plan at `changed_at` beside the plan asked about; None: nothing changes.
        proved: whether all plans it rests on were proved the best.
        precise: whether the two values are neighbours, or at most `PRECISION` apart; else the search for it ended
            at `MOST_SOLVES`.
    """

    parameter: str
    unit: str
    value: float
    direction: str
    same_at: float
    changed_at: float | None = None
    kept: float | None = None
    same_kept: float | None = None
    outcome: Outcome | None = None
    proved: bool = True
    precise: bool = True

    def is_within(self, share: float) -> bool:
        """Whether a bandwidth that is less by at most so much makes another plan the best."""
        less = self.unit == "bytes/s" and self.direction == LESS and self.changed_at is not None
        return less and self.same_at >= self.value * (1 - share)

    def to_dict(self) -> dict[str, object]:
        """All of it in plain mappings, lists and numbers."""
        return {**asdict(self, recurse=False), "outcome": None if self.outcome is None else self.outcome.to_dict()}


@frozen
class Sweep:
    """A parameter and the direction in which a breakpoint is looked for."""

    parameter: Parameter
    direction: str


def sweeps(best: PlanDocument, problem: Problem, known: Registry) -> tuple[Sweep, ...]:
    """The parameters of a problem and directions in which breakpoints of its best plan are looked for.

    The number of devices is none of them: it changes how many replicas there are. Where there is no plan, more memory
    may make one.
    """
    varied = [each for each in parameters(problem, known) if each.unit != "devices"]
    if best.status == "infeasible":
        varied = [each for each in varied if each.unit == "bytes"]
        return tuple(Sweep(each, MORE) for each in varied)
    return tuple(Sweep(each, direction) for each in varied for direction in (LESS, MORE) if _can_vary(each, direction))


def _can_vary(parameter: Parameter, direction: str) -> bool:
    """Whether there are values to look at: half an odd batch is none."""
    return direction == MORE or not parameter.multiple_of or parameter.allows(parameter.value / 2)


def breakpoint_of(best: PlanDocument, problem: Problem, sweep: Sweep, solver: Solver) -> Breakpoint:
    """The breakpoint of the best plan nearest to what the problem has, by solves.

    A plan stays the best where the best plan decides the same (`signature`), or where the plan, kept as it is, takes
    longer by `HARDLY_FASTER` at most: nobody would change a plan for less. The best plan is solved for halfway through
    the reach and, where nothing changes there, at its end. Where it is another one, the plans met so far are priced
    along the parameter, which takes no search, to see where one of them is faster by so much: their lower envelope
    bounds the best step time from above (Eisner and Severance, J. ACM 23(4), 1976). For memory it is what the plans
    need. Solves on both sides of that value confirm it, or find a better plan, until the breakpoint lies between two
    values that differ by at most `PRECISION`.

    The best plan with some memory that fits into less is the best with that, too, which is not solved for
    (`Solver.within`). Shorter stretches in between where another plan is the best are not looked for.

    Args:
        best: the best plan of the problem; infeasible: the least memory is looked for with which there is a plan.
        problem: its problem, self-contained.
        sweep: what is varied.
        solver: solves the varied problems.
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
    """The best plan at one value of the parameter; None: there is no problem with that value."""

    value: float
    plan: PlanDocument | None

    @property
    def proved(self) -> bool:
        """Whether no plan is better, or there is proved to be none."""
        return self.plan is None or self.plan.status != "feasible"


class _Search:
    """Looks for one breakpoint."""

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
        """The neighbours among the doublings (or halvings) of a whole number between which the plan changes."""
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
        """Two values that differ by at most the precision, between which the plan changes."""
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
        """The best plan at the end, and whether the plan asked about is hardly slower than the best halfway there.

        No plan is faster there than the best where there is more: what hardly takes longer than that is hardly slower.
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
        """Two amounts of memory between which the plan changes, near the first: strides double from there to the end.

        With more memory no plan is slower: where the plan asked about is hardly slower than the best at the end, it is
        so in between, and what it leaves free changes nothing either.
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
        """The same two, but for the one with more memory than its plan needs, which is the best there too."""
        needed = self.needed(same, changed) if self.sweep.parameter.name == "memory" else None
        low, high = sorted((same.value, changed.value))
        if needed is None or not low < needed < high:
            return same, changed
        lean = self.evaluate(needed)  # Implied by the other.
        return (same, lean) if self.differs(lean) else (lean, changed)

    def evaluate(self, value: float) -> _Evaluation:
        """The best plan at a value."""
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
        """Whether the plan asked about is not the best there."""
        if evaluation.plan is None or evaluation.plan.batch_time is None:
            return bool(self.signature)
        return signature(evaluation.plan, self.solver.plugins) != self.signature and not self.keeps(evaluation)

    def keeps(self, evaluation: _Evaluation) -> bool:
        """Whether the plan asked about, kept as it is, is hardly slower than the best there."""
        longer = self.longer(evaluation)
        return longer is not None and longer <= HARDLY_FASTER

    def longer(self, evaluation: _Evaluation) -> float | None:
        """By which share the plan asked about, kept as it is, takes longer; None: it does not fit, or none does."""
        longer = self.at(evaluation.value)
        rival = None if evaluation.plan is None else evaluation.plan.batch_time
        return None if longer is None or rival is None else longer / rival - 1

    def at(self, value: float) -> float | None:
        """Seconds that the plan asked about takes at a value, kept as it is; None: it cannot be, or does not fit."""
        if self.best.status == "infeasible":
            return None
        return once(self._times, value, lambda: self.times((self.best,), value)[0])

    def guesses(self, same: _Evaluation, changed: _Evaluation) -> tuple[float, ...]:
        """Values on either side of where the breakpoint is taken to lie, that on the side of what is the same first."""
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
        """Memory that the plan needs which more of it gives, or less of it takes."""
        wider = same.plan if self.sweep.direction == LESS else changed.plan
        pool = self.sweep.parameter.pool
        used = None if wider is None else any(pool in (None, stage.pool) for stage in wider.stages)
        return needed_memory(wider, pool) if wider is not None and used else None

    def crossing(self, same: _Evaluation, changed: _Evaluation) -> float | None:
        """Where a plan that was met becomes faster by enough than the plan asked about and its kind; None: nowhere."""
        known = self.solver.plugins
        kin = [each for each in self.met if signature(each, known) == self.signature]
        others = [each for each in self.met if signature(each, known) != self.signature]
        every = [self.best, *kin, *others]

        def lag(value: float) -> float:
            """By how much the plan asked about and its kind are too slow, on a logarithmic scale."""
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
        """The same of each of some plans with decisions."""
        try:
            return self.solver.times_on(self.sweep.parameter.changed(self.problem, value), plans)
        except InputError:
            return (None,) * len(plans)


def _apart(one: _Evaluation, other: _Evaluation) -> float:
    """By which share two values differ."""
    low, high = sorted((one.value, other.value))
    return high / low - 1


def _middle(one: _Evaluation, other: _Evaluation) -> float:
    return sqrt(one.value * other.value)
