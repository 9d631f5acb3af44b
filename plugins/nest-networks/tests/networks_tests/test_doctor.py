"""`nest topology doctor`: what is wrong or odd, and what it costs a plan."""

import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.formulate.cluster import from_file
from nest.hooks.registry import registry
from nest.spec import ClusterSpec
from networks_tests.fabrics import ibnetdiscover
from networks_tests.test_ibnetdiscover import WIDE, slowed
from networks_tests.test_kubernetes import condition, listed
from networks_tests.test_labels import node as labelled
from networks_tests.test_labels import placed
from networks_tests.test_nvidia_smi import alike, table
from tests.command_line import Caller

GOOD = ibnetdiscover(WIDE.links(), "4xNDR", nics=False)
SLOW = slowed(GOOD, "dgx-001 HCA-3")


def rows(section: ClusterSpec) -> list[dict[str, Any]]:
    return [
        {"fanout": each.fanout, "link": each.link, "bandwidth": each.bandwidth, "name": each.name}
        for each in section.levels or ()
    ]


def plan(folder: Path, file: Path, **cluster: Any) -> Path:
    """A plan on the cluster of a file, priced and not searched."""
    section = from_file(ClusterSpec(topology=str(file)), registry(), None)
    problem = {
        "nest": 1,
        "model": "gpt2",
        "training": {"global_batch": 480, "sequence_length": 1024},
        "cluster": {"levels": rows(section), "device": section.device, "hosts": list(section.hosts or ()), **cluster},
        "search": {"target": "none"},
    }
    path = folder / "plan.json"
    path.write_text(json.dumps(nest.evaluate(problem, fix={"dp": 48, "micro_batch": 1}).to_dict()))
    return path


@pytest.fixture
def doctor(call: Caller) -> Any:
    return lambda *arguments: call("topology", "doctor", *arguments)[:2]


def written(folder: Path, content: Any, name: str = "file") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.longer
def test_a_slow_rail_and_its_cost(doctor: Any, tmp_path: Path) -> None:
    good, slow = written(tmp_path, GOOD, "good"), written(tmp_path, SLOW, "slow")
    code, text = doctor(good)
    assert (code, text.splitlines()[1:]) == (0, ["Nothing is wrong or odd."])
    made = plan(tmp_path, good)
    code, text = doctor(slow, "--plan", made)
    assert code == 1
    assert "wrong  Slow links: dgx-001 (12.5 GB/s, mostly it is 50)" in text
    healthy, sick = (nest.evaluate(plan_on(made, file)).batch_time for file in (good, slow))
    assert healthy is not None
    assert sick is not None
    document = json.loads(doctor(slow, "--plan", made, "--json")[1])
    (finding,) = document["findings"]
    assert f"Costs {100 * (sick / healthy - 1):.1f} %" in finding["cost"]


def plan_on(made: Path, file: Path) -> dict[str, Any]:
    """The problem of a plan with the levels of another file."""
    section = from_file(ClusterSpec(topology=str(file)), registry(), None)
    problem = json.loads(made.read_text())["problem"]
    return {
        **problem,
        "cluster": {**problem["cluster"], "levels": rows(section)},
        "fixed": {"dp": 48, "micro_batch": 1},
    }


def test_oversubscription_costs_and_is_odd(doctor: Any, tmp_path: Path) -> None:
    narrow = written(tmp_path, ibnetdiscover(FEWER.links(), "4xNDR", nics=False))
    code, text = doctor(narrow, "--plan", plan(tmp_path, narrow))
    assert code == 0
    assert "odd    spine is oversubscribed 3 to 1" in text
    assert "Costs " in text


FEWER = type(WIDE)(pods=1, units=2, hosts=3, rails=8, spines=1, uplinks=1, cores=1, core_links=1)


@pytest.mark.longer
def test_hosts_that_are_down_and_hosts_of_the_plan_that_are_gone(doctor: Any, tmp_path: Path) -> None:
    product = {"gpu.nvidia.com/model": "H100", "topology.nebius.com/tier-1": "leaf"}
    nodes = [labelled(f"n{at}", **product) for at in range(6)]
    made = plan(tmp_path, written(tmp_path, listed(*nodes)))
    nodes[2]["status"] = condition("False")
    code, text = doctor(written(tmp_path, listed(*nodes)), "--plan", made)
    assert code == 1
    assert "wrong  Left out: n2 (1 host), which are not ready." in text
    assert "wrong  The plan uses n2 (1 host), which cannot be planned with." in text
    assert "The plan has 48 devices, the file 40" in text
    bare = labelled("login", 0)
    assert "odd    Left out: login" in doctor(written(tmp_path, listed(bare, *nodes[3:])))[1]


@pytest.mark.longer
def test_an_infeasible_plan_has_no_costs(call: Caller, tmp_path: Path) -> None:
    fabric = written(tmp_path, GOOD)
    made = json.loads(plan(tmp_path, fabric).read_text())
    made |= {"status": "infeasible", "batch_time": None, "lower_bound": None, "stages": []}
    path = written(tmp_path, made, "infeasible.json")
    code, _, err = call("topology", "doctor", fabric, "--plan", path)
    assert code == 2
    assert "infeasible.json: this plan is infeasible" in err


def test_an_order_that_crosses_switches(doctor: Any, tmp_path: Path) -> None:
    keys = ["topology.nebius.com/tier-1", "topology.nebius.com/tier-2"]
    whole = placed(*keys, **{"gpu.nvidia.com/model": "H100"})
    for item in whole["items"]:
        at = int(item["metadata"]["name"][1:])
        item["metadata"]["labels"][keys[0]] = f"p{at % 4}"
        item["metadata"]["labels"][keys[1]] = "top"
    code, text = doctor(written(tmp_path, whole))
    assert code == 0
    assert "odd    Hosts in the order of their names cross switches: 4 of 4 groups of 2" in text
    assert "cross switches" not in doctor(written(tmp_path, placed(*keys, **{"gpu.nvidia.com/model": "H100"})))[1]


def test_faults_of_one_machine(doctor: Any, tmp_path: Path) -> None:
    cells = [[("NODE" if 3 in (one, two) else "NV18") if one != two else "X" for two in range(8)] for one in range(8)]
    code, text = doctor(written(tmp_path, table(cells)), "--link-profile", "h100-ndr")
    assert code == 1
    assert "wrong  GPU3 has no NVLink, the other 7 devices do" in text
    assert doctor(written(tmp_path, table(alike(8, "NV18"))), "--link-profile", "h100-ndr")[0] == 0
    assert "wrong  GPU3 has no NVLink" in doctor(written(tmp_path, table(cells)))[1]  # Nobody says what they are.


def test_at_most_ten_lines_and_bad_input(doctor: Any, tmp_path: Path) -> None:
    states = ["DOWN", "DRAIN", "FAIL", "MAINT", "INVAL", "ERROR", "RESERVED", "FUTURE", "DOWN*", "IDLE*", "NO_RESPOND"]
    named = [*((f"b{at}", state) for at, state in enumerate(states)), ("n[1-2]", "IDLE")]
    lines = "".join(f"NodeName={name} Gres=gpu:h100:8 State={state}\n" for name, state in named)
    code, text = doctor(written(tmp_path, lines))
    assert (code, len(text.splitlines())) == (1, 10)
    assert "more (`--json` has all)" in text.splitlines()[-1]
    assert doctor(tmp_path / "absent")[0] == 2
