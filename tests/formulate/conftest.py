"""Problems on small models and clusters."""

from collections.abc import Callable
from typing import Any

import pytest

from nest.spec import ClusterSpec, Fixed, LevelSpec, Problem, Training, TransformerSpec
from tests.bare_devices import bare

DENSE = TransformerSpec(layers=4, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=500)
EXPERTS = TransformerSpec(
    layers=6, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32, dense_layers=2
)
NODES = (
    LevelSpec(fanout=8, bandwidth=300e9, latency=1e-6, name="node"),  # type: ignore[arg-type]
    LevelSpec(fanout=2, bandwidth=25e9, latency=5e-6, name="fabric"),  # type: ignore[arg-type]
)


@pytest.fixture
def problem() -> Callable[..., Problem]:
    """A problem on 16 A100 all of whose memory holds tensors.

    `training`, `cluster` and `fixed` take single keys, the rest goes to `Problem`.
    """

    def build(
        model: Any = DENSE,
        training: dict[str, Any] | None = None,
        cluster: dict[str, Any] | None = None,
        fixed: dict[str, Any] | None = None,
        stages: Any = None,
        **rest: Any,
    ) -> Problem:
        asked = {"global_batch": 16, "sequence_length": 128, "micro_batch": (1, 2), **(training or {})}
        machines = {"levels": NODES, "device": bare("a100-sxm-80g"), **(cluster or {})}
        return Problem(
            nest=1,
            model=model,
            training=Training(**asked),
            cluster=ClusterSpec(**machines),
            fixed=Fixed(fixed or {}, stages) if fixed is not None or stages is not None else None,
            **rest,
        )

    return build
