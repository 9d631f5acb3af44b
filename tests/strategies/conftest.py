"""Graphs of every shape of model, and blocks made of them."""

from collections.abc import Callable

import pytest
from attrs import evolve

from nest.graph import Block, OperatorGraph
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import MlaSpec, Training, TransformerSpec

TOKENS, HIDDEN, HEADS, FFN, VOCAB = 64, 96, 12, 384, 1000

SHAPES = {
    "gpt": TransformerSpec(
        layers=2, hidden=HIDDEN, ffn=FFN, heads=HEADS, vocab=VOCAB, gated_mlp=False, tied_embeddings=True,
    ),
    "llama": TransformerSpec(layers=2, hidden=HIDDEN, ffn=FFN, heads=HEADS, kv_heads=2, vocab=VOCAB),
    "experts": TransformerSpec(
        layers=2, hidden=HIDDEN, ffn=FFN, heads=HEADS, kv_heads=4, vocab=VOCAB, experts=8, top_k=2, moe_ffn=48,
        shared_expert_ffn=24, dense_layers=1,
    ),
    "latent": TransformerSpec(
        layers=1, hidden=HIDDEN, ffn=FFN, heads=HEADS, vocab=VOCAB,
        mla=MlaSpec(q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=6, qk_rope_head_dim=2, v_head_dim=4),
    ),
}  # fmt: skip

Context = StrategyContext


@pytest.fixture(scope="session")
def context() -> StrategyContext:
    """One machine of 48 devices."""
    return StrategyContext(Cluster((Level("node", 48, 1e11, 1e-6),), memory=80e9), Training(global_batch=8))


@pytest.fixture
def source(shape: str) -> TransformerSpec:
    """The description of the model whose shape a test runs for."""
    return SHAPES[shape]


@pytest.fixture(scope="session")
def build() -> Callable[..., OperatorGraph]:
    """The graph of one of `SHAPES` for a training: `build("gpt", attention="unfused")`."""

    def built(shape: str, tokens: int = TOKENS, **training: str) -> OperatorGraph:
        asked = Training(global_batch=8, sequence_length=tokens, **training)  # type: ignore[arg-type]
        return registry().model_importers()["transformer"].load(SHAPES[shape], asked)

    return built


@pytest.fixture(scope="session")
def shard(context: StrategyContext) -> Callable[..., Block]:
    """A graph under strategies: `shard(graph, tp=4, sp=4)`."""

    def sharded(graph: OperatorGraph, samples: int = 1, loss_parallel: bool = True, **degrees: int) -> Block:
        block = Block(graph.with_samples(samples), samples)
        said = evolve(context, training=evolve(context.training, loss_parallel=loss_parallel))
        for name, strategy in registry().strategies().items():
            degree = degrees.get(name, 1)
            assert degree in strategy.degrees(block, context)
            block = strategy.apply(block, degree, said) if degree > 1 else block
        return block

    return sharded


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `shape` runs once per shape of model."""
    if "shape" in metafunc.fixturenames:
        metafunc.parametrize("shape", SHAPES)
