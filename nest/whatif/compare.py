"""Our plan beside those of other planners: searched within the same cost model, priced by the same code."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from nest.catalogue import unknown_name
from nest.deployment import LaunchOptions
from nest.errors import InputError, InternalError
from nest.formulate.decisions import contributors, on_other_problem
from nest.formulate.fixed_plan import fixed_plan
from nest.formulate.instance import build_instance
from nest.formulate.network import by_levels_notice
from nest.formulate.planner_context import planner_context
from nest.formulate.pools import takes_pools
from nest.formulate.problem import Source
from nest.hooks.calls import PluginError
from nest.hooks.kinds import KINDS
from nest.hooks.planning import Assessment, assessed
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result, Solution
from nest.plan.check import check as check_plan
from nest.plan.document import document, solution_of
from nest.plan.evaluate import evaluate as price
from nest.plan.legality import permission_violations, structure_violations
from nest.report.other_plans import apart
from nest.spec import ClusterSpec, PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest.whatif.runs_of_today import same_price, trains_otherwise


@frozen
class Entry:
    """One plan of a comparison.

    Attributes:
        name: the planner's, or that of the file.
        summary: one line on where the plan comes from.
        plan: the plan, priced on the problem; None: there is none.
        reasons: why there is none, or why it is none of the problem's, a sentence each; none: it is one.
        remarks: what the planner tells, a sentence each.
        missing: bytes that its fullest stage needs beyond those that a search of the problem admits.
        refutes: whether it fits so closely that it may not be faster than a plan that is proved.
        seconds: wall-clock time that deciding took; None: nobody was asked to time it.
    """

    name: str
    summary: str
    plan: PlanDocument | None
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    missing: float = 0.0
    refutes: bool = True
    seconds: float | None = field(default=None, eq=False)

    @property
    def counts(self) -> bool:
        """Whether it is a plan that a search of the problem admits, so that ours must be as fast."""
        return self.plan is not None and not self.missing and not self.reasons

    @property
    def batch_time(self) -> float | None:
        """Seconds per optimizer step; None where there is no plan."""
        return None if self.plan is None else self.plan.batch_time


def _is_below(entry: Entry, seconds: float | None) -> bool:
    """Whether a plan takes less; None: whatever it takes is less."""
    return entry.batch_time is not None and (seconds is None or entry.batch_time < seconds * (1 - AGREEMENT))


@frozen
class Comparison:
    """Our plan and others.

    Attributes:
        ours: as `nest solve` finds it.
        others: in the order asked for, those of plug-ins that failed included.
        seed: of planners that draw random numbers.
        evaluations: plans that planners which try plans out were allowed to price.
        seconds: wall-clock time of the search for our plan; None: nobody was asked to time it.
        by_levels: that plans are decided by the levels of a network that is no hierarchy, and whose; None: it is one.
    """

    ours: PlanDocument
    others: tuple[Entry, ...]
    seed: int
    evaluations: int
    seconds: float | None = field(default=None, eq=False)
    by_levels: str | None = None

    def relative(self, entry: Entry) -> float | None:
        """How many times as long as ours a plan takes; None where there is no such number."""
        if entry.batch_time is None or not self.ours.batch_time:
            return None
        return entry.batch_time / self.ours.batch_time

    def told_apart(self, entry: Entry) -> bool | None:
        """Whether predictions are sure enough to say which plan is faster; None where there is no such number."""
        relative = self.relative(entry)
        return None if relative is None else max(relative, 1 / relative) - 1 >= apart(self.ours)

    @property
    def faster(self) -> tuple[Entry, ...]:
        """Plans of the problem that its search admits and that are faster than ours."""
        return tuple(each for each in self.others if each.counts and _is_below(each, self.ours.batch_time))

    @property
    def refuting(self) -> tuple[Entry, ...]:
        """Those among them that cannot be: faster than what was proved that no plan is faster than."""
        return tuple(each for each in self.faster if each.refutes and _is_below(each, self.ours.lower_bound))

    def assert_unbeaten(self) -> None:
        """Our plan is proved to be the fastest, so that a faster one shows a bug of ours.

        Raises:
            InternalError: one is faster than the bound proved.
        """
        for each in self.refuting:
            raise InternalError(
                f"the plan of {each.name} takes {each.batch_time:.9g} s, but nest claims that no plan takes less than "
                f"{self.ours.lower_bound} s (status {self.ours.status}). This is a bug in nest; please report it with "
                "the problem file."
            )

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain mappings, lists and numbers; times only where somebody asked for them."""
        timed = self.seconds is not None
        return {
            "plan": self.ours.to_dict(),
            "others": [
                {
                    "name": each.name,
                    "summary": each.summary,
                    "batch_time": each.batch_time,
                    "relative": self.relative(each),
                    "told_apart": self.told_apart(each),
                    "within_problem": each.plan is not None and not each.reasons,
                    "fits": each.plan is not None and each.plan.fits,
                    "missing_bytes": each.missing,
                    "reasons": list(each.reasons),
                    "remarks": list(each.remarks),
                    "plan": None if each.plan is None else each.plan.to_dict(),
                    **({"seconds": each.seconds} if timed else {}),
                }
                for each in self.others
            ],
            **({"seconds": self.seconds} if timed else {}),
            "by_levels": self.by_levels,
            "seed": self.seed,
            "evaluations": self.evaluations,
        }


def comparison(
    ours: PlanDocument,
    task: "Task",
    pools: Sequence[str],
    names: Sequence[str],
    plans: Sequence[tuple[Path, PlanDocument]],
    flags: Mapping[str, Sequence[str | Path]],
    options: LaunchOptions,
    step: Callable[[str, int, int | None], None] | None,
    seconds: float | None = None,
) -> Comparison:
    """Our plan beside those of other planners, of plan files and of frameworks' flags.

    Args:
        ours: as `nest solve` finds it.
        task: its problem.
        pools: names of pools, each of which is planned without the others.
        names: of registered planners.
        plans: with the files they were read from; their decisions are priced on the problem.
        flags: files of frameworks by the name of the plan reader, whose decisions are priced on the problem.
        options: what is said of their launch.
        step: called with whose plan is made, how many are and how many there will be.
        seconds: that the search for our plan took; None: nothing is timed.

    Raises:
        InputError: a file cannot be used.
    """
    makers = [(f"{pool} alone", "", "", partial(task.alone, pool)) for pool in pools]
    makers += [(name, "planners", name, partial(task.planned, name)) for name in names]
    makers += [(str(path), "", "", partial(task.given, str(path), "a plan file", plan)) for path, plan in plans]
    for reader, file in [(reader, file) for reader, files in flags.items() for file in files]:
        makers.append((str(file), "plan_readers", reader, partial(task.flags, Path(file), reader, options)))
    entries: list[Entry] = []
    for name, kind, item, made in makers:
        if step is not None:
            step(f"plan of {name}", len(entries), len(makers))
        begun = time.monotonic()
        entry = task.made_by(name, kind, item, made)
        entries.append(entry if seconds is None else evolve(entry, seconds=time.monotonic() - begun))
    return Comparison(ours, tuple(entries), task.seed, task.evaluations, seconds, task.by_levels)


def planner_rows(*, plugins: Registry | None = None) -> list[dict[str, str]]:
    """Name, summary and distribution of every planner."""
    known = plugins or registry()

    def row(name: str, summary: str) -> dict[str, str]:
        distribution, version = known.origin("planners", name)
        return {"name": name, "summary": summary, "distribution": distribution, "version": version}

    return known.run(lambda: [row(name, each.summary) for name, each in known.planners().items()])


def suited_planners(names: Sequence[str], known: Registry, cluster: ClusterSpec) -> tuple[str, ...]:
    """Those that plan such a cluster, of one kind of device or of several, and those that failed."""
    pooled, planners = bool(cluster.pools), known.planners()
    return tuple(name for name in names if name not in planners or takes_pools(planners[name]) == pooled)


def chosen_planners(names: Sequence[str] | None, known: Registry) -> tuple[str, ...]:
    """Names of planners, those that failed included, each once; None: all.

    Raises:
        InputError: there is none of a name.
    """
    registered = [*known.planners(), *sorted(known.missing("planners"))]
    for name in names or ():
        if name not in registered:
            raise unknown_name("--planner", "planner", name, known.planners())
    return tuple(registered if names is None else dict.fromkeys(names))


@frozen
class Task:
    """One problem on which plans are made and priced.

    Attributes:
        source: the problem as it was given.
        problem: self-contained.
        known: offers what it names, and planners.
        bound: no plan of the problem is faster, seconds; None: it has no plan.
        seed: of planners that draw random numbers.
        evaluations: plans that a planner which tries plans out may price.
        time_limit: seconds for each search.
        evaluate: prices the plan of a problem and decisions (`nest.api.evaluate`).
        instance: the problem in numbers.
    """

    source: Source | Problem
    problem: Problem
    known: Registry
    bound: float | None
    seed: int
    evaluations: int
    time_limit: float | None
    evaluate: Callable[..., PlanDocument]
    instance: Instance = field(init=False)

    @instance.default
    def _formulated(self) -> Instance:
        return build_instance(self.problem, self.known)

    @property
    def by_levels(self) -> str | None:
        """That plans are decided by levels though the network is no hierarchy; None: it is one."""
        if by_levels_notice(self.problem.cluster, self.known) is not None:
            return "The network is no hierarchy and large: all plans, nest's too, are decided by levels."
        if self.instance.network is None:
            return None
        return "The network is no hierarchy: nest's plan is placed on it, the other planners decide by levels."

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the cluster's pools that have candidates; none: it has one kind of device."""
        if self.instance.pools is None:
            return ()
        return tuple(dict.fromkeys(each.pool for each in self.instance.candidates if each.pool is not None))

    def made_by(self, name: str, kind: str, item: str, make: Callable[[], Entry]) -> Entry:
        """What `make` returns; where `item` of a plug-in, of `kind`, fails at it, an entry that says so."""
        reason = "failed and is disabled; `nest plugins doctor` says more"
        if not kind or item not in self.known.missing(kind):
            try:
                return make()
            except PluginError as error:
                if (error.kind, error.name) != (kind, item):
                    raise
                self.known.disable(error)
                reason = error.reason
        return Entry(name, KINDS[kind].phrase, None, (f"The {KINDS[kind].phrase} {item!r} {reason}.",))

    def alone(self, pool: str) -> Entry:
        """The fastest plan on one pool, without the others."""
        from nest.solve.solver import solve

        assert self.instance.pools is not None
        name, summary = f"{pool} alone", f"the exact search on pool {pool} by itself"
        by_itself = self.instance.alone(self.instance.pools.index(pool))
        assert by_itself is not None
        instance, candidates = by_itself
        result = solve(instance, self.time_limit)
        if result.solution is None:
            return Entry(name, summary, None, (result.diagnosis or "It finds no plan.",))
        stages = tuple(evolve(each, candidate=candidates[each.candidate]) for each in result.solution.stages)
        solution = evolve(result.solution, stages=stages)
        return Entry(name, summary, self._document(self.instance, solution, self.problem, within=True))

    def planned(self, name: str) -> Entry:
        """What a registered planner decides."""
        from nest.solve.solver import solve

        def search(instance: Instance) -> Result:
            return solve(instance, self.time_limit)

        chosen = self.known.planners()[name]
        if self.instance.pools is not None and not takes_pools(chosen):
            return Entry(name, chosen.summary, None, ("It plans clusters of one kind of device.",))
        context = planner_context(
            self.problem, self.instance, self.known, search, seed=self.seed, evaluations=self.evaluations
        )
        proposal = chosen.plan(self.instance, context)
        if proposal.solution is None:
            return Entry(name, chosen.summary, None, proposal.remarks or ("It finds no plan.",))
        seen = assessed(self.instance, proposal.solution)
        if seen.priced is None:
            reasons = tuple(f"It is no plan of the problem: {fault}." for fault in seen.faults)
            return Entry(name, chosen.summary, None, reasons, proposal.remarks)
        plan = self._document(self.instance, proposal.solution, self.problem, within=True)
        return Entry(name, chosen.summary, plan, (), proposal.remarks, seen.missing, seen.refutes)

    def given(self, name: str, summary: str, plan: PlanDocument, remarks: tuple[str, ...] = ()) -> Entry:
        """The decisions of a plan that somebody else made, on this problem."""
        if plan.status == "infeasible":
            return Entry(name, summary, None, ("It is no plan: its problem has none.",), remarks)
        try:
            solution = solution_of(self.instance, plan)
            structure_faults = structure_violations(self.instance, solution)
            outside = structure_faults or permission_violations(self.instance, solution)
        except InputError as error:
            structure_faults = outside = [str(error).rstrip(".")]
        reasons = tuple(f"{fault[:1].upper()}{fault[1:]}." for fault in outside)
        instance, problem = self.instance, self.problem
        if structure_faults:
            try:
                problem, instance, solution = on_other_problem(self.problem, plan, self.known)
            except InputError as error:
                return Entry(name, summary, None, (str(error),), remarks)
        seen = Assessment((), price(instance, solution))
        made = self._document(instance, solution, problem, within=not outside)
        return Entry(name, summary, made, reasons, remarks, seen.missing, seen.refutes)

    def flags(self, file: Path, framework: str, options: LaunchOptions) -> Entry:
        """What a file of a framework decides, on this problem."""
        from nest.formulate.from_flags import KEPT, read_flags, start

        reading, summary = read_flags(file, framework, options, self.known), f"a file of {framework}"
        remarks = reading.notes
        try:
            started = start(file, framework, self.source, keep=KEPT, reading=reading, plugins=self.known)
            remarks = started.notes
            plan = self.evaluate(started.problem, plugins=self.known)
            entry = self.given(str(file), summary, plan, remarks)
            if entry.plan is not None and same_price(entry.plan, plan):
                return evolve(entry, plan=plan) if entry.reasons else entry
            instance, solution, _ = fixed_plan(started.problem, self.known)
        except InputError as error:
            return Entry(str(file), summary, None, (str(error),), remarks)
        reasons = (*entry.reasons, trains_otherwise(self.problem, started.problem))
        missing = Assessment((), price(instance, solution)).missing
        return Entry(str(file), summary, plan, reasons, remarks, missing, refutes=False)

    def _document(self, instance: Instance, solution: Solution, problem: Problem, *, within: bool) -> PlanDocument:
        """The plan, priced and checked.

        Raises:
            InternalError: the check finds otherwise.
        """
        priced = price(instance, solution)
        # What a search could have found states what no plan is faster than, so that `nest check` reads it as such.
        bound = min(self.bound or 0.0, priced.batch_time) if within else None
        made = document(
            instance,
            solution,
            priced,
            status="feasible",
            lower_bound=bound,
            problem=problem.to_dict(),
            plugins=contributors(problem, self.known, instance, solution),
        )
        report = check_plan(instance, made)
        if not report.ok:
            raise InternalError(
                f"a plan to compare with does not hold: {report.disagreements[0]} "
                "This is a bug in nest; please report it with the problem file."
            )
        return made
