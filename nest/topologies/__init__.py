"""Built-in topology importers: one a file."""

from nest.hooks.protocols import TopologyImporter
from nest.hooks.spec import hook


@hook
def nest_topology_importers() -> list[TopologyImporter]:
    """Clusters of the catalogue, well-known networks by their parameters, graphs, measured matrices, files of tools."""
    from nest.topologies.astra_sim import AstraSimImporter
    from nest.topologies.catalogue import CatalogueImporter
    from nest.topologies.dragonfly import importer as dragonfly
    from nest.topologies.fat_tree import importer as fat_tree
    from nest.topologies.graphs import NodeLinkImporter, gml, graphml
    from nest.topologies.grids import mesh, torus
    from nest.topologies.htsim import HtsimImporter
    from nest.topologies.ibnetdiscover import IbnetdiscoverImporter
    from nest.topologies.infragraph import InfragraphImporter
    from nest.topologies.kubernetes import KubernetesImporter
    from nest.topologies.matrix import importer as matrix
    from nest.topologies.nccl_xml import NcclXmlImporter
    from nest.topologies.netq import NetqDomainsImporter, NetqImporter
    from nest.topologies.ns3 import Ns3Importer
    from nest.topologies.nvidia_smi import NvidiaSmiImporter
    from nest.topologies.rail_optimised import importer as rail_optimised
    from nest.topologies.slurm_conf import SlurmConfImporter
    from nest.topologies.slurm_yaml import SlurmYamlImporter
    from nest.topologies.topograph import TopographInstancesImporter, TopographModelImporter

    return [
        CatalogueImporter(),
        torus,
        mesh,
        dragonfly,
        rail_optimised,
        fat_tree,
        matrix,
        NodeLinkImporter(),
        graphml,
        NvidiaSmiImporter(),
        NcclXmlImporter(),
        SlurmConfImporter(),
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
