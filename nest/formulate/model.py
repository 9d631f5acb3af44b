"""Operator graph of the `model` section, and the model in figures."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import library_models, precision, unknown_name
from nest.errors import InputError, InputErrors
from nest.formulate.unknown_models import GRAPH, LANGUAGE_PARTS, unknown_model
from nest.graph import Operator, OperatorGraph, axis_size
from nest.hooks.calls import Guarded, attribute
from nest.hooks.registry import Registry
from nest.io import read, read_mapping, structure, there_is
from nest.io.names import near, plain
from nest.io.source import SUFFIXES
from nest.spec import ClusterSpec, DeviceSpec, Training, TransformerSpec
from nest.spec.architecture import FURTHER

CONTEXT_KEYS = ("max_position_embeddings", "n_positions")  # Keys with the maximum tokens per sample in configurations.

USUAL_SEQUENCE = 4096
"""Tokens per sample of a description without any: Llama 2's pre-training context (arXiv 2307.09288)."""

Model = TransformerSpec | dict[str, Any]
"""Self-contained model: a description by widths, or the content of a configuration."""


@frozen(eq=False, repr=False)
class DescribedModel:
    """A model described by its widths (FORMATS.md)."""

    transformer: TransformerSpec  # The widths.


def load_model(source: str | Model, training: Training, registry: Registry) -> OperatorGraph:
    """Load the operator graph of one sample of a model.

    `training` gives the sequence length, the precision, and what is trained.

    Raises:
        InputError: there is no such file or name, no importer knows the family, or the importer refuses it.
    """
    model = resolve_model(source, None)
    importers = registry.model_importers()
    accepting = [importer for importer in importers.values() if importer.accepts(model)]
    place = f"model {source!r}" if isinstance(source, str) else "model"
    if not accepting:
        raise unknown_model(place, model, importers)
    for other in accepting[1:]:
        attribute(other, f"accepts {place}, as does the importer {accepting[0].name!r}")
    if len(accepting) > 1:
        names = ", ".join(importer.name for importer in accepting)
        raise InputError(f"{place}: several importers accept it ({names}); switch off all but one.")
    registry.count_use("model_importers", accepting[0].name)

    def load() -> OperatorGraph:
        graph = accepting[0].load(model, training)
        if training.trained is None:
            return graph
        from nest.formulate.trainable import with_trainable

        return with_trainable(graph, training.trained)

    try:
        # One command reads a model several times, and questions about a plan once per search.
        read = training if isinstance(accepting[0], Guarded) else training.of_layers
        return registry.memoized("model", (accepting[0].name, model, read), load)
    except InputErrors as errors:
        raise InputErrors(f"{place}: {problem}" for problem in errors.problems) from None


def parts_left_out(model: Model | str | None, training: Training, known: Registry) -> tuple[str, ...]:
    """Sentences on the parts of a configuration's model that are not planned."""
    if not isinstance(model, dict) or "model_type" not in model:
        return ()
    try:
        return load_model(model, training, known).assumptions
    except InputError:  # Told when the problem is formulated.
        return ()


def resolve_model(source: str | Model, base: Path | None) -> Model:
    """Resolve a model into a self-contained form for plan files.

    Accepts a name from `nest models`; the path of a `config.json`, of its folder, of a file with `transformer:`, of an
    operator graph or of an exported program (torch.export); or the content itself.

    Raises:
        InputError: there is no such file or name, or the file cannot be read.
    """
    if isinstance(source, TransformerSpec):
        return source
    if isinstance(source, str):
        library = library_models()
        return dict(library[source].config) if source in library else _read_model(source, base)
    return structure(source, DescribedModel).transformer if _describes(source) else _with_graph(source, base)


def with_further_layers(model: Model, training: Training) -> Model:
    """Mark a configuration whose layers that predict further tokens are trained.

    Raises:
        InputError: it has none.
    """
    if not training.mtp:
        return model
    if not isinstance(model, dict) or not any(model.get(key) for key in FURTHER):
        raise InputError("training.mtp: the model has no layers that predict further tokens; leave it out.")
    return {**model, "mtp": True}


def with_sequence_length(training: Training, model: Model | str | None, registry: Registry) -> Training:
    """Fill in the model's tokens per sample if the problem gives none.

    Samples without tokens, such as images, leave `training.sequence_length` at None.

    Raises:
        InputError: the model is for any length, and the problem gives none; or it gives tokens of the training, and
            samples have none.
    """
    if model is None or isinstance(model, str) or training.sequence_length is not None:
        return training
    if not any(importer.accepts(model) for importer in registry.model_importers().values()):
        return training  # `load_model` says why.
    length = own_sequence_length(model, registry)
    if length is None:
        raise InputError("training.sequence_length is missing; give the tokens per sample.")
    if length:
        return evolve(training, sequence_length=length)
    if training.tokens is not None:
        raise InputError("training.tokens: this model has no tokens; leave it out.")
    return training


def own_sequence_length(model: Model, registry: Registry) -> int | None:
    """Tokens per sample that a graph is built for; 0: none; None: any length.

    Raises:
        InputErrors: it is no readable graph.
    """
    for importer in registry.model_importers().values():
        if hasattr(importer, "sequence_length") and importer.accepts(model):
            try:
                return int(importer.sequence_length(model))
            except InputErrors as errors:
                raise InputErrors(f"model: {problem}" for problem in errors.problems) from None
    return None


def default_sequence_length(model: Model, registry: Registry) -> int | None:
    """Tokens per sample to describe `model` with: its own, or its context up to `USUAL_SEQUENCE`; None: it has none."""
    own = own_sequence_length(model, registry)
    return min(USUAL_SEQUENCE, context_length(model) or USUAL_SEQUENCE) if own is None else own or None


def context_length(model: Model) -> int | None:
    """Most tokens per sample in a configuration; None: it names none."""
    lengths = () if isinstance(model, TransformerSpec) else map(model.get, CONTEXT_KEYS)
    return min((each for each in lengths if isinstance(each, int) and each > 0), default=None)


def _read_model(source: str, base: Path | None) -> Model:
    path = (base or Path()) / source
    if there_is(path) == "folder":
        path = path / "config.json"
    if there_is(path) != "file":
        raise _no_model(source, path)
    content = read_mapping(path, listed=GRAPH).mapping
    # The path of a graph in a file starts from that file.
    return read(path, DescribedModel).transformer if _describes(content) else _with_graph(content, path.parent)


def _language_part(content: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration of the language model in one of pictures, sound and text, beside the configurations of the rest.

    The outer `architectures` stays: importers refuse heads other than the language model's. So does the outer
    `tie_word_embeddings`, which transformers 5.24.0 reads (`get_expanded_tied_weights_keys`).
    """
    inner = next((part for part in map(content.get, LANGUAGE_PARTS) if isinstance(part, Mapping)), {})
    if inner.keys() & {"model_type", "num_hidden_layers", *LANGUAGE_PARTS}:
        outer = {key: value for key, value in content.items() if key not in LANGUAGE_PARTS}
        kept = {key: outer[key] for key in ("architectures", "tie_word_embeddings") if outer.get(key) is not None}
        return _language_part({**outer, **inner, "architectures": None, **kept})
    return {key: _written(value) for key, value in content.items()} if "model_type" in content else dict(content)


def _written(value: Any) -> Any:
    """`value` with words for infinite numbers and numbered keys, which no format shares."""
    if isinstance(value, Mapping):
        if twice := [key for key in value if not isinstance(key, str) and str(key) in value]:
            raise InputError(f"model has the key {twice[0]!r} as a number and as text; keep one.")
        return {str(key): _written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _no_model(source: str, path: Path) -> InputError:
    """Error for a model that is neither a file nor a name: alternatives, and how to get its file."""
    close = near(source, library_models())
    if any(plain(each) in plain(source) for each in close):
        return InputError(f"model: there is no file or model called {source!r:.80}. Did you mean {close[0]!r}?")
    if re.fullmatch(_ON_THE_HUB, source) and path.suffix not in SUFFIXES:
        other = f" The nearest known model is {close[0]!r}." if close else ""
        return InputError(
            f"model: nest does not know {source!r:.80} and downloads nothing; save "
            f"https://huggingface.co/{source}/raw/main/config.json and give its path.{other}"
        )
    if path.suffix in SUFFIXES or "/" in source:
        return InputError(f"model: there is no file {str(path)!r:.200}; `nest models` lists the names known.")
    return unknown_name("model", "file or model", source, library_models())


_ON_THE_HUB = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"  # Organisation and model in Hugging Face's notation.


def _with_graph(content: Mapping[str, Any], base: Path | None) -> dict[str, Any]:
    """`content` with the file named under `graph` in place of its path."""
    named = content.get(GRAPH)
    if not isinstance(named, str):
        return _language_part(content)
    path = (base or Path()) / named
    if there_is(path) != "file":
        raise InputError(f"model.{GRAPH}: there is no file {str(path)!r:.200}.")
    graph = read_mapping(path, listed=GRAPH).mapping
    return {**content, GRAPH: graph[GRAPH] if set(graph) == {GRAPH} else graph}


def _describes(content: Mapping[str, Any]) -> bool:
    """True if a mapping is a description by widths and not a configuration."""
    return "transformer" in content and "model_type" not in content


def describe(graph: OperatorGraph, training: Training) -> dict[str, Any]:
    """Describe the operator graph of one sample in plain numbers for JSON.

    `flops_per_token` is the forward pass by the convention of utilisation figures (PaLM, arXiv 2204.02311, appendix B):
    2 FLOP per token and weight of every matrix product of the token (with the LM head, without the embedding look-up,
    routed experts `top_k` times), and in each layer `2*heads*keys*(query-key channels + value channels)` for attention,
    that is `4*heads*head_dim*keys`. `keys` is the sequence length, or the window if shorter: the causal mask is
    ignored. `executed_flops_per_token` is what kernels run. For samples without tokens, such as images, both are None,
    and `flops_per_sample` and `executed_flops_per_sample` replace them.

    Returns:
        `parameters` (tied ones once), `active_parameters` (of the routed experts only the visited share), `layers`
        (transformer blocks), `flops_per_token`, and the rest of the keys below; activation bytes are those saved for
            the
        backward pass of one sample without recomputation.
    """
    tokens = training.sequence_length
    blocks = frozenset(graph.blocks)
    rows = [
        {"block": name in blocks, **_layer(operators, tokens)}
        for name, operators in zip(graph.layers, graph.by_layer, strict=True)
    ]
    tables = _vocabulary_tables(graph)
    return {
        "family": graph.family,
        "parameters": graph.parameter_count,
        "active_parameters": sum(row["active_parameters"] for row in rows),
        "routed_expert_parameters": sum(row["routed_expert_parameters"] for row in rows),
        "input_embedding_parameters": tables["embedding"],
        "lm_head_parameters": tables["head"],
        "tied_embeddings": any(p.tied for operator in graph.operators for p in operator.parameters),
        "layers": len(graph.blocks),
        "sequence_length": tokens,
        **_flops(graph.model_flops, tokens),
        **_flops(graph.flops, tokens, "executed_flops"),
        "layer_runs": _runs(graph.layers, rows),
        "assumptions": list(graph.assumptions),
    }


def _flops(flops: float, tokens: int | None, name: str = "flops") -> dict[str, float | None]:
    """FLOP of a sample per token, or per sample if it has none."""
    if tokens is None:
        return {f"{name}_per_token": None, f"{name}_per_sample": flops}
    return {f"{name}_per_token": flops / tokens}


def _layer(operators: Sequence[Operator], tokens: int | None) -> dict[str, Any]:
    """Numbers of one layer."""
    learned = [(o, p) for o in operators for p in o.parameters if not p.tied]
    routed = [(o, p) for o, p in learned if p.group == "expert"]
    visited = sum(p.count * axis_size(o.space, "top_k") // axis_size(p.shape, "experts") for o, p in routed)
    parameters, experts = sum(p.count for _, p in learned), sum(p.count for _, p in routed)
    return {
        "parameters": parameters,
        "active_parameters": parameters - experts + visited,
        "routed_expert_parameters": experts,
        **_flops(sum(o.model_flops for o in operators), tokens),
        "activation_bytes": saved_bytes(operators),
    }


def saved_bytes(operators: Sequence[Operator]) -> float:
    """Bytes of the tensors that `operators` save for the backward pass, each counted once."""
    sizes = {t.name: t.bytes for o in operators for t in (*o.inputs, *o.outputs)}
    return sum(sizes[name] for name in sorted({name for o in operators for name in o.saves}))


def _vocabulary_tables(graph: OperatorGraph) -> dict[str, int]:
    """Weights of the word embedding and of the LM head (0 if tied)."""
    tables = {"embedding": 0, "head": 0}
    for operator in graph.operators:
        for parameter in operator.parameters:
            axes = {name for name, _ in parameter.shape}
            if "vocab" in axes and len(axes) > 1 and not parameter.tied:
                tables["embedding" if operator.kind == "embedding" else "head"] += parameter.count
    return tables


def _runs(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge consecutive layers with equal numbers."""
    runs = []
    for row, group in groupby(zip(names, rows, strict=True), key=lambda layer: layer[1]):
        members = [name for name, _ in group]
        runs.append({"first": members[0], "last": members[-1], "count": len(members), **row})
    return runs


def model_facts(
    model: Model | str | None, training: Training, cluster: ClusterSpec, known: Registry, flops: float | None = None
) -> tuple[int | None, float, dict[str, float], dict[str, Any] | None] | None:
    """Tokens per sample, model FLOP per sample, matrix peaks of devices (FLOP/s), what is trained; None for a profile.

    Tokens are None if samples have none. Peaks are by name of the pool, "" without pools. The backward pass counts
    twice the forward, less with frozen parameters. If only a part is trained, the last entry has it in words (`what`),
    its `parameters`, and `of` how many. Without `flops` the model is read.
    """
    from nest.formulate.cluster import build_cluster, build_pools

    if model is None:
        return None
    passes, trained = 3.0, None
    if flops is None or training.trained is not None:
        flops = (graph := load_model(model, training, known)).model_flops
    if training.trained is not None:
        from nest.formulate.trainable import backward_share, trained_count

        passes = 1 + backward_share(graph)
        trained = {"what": str(training.trained), "parameters": trained_count(graph), "of": graph.parameter_count}
    if cluster.pools is None:
        devices = {"": build_cluster(cluster, known, None)[1]}
    else:
        pools, every = build_pools(cluster)
        devices = dict(zip(pools.names, every, strict=True))
    peaks = {name: matrix_peak(device, training.precision) for name, device in devices.items() if device is not None}
    if len(peaks) < len(devices):
        return None
    return training.sequence_length, passes * flops, peaks, trained


def matrix_peak(device: DeviceSpec, precision_name: str) -> float:
    """Peak of the device's first number format for a precision, FLOP per second.

    Raises:
        InputError: the device has none of them.
    """
    for number_format in precision(precision_name).products:
        peak: float | None = getattr(device.peak, number_format)
        if peak is not None:
            return peak
    raise InputError(f"cluster.device: {device.name!r} has no matrix peak for training.precision {precision_name}.")
