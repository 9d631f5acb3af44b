"""Built-in exporters: one a file."""

from nest.exporters import megatron
from nest.exporters.astra_sim import AstraSimExporter
from nest.exporters.dot import DotExporter
from nest.exporters.mpi import MpiExporter
from nest.exporters.ranks import RanksExporter
from nest.exporters.slurm import SlurmExporter
from nest.exporters.torchrun import TorchrunExporter
from nest.hooks.protocols import Exporter
from nest.hooks.spec import hook


@hook
def nest_exporters() -> list[Exporter]:
    """Files of the frameworks people train with, and of the tools that place and look at plans.

    Ranks are counted as the first that says how its framework counts them does, unless a plan has a target.
    """
    return [
        megatron.exporter,
        RanksExporter(),
        SlurmExporter(),
        TorchrunExporter(),
        MpiExporter(),
        DotExporter(),
        AstraSimExporter(),
    ]
