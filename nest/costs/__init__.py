"""Built-in cost models: one a file."""

from nest.hooks.protocols import CostModel
from nest.hooks.spec import hook


@hook
def nest_cost_models() -> list[CostModel]:
    """The roofline."""
    from nest.costs.roofline import Roofline

    return [Roofline()]
