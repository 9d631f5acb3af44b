"""Built-in model importers: one family per file."""

from nest.hooks.protocols import ModelImporter
from nest.hooks.spec import hook
from nest.models import (
    bert,
    deepseek,
    gpt2,
    llama,
    mistral,
    mixtral,
    operator_graph,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    transformer,
)


@hook
def nest_model_importers() -> list[ModelImporter]:
    """The families nest knows without plug-ins."""
    return [
        bert.importer,
        deepseek.deepseek_v2,
        deepseek.deepseek_v3,
        gpt2.importer,
        llama.importer,
        mistral.importer,
        mixtral.importer,
        operator_graph.importer,
        qwen2.importer,
        qwen2_moe.importer,
        qwen3.importer,
        qwen3_moe.importer,
        transformer.importer,
    ]
