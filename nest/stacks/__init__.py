"""Built-in software stacks: those of the catalogue (`nest/library/stacks`)."""

from nest.hooks.protocols import Stack
from nest.hooks.spec import hook


@hook
def nest_stacks() -> list[Stack]:
    """What frameworks do by themselves, each figure with its source."""
    from nest.catalogue import stacks

    return list(stacks().values())
