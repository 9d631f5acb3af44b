"""A real Slurm: its topology is read as it is, and its tasks run where the plan says."""

import os
import re
from pathlib import Path

import pytest
from attrs import evolve

from frameworks_tests.test_launchers import agrees
from frameworks_tests.test_pools import files, named, plan, pools_of
from nest.hooks.placements import placement
from nest.network import LinkGraph
from nest.network.imported import Imported
from nest.spec import LinkProfile, PlanDocument, TierSpec
from nest.units import BytesPerSecond
from nest_frameworks.launchers import nodes_of, stand_ins
from nest_frameworks.launchers import slurm as launch
from nest_frameworks.slurm_job import sbatch
from networks_tests.field import imported, levels, told
from networks_tests.real.tools import run, slurm
from tests.deployment.plans import Decisions, made_up

__all__ = ["plan"]

pytestmark = pytest.mark.conformance

NAMES = [f"n{at}" for at in range(1, 17)]
TOPOLOGY = """SwitchName=leaf0 Nodes=n[1-4]
SwitchName=leaf1 Nodes=n[5-8]
SwitchName=leaf2 Nodes=n[9-12]
SwitchName=leaf3 Nodes=n[13-16]
SwitchName=spine0 Switches=leaf[0-1]
SwitchName=spine1 Switches=leaf[2-3]
SwitchName=core Switches=spine[0-1]
"""
STEEP = LinkProfile(tiers=tuple(TierSpec(bandwidth=BytesPerSecond(each)) for each in (50e9, 25e9, 12e9)))
TOLD = 'printf "%s\\n" "$SLURMD_NODENAME $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${CUDA_VISIBLE_DEVICES-}"'

ONE = Decisions((8, 2), tp=2, cp=1, copies=1, etp=1, ep=1, replicas=2, rank_order="pp-inner", places=(0, 1, 2, 3))
PLANS = {
    "pp-inner": ONE,
    "dp-inner": Decisions((8, 2), 2, 1, 1, 1, 1, replicas=2, rank_order="dp-inner", places=(0, 1, 2, 3)),
    "gaps": Decisions((4, 4), 2, 1, 1, 1, 1, replicas=2, rank_order="pp-inner", places=(0, 2)),
    "partly filled": Decisions((8, 3), 1, 1, 1, 1, 1, replicas=5, rank_order="pp-inner", places=(0, 2)),
    "second of two": Decisions((2, 4), 1, 1, 1, 1, 1, replicas=4, rank_order="pp-inner", places=(1,)),
    "many nodes": Decisions((2, 4, 2), 2, 1, 2, 1, 1, replicas=2, rank_order="dp-inner", places=(0, 1)),
}


@pytest.fixture(scope="module")
def cluster():  # type: ignore[no-untyped-def]
    """16 pretend nodes: 12 of 8 H100, 4 of 4 A100."""
    with slurm(TOPOLOGY, {name: ("h100", 8) if at < 12 else ("a100", 4) for at, name in enumerate(NAMES)}) as folder:
        yield folder


def read(folder: Path, text: str) -> Imported:
    path = folder / "printed.txt"
    path.write_text(text)
    return imported(path, STEEP)


def test_the_topology_that_scontrol_prints_is_that_of_the_file(cluster: Path, tmp_path: Path) -> None:
    shown, file = read(tmp_path, run("scontrol", "show", "topology")), imported(cluster / "topology.conf", STEEP)
    assert levels(shown) == levels(file) == [(8, 450e9), (4, 50e9), (2, 25e9), (2, 12e9)]
    assert shown.hosts == file.hosts == tuple(NAMES)


@pytest.mark.parametrize(
    "command",
    [
        ("sinfo",),
        ("sinfo", "--long"),
        ("sinfo", "-N", "-l"),
        ("sinfo", "-N", "-o", "%N %G %T %f"),
        ("sinfo", "-N", "-o", "%n|%N|%G|%t"),
        ("sinfo", "-o", "%E %t %N %G"),
        ("sinfo", "-O", "NodeList:60,StateLong:20,Gres:60"),
        ("sinfo", "--json"),
        ("scontrol", "show", "nodes"),
        ("scontrol", "show", "nodes", "--oneliner"),
    ],
    ids=" ".join,
)
def test_hosts_that_are_down_are_left_out(command: tuple[str, ...], cluster: Path, tmp_path: Path) -> None:
    run("scontrol", "update", "nodename=n3", "state=drain", "reason=fans are loud")
    run("scontrol", "update", "nodename=n[13-16]", "state=fail", "reason=fans")
    try:
        (tmp_path / "topology.conf").write_text(TOPOLOGY)
        found = read(tmp_path, run(*command))
        assert isinstance(found.network, LinkGraph)  # Leaf switches of 3 and 4 hosts.
        hosts = {name.rpartition(".")[0] for name in found.network.names if name.startswith("n")}
        assert sorted(hosts, key=NAMES.index) == [name for name in NAMES[:12] if name != "n3"]
        assert "left out: n3 (1 host), whose state is dr" in told(found).lower()
    finally:
        run("scontrol", "update", "nodename=n3,n[13-16]", "state=resume")


def of(one: Decisions, hosts: list[str] | None = None):  # type: ignore[no-untyped-def]
    return made_up(one) if hosts is None else made_up(one, hosts=hosts[: one.devices // one.fanouts[0]])


@pytest.mark.parametrize("named", [False, True], ids=["allocated", "named"])
@pytest.mark.parametrize("one", PLANS.values(), ids=PLANS)
def test_launch_script_puts_ranks_where_the_plan_has_them(
    one: Decisions, named: bool, cluster: Path, tmp_path: Path
) -> None:
    hosts = [f"n{at}" for at in (7, 2, 9, 4, 5, 11, 1, 12)]
    plan = of(one, hosts if named else None)
    placed = placement(plan)
    if not named and not stand_ins(nodes_of(placed)):
        assert "names such as node0 stand for them" in launch(plan)["slurm_launch.sh"]  # A user must name them.
        return
    for name, text in launch(plan).items():
        (tmp_path / name).write_text(text)
    nodes = sorted({each.node for each in placed}) if named else NAMES[: one.devices // one.fanouts[0]]
    salloc = ["salloc", "-Q", f"--nodelist={','.join(nodes)}", f"-N{len(nodes)}", "--exclusive"]
    text = run(*salloc, "bash", str(tmp_path / "slurm_launch.sh"), "bash", "-c", TOLD)
    agrees(placed, _as_planned(text, {f"node{at}": name for at, name in enumerate(nodes)} if not named else {}))


def _as_planned(text: str, names: dict[str, str]) -> list[str]:
    """Lines with the plan's own names of nodes that the allocation named."""
    back = {real: name for name, real in names.items()}
    return [
        " ".join(back.get(word, word) if at in (0, 4) else word for at, word in enumerate(line.split(" ")))
        for line in text.splitlines()
    ]


@pytest.mark.parametrize("one", PLANS.values(), ids=PLANS)
def test_batch_script_puts_ranks_where_the_plan_has_them(one: Decisions, cluster: Path, tmp_path: Path) -> None:
    plan = of(one, [f"n{at}" for at in (7, 2, 9, 4, 5, 11, 1, 12)])
    for name, text in sbatch(plan).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "python").write_text(f"#!/bin/bash\n{TOLD}\n")
    (tmp_path / "python").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    run("sbatch", "--wait", f"--chdir={tmp_path}", "--output=out", str(tmp_path / "slurm_job.sh"), PATH=path)
    agrees(placement(plan), (tmp_path / "out").read_text().splitlines())


@pytest.mark.parametrize("to", ["slurm", "sbatch"])
def test_machines_of_pools_get_their_own_accelerators(
    plan: PlanDocument, to: str, cluster: Path, tmp_path: Path
) -> None:
    pools = [{**pool, "devices_per_host": 4 if pool["name"] == "new" else 2} for pool in pools_of(plan)]
    uneven = evolve(plan, problem={**plan.problem, "cluster": {**plan.problem["cluster"], "pools": pools}})
    given = named(uneven, new=["n2"], old=["n14", "n13", "n16", "n15"])
    for name, text in files(given, "megatron", to).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "python").write_text(f"#!/bin/bash\n{TOLD}\n")
    (tmp_path / "python").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    if to == "sbatch":
        job = str(tmp_path / "slurm_job.sh")
        run("sbatch", "--wait", f"--chdir={tmp_path}", "--output=out", job, PATH=path)
        printed = (tmp_path / "out").read_text()
    else:
        script = tmp_path / "slurm_launch.sh"
        asked = re.findall(r"-N (\d+) -w (\S+) --gpus-per-node=(\d+)", script.read_text())
        options = [
            word
            for count, nodes, gpus in asked
            for word in (":", f"-N{count}", f"--nodelist={nodes}", f"--gpus-per-node={gpus}", "--exclusive")
        ]
        printed = run("salloc", "-Q", *options[1:], "bash", str(script), "python", PATH=path)
    agrees(placement(given), printed.splitlines())
