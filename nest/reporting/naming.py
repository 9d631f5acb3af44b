"""What a page is about, in a line."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from nest.catalogue import library_models
from nest.errors import InputError
from nest.formulate.model import CONTEXT_KEYS, load_model
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.spec import Problem

SAYS_NOTHING = frozenset({*CONTEXT_KEYS, "architectures", "tie_word_embeddings"})
"""Keys of a configuration by which models are not told apart: they may be left out, or differ for one shape."""


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


def cluster_size(problem: Problem, cluster: Cluster) -> str:
    """The cluster level by level, `4 racks of 4 nodes of 8 devices`; empty: its network has no levels of its own."""
    if problem.cluster.topology is not None:
        return ""
    told = ["1 device" if cluster.levels[0].fanout == 1 else f"{cluster.levels[0].fanout} devices"]
    for inside, level in pairwise(cluster.levels):
        what = "group" if inside.name.startswith("level ") else inside.name
        told.insert(0, f"{level.fanout:,} {what}{'s' * (level.fanout != 1)}")
    named = f"{problem.cluster.name}: " if problem.cluster.name else ""
    return named + " of ".join(told)


def batch_size(problem: Problem) -> str:
    """What is trained on in a step: `1,024 samples of 8,192 tokens a batch`."""
    training = problem.training
    tokens = f" of {training.sequence_length:,} tokens" if training.sequence_length and problem.model else ""
    return f"{training.global_batch:,} {'sample' if training.global_batch == 1 else 'samples'}{tokens} a batch"


def model_name(problem: Problem) -> str:
    """What people call the model, as far as the problem says."""
    model = problem.to_dict().get("model")
    if isinstance(model, str):
        return PurePath(model).stem
    if isinstance(model, Mapping):
        return _described(model)
    return "Profile of measured layers"


def _described(model: Mapping[str, Any]) -> str:
    for key in ("_name_or_path", "name"):
        if isinstance(model.get(key), str) and model[key]:
            return str(model[key])
    alike = [each for each in library_models().values() if _is_that(model, each.config)]
    if alike:  # Of those of one shape, such as Llama 3 and 3.1, the one that says the most of what this one says.
        return max(alike, key=lambda each: sum(model.get(key) == value for key, value in each.config.items())).name
    name = model.get("model_type") or model.get("family")
    if isinstance(name, str) and name:
        return name
    return "Transformer" if isinstance(model.get("transformer"), Mapping) else "Model"


def _is_that(model: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a configuration says of widths, counts and family what a named model's says."""
    told = {key: value for key, value in config.items() if key not in SAYS_NOTHING}
    return all(model.get(key) == value for key, value in told.items())


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
