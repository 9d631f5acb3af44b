"""Models with Mamba layers that flags of Megatron-LM build, as configurations of Nemotron-H.

Patterns and ratios: megatron/core/models/hybrid/hybrid_layer_allocation.py of Megatron-LM d98e8a64; widths:
megatron/core/ssm/mamba_mixer.py there (chunks of 128 tokens, convolutions over 4).
"""

from typing import Any

from nest.errors import InputError
from nest.hooks.architectures import hybrid_of
from nest.spec import Architecture
from nest.spec.architecture import GroupedQueryAttention
from nest_frameworks import limits
from nest_frameworks.megatron.reading.flags import FlagReader
from nest_frameworks.megatron.reading.model import GATED, MOST_LAYERS, SMALL, read_architecture

PATTERN = "--hybrid-layer-pattern"
MAMBA, ATTENTION, NETWORK, EXPERTS = "M*-E"


def read_hybrid(flags: FlagReader) -> tuple[Architecture, dict[str, Any]]:
    """A decoder of attention with as many layers, whose stages are the same, and the model as a `config.json`.

    Mistakes are left with `flags`.
    """
    main, further = _patterns(flags)
    if (layers := flags.integer("--num-layers")) not in (None, len(main)):
        flags.note(f"--num-layers {layers} is ignored, as {PATTERN} has {len(main)} layers.")
    flags.words["--num-layers"] = (str(len(main)),)
    stand_in = read_architecture(flags)
    hidden = flags.integer("--hidden-size") or 1
    assert stand_in is not None  # It has layers.
    attention, mixture = stand_in.blocks[0].attention, limits.mixture(stand_in)
    head, groups = flags.integer("--mamba-head-dim") or 64, flags.integer("--mamba-num-groups") or 8
    heads = flags.integer("--mamba-num-heads") or max(2 * hidden // head, 1)
    config: dict[str, Any] = {
        "model_type": "nemotron_h",
        "hidden_size": hidden,
        "hybrid_override_pattern": main,
        "vocab_size": stand_in.vocab,
        "tie_word_embeddings": stand_in.tied,
        "intermediate_size": flags.integer("--ffn-hidden-size") or 4 * hidden,
        "mlp_bias": NETWORK in main and not flags.has("--disable-bias-linear"),
        "mamba_num_heads": heads,
        "mamba_head_dim": head,
        "n_groups": groups,
        "ssm_state_size": flags.integer("--mamba-state-dim") or 128,
        "chunk_size": 128,
    }
    if heads % groups:
        flags.problem(f"--mamba-num-groups {groups} does not divide the {heads} heads of Mamba layers.")
    if not isinstance(attention, GroupedQueryAttention):
        flags.problem("--multi-latent-attention beside Mamba layers is not priced.")
    else:
        config |= {"num_attention_heads": attention.heads, "num_key_value_heads": attention.kv_heads}
        config |= {"head_dim": attention.head, "attention_bias": attention.output_bias}
        turned = ATTENTION in main and (attention.normalised or attention.rotary)
        if attention.window is not None:
            flags.problem("--window-size beside Mamba layers is not priced.")
        if turned or stand_in.positions or stand_in.norm_bias:
            flags.note(f"rotation, {SMALL} are not priced beside Mamba layers.")
    if {NETWORK, EXPERTS} & {*main} and any(flags.has(flag) for flag in GATED):
        flags.problem(f"{' or '.join(GATED)} is given: nest prices networks without a gate beside Mamba layers.")
    latent = flags.integer("--moe-latent-size")
    flags.words.pop("--moe-latent-size", None)  # Read: nothing of it is left to tell.
    flags.words.pop("--spec", None)
    if EXPERTS in main + further:
        if mixture is None or not mixture.shared_width:
            flags.problem(f"{PATTERN} has experts (E), which need --num-experts and a shared expert to be priced.")
        else:
            config |= {"n_routed_experts": mixture.experts, "num_experts_per_tok": mixture.top_k}
            config |= {"moe_intermediate_size": mixture.width, "mlp_bias": False, "moe_latent_size": latent}
            config["moe_shared_expert_intermediate_size"] = mixture.shared_width
    if further:
        config["num_nextn_predict_layers"] = stand_in.predicting
    try:
        if not flags.problems:
            hybrid_of(config)
    except InputError as error:
        flags.problem(f"the model with Mamba layers cannot be built: {error}")
    return stand_in, config


def _patterns(flags: FlagReader) -> tuple[str, str]:
    """Letters of the layers, and of those of each depth that predicts further tokens; empty: there are none."""
    said = flags.word(PATTERN) or flags.word("--hybrid-override-pattern")
    shares = [flags.number(f"--hybrid-{what}-ratio") or 0.0 for what in ("attention", "mlp")]
    flags.asked |= {"--is-hybrid-model", "--spec", "--model-provider"}
    if said is None:
        layers = min(flags.integer("--num-layers") or 1, MOST_LAYERS)
        if min(shares) < 0 or sum(shares) > 1:
            flags.problem("--hybrid-attention-ratio and --hybrid-mlp-ratio must be shares of all layers.")
            shares = [0.0, 0.0]
        said = _of_shares(layers, *shares)
    main, *further = said.strip("\"'").split("/")
    if older := flags.word("--mtp-hybrid-override-pattern"):
        further = [older] * (flags.integer("--mtp-num-layers") or 0)
    if further:
        flags.words["--mtp-num-layers"] = (str(len(further)),)
    if "|" in main:
        flags.problem(f"{PATTERN} has stages (|), which nest does not read; it reads layers that stages share evenly.")
        main = main.replace("|", "")
    if strange := sorted({*main} - {MAMBA, ATTENTION, NETWORK, EXPERTS}):
        flags.problem(
            f"{PATTERN} has {strange[0]!r}, and nest reads M (Mamba), * (attention), - (network), E (experts)."
        )
    if {*further} - {ATTENTION + (EXPERTS if EXPERTS in main else NETWORK)}:
        flags.problem(f"{PATTERN} predicts further tokens with layers {further[0]!r:.40}, which nest does not read.")
    if not 0 < len(main) <= MOST_LAYERS:
        flags.problem(f"{PATTERN} must have from 1 to {MOST_LAYERS} layers.")
    return main[:MOST_LAYERS] or MAMBA, "".join(further[:1])


def _of_shares(layers: int, attention: float, networks: float) -> str:
    """Layers spread evenly, as `pattern_from_ratios` does."""
    letters = [MAMBA] * layers
    for letter, count, start in ((ATTENTION, round(layers * attention), 1), (NETWORK, round(layers * networks), 0)):
        if not count:
            continue
        gap = (letters.count(MAMBA) - count) / (count + start)
        left = gap
        for place, now in enumerate(letters):
            if now == MAMBA:
                letters[place], left = (letter, left + gap) if left < 0.5 else (now, left - 1)
    return "".join(letters)
