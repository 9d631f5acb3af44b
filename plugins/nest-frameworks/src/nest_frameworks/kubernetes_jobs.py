"""Kubernetes: a plan as a JobSet, or as a PyTorchJob of Kubeflow's training operator, one pod for each machine.

JobSet: jobset.x-k8s.io/v1alpha2 (kubernetes-sigs/jobset@08dfbdf config/components/crd), whose pods have the name
`JOBSET-JOB-0-INDEX.JOBSET`. PyTorchJob: kubeflow.org/v1 (kubeflow/training-operator v1.9.0, manifests/base/crds), which
gives pods MASTER_ADDR, MASTER_PORT and PET_NODE_RANK, the master 0 (pkg/controller.v1/pytorch/envvar.go). Kueue packs
pods with `podset-preferred-topology` into the smallest domain that holds them, in the order of their index, and both
kinds of pods of a PyTorchJob together with `podset-group-name` (kueue.sigs.k8s.io, Topology Aware Scheduling).
Kubernetes puts variables in for `$(NAME)` in commands, and takes `$$` for `$`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.hooks.placements import placement
from nest.io.writing import yaml_text
from nest.spec import PlanDocument
from nest_frameworks.commands import Command, command
from nest_frameworks.common import cluster_device, plan_levels
from nest_frameworks.launchers import PORT, Node, nodes_of, torchrun

NAME, JOB, CONTAINER = "nest", "node", "pytorch"
IMAGE, QUEUE = "YOUR_IMAGE", "YOUR_QUEUE"
FOLDER = "/nest"
RESOURCES = {"mi": "amd.com/gpu"}
"""By how names of devices begin; all others are `nvidia.com/gpu` (device plug-ins of AMD and NVIDIA)."""

LARGEST = 1_000_000
"""Bytes of a ConfigMap; Kubernetes takes 1 MiB (kubernetes.io, ConfigMaps)."""

PREFERRED = {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"}
HOSTNAME = "kubernetes.io/hostname"
OWN = {"nest/job": NAME}
"""Label of the pods of a job on named hosts: no two of them run on one machine."""

INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Yaml = dict[str, Any]


@frozen
class Pods:
    """Common parts of the pods of a job.

    Attributes:
        nodes: the machines, by their first rank.
        run: what every process runs.
        start: the command of the container.
        environment: variables of the container.
        resource: name of an accelerator for Kubernetes.
    """

    nodes: tuple[Node, ...]
    run: Command
    start: tuple[str, ...]
    environment: list[Yaml]
    resource: str

    def template(self, hosts: Iterable[str], annotations: Mapping[str, str] = PREFERRED, **more: Any) -> Yaml:
        """The template of a pod: alone on one of `hosts` where they are named, else with `annotations`."""
        container: Yaml = {
            "name": CONTAINER,
            "image": IMAGE,
            "command": [_kept(word) if word.startswith("#!") else word for word in self.start],
            "args": [_kept(word) for word in self.run.words],
            "env": [dict(variable) for variable in self.environment],  # Without anchors in YAML.
            "ports": [{"name": "pytorchjob-port", "containerPort": PORT}],
            "resources": {"limits": {self.resource: 1 + max(gpu for node in self.nodes for gpu in node.gpus)}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
        spec: Yaml = {**more, "containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
        if self.run.files:
            container["volumeMounts"].append({"name": "files", "mountPath": FOLDER})
            spec["volumes"].append({"name": "files", "configMap": {"name": f"{NAME}-files"}})
        named = sorted(hosts)
        if named:
            there = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": named}]}]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": there}}
            apart = [{"labelSelector": {"matchLabels": dict(OWN)}, "topologyKey": HOSTNAME}]
            alone = {"requiredDuringSchedulingIgnoredDuringExecution": apart}
            spec["affinity"] = {"nodeAffinity": required, "podAntiAffinity": alone}
            return {"metadata": {"labels": dict(OWN)}, "spec": spec}
        return {"metadata": {"annotations": dict(annotations)}, "spec": spec}


def jobset(plan: PlanDocument) -> Mapping[str, str]:
    """`jobset.yaml`.

    Raises:
        InputError: there is no rank table, the framework cannot run the plan or is not run one process for each rank.
    """
    nodes = nodes_of(placement(plan))
    jobs = [("first", nodes[:1]), ("others", nodes[1:])] if nodes[0].named else [(JOB, nodes)]
    master = f"{NAME}-{jobs[0][0]}-0-0.{NAME}"
    index = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    pods = _pods(plan, nodes, "$(NODE_RANK)", master, [index, _variable("MASTER_ADDR", master)])
    jobs = [(name, held) for name, held in jobs if held]
    spec = {"replicatedJobs": [_replicated(name, held, pods) for name, held in jobs]}
    return _written("jobset.yaml", plan, pods, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, spec)


def _replicated(name: str, nodes: tuple[Node, ...], pods: Pods) -> Yaml:
    hosts = [node.name for node in nodes if node.named]
    template = pods.template(hosts, restartPolicy="Never")
    size = {"parallelism": len(nodes), "completions": len(nodes), "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": {**size, "template": template}}}


def pytorchjob(plan: PlanDocument) -> Mapping[str, str]:
    """`pytorchjob.yaml`.

    Raises:
        InputError: there is no rank table, the framework cannot run the plan or is not run one process for each rank.
    """
    nodes = nodes_of(placement(plan))
    pods = _pods(plan, nodes, "$(PET_NODE_RANK)", "$(MASTER_ADDR)", [])
    group = PREFERRED | ({"kueue.x-k8s.io/podset-group-name": NAME} if len(nodes) > 1 else {})
    replicas = {
        kind: {
            "replicas": len(held),
            "restartPolicy": "Never",
            "template": pods.template([node.name for node in held if node.named], group),
        }
        for kind, held in (("Master", nodes[:1]), ("Worker", nodes[1:]))
        if held
    }  # fmt: skip
    spec = {"nprocPerNode": str(max(len(node.ranks) for node in nodes)), "pytorchReplicaSpecs": replicas}
    return _written("pytorchjob.yaml", plan, pods, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, spec)


def _pods(plan: PlanDocument, nodes: tuple[Node, ...], rank: str, master: str, environment: list[Yaml]) -> Pods:
    """The pods of a plan; `rank` is the number of a pod, `master` the address of the first, as Kubernetes puts them in.

    The script of `torchrun` starts the processes where its options cannot say which ranks a pod has.
    """
    run = command(plan, FOLDER)
    if not nodes[0].named and [node.name for node in nodes] != [f"node{number}" for number in range(len(nodes))]:
        raise InputError(
            "the plan leaves machines between those it uses free, which pods do not say; name them in cluster.hosts "
            "of its problem."
        )
    each = len(nodes[0].ranks)
    if all(node.adjacent and not node.mapped and not node.named and len(node.ranks) == each for node in nodes):
        start: tuple[str, ...] = (
            "torchrun", "--no-python", f"--nnodes={len(nodes)}", f"--nproc-per-node={each}", f"--node-rank={rank}",
            "--rdzv-backend=static", f"--master-addr={master}", f"--master-port={PORT}",
        )  # fmt: skip
    else:
        if nodes[0].named:
            where = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
            environment = [*environment, where]
        here = "NEST_NODE=$(NODE_NAME)" if nodes[0].named else f"NEST_NODE=node{rank}"
        (script,) = torchrun(plan).values()
        start = ("env", here, "bash", "-c", script, "torchrun_launch.sh")
    own = [_variable(name, value) for name, value in run.environment.items()]
    own += [_variable("PYTHONPATH", FOLDER)] if run.imported else []
    device = cluster_device(plan)
    resource = next((name for prefix, name in RESOURCES.items() if device.startswith(prefix)), "nvidia.com/gpu")
    return Pods(nodes, run, start, [*own, *environment], resource)


def _variable(name: str, value: str) -> Yaml:
    return {"name": name, "value": value}


def _kept(word: str) -> str:
    """`word` so that Kubernetes leaves it as it is."""
    return re.sub(r"\$(?=[$(])", "$$", word)


def _written(file: str, plan: PlanDocument, pods: Pods, kind: Yaml, spec: Yaml) -> Mapping[str, str]:
    """The file: notes, the framework's files as a ConfigMap, and the job."""
    named = pods.nodes[0].named
    labels = {} if named else {"labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    job = yaml_text({**kind, "metadata": {"name": NAME, **labels}, "spec": spec})
    notes = [
        f"Runs a plan on {sum(len(node.ranks) for node in pods.nodes)} ranks of {len(pods.nodes)} machines, a pod on "
        "each. Data, tokenizer and so on are further `args`.",
        f"{IMAGE} stands for your image, which has the framework and torchrun"
        + ("." if named else f"; {QUEUE} for your LocalQueue of Kueue, which is nothing to a cluster without it."),
        *(f"{word} stands for yours." for word in pods.run.yours),
        *([] if named else _switches(plan, pods)),
    ]
    documents = [job]
    if pods.run.files:
        if sum(len(text.encode()) for text in pods.run.files.values()) > LARGEST:
            raise InputError("the framework's files do not fit into a ConfigMap of Kubernetes (1 MiB).")
        content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{NAME}-files"}}
        documents.insert(0, yaml_text({**content, "data": dict(pods.run.files)}))
    return {file: "".join(f"# {note}\n" for note in notes) + "---\n".join(documents)}


def _switches(plan: PlanDocument, pods: Pods) -> list[str]:
    """Explain how Kueue keeps pods under one switch as in the plan: only the cluster knows its label names."""
    per_pod, group = max(len(node.ranks) for node in pods.nodes), 1
    for level in plan_levels(plan):
        group *= level.fanout
        if group > per_pod and not group % per_pod:
            break
    size = group // per_pod
    if size < 2 or len(pods.nodes) <= size or len(pods.nodes) % size:
        return []
    return [
        f"The plan has every {size} pods under one switch. With its label, such as network.topology.nvidia.com/leaf, "
        "Kueue does so, by two more annotations of the pods:",
        f'    kueue.x-k8s.io/podset-slice-required-topology: LABEL and kueue.x-k8s.io/podset-slice-size: "{size}"',
    ]
