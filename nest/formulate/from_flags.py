"""Problems from the launch file of a current training, with equal decisions in `fixed`."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import enlarged, unknown_name
from nest.catalogue.nodes import node_size, with_ranks
from nest.catalogue.spellings import cluster_called, model_called
from nest.deployment import MODEL_LEFT, LaunchOptions, Reading
from nest.errors import InputError, PlacedErrors
from nest.formulate.cluster import build_cluster
from nest.formulate.fixed_plan import PARTIAL
from nest.formulate.launched import launched_with
from nest.formulate.model import resolve_model
from nest.formulate.problem import Source, self_contained
from nest.formulate.target import with_schedules
from nest.formulate.topology import in_place
from nest.hooks.architectures import architecture_of
from nest.hooks.registry import Registry, registry
from nest.io import placed, read_mapping, structure, there_is, unstructure
from nest.io.source import display_path, read_text_of
from nest.spec import ClusterSpec, Problem

UNDECIDED = ("stages", "chunks", "replicas", "micro_batches", "devices", "width", *PARTIAL)
"""Decisions of a problem that those of a file replace, even if it does not name them."""

KEPT = ("model", "global_batch", "sequence_length", "tokens")
"""Keys that must be equal to compare two plans by step time."""


@frozen
class Start:
    """A training as launched today."""

    problem: Problem  # Complete; `fixed` has the decisions of the file.
    notes: tuple[str, ...]  # On settings passed over or assumed, a sentence each.
    devices: int | None = None  # Number in use; None: all of the cluster's.

    def decided(self, decisions: Mapping[str, Any], known: Registry) -> Problem:
        """The problem with further decisions, and what a launch on as many devices derives from them.

        Raises:
            InputError: they do not go with each other or with the devices.
        """
        devices = self.devices or build_cluster(self.problem.cluster, known)[0].size
        return launched_with(self.problem, decisions, devices)

    def opened(self, target: str, plugins: Registry | None = None) -> Problem:
        """Same problem with every decision open, within the limits of `target` if known.

        Args:
            target: name of the plan reader; an exporter of that name makes its framework the target.
            plugins: registered exporters; None: those installed.

        Raises:
            InputError: the exporter writes no plans of such a training, so its limits are unknown.
        """
        exporter = (plugins or registry()).exporters().get(target)
        problem = evolve(self.problem, fixed=None)
        if exporter is None or not hasattr(exporter, "limits"):
            return problem
        chosen = problem.search.framework or target
        aimed = evolve(problem, search=evolve(problem.search, target=chosen))
        try:
            limits = exporter.limits(problem)
        except InputError as error:
            raise InputError(f"{error} Leave --against-best and --write-problem out.") from None
        return evolve(aimed, training=with_schedules(aimed.training, limits))


def start(
    flags: Path,
    framework: str,
    problem: Source | Problem | None = None,
    *,
    keep: Collection[str] = (),
    cluster: str | None = None,
    options: LaunchOptions | None = None,
    vocabulary: int | None = None,
    model: str | None = None,
    reading: Reading | None = None,
    plugins: Registry | None = None,
) -> Start:
    """Build the problem with every decision of the file `flags`.

    Args:
        flags: a script, a map of flags or another file of a framework; it is read, never run.
        framework: name of the plan reader.
        problem: supplies what the file leaves out; the file wins. None: the file and `cluster` suffice.
        keep: keys of `KEPT` that the problem sets instead of the file.
        cluster: a name from `nest clusters`, a file with a `cluster` section, or a topology; None: the problem's.
        options: further launch options.
        vocabulary: size of the vocabulary, if the file leaves it to a tokenizer.
        model: the model in place of the file's: a name from `nest models` or a file; None: the file's.
        reading: the file's content; None: read it.
        plugins: registered plan readers and the like; None: those installed.

    Raises:
        InputError: a file cannot be read, contradicts itself or the problem, or something is missing.
    """
    known = plugins or registry()
    path = Path(problem) if isinstance(problem, (str, Path)) else None
    folder = None if path is None else path.parent
    written: dict[str, Any] = {} if problem is None else _written(problem)
    if cluster is not None:
        written["cluster"] = unstructure(_cluster(cluster, known))
    if model is not None:
        named = model_called(model)
        written["model"] = str(Path(named).resolve()) if there_is(Path(named)) == "file" else named
    machine = _node_size(written["cluster"], known, folder) if "cluster" in written else None
    if reading is None:
        described = written.get("model")
        built = None if described is None else architecture_of(unstructure(resolve_model(described, folder)))
        asked = evolve(options or LaunchOptions(), model=built, machine=machine)
        read = read_flags(flags, framework, asked, known)
    else:
        read = reading
    if model is not None and "model" in read.settings:
        settings = {key: value for key, value in read.settings.items() if key != "model"}
        read = evolve(read, settings=settings, vocabulary=())
    read, kept = _keeping(read, written, folder, keep)
    if "cluster" not in written:
        raise InputError(f"{flags}: this file names no cluster; add --cluster or a problem with one.")
    if not {"model", "profile"} & {*written, *read.settings}:
        told = next((note for note in read.notes if note.endswith(MODEL_LEFT)), "nothing here says a model.")
        raise InputError(
            f"{flags}: {told.removesuffix(MODEL_LEFT).rstrip(': ').rstrip('.')}; give --model NAME|FILE, put its "
            "config.json beside the file, or give a problem with the model."
        )
    for name in {*read.settings.get("fixed", {})} - {*known.strategies()}:
        if (told := next((note for note in read.notes if note.endswith(f" the plug-in nest-{name}.")), "")) != "":
            raise InputError(f"{flags}: {told} `pip install ./plugins/nest-{name}` adds it.")
    settings, notes = _with_model(flags, read, written.get("model"), folder, vocabulary)
    fixed = settings.get("fixed", {})
    if fixed.get("zero") and fixed.get("zero_degree") and fixed.get("ep", 1) * fixed.get("etp", 1) > 1:
        raise InputError(
            f"{flags}: the run shards over groups of {fixed['zero_degree']} ranks beside expert parallelism. nest does "
            "not price this: experts shard over smaller groups. Shard over all ranks to price the run."
        )
    batches = (written.get("training") or {}, settings.get("training", {}))
    if not any(not isinstance(each, Mapping) or "global_batch" in each for each in batches):
        more = "; it follows from the ranks: give --nodes and --devices-per-node" if read.devices is None else ""
        raise InputError(f"{flags}: nothing here says the global batch{more}, or a problem with training.global_batch.")
    try:
        merged = _merged(written, settings, read.usual)
        used, ranks = read.devices or 0, read.ranks_per_node or 0
        whole = _on_nodes(structure(merged, Problem), used, machine or 0, ranks, folder, known)
        cluster_used = with_ranks(whole.cluster, ranks) if 0 < ranks < used else whole.cluster
        if thinned := cluster_used is not whole.cluster:
            whole = evolve(whole, cluster=cluster_used)
            notes = (*notes, f"the run has {ranks} ranks per node; nest prices nodes of {ranks} devices.")
        size = build_cluster(whole.cluster, known)[0].size
    except InputError as error:
        raise placed(flags if path is None else path, error) from None
    if used > size:
        nodes = f"{size // ranks} nodes, and the run uses {ranks} devices of each ({size})" if thinned else size
        raise InputError(f"{flags}: the run uses {used} devices, but the cluster has {nodes}.")
    if 0 < used < size:
        notes = (*notes, f"the run uses {used} of {size} devices.")
    return Start(whole, (*read.notes, *kept, *notes), read.devices)


def _node_size(cluster: Any, known: Registry, folder: Path | None) -> int | None:
    """Devices of each node of a cluster as written; None: unknown, or it cannot be used, an error of the problem."""
    section = {"name": cluster} if isinstance(cluster, str) else cluster
    try:
        return node_size(in_place(structure(section, ClusterSpec), known, folder)) if section else None
    except (InputError, TypeError, ValueError):
        return None


def _on_nodes(problem: Problem, devices: int, each: int, ranks: int, folder: Path | None, known: Registry) -> Problem:
    """Self-contained problem with as many machines of a cloud's type as a run with `ranks` on each needs.

    `each`: devices of a node; 0: unknown.
    """
    name, needed = problem.cluster.name, -(-devices // ranks) * each if 0 < ranks < each else devices
    cluster = evolve(problem.cluster, name=None if name is None else enlarged(name, needed))
    return self_contained(evolve(problem, cluster=cluster), folder, known)


def _written(problem: Source | Problem) -> dict[str, Any]:
    if isinstance(problem, (str, Path)):
        return dict(read_mapping(Path(problem)).mapping)
    return problem.to_dict() if isinstance(problem, Problem) else dict(problem)


def _keeping(
    read: Reading, written: Mapping[str, Any], folder: Path | None, keep: Collection[str]
) -> tuple[Reading, tuple[str, ...]]:
    """The file's settings without those of `keep` that the problem sets, and a sentence on each difference."""
    settings, notes = dict(read.settings), list[str]()
    ours = _section(written, "training") if keep else {}
    described = written.get("model")
    if "model" in keep and (described or written.get("profile")) and settings.pop("model", None) is not None:
        theirs = None if described is None else architecture_of(unstructure(resolve_model(described, folder)))
        said = read.settings["model"]
        if read.vocabulary and theirs is not None:
            said = _with(read.settings, read.vocabulary, theirs.vocab)["model"]
        own = architecture_of(unstructure(resolve_model(said, None)))
        if theirs is None or own is None or evolve(own, family=theirs.family) != theirs:
            notes.append("the file's model differs from the problem's; nest prices the problem's.")
        read = evolve(read, vocabulary=())
    training = dict(settings.get("training", {}))
    for name in [name for name in training if name in keep and ours.get(name) is not None]:
        if (value := training.pop(name)) != ours[name] and name != "tokens":
            notes.append(f"the file has {name} {value}; nest prices the problem's {ours[name]}.")
    return evolve(read, settings={**settings, "training": training}), tuple(notes)


def read_flags(
    flags: Path, framework: str, options: LaunchOptions | None, known: Registry, text: str | None = None
) -> Reading:
    """Read the file `flags` with the plan reader `framework`.

    Args:
        flags: a script, a map of flags or another file of a framework; it is read, never run.
        options: further launch options.
        text: the part of the file to read; None: all.

    Raises:
        InputError: there is no such reader, or the file cannot be read.
    """
    readers = known.plan_readers()
    if framework in known.missing("plan_readers"):
        raise InputError(f"the plan reader {framework!r} failed and is disabled; run `nest plugins doctor`.")
    if framework not in readers:
        raise unknown_name(str(flags), "plan reader", framework, readers)
    asked, reader = evolve(options or LaunchOptions(), folder=flags.parent), readers[framework]
    for name, count in (("--nodes", asked.nodes), ("--devices-per-node", asked.devices_per_node)):
        if count is not None and count < 1:
            raise InputError(f"{name} is {count}; it must be at least 1.")
    if not hasattr(reader, "read_launch") and asked != LaunchOptions(
        asked.nodes, folder=flags.parent, model=asked.model, machine=asked.machine
    ):
        raise InputError(f"the plan reader {framework!r} takes no --devices-per-node, --part or arguments.")
    try:
        content = read_text_of(flags) if text is None else text
        if hasattr(reader, "read_launch"):
            reading: Reading = reader.read_launch(content, asked)
            return reading
        return reader.read(content, asked.nodes)
    except PlacedErrors as error:
        raise PlacedErrors(_under_its_name(flags, text) for text in error.problems) from None
    except InputError as error:
        raise placed(flags, error) from None


def _under_its_name(flags: Path, text: str) -> str:
    """A sentence that names the file by the name it usually has, with its own."""
    name, colon, rest = text.partition(":")
    usual = re.fullmatch(r"[\w-]+\.(ya?ml|json|toml)", name) and not there_is(flags.parent / name)
    return f"{display_path(flags)}{colon}{rest}" if usual else text


def _cluster(text: str, known: Registry) -> ClusterSpec:
    """Cluster of that name, or from the file of that name."""
    path = Path(text)
    if not there_is(path):
        return in_place(ClusterSpec(name=cluster_called(text)), known, None)
    try:
        content = read_mapping(path).mapping
    except InputError:
        content = {}
    inner = content.get("cluster", content)
    if isinstance(inner, Mapping) and {"levels", "name", "topology"}.intersection(inner):
        return in_place(structure(inner, ClusterSpec), known, path.parent)
    return in_place(ClusterSpec(topology=str(path)), known, None)


def _with_model(
    flags: Path, read: Reading, model: Any, folder: Path | None, vocabulary: int | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings of the file with a complete model, and notes."""
    settings = dict(read.settings)
    if not read.vocabulary:
        return settings, ()
    if vocabulary is not None:
        return _with(settings, read.vocabulary, vocabulary), ()
    if model is None:
        raise InputError(f"{flags}: this file has no vocabulary size; add --vocabulary, or a problem with the model.")
    theirs = architecture_of(unstructure(resolve_model(model, folder)))
    if theirs is None:
        raise InputError(f"{flags}: this file has a transformer, but the problem's model is none; change the problem.")
    ours = architecture_of(_with(settings, read.vocabulary, theirs.vocab)["model"])
    if ours is None or evolve(ours, family=theirs.family) != theirs:
        return _with(settings, read.vocabulary, theirs.vocab), (
            (
                "the file's model differs from the problem's; nest prices the file's with the problem's vocabulary "
                f"({theirs.vocab})."
            ),
        )
    del settings["model"]
    return settings, ()


def _with(settings: Mapping[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """`settings` with `value` at the end of a path of keys."""
    first, rest = keys[0], keys[1:]
    return {**settings, first: _with(settings[first], rest, value) if rest else value}


def _section(written: Mapping[str, Any], key: str, above: str = "") -> dict[str, Any]:
    section = written.get(key) or {}
    if not isinstance(section, Mapping):
        raise InputError(f"{above}{key} must hold keys and values, is {section!r:.60}.")
    return dict(section)


def _merged(written: Mapping[str, Any], settings: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a written problem: settings of the file win, and `usual` values fill gaps."""
    training = _section(written, "training")
    said = dict(settings.get("training", {}))
    if training.get("stack") is not None:
        said.pop("stack", None)  # Files say it by being a framework's only; who measured a stack of their own names it.
    else:
        training = {**usual, **training}
    if "overlap" in said:
        said["overlap"] = {**_section(training, "overlap", "training."), **said["overlap"]}
    decided = {name: value for name, value in _section(written, "fixed").items() if name not in UNDECIDED}
    merged = {"nest": 1, **written, "training": {**training, **said}}
    merged["fixed"] = {**decided, **settings.get("fixed", {})}
    if "model" in settings:
        merged["model"] = settings["model"]
        merged.pop("profile", None)
    return merged
