"""In-network reduction as a collective model of nest."""

from nest.hooks import hook
from nest.hooks.protocols import CollectiveModel


@hook
def nest_collective_models() -> list[CollectiveModel]:
    """The default collectives, and reductions inside switches where they are faster."""
    from nest_sharp.model import Sharp

    return [Sharp()]
