"""All checks for an object of any kind; those of software stacks."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from nest.hooks import protocols
from nest.hooks.protocols import Stack
from nest.public.checks import CHECKS as CHECKS_OF_RESULTS
from nest.public.checks import KINDS, TimedOut, Worker, instance_of
from nest.spec import StackDefaults
from nest_testing.costs import check_collective_model, check_cost_model, check_layer_times
from nest_testing.engine import check_engine
from nest_testing.exporter import check_exporter
from nest_testing.finding import Finding, Problems, Tally, environment_restored
from nest_testing.importers import check_model_importer, check_topology_importer
from nest_testing.plan_reader import check_plan_reader
from nest_testing.planner import check_planner
from nest_testing.public_names import check_imports
from nest_testing.schedule import check_schedule
from nest_testing.strategy import check_strategy


def check_stack(stack: Stack) -> tuple[Finding, ...]:
    """Check that it states its name and settings, and the source of each."""
    tally = Tally()
    tally.run("one line says what it is", "its description", _no_description, stack)
    tally.run("its targets, sources and schedules are names", "its lists", _unnamed, stack)
    if tally.run("it fills in keys of training", "its training", _no_defaults, stack):
        tally.run("each statement has a source that begins with its key", "its sources", _unsourced, stack)
    return tally.findings()


def _no_description(stack: Stack) -> Problems:
    if not stack.description or "\n" in stack.description:
        yield f"its description is {stack.description!r:.60}"


def _unnamed(stack: Stack) -> None:
    for member in ("targets", "sources", "pipeline_overlap"):
        CHECKS_OF_RESULTS["stacks", member](getattr(stack, member, ()))


def _no_defaults(stack: Stack) -> None:
    instance_of(StackDefaults, "nest.spec.StackDefaults")(stack.training)


def _unsourced(stack: Stack) -> Problems:
    keys = [*stack.training.filled, *getattr(stack, "notes", {})]
    keys += ["pipeline_overlap"] if getattr(stack, "pipeline_overlap", ()) else []
    sourced = {source.partition(":")[0] for source in getattr(stack, "sources", ())}
    for key in keys:
        if key not in sourced:
            yield f"none of its sources begins with `{key}:`"


CHECKS: dict[str, Callable[..., tuple[Finding, ...]]] = {
    "strategies": check_strategy,
    "model_importers": check_model_importer,
    "topology_importers": check_topology_importer,
    "cost_models": check_cost_model,
    "collective_models": check_collective_model,
    "layer_times": check_layer_times,
    "schedules": check_schedule,
    "planners": check_planner,
    "exporters": check_exporter,
    "plan_readers": check_plan_reader,
    "stacks": check_stack,
    "engines": check_engine,
}
"""The checks of each kind of object; hooks are `nest_<kind>`."""


IMPORTERS = ["model_importers", "topology_importers"]
"""Kinds whose objects have the same names; `load` of models also takes a training."""


def check(item: Any, kind: str | None = None, **options: Any) -> tuple[Finding, ...]:
    """Run every check of an object.

    Args:
        item: from the list of a hook.
        kind: `strategies`, `schedules`, ...: the hook's name after `nest_`; None: recognised from the object's methods.
        options: of the check of its kind, such as `models` of `check_strategy`.

    Raises:
        ValueError: `kind` is unknown, or None and the object fits several kinds or none.
    """
    chosen = kind or kind_of(item)
    if chosen not in CHECKS:
        raise ValueError(f"there is no kind {chosen!r}; kinds are {', '.join(CHECKS)}")
    return (*CHECKS[chosen](item, **options), *check_imports(item))


def check_within(seconds: float, item: Any, kind: str) -> tuple[Finding, ...]:
    """Run `check`, at most `seconds`: a slower object is reported."""
    try:
        with environment_restored():  # An object that never returns may be in another one.
            result, raised, _ = Worker().call(lambda: check(item, kind), seconds)
    except TimedOut:
        text = f"the checks timed out after {seconds:g} seconds; one of its methods is slow or never returns"
    else:
        if raised is None:
            return result  # type: ignore[no-any-return]
        text = f"the checks ended as it raised {raised.text}"  # An interrupt, say, that the object raises itself.
    return (Finding("it finishes in time", False, text),)


def kind_of(item: Any) -> str:
    """Return the kind whose protocol an object fulfils.

    Importers of models and topologies have the same names; the arguments of `load` distinguish them.

    Raises:
        ValueError: there is none, or there are several.
    """
    fitting = [kind for kind, each in KINDS.items() if isinstance(item, getattr(protocols, each.class_name))]
    if fitting == IMPORTERS:
        needed = [each for each in signature(item.load).parameters.values() if each.default is each.empty]
        return fitting[len(needed) < 2]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(f"{type(item).__name__} may be one of {', '.join(fitting)}; say which by `kind`")
    raise ValueError(f"{type(item).__name__} offers what no kind asks for: {', '.join(KINDS)}")


def assert_conforms(item: Any, kind: str | None = None, **options: Any) -> None:
    """Fail, in a test, with every check that an object does not pass; arguments as for `check`.

    Raises:
        AssertionError: some checks failed; the text has a line for each.
    """
    failed = [finding for finding in check(item, kind, **options) if not finding.passed]
    if failed:
        lines = [f"  {finding.check}: {finding.told}" for finding in failed]
        raise AssertionError("\n".join([f"{item.name!r} does not conform:", *lines]))
