"""Plans on several kinds of device as files: what runs where, which frameworks take them, and why others do not."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import nest
from frameworks_tests.plans import DENSE
from frameworks_tests.test_launchers import TOLD, agrees
from nest import api
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.hooks.placements import placement
from nest.spec import PlanDocument
from nest_frameworks.megatron.notation import read_layout
from nest_frameworks.megatron.reading.read import read_megatron

NEW, OLD = 4, 8
"""Devices of the pools, four in a node."""


def problem(**changes: Any) -> dict[str, Any]:
    """A small model on a node of new devices and two of old ones, all of which plans must use."""
    node = {"fanout": 4, "bandwidth": "300 GB/s", "link": "nvlink"}
    rack = {"fanout": 2, "bandwidth": "25 GB/s", "link": "infiniband"}
    return {
        "nest": 1,
        "model": {"transformer": {**DENSE, "layers": 13}},
        "training": {"global_batch": 8, "sequence_length": 1024, "micro_batch": 1, "stack": "megatron-core"},
        "cluster": {
            "pools": [
                {"name": "new", "device": "h100-sxm", "levels": [node]},
                {"name": "old", "device": "a100-sxm-80g", "levels": [node, rack]},
            ],
            "between": [{"pools": ["new", "old"], "bandwidth": "25 GB/s", "latency": "5 us"}],
        },
        "constraints": ["pp >= 3", "tp == 2", "replicas == 2", "devices == 12"],
        **changes,
    }


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return nest.solve(problem())


def files(plan: PlanDocument, *to: str) -> Mapping[str, str]:
    return api.exported(plan, to).files


@pytest.mark.longer
def test_stages_of_several_pools_run_on_megatron_core(plan: PlanDocument) -> None:
    assert {stage.pool for stage in plan.stages} == {"new", "old"}
    assert set(plan.runs_on or ()) == {"megatron", "megatron-bridge"}
    text = files(plan, "megatron")["megatron_flags.sh"]
    (line,) = (each for each in text.splitlines() if "--pipeline-model-parallel-layout" in each)
    blocks = [chunk.count("t") for chunk in read_layout(line.split("'")[1])]
    assert blocks == [sum(name.startswith("layers.") for name in stage.layers) for stage in plan.stages]
    assert read_megatron(text).settings["fixed"]["tp"] == 2


def test_ranks_run_in_the_pool_of_their_stage(plan: PlanDocument) -> None:
    """Where section 8 of PROBLEM.md puts blocks, replica by replica."""
    sizes, width, replicas = {"new": NEW, "old": OLD}, 2, 2
    rows = list(csv.DictReader(io.StringIO(files(plan, "ranks")["ranks.csv"])))
    assert len({(row["node"], row["gpu"]) for row in rows}) == len(rows) == NEW + OLD
    for rank in placement(plan):
        stage, row = plan.stages[rank.rank.pp], rows[rank.rank.rank]
        own = width * (sizes[stage.pool or ""] // (replicas * width))
        step = own if plan.rank_order == "pp-inner" else width
        device = stage.devices[0] + rank.rank.replica * step + rank.rank.offset
        assert (row["node"], int(row["gpu"])) == (f"{stage.pool}-node{device // 4}", device % 4)
    text = files(plan, "megatron")["megatron_flags.sh"]
    told = next(each for each in text.splitlines() if each.startswith("# Ranks 0 to"))
    runs = [(pool, list(held)) for pool, held in groupby(rows, lambda row: row["node"].split("-")[0])]
    said = ", ".join(f"{held[0]['rank']} to {held[-1]['rank']} in pool {pool}" for pool, held in runs)
    assert told == f"# Ranks {said}."


def named(plan: PlanDocument, **hosts: list[str]) -> PlanDocument:
    pools = [{**pool, **({"hosts": hosts[pool["name"]]} if pool["name"] in hosts else {})} for pool in pools_of(plan)]
    return evolve(plan, problem={**plan.problem, "cluster": {**plan.problem["cluster"], "pools": pools}})


def pools_of(plan: PlanDocument) -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = plan.problem["cluster"]["pools"]
    return pools


def test_hosts_are_those_of_each_pool(plan: PlanDocument) -> None:
    given = named(plan, new=["h1"], old=["a1", "a2"])
    hosts = files(given, "megatron", "slurm")["slurm_hostfile.txt"].split()
    assert hosts == [rank.node for rank in placement(given)]
    assert {name: hosts.count(name) for name in hosts} == {"h1": 4, "a1": 4, "a2": 4}
    assert "--nodelist=a1,a2,h1" in files(given, "megatron", "sbatch")["slurm_job.sh"]
    with pytest.raises(InputError, match=r"need host names: list them as hosts of each of cluster\.pools"):
        files(named(plan, new=["h1"]), "megatron", "sbatch")


HET = """
import os, subprocess, sys
arguments, components, rest = sys.argv[1:], json.loads(os.environ["COMPONENTS"]), []
groups = [[]]
for place, word in enumerate(arguments):
    if word == "bash":
        rest = arguments[place:]
        break
    groups.append([]) if word == ":" else groups[-1].append(word)
total = 0
for index, words in enumerate(groups):
    options = dict(each.split("=") for each in words if "=" in each)
    assert int(options["--het-group"]) == index
    each, hosts = int(options["--ntasks-per-node"]), components[index]["nodelist"]
    assert int(words[words.index("-N") + 1]) == len(hosts)
    assert int(words[words.index("-n") + 1]) == each * len(hosts)
    assert options["--gpus-per-node"] == components[index]["gpus-per-node"]
    for task in range(each * len(hosts)):
        own = {"SLURM_PROCID": str(total), "SLURM_LOCALID": str(task % each), "SLURMD_NODENAME": hosts[task // each]}
        print(hosts[task // each], end=" ", flush=True)
        subprocess.run(rest, env={**os.environ, **own}, check=True)
        total += 1
"""
"""srun inside a heterogeneous job: tasks are numbered one component after the other, in each node by node."""


@pytest.mark.longer
@pytest.mark.parametrize("to", ["sbatch", "slurm"])
def test_machines_of_pools_are_asked_for_their_own_accelerators(
    plan: PlanDocument, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [{**pool, "devices_per_host": 4 if pool["name"] == "new" else 2} for pool in pools_of(plan)]
    cluster = {**plan.problem["cluster"], "pools": pools}
    uneven = evolve(plan, problem={**plan.problem, "cluster": cluster})
    given = named(uneven, new=["h1"], old=["a1", "a2", "a3", "a4"])
    ((name, text),) = ((each, held) for each, held in files(given, "megatron", to).items() if "slurm" in each)
    if to == "slurm":
        asked = [{"nodelist": each[1].split(","), "gpus-per-node": each[2]}
                 for each in re.findall(r"-N (\d+) -w (\S+) --gpus-per-node=(\d+)", text)]  # fmt: skip
    else:
        asked = []
        for part in text.split("#SBATCH hetjob\n"):
            options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", part, re.MULTILINE))
            asked.append({**options, "nodelist": options["nodelist"].split(",")})
    assert {host: each["gpus-per-node"] for each in asked for host in each["nodelist"]} == {
        "h1": "4", "a1": "2", "a2": "2", "a3": "2", "a4": "2",
    }  # fmt: skip
    if to == "sbatch":
        assert read_megatron(text).devices == NEW + OLD
    programs = {"srun": f"#!{sys.executable}\nimport json{HET}", "python": f"#!/bin/bash\n{TOLD}\n"}
    for program, content in programs.items():
        (tmp_path / program).write_text(content)
        (tmp_path / program).chmod(0o755)
    (tmp_path / name).write_text(text)
    monkeypatch.setenv("COMPONENTS", json.dumps(asked))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = subprocess.run(
        ["bash", str(tmp_path / name), "python"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    agrees(placement(given), done.stdout.splitlines())


@pytest.mark.longer
@pytest.mark.parametrize("to", ["deepspeed", "torchtitan", "nemo", "dot", "astra-sim", "jobset"])
def test_what_takes_one_kind_of_device_says_so(plan: PlanDocument, to: str) -> None:
    with pytest.raises(InputError, match="supports one device type") as raised:
        files(plan, to)
    assert "cluster.pools" in str(raised.value)


def test_stages_that_are_split_differently_are_refused(plan: PlanDocument) -> None:
    stages = [evolve(each, candidate=each.candidate.replace("new-tp2", "new-tp1")) for each in plan.stages]
    reasons = violations(evolve(plan, stages=tuple(stages)), Limits(strategies=("tp", "sp")), "toy")
    told = "stages differ in their parallelism (old-tp2-sp2-mb1, new-tp1-sp2-mb1)"
    assert [each for each in reasons if told in each] == reasons != []
    assert violations(plan, Limits(strategies=("tp", "sp")), "toy") == []


@pytest.mark.longer
def test_a_plan_in_one_pool_is_one_on_a_cluster() -> None:
    """All files are those of the same decisions where there is no other pool."""
    asked = problem(constraints=["pp == 1", "tp == 2", "zero == 0"])
    whole = nest.solve(asked)
    (pool,) = {stage.pool for stage in whole.stages}
    (spec,) = (each for each in asked["cluster"]["pools"] if each["name"] == pool)
    cluster = {key: value for key, value in spec.items() if key != "name"}
    alone = nest.solve({**asked, "cluster": cluster})
    assert whole.runs_on == alone.runs_on
    for name in (*(whole.runs_on or ()), "dot", "ranks", "jobset"):
        ours, theirs = files(whole, name), files(alone, name)
        assert json.dumps(ours).replace(f"{pool}-", "") == json.dumps(theirs)
