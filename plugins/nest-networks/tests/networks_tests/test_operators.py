"""What operators paste: line ends of Windows, one line a node, cut columns, JSON, pages, types and kinds beside."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nest.catalogue import profile
from nest.errors import InputError
from networks_tests.corpus import FILES, File, text_of
from networks_tests.fabrics import FatTree, ibnetdiscover
from networks_tests.field import imported, levels, read, reduced, told
from networks_tests.test_kubernetes import listed
from networks_tests.test_labels import node, placed

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
RECORD = """NodeName={} Arch=x86_64 CoresPerSocket=48
   CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.10
   AvailableFeatures=(null)
   Gres=gpu:h100:8(S:0-1)
   OS=Linux 6.8.0-31-generic #31-Ubuntu SMP PREEMPT_DYNAMIC
   State={} ThreadsPerCore=2 TmpDisk=0 Weight=1
   Reason={} [root@2026-11-29T10:00:00]

"""


def records(*states: str, reason: str = "none", one_line: bool = False) -> str:
    made = [RECORD.format(f"n{at}", state, reason) for at, state in enumerate(states, 1)]
    return "".join(" ".join(each.split()) + "\n" for each in made) if one_line else "".join(made)


@pytest.mark.longer
@pytest.mark.parametrize("file", [each for each in FILES if isinstance(each.content, str)], ids=lambda each: each.kind)
def test_line_ends_of_windows_and_a_mark_change_nothing(file: File, tmp_path: Path) -> None:
    def found(content: str) -> object:
        (tmp_path / file.name).write_bytes(content.encode())
        try:
            return imported(tmp_path / file.name)
        except (InputError, AssertionError) as error:
            return str(error)

    plain = text_of(file)
    assert str(found(plain.replace("\n", "\r\n"))) == str(found("\ufeff" + plain)) == str(found(plain))


@pytest.mark.parametrize("one_line", [False, True])
def test_states_of_scontrol_on_one_line_or_several(one_line: bool, tmp_path: Path) -> None:
    found = read(tmp_path, records("IDLE", "IDLE+MAINTENANCE", "DOWN*", "MIXED+PLANNED", one_line=one_line))
    assert found.hosts == ("n1", "n4")
    assert "n2 (1 host), whose state is MAINTENANCE" in told(found)


@pytest.mark.parametrize("one_line", [False, True])
def test_a_reason_is_no_state(one_line: bool, tmp_path: Path) -> None:
    shown = records("DOWN", reason="State=IDLE Gres=gpu:a100:4 soon #7", one_line=one_line)
    assert read(tmp_path, records("IDLE") + shown.replace("n1", "n2")).hosts == ("n1",)


def test_comments_of_slurm_conf_stay_comments(tmp_path: Path) -> None:
    found = read(tmp_path, "NodeName=n[1-2] Gres=gpu:h100:8 # State=DOWN\n# NodeName=n3 Gres=gpu:h100:8\n")
    assert found.hosts == ("n1", "n2")


@pytest.mark.parametrize(
    ("mark", "out"), [("", ""), ("~", ""), ("#", ""), ("-", ""), ("@", ""), *((each, "n3") for each in "*%!$^")]
)
def test_marks_of_sinfo(mark: str, out: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"PARTITION STATE NODELIST\np* idle n[1-2]\np* idle{mark} n3\n")
    assert ("n3" in found.hosts) == (not out)
    assert f"Left out: {out}" in told(found) if out else "Left out" not in told(found)
    assert ("Without power: n3 (1)" in told(found)) == (mark == "~")


def test_nodes_of_a_cloud_without_power_are_named(tmp_path: Path) -> None:
    found = read(tmp_path, records("IDLE", "IDLE+CLOUD+POWERED_DOWN", "IDLE+POWERED_DOWN"))
    assert found.hosts == ("n1", "n2")
    assert "Without power: n2 (1)" in told(found)
    assert "Left out: n3 (1 host), whose state is POWERED_DOWN" in told(found)


@pytest.mark.parametrize("gres", ["gpu:h100:no_consume:8,mps:800", "gpu:h100:4(S:0),gpu:h100:4(S:1),shard:64"])
def test_further_words_of_gres(gres: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"NodeName=n[1-2] Gres={gres}\n")
    assert (found.device, found.devices_per_host, len(found.hosts)) == ("h100-sxm", 8, 2)


COLUMNS = {
    "bars": "HOSTNAMES|GRES|STATE\nn1|gpu:h100:8(S:0-1)|idle\nn2|gpu:h100:8(S:0-1)|mixed\nn3|gpu:h100:8|drained\n",
    "both names": "HOSTNAMES NODELIST STATE\nvm n1 idle\nvm n2 idle\nvm n3 down\n",
    "reason first": "REASON STATE NODELIST\nnone idle n[1-2]\nGPU fell off the bus drain n3\n",
    "reason within": "STATE REASON NODELIST\nidle none n[1-2]\ndrain Not responding, see 12 n3\n",
    "reservation": "STATE RESERVATION NODELIST\n idle             n[1-2]\n drained  fix      n3\n",
    "empty partition": "PARTITION NODES STATE NODELIST\np* 2 idle n[1-2]\np* 1 down n3\nnew 0 n/a \n",
}


@pytest.mark.parametrize("content", COLUMNS.values(), ids=COLUMNS)
def test_columns_of_sinfo(content: str, tmp_path: Path) -> None:
    found = read(tmp_path, content)
    assert found.hosts == ("n1", "n2")
    assert "Left out: n3 (1 host)" in told(found)


@pytest.mark.parametrize(
    "content",
    [
        "NODELIST            STATE               GRES                \n"
        "n[1-2]              idle                gpu:nvidia_h100_80gb\n",
        "STATE               NODELIST            \nidle                gpu0001,gpu0002,gpu00\n",
        "NODELIST            STATE   REASON      \ngpu0001,gpu0002,gpu0idle Not responding\n",
        "NODELIST GRES STATE\nn1 gpu:h100_80gb_hb idle\n",
    ],
)
def test_columns_that_sinfo_cuts_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: sinfo has cut .*; print whole columns: `sinfo -N"):
        read(tmp_path, content)


def test_more_cells_than_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2 has 5 cells for 3 columns"):
        read(tmp_path, "WHY STATE NODELIST\nfan is bad idle n1\n")


ROWS: dict[str, Any] = {
    "new": {"nodes": [
        {"name": f"n{at}", "state": ["IDLE", *more], "gres": "gpu:h100:8(S:0-1)", "features": ["ib"]}
        for at, more in enumerate(((), ("PLANNED",), ("DRAIN",)), 1)
    ]},
    "before 23.02": {"meta": {}, "errors": [], "nodes": [
        {"name": f"n{at}", "state": "idle", "state_flags": more, "gres": "gpu:h100:8", "features": "ib"}
        for at, more in enumerate(([], [], ["DRAIN"]), 1)
    ]},
    "sinfo": {"sinfo": [
        {"nodes": {"nodes": names}, "node": {"state": state}, "gres": {"total": "gpu:h100:8"}}
        for names, state in ((["n1", "n2"], ["IDLE"]), (["n3"], ["IDLE", "DRAIN"]))
    ]},
}  # fmt: skip


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_json_of_slurm(rows: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=s0 Nodes=n1\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=t "
                                            "Switches=s[0-1]\n")  # fmt: skip
    found = read(tmp_path, json.dumps(rows, indent=1))
    assert (found.hosts, found.device, found.devices_per_host) == (("n1", "n2"), "h100-sxm", 8)
    assert "Left out: n3 (1 host), whose state is DRAIN" in told(found)
    with pytest.raises(InputError, match=r"this is not JSON: .*line"):
        read(tmp_path, json.dumps(rows, indent=1)[:-20])


def test_labels_that_coreweave_had_before() -> None:
    keys = [f"ib.coreweave.cloud/{each}" for each in ("leafgroup", "superpod", "fabric")]
    found = imported(placed(*keys, **H100))
    assert [count for count, _ in levels(found)] == [8, 2, 2, 2]


def test_a_name_beside_the_number_of_a_leaf_is_no_label_to_ask_for() -> None:
    keys = ("backend.coreweave.cloud/leafgroup", "backend.coreweave.cloud/leafgroup-name")
    assert "Ignored labels" not in told(imported(placed(*keys, **H100)))


@pytest.mark.parametrize(
    ("labels", "resource", "words"),
    [
        (
            {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice", "cloud.google.com/gke-tpu-topology": "2x2x4",
             "cloud.google.com/gke-accelerator-count": "4"},
            "google.com/tpu",
            r"n0 is part of a TPU slice \(tpu-v5p-slice\).*torus: \{shape: \[2, 2, 4\]",
        ),
        ({"node.kubernetes.io/instance-type": "trn2.48xlarge"}, "aws.amazon.com/neuron", "n0 is a machine of AWS Neur"),
    ],
)  # fmt: skip
def test_accelerators_that_are_no_gpus_are_not_planned_as_gpus(
    labels: dict[str, str], resource: str, words: str
) -> None:
    each = node("n0", **labels)
    each["status"] = {"allocatable": {resource: "4"}, "capacity": {resource: "4"}}
    with pytest.raises(InputError, match=words):
        imported(listed(each))
    assert imported(listed(each, node("g", **H100))).hosts == ("g",)


def kueue(*keys: str, name: str = "default") -> dict[str, Any]:
    levels_ = [{"nodeLabel": key} for key in (*keys, "kubernetes.io/hostname")]
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": name},
            "spec": {"levels": levels_}}  # fmt: skip


def test_a_topology_of_kueue_beside_nodes_names_their_tiers() -> None:
    nodes = placed("acme.io/rack", "acme.io/block", **H100)
    one = imported(listed(kueue("acme.io/block", "acme.io/rack"), *nodes["items"]))
    assert [count for count, _ in levels(one)] == [8, 2, 2, 2]
    assert "Kueue's Topology default: acme.io/block, acme.io/rack" in told(one)
    two = imported(listed(kueue("acme.io/block"), kueue("acme.io/rack", name="racks"), *nodes["items"]))
    assert "several topologies of Kueue (default, racks)" in told(two)


def test_a_topology_of_kueue_alone_and_other_lists_are_told_what_is_needed() -> None:
    with pytest.raises(InputError, match=r"no nodes, but Topology. .*kubectl get nodes -o json.*--tier-label"):
        imported(kueue("acme.io/block"))
    with pytest.raises(InputError, match=r"no nodes, but Pod\. Import those of `kubectl get nodes -o json`"):
        imported(listed({"kind": "Pod"}))


def test_a_table_of_kubectl_is_told_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"import `kubectl get nodes -o json`"):
        read(tmp_path, "NAME    STATUS   ROLES    AGE   VERSION\ngpu-0   Ready    <none>   10d   v1.30.4\n")


def test_a_page_of_nodes_is_told() -> None:
    page = listed(node("a", **H100), node("b", **H100)) | {"metadata": {"continue": "x", "remainingItemCount": 200}}
    assert "Missing: 200 more nodes" in told(imported(page))


def test_one_zone_is_no_switch() -> None:
    zone = {"topology.kubernetes.io/zone": "0"}
    assert "lists no switches" in told(imported(listed(*(node(f"n{at}", **H100, **zone) for at in range(4)))))


P4D = {"node.kubernetes.io/instance-type": "p4d.24xlarge", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
MEGA = {"node.kubernetes.io/instance-type": "a3-megagpu-8g", **H100}


@pytest.mark.parametrize(("labels", "rate"), [(P4D, 6.25e9), (MEGA, 25e9)])
def test_a_machine_type_beside_a_product_says_its_links(labels: dict[str, str], rate: float) -> None:
    assert levels(imported(listed(node("a", **labels), node("b", **labels))))[-1] == (2, rate)
    assert levels(imported(listed(node("a", **labels), node("b", **labels)), profile("h200-ndr")))[-1] == (2, 50e9)


def test_pools_have_the_links_of_their_machine_types() -> None:
    found = imported(
        listed(*(node(f"{at}{kind}", **labels) for kind, labels in (("p", P4D), ("m", MEGA)) for at in "ab"))
    )
    assert [pool.levels[-1].bandwidth for pool in found.pools] == [6.25e9, 25e9]


def test_a_machine_type_of_another_device_than_the_product_is_not_used() -> None:
    labels = {**H100, "node.kubernetes.io/instance-type": "p4d.24xlarge"}
    found = imported(listed(node("a", **labels), node("b", **labels)))
    assert (found.device, levels(found)[-1]) == ("h100-sxm", (2, 50e9))


def test_h800_is_of_the_catalogue() -> None:
    assert imported(listed(node("a", **{"nvidia.com/gpu.product": "NVIDIA-H800"}))).device == "h800-sxm"


@pytest.mark.parametrize("gres", ["a100", "v100"])
def test_products_of_several_memories_are_asked_for(gres: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"'{gres}' may be {gres}.*; name a link profile"):
        read(tmp_path, f"NodeName=n1 Gres=gpu:{gres}:8\n")
    with pytest.raises(InputError, match="no accelerator called"):
        read(tmp_path, f"NodeName=n1 Gres=gpu:{gres}_pcie:8\n")


def test_no_nvlink_at_all_is_a_fault_of_gpus_that_have_it(tmp_path: Path) -> None:
    rows = [["X" if one == two else "SYS" for two in range(4)] for one in range(4)]
    matrix = "".join(f"\nGPU{at} {' '.join(row)}" for at, row in enumerate(rows))
    content = f" GPU0 GPU1 GPU2 GPU3{matrix}\n"
    assert "no NVLink, which h100-sxm has: a fault" in told(read(tmp_path, content, profile("h100-ndr")))
    assert "a fault" not in told(read(tmp_path, content, profile("l40s-efa")))


def test_of_two_ends_of_a_cable_the_slower_counts(tmp_path: Path) -> None:
    tree = FatTree(1, 2, hosts=2, rails=2, spines=2, uplinks=1, cores=1, core_links=1)
    lines = ibnetdiscover(tree.links(), "4xNDR", "mlx5_{}").splitlines()
    ends = [at for at, line in enumerate(lines) if line.startswith("[") and '"dgx-001 mlx5_1"' in line]
    assert ends
    for at in ends:
        lines[at] = re.sub("4xNDR", "4xEDR", lines[at])
    found = read(tmp_path, "\n".join(lines))
    assert "dgx-001" in told(found)
    assert reduced(found)[1].bandwidth < 13e9
