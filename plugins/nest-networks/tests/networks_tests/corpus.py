"""Sixty files in the forms of 28 tools, made up, with what each of them is, written by hand.

A truth is levels, innermost first, as fan-out and nominal GB/s of an accelerator (`8x450 4x50`); with `~` what a graph
reduces to, as reached; `graph N` of N accelerators; or `!` and why the file is refused. Then follow the device, the
accelerators of a host, the hosts where they are few, and what must be told.
"""

import json
from typing import Any, NamedTuple

from networks_tests.fabrics import FatTree, ibnetdiscover
from networks_tests.test_ibnetdiscover import slowed
from networks_tests.test_machines import H100, dump, lstopo
from networks_tests.test_matrices import LOG, MI300X, amd
from networks_tests.test_nvidia_smi import DGX_1, alike, table
from networks_tests.test_rocm_smi import printed

HOPPER = "NVIDIA-H100-80GB-HBM3"
GB200 = "NVIDIA-GB200"


class File(NamedTuple):
    """A file and what it is."""

    kind: str
    name: str
    content: Any
    truth: str
    device: str | None = None
    per_host: int | None = None
    hosts: str = ""
    told: str = ""


def nodes(*rows: tuple[str, dict[str, str]], gpus: int = 8, **more: Any) -> dict[str, Any]:
    """Nodes of Kubernetes by name and labels."""
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
    items = [
        {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status, **more.get(name, {})}
        for name, labels in rows
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def labelled(count: int, *keys: str, width: int = 2, **labels: str) -> list[tuple[str, dict[str, str]]]:
    """Hosts under switches: `width` under each of the first key, `width` times as many under each further one."""
    return [
        (f"n{at}", {**labels, **{key: f"p{at // width ** (tier + 1)}" for tier, key in enumerate(keys)}})
        for at in range(count)
    ]


def domains(key: str, count: int, **labels: str) -> list[tuple[str, dict[str, str]]]:
    return [(f"t{at:02}", {**labels, key: f"d{at // (count // 2)}"}) for at in range(count)]


PRODUCT = {"nvidia.com/gpu.product": HOPPER}
STAR = "5 1 4\n4\n" + "".join(f"4 {at} 400Gbps 0.0005ms 0\n" for at in range(4))
TIERS = (
    "Nodes 32\nTiers 2\nPodsize 32\n\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 8\nRadix_Up 2\nDownlink_Latency_ns "
    "1000\nSwitch_Latency_ns 300\nOversubscribed 4\n\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
    "Downlink_Latency_ns 500\nSwitch_Latency_ns 400\n"
)
EDGES = "".join(f'<edge source="g{at}" target="s"><data key="b">5e10</data></edge>' for at in range(4))
GRAPHML = (
    '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="b" for="edge" '
    'attr.name="bandwidth" attr.type="double"/><key id="k" for="node" attr.name="kind" attr.type="string"/><graph '
    'edgedefault="undirected"><node id="s"><data key="k">switch</data></node>'
    + "".join(f'<node id="g{at}"/>' for at in range(4))
    + f"{EDGES}</graph></graphml>"
)
GML = (
    'graph [ node [ id 9 label "s" kind "switch" ] '
    + "".join(
        f'node [ id {at} label "g{at}" ] edge [ source 9 target {at} bandwidth 50000000000.0 ] ' for at in range(4)
    )
    + "]"
)
NODE_LINK = {
    "nodes": [{"id": "s", "kind": "switch"}, *({"id": f"g{at}"} for at in range(4))],
    "edges": [{"source": "s", "target": f"g{at}", "bandwidth": 5e10} for at in range(4)],
}
DOWN = {"spec": {"unschedulable": True}}
FAT = FatTree(1, 2, hosts=3, rails=8, spines=4, uplinks=1, cores=1, core_links=1)
THIN = FatTree(1, 2, hosts=3, rails=8, spines=3, uplinks=1, cores=1, core_links=1)
BEHIND = [["X" if one == two else "NV18" if 5 not in (one, two) else "SYS" for two in range(8)] for one in range(8)]
COMPUTE = [{"Name": f"c{at:02}", "DomainUUID": f"u{at // 18}", "GpuIDList": list("abcd")} for at in range(36)]
NETQ = [
    {
        "nodes": [
            {"compounded_nodes": [{"id": f"h{at}", "name": f"h{at}", "tier": -1} for at in range(4)]},
            {"compounded_nodes": [{"id": f"l{at}", "name": f"l{at}", "tier": 1} for at in range(2)]},
            {"compounded_nodes": [{"id": "s", "name": "s", "tier": 2}]},
        ],
        "links": [
            *({"id": f"h{at}-*-l{at // 2}", "compounded_links": [{}] * 8} for at in range(4)),
            *({"id": f"l{at}-*-s", "compounded_links": [{}] * 8} for at in range(2)),
        ],
    }
]
TREE = "SwitchName=top Switches=l[0-1]\nSwitchName=l0 Nodes=n[1-4]\nSwitchName=l1 Nodes=n[5-8]\n"
SHOWN = (
    "SwitchName=l0 Level=0 LinkSpeed=1 Nodes=n[1-4]\nSwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[5-8]\n"
    "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=l[0-1]\n"
)
GRES = "".join(f"NodeName=n{at} Gres=gpu:{{}}:8 State={{}}\n" for at in range(1, 5))
STATES = "NodeName=n[1-3] Gres=gpu:h100:8 State=IDLE\nNodeName=n4 Gres=gpu:h100:8 State={}\n"
ALL = "n1 n2 n3 n4 n5 n6 n7 n8"


SEVENTEEN = [["X" if one == two else "NV17" if 5 in (one, two) else "NV18" for two in range(8)] for one in range(8)]
SWITCHED = (
    dump()
    .replace(
        '<gpu dev="0" sm="90" rank="0" gdr="1"/>',
        '<gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="fffe" count="17" tclass="0x068000"/></gpu>',
    )
    .replace(
        '<gpu dev="1" sm="90" rank="1" gdr="1"/>',
        '<gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="fffe" count="18" tclass="0x068000"/></gpu>',
    )
)
ACROSS = [("a/0", "l0"), ("b/0", "l1"), ("l0", "l1")]


def aws(kind: str, count: int = 8) -> dict[str, Any]:
    rows = [
        {"InstanceId": f"i-{at}", "InstanceType": kind, "NetworkNodes": ["t", f"l{at // 4}"]} for at in range(count)
    ]
    return {"Instances": rows}


FILES = (
    # Slurm
    File("topology.conf, tree", "topology.conf", TREE, "8x450 4x50 2x50", "h100-sxm", 8, ALL),
    File("topology.conf, tree", "topology.conf", "SwitchName=s Nodes=a,b,c\n", "8x450 3x50", "h100-sxm", 8, "a b c"),
    File("topology.conf, tree", "topology.conf", TREE + "SwitchName=x Nodes=y\n", "! not joined by any switch"),
    File(
        "topology.conf, tree", "t.conf", "SwitchName=a Nodes=n1\nSwitchName=b Switches=a Nodes=n2\n", "! both nodes and"
    ),
    File(
        "topology.conf, block",
        "t.conf",
        "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n",
        "8x450 2x50 2x50",
        "h100-sxm",
        8,
        "n1 n2 n3 n4",
        "no links of a `domain`",
    ),
    File(
        "topology.conf, block",
        "t.conf",
        "# ClusterUUID and CliqueID: u1 1\nBlockName=a Nodes=n[01-18]\n"
        "# ClusterUUID and CliqueID: u2 1\nBlockName=b Nodes=n[19-36]\nBlockSizes=18\n",
        "72x900 2x50",
        "gb200",
        4,
    ),
    File("topology.conf, ring", "t.conf", "RingName=r Nodes=n[1-4]\n", "graph 32", "h100-sxm", 8),
    File("scontrol show topology", "shown", SHOWN, "8x450 4x50 2x50", "h100-sxm", 8, ALL),
    File(
        "scontrol show topology",
        "shown",
        "BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b BlockIndex=1 "
        "Nodes=n[3-4] BlockSize=2\nAggregatedBlock=[a-b] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n",
        "8x450 2x50 2x50",
        "h100-sxm",
        8,
        "n1 n2 n3 n4",
    ),
    File(
        "topology.yaml",
        "t.yaml",
        "- topology: topo/tree\n  tree:\n    switches: [{switch: s, nodes: 'n[1-2]'}]\n",
        "8x450 2x50",
        "h100-sxm",
        8,
        "n1 n2",
    ),
    File(
        "topology.yaml",
        "t.yaml",
        "- topology: t\n  torus3d: {toruses: [{name: a, dims: {x: 2, y: 2, z: 1}, nodes: 'n[1-4]'}]}\n",
        "graph 32",
        "h100-sxm",
        8,
    ),
    File("topology.yaml", "t.yaml", "- {topology: f, flat: true}\n", "! is flat"),
    File(
        "slurm.conf",
        "slurm.conf",
        "NodeName=n[1-4] Gres=gpu:h100:8\nPartitionName=p Nodes=ALL\n",
        "8x450 4x50",
        "h100-sxm",
        8,
        "n1 n2 n3 n4",
        "lists no switches",
    ),
    File(
        "slurm.conf",
        "slurm.conf",
        "NodeName=n[1-4] Gres=gpu:h200:8\nDownNodes=n4 State=DOWN\n",
        "8x450 3x50",
        "h200-sxm",
        8,
        "n1 n2 n3",
        "n4 (1 host), whose state is DOWN",
    ),
    File(
        "slurm.conf",
        "slurm.conf",
        "NodeName=n[1-2] Gres=gpu:h100:8\nNodeName=m[1-2] Gres=gpu:mi300x:8\n",
        "pools 2",
        None,
        None,
        "",
        "of two vendors",
    ),
    File("slurm.conf", "slurm.conf", "NodeName=n[1-4] CPUs=8\n", "! no node has accelerators"),
    File(
        "scontrol show nodes",
        "shown",
        STATES.format("IDLE+DRAIN"),
        "8x450 3x50",
        "h100-sxm",
        8,
        "n1 n2 n3",
        "is DRAIN.",
    ),
    File("scontrol show nodes", "shown", STATES.format("IDLE+POWERED_DOWN"), "8x450 3x50", "h100-sxm", 8, "n1 n2 n3"),
    File("scontrol show nodes", "shown", STATES.format("IDLE+CLOUD+POWERED_DOWN"), "8x450 4x50", "h100-sxm", 8),
    File("scontrol show nodes", "shown", GRES.format(*["h100_1g.10gb", "IDLE"] * 4), "! whose accelerators are split"),
    File(
        "sinfo",
        "shown",
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\na* up infinite 2 idle n[1-2]\na* up infinite 1 drain n3\n",
        "8x450 2x50",
        "h100-sxm",
        8,
        "n1 n2",
        "n3 (1 host), whose state is DRAIN",
    ),
    File("sinfo", "shown", "NODELIST GRES STATE\nn[1-2] gpu:a100:8 mix\n", "! 'a100' may be"),
    File(
        "sinfo", "shown", "NODELIST GRES STATE\nn[1-2] gpu:a100_80gb:8 mix\n", "8x300 2x25", "a100-sxm-80g", 8, "n1 n2"
    ),
    # Kubernetes
    File(
        "kubernetes",
        "k.json",
        nodes(*labelled(8, "topology.nebius.com/tier-1", "topology.nebius.com/tier-2", **PRODUCT)),
        "8x450 2x50 2x50 2x50",
        "h100-sxm",
        8,
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(*domains("ds.coreweave.com/nvlink.domain", 36, **{"gpu.nvidia.com/model": "GB200"}), gpus=4),
        "72x900 2x50",
        "gb200",
        4,
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(*domains("nvidia.com/gpu.clique", 8, **{"nvidia.com/gpu.product": GB200}), gpus=4),
        "16x900 2x50",
        "gb200",
        4,
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(
            *labelled(
                4, "oci.oraclecloud.com/rdma.local_block_id", **{"node.kubernetes.io/instance-type": "BM.GPU.H100.8"}
            )
        ),
        "8x450 2x50 2x50",
        "h100-sxm",
        8,
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(
            *labelled(4, "cloud.google.com/gce-topology-block", **{"cloud.google.com/gke-accelerator": "nvidia-b200"})
        ),
        "8x900 2x50 2x50",
        "b200-sxm",
        8,
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(*labelled(4, "acme.io/rack", **PRODUCT)),
        "8x450 4x50",
        "h100-sxm",
        8,
        "",
        "acme.io/rack (2 values)",
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(*labelled(4, "fabric.topograph.run/tier-0", **PRODUCT), n3=DOWN),
        "8x450 3x50",
        "h100-sxm",
        8,
        "",
        "n3 (1 host), which are cordoned",
    ),
    File("kubernetes", "k.json", nodes(("a", {}), gpus=0), "! no node has accelerators"),
    # topograph and AWS
    File(
        "topograph model",
        "m.yaml",
        {"switches": {"s": {"switches": ["l"]}}, "blocks": [{"switch": "l", "nodes": ["n[1-4]"]}]},
        "8x450 4x50",
        "h100-sxm",
        8,
        "n1 n2 n3 n4",
    ),
    File(
        "topograph instances",
        "i.json",
        {"instances": [{"id": f"i{at}", "network_layers": [f"l{at // 2}", "s"]} for at in range(4)]},
        "8x450 2x50 2x50",
        "h100-sxm",
        8,
        "i0 i1 i2 i3",
    ),
    File("aws instances", "a.json", aws("p5.48xlarge"), "8x450 4x50 2x50", "h100-sxm", 8),
    File("aws instances", "a.json", aws("p4d.24xlarge"), "8x300 4x6.25 2x6.25", "a100-sxm-40g", 8),
    File(
        "aws instances",
        "a.json",
        {
            "Instances": [
                *aws("p5.48xlarge", 2)["Instances"],
                {"InstanceId": "i", "InstanceType": "t3.micro", "NetworkNodes": []},
            ]
        },
        "! the accelerators of 't3.micro'",
    ),
    # Fabrics
    File("ibnetdiscover", "f", ibnetdiscover(FAT.links(), "4xNDR"), "8x450 3x50 2x50", "h100-sxm", 8),
    File("ibnetdiscover", "f", ibnetdiscover(FAT.links(), "2xNDR"), "8x450 3x25 2x25", "h100-sxm", 8),
    File("ibnetdiscover", "f", ibnetdiscover(THIN.links(), "4xXDR"), "8x900 3x100 2x100", "b200-sxm", 8),
    File(
        "ibnetdiscover",
        "f",
        slowed(ibnetdiscover(FAT.links(), "4xNDR", nics=False), "dgx-001 HCA-3"),
        "8x450 3x12.5 2x12.5",
        "h100-sxm",
        8,
        "",
        "dgx-001",
    ),
    File("ibnetdiscover", "f", 'Ca\t1 "H-0000000000000001"\t\t# "a HCA-1"\n', "! the file has no switches"),
    File("netq", "n.json", NETQ, "8x450 2x50 2x25", "h100-sxm", 8, "h0 h1 h2 h3", "per cable"),
    File("netq domains", "n.json", COMPUTE, "72x900 2x50", "gb200", 4),
    # Machines
    File("nvidia-smi topo -m", "t", table(alike(8, "NV18")), "8x450", None, 8),
    File("nvidia-smi topo -m", "t", LOG + table(alike(4, "NV12"), nics=4), "4x300", None, 4),
    File("nvidia-smi topo -m", "t", table([row.split() for row in DGX_1]), "graph 8", None, 8),
    File("nvidia-smi topo -m", "t", table(BEHIND), "graph 8", None, 8, "", "GPU5 has no NVLink, the other 7"),
    File("rocm-smi", "t", MI300X + printed(8, lambda *_: "XGMI", lambda *_: 15), "8x448", "mi300x", 8),
    File(
        "rocm-smi",
        "t",
        MI300X + printed(64, lambda *_: "XGMI", lambda a, b: 13 if a // 8 == b // 8 else 41),
        "64x56",
        None,
        64,
        "",
        "partitions of 8 cards",
    ),
    File("amd-smi", "t", MI300X + amd(8, lambda *_: "XGMI", lambda *_: 1), "8x448", "mi300x", 8),
    File("amd-smi", "t", amd(2, lambda *_: "PCIE", lambda *_: 2), "graph 2", None, 2),
    File("nccl xml", "t.xml", dump(("mlx5_0", 400000), ("mlx5_1", 400000)), "2x450", "h100-sxm", 2),
    File("nccl xml", "t.xml", dump(("wlan0", 10000)), "2x450", "h100-sxm", 2, "", "'wlan0'"),
    File("nccl xml", "g.xml", '<graphs version="1"><graph id="0"/></graphs>\n', "! NCCL_GRAPH_FILE"),
    File("hwloc", "m.xml", lstopo(*[H100] * 4, ("0300", "10de:1cb1")), "4x450", "h100-sxm", 4),
    File("hwloc", "m.xml", lstopo(*[("0302", "10de:26b9")] * 4), "graph 4", "l40s", 4),
    File("hwloc", "m.xml", lstopo(("0200", "8086:1572")), "! lists no GPUs"),
    # Simulators and graphs
    File(
        "astra-sim",
        "a.yml",
        {"topology": ["Switch", "Switch"], "npus_count": [8, 4], "bandwidth": [400, 50], "latency": [936, 1000]},
        "8x429.4967 4x53.6871",
        None,
        None,
        "",
        "GiB/s",
    ),
    File(
        "astra-sim, first version",
        "a.json",
        {
            "topologies-per-dim": ["Switch"],
            "units-count": [8],
            "links-count": [2],
            "link-bandwidth": [50],
            "link-latency": [500],
        },
        "8x100",
    ),
    File("ns-3", "t.txt", STAR, "~4x50"),
    File("htsim", "t.topo", TIERS, "8x12.5 4x3.125"),
    File(
        "infragraph",
        "i.yaml",
        {
            "components": [{"name": "xpu", "count": 2, "choice": "xpu"}],
            "edges": [{"ep1": {"component": "xpu[0]"}, "ep2": {"component": "xpu[1]"}, "link": "nvlink4"}],
        },
        "~2x306",
        None,
        2,
    ),
    File("node-link", "g.json", NODE_LINK, "~4x50"),
    File("graphml", "g.graphml", GRAPHML, "~4x50"),
    File("gml", "g.gml", GML, "~4x50"),
    # Things odd or wrong
    File(
        "slurm.conf",
        "slurm.conf",
        "NodeName=n[1-2] Gres=gpu:h100:8\nNodeName=login CPUs=8\n",
        "8x450 2x50",
        "h100-sxm",
        8,
        "n1 n2",
        "login (1 host), which have no `Gres`",
    ),
    File(
        "kubernetes",
        "k.json",
        nodes(*labelled(4, "fabric.topograph.run/tier-0", **PRODUCT), ("far", PRODUCT)),
        "8x450 2x50 2x50",
        "h100-sxm",
        8,
        "n0 n1 n2 n3",
        "far (1 host)",
    ),
    File("nvidia-smi topo -m", "t", table(SEVENTEEN), "8x425", None, 8, "", "17 to 18 NVLink links"),
    File("nccl xml", "t.xml", SWITCHED, "2x425", "h100-sxm", 2, "", "17 to 18 NVLink links"),
    File(
        "ibnetdiscover",
        "f",
        ibnetdiscover([each for each in FAT.links() if each != ("leaf0.1", "spine0.1")], "4xNDR"),
        "8x450 3x50 2x50",
        "h100-sxm",
        8,
        "",
        "Links up to",
    ),
    File("ibnetdiscover", "f", ibnetdiscover(ACROSS, "4xNDR"), "graph 16", "h100-sxm", 8, "", "Every link"),
    File(
        "sinfo",
        "shown",
        "PARTITION STATE NODELIST\ngpu* idle~ n[1-2]\ngpu* idle% n3\n",
        "8x450 2x50",
        "h100-sxm",
        8,
        "n1 n2",
        "Without power: n1, n2 (2)",
    ),
    File(
        "aws instances",
        "a.json",
        {**aws("p5.48xlarge"), "NextToken": "x"},
        "8x450 4x50 2x50",
        "h100-sxm",
        8,
        "",
        "Missing: more instances",
    ),
)


def text_of(file: File) -> str:
    """What is in it."""
    return file.content if isinstance(file.content, str) else json.dumps(file.content)
