"""Descriptions of transformers in place of a model file (FORMATS.md)."""

from typing import ClassVar

from attrs import field, frozen

from nest.spec.validators import at_least
from nest.units import Positions


@frozen
class MlaSpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Attributes:
        q_lora_rank: rank of the query compression; None: queries are not compressed.
        kv_lora_rank: rank of the key-value compression.
        qk_nope_head_dim: query-key channels per head without rotary embedding.
        qk_rope_head_dim: query-key channels per head with rotary embedding.
        v_head_dim: value channels per head.
    """

    q_lora_rank: int | None = field(validator=at_least(1))
    kv_lora_rank: int = field(validator=at_least(1))
    qk_nope_head_dim: int = field(validator=at_least(1))
    qk_rope_head_dim: int = field(validator=at_least(1))
    v_head_dim: int = field(validator=at_least(1))


@frozen
class TransformerSpec:
    """A transformer by its widths.

    Attributes:
        layers: transformer blocks.
        hidden: model width.
        ffn: width of the feed-forward network (per gated branch).
        heads: attention heads.
        vocab: vocabulary size.
        kv_heads: key-value heads; None: as many as heads.
        head_dim: channels per head; None: `hidden / heads`.
        gated_mlp: two input branches, one of them gating.
        tied_embeddings: the head shares the embedding's weights.
        experts: routed experts per mixture-of-experts layer; 0: dense.
        top_k: experts per token.
        moe_ffn: width of one expert (per gated branch); None: `ffn`.
        shared_expert_ffn: total width of the experts every token visits; 0: none.
        dense_layers: leading blocks that stay dense in a mixture of experts.
        mla: multi-head latent attention in place of grouped-query attention.
        sliding_window: keys a query attends to; `4k` is 4096; None: all.
    """

    WRITTEN_UNDER: ClassVar[str] = "transformer"

    layers: int = field(validator=at_least(1))
    hidden: int = field(validator=at_least(1))
    ffn: int = field(validator=at_least(1))
    heads: int = field(validator=at_least(1))
    vocab: int = field(validator=at_least(1))
    kv_heads: int | None = field(default=None, validator=at_least(1))
    head_dim: int | None = field(default=None, validator=at_least(1))
    gated_mlp: bool = True
    tied_embeddings: bool = False
    experts: int = field(default=0, validator=at_least(0))
    top_k: int = field(default=1, validator=at_least(1))
    moe_ffn: int | None = field(default=None, validator=at_least(1))
    shared_expert_ffn: int = field(default=0, validator=at_least(0))
    dense_layers: int = field(default=0, validator=at_least(0))
    mla: MlaSpec | None = None
    sliding_window: Positions | None = field(default=None, validator=at_least(1))
