"""Frozen weights in 4 or 8 bits, in files of LLaMA-Factory, Axolotl and Hugging Face's Trainer.

Sources: hiyouga/LLaMA-Factory, commit 13e73887, model/model_utils/quantization.py; axolotl-ai-cloud/axolotl, commit
002a637c, loaders/model.py (`_set_quantization_config`); trl 1.16, trainer/model_config.py; bitsandbytes 0.49
(`Linear4bit`, `Linear8bitLt`).
"""

from typing import Any

from nest.spec import Architecture
from nest_frameworks.keys import Keys
from nest_frameworks.limits import mixture
from nest_frameworks.trainers.models import PUBLISHED
from nest_frameworks.trainers.names import AXOLOTL, LLAMA_FACTORY, Names

DOUBLE, SINGLE, EIGHT, GROUPED = "nf4-double", "nf4", "int8", "int4"
"""Formats of `training.trainable.stored`; fp4 takes as much as nf4."""

PACKED = ("use_sonicmoe", "use_scattermoe")
"""Axolotl's kernels that keep experts in NVFP4 where they are published in it (pull requests 3747 and 3780)."""

CONFIG = "model_quantization_config"
"""Axolotl's key of the format in which a model is published."""


def stored(keys: Keys, names: Names, model: str, adapted: bool) -> str | None:
    """Format of frozen weights; None: the training precision."""
    found = PUBLISHED.search(model)
    if keys.truth(f"{CONFIG}_kwargs.dequantize"):  # Weights in 4 or 8 bits become 16 bits as they are loaded.
        keys.asked.add(CONFIG)
    bits = {key: keys.value(key) for key in names.narrow}
    on = [key for key, value in bits.items() if value not in (None, False)]
    if found is not None:
        if found["double"] is None and found["grouped"] is None and found["scaled"] is None:
            keys.problem(f"{names.model} is {model:.80}, whose weights are in a format that nest does not know.")
            return None
        on = on or [names.model]
    if not on:
        if keys.value(names.adapters.switch[0]) == "qlora":
            keys.problem("adapter is qlora, but load_in_4bit is not true; Axolotl refuses that.")
        return None
    if not adapted and keys.value(names.adapters.switch[0]) in (None, "", False, "full", "freeze"):
        keys.problem(f"{on[0]} asks for weights in 4 or 8 bits, which only trainings of adapters (LoRA) can have.")
    if len(on) > 1:
        keys.problem(f"{' and '.join(on)} are both given; nest prices one format of frozen weights.")
    if found is not None:
        if found["scaled"]:  # 4 bits, and 8 for each 16: as many bytes.
            keys.note(f"{names.model} is in NVFP4, which is priced as {SINGLE}.")
            return SINGLE
        return DOUBLE if found["double"] else GROUPED
    wanted = bits[on[0]] if names is LLAMA_FACTORY else names.narrow[on[0]]
    if wanted not in (4, 8):
        keys.problem(f"{on[0]} is {wanted!s:.60}, but bitsandbytes has 4 and 8 bits.")
    key, usual = names.double
    # Axolotl leaves adapters called lora to the defaults of transformers.
    double = keys.value(key) if keys.value(key) is not None else usual and keys.value("adapter") != "lora"
    return EIGHT if wanted == 8 else DOUBLE if double else SINGLE


def check_experts(keys: Keys, names: Names, format_name: str | None, architecture: Architecture | None) -> None:
    """Refuse narrow weights of a mixture of experts, unless Axolotl makes the experts narrow as it loads them."""
    if names is AXOLOTL and keys.truth("quantize_moe_experts"):
        if format_name is None:
            keys.problem("quantize_moe_experts needs load_in_4bit or load_in_8bit; Axolotl refuses it without.")
    elif str(keys.value(names.model)).lower().endswith("nvfp4") and any(keys.truth(each) for each in PACKED):
        return
    elif format_name is not None and mixture(architecture) is not None:
        keys.problem(
            "weights in 4 or 8 bits of a model with experts are not priced: transformers 5 keeps the experts in 16 "
            f"bits, {'unless quantize_moe_experts is true' if names is AXOLOTL else 'earlier releases do not'}."
        )


def written(names: Names, format_name: str | None) -> dict[str, Any]:
    """Keys that ask for frozen weights in a format that bitsandbytes has; none: the training precision."""
    if format_name is None:
        return {}
    if names is LLAMA_FACTORY:
        return {"quantization_bit": 8 if format_name == EIGHT else 4, "double_quantization": format_name == DOUBLE}
    if format_name == EIGHT:
        return {"load_in_8bit": True}
    double = {"bnb_config_kwargs": {"bnb_4bit_use_double_quant": False}} if format_name == SINGLE else {}
    return {"adapter": "qlora", "load_in_4bit": True, **double}
