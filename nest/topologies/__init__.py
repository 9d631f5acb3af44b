"""Built-in topology importers."""

from nest.hooks.protocols import TopologyImporter
from nest.hooks.spec import hook


@hook
def nest_topology_importers() -> list[TopologyImporter]:
    """Clusters of the catalogue, well-known networks by their parameters, graphs, measured matrices, files of tools."""
    from nest.topologies.astra_sim import AstraSimImporter
    from nest.topologies.catalogue import CatalogueImporter
    from nest.topologies.generators import importers as generators
    from nest.topologies.graphs import NodeLinkImporter, gml, graphml
    from nest.topologies.htsim import HtsimImporter
    from nest.topologies.hwloc import HwlocImporter
    from nest.topologies.ibnetdiscover import IbnetdiscoverImporter
    from nest.topologies.infragraph import InfragraphImporter
    from nest.topologies.kubernetes import KubernetesImporter
    from nest.topologies.nccl_xml import NcclXmlImporter
    from nest.topologies.netq import NetqDomainsImporter, NetqImporter
    from nest.topologies.ns3 import Ns3Importer
    from nest.topologies.nvidia_smi import NvidiaSmiImporter
    from nest.topologies.rocm_smi import RocmSmiImporter
    from nest.topologies.slurm_files import SlurmConfImporter, SlurmYamlImporter
    from nest.topologies.slurm_nodes import SlurmNodesImporter
    from nest.topologies.topograph import TopographInstancesImporter, TopographModelImporter

    return [
        CatalogueImporter(),
        *generators,
        NodeLinkImporter(),
        graphml,
        NvidiaSmiImporter(),
        RocmSmiImporter(),
        NcclXmlImporter(),
        HwlocImporter(),
        SlurmConfImporter(),
        SlurmNodesImporter(),
        gml,
        AstraSimImporter(),
        Ns3Importer(),
        HtsimImporter(),
        TopographModelImporter(),
        TopographInstancesImporter(),
        KubernetesImporter(),
        IbnetdiscoverImporter(),
        NetqImporter(),
        NetqDomainsImporter(),
        InfragraphImporter(),
        SlurmYamlImporter(),
    ]
