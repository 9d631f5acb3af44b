"""Software stacks: what `nest.hooks.protocols.Stack` promises."""

from typing import Any

from nest.hooks.protocols import Stack
from nest.spec import StackDefaults
from nest.testing.finding import Finding, Problems, Tally


def check_stack(stack: Stack) -> tuple[Finding, ...]:
    """Whether it says what it is and fills in, and where each of its statements was read."""
    tally = Tally()
    tally.run("one line says what it is", "its description", _no_description, stack)
    if tally.run("it fills in keys of training", "its training", _no_defaults, stack):
        tally.run("each statement has a source that begins with its key", "its sources", _unsourced, stack)
    return tally.findings()


def _no_description(stack: Stack) -> Problems:
    if not stack.description or "\n" in stack.description:
        yield f"its description is {stack.description!r:.60}"


def _no_defaults(stack: Any) -> Problems:
    if not isinstance(stack.training, StackDefaults):
        yield f"{stack.training!r:.60} is no nest.spec.StackDefaults"


def _unsourced(stack: Stack) -> Problems:
    keys = [*stack.training.filled, *getattr(stack, "notes", {})]
    keys += ["pipeline_overlap"] if getattr(stack, "pipeline_overlap", ()) else []
    sourced = {source.partition(":")[0] for source in getattr(stack, "sources", ())}
    for key in keys:
        if key not in sourced:
            yield f"none of its sources begins with `{key}:`"
