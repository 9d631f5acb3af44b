"""Built-in models of what operators take, and of what they make a layer take."""

from nest.hooks.protocols import CostModel, LayerTimes
from nest.hooks.spec import hook


@hook
def nest_cost_models() -> list[CostModel]:
    """The roofline."""
    from nest.costs.roofline import Roofline

    return [Roofline()]


@hook
def nest_layer_times() -> list[LayerTimes]:
    """A schedule on the engines of the device, which is the default; and one operator after the other."""
    from nest.costs.layer_times import Scheduled, Sequential

    return [Scheduled(), Sequential()]
