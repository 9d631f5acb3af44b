"""Built-in exporters: one a file."""

from nest.hooks.protocols import Exporter
from nest.hooks.spec import hook


@hook
def nest_exporters() -> list[Exporter]:
    """Files of the frameworks people train with, and of the tools that place and look at plans."""
    from nest.exporters import megatron
    from nest.exporters.accelerate import Accelerate
    from nest.exporters.deepspeed import DeepSpeed
    from nest.exporters.galvatron import Galvatron
    from nest.exporters.maxtext import MaxText
    from nest.exporters.pytorch import PyTorch
    from nest.exporters.torchtitan import Torchtitan

    return [megatron.exporter, Torchtitan(), DeepSpeed(), Accelerate(), MaxText(), Galvatron(), PyTorch()]
