"""Trained parts of a model: adapters, layers, and formats of frozen weights (`training.trainable`, FORMATS.md)."""

from attrs import field, frozen

from nest.records import Record
from nest.spec.validators import at_least, not_empty, one_of

STORED = {"nf4": 0.5 + 4 / 64, "nf4-double": 0.5 + 1 / 64 + 4 / 64 / 256, "int4": 0.5 + 2.5 / 128, "int8": 1.0}
"""Bytes per frozen weight, by format.

`nf4`: 4 bits and a single-precision scale for each 64; `nf4-double`: that scale in 8 bits, with one for each 256 of
them (QLoRA, arXiv 2305.14314, section 3). `int4`: with a scale in 16 bits and a zero point in 4 for each 128 (GPTQ,
arXiv 2210.17323; AWQ, arXiv 2306.00978). `int8`: a scale for each row does not count (LLM.int8(), arXiv 2208.07339).
"""

ALL_LINEAR = "all-linear"
"""Target of adapters for every linear layer except routers and the vocabulary projection, as in peft."""


@frozen(eq=False, repr=False)
class Lora(Record):
    """Low-rank adapters (LoRA, arXiv 2106.09685) beside linear layers, whose own weights are frozen.

    Attributes:
        rank: width between an adapter's two products.
        targets: linear layers with one, by peft's names in models of Llama's family (`q_proj`, `k_proj`, `v_proj`,
            `o_proj`, `gate_proj`, `up_proj`, `down_proj`, `lm_head`, with latent attention `q_a_proj`, `q_b_proj`,
            `kv_a_proj_with_mqa`, `kv_b_proj`), which also stand for those of routed and shared experts; `qkv_proj` and
            `gate_up_proj`, one adapter beside several of them, as if fused; `all-linear`: all but routers and
            `lm_head`. Left out, queries and values, as in the paper (section 7.1).
    """

    rank: int = field(validator=at_least(1))
    targets: tuple[str, ...] = field(default=("q_proj", "v_proj"), validator=not_empty)


@frozen(eq=False, repr=False)
class Trainable(Record):
    """Trained part of a model.

    Attributes:
        lora: trained adapters.
        layers: names of fully trained layers and operators, such as `head` or `layers.31/mlp_up`; `*` stands for any
            text.
        stored: narrow format (`STORED`) of the frozen weights of linear layers in blocks, which kernels convert before
            each product (QLoRA, arXiv 2305.14314, section 3); None: the training precision.
    """

    lora: Lora | None = None
    layers: tuple[str, ...] = ()
    stored: str | None = field(default=None, validator=one_of(tuple(STORED)))

    def __str__(self) -> str:
        adapters = () if self.lora is None else (f"LoRA of rank {self.lora.rank} on {', '.join(self.lora.targets)}",)
        kept = (f"frozen weights in {self.stored}",) if self.stored else ()
        return "; ".join((*adapters, *((", ".join(self.layers),) if self.layers else ()), *kept))
