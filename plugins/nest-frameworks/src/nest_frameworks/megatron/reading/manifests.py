"""Commands in manifests of Kubernetes: what the containers of a job run, in how many pods, on how many accelerators.

Job (batch/v1), JobSet (jobset.x-k8s.io/v1alpha2), PyTorchJob and MPIJob (kubeflow.org), TrainJob
(trainer.kubeflow.org/v1alpha1), Volcano's Job (batch.volcano.sh/v1alpha1), Pod. What the training operator tells
torchrun: kubeflow/training-operator v1.9.0, pkg/controller.v1/pytorch/envvar.go.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io import read_mapping_text
from nest.units import whole_number

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SHELL = re.compile(r"(?:.*/)?(?:ba|da|z)?sh")
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_DOCUMENT = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_MANIFEST = re.compile(r"""^["']?apiVersion["']?\s*:.*\S""", re.MULTILINE)


@frozen
class Pods:
    """Pods that are alike.

    Attributes:
        count: how many there are.
        devices: accelerators of each.
        words: what their container runs.
        variables: their environment.
    """

    count: int
    devices: int
    words: tuple[str, ...]
    variables: Mapping[str, str]

    def script(self, options: LaunchOptions) -> tuple[str, LaunchOptions]:
        """The words as a script, with the environment and the arguments it is run with."""
        words = list(self.words)
        while words and (words[0] == "env" or re.match(r"[A-Za-z_]\w*=", words[0])):
            words.pop(0)
        known = evolve(options, variables={**self.variables, **options.variables})
        if len(words) > 2 and SHELL.fullmatch(words[0]) and re.fullmatch(r"-[a-z]*c", words[1]):
            return words[2], evolve(known, arguments=(*words[4:], *options.arguments))
        return shlex.join(words), known


def is_manifest(text: str) -> bool:
    """Return whether a text is made of manifests."""
    return _MANIFEST.search(text) is not None


def pods_of(text: str) -> tuple[Pods, ...]:
    """The pods of all jobs in a text that run something.

    Raises:
        InputError: it is no YAML, or has no job.
    """
    if re.search(r"\{\{.*\}\}", text):
        raise InputError("this is a template; give the manifests that come of it (`helm template`, for one).")
    documents = [part for part in _DOCUMENT.split(text) if is_manifest(part)]
    found = [pods for part in documents for pods in _pods(read_mapping_text(part, "manifest.yaml"))]
    if not any(pods.words for pods in found):
        raise InputError(
            "no job here has a container with a command: Job, JobSet, PyTorchJob, MPIJob, TrainJob, Volcano's Job and "
            "Pod are read."
        )
    return tuple(found)


def _pods(manifest: Mapping[str, Any]) -> Iterator[Pods]:
    spec = _of(manifest, "spec")
    kind = manifest.get("kind")
    if kind == "List":
        for item in _list(manifest, "items"):
            yield from _pods(item)
    elif kind == "Pod":
        yield from _containers(1, spec)
    elif kind == "Job" and "tasks" in spec:  # Volcano's.
        for task in _list(spec, "tasks"):
            yield from _containers(_count(task, "replicas"), _of(task, "template", "spec"))
    elif kind == "Job":
        yield from _job(1, spec)
    elif kind == "JobSet":
        for job in _list(spec, "replicatedJobs"):
            yield from _job(_count(job, "replicas"), _of(job, "template", "spec"))
    elif kind in ("PyTorchJob", "MPIJob"):
        yield from _kubeflow(spec, "pytorchReplicaSpecs" if kind == "PyTorchJob" else "mpiReplicaSpecs")
    elif kind == "TrainJob":
        trainer = _of(spec, "trainer")
        told = {"PET_NNODES": str(_count(trainer, "numNodes"))} | _told("PET_NPROC_PER_NODE", trainer, "numProcPerNode")
        container = {**trainer, "resources": trainer.get("resourcesPerNode")}
        yield from _containers(_count(trainer, "numNodes"), {"containers": [container]}, told)


def _job(times: int, spec: Mapping[str, Any]) -> Iterator[Pods]:
    pods = _count(spec, "parallelism", _count(spec, "completions"))
    yield from _containers(times * pods, _of(spec, "template", "spec"))


def _kubeflow(spec: Mapping[str, Any], key: str) -> Iterator[Pods]:
    replicas = [each for each in _of(spec, key).values() if isinstance(each, Mapping)]
    total = sum(_count(each, "replicas") for each in replicas)
    name = "PET_NPROC_PER_NODE"
    each_node = _told(name, _of(spec, "elasticPolicy"), "nProcPerNode") | _told(name, spec, "nprocPerNode")
    told = {"PET_NNODES": str(total), **each_node}
    if (count := whole_number(each_node.get(name, "1"))) is not None:
        told["WORLD_SIZE"] = str(total * count)
    for each in replicas:
        pods = _of(each, "template", "spec")
        yield from _containers(_count(each, "replicas"), pods, told if key.startswith("pytorch") else {})


def _told(name: str, spec: Mapping[str, Any], key: str) -> dict[str, str]:
    return {name: str(spec[key])} if spec.get(key) is not None else {}


def _containers(count: int, pod: Mapping[str, Any], told: Mapping[str, str] | None = None) -> Iterator[Pods]:
    for container in _list(pod, "containers"):
        given = [each for each in _list(container, "env") if each.get("value") is not None]
        said = {str(each.get("name")): str(each["value"]) for each in given}
        resources = _of(container, "resources")
        asked = {**_of(resources, "requests"), **_of(resources, "limits")}
        device = next((name for name in RESOURCES if whole_number(str(asked.get(name))) is not None), None)
        devices = int(asked[device]) if device is not None else 0
        variables = {**(told or {}), **said, **({device: str(devices)} if device is not None else {})}
        written = [*_words(container.get("command")), *_words(container.get("args"))]
        yield Pods(count, devices, tuple(_expanded(word, variables) for word in written), variables)


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` as Kubernetes does; unknown names stay."""
    return _VARIABLE.sub(lambda found: "$" if not found[1] else variables.get(found[1], found[0]), word)


def _words(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError("`command` and `args` of a container must be lists of words.")
    return [str(word) for word in value]


def _of(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = content.get(key)
        content = value if isinstance(value, Mapping) else {}
    return content


def _list(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = content.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _count(content: Mapping[str, Any], key: str, otherwise: int = 1) -> int:
    value = content.get(key, otherwise)
    if type(value) is not int or value < 0:
        raise InputError(f"{key} must be a number, but it is {value!r:.40}; a template must be filled in first.")
    return value
