"""Real tools started and stopped: a Slurm of pretend nodes on one machine, a fabric that ibsim simulates."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PACKAGES = {
    "slurmctld": "slurm-wlm", "slurmd": "slurmd", "ibsim": "ibsim-utils", "ibnetdiscover": "infiniband-diags",
    "mpirun": "openmpi-bin", "lstopo": "hwloc",
}  # fmt: skip
"""Programs, and the package of Debian that has each."""


def needed(*programs: str) -> None:
    """Skip a test whose programs are not installed, or that may not start daemons."""
    lost = [each for each in programs if shutil.which(each) is None and not Path("/usr/sbin", each).exists()]
    if lost:
        packages = " ".join(dict.fromkeys(PACKAGES[each] for each in lost))
        pytest.skip(f"needs {', '.join(lost)}: apt-get install {packages}")
    if "slurmctld" in programs and os.geteuid():
        pytest.skip("needs root: slurmd starts tasks as other users")


def run(*command: str, **environment: str) -> str:
    """What a command prints; a failure shows all of it."""
    done = subprocess.run(
        command, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin", **environment}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


SLURM = """ClusterName=pretend
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
SlurmdPidFile={folder}/pid/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
GresTypes=gpu
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES MaxTime=5
"""


@contextmanager
def slurm(topology: str, nodes: Mapping[str, tuple[str, int]]) -> Iterator[Path]:
    """A Slurm with several slurmd on this machine; its folder, with SLURM_CONF set meanwhile.

    `nodes`: type and number of the GPUs of each.
    """
    needed("slurmctld", "slurmd", "scontrol")
    folder, before = Path(tempfile.mkdtemp(prefix="nest-slurm-")), os.environ.get("SLURM_CONF")
    host, (port, *ports) = socket.gethostname().partition(".")[0], free_ports(1 + len(nodes))
    rows, gres = [SLURM.format(host=host, port=port, folder=folder)], []
    for name in ("state", "spool", "pid"):
        (folder / name).mkdir()
    for (name, (kind, count)), own in zip(nodes.items(), ports, strict=True):
        for gpu in range(count):
            (folder / f"gpu{gpu}").touch()
        rows.append(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs=8 Gres=gpu:{kind}:{count}\n"
        )
        gres.append(f"NodeName={name} Name=gpu Type={kind} File={folder}/gpu[0-{count - 1}]\n")
    (folder / "slurm.conf").write_text("".join(rows))
    (folder / "gres.conf").write_text("".join(gres))
    (folder / "topology.conf").write_text(topology)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        run("slurmctld")
        for name in nodes:
            run("slurmd", "-N", name)
        _wait(lambda: run("sinfo", "-h", "-o", "%T", "-t", "idle").strip() == "idle" and _idle() == len(nodes))
        yield folder
    finally:
        for pid in (folder / "pid").iterdir():
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGTERM)
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)
        _wait(lambda: not any((folder / "pid").iterdir()), fail=False)
        shutil.rmtree(folder, ignore_errors=True)


def _idle() -> int:
    return len(run("sinfo", "-h", "-N", "-o", "%N", "-t", "idle").split())


def _wait(done: Callable[[], bool], *, fail: bool = True) -> None:
    """Poll until something holds, for half a minute."""
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    assert not fail, "the tools did not start in half a minute"


@contextmanager
def fabric(links: Sequence[tuple[str, str]], slow: Collection[int] = ()) -> Iterator[Callable[..., str]]:
    """A fabric that ibsim simulates, 4xQDR; what runs a command that looks at it.

    `links`: the two ends of each, NICs as `HOST/RAIL`.
    `slow`: numbers of links that have one lane.
    """
    needed("ibsim", "ibnetdiscover")
    ports: dict[str, list[str]] = {}
    for number, ends in enumerate(links):
        here = [(end.replace("/", " HCA-"), len(ports.setdefault(end, [])) + 1) for end in ends]
        for end, (_, own), (other, far) in zip(ends, here, reversed(here), strict=True):
            ports[end].append(f'[{own}]\t"{other}"[{far}] w={1 if number in slow else 2} s=4\n')
    folder, name = Path(tempfile.mkdtemp(prefix="nest-ib-")), f"nest{os.getpid()}"
    (folder / "net").write_text(
        "".join(
            f'{"Hca" if "/" in end else "Switch"} {max(2, len(rows))} "{end.replace("/", " HCA-")}"\n{"".join(rows)}\n'
            for end, rows in ports.items()
        )
    )
    environment = {**os.environ, "IBSIM_SOCKNAME": name}
    with (folder / "log").open("w") as log:
        program = subprocess.Popen(
            ["ibsim", "-s", "net"], cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )
    first = next(end for end in ports if "/" in end).replace("/", " HCA-")
    library = next(Path("/usr/lib").rglob("libumad2sim.so"))

    def look(*command: str) -> str:
        return run(*command, LD_PRELOAD=str(library), SIM_HOST=first, IBSIM_SOCKNAME=name)

    try:
        _wait(lambda: "MaxMcastCap" in (folder / "log").read_text())
        yield look
    finally:
        program.kill()
        program.wait()
        shutil.rmtree(folder, ignore_errors=True)


AGENT = """#!/bin/bash
# In place of ssh: runs the command on this machine, under the name of the other.
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
exec unshare --uts bash -c "hostname $host; $*"
"""


def mpi(folder: Path, script: Path, *command: str) -> str:
    """What a launch script for Open MPI prints, on machines of 8 cores that are all this one."""
    needed("mpirun", "lstopo")
    if os.geteuid():
        pytest.skip("needs root: machines get names of their own by unshare")
    (folder / "agent").write_text(AGENT)
    (folder / "agent").chmod(0o755)
    (folder / "cores.xml").write_text(run("lstopo", "-i", "pack:1 core:8 pu:1", "--of", "xml"))
    return run(
        "bash", str(script), *command, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_plm_rsh_agent=str(folder / "agent"), OMPI_MCA_plm_rsh_no_tree_spawn="1",
        OMPI_MCA_rmaps_base_display_map="1", HWLOC_XMLFILE=str(folder / "cores.xml"),
    )  # fmt: skip
