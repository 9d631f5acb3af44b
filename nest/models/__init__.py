"""Built-in model importers: a file for a family and those of its lineage."""

from nest.hooks.protocols import ModelImporter
from nest.hooks.spec import hook
from nest.models import (
    bert,
    cohere,
    deepseek,
    ernie,
    gemma,
    glm,
    gpt2,
    gpt_neox,
    gpt_oss,
    hunyuan,
    llama,
    mistral,
    olmo,
    operator_graph,
    phi,
    qwen,
    transformer,
)


@hook
def nest_model_importers() -> list[ModelImporter]:
    """The families nest knows without plug-ins."""
    return [
        bert.importer,
        cohere.cohere,
        cohere.cohere2,
        deepseek.deepseek_v2,
        deepseek.deepseek_v3,
        deepseek.deepseek_v32,
        ernie.dense,
        ernie.moe,
        gemma.gemma2,
        gemma.gemma3,
        glm.glm4,
        glm.glm4_moe,
        gpt2.importer,
        gpt_neox.falcon,
        gpt_neox.gpt_neox,
        gpt_oss.importer,
        hunyuan.dense,
        hunyuan.moe,
        llama.importer,
        llama.llama4,
        mistral.minimax_m2,
        mistral.mistral,
        mistral.mixtral,
        olmo.olmo2,
        olmo.olmo3,
        operator_graph.importer,
        phi.importer,
        qwen.qwen2,
        qwen.qwen2_moe,
        qwen.qwen3,
        qwen.qwen3_moe,
        transformer.importer,
    ]
