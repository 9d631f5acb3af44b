"""The text of a commented problem, from options and answers."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nest.cli.asked import Asked, option
from nest.cli.options import count
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.units import Count, Positions

TEXT = """\
# A problem: `nest solve {file}` plans it. Keys that are commented out may be left out.
nest: 1

# What is trained: a name that `nest models` lists, or a config.json as Hugging Face has it.
model: {model}

training:
  global_batch: {global_batch}  # samples per optimizer step
{lengths}  # micro_batch: [{micro_batch}]  # samples per micro-batch, of which the search picks; left out, these
  # precision: {precision}  # of matrix products; left out, this
  # optimizer: {optimizer}  # left out, this
  # memory_risk: {memory_risk}  # share of launches that may run out of memory; left out, this, or 0.5 if need be
  # stack: megatron-core  # what the framework does by itself, `nest stacks` lists them; left out, the device's usual

# Where: a name that `nest clusters` lists, its levels, or a file that `nest topology` reads.
{cluster}

# strategies: {{tp: [1, 2, 4, 8]}}  # degrees to try; left out, all that the model and the cluster allow
{search}
# constraints: [tp <= 8, dp % 4 == 0]  # what every plan must satisfy; left out, nothing
# fixed: {{tp: 8, pp: 4}}  # decisions taken already; left out, all are open
"""

OF_TOKENS = """\
  sequence_length: {sequence_length}  # tokens per sample
  {tokens}  # of the whole training
"""
"""Left out for samples without tokens."""

OF_SEARCH = "# search: {target: megatron}  # framework that runs the plan, or none; default: the stack's"

OF_CLUSTER = """\
  # reserve: 4 GiB  # kept free on every device; left out, nothing
  # price: 2.5  # of one device for an hour, in any currency; with training.tokens plans tell the cost"""

Ask = Callable[[str, Callable[[str], str], str | None], str]
"""Function that asks for an option: name, check that returns the answer as written, default."""


def problem_text(asked: Asked, file: Path, command: str, ask: Ask | None = None) -> str:
    """Return the commented problem of options, for `file`, to which paths are relative.

    Args:
        command: name of the command, for errors.
        ask: asks for missing options; None: impossible.

    Raises:
        InputError: an option is missing, wrong or contradicts another.
    """
    from nest.io import yaml_text

    asked = Asked(*(each or None for each in asked))
    model = None if asked.model is None else _model(asked.model)
    length = None if model is None else _usual_length(model)
    machines = [name for name in ("nodes", "gpus_per_node", "network") if getattr(asked, name)]
    if asked.cluster and machines:
        raise InputError(
            f"--cluster already describes the network; leave {option(machines[0])} out. NAME-N has N devices."
        )
    missing = [name for name in ("model", "batch") if not getattr(asked, name)]
    missing += ["sequence"] * (not asked.sequence and (model is None or length is not None))
    missing += [] if asked.cluster or asked.device else ["device" if machines or command != "init" else "cluster"]
    if missing and ask is None:
        why = " (no terminal to prompt on)" if command == "init" else ", too"
        raise InputError(f"nest {command} needs {', '.join(map(option, missing))}{why}.")
    answer: Ask = ask or (lambda name, check, usual: "")
    model = model or answer("model", _model, None)
    length = _usual_length(model)
    if length is None and (asked.sequence or asked.tokens):
        raise InputError(f"--model {model} does not use tokens; leave --sequence and --tokens out.")
    if "device" in missing:
        asked = asked._replace(device=answer("device", _device, None))
    elif "cluster" in missing:
        asked = _cluster_or_device(asked, answer)
    section = _cluster(asked, file.parent, ask)
    batch = _as_number(Count, "--batch")(asked.batch) if asked.batch else answer("batch", _as_number(Count), None)
    return TEXT.format(
        file=file.name,
        model=_quoted(_seen_from(model, file.parent)),
        global_batch=batch,
        lengths="" if length is None else _lengths(asked, length, answer),
        cluster=section,
        search=OF_SEARCH if asked.target is None else yaml_text({"search": {"target": asked.target}}).rstrip(),
        **_defaults(),
    )


def _model(text: str) -> str:
    from nest.catalogue.spellings import model_called

    name = model_called(text)
    _usual_length(name)
    return name


def _usual_length(model: str) -> int | None:
    """Return the default tokens per sample of a model, None without; reads it, so reports its mistakes first."""
    from nest.formulate.model import default_sequence_length, resolve_model

    try:
        return default_sequence_length(resolve_model(model, None), registry())
    except InputError as error:
        raise InputError(f"--model: {str(error).removeprefix('model: ')}") from None


def _device(text: str) -> str:
    from nest.catalogue import devices, unknown_name
    from nest.catalogue.spellings import device_called

    name = text if text in devices() else device_called(text)
    if name is None:
        raise unknown_name("--device", "device", text, devices(), otherwise="Describe any other in a problem file.")
    return name


def _cluster_or_device(asked: Asked, answer: Ask) -> Asked:
    """Return the options with an answer: a cluster, or a device with the number of its machines."""
    from nest.catalogue import devices
    from nest.catalogue.spellings import device_called
    from nest.io import there_is

    def device_of(text: str) -> str | None:
        return None if there_is(Path(text)) else device_called(text)

    def check(text: str) -> str:
        if device_of(text) is None:
            some = next(iter(devices())) if there_is(Path(text)) and not _is_section(Path(text)) else None
            _cluster(asked._replace(cluster=text, device=some), Path(), None)
        return text

    found = answer("cluster", check, None)
    device = device_of(found)
    if device is None:
        return asked._replace(cluster=found)
    return asked._replace(device=device, nodes=answer("nodes", _as_number(Count), None))


def _cluster(asked: Asked, folder: Path, ask: Ask | None) -> str:
    """Return the `cluster` section; asks for an unstated device."""
    from nest.catalogue.spellings import cluster_called
    from nest.formulate.cluster import build_cluster
    from nest.formulate.machines import machines
    from nest.io import is_file_name, structure, there_is, yaml_text
    from nest.spec import ClusterSpec

    cluster = asked.cluster
    if cluster is None:
        nodes = count(asked.nodes, Count, "--nodes") if asked.nodes else 1
        each = count(asked.gpus_per_node, Count, "--gpus-per-node") if asked.gpus_per_node else None
        mapping: dict[str, Any] = dict(machines(_device(asked.device or ""), nodes, each, asked.network))
        return _machines_text(mapping) + OF_CLUSTER
    if there_is(Path(cluster)) == "file" and _is_section(Path(cluster)):
        if asked.device is not None:
            raise InputError(f"--cluster {cluster} already names its device; leave --device out.")
        return f"cluster: {_quoted(_seen_from(cluster, folder))}"
    is_file = bool(there_is(Path(cluster)))
    key = "topology" if is_file else "name"
    mapping = {key: cluster if is_file else cluster_called(cluster)}
    of_file = asked.device is not None and is_file_name(asked.device)
    if asked.device is not None:
        mapping["device"] = asked.device if of_file else _device(asked.device)
    try:
        known = build_cluster(structure(mapping, ClusterSpec), registry())[1]
    except InputError as error:
        if asked.device is not None or not is_file or ask is None:
            raise InputError(f"--cluster, --device: {str(error).removeprefix('cluster: ')}") from None
        known = None
    if known is None:
        if ask is None:
            raise InputError(f"--cluster {cluster} has no device; add --device.")
        mapping["device"] = ask("device", _device, None)
    files = [key] * is_file + ["device"] * of_file
    mapping |= {each: _seen_from(mapping[each], folder) for each in files}
    return yaml_text({"cluster": mapping}) + OF_CLUSTER


def _machines_text(mapping: dict[str, Any]) -> str:
    """Return a section of machines, a level per line."""
    levels = (", ".join(f"{key}: {value}" for key, value in level.items()) for level in mapping["levels"])
    return "\n".join(
        [
            f"cluster:\n  device: {mapping['device']}",
            "  levels:  # innermost first; bandwidths per device and direction",
            *(f"    - {{{each}}}" for each in levels),
            "  assumed:  # for readers",
            *(f"    - {each}" for each in mapping["assumed"]),
            "",
        ]
    )


def _lengths(asked: Asked, usual: int, answer: Ask) -> str:
    """Return the lines on tokens: from options, else an answer with default `usual`."""
    check = _as_number(Positions, "--sequence")
    length = check(asked.sequence) if asked.sequence else answer("sequence", _as_number(Positions), str(usual))
    whole = "# tokens: 1T" if asked.tokens is None else f"tokens: {_as_number(Count, '--tokens')(asked.tokens)}"
    return OF_TOKENS.format(sequence_length=length, tokens=whole)


def _as_number(kind: object, name: str | None = None) -> Callable[[str], str]:
    """Return a function that parses a number after an option, perhaps with suffix, and writes it as in a problem."""

    def check(text: str) -> str:
        count(text, kind, name)
        return text.strip()

    return check


def _is_section(path: Path) -> bool:
    from nest.io import read_mapping

    try:
        return "cluster" in read_mapping(path).mapping
    except InputError:
        return False


def _seen_from(source: str, folder: Path) -> str:
    """Return a file's path from `folder`; names of the catalogue unchanged."""
    from nest.catalogue import library_models
    from nest.io import there_is

    if source in library_models() or Path(source).is_absolute() or not there_is(Path(source)):
        return source
    return os.path.relpath(source, folder)


def _defaults() -> dict[str, str]:
    from nest.formulate.risk import RISK
    from nest.formulate.shard import USUAL_MICRO_BATCHES
    from nest.spec import Training

    usual = Training(1)
    return {
        "memory_risk": str(RISK),
        "micro_batch": ", ".join(map(str, USUAL_MICRO_BATCHES)),
        "precision": usual.precision,
        "optimizer": usual.optimizer,
    }


def _quoted(value: str) -> str:
    from nest.io import yaml_text

    return yaml_text({"key": value}).removeprefix("key: ").rstrip("\n")
