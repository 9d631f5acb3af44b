"""torchtitan's model for a plan."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from nest.spec import Architecture
from nest.spec.architecture import FeedForward, LatentAttention
from nest_frameworks.configurations import configuration
from nest_frameworks.limits import like_llama, mixture

Widths = Mapping[str, Any]
"""Widths of a model by torchtitan's names for them."""

OLD = "0.2.2"
NEW = "0.3.0"

LLAMA = "llama3"
QWEN = "qwen3"
DEEPSEEK = "deepseek_v3"


@frozen
class Flavor:
    """One of the sizes torchtitan knows of a model.

    Attributes:
        model: torchtitan's name of the model.
        name: torchtitan's name of the size.
        figures: hidden width, blocks, heads, key-value heads, channels per head, inner width of the dense feed-forward
            networks, vocabulary, whether embedding and head are tied, routed experts, inner width of each.
        recipe: function of torchtitan 0.3 that returns a run of this size; "": there is none.
        since: the version that brought it.
    """

    model: str
    name: str
    figures: tuple[int, ...]
    recipe: str = ""
    since: str = OLD


# Figures: torchtitan/models/{llama3,qwen3,deepseek_v3}/__init__.py of 0.2.2 and 0.3.0; recipes: config_registry.py
# beside them in 0.3.0.
_NO_EXPERTS = (0, 0)
FLAVORS = (
    Flavor(LLAMA, "1B", (2048, 16, 32, 8, 64, 8192, 128256, 1, *_NO_EXPERTS), since=NEW),
    Flavor(LLAMA, "3B", (3072, 28, 24, 8, 128, 8192, 128256, 1, *_NO_EXPERTS), since=NEW),
    Flavor(LLAMA, "8B", (4096, 32, 32, 8, 128, 14336, 128256, 0, *_NO_EXPERTS), "llama3_8b"),
    Flavor(LLAMA, "70B", (8192, 80, 64, 8, 128, 28672, 128256, 0, *_NO_EXPERTS), "llama3_70b"),
    Flavor(LLAMA, "405B", (16384, 126, 128, 8, 128, 53248, 128256, 0, *_NO_EXPERTS), "llama3_405b"),
    Flavor(QWEN, "0.6B", (1024, 28, 16, 8, 128, 3072, 151936, 1, *_NO_EXPERTS), "qwen3_0_6b"),
    Flavor(QWEN, "1.7B", (2048, 28, 16, 8, 128, 6144, 151936, 1, *_NO_EXPERTS), "qwen3_1_7b"),
    Flavor(QWEN, "4B", (2560, 36, 32, 8, 128, 9728, 151936, 1, *_NO_EXPERTS)),
    Flavor(QWEN, "8B", (4096, 36, 32, 8, 128, 12288, 151936, 0, *_NO_EXPERTS)),
    Flavor(QWEN, "14B", (5120, 40, 40, 8, 128, 17408, 151936, 0, *_NO_EXPERTS), "qwen3_14b"),
    Flavor(QWEN, "32B", (5120, 64, 64, 8, 128, 25600, 151936, 0, *_NO_EXPERTS), "qwen3_32b"),
    Flavor(QWEN, "30B-A3B", (2048, 48, 32, 4, 128, 0, 151936, 0, 128, 768), "qwen3_30b_a3b"),
    Flavor(QWEN, "235B-A22B", (4096, 94, 64, 4, 128, 0, 151936, 0, 128, 1536)),
    Flavor(DEEPSEEK, "16B", (2048, 27, 16, 16, 128, 10944, 102400, 0, 64, 1408), "deepseek_v3_16b"),
    Flavor(DEEPSEEK, "236B", (5120, 60, 128, 128, 128, 12288, 102400, 0, 160, 1536)),
    Flavor(DEEPSEEK, "671B", (7168, 61, 128, 128, 128, 18432, 129280, 0, 256, 2048), "deepseek_v3_671b"),
)

_NAMED = {
    (LLAMA, "8B"): "llama-3-8b",
    (LLAMA, "70B"): "llama-3-70b",
    (LLAMA, "405B"): "llama-3.1-405b",
    (DEEPSEEK, "671B"): "deepseek-v3",
}
"""nest's own name of a size, where it has one and figures do not say all."""

_CHOSEN = 8
"""Experts that a token visits in every mixture of qwen3 (torchtitan/models/qwen3/__init__.py)."""

_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_SMALL_DEEPSEEK: dict[str, dict[str, Any]] = {
    "16B": {"mla": {**_LATENT, "q_lora_rank": None}},
    "236B": {"mla": {**_LATENT, "q_lora_rank": 1536}, "expert_groups": 8, "visited_groups": 3},
}
"""Unpublished figures of those sizes of deepseek_v3 (torchtitan/models/deepseek_v3/__init__.py)."""


def described(known: Flavor) -> Any:
    """`model` of a problem for one of torchtitan's sizes."""
    if (known.model, known.name) in _NAMED:
        return _NAMED[known.model, known.name]
    hidden, layers, heads, kv_heads, head, dense, vocab, tied, experts, width = known.figures
    widths = {"layers": layers, "hidden": hidden, "ffn": dense, "heads": heads, "vocab": vocab}
    if known.model == DEEPSEEK:
        chosen = {"experts": experts, "top_k": 6, "moe_ffn": width, "shared_expert_ffn": 2 * width, "dense_layers": 1}
        return {"transformer": {**widths, **chosen, **_SMALL_DEEPSEEK[known.name]}}
    if known.model == LLAMA:
        return {"transformer": {**widths, "kv_heads": kv_heads, "head_dim": head, "tied_embeddings": bool(tied)}}
    config = {
        "model_type": "qwen3_moe" if experts else "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "intermediate_size": dense or width * _CHOSEN,
        "vocab_size": vocab,
        "tie_word_embeddings": bool(tied),
    }
    mixture = {"num_experts": experts, "num_experts_per_tok": _CHOSEN, "moe_intermediate_size": width}
    return {**config, **(mixture if experts else {})}


RECIPES = {LLAMA: "llama3_8b", QWEN: "qwen3_0_6b", DEEPSEEK: "deepseek_v3_16b"}
"""For sizes without a recipe of their own, that of another size, whose model is then replaced."""


def family(architecture: Architecture | None) -> str | None:
    """Name that torchtitan gives the model of that build; None: it has none that is built so."""
    if architecture is None or not like_llama(architecture):
        return None
    attention, experts = architecture.blocks[0].attention, mixture(architecture)
    if isinstance(attention, LatentAttention):
        return DEEPSEEK if experts is not None else None
    if attention.normalised:
        return QWEN if experts is None or experts.shared_width == 0 else None
    return LLAMA if experts is None and attention.heads * attention.head == architecture.hidden else None


def flavor(architecture: Architecture | None, version: str) -> Flavor | None:
    """The size of that model that has these widths; None: `version` has none."""
    model = family(architecture)
    if architecture is None or model is None:
        return None
    matching = (flavor for flavor in FLAVORS if flavor.model == model and flavor.figures == figures(architecture))
    return next((flavor for flavor in matching if version == NEW or flavor.since == OLD), None)


def unknown_llama(architecture: Architecture | None) -> bool:
    """Return whether it is a `llama3` of a size that torchtitan 0.2.2 lacks and can be taught (`registration`)."""
    if architecture is None or architecture.tied:
        return False
    return family(architecture) == LLAMA and flavor(architecture, OLD) is None


def figures(architecture: Architecture) -> tuple[int, ...]:
    """Figures of any model, as `Flavor.figures`."""
    attention = architecture.blocks[0].attention
    if isinstance(attention, LatentAttention):
        kv_heads, head = attention.heads, attention.value
    else:
        kv_heads, head = attention.kv_heads, attention.head
    dense = next((b.feed_forward.width for b in architecture.blocks if isinstance(b.feed_forward, FeedForward)), 0)
    experts = mixture(architecture)
    return (
        architecture.hidden,
        len(architecture.blocks),
        attention.heads,
        kv_heads,
        head,
        dense,
        architecture.vocab,
        int(architecture.tied),
        0 if experts is None else experts.experts,
        0 if experts is None else experts.width,
    )


def stated_widths(architecture: Architecture | None) -> str:
    """The widths of a model in words, for a comment."""
    if architecture is None:
        return "its widths are not described"
    names = ("hidden", "blocks", "heads", "key-value heads", "per head", "feed-forward", "vocabulary", "tied")
    stated = [f"{name} {value}" for name, value in zip(names, figures(architecture), strict=False)]
    experts = mixture(architecture)
    if experts is not None:
        stated.append(f"{experts.experts} experts of {experts.width}, {experts.top_k} a token")
    return ", ".join(stated)


def registration(architecture: Architecture, source: Any = None) -> str:
    """A module that teaches torchtitan 0.2.2 another size of `llama3`, for `experimental.custom_import`.

    torchtitan rounds `8 dim multiplier / 3` up to a multiple of `multiple_of` (torchtitan/models/llama3/model/model.py,
    `FeedForward`): eight ninths of the width, rounded up to a multiple of the width, is the width. It stretches rotary
    positions as Llama 3.1 does unless the factor is 1 (`apply_scaling`).

    `source`: `model` of the plan's problem, whose configuration may say what widths do not; None: nothing does.
    """
    hidden, blocks, heads, kv_heads, _, width, vocab, *_ = figures(architecture)
    details = rotary_details(source)
    return f'''"""Teaches torchtitan {OLD} the size `nest` of llama3; torchtitan.toml imports it."""

from torchtitan.models.llama3 import TransformerModelArgs, llama3_args
from torchtitan.models.llama3.model.args import RoPEScalingArgs

llama3_args["nest"] = TransformerModelArgs(
    dim={hidden},
    n_layers={blocks},
    n_heads={heads},
    n_kv_heads={kv_heads},
    vocab_size={vocab},
    multiple_of={width},
    ffn_dim_multiplier={width} / (3 * {hidden}),
    norm_eps={details["norm_eps"]!r},
    rope_theta={details["rope_theta"]!r},
    rope_scaling_args=RoPEScalingArgs(
        scaling_factor={details["factor"]!r},
        low_freq_factor={details["low_freq_factor"]!r},
        high_freq_factor={details["high_freq_factor"]!r},
        original_max_position_embeddings={int(details["original_max_position_embeddings"])!r},
    ),
)
'''


_PLAIN = {
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "factor": 1.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192.0,
}
"""Norms and rotary positions where nobody says otherwise, and a factor that stretches nothing."""

_FLAVORS = {**_PLAIN, "rope_theta": 500000.0, "factor": 8.0}
"""Those of every size of `llama3` (torchtitan/models/llama3/__init__.py)."""


def rotary_details(source: Any) -> dict[str, float]:
    """Epsilon of norms, base of rotary positions and how Llama 3.1 stretches them, as a configuration says."""
    config = configuration(source)
    inner = config.get("rope_scaling") or config.get("rope_parameters")
    inner = inner if isinstance(inner, Mapping) else {}
    stretched = inner if inner.get("rope_type", inner.get("type")) == "llama3" else {}
    said = {"norm_eps": config.get("rms_norm_eps"), **stretched}
    said["rope_theta"] = inner.get("rope_theta", config.get("rope_theta"))
    return {name: _number(said.get(name), usual) for name, usual in _PLAIN.items()}


def unsaid(architecture: Architecture | None, source: Any) -> str | None:
    """Rotary positions of a configuration that no size of torchtitan's llama3 has a field for."""
    if family(architecture) != LLAMA:
        return None
    config = configuration(source)
    inner = config.get("rope_scaling") or config.get("rope_parameters")
    inner = inner if isinstance(inner, Mapping) else {}
    kind = inner.get("rope_type", inner.get("type", "default"))
    part = _number(inner.get("partial_rotary_factor", config.get("partial_rotary_factor")), 1.0)
    own = [f"rope_scaling of type {kind!r:.60}"] * (kind not in ("default", "llama3"))
    own += [f"partial_rotary_factor {part:g}"] * (part != 1)
    return f"torchtitan's llama3 has nothing for the configuration's {' and '.join(own)}." if own else None


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def unlike_flavor(architecture: Architecture | None, source: Any) -> str | None:
    """Norms and rotary positions of a configuration that differ from torchtitan's size of these widths."""
    if not configuration(source) or family(architecture) != LLAMA or (rotary := rotary_details(source)) == _FLAVORS:
        return None
    own = ", ".join(f"{name} {rotary[name]:g}" for name in rotary if rotary[name] != _FLAVORS[name])
    return f"The model's configuration has {own}, which torchtitan's size of these widths has not: change it there."
