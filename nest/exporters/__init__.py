"""Built-in exporters: one a file."""

from nest.exporters.megatron import bridge, exporter
from nest.hooks.protocols import Exporter
from nest.hooks.spec import hook


@hook
def nest_exporters() -> list[Exporter]:
    """Files of the frameworks people train with, and of the tools that place and look at plans."""
    return [exporter.exporter, bridge.exporter]
