"""Built-in model importers: a file for a family and those of its lineage."""

from nest.hooks.protocols import ModelImporter
from nest.hooks.spec import hook
from nest.models import bert, deepseek, gpt2, llama, mistral, operator_graph, qwen, transformer


@hook
def nest_model_importers() -> list[ModelImporter]:
    """The families nest knows without plug-ins."""
    return [
        bert.importer,
        deepseek.deepseek_v2,
        deepseek.deepseek_v3,
        gpt2.importer,
        llama.importer,
        mistral.mistral,
        mistral.mixtral,
        operator_graph.importer,
        qwen.qwen2,
        qwen.qwen2_moe,
        qwen.qwen3,
        qwen.qwen3_moe,
        transformer.importer,
    ]
