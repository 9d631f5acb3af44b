"""Built-in exporters: one a file."""

from nest.hooks.protocols import Exporter
from nest.hooks.spec import hook


@hook
def nest_exporters() -> list[Exporter]:
    """Files of the frameworks people train with, and of the tools that place and look at plans.

    Where a plan has no target, ranks are counted as the framework of the first exporter with `rank_order` does.
    """
    from nest.exporters.accelerate import Accelerate
    from nest.exporters.astra_sim import AstraSimExporter
    from nest.exporters.deepspeed import DeepSpeed
    from nest.exporters.dot import DotExporter
    from nest.exporters.galvatron import Galvatron
    from nest.exporters.maxtext import MaxText
    from nest.exporters.megatron import bridge, flags
    from nest.exporters.mpi import MpiExporter
    from nest.exporters.pytorch import PyTorch
    from nest.exporters.ranks import RanksExporter
    from nest.exporters.slurm import SlurmExporter
    from nest.exporters.torchrun import TorchrunExporter
    from nest.exporters.torchtitan import Torchtitan

    frameworks: list[Exporter] = [
        flags.exporter,
        bridge.exporter,
        Torchtitan(),
        DeepSpeed(),
        Accelerate(),
        MaxText(),
        Galvatron(),
        PyTorch(),
    ]
    placements: list[Exporter] = [RanksExporter(), SlurmExporter(), TorchrunExporter(), MpiExporter()]
    return [*frameworks, *placements, DotExporter(), AstraSimExporter()]
