"""Jobs: batch scripts are run by bash with a stand-in for srun, manifests are read as Kubernetes would start them."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from ruamel.yaml import YAML

import nest
from frameworks_tests.plans import plan
from frameworks_tests.test_launchers import agrees, stands_in, visible
from nest.errors import InputError
from nest.hooks.placements import placement
from nest.spec import PlanDocument
from nest_frameworks.commands import SCRIPT, command
from nest_frameworks.kubernetes_jobs import jobset, pytorchjob
from nest_frameworks.megatron.flags import flag_groups
from nest_frameworks.megatron.notation import given_words
from nest_frameworks.megatron.reading.read import read_megatron
from nest_frameworks.slurm_job import sbatch
from tests.deployment.plans import Decisions, decisions, made_up

__all__ = ["stands_in"]

TOLD = 'printf "%s\\n" "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${CUDA_VISIBLE_DEVICES-}"'
FEW = settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
WORDS = {"type": "array", "items": {"type": "string"}}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    """An object of these fields and no others, as an API server in strict mode takes it."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


ENV = fields(
    "name",
    name={"type": "string"},
    value={"type": "string"},
    valueFrom=fields(fieldRef=fields("fieldPath", fieldPath={"type": "string"})),
)
CONTAINER = fields(
    "name",
    name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    image={"type": "string"},
    command=WORDS,
    args=WORDS,
    env={"type": "array", "items": ENV},
    ports={
        "type": "array",
        "items": fields("containerPort", name={"maxLength": 15}, containerPort={"type": "integer"}),
    },
    resources=fields(limits={"type": "object", "additionalProperties": {"type": ["integer", "string"]}}),
    volumeMounts={"type": "array", "items": fields("name", "mountPath", name={}, mountPath={"type": "string"})},
)
TERM = fields("key", "operator", key={}, operator={"enum": ["In"]}, values=WORDS)
AFFINITY = fields(
    nodeAffinity=fields(
        requiredDuringSchedulingIgnoredDuringExecution=fields(
            "nodeSelectorTerms",
            nodeSelectorTerms={"items": fields(matchExpressions={"type": "array", "items": TERM})},
        )
    ),
    podAntiAffinity=fields(
        requiredDuringSchedulingIgnoredDuringExecution={
            "type": "array",
            "items": fields(
                "topologyKey", topologyKey={"const": "kubernetes.io/hostname"}, labelSelector=fields(matchLabels=TEXTS)
            ),
        }
    ),
)
VOLUME = fields(
    "name", name={}, emptyDir=fields(medium={"enum": ["Memory"]}), configMap=fields(name={"type": "string"})
)
POD = fields(
    metadata=fields(annotations=TEXTS, labels=TEXTS),
    spec=fields(
        "containers",
        restartPolicy={"enum": ["Never"]},
        containers={"type": "array", "items": CONTAINER},
        volumes={"type": "array", "items": VOLUME},
        affinity=AFFINITY,
    ),
)
JOB = fields(
    "template",
    parallelism={"type": "integer"},
    completions={"type": "integer"},
    completionMode={"enum": ["Indexed"]},
    backoffLimit={"type": "integer"},
    template=POD,
)
METADATA = fields("name", name={"type": "string"}, labels=TEXTS)
JOBSET = fields(
    "apiVersion",
    "kind",
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=METADATA,
    spec=fields(
        replicatedJobs={
            "type": "array",
            "items": fields("name", "template", name={}, replicas={"type": "integer"}, template=fields(spec=JOB)),
        }
    ),
)
"""The fields in use, from kubernetes-sigs/jobset@08dfbdf config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml."""

REPLICAS = fields(replicas={"type": "integer"}, restartPolicy={"enum": ["Never", "OnFailure"]}, template=POD)
PYTORCHJOB = fields(
    "apiVersion",
    "kind",
    apiVersion={"const": "kubeflow.org/v1"},
    kind={"const": "PyTorchJob"},
    metadata=METADATA,
    spec=fields(
        "pytorchReplicaSpecs",
        nprocPerNode={"type": "string"},
        pytorchReplicaSpecs=fields(Master=REPLICAS, Worker=REPLICAS),
    ),
)
"""From kubeflow/training-operator v1.9.0 manifests/base/crds/kubeflow.org_pytorchjobs.yaml."""

SCHEMAS = {"JobSet": JOBSET, "PyTorchJob": PYTORCHJOB}

Pod = tuple[Mapping[str, Any], dict[str, str]]
"""The template of a pod, and what it is told."""


def job_of(files: Mapping[str, str]) -> dict[str, Any]:
    """The one job in the one file, which keeps to the schema of its kind."""
    (text,) = files.values()
    (job,) = (each for each in YAML(typ="safe").load_all(text) if each["kind"] != "ConfigMap")
    jsonschema.Draft202012Validator(SCHEMAS[job["kind"]]).validate(job)
    return dict(job)


def pods(job: Mapping[str, Any]) -> Iterator[Pod]:
    """The template of each pod, and the variables that its controller gives it (JobSet; kubeflow's envvar.go)."""
    if job["kind"] == "JobSet":
        for each in job["spec"]["replicatedJobs"]:
            spec = each["template"]["spec"]
            for index in range(spec["completions"]):
                yield spec["template"], {"NODE_RANK": str(index)}
        return
    at = 0
    for each in job["spec"]["pytorchReplicaSpecs"].values():
        for _ in range(each["replicas"]):
            told = {"PET_NODE_RANK": str(at), "MASTER_ADDR": "nest-master-0", "MASTER_PORT": "29500"}
            yield each["template"], told
            at += 1


def nodes_of(pod: Mapping[str, Any]) -> list[str]:
    """Where a pod may run; empty: anywhere."""
    if "affinity" not in pod:
        return []
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return list(term["matchExpressions"][0]["values"])


def shunned(pod: Mapping[str, Any], placed: Mapping[str, list[Mapping[str, str]]]) -> set[str]:
    """Nodes whose pods, by their labels, keep a pod away: the scheduler itself puts several on one node."""
    terms = pod["affinity"].get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    wanted = [each["labelSelector"]["matchLabels"].items() for each in terms]
    return {name for name, held in placed.items() for own in held if any(each <= own.items() for each in wanted)}


def started(job: Mapping[str, Any], folder: Path, programs: Path) -> list[tuple[str, list[str]]]:
    """What each pod starts, on the first node it may run on."""
    placed: dict[str, list[Mapping[str, str]]] = {}
    found = []
    for number, (template, told) in enumerate(pods(job)):
        pod = template["spec"]
        (container,) = pod["containers"]
        node = next((name for name in nodes_of(pod) if name not in shunned(pod, placed)), f"node{number}")
        placed.setdefault(node, []).append(template["metadata"].get("labels", {}))
        own = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        known = {**own, **told, "NODE_NAME": node}

        def expand(word: str, known: Mapping[str, str] = known) -> str:
            return re.sub(
                r"\$\$|\$\(([A-Z_]+)\)", lambda m: "$" if not m[1] else known.get(m[1], m[0]), word
            )  # fmt: skip

        words = [expand(word) for word in (*container["command"], *container["args"])]
        done = subprocess.run(
            words,
            env={**os.environ, **known, "PATH": f"{programs}:{os.environ['PATH']}"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append((node, done.stdout.splitlines()))
    return found


TORCHRUN = """#!/usr/bin/env python3
import os, subprocess, sys
options = dict(each.lstrip("-").split("=", 1) for each in sys.argv[2:8])
assert sys.argv[1] == "--no-python" and options["rdzv-backend"] == "static", sys.argv
count, node = int(options["nproc-per-node"]), int(options["node-rank"])
for local in range(count):
    own = {"RANK": node * count + local, "LOCAL_RANK": local, "WORLD_SIZE": int(options["nnodes"]) * count}
    told = {**os.environ, **{name: str(value) for name, value in own.items()}, "MASTER_ADDR": options["master-addr"]}
    subprocess.run(["bash", "-c", os.environ["TOLD"]], env=told, check=True)
"""
"""torchrun where every node has as many processes: it numbers them node by node."""


@pytest.mark.longer
@FEW
@given(one=decisions())
@pytest.mark.parametrize("write", [jobset, pytorchjob])
def test_pods_start_every_rank_in_its_place(write: Any, one: Decisions, tmp_path: Path) -> None:
    hosts = [f"h{index}" for index in range(one.devices // one.fanouts[0])]
    for made in (made_up(one), made_up(one, hosts=hosts)):
        placed = placement(made)
        names = list(dict.fromkeys(each.node for each in placed))
        even = len({len(visible(placed, name)) for name in names}) == 1
        if not placed[0].named and names != [f"node{number}" for number in range(len(names))]:
            with pytest.raises(InputError, match="machines between"):
                write(made)
            continue
        job = job_of(write(made))
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "torchrun").write_text(TORCHRUN)
        (programs / "torchrun").chmod(0o755)
        (programs / "python").write_text(f"#!/usr/bin/env bash\n{TOLD}\n")
        (programs / "python").chmod(0o755)
        os.environ["TOLD"] = TOLD
        try:
            found = started(job, tmp_path, programs)
        finally:
            del os.environ["TOLD"]
        assert [name for name, _ in found] == names or {name for name, _ in found} == set(names)
        if even:  # The stand-in, like torchrun, is told of the processes of its own node only.
            told = [f"{name} {line}" for name, lines in found for line in lines]
            masters = {line.split(" ")[4] for line in told}
            assert len(masters) == 1
            agrees(placed, [line.replace(f" {next(iter(masters))}", f" {placed[0].node}", 1) for line in told])


@pytest.mark.longer
@FEW
@given(one=decisions())
def test_batch_scripts_start_every_rank_in_its_place(one: Decisions, tmp_path: Path, stands_in: Path) -> None:
    hosts = [f"h{index}" for index in range(one.devices // one.fanouts[0])]
    for made, named in ((made_up(one), False), (made_up(one, hosts=hosts), True)):
        placed = placement(made)
        if not named and len({tuple(visible(placed, name)) for name in {each.node for each in placed}}) > 1:
            with pytest.raises(InputError, match=r"cluster\.hosts"):
                sbatch(made)
            continue
        (text,) = sbatch(made).values()
        (tmp_path / "job.sh").write_text(text)
        (tmp_path / "python").write_text(f"#!/usr/bin/env bash\n{TOLD}\n")
        (tmp_path / "python").chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        clean |= {"PATH": f"{tmp_path}:{stands_in}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "x"}
        done = subprocess.run(
            ["bash", str(tmp_path / "job.sh")], env=clean, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        agrees(placed, [re.sub(r"host(\d+)-x", r"node\1", line) for line in done.stdout.splitlines()])
        asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
        assert int(asked["ntasks"]) == len(placed)
        assert int(asked["nodes"]) >= len({each.node for each in placed})
        assert int(asked["gpus-per-node"]) > max(each.gpu for each in placed)


@pytest.fixture(scope="module")
def megatron() -> PlanDocument:
    """A plan of two machines."""
    return nest.solve(
        {
            "nest": 1,
            "model": "llama-3-8b",
            "training": {"global_batch": 32, "sequence_length": 2048},
            "cluster": {
                "device": "h100-sxm",
                "levels": [
                    {"fanout": 4, "bandwidth": 450e9, "link": "nvlink"},
                    {"fanout": 4, "bandwidth": 50e9, "link": "infiniband-ndr"},
                ],
            },
            "fixed": {"tp": 2, "pp": 2, "zero": 1, "recompute": "full"},
        }
    )


@pytest.mark.longer
@pytest.mark.parametrize("write", [jobset, pytorchjob, sbatch])
def test_the_command_is_that_of_the_framework_and_is_read_back(write: Any, megatron: PlanDocument) -> None:
    words = ("python", "pretrain_gpt.py", *given_words(flag_groups(megatron)))
    (text,) = write(megatron).values()
    if write is sbatch:
        assert text.endswith(f'\' rank {shlex.join(words)} "$@"\n')
    else:
        for pod, _ in pods(job_of(write(megatron))):
            assert tuple(pod["spec"]["containers"][0]["args"]) == words
    reading = read_megatron(text)
    assert reading.devices == len(placement(megatron))
    assert (reading.settings["fixed"]["tp"], reading.settings["fixed"]["pp"]) == (2, 2)


def test_a_plan_without_a_target_says_what_is_yours() -> None:
    made = made_up(Decisions((2, 4), 1, 1, 1, 1, 1, 4, "pp-inner", (0, 1)))
    for write in (jobset, pytorchjob, sbatch):
        (text,) = write(made).values()
        assert f"# {SCRIPT} stands for yours." in text


@pytest.mark.longer
def test_files_of_a_framework_travel_with_the_job() -> None:
    made = plan({"tp": 2, "sp": 2, "pp": 1, "zero": 3, "recompute": "none"})
    made.problem["search"] = {"target": "torchtitan"}
    run = command(made, "/nest")
    assert "torchtitan.toml" in run.files
    assert "/nest/torchtitan.toml" in run.words
    (text,) = jobset(made).values()
    first, second = YAML(typ="safe").load_all(text)
    assert (first["kind"], first["data"]) == ("ConfigMap", dict(run.files))
    volumes = second["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "files", "configMap": {"name": first["metadata"]["name"]}} in volumes
    batch = sbatch(made)
    assert batch.keys() == {"slurm_job.sh", *run.files}
    assert '"$NEST_FILES"/torchtitan.toml' in batch["slurm_job.sh"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nanotron", "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"),
        ("galvatron", 'runtime.parallel.galvatron_config_path="$NEST_FILES"/galvatron_config.json'),
    ],
)
def test_a_job_has_what_the_framework_asks_for(target: str, told: str) -> None:
    made = plan({"tp": 2, "sp": 2, "dp": 8})
    made.problem["search"] = {"target": target}
    assert told in sbatch(made)["slurm_job.sh"]


@pytest.mark.parametrize("target", ["accelerate", "maxtext"])
def test_frameworks_that_start_their_own_processes_are_refused(target: str) -> None:
    made = made_up(Decisions((2, 4), 1, 1, 1, 1, 1, 8, "pp-inner", (0,)))
    made.problem["search"] = {"target": target}
    with pytest.raises(InputError, match=f"with what command {target} is run"):
        jobset(made)


def test_kueue_is_told_of_groups_only_where_there_are_several() -> None:
    several = made_up(Decisions((2, 2, 2), 1, 1, 1, 1, 1, 8, "pp-inner", (0,)))
    one = made_up(Decisions((2, 4), 1, 1, 1, 1, 1, 8, "pp-inner", (0,)))
    assert 'podset-slice-size: "2"' in jobset(several)["jobset.yaml"]
    assert "podset-slice" not in jobset(one)["jobset.yaml"]
