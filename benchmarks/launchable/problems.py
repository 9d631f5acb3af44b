"""The problems: those of the examples that have a model, and models of the catalogue on clusters of the catalogue."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nest.io import read_mapping

EXAMPLES = Path("examples")

CATALOGUE = (
    ("llama-3-8b", "dgx-h100-superpod", 1024, 8192),
    ("llama-3.1-70b", "dgx-h100-superpod", 1024, 8192),
    ("llama-3.1-405b", "dgx-h200-superpod", 1024, 8192),
    ("llama-2-13b", "dgx-a100-superpod", 1120, 4096),
    ("llama-2-70b", "gb200-nvl72-superpod", 1152, 4096),
    ("mistral-7b", "dgx-h100-superpod", 1024, 8192),
    ("gpt3-175b", "dgx-a100-superpod", 2240, 2048),
    ("mixtral-8x7b", "dgx-h100-superpod", 1024, 4096),
    ("qwen3-8b", "dgx-b200-superpod", 1024, 4096),
    ("qwen3-30b-a3b", "dgx-b200-superpod", 1024, 4096),
)
"""Model, cluster, samples of a batch (a multiple of the devices, or one sample each), tokens of a sample."""


def problems(folder: Path = EXAMPLES) -> Iterator[tuple[str, Path | Mapping[str, Any]]]:
    """Each problem by its name; none of them says what it is for.

    Args:
        folder: of examples, a folder each with a `problem.yaml`.
    """
    for path in sorted(folder.glob("*/problem.yaml")):
        if "model" in read_mapping(path).mapping:
            yield path.parent.name, path
    for model, cluster, batch, length in CATALOGUE:
        training = {"global_batch": batch, "sequence_length": length}
        yield f"{model} on {cluster}", {"nest": 1, "model": model, "cluster": {"name": cluster}, "training": training}
