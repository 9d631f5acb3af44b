"""Placement files: their scripts are run by bash, with stand-ins for the launchers that they call."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings

from nest.errors import InputError
from nest.hooks.placements import Placed, placement
from nest.spec import PlanDocument
from nest_frameworks.launchers import mpi, slurm, torchrun
from tests.deployment.plans import Decisions, decisions, made_up

TOLD = 'printf "%s\\n" "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${CUDA_VISIBLE_DEVICES-}"'
"""A command that tells what a process of a training would know of itself."""

SRUN = """
import os, subprocess, sys
arguments = sys.argv[1:]
assert arguments[0] == "-n" and arguments[2] == "--distribution=arbitrary", arguments
hosts = open(os.environ["SLURM_HOSTFILE"]).read().splitlines()
assert len(hosts) == int(arguments[1])
for task, host in enumerate(hosts):
    own = {"SLURM_PROCID": task, "SLURM_LOCALID": hosts[:task].count(host), "SLURM_NTASKS": len(hosts)}
    print(host, end=" ", flush=True)
    told = {**os.environ, "SLURMD_NODENAME": host, **{name: str(value) for name, value in own.items()}}
    subprocess.run(arguments[3:], env=told, check=True)
"""
"""srun(1), `--distribution=arbitrary`: task `i` runs on the host in line `i` of the hostfile."""

MPIRUN = """
import os, re, subprocess, sys
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("mpirun (Open MPI) 4.1.4")
    sys.exit()
slots = dict(line.split(" slots=") for line in open(arguments[arguments.index("--hostfile") + 1]).read().splitlines())
ranks = {}
for line in open(arguments[arguments.index("--rankfile") + 1]):
    rank, host, slot = re.fullmatch(r"rank (\\d+)=(\\S+) slot=(\\d+)\\n", line).groups()
    ranks[int(rank)] = (host, int(slot))
assert sorted(ranks) == list(range(int(arguments[1])))
hosts = [ranks[rank][0] for rank in sorted(ranks)]
assert {host: hosts.count(host) for host in hosts} == {host: int(count) for host, count in slots.items()}
command = arguments[arguments.index("bash"):]
for rank, host in enumerate(hosts):
    assert ranks[rank][1] == hosts[:rank].count(host)
    own = {"RANK": rank, "LOCAL_RANK": hosts[:rank].count(host), "SIZE": len(hosts)}
    print(host, end=" ", flush=True)
    told = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in own.items()}
    subprocess.run(command, env={**os.environ, "HOST_OF_TEST": host, **told}, check=True)
"""
"""mpirun(1) of Open MPI 4.1: each rank on the host that the rankfile says."""

TORCHRUN = """
import os, subprocess, sys
options = dict(each.lstrip("-").split("=", 1) for each in sys.argv[2:8])
assert sys.argv[1] == "--no-python" and options["rdzv-backend"] == "static", sys.argv
print("torchrun", options["nnodes"], options["node-rank"], options["nproc-per-node"], flush=True)
"""
"""Tells what torchrun was asked for."""

HOSTNAME = 'printf "%s\\n" "${HOST_OF_TEST:-nowhere}"'


@pytest.fixture(scope="module")
def stands_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs in place of launchers."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in (("srun", SRUN), ("mpirun", MPIRUN), ("torchrun", TORCHRUN)):
        (folder / name).write_text(f"#!{sys.executable}\n{text}")
    (folder / "hostname").write_text(f"#!/bin/sh\n{HOSTNAME}\n")
    (folder / "scontrol").write_text('#!/bin/sh\nfor i in $(seq 0 99); do echo "host$i-$SLURM_JOB_NODELIST"; done\n')
    (folder / "taskset").write_text("#!/bin/sh\n")
    for each in folder.iterdir():
        each.chmod(0o755)
    return folder


def run(
    files: Mapping[str, str], folder: Path, programs: Path, told: str = TOLD, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Write the files and run their one script with bash."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    for name, text in files.items():
        (folder / name).write_text(text)
    (script,) = (folder / name for name in files if name.endswith(".sh"))
    clean = {name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "CUDA_VISIBLE_DEVICES")}
    return subprocess.run(
        [bash, str(script), "bash", "-c", told],
        env={**clean, "PATH": f"{programs}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def visible(placed: tuple[Placed, ...], node: str) -> list[int]:
    """The accelerators of a node in the order of its ranks."""
    return [each.gpu for each in placed if each.node == node]


def agrees(placed: tuple[Placed, ...], told: list[str]) -> None:
    """Every rank runs on its host, and finds its accelerator as the device of its local rank."""
    assert len(told) == len(placed)
    for line in told:
        host, rank, local, world, master, *gpus = line.split(" ")
        each = placed[int(rank)]
        assert (host, world, master) == (each.node, str(len(placed)), placed[0].node)
        shown = gpus[0].split(",") if gpus and gpus[0] else [str(index) for index in range(64)]
        assert shown[int(local)] == str(each.gpu)


STRANGE = ["a$(touch owned)", "`touch owned`", "it's; touch owned #", "new\nline", '"b 1"', "*", "-n", "|"]
SMALL = settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.longer
@SMALL
@given(one=decisions())
def test_slurm_starts_every_rank_in_its_place(one: Decisions, tmp_path: Path, stands_in: Path) -> None:
    plan = made_up(one)
    done = run(slurm(plan), tmp_path, stands_in, SLURM_JOB_NODELIST="x")
    assert done.returncode == 0, done.stderr
    allocated = [re.sub(r"host(\d+)-x", r"node\1", line) for line in done.stdout.splitlines()]
    agrees(placement(plan), allocated)
    hosts = [f"h{index}" for index in range(one.devices // one.fanouts[0])]
    named = made_up(one, hosts=hosts)
    done = run(slurm(named), tmp_path, stands_in)
    assert done.returncode == 0, done.stderr
    agrees(placement(named), done.stdout.splitlines())


@pytest.mark.longer
@SMALL
@given(one=decisions())
def test_mpi_starts_every_rank_in_its_place(one: Decisions, tmp_path: Path, stands_in: Path) -> None:
    plan = made_up(one)
    done = run(mpi(plan), tmp_path, stands_in)
    assert done.returncode == 0, done.stderr
    agrees(placement(plan), done.stdout.splitlines())


@pytest.mark.longer
@SMALL
@given(one=decisions())
def test_torchrun_starts_every_rank_in_its_place(one: Decisions, tmp_path: Path, stands_in: Path) -> None:
    plan = made_up(one)
    check_torchrun(plan, tmp_path, stands_in)


def check_torchrun(plan: PlanDocument, folder: Path, programs: Path) -> None:
    """Every node starts its ranks, by torchrun where that numbers them so."""
    placed = placement(plan)
    names = list(dict.fromkeys(each.node for each in placed))
    files = torchrun(plan)
    told = []
    first = 0
    for number, name in enumerate(names):
        done = run(files, folder, programs, NEST_NODE=name)
        assert done.returncode == 0, done.stderr
        ranks = [each.rank.rank for each in placed if each.node == name]
        if not done.stdout.startswith("torchrun"):
            told += [f"{number} {line}" for line in done.stdout.replace(placed[0].node, "first").splitlines()]
            continue
        # torchrun numbers the processes of nodes one after the other, those of one node by their local ranks.
        assert done.stdout.split() == ["torchrun", str(len(names)), str(number), str(len(ranks))]
        assert ranks == list(range(first, first + len(ranks)))
        first += len(ranks)
    if told:
        assert len(told) == len(placed)
    for line in told:
        node, rank, local, world, master, *gpus = line.split(" ")
        each = placed[int(rank)]
        assert (names[int(node)], world, master) == (each.node, str(len(placed)), "first")
        shown = gpus[0].split(",") if gpus and gpus[0] else [str(index) for index in range(64)]
        assert shown[int(local)] == str(each.gpu)


PAIRS = Decisions((2, 4), tp=2, cp=1, copies=1, etp=1, ep=1, replicas=2, rank_order="pp-inner", places=(0, 1))
SPREAD = Decisions((2, 4), tp=1, cp=1, copies=1, etp=1, ep=1, replicas=4, rank_order="pp-inner", places=(0, 1))


def spread(**cluster: Any) -> PlanDocument:
    """A plan whose ranks do not lie node by node as most frameworks count them: stages are the slowest coordinate."""
    plan = made_up(SPREAD, **cluster)
    return evolve(plan, problem={**plan.problem, "search": {"target": "torchtitan"}})


def test_gpus_a_node_uses_in_part_are_told(tmp_path: Path, stands_in: Path) -> None:
    """Stages on the second of two devices each: their local ranks are 0, their accelerators are not."""
    one = Decisions((2, 4), tp=1, cp=1, copies=1, etp=1, ep=1, replicas=4, rank_order="pp-inner", places=(1,))
    files = slurm(made_up(one))
    done = run(files, tmp_path, stands_in, SLURM_JOB_NODELIST="x")
    assert [line.split(" ")[-1] for line in done.stdout.splitlines()] == ["1"] * 4
    assert "CUDA_VISIBLE_DEVICES is set" in files["slurm_launch.sh"]
    assert "CUDA_VISIBLE_DEVICES" not in slurm(made_up(PAIRS))["slurm_launch.sh"]


@pytest.mark.longer
@pytest.mark.parametrize("one", [PAIRS, SPREAD], ids=["torchrun", "processes"])
def test_hosts_with_any_name_are_quoted(
    one: Decisions, tmp_path: Path, stands_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = STRANGE if one is PAIRS else STRANGE[:4]
    plan = made_up(one, hosts=names) if one is PAIRS else spread(hosts=names)
    files = torchrun(plan)
    for number, name in enumerate(dict.fromkeys(each.node for each in placement(plan))):
        done = run(files, tmp_path, stands_in, 'printf "%s;" "$MASTER_ADDR"', NEST_NODE=name)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (f"torchrun 8 {number} 1\n" if one is PAIRS else f"{names[0]};" * 2)
    assert not (tmp_path / "owned").exists()


def test_allocations_that_are_too_small_are_told(tmp_path: Path, stands_in: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "scontrol").write_text("#!/bin/sh\necho host0\n")
    (tmp_path / "few" / "scontrol").chmod(0o755)
    files = slurm(made_up(PAIRS))
    done = run(files, tmp_path, tmp_path / "few", SLURM_JOB_NODELIST="x")
    assert done.returncode == 2
    assert "the plan needs 4 nodes, the allocation has 1" in done.stderr


def test_ranks_that_follow_the_devices_are_left_to_torchrun(tmp_path: Path, stands_in: Path) -> None:
    """Megatron-LM can count stages before replicas; others cannot, and their processes are started one by one."""
    counted_so = torchrun(made_up(SPREAD))["torchrun_launch.sh"]
    assert "torchrun --no-python" in counted_so
    assert "torchrun --no-python" not in torchrun(spread())["torchrun_launch.sh"]
    check_torchrun(spread(), tmp_path, stands_in)


def test_a_host_that_is_not_in_the_plan_is_told(tmp_path: Path, stands_in: Path) -> None:
    done = run(torchrun(made_up(PAIRS)), tmp_path, stands_in, HOST_OF_TEST="b7")
    assert done.returncode == 2
    assert "b7 is no node of the plan; set NEST_NODE to the name of one" in done.stderr


def test_a_failing_process_ends_the_others(tmp_path: Path, stands_in: Path) -> None:
    files = torchrun(spread())
    told = 'if [ "$LOCAL_RANK" = 0 ]; then exit 7; fi; sleep 100'
    assert run(files, tmp_path, stands_in, told, NEST_NODE="node0").returncode == 7


@pytest.mark.parametrize("exporter", [slurm, mpi], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", ["a b", "a;b", "$(id)", "a\nb", "a=b", "-a", "", "n[1-2]", "ü"])
def test_names_that_cannot_stand_in_a_hostfile_are_refused(exporter: Any, name: str) -> None:
    with pytest.raises(InputError, match="cannot stand in a hostfile of"):
        exporter(made_up(PAIRS, hosts=[name, "b", "c", "d"]))
