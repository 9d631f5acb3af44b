"""Comparison of the best plan with other planners' plans: same cost model, same pricing code."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve, field, frozen

from nest.catalogue import unknown_name
from nest.deployment import LaunchOptions
from nest.errors import InputError, InternalError
from nest.hooks.planning import Assessment, Proposal, assessed, widened
from nest.hooks.protocols import Planner
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result, Solution
from nest.public.changes import (
    KINDS,
    PluginError,
    TimedOut,
    attribute,
    build_instance,
    by_levels_notice,
    call_limit,
    changes_of,
    contributors,
    document,
    fixed_plan,
    on_other_problem,
    permission_violations,
    structure_violations,
    takes_pools,
)
from nest.public.changes import check as check_plan
from nest.public.planning import Source, solution_of
from nest.public.planning import evaluate as price
from nest.public.verbs import Guarded
from nest.spec import ClusterSpec, PlanDocument, Problem
from nest_whatif.comparison import Comparison, Entry
from nest_whatif.limited import call_within
from nest_whatif.planner_context import planner_context
from nest_whatif.runs_of_today import same_price, trains_otherwise


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
    """Compare the best plan with those of other planners, plan files and launch files.

    Args:
        ours: result of `nest solve`.
        task: its problem.
        pools: names of pools, each planned without the others.
        names: registered planners, with options if any (`mcmc:seed=3`).
        plans: with their files; their decisions are priced on the problem.
        flags: launch files by name of the plan reader, whose decisions are priced on the problem.
        step: called with the plan in progress, the number done and the total.
        seconds: duration of the search; None: untimed.

    Raises:
        InputError: a file cannot be used.
    """
    makers = [(f"{pool} alone", "", "", partial(task.alone, pool)) for pool in pools]
    makers += [(name, "planners", named(name, task.known)[0], partial(task.planned, name)) for name in names]
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
    """Planners for such a cluster, of one or several kinds of device, and those that failed."""
    pooled, planners = bool(cluster.pools), known.planners()
    return tuple(name for name in names if name not in planners or takes_pools(planners[name]) == pooled)


def check_limits(evaluations: int, seconds: float | None) -> None:
    """Validate the limits of each planner.

    Raises:
        InputError: invalid.
    """
    if evaluations < 1:
        raise InputError(f"the number of evaluations is {evaluations}; it must be at least 1.")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InputError(f"the time limit of planners is {seconds}; it must be a positive number of seconds.")


def chosen_planners(names: Sequence[str] | None, known: Registry) -> tuple[str, ...]:
    """Distinct planners as written, failed ones included; None: all.

    Raises:
        InputError: there is none of a name, or one takes no such options.
    """
    registered = [*known.planners(), *sorted(known.missing("planners"))]
    for name in names or ():
        own, options = named(name, known)
        if own not in registered:
            raise unknown_name("--planner", "planner", own, known.planners())
        if own in known.planners():
            _with_options(known.planners()[own], own, options)
    return tuple(registered if names is None else dict.fromkeys(names))


def named(written: str, known: Registry) -> tuple[str, dict[str, str]]:
    """Split a planner written as `NAME` or `NAME:OPTION=VALUE,...` into name and options.

    Raises:
        InputError: an option has no value, or two.
    """
    if written in known.planners():
        return written, {}
    name, _, listed = written.partition(":")
    options: dict[str, str] = {}
    for each in listed.split(",") if listed else ():
        option, equals, value = each.partition("=")
        if not option or not equals or option in options:
            raise InputError(f"--planner {written}: give each option once, as in `{name}:option=value,other=value`.")
        options[option] = value
    return name, options


def _with_options(planner: Planner, name: str, options: Mapping[str, str]) -> Planner:
    if not options:
        return planner
    configured: Callable[[Mapping[str, str]], Planner] | None = getattr(planner, "with_options", None)
    if configured is None:
        raise InputError(f"planner {name!r} takes no options.")
    return configured(options)


@frozen
class Task:
    """A problem for which plans are made and priced.

    Attributes:
        source: the problem as given.
        problem: self-contained.
        known: registry.
        bound: lower bound in seconds; None: there is no plan.
        seed: of planners that draw random numbers.
        evaluations: plans that a planner may price.
        time_limit: seconds for each search.
        evaluate: prices the plan of a problem and decisions (`nest.api.evaluate`).
        planner_limit: seconds for each planner; None: plug-ins have `NEST_PLUGIN_SECONDS`, built-ins no limit.
    """

    source: Source | Problem
    problem: Problem
    known: Registry
    bound: float | None
    seed: int
    evaluations: int
    time_limit: float | None
    evaluate: Callable[..., PlanDocument]
    planner_limit: float | None = None
    instance: Instance = field(init=False)

    @instance.default
    def _formulated(self) -> Instance:
        return build_instance(self.problem, self.known)

    @property
    def by_levels(self) -> str | None:
        """Note that plans are decided by levels on a non-hierarchical network; None: no note."""
        if by_levels_notice(self.problem.cluster, self.known) is not None:
            return "The network is large and no hierarchy: all planners, nest too, use its levels."
        if self.instance.network is None:
            return None
        return "The network is no hierarchy: nest places its plan on real paths; the other planners use levels."

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools with candidates; empty: one kind of device."""
        if self.instance.pools is None:
            return ()
        return tuple(dict.fromkeys(each.pool for each in self.instance.candidates if each.pool is not None))

    def made_by(self, name: str, kind: str, item: str, make: Callable[[], Entry]) -> Entry:
        """Call `make`; if `item`, a plug-in's object of `kind`, fails, return an entry that says so."""
        reason = "failed and is disabled; run `nest plugins doctor`"
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
        """Fastest plan on one pool alone."""
        from nest.public.planning import solve

        assert self.instance.pools is not None
        name, summary = f"{pool} alone", f"exact search on pool {pool} alone"
        by_itself = self.instance.alone(self.instance.pools.index(pool))
        assert by_itself is not None
        instance, candidates = by_itself
        result = solve(instance, self.time_limit)
        if result.solution is None:
            return Entry(name, summary, None, (result.diagnosis or "It finds no plan.",))
        stages = tuple(evolve(each, candidate=candidates[each.candidate]) for each in result.solution.stages)
        solution = evolve(result.solution, stages=stages)
        return Entry(name, summary, self._document(self.instance, solution, self.problem, self.bound))

    def planned(self, written: str) -> Entry:
        """Plan of a registered planner, written as in `named`."""
        from nest.public.planning import solve

        def search(instance: Instance) -> Result:
            return solve(instance, self.time_limit)

        name, options = named(written, self.known)
        chosen = _with_options(self.known.planners()[name], name, options)
        if self.instance.pools is not None and not takes_pools(chosen):
            return Entry(written, chosen.summary, None, ("It supports one device type only.",))
        context = planner_context(
            self.problem, self.instance, self.known, search, seed=self.seed, evaluations=self.evaluations
        )
        # A plug-in's limit is for each planner by itself: a slow one takes no time from its others.
        seconds = self.planner_limit or (call_limit() if isinstance(chosen, Guarded) else None)
        try:
            proposal = call_within(seconds, partial(chosen.plan, self.instance, context))
        except TimedOut:
            if self.planner_limit is None:
                attribute(chosen, f"timed out after {seconds:g} s in plan")
            return Entry(written, chosen.summary, None, (f"It timed out after {seconds:g} s.",))
        return evolve(self._proposed(written, chosen.summary, proposal), bound=proposal.bound)

    def _proposed(self, name: str, summary: str, proposal: Proposal) -> Entry:
        """Plan of a planner; if the problem does not allow it, priced as a plan of a wider one."""
        solution, remarks = proposal.solution, proposal.remarks
        if proposal.decisions is not None:
            try:
                plan = self.evaluate(self.problem, fix=proposal.decisions, plugins=self.known)
            except InputError as error:
                return Entry(name, summary, None, (str(error),), remarks)
            return self.given(name, summary, plan, remarks)
        if solution is None:
            return Entry(name, summary, None, remarks or ("It finds no plan.",))
        seen = assessed(self.instance, solution)
        if seen.priced is not None:
            plan = self._document(self.instance, solution, self.problem, self.bound)
            return Entry(name, summary, plan, (), remarks, missing=seen.missing, refutes=seen.refutes)
        wider = widened(self.instance, solution, self.known.schedules())
        if structure_violations(wider, solution):
            reasons = tuple(f"Not a plan of this problem: {fault}." for fault in seen.faults)
            return Entry(name, summary, None, reasons, remarks)
        priced, written = price(wider, solution), self.problem.to_dict()
        plan = document(wider, solution, priced, status="feasible", lower_bound=None, problem=written)
        return self.given(name, summary, plan, remarks)

    def given(self, name: str, summary: str, plan: PlanDocument, remarks: tuple[str, ...] = ()) -> Entry:
        """Price the decisions of someone else's plan on this problem."""
        if plan.status == "infeasible":
            return Entry(name, summary, None, ("It has no plan: its problem is infeasible.",), remarks)
        try:
            solution = solution_of(self.instance, plan)
            structure_faults = structure_violations(self.instance, solution)
            outside = structure_faults or permission_violations(self.instance, solution)
        except InputError as error:
            structure_faults = outside = [str(error).rstrip(".")]
        reasons = tuple(f"{fault[:1].upper()}{fault[1:]}." for fault in outside)
        instance, problem, bound = self.instance, self.problem, self.bound
        if outside:
            bound = 0.0  # Ours is none of the wider problem that allows the plan.
            try:
                problem, instance, solution = on_other_problem(self.problem, plan, self.known)
            except InputError as error:
                if structure_faults:
                    return Entry(name, summary, None, (str(error),), remarks)
        seen = Assessment((), price(instance, solution))
        made = self._document(instance, solution, problem, bound)
        return Entry(name, summary, made, reasons, remarks, missing=seen.missing, refutes=seen.refutes)

    def flags(self, file: Path, framework: str, options: LaunchOptions) -> Entry:
        """Price the decisions of a launch file on this problem."""
        from nest.public.changes import KEPT
        from nest.public.planning import read_flags, start

        reading, summary = read_flags(file, framework, options, self.known), f"a file of {framework}"
        remarks = reading.notes
        try:
            started = start(file, framework, self.source, keep=KEPT, reading=reading, plugins=self.known)
            remarks = started.notes
            plan = self.evaluate(started.problem, plugins=self.known)
            gains = changes_of(started.problem, plan, framework, self.known, started.devices, file).gaining()
            remarks = (*remarks, *([gains[0].sentence(plan)] if gains else ()))
            entry = self.given(str(file), summary, plan, remarks)
            if entry.plan is not None and same_price(entry.plan, plan):
                return evolve(entry, plan=plan) if entry.reasons else entry
            instance, solution, _ = fixed_plan(started.problem, self.known)
        except InputError as error:
            return Entry(str(file), summary, None, (str(error),), remarks)
        reasons = (*entry.reasons, trains_otherwise(self.problem, started.problem))
        missing = Assessment((), price(instance, solution)).missing
        return Entry(str(file), summary, plan, reasons, remarks, missing=missing, refutes=False)

    def _document(self, instance: Instance, solution: Solution, problem: Problem, bound: float | None) -> PlanDocument:
        """Price and check a plan of a problem with a lower bound of `bound` seconds.

        Raises:
            InternalError: the check fails.
        """
        priced = price(instance, solution)
        made = document(
            instance,
            solution,
            priced,
            status="feasible",
            lower_bound=min(bound or 0.0, priced.batch_time),  # With one, `nest check` reads it as found by a search.
            problem=problem.to_dict(),
            plugins=contributors(problem, self.known, instance, solution),
        )
        report = check_plan(instance, made)
        if not report.ok:
            raise InternalError(
                f"a plan to compare fails its check: {report.disagreements[0]} This is a bug in nest; please report "
                "it with the problem file."
            )
        return made
