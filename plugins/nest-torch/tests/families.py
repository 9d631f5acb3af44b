"""Tiny models of transformers and torchvision, by name, with the sizes of one sample."""

from typing import Any

import torch

DECODER = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "use_cache": False,
}
TOKENS = {"input_ids": (16,)}
PICTURES = {"pixel_values": (3, 32, 32)}


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**DECODER))


def qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**DECODER, head_dim=16))


def gemma() -> Any:
    from transformers import GemmaConfig, GemmaForCausalLM

    return GemmaForCausalLM(GemmaConfig(**DECODER, head_dim=16))


def mixtral() -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**DECODER, num_local_experts=4))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_embd=64, n_layer=4, n_head=8, n_positions=64, use_cache=False))


def bert() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 176}
    return BertForMaskedLM(BertConfig(**sizes, num_hidden_layers=4, num_attention_heads=8, max_position_embeddings=64))


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 8}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=16))


def resnet50() -> Any:
    from torchvision.models import resnet50

    return resnet50(num_classes=16)


def torchvision_vit() -> Any:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 4, 8, 64, 176, num_classes=16)


INPUTS: dict[str, dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("llama", "qwen3", "gemma", "mixtral", "gpt2", "bert"), TOKENS),
    "vit": PICTURES,
    "resnet50": {"x": (3, 64, 64)},
    "torchvision_vit": {"x": (3, 32, 32)},
}


def inputs(name: str, device: str = "meta") -> dict[str, Any]:
    """One sample of what a model is called with."""
    whole = torch.long if "input_ids" in INPUTS[name] else torch.float32
    return {key: torch.zeros((1, *sizes), dtype=whole, device=device) for key, sizes in INPUTS[name].items()}
