"""Small models and clusters on which objects are tried.

The widths have many divisors, so that most strategies find a degree; the key-value heads are fewer than some degrees,
and one vocabulary is divided by few, so that rounding and repetition are met.
"""

from functools import cache
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import MlaSpec, Training, TransformerSpec

TOKENS = 64
"""Tokens per sample."""

SAMPLES = 4
"""Samples per micro-batch."""

TRAINING = Training(global_batch=8, sequence_length=TOKENS)
"""How models are trained unless it matters."""


@frozen
class SampleModel:
    """A model to try objects on.

    Attributes:
        name: for people.
        source: what a registered model importer accepts.
        training: how it is trained.
    """

    name: str
    source: Any
    training: Training = TRAINING

    def graph(self) -> OperatorGraph:
        """The operator graph of one sample.

        Raises:
            InputError: no registered importer accepts the source.
        """
        accepting = [each for each in registry().model_importers().values() if each.accepts(self.source)]
        if not accepting:
            raise InputError(f"sample model {self.name!r}: no registered model importer accepts it.")
        return accepting[0].load(self.source, self.training)


@frozen
class SampleCluster:
    """A cluster to try objects on.

    Attributes:
        name: for people.
        cluster: its levels.
    """

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


@cache
def _loaded(name: str, source: Any, training: Training) -> OperatorGraph:
    return SampleModel(name, source, training).graph()


def loaded(model: SampleModel) -> OperatorGraph:
    """`SampleModel.graph`, remembered where the source can be."""
    try:
        return _loaded(model.name, model.source, model.training)
    except TypeError:  # A mapping has no hash.
        return model.graph()
