"""The real mpirun with nest's rankfiles: each rank on the machine that the plan says."""

from pathlib import Path

import pytest

from frameworks_tests.test_launchers import agrees
from nest.hooks.placements import placement
from nest_frameworks.launchers import mpi as launch
from networks_tests.real.test_slurm import PLANS
from networks_tests.real.tools import mpi
from tests.deployment.plans import Decisions, made_up

pytestmark = pytest.mark.conformance

TOLD = 'printf "%s\\n" "told $(hostname) $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${CUDA_VISIBLE_DEVICES-}"'


@pytest.mark.parametrize("one", PLANS.values(), ids=PLANS)
def test_rankfiles_put_ranks_where_the_plan_has_them(one: Decisions, tmp_path: Path) -> None:
    hosts = [f"n{at}" for at in (7, 2, 9, 4, 5, 11, 1, 12)]
    plan = made_up(one, hosts=hosts[: one.devices // one.fanouts[0]])
    placed = placement(plan)
    for name, text in launch(plan).items():
        (tmp_path / name).write_text(text)
    printed = mpi(tmp_path, tmp_path / "openmpi_launch.sh", "bash", "-c", TOLD)
    agrees(placed, [line.removeprefix("told ") for line in printed.splitlines() if line.startswith("told ")])
    node, shown = "", dict[int, str]()
    for line in printed.splitlines():  # As `mpirun --display-map` has it.
        node = line.split(":")[1].split()[0] if "Data for node:" in line else node
        if "Process rank:" in line:
            shown[int(line.split("Process rank:")[1].split()[0])] = node
    assert shown == {each.rank.rank: each.node for each in placed}
