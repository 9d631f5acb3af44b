"""The subject of a plan in words: model, devices, batch. Sections of problems are plain mappings here."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import PurePath
from typing import Any

from nest.catalogue import devices, known_cluster, library_models
from nest.formulate.model import CONTEXT_KEYS
from nest.spec import PlanDocument
from nest.units import listed

SAYS_NOTHING = frozenset({*CONTEXT_KEYS, "architectures", "tie_word_embeddings"})
"""Keys of a configuration that do not tell models apart: missing, or different for one shape."""


def subject(plan: PlanDocument) -> str:
    """Describe the planned problem: `Llama 3.1 8B on 16 H100 SXM (2 nodes), batch 256 x 8192 tokens`."""
    model, cluster, training = plan.problem.get("model"), plan.problem["cluster"], plan.problem["training"]
    length = training.get("sequence_length")
    tokens = f" x {length} tokens" if length and model is not None else ""
    return f"{title(model, cluster, _counts(plan))}{_nodes(cluster)}, batch {training['global_batch']}{tokens}"


def title(model: object, cluster: Mapping[str, Any], counts: Sequence[int | None]) -> str:
    """Describe a model and a cluster with so many devices in each of its pools; None: not counted."""
    kinds = [_of_kind(count, each) for count, each in zip(counts, cluster.get("pools") or [cluster], strict=True)]
    return f"{model_name(model)} on {listed(kinds)}"


def accelerator(cluster: Mapping[str, Any]) -> str:
    """Return the noun for one device: `GPU` if it is one, else `device`."""
    names = [_device(each) for each in cluster.get("pools") or [cluster]]
    known = [devices()[name].vendor for name in names if name in devices()]
    return "GPU" if known and {*known} <= {"nvidia", "amd"} and len(known) == len(names) else "device"


def _counts(plan: PlanDocument) -> list[int | None]:
    """Return the devices of the cluster or of each pool; without a plan, those of the levels."""
    cluster = plan.problem["cluster"]
    if pools := plan.summary.get("pools"):
        return [each["devices"] for each in pools]
    if "devices" in plan.summary:
        return [plan.summary["devices"]]
    fanouts = [[fanout for _, fanout in _levels(each)] for each in cluster.get("pools") or [cluster]]
    return [prod(each) if each else None for each in fanouts]


def _levels(cluster: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return name and fanout of each level, innermost first; empty: no hierarchy, or stated elsewhere."""
    known = None if cluster.get("levels") else known_cluster(cluster.get("name"))
    if known is not None:
        return [(level.name or "", level.fanout) for level in known.levels]
    return [(level.get("name") or "", level["fanout"]) for level in cluster.get("levels") or ()]


def _nodes(cluster: Mapping[str, Any]) -> str:
    """Return the innermost groups by the name of their level: ` (2 nodes)`."""
    levels = _levels(cluster)
    if len(levels) < 2 or not levels[0][0]:
        return ""
    count = prod(fanout for _, fanout in levels[1:])
    return f" ({count} {levels[0][0]}{'s' * (count != 1)})"


def _of_kind(count: int | None, cluster: Mapping[str, Any]) -> str:
    name = _device(cluster)
    shown = _spelled(name) if name in devices() else name or ("device" if count == 1 else "devices")
    return shown if count is None else f"{count:,} {shown}"


def _device(cluster: Mapping[str, Any]) -> str:
    device = cluster.get("device")
    if isinstance(device, Mapping):
        return str(device.get("name") or "")
    known = None if cluster.get("levels") else known_cluster(cluster.get("name"))
    return str(device or (cluster.get("name") or "" if known is None else known.device))


def _spelled(name: str) -> str:
    """Spell a device of the catalogue as people write it: `H100 SXM`, `TPU v4`."""
    maker, _, version = name.partition("-")
    return f"TPU {version}" if maker == "tpu" else name.upper().replace("-", " ")


def model_name(model: object) -> str:
    """Return the usual name of a model, as far as its problem says."""
    if isinstance(model, str):
        known = library_models()
        return known[model].title if model in known else PurePath(model).stem
    if isinstance(model, Mapping):
        return _described(model)
    return "Profile of measured layers"


def _described(model: Mapping[str, Any]) -> str:
    for key in ("_name_or_path", "name"):
        if isinstance(model.get(key), str) and model[key]:
            return str(model[key])
    alike = [each for each in library_models().values() if _is_that(model, each.config)]
    if alike:  # Of those of one shape, such as Llama 3 and 3.1, the one that says the most of what this one says.
        return max(alike, key=lambda each: sum(model.get(key) == value for key, value in each.config.items())).title
    name = model.get("model_type") or model.get("family")
    if not isinstance(name, str) or not name:
        name = "Transformer" if isinstance(model.get("transformer"), Mapping) else "Model"
    counted = layers_of(model)
    return f"{name} ({counted})" if counted else name


def layers_of(model: Mapping[str, Any]) -> str:
    """Return the stated layers of a model: `80 layers`; empty: not stated."""
    transformer = model.get("transformer")
    shape = transformer if isinstance(transformer, Mapping) else model
    counts = (shape.get(key) for key in ("num_hidden_layers", "n_layer", "layers"))
    count = next((each for each in counts if isinstance(each, int) and not isinstance(each, bool)), None)
    return "" if count is None else "1 layer" if count == 1 else f"{count} layers"


def _is_that(model: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a named model's widths, counts and family; switches may be missing."""
    figures = {key: value for key, value in config.items() if key not in SAYS_NOTHING}
    stated = {key for key, value in figures.items() if key in model or key == "model_type" or type(value) is int}
    return all(model.get(key) == figures[key] for key in stated)
