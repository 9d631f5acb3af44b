"""Keywords that a member of a plug-in's object may take or lack: what newer versions of nest tell it besides."""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

MEMBERS = "members"

OPTIONAL = {("collective_models", "time"): (MEMBERS,), ("collective_models", "times"): (MEMBERS,)}
"""By kind and member. Pluggy treats hooks alike: who implements one names those of its arguments that matter."""


def fitted(method: Callable[..., Any], optional: Sequence[str]) -> Callable[..., Any]:
    """`method`, to be called with all of the `optional` keywords: those that it does not take are left out."""
    lacking = [name for name in optional if not takes(method, name)]
    if not lacking:
        return method

    def without(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **{name: value for name, value in named.items() if name not in lacking})

    return without


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether `method` can be called with the keyword; one whose parameters cannot be read, as of C, is not."""
    try:
        parameters = signature(method).parameters
    except (TypeError, ValueError):
        return False
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return True
    return name in parameters and parameters[name].kind is not Parameter.POSITIONAL_ONLY
