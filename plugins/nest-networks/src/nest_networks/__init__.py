"""Clusters as files of schedulers, fabric managers, hosts and simulators describe them: topology importers of nest.

Belongs here: readers of formats, `nest topology`. Does not: the reduction to levels.
"""

from typing import TYPE_CHECKING, Any

from nest.hooks.spec import hook

if TYPE_CHECKING:  # `nest --help` shows a command of this package, and does without NumPy.
    from nest.hooks.protocols import TopologyImporter


@hook
def nest_topology_importers() -> "list[TopologyImporter]":
    """Graphs of networks, and files of tools."""
    from nest_networks.astra_sim import AstraSimImporter
    from nest_networks.graphs import NodeLinkImporter, gml, graphml
    from nest_networks.htsim import HtsimImporter
    from nest_networks.hwloc import HwlocImporter
    from nest_networks.ibnetdiscover import IbnetdiscoverImporter
    from nest_networks.infragraph import InfragraphImporter
    from nest_networks.kubernetes import KubernetesImporter
    from nest_networks.nccl_xml import NcclXmlImporter
    from nest_networks.netq import NetqDomainsImporter, NetqImporter
    from nest_networks.ns3 import Ns3Importer
    from nest_networks.nvidia_smi import NvidiaSmiImporter
    from nest_networks.rocm_smi import AmdSmiImporter, RocmSmiImporter
    from nest_networks.slurm_files import SlurmConfImporter, SlurmYamlImporter
    from nest_networks.slurm_nodes import SinfoImporter, SlurmJsonImporter, SlurmNodesImporter
    from nest_networks.topograph import AwsInstancesImporter, TopographInstancesImporter, TopographModelImporter

    return [
        NodeLinkImporter(),
        graphml,
        NvidiaSmiImporter(),
        RocmSmiImporter(),
        AmdSmiImporter(),
        NcclXmlImporter(),
        HwlocImporter(),
        SlurmConfImporter(),
        SlurmNodesImporter(),
        SinfoImporter(),
        SlurmJsonImporter(),
        gml,
        AstraSimImporter(),
        Ns3Importer(),
        HtsimImporter(),
        TopographModelImporter(),
        TopographInstancesImporter(),
        AwsInstancesImporter(),
        KubernetesImporter(),
        IbnetdiscoverImporter(),
        NetqImporter(),
        NetqDomainsImporter(),
        InfragraphImporter(),
        SlurmYamlImporter(),
    ]


@hook
def nest_commands(app: Any) -> None:
    """`nest topology`."""
    from nest_networks.topology_commands import register

    register(app)
