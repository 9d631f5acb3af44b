"""What a page is about, in a line."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from nest.errors import InputError
from nest.formulate.sources import load_model
from nest.hooks.registry import Registry
from nest.spec import Problem


def title(problem: Problem, devices: int) -> str:
    """Model and cluster of a problem.

    Args:
        problem: of the plan.
        devices: of its cluster.
    """
    cluster = problem.cluster
    device = cluster.device if isinstance(cluster.device, str) else getattr(cluster.device, "name", None)
    return f"{model_name(problem)} on {devices:,} {device or ('device' if devices == 1 else 'devices')}"


def model_size(problem: Problem, known: Registry) -> str:
    """How large the model is, as far as the problem says: `80 layers, 70.6 billion parameters`.

    Args:
        problem: of the plan.
        known: registered importers of models.
    """
    return ", ".join([*_layers(problem), *_parameters(problem, known)])


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
    if isinstance(name, str) and name:
        return name
    return "Transformer" if isinstance(model.get("transformer"), Mapping) else "Model"


def _layers(problem: Problem) -> tuple[str, ...]:
    """How many layers the problem says that the model has."""
    model = problem.to_dict().get("model")
    if not isinstance(model, Mapping):
        return ()
    transformer = model.get("transformer")
    shape = transformer if isinstance(transformer, Mapping) else model
    found = (shape.get(key) for key in ("num_hidden_layers", "n_layer", "layers"))
    return next((("1 layer" if each == 1 else f"{each} layers",) for each in found if _whole(each)), ())


def _parameters(problem: Problem, known: Registry) -> tuple[str, ...]:
    """How many parameters the model has, tied ones counted once; nothing of a model that cannot be read here."""
    if problem.model is None:
        return ()
    try:
        graph = load_model(problem.model, problem.training, None, known)
    except InputError:  # Of a plan that says that nothing is feasible, all is shown that there is.
        return ()
    return (f"{in_words(graph.parameter_count)} parameters",)


def in_words(value: float) -> str:
    """A large number in words: `70.6 billion`."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:,.0f}"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
