"""DeepSpeed-Ulysses as a strategy of nest."""

from nest.hooks import hook
from nest.hooks.protocols import Strategy


@hook
def nest_strategies() -> list[Strategy]:
    """Sequence parallelism by all-to-all exchanges over attention heads."""
    from nest_ulysses.strategy import Ulysses

    return [Ulysses()]
