"""Kernels between products, and losses, in files of LLaMA-Factory, Axolotl and Hugging Face's Trainer.

Sources: axolotl-ai-cloud/axolotl, commit 067b021c, src/axolotl/integrations; liger-kernel 0.8.5,
transformers/monkey_patch.py (its defaults for Llama: rope, RMSNorm, SwiGLU and the fused linear cross-entropy).
"""

from nest_frameworks.keys import Keys
from nest_frameworks.trainers.names import Names

ON = (True, "auto", "full", "true")
"""Values that switch on a number format."""

LIGER, CUT = "LigerPlugin", "CutCrossEntropyPlugin"
PLUGINS = (LIGER, CUT, "KernelsPlugin", "LMEvalPlugin", "SwanLabPlugin")
"""Axolotl's plug-ins that are priced, or that change no cost; KernelsPlugin multiplies experts in one kernel."""

PARTS = {
    "norms": ("rms_norm", "layer_norm"),
    "activations": ("glu_activation", "swiglu"),
    "linear loss": ("fused_linear_cross_entropy",),
    "loss": ("cross_entropy",),
}
"""Parts switched on by keys that begin with `liger_`."""


def kernels(keys: Keys, names: Names) -> dict[str, str]:
    """Deviations from the stack: operators run one by one unless compiled, or in kernels of Liger."""
    named = keys.value("plugins")
    plugins = {str(each).rpartition(".")[2] for each in ([named] if isinstance(named, str) else named or ())}
    for each in sorted(plugins.difference(PLUGINS)):
        keys.problem(f"plugins has {each:.60}, which nest does not read; it may change the model or the loss.")
    whole, compiled = bool(names.liger) and keys.value(names.liger) is True, keys.value("torch_compile") in ON
    liger = {
        what: whole or (LIGER in plugins and any(keys.value(f"liger_{part}") is True for part in parts))
        for what, parts in PARTS.items()
    }
    chunked = liger["linear loss"] or (CUT in plugins and keys.value("cut_cross_entropy") is not False)
    fused = liger["loss"] or keys.value("chunked_cross_entropy") is True
    on = {
        "kernels": "fused" if compiled or (liger["norms"] and liger["activations"]) else None,
        "norms": "fused" if compiled or liger["norms"] else None,
        "loss": "chunked" if chunked else "fused" if fused else "unfused" if compiled else None,
        "expert_products": "sequential" if keys.value("experts_implementation") == "eager" else None,
        "attention_kernel": "flash3" if str(keys.value(names.attention)) in ("fa3", "flash_attention_3") else None,
    }
    return {name: how for name, how in on.items() if how is not None}
