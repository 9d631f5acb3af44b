"""Small models and clusters to try objects on, and sources for importers.

The widths have many divisors, so that most strategies find a degree; key-value heads fewer than some degrees and a
vocabulary with few divisors test repetition and rounding.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.catalogue import clusters, library_models
from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.io import unstructure
from nest.public.checks import DragonflySpec, FatTreeSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec
from nest.spec import MlaSpec, Training, TransformerSpec
from nest.units import BytesPerSecond

TOKENS = 64
"""Tokens per sample."""

SAMPLES = 4  # Samples per micro-batch.
TRAINING = Training(global_batch=8, sequence_length=TOKENS)  # Default training of the samples.


@frozen
class SampleModel:
    """A model to try objects on: a `source` for a registered importer, and its training."""

    name: str
    source: Any
    training: Training = TRAINING

    def graph(self) -> OperatorGraph:
        """Build the operator graph of one sample.

        Raises:
            InputError: no registered importer accepts the source.
        """
        accepting = [each for each in registry().model_importers().values() if each.accepts(self.source)]
        if not accepting:
            raise InputError(f"sample model {self.name!r}: no registered model importer accepts it.")
        return accepting[0].load(self.source, self.training)


@frozen
class SampleCluster:
    """A cluster to try objects on."""

    name: str
    cluster: Cluster


def _transformer(**changed: Any) -> TransformerSpec:
    widths: dict[str, Any] = {"layers": 2, "hidden": 128, "ffn": 256, "heads": 16, "vocab": 1024, **changed}
    return TransformerSpec(**widths)


SAMPLE_MODELS = (
    SampleModel(
        "plain attention and feed-forward",
        _transformer(vocab=1000, gated_mlp=False, tied_embeddings=True),
        Training(global_batch=8, sequence_length=TOKENS, attention="unfused"),
    ),
    SampleModel("grouped-query attention, gated feed-forward", _transformer(kv_heads=4)),
    SampleModel(
        "latent attention",
        _transformer(
            mla=MlaSpec(q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8)
        ),
    ),
    SampleModel(
        "mixture of experts with a shared expert",
        _transformer(layers=3, kv_heads=4, experts=8, top_k=2, moe_ffn=64, shared_expert_ffn=32, dense_layers=1),
    ),
)
"""The usual models: dense, grouped-query and gated, latent attention, and a mixture of experts."""

SAMPLE_CLUSTERS = (
    SampleCluster("one level", Cluster((Level("node", 16, 4e11, 3e-6),), memory=80e9)),
    SampleCluster("two levels", Cluster((Level("node", 4, 4e11, 3e-6), Level("spine", 4, 5e10, 5e-6)), memory=80e9)),
)
"""The usual clusters, of 16 devices each, with bandwidths (bytes/s) and latencies (s) of the order of NVLink's and
InfiniBand's."""


def loaded(model: SampleModel) -> OperatorGraph:
    """Return `SampleModel.graph`, cached for hashable sources."""
    try:
        return _loaded(model)
    except TypeError:  # A mapping has no hash.
        return model.graph()


_loaded = cache(SampleModel.graph)

STRANGE: tuple[Any, ...] = (None, True, 7, 2.5, "", "no such thing", (), [], {}, {"model_type": 3}, Path("none"))
"""Strange sources, which an importer need not accept."""

RATE = BytesPerSecond(5e10)
"""Bytes per second of every link of the sample networks, as of an InfiniBand NDR port (400 Gb/s)."""


@cache
def model_sources() -> tuple[Any, ...]:
    """Return a configuration of each family, descriptions by widths, an operator graph, and one to repeat."""
    families: dict[str, Any] = {}
    for _, model in sorted(library_models().items()):
        families.setdefault(model.family, model.config)
    described = [model.source for model in SAMPLE_MODELS if isinstance(model.source, TransformerSpec)]
    graph = unstructure(loaded(SAMPLE_MODELS[0]))
    return (*families.values(), *described, graph, {"graph": graph, "repeat": 3})


@cache
def topology_sources() -> tuple[Any, ...]:
    """Return a network of each kind: parameters, measurements, a graph, a name, and files of other tools."""
    ring = [{"source": f"n{index}", "target": f"n{(index + 1) % 4}", "bandwidth": 5e10} for index in range(4)]
    return (
        next(iter(clusters())),
        TorusSpec((4, 4), RATE),
        MeshSpec((2, 4), RATE),
        DragonflySpec(2, 4, 2, RATE),
        RailOptimisedSpec(2, 4, BytesPerSecond(4.5e11), RATE),
        FatTreeSpec(RATE, k=4),
        MatrixSpec(tuple(tuple(None if i == j else RATE for j in range(4)) for i in range(4))),
        {"nodes": [{"id": f"n{index}"} for index in range(4)], "edges": ring},
        Path(str(files("nest_testing").joinpath("data", "ring.graphml"))),
        *sorted(Path(str(entry)) for entry in files("nest_testing").joinpath("data", "networks").iterdir()),
    )
