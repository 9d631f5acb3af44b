"""Checks of exporters (`nest.hooks.protocols.Exporter`) and their limits (`nest.deployment.Limits`)."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from importlib.resources import files
from typing import Any

from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.hooks.protocols import Exporter
from nest.hooks.registry import registry
from nest.io import read_text, structure
from nest.public.checks import files_by_name, instance_of
from nest.spec import PlanDocument, Problem
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES, parse
from nest.spec.problem import RANK_ORDERS, ZERO_STAGES
from nest.spec.training import OFFLOADABLE
from nest_testing.finding import Finding, Problems, Tally, writes

SAMPLE_PLANS = (
    "plan.json",
    "infeasible.json",
    "dense.json",
    "experts.json",
    "uneven.json",
    "interleaved.json",
    "zero-3.json",
    "zero-1.json",
)
"""Plans shipped with the kit: the best one of a small model, an infeasible one, then plans that frameworks express in
different ways: most degrees of a dense model, experts, stages of different sizes, several chunks a stage, ZeRO 3, and
data parallelism alone."""


def sample_plans() -> tuple[PlanDocument, ...]:
    """Return the plans exporters are tried on."""
    folder = files("nest_testing").joinpath("data")
    return tuple(read_text(folder.joinpath(name).read_text("utf-8"), PlanDocument, name) for name in SAMPLE_PLANS)


def check_exporter(exporter: Exporter, *, plans: Sequence[PlanDocument] | None = None) -> tuple[Finding, ...]:
    """Export plans.

    An exporter may refuse a plan beyond its `limits` with an `InputError`; it must export at least one.

    Args:
        exporter: from `nest_exporters`.
        plans: to be exported; None: small ones of all kinds, and an infeasible one.
    """
    tally = Tally()
    exported: list[PlanDocument] = []
    for plan in sample_plans() if plans is None else plans:
        where = f"a plan that is {plan.status}"
        tally.run("it writes text under names that stay in a folder", where, _bad_files, exporter, plan, exported)
        tally.steady("it says the same every time", where, partial(_export_copy, exporter, plan), moved=True)
        tally.run("it writes no file itself", where, _written, exporter, plan)
        tally.run("it leaves the plan as it is", where, _changed_plan, exporter, plan)
        if hasattr(exporter, "limits"):
            tally.run("its limits are ones that a search can keep", where, _unsound_limits, exporter, plan)
            tally.run("it exports what is within its limits", where, _refused_within_limits, exporter, plan)
    tally.run("some plan is exported", "the plans", _nothing_exported, exported)
    return tally.findings()


def _export(exporter: Exporter, plan: PlanDocument) -> Any:
    try:
        return exporter.export(plan)
    except InputError:
        return None


def _export_copy(exporter: Exporter, plan: PlanDocument) -> Any:
    return _export(exporter, deepcopy(plan))


def _bad_files(exporter: Exporter, plan: PlanDocument, exported: list[PlanDocument]) -> Problems:
    answer = _export_copy(exporter, plan)
    if answer is None:
        return
    names = list(files_by_name(answer))
    if answer:
        exported.append(plan)
    for name in names:
        if name.endswith(("/", "\\")) or "\0" in name:
            yield f"{name!r} is not the name of a file in a folder of the user's choice"
    if len({name.lower() for name in names}) < len(names):
        yield "two names differ in upper and lower case only, which some file systems take for one"


def _written(exporter: Exporter, plan: PlanDocument) -> Problems:
    for path in writes(partial(_export_copy, exporter, plan)):
        yield f"it wrote to {path!r:.80}; `nest export` writes what `export` returns, all or nothing"


def _changed_plan(exporter: Exporter, plan: PlanDocument) -> Problems:
    given = deepcopy(plan)
    _export(exporter, given)
    if given != plan:
        yield "`export` changed the plan it was given"


def _nothing_exported(exported: Sequence[PlanDocument]) -> Problems:
    if not exported:
        yield "every one was refused or gave no file, so that nothing was looked at; give check_exporter plans it takes"


def _unsound_limits(exporter: Exporter, plan: PlanDocument) -> Problems:
    """Yield mistakes in the limits for the problem of a plan."""
    limits = _limits_for(exporter, plan)
    if limits is None:
        return
    instance_of(Limits, "nest.deployment.Limits")(limits)
    if _limits_for(exporter, plan) != limits:
        yield "asked twice for one problem, it has different limits"
    for name, names, known in (
        ("zero", limits.zero, ZERO_STAGES),
        ("rank_orders", limits.rank_orders or (), RANK_ORDERS),
        ("offload", limits.offload, OFFLOADABLE),
    ):
        unknown = [each for each in names if each not in known]
        if unknown:
            yield f"{name} has {unknown[0]!r}; there is only {', '.join(map(str, known))}"
    for name in ("schedules", "zero", "recompute", "rank_orders"):
        if getattr(limits, name) == ():
            yield f"{name} is empty, so that it can run no plan"
    modes = limits.recompute
    strange = [mode for pair in limits.partial_recompute for mode in pair if modes is not None and mode not in modes]
    if strange:
        yield f"partial_recompute has {strange[0]!r}, which recompute has not"
    yield from _constraints(limits)


def _constraints(limits: Limits) -> Problems:
    known = {*PLAN_NAMES, *STAGE_NAMES, *registry().strategies(), *(limits.strategies or ())}
    for text, reason in limits.constraints.items():
        try:
            constraint = parse(text)
        except InputError as error:
            yield str(error)
            continue
        unknown = sorted(constraint.names() - known)
        if unknown:
            yield f"constraint `{text}` reads {unknown[0]!r}, which is no name of constraints and not in `strategies`"
        if not reason.strip() or reason.rstrip().endswith("."):
            yield f"the reason of constraint `{text}` is {reason!r}; it is a clause that follows `but`, no sentence"


def _refused_within_limits(exporter: Exporter, plan: PlanDocument) -> Problems:
    limits = _limits_for(exporter, plan) if plan.stages else None
    if not isinstance(limits, Limits) or violations(plan, limits, exporter.name):
        return
    try:
        exporter.export(deepcopy(plan))
    except InputError as error:
        yield f"it refuses a plan that is within its limits, so that `search.target` may find such plans: {error}"


def _limits_for(exporter: Exporter, plan: PlanDocument) -> Any:
    if not hasattr(exporter, "limits"):
        return None
    try:
        return exporter.limits(structure(plan.problem, Problem))
    except InputError:
        return None
