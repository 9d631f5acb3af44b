"""Transformers: as written in place of a model file (FORMATS.md), and reduced to the inputs of their operators.

Every family is read into an `Architecture`.
"""

from typing import ClassVar, Literal

from attrs import field, frozen

from nest.records import Record
from nest.spec.mixers import DeltaNet as DeltaNet
from nest.spec.mixers import LinearAttention as LinearAttention
from nest.spec.mixers import SelectiveScan as SelectiveScan
from nest.spec.mixers import ShortConvolution as ShortConvolution
from nest.spec.mixers import Stateful as Stateful
from nest.spec.mixers import StateSpace as StateSpace
from nest.spec.validators import at_least
from nest.units import Positions

FURTHER = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Keys of configurations for layers that predict further tokens, which Hugging Face transformers does not train."""


@frozen(eq=False, repr=False)
class MlaSpec(Record):
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


@frozen(eq=False, repr=False)
class TransformerSpec(Record):
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
        mtp_layers: further blocks that predict later tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2).
        expert_groups: groups of experts that a token chooses from first (the same, section 2.1.2); 1: it does not.
        visited_groups: groups that it keeps.
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
    mtp_layers: int = field(default=0, validator=at_least(0))
    expert_groups: int = field(default=1, validator=at_least(1))
    visited_groups: int = field(default=1, validator=at_least(1))


@frozen(repr=False)
class GroupedQueryAttention(Record):
    """Attention whose query heads share key-value heads (GQA, arXiv 2305.13245).

    Attributes:
        heads: query heads.
        kv_heads: key-value heads; equal to `heads` in multi-head attention.
        head: channels per head.
        value: channels of each head's values; None: as many as of keys.
        bias: whether the query, key and value projections have biases.
        output_bias: whether the output projection has one.
        normalised: whether queries and keys are normalised per head.
        norm: kind of that norm: before the rotation with weights shared by heads (Qwen 3) or each head's `own` (also if
            all heads are normalised together: OLMo 2, arXiv 2501.00656), `unlearned` (Llama 4), or `rotated`, like Qwen
            3 but after the rotation (Hunyuan).
        rotary: whether queries and keys are rotated by their position.
        causal: whether a token attends to itself and earlier ones only.
        window: latest keys a query attends to, or nearest ones if not `causal`; None: all.
        chunk: tokens that only attend to one another, counted from the start (Llama 4); None: the whole sequence.
        capped: whether scores are capped by a hyperbolic tangent (Gemma 2, arXiv 2408.00118).
        sinks: whether each head has a learned score without a key (gpt-oss, arXiv 2508.10925).
        gate: numbers per head of a learned sigmoid gate on the result (arXiv 2505.06708); 0: none.
        indexer: selects the keys of a query; None: it attends to all.
        keys_of: index of the block whose keys and values it uses (Gemma 3n); None: its own.
        key_values: whether values are its keys, before norm and rotation (Gemma 4).
        value_norm: whether values are normalised, without weights.
    """

    heads: int
    kv_heads: int
    head: int
    bias: bool = False
    output_bias: bool = False
    normalised: bool = False
    norm: Literal["shared", "own", "unlearned", "rotated"] = "shared"
    rotary: bool = True
    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    capped: bool = False
    sinks: bool = False
    value: int | None = None
    gate: int = 0
    indexer: "Indexer | None" = None
    keys_of: int | None = None
    key_values: bool = False
    value_norm: bool = False


@frozen(repr=False)
class Indexer(Record):
    """Key selection of DeepSeek's sparse attention (DeepSeek-V3.2, arXiv 2512.02556, section 2.1).

    Attributes:
        heads: heads that score keys.
        head: channels of each, and of their shared key.
        keys: keys that a query keeps.
        choice_of: index of the block whose choice it uses (GLM-5.2); None: it chooses itself.
    """

    heads: int
    head: int
    keys: int
    choice_of: int | None = None


@frozen(eq=False, repr=False)
class LatentAttention(Record):
    """Causal multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Attributes:
        heads: attention heads.
        query_rank: rank of the query compression; None: queries are not compressed.
        key_value_rank: rank of the key-value compression.
        plain: query-key channels per head without rotary embedding.
        rotary: query-key channels per head with rotary embedding; heads share those of keys.
        value: value channels per head.
        bias: whether the compressions and the output projection have biases.
        indexer: selects the keys of a query from compressed queries; None: all keys.
        gate: numbers per head of a learned sigmoid gate on the result; 0: none.
    """

    heads: int
    query_rank: int | None
    key_value_rank: int
    plain: int
    rotary: int
    value: int
    bias: bool = False
    indexer: Indexer | None = None
    gate: int = 0


@frozen(repr=False)
class CompressedAttention(Record):
    """Attention to the last tokens and to compressed blocks of all (DeepSeek-V4).

    Attributes:
        heads: query heads.
        head: channels of each, and of the one key, which is also its value.
        query_rank: rank of the query compression.
        groups: groups of heads that are projected separately at first.
        output_rank: rank of the result of each.
        window: last tokens a query attends to.
        rate: tokens of a block; 0: no blocks.
        indexer: selects the blocks of a query; None: it attends to all.
    """

    heads: int
    head: int
    query_rank: int
    groups: int
    output_rank: int
    window: int
    rate: int = 0
    indexer: Indexer | None = None


@frozen(repr=False)
class Parallel(Record):
    """Mixers that read the same tokens and whose results are added (Falcon-H1, arXiv 2507.22448)."""

    parts: tuple["Mixer", ...]


Mixer = GroupedQueryAttention | LatentAttention | CompressedAttention | Stateful | Parallel
"""Part of a block that mixes tokens."""


@frozen(repr=False)
class FeedForward(Record):
    """A dense feed-forward network.

    Attributes:
        width: inner width, of each branch.
        gated: whether one of two branches gates the other.
        bias: whether its projections have biases.
        learned: numbers that its activation learns, one for each of its branches (two of xIELU, arXiv 2411.13010).
    """

    width: int
    gated: bool = True
    bias: bool = False
    learned: int = 0


@frozen(eq=False, repr=False)
class MixtureOfExperts(Record):
    """Routed experts, and perhaps one every token visits.

    Attributes:
        experts: routed experts.
        top_k: experts a token visits.
        width: inner width of one expert, of each branch.
        gated: whether experts have a gating branch.
        shared_width: inner width of the shared expert; 0: none.
        shared_gate: whether a learned sigmoid gate scales the shared expert's result.
        groups: groups of experts that a token chooses from first.
        visited_groups: groups that it keeps.
        bias: whether the routed experts' projections and the router have biases.
        latent: width of the tokens that routed experts read and write (Nemotron 3); None: the model's.
        normed: whether shared and routed experts have norms of their own before and after them (Gemma 4).
    """

    experts: int
    top_k: int
    width: int
    gated: bool = True
    shared_width: int = 0
    shared_gate: bool = False
    groups: int = 1
    visited_groups: int = 1
    bias: bool = False
    latent: int | None = None
    normed: bool = False


@frozen(eq=False, repr=False)
class TransformerBlock(Record):
    """One repeated block: attention, then a feed-forward network or a mixture of experts."""

    attention: GroupedQueryAttention | LatentAttention
    feed_forward: FeedForward | MixtureOfExperts


@frozen(eq=False, repr=False)
class HybridBlock(Record):
    """One block of any mixer and any feed-forward network; None: it has none."""

    attention: Mixer | None
    feed_forward: FeedForward | MixtureOfExperts | None


@frozen(eq=False, repr=False)
class Architecture(Record):
    """A whole language model.

    Attributes:
        family: name for reports.
        hidden: model width.
        vocab: vocabulary size.
        blocks: the transformer blocks in order; empty with `hybrid`.
        streams: residual streams with hyper-connections (arXiv 2512.24880); 0: one, without.
        layer_inputs: channels that each block reads of an embedding of its own (Gemma 3n); 0: none.
        layer_vocab: rows of those embeddings.
        hybrid: the blocks of a model with other mixers than attention, or with blocks without one or a network.
        tied: whether the head shares the word embedding's weights.
        norm_bias: LayerNorm, with weight and bias, instead of a norm with weight alone: RMSNorm or, in Command R, which
            also has `parallel`, LayerNorm without bias.
        positions: rows of the learned position embedding; 0: none.
        unused_positions: rows of it that no token has.
        types: rows of the segment embedding; 0: none.
        post_norm: norms follow the residual sums (BERT) instead of preceding each sub-layer.
        input_norms: whether each sub-layer reads a normalised copy of the stream, unless `post_norm`; OLMo 2's do not.
        parallel: number of norms before attention and feed-forward network that run in parallel, with their results
            added to the stream at once: 1 shared norm, or one each (GPT-J, arXiv 2204.06745, section 2.1); 0: the
            sub-layers run one after the other.
        result_norms: the result of each sub-layer is also normalised before it is added to the stream (Gemma 2, arXiv
            2408.00118).
        capped: whether logits are capped by a hyperbolic tangent (the same).
        scaled: whether factors scale embeddings, residual sums or logits (Gemma, Granite), at no cost here.
        masked_head: a masked language model (BERT, ModernBERT): embeddings are normalised, and before the vocabulary
            projection, which has a bias, are a projection, activation and norm, behind a final norm unless `post_norm`.
        predicting: number of last blocks that predict later tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2), each
            with a pass through the head; the merge of their two inputs is left out.
    """

    family: str
    hidden: int
    vocab: int
    blocks: tuple[TransformerBlock, ...]
    tied: bool = False
    norm_bias: bool = False
    positions: int = 0
    unused_positions: int = 0
    types: int = 0
    post_norm: bool = False
    masked_head: bool = False
    predicting: int = 0
    input_norms: bool = True
    parallel: int = 0
    result_norms: bool = False
    capped: bool = False
    scaled: bool = False
    streams: int = 0
    layer_inputs: int = 0
    layer_vocab: int = 0
    hybrid: tuple[HybridBlock, ...] = ()
