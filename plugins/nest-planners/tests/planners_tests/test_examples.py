"""The example adapters, with a small script in place of each authors' program, which is not here."""

import importlib.util
import json
import shlex
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from benchmarks.planners.judge import Judge
from benchmarks.planners.tracks import tasks
from planners_tests.test_adapters import answered, program

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "planners"
TASKS = {task.name: task for track in ("traps", "optimum") for task in tasks(track)}

CUTS = """
import json, sys
from itertools import combinations, pairwise

given = json.load(sys.stdin)
nodes = [node["id"] for node in given["nodes"]]
assert nodes == sorted(nodes)

def cuts(most):
    for count in range(min(most, len(nodes))):
        for ends in combinations(range(1, len(nodes)), count):
            yield [nodes[a:b] for a, b in pairwise((0, *ends, len(nodes)))]
"""
"""Both programs, for chains: every cut, the least slowest stage."""

PIPER = (
    CUTS
    + """
assert set(given) == {"maxMemoryPerDevice", "maxDevices", "bandwidth", "mbsInBatch", "nodes", "edges"}
((width,),) = {tuple(node["TMPCs"]) for node in given["nodes"]}
assert given["mbsInBatch"] > given["maxDevices"]
assert all(given["mbsInBatch"] % number for number in range(2, given["maxDevices"] + 1))
best = (1e30, None)
for stages in cuts(given["maxDevices"] // int(width)):
    loads, result = [], []
    for place, stage in enumerate(stages):
        options = []
        for way in range(len(given["nodes"][0]["TMPCs"][width])):
            chosen = [given["nodes"][node]["TMPCs"][width][way] for node in stage]
            memory = sum(each["memoryUsageA"] * (len(stages) - place) + each["memoryUsageB"] for each in chosen)
            moved = 0.0
            for edge in given["edges"]:
                a, b = edge["sourceId"], edge["destId"]
                if (a in stage) != (b in stage):
                    own = given["nodes"][a if a in stage else b]["TMPCs"][width][way]
                    sync = own["syncTimeBw"][str(b)] if a in stage else own["syncTimeFw"][str(a)]
                    moved += 2 * (edge["communicationCost"] + sync)
            if memory <= given["maxMemoryPerDevice"]:
                time = sum(each["timePerSample"] for each in chosen) + moved / given["bandwidth"]
                options.append((time, way, chosen[0]["id"]))
        load, _, name = min(options, default=(1e30, 0, ""))
        loads.append(load)
        result.append({"nodes": stage, "dataParallelDegree": 1, "tensorParallelDegree": int(width),
                       "TMPCids": [[node, name] for node in stage]})
    best = min(best, (max(loads), result), key=lambda each: each[0])
print(json.dumps({"stages": best[1] or []}))
"""
)

DNN_PARTITIONING = (
    CUTS
    + """
assert set(given) == {"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"}
assert given["maxCPUs"] == 0 and all(node["supportedOnFpga"] and not node["isBackwardNode"] for node in given["nodes"])
cost = {}
for edge in given["edges"]:
    assert cost.setdefault(edge["sourceId"], edge["cost"]) == edge["cost"]
best = None
for stages in cuts(given["maxFPGAs"]):
    machines = []
    for stage in stages:
        load = sum(given["nodes"][node]["fpgaLatency"] for node in stage)
        for source in cost:
            readers = [edge["destId"] for edge in given["edges"] if edge["sourceId"] == source]
            if source in stage and any(reader not in stage for reader in readers):
                load += cost[source]
            if source not in stage and any(reader in stage for reader in readers):
                load += cost[source]
        machines.append({"load": load, "nodes": stage})
    fits = all(sum(given["nodes"][node]["size"] for node in each) <= given["maxSizePerFPGA"] for each in stages)
    largest = max(each["load"] for each in machines)
    if fits and (best is None or largest < best["maxLoad"]):
        best = {"maxLoad": largest, "fpgas": machines[::-1] + [{"load": 0.0, "nodes": []}], "cpus": []}
if best is None:
    print("FAIL: computed max load != max load from DP")
    sys.exit(1)
print(json.dumps(best))
"""
)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def command(name: str, *arguments: str) -> str:
    """The command of an example."""
    return shlex.join([sys.executable, str(EXAMPLES / f"{name}.py"), *arguments])


@pytest.mark.parametrize(("name", "ratio"), {"even": 1.0, "recompute": 1.0, "skip": 1.408}.items())
def test_piper_is_asked_in_its_format_and_its_stages_are_read(name: str, ratio: float, tmp_path: Path) -> None:
    row = answered(command("piper", "--program", program(tmp_path, PIPER)), TASKS[name])
    assert row.reason is None
    assert row.ratio == pytest.approx(ratio, abs=1e-3)


@pytest.mark.longer
@pytest.mark.parametrize(("name", "ratio"), {"even": 1.0, "skip": 1.0, "recompute": 1.235}.items())
def test_dnn_partitioning_is_asked_in_its_format_and_its_split_is_read(name: str, ratio: float, tmp_path: Path) -> None:
    row = answered(command("dnn_partitioning", "--program", program(tmp_path, DNN_PARTITIONING)), TASKS[name])
    assert row.reason is None
    assert row.ratio == pytest.approx(ratio, abs=1e-3)


NOTHING = {
    "piper": "print('{\"stages\": []}')",
    "dnn_partitioning": "print('FAIL: computed max load != max load from DP')\nraise SystemExit(1)",
}
"""How each program says that nothing fits."""


@pytest.mark.parametrize(("name", "text"), NOTHING.items())
def test_a_program_without_a_plan_is_an_answer(name: str, text: str, tmp_path: Path) -> None:
    row = answered(command(name, "--program", program(tmp_path, text)), TASKS["even"])
    assert row.reason == "by its own count no plan fits."


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize(
    ("text", "reason"),
    {
        "print('FAIL: wrong bandwidth')\nraise SystemExit(1)": "ended with exit code 1: FAIL: wrong bandwidth",
        "import os\nos.kill(os.getpid(), 11)": "ended with exit code -11: it told nothing",
        "print('Segmentation')": "wrote no JSON document.",
    }.items(),
)
def test_a_program_that_fails_is_told_from_one_without_a_plan(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    row = answered(command(name, "--program", program(tmp_path, text)), TASKS["even"])
    assert row.reason == f"it ended with exit code 1: {name.upper()} {reason}"


def test_a_program_that_is_not_there_is_told() -> None:
    row = answered(command("piper", "--program", "/no/such/program"), TASKS["even"])
    assert str(row.reason).startswith("it ended with exit code 1: PIPER cannot be started: ")


@pytest.mark.parametrize("name", ["piper", "dnn_partitioning"])
def test_an_adapter_without_its_program_says_how_to_name_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name.upper(), raising=False)
    row = answered(command(name), TASKS["even"])
    assert row.reason == f"it ended with exit code 1: no program: set {name.upper()}, or give --program COMMAND."


def test_an_adapter_takes_its_program_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPER", program(tmp_path, PIPER))
    assert answered(command("piper"), TASKS["even"]).ratio == 1


def test_piper_has_the_keys_that_its_authors_files_have(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = json.loads((shared / "piper" / "bert32a100.json").read_text())
    example = module("piper", monkeypatch)
    problem = TASKS["recompute"].problem
    ours = example.instance(problem, example.shapes(problem)[0])
    assert _keys(ours) == _keys(theirs)


def test_nodes_that_recompute_are_counted_where_a_stage_may_recompute_some(monkeypatch: pytest.MonkeyPatch) -> None:
    example, judge = module("piper", monkeypatch), Judge(TASKS["partial"])
    shape = example.shapes(judge.task.problem)[0]
    ways = ["vanilla", "activation recomp", "vanilla", "vanilla"]
    # As the program writes them: the last stage first, its map as pairs.
    result = {
        "stages": [
            {"nodes": [4, 5, 6, 7], "TMPCids": [[node, "vanilla"] for node in (7, 6, 5, 4)]},
            {"nodes": [0, 1, 2, 3], "TMPCids": [[node, ways[node]] for node in (3, 2, 1, 0)]},
        ]
    }
    stages, recompute = example.stages_of(judge.task.problem, shape, result)
    assert stages == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert recompute == [{"recompute": "full", "recompute_layers": 1, "recompute_rest": "none"}, {"recompute": "none"}]
    assert example.slowest(judge.task.problem, shape, stages, recompute) == 4.25
    plan = example.plan(judge.task.problem, shape, stages, recompute)
    assert judge.row("piper", judge.decisions(plan)).ratio == 1


def _keys(instance: dict[str, Any]) -> list[Any]:
    node = next(node for node in instance["nodes"] if "1" in node["TMPCs"])
    choices = node["TMPCs"]["1"]
    found = [instance, node, choices[0], instance["edges"][0]]
    return [*map(sorted, found), [each["id"] for each in choices], {type(key) for key in node["TMPCs"]}]


@pytest.mark.longer
@pytest.mark.parametrize("name", TASKS)
def test_a_random_plan_is_a_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example, judge = module("random_planner", monkeypatch), Judge(TASKS[name])
    random = Random(name)
    every = (example.drawn(judge.task.problem, random) for _ in range(10_000))
    plans = list(islice((plan for plan in every if plan is not None), 3))
    assert plans
    for plan in plans:
        row = judge.row("random", judge.decisions(plan))
        assert row.reason is None
        assert row.ratio is not None
        assert row.ratio >= 1 - 1e-9


@pytest.mark.longer
def test_the_random_planner_repeats_itself_and_draws_others_from_another_seed() -> None:
    problem = json.dumps(TASKS["chain-0"].problem)

    def written(seed: str) -> str:
        line = [sys.executable, str(EXAMPLES / "random_planner.py"), "--seed", seed]
        return subprocess.run(line, input=problem, capture_output=True, text=True, check=True).stdout

    assert written("1") == written("1") != written("2")
