"""Jobs of Kubernetes that launch Megatron-LM: what is in their pods, and on how many accelerators."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io.writing import yaml_text
from nest_frameworks.megatron.reading.launch import find_launch

FLAGS = (
    "--tensor-model-parallel-size=4",
    "--pipeline-model-parallel-size=2",
    "--num-layers=36",
    "--hidden-size=4096",
    "--num-attention-heads=32",
    "--seq-length=2048",
    "--max-position-embeddings=2048",
    "--micro-batch-size=1",
    "--global-batch-size=288",
    "--fp16",
    "--recompute-activations",
)
PROGRAM = "/workspace/Megatron-LM/pretrain_gpt.py"


def container(command: Sequence[str], args: Sequence[str], gpus: int | None = 8, **env: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "pytorch", "image": "i", "command": list(command), "args": list(args)}
    made["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if gpus is not None:
        made["resources"] = {"limits": {"nvidia.com/gpu": gpus, "vpc.amazonaws.com/efa": 4}}
    return made


def replicas(count: int, *containers: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "template": {"spec": {"containers": list(containers)}}}


def pytorchjob(specs: dict[str, Any], **spec: Any) -> str:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "megatron"}}
    return yaml_text({**job, "spec": {**spec, "pytorchReplicaSpecs": specs}})


def test_a_job_with_an_etcd_beside_it_is_read() -> None:
    """awsome-distributed-training@1ac19c4 3.test_cases/megatron/megatron-lm/kubernetes/gpt3/manifests, filled in."""
    other = yaml_text(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "etcd"},
            "spec": {"template": {"spec": {"containers": [container(["/usr/local/bin/etcd"], ["--data-dir"])]}}},
        }
    )
    worker = replicas(
        2,
        container(
            ["/usr/local/bin/torchrun", "--nproc_per_node=8", "--nnodes=2"],
            [PROGRAM, *FLAGS],
            CUDA_DEVICE_MAX_CONNECTIONS="1",
        ),
    )
    text = f"{other}---\n{pytorchjob({'Worker': worker}, elasticPolicy={'rdzvBackend': 'etcd'})}"
    launch = find_launch(text)
    assert (launch.program, launch.words, launch.devices) == (PROGRAM, FLAGS, 16)


def test_torchrun_takes_from_the_operator_what_it_is_not_given() -> None:
    """kubeflow/training-operator v1.9.0 pkg/controller.v1/pytorch/envvar.go."""
    each = container(["torchrun", PROGRAM], FLAGS, 4)
    launch = find_launch(pytorchjob({"Master": replicas(1, each), "Worker": replicas(3, each)}, nprocPerNode="4"))
    assert launch.devices == 16
    every = find_launch(pytorchjob({"Master": replicas(1, each), "Worker": replicas(3, each)}, nprocPerNode="auto"))
    assert every.devices == 16
    said = container(["torchrun", "--nnodes=$(PET_NNODES)", "--nproc_per_node=$(PET_NPROC_PER_NODE)", PROGRAM], FLAGS)
    assert find_launch(pytorchjob({"Worker": replicas(3, said)}, nprocPerNode="2")).devices == 6


def test_a_shell_in_a_pod_has_the_environment_of_the_pod() -> None:
    script = 'torchrun --nnodes=$WORLD_SIZE --nproc_per_node=$GPUS pretrain_gpt.py $MODEL "$@"'
    each = container(["bash", "-xc"], [script, "run", *FLAGS[1:]], GPUS="8", MODEL=FLAGS[0])
    launch = find_launch(pytorchjob({"Master": replicas(1, each), "Worker": replicas(1, each)}))
    assert (launch.words, launch.devices) == (FLAGS, 16)


def test_an_mpi_job_has_its_command_in_the_launcher() -> None:
    """kubeflow/mpi-operator examples/v2beta1: a launcher without accelerators, and workers that run nothing."""
    launcher = replicas(1, container(["mpirun", "-np", "16", "python", PROGRAM], FLAGS, None))
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    text = yaml_text(
        {**job, "spec": {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": replicas(2, container((), ()))}}}
    )
    assert find_launch(text).devices == 16


def test_the_operator_counts_pods_where_each_runs_one_process() -> None:
    each = container(["python", PROGRAM], FLAGS, 1)
    launch = find_launch(pytorchjob({"Master": replicas(1, each), "Worker": replicas(7, each)}))
    assert (launch.devices, launch.notes) == (8, ("8 ranks, from WORLD_SIZE.",))


def test_accelerators_that_run_no_rank_are_told() -> None:
    each = container(["torchrun", "--nproc_per_node=4", "--nnodes=1", PROGRAM], FLAGS, 8)
    launch = find_launch(yaml_text({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [each]}}))
    assert launch.devices == 4
    assert "the pods ask for 8 accelerators, of which 4 run a rank." in launch.notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: Service\nspec: {}\n", "no job here has a container with a command"),
        ("apiVersion: batch/v1\nkind: Job\nspec: {replicas: {{ .Values.n }}}\n", "helm template"),
        (pytorchjob({"Worker": {"replicas": "${N}"}}), "must be a number"),
        (
            yaml_text({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container(["sleep"], ["1d"])]}}),
            "no container here calls a Python program",
        ),
        (
            yaml_text({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"command": "sleep 1d"}]}}),
            "must be lists of words",
        ),
    ],
)
def test_what_launches_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_launch(text)


KINDS = st.sampled_from(["Job", "JobSet", "Pods", "Volcano", "TrainJob"])


@pytest.mark.longer
@given(KINDS, st.integers(1, 64), st.sampled_from([1, 4, 8]), st.booleans())
def test_every_kind_of_job_has_as_many_ranks_as_its_pods_have(kind: str, pods: int, gpus: int, explicit: bool) -> None:
    asked = [f"--nnodes={pods}", f"--nproc-per-node={gpus}"] if explicit else []
    each = container(["torchrun", *asked, PROGRAM] if explicit else ["python", PROGRAM], FLAGS, gpus)
    spec = {"containers": [each]}
    template = {"template": {"spec": spec}}
    job = {"spec": {"parallelism": pods, "completions": pods, **template}}
    manifest: dict[str, Any] = {
        "Job": {"apiVersion": "batch/v1", "kind": "Job", **job},
        "JobSet": {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": job}]},
        },
        "Pods": {
            "apiVersion": "v1",
            "kind": "List",
            "items": [{"apiVersion": "v1", "kind": "Pod", "spec": spec}] * pods,
        },
        "Volcano": {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "spec": {"tasks": [{"replicas": pods, **template}]},
        },
        "TrainJob": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "spec": {"trainer": {**each, "numNodes": pods, "resourcesPerNode": each["resources"]}},
        },
    }[kind]
    launch = find_launch(yaml_text(manifest))
    assert (launch.words, launch.devices) == (FLAGS, pods * gpus)
    twice = find_launch(yaml_text(manifest), LaunchOptions(nodes=2 * pods, devices_per_node=gpus))
    assert twice.devices == 2 * pods * gpus
