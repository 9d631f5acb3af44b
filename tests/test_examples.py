"""Every example runs, is proved to be within `search.within`, checks, and has the same bytes whatever the hash seed."""

import json
import math
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import nest
from nest.formulate.risk import simpler_within
from nest.formulate.slips import slips_of_plan
from nest.io import structure
from nest.report.plan_summary import memory_capacity
from nest.spec import PlanDocument, Problem
from tests.simulate.traffic import overfull

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent.name for path in (REPOSITORY / "examples").glob("*/problem.yaml"))


def run(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nest", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )


SLOW = (
    "deepseek-v3-on-2048-h100",
    "llama-3.1-405b-on-1024-h100",
    "llama-3-8b-at-131072-tokens",
    "llama-3-70b-on-64-h100-and-128-a100",
    "llama-2-7b-on-64-h100",
    "llama-2-7b-on-tpu-v4-torus",
    "mixtral-8x7b-at-32768-tokens",
    "mixtral-8x7b-at-32768-tokens-on-a-slow-network",
    "mixtral-8x7b-on-64-h100",
    "which-interconnect",
)
"""The large take up to half a minute to solve; the others are solved once below."""
GAPS = {"llama-3.1-405b-on-1024-h100": 0.02}
"""Share of the step time left open where there are more ways to lay blocks into chunks than are replayed."""
TWICE = ("measured-layers", *SLOW)
"""A profile, and the slow: these are solved with two hash seeds."""


@pytest.mark.longer
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXAMPLES]
)
def test_example(name: str, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    first = run("solve", f"examples/{name}/problem.yaml", "--json", "--output", str(output), seed="1")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == output.read_text()
    if name in TWICE:
        assert run("solve", f"examples/{name}/problem.yaml", "--json", seed="2").stdout == first.stdout
    plan = json.loads(first.stdout)
    problem = structure(plan["problem"], Problem)
    within = {
        "optimal": 1e-9,
        "near-optimal": simpler_within(problem.search, problem.model),
        "feasible": GAPS.get(name, 0.0),
    }[plan["status"]]
    assert plan["fits"] is True
    assert plan["lower_bound"] * (1 - 1e-9) <= plan["batch_time"] <= plan["lower_bound"] * (1 + within)
    capacities = [memory_capacity(plan["summary"], stage.get("pool")) for stage in plan["stages"]]
    assert all(stage["memory"] <= room for stage, room in zip(plan["stages"], capacities, strict=True))
    assert [*slips_of_plan(structure(plan, PlanDocument), problem)] == []
    checked = run("check", str(output))
    assert checked.returncode == 0, checked.stdout
    assert overfull(nest.simulate(plan)) == []


def degrees(plan: PlanDocument) -> tuple[dict[str, int], int]:
    """The plan's degrees, and the devices of a block."""
    assert plan.candidate is not None
    return plan.candidate.degrees, plan.candidate.width


def test_every_example_is_listed() -> None:
    readme = (REPOSITORY / "examples" / "README.md").read_text()
    assert [name for name in EXAMPLES if f"({name}/problem.yaml)" not in readme] == []


@pytest.mark.longer
def test_the_study_of_interconnects_joins_a_thousand_devices(tmp_path: Path) -> None:
    folder = REPOSITORY / "examples" / "which-interconnect"
    script = spec_from_file_location("which_interconnect", folder / "study.py")
    assert script is not None
    assert script.loader is not None
    module = module_from_spec(script)
    script.loader.exec_module(module)
    for name, network in module.networks(25).items():
        levels = module.levels(name, network, tmp_path)
        assert math.prod(level["fanout"] for level in levels) == 1024
        assert levels[0] == {"name": "node", "fanout": 8, "link": "nvlink4"}
        # No GPU has more than its NIC, and some pair has all of that, or on a torus a link's sixth of a machine's.
        widest = max(level["bandwidth"] for level in levels[1:])
        assert widest == pytest.approx(25e9 * (8 / 6 / 8 if name == "torus" else 1))
