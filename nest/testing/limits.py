"""Limits of exporters: what `nest.deployment.Limits` promises, and that plans within them are exported."""

from copy import deepcopy

from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.hooks.protocols import Exporter
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES, parse
from nest.spec.problem import RANK_ORDERS, ZERO_STAGES
from nest.spec.training import OFFLOADABLE
from nest.testing.finding import Problems


def unsound_limits(exporter: Exporter, plan: PlanDocument) -> Problems:
    """What is wrong with the limits for the problem of a plan."""
    limits = limits_for(exporter, plan)
    if limits is None:
        return
    if not isinstance(limits, Limits):
        yield f"`limits` returned {type(limits).__name__}; it must be nest.deployment.Limits"
        return
    if limits_for(exporter, plan) != limits:
        yield "asked twice for one problem, it has different limits"
    for name, found, known in (
        ("zero", limits.zero, ZERO_STAGES),
        ("rank_orders", limits.rank_orders or (), RANK_ORDERS),
        ("offload", limits.offload, OFFLOADABLE),
    ):
        unknown = [each for each in found if each not in known]
        if unknown:
            yield f"{name} has {unknown[0]!r}; there is only {', '.join(map(str, known))}"
    for name in ("strategies", "schedules", "zero", "recompute", "rank_orders"):
        if getattr(limits, name) == () and name != "strategies":
            yield f"{name} is empty, so that it can run no plan"
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


def refused_within_limits(exporter: Exporter, plan: PlanDocument) -> Problems:
    """Whether a feasible plan that is within the limits is refused all the same."""
    limits = limits_for(exporter, plan) if plan.stages else None
    if not isinstance(limits, Limits) or violations(plan, limits, exporter.name):
        return
    try:
        exporter.export(deepcopy(plan))
    except InputError as error:
        yield f"it refuses a plan that is within its limits, so that `search.target` may find such plans: {error}"


def limits_for(exporter: Exporter, plan: PlanDocument) -> object:
    """The limits for the problem of a plan; None: it has none, or refuses the problem."""
    if not hasattr(exporter, "limits"):
        return None
    try:
        found: object = exporter.limits(structure(plan.problem, Problem))
    except InputError:
        return None
    return found
