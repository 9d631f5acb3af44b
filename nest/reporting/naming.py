"""What a page is about, in a line."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from nest.spec import Problem


def title(problem: Problem, devices: int) -> str:
    """Model and cluster of a problem.

    Args:
        problem: of the plan.
        devices: of its cluster.
    """
    cluster = problem.cluster
    device = cluster.device if isinstance(cluster.device, str) else getattr(cluster.device, "name", None)
    return f"{model_name(problem)} on {devices:,} {device or 'devices'}"


def model_name(problem: Problem) -> str:
    """What people call the model, as far as the problem says."""
    model = problem.to_dict().get("model")
    if isinstance(model, str):
        return PurePath(model).stem
    if isinstance(model, Mapping):
        return _described(model)
    return "Profile of measured layers"


def _described(model: Mapping[str, Any]) -> str:
    name = model.get("_name_or_path") or model.get("name") or model.get("model_type") or model.get("family")
    shape = model.get("transformer") if isinstance(model.get("transformer"), Mapping) else model
    assert isinstance(shape, Mapping)
    layers = next((shape[key] for key in ("num_hidden_layers", "n_layer", "layers") if _whole(shape.get(key))), None)
    told = str(name) if isinstance(name, str) and name else "Transformer" if shape is not model else "Model"
    return told if layers is None else f"{told} of {layers} layers"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
