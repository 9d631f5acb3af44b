"""Placement files in the hands of the launchers they are for: Slurm's hostlists, Open MPI, torchrun, Graphviz."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import evolve

from nest.hooks.placements import placement
from nest.spec import PlanDocument
from nest_frameworks import dot
from nest_frameworks.launchers import mpi, slurm, torchrun
from tests.conformance.consumer import interpreter, needs
from tests.deployment.plans import Decisions, made_up

pytestmark = pytest.mark.conformance

TOLD = 'printf "%s\\n" "$RANK $LOCAL_RANK $WORLD_SIZE ${CUDA_VISIBLE_DEVICES-}"'

STAGES = Decisions((2, 2), tp=1, cp=1, copies=1, etp=1, ep=1, replicas=2, rank_order="pp-inner", places=(0, 1))
"""Two nodes of two devices, a replica on each."""


def spread(plan: PlanDocument) -> PlanDocument:
    """The plan for a framework that counts stages after replicas."""
    return evolve(plan, problem={**plan.problem, "search": {"target": "torchtitan"}})


def program(name: str) -> str:
    """Path of a program; the test is skipped without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def written(files: Mapping[str, str], folder: Path) -> Path:
    """Write the files; the script among them."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return next(folder / name for name in files if name.endswith((".sh", ".dot")))


def test_slurm_reads_the_hostfile_as_it_is(tmp_path: Path) -> None:
    """`scontrol show hostlist` packs the lines, `show hostnames` unpacks them: order and repetitions stay."""
    scontrol = program("scontrol")
    hosts = ["rack1n09", "rack1n10", "rack1n11", "gpu-7"]
    one = evolve(STAGES, fanouts=(2, 4), replicas=4)
    files = slurm(spread(made_up(one, hosts=hosts)))
    written(files, tmp_path)
    (tmp_path / "slurm.conf").write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}

    def show(what: str, given: str) -> str:
        done = subprocess.run(
            [scontrol, "show", what, given], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    packed = show("hostlist", str(tmp_path / "slurm_hostfile.txt")).strip()
    assert show("hostnames", packed) == files["slurm_hostfile.txt"]


def test_open_mpi_starts_the_ranks(tmp_path: Path) -> None:
    """On this machine alone: as many ranks as it has cores, at most two."""
    program("mpirun")
    program("taskset")
    ranks = min(2, os.cpu_count() or 1)
    one = Decisions((ranks,), 1, 1, 1, 1, 1, replicas=ranks, rank_order="dp-inner", places=(0,))
    script = written(mpi(made_up(one, hosts=[socket.gethostname()])), tmp_path)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        ["bash", str(script), "bash", "-c", TOLD],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == sorted(["", *(f"{rank} {rank} {ranks} " for rank in range(ranks))])


@pytest.mark.parametrize("counted", ["by torchrun", "by the script"])
def test_torchrun_gives_every_process_its_rank(counted: str, tmp_path: Path) -> None:
    """Two nodes played by this machine, meeting on its own address."""
    needs("torch")
    program = Path(interpreter()).with_name("torchrun")
    if not program.exists():
        pytest.skip(f"there is no torchrun beside {interpreter()}")
    plan = made_up(STAGES) if counted == "by torchrun" else spread(made_up(STAGES))
    script = written(torchrun(plan), tmp_path)
    assert ("torchrun --no-python" in script.read_text()) == (counted == "by torchrun")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    nodes = {
        name: subprocess.Popen(
            ["bash", str(script), "bash", "-c", TOLD],
            env={**environment, "NEST_NODE": name},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("node1", "node0")
    }
    told = {name: node.communicate(timeout=240)[0].split("\n")[:-1] for name, node in nodes.items()}
    assert [node.returncode for node in nodes.values()] == [0, 0]
    for name, lines in told.items():
        expected = [each for each in placement(plan) if each.node == name]
        assert sorted(lines) == [f"{each.rank.rank} {each.gpu} 4 " for each in expected]


def test_graphviz_draws_a_plan(tmp_path: Path) -> None:
    graph = written(dot.export(made_up(STAGES)), tmp_path)
    done = subprocess.run([program("dot"), "-Tsvg", str(graph)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('class="node"') == 4
