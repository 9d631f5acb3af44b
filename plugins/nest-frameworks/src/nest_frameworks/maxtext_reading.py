"""From MaxText's settings, as YAML or as the KEY=VALUE words of a script, to the keys of a problem.

Keys and defaults: src/maxtext/configs/base.yml and types.py of AI-Hypercomputer/maxtext, commit e591f30; what the mesh
axes divide: maxtext.py, which writes the same keys.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nest.catalogue import library_models
from nest.catalogue.spellings import catalogued
from nest.deployment import MODEL_LEFT, LaunchOptions, Reading
from nest.errors import InputError
from nest.io import read_mapping_text, there_is
from nest.io.source import read_text_of
from nest_frameworks.keys import Keys, launched, said
from nest_frameworks.maxtext import AXES, REMAT
from nest_frameworks.megatron.reading.script import walk
from nest_frameworks.megatron.reading.tokens import UNKNOWN, named
from nest_frameworks.megatron.relatives.commands import command

STACK = "maxtext"

DEFAULTS = {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": -1}
"""Sizes of mesh axes that are not 1 where they are not given; -1: what is left."""

UNREAD = ("diloco", "fsdp_transpose", "sequence", "context_autoregressive", "context_usp_ulysses", "autoregressive")
"""Mesh axes that nest does not read."""

TYPICAL = ("per_device_batch_size", "model_name", "remat_policy", "max_target_length", *DEFAULTS)

RECOMPUTE = {theirs: ours for ours, theirs in REMAT.items()} | {"minimal_flash": "none", "none": "full"}
"""Recompute mode by `remat_policy`; `none` saves nothing, and `minimal_flash` is the old name of the first."""

NETWORK = ["mlp_up", "mlp_activated"]
AGAIN = {
    "minimal": ["attention"],
    "save_dot_with_context_except_mlp": NETWORK,
    "save_dot_except_mlp": ["attention", *NETWORK],
}
"""Operators that run again by `remat_policy` (layers/decoders.py, `get_remat_policy`, AI-Hypercomputer/maxtext)."""

NAMES = {"deepseek3-671b": "deepseek-v3", "kimi-k2-1t": "kimi-k2"}
"""The catalogue's name by MaxText's, where these are no usual spellings of it."""

LAYERS = "base_num_decoder_layers"

WIDTHS = {
    LAYERS: ("layers", 16),
    "base_emb_dim": ("hidden", 2048),
    "base_mlp_dim": ("ffn", 7168),
    "base_num_query_heads": ("heads", 16),
    "base_num_kv_heads": ("kv_heads", 16),
    "head_dim": ("head_dim", 128),
    "vocab_size": ("vocab", 32000),
}
"""nest's name of a width, and what it is where it is not given."""

MODEL_KEYS = (
    *WIDTHS,
    "num_experts",
    "num_experts_per_tok",
    "base_moe_mlp_dim",
    "decoder_block",
    "logits_via_embedding",
)
"""Keys of which a named model has values of its own."""

FORMATS = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}

CHANGING = {
    "num_vocab_tiling": "nest assumes all logits to be stored",
    "pipeline_fsdp_ag_once": "nest assumes weights to be gathered for every micro-batch",
    **dict.fromkeys(("custom_mesh", "custom_mesh_and_rule"), "nest reads the sizes of MaxText's own axes"),
    "sliding_window_size": "nest assumes every query to attend to every key",
}
"""Keys that change layout, memory or model, with what nest prices."""

UNPRICED = {"use_qwix_quantization": ""}
"""Assumptions for set keys; empty: the key is only named."""

HARMLESS = (
    *("base_config", "run_name", "base_output_directory", "dataset_*", "hardware", "enable_checkpointing", "async_*"),
    *("use_iota_embed", "scan_*", "max_segments_per_seq", "logits_dot_in_fp32", "profiler*", "skip_first_*", "gcs_*"),
    *("steps", "learning_rate*", "adam_*", "tokenizer_*", "checkpoint_*", "eval_*", "reuse_example_batch", "metrics_*"),
    *("enable_*", "save_config_to_gcs", "rope_*", "normaliz*", "data_shuffle_seed", "init_weights_seed", "warmup_*"),
    *("sa_*", "gradient_clipping_threshold", "packing", "hf_*", "grain_*", "load_*", "compile_*", "log_*", "upload_*"),
    *("fused_qkv", "fused_mlp", "goodput_*", "monitor_goodput", "jax_*", "allow_split_physical_axes", "tfds_*"),
    *("megablox", "sparse_matmul", "capacity_factor", "cosine_*", "mlp_activations", "use_vertex_*", "trainable_*"),
)
"""Patterns of keys that change no cost that nest counts."""

_SETTING = re.compile(r"([a-z][a-z0-9_]*)=(.*)", re.DOTALL)


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read settings of MaxText.

    `options`: what else is said of the launch; its devices fill the axes that are -1. Without machines the sizes of the
    mesh say how many there are.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: these are no settings of MaxText, or they name a file that is not there.
    """
    options = options or LaunchOptions()
    notes: list[str] = []
    keys = Keys(_content(text, options, notes), notes=notes)
    sizes, inside, devices = _mesh(keys, options)
    fixed = _degrees(keys, sizes) | _order(keys, sizes, inside)
    model, experts = _model(keys)
    if fixed.get("ep", 1) > 1 or experts:
        fixed["etp"] = fixed["tp"]
    policy = str(keys.value("remat_policy"))
    if experts and policy in AGAIN and policy != "minimal":
        keys.problem(f"remat_policy is {policy}, and nest does not know what it saves of experts; give full.")
    training = _training(keys, fixed, devices) | {"selective": AGAIN.get(policy)}
    if keys.truth("parameter_memory_host_offload"):
        keys.on_host("parameter_memory_host_offload", bool(training["offload"]))
    if keys.value("attention_type") != "global":
        keys.refuse({"attention_type": "nest assumes every query to attend to every key"})
    keys.refuse(CHANGING)
    keys.unpriced(UNPRICED)
    settings = {"training": said(training), "fixed": said(fixed), **({} if model is None else {"model": model})}
    return Reading(settings, devices, notes=keys.finish(HARMLESS), ranks_per_node=keys.ranks_per_node)


_SCRIPT = re.compile(
    r"^[ \t]*(python3?\b|bash\b|export\b|MAXTEXT_SETTINGS=\(|#!)|\bMaxText[./]|\bmaxtext\.\w", re.MULTILINE
)


def _content(text: str, options: LaunchOptions, notes: list[str]) -> dict[str, Any]:
    """The settings, those on a command line over those of a file that it names."""
    if not _SCRIPT.search(text):
        content = read_mapping_text(text, "maxtext.yml")
    else:
        content = {}
        for word in _words(text, options, notes):
            key, equals, value = word.partition("=")
            name = (value if equals else word).rpartition("/")[2]
            if name.endswith((".yml", ".yaml")) and (not equals or key.strip() == "base_config"):
                path = None if options.folder is None else options.folder / name
                if path is not None and there_is(path) == "file":
                    content |= read_mapping_text(read_text_of(path), name)
                elif name != "base.yml":
                    raise InputError(f"the script names {name}, which is not there; put that file beside it.")
            elif match := _SETTING.fullmatch(word):
                content[match[1]] = _value(match[2])
    if not set(TYPICAL).intersection(content):
        raise InputError(f"the file has none of MaxText's settings {', '.join(TYPICAL[:4])}.")
    return content


def _words(text: str, options: LaunchOptions, notes: list[str]) -> Sequence[str]:
    """The settings that a script calls MaxText with, or those of an array where it calls nothing."""

    def sets(words: Sequence[str]) -> bool:
        return any(_SETTING.fullmatch(word) and word.partition("=")[0] in TYPICAL for word in words)

    script = walk(text, options)
    arrays = [words for words in script.variables.values() if sets(words)]
    if not any(sets(call.words) for call in script.calls) and arrays:
        return arrays[-1]
    words, _, told = command(text, options, sets, "call of MaxText with settings")
    notes += told
    return words


def _value(word: str) -> Any:
    """A number, a truth or a word; what only a run would tell stays `${...}`."""
    word = re.sub(rf"{UNKNOWN}\$?([^{UNKNOWN}]*){UNKNOWN}", r"${\1}", named(word))
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return float(word) if re.search(r"[.eE]", word) else int(word)
    except ValueError:
        return word


def _mesh(keys: Keys, options: LaunchOptions) -> tuple[dict[str, int], dict[str, int], int | None]:
    """Ranks along each axis, those of a slice, and devices; None: nobody says how many."""
    names = [*AXES, *UNREAD]
    inside, outside = ({name: _size(keys, f"{net}_{name}_parallelism") for name in names} for net in ("ici", "dcn"))
    devices = launched(keys, options)
    slices = keys.integer("num_slices", -1) or -1
    outer = prod(size for size in outside.values() if size > 0)
    if slices < 1:
        slices = outer
        free = -1 in outside.values()
        if free and devices is None and any(keys.value(f"dcn_{name}_parallelism") == -1 for name in names):
            keys.problem(
                "an axis dcn_*_parallelism of the mesh is -1, and the number of slices it follows from is not known: "
                "give --nodes, or write it or num_slices."
            )
        elif free and devices is not None and keys.value("hardware") in ("gpu", "gpu_multiprocess"):
            slices = options.nodes or 1  # Machines are the slices of GPUs.
        elif free and devices is not None and (each := prod(inside.values())) > 0 and devices % (each * outer) == 0:
            slices = devices // each
        elif free and outer == 1 and devices is not None:
            keys.note("nest assumes all devices to be of one slice; change this with num_slices.")
    outside = _filled(keys, outside, slices, "dcn", "slices")
    if devices is None:
        if -1 in inside.values():
            keys.problem(
                "an axis of the mesh is -1 (ici_fsdp_parallelism where it is left out), and the number of devices it "
                "follows from is not known: give --nodes, or write it."
            )
            inside = {name: abs(size) for name, size in inside.items()}
    else:
        if devices % slices:
            keys.problem(f"{devices} devices are no {slices} slices of as many; give other --nodes.")
        inside = _filled(keys, inside, devices // slices, "ici", "devices of a slice")
    sizes = {name: inside[name] * outside[name] for name in names}
    strange = [name for name in UNREAD if sizes[name] > 1]
    if strange:
        keys.problem(f"nest does not read what MaxText does along {', '.join(strange)}.")
    return sizes, inside, prod(sizes.values())


def _order(keys: Keys, sizes: Mapping[str, int], inside: Mapping[str, int]) -> dict[str, Any]:
    """The rank order: stages are outside of replicas, within slices and between them (types.py, `mesh_axes`)."""
    stages, data = sizes["pipeline"], sizes["data"] * sizes["fsdp"]
    if stages == 1 or data == 1:
        return {}
    near, replicas = inside["pipeline"], inside["data"] * inside["fsdp"]
    if near == 1 or replicas == data:
        return {"rank_order": "dp-inner"}
    if near < stages or replicas > 1:
        keys.problem(
            f"slices hold {near} of {stages} stages and {replicas} of {data} data-parallel ranks, an order of ranks "
            "that nest does not price; put all of one into a slice."
        )
    return {"rank_order": "pp-inner"}


def _size(keys: Keys, key: str) -> int:
    given = keys.integer(key, -1)
    return given or DEFAULTS.get(key, 1)


def _filled(keys: Keys, sizes: Mapping[str, int], whole: int, net: str, what: str) -> dict[str, int]:
    """`sizes` with the one that is -1 made what is left."""
    known = prod(size for size in sizes.values() if size > 0)
    free = [name for name, size in sizes.items() if size < 0]
    if len(free) > 1 or whole % known or (not free and known != whole):
        keys.problem(
            f"the sizes {net}_*_parallelism make {known}, and there are {whole} {what}; one of them may be -1, and "
            "--nodes says how many there are."
        )
    return {name: max(whole // known, 1) if size < 0 else size for name, size in sizes.items()}


def _degrees(keys: Keys, sizes: Mapping[str, int]) -> dict[str, Any]:
    tp, sp = sizes["tensor"], sizes["tensor_sequence"]
    if tp > 1 and sp > 1:
        keys.problem("tensor and tensor_sequence parallelism are both above 1; nest reads one of them.")
    fixed: dict[str, Any] = {"tp": tp * sp, "sp": sp > 1, "cp": sizes["context"], "pp": sizes["pipeline"]}
    within = sizes["fsdp"] * sizes["expert"]
    fixed["dp"] = sizes["data"] * within
    whole = keys.truth("shard_optimizer_over_data")
    fixed["zero"] = 3 if within * fixed["cp"] > 1 else 1 if whole and sizes["data"] > 1 else 0
    if fixed["zero"] == 3 and sizes["data"] > 1:
        fixed["zero_degree"] = within * fixed["cp"]
    if sizes["expert"] > 1:
        fixed["ep"] = sizes["expert"]
    policy = str(keys.value("remat_policy") or "full")
    fixed["recompute"] = "selective" if policy in AGAIN else RECOMPUTE.get(policy, "full")
    if policy in AGAIN:
        keys.note(f"remat_policy {policy} is priced as selective recomputation of {', '.join(AGAIN[policy])}.")
    elif policy not in RECOMPUTE:
        known = ", ".join((*RECOMPUTE, *AGAIN))
        keys.problem(f"remat_policy is {policy:.60}, which saves what nest does not price; it knows {known}.")
    repeats, per_stage = keys.integer("num_pipeline_repeats", -1), keys.integer("num_layers_per_pipeline_stage")
    if fixed["pp"] > 1:
        fixed["schedule"] = "gpipe"
        if repeats != 1:
            keys.problem(
                "num_pipeline_repeats is not 1, so that stages run several times for each micro-batch, which nest does "
                f"not read (num_layers_per_pipeline_stage {per_stage or 1})."
            )
    return fixed


def _training(keys: Keys, fixed: dict[str, Any], devices: int | None) -> dict[str, Any]:
    each, steps = keys.value("per_device_batch_size"), keys.integer("gradient_accumulation_steps") or 1
    each = 12 if each is None else each
    length, trained = keys.integer("max_target_length") or 2048, keys.integer("steps", -1) or 0
    stages = keys.integer("num_pipeline_microbatches", -1)
    if isinstance(each, bool) or not isinstance(each, (int, float)) or not 0 < each < 1e9:
        keys.problem(f"per_device_batch_size is {each!r:.60}; it must be a number above 0.")
        each = 1
    samples = int((devices or 1) * each)
    parts = fixed["dp"]
    if fixed["pp"] > 1:
        delayed = 1 + keys.truth("pipeline_delay_activation_forwarding")
        parts *= stages if stages is not None and stages > 0 else delayed * fixed["pp"]
    fixed["micro_batch"], left = divmod(samples, parts)
    if left or not samples:
        keys.problem(
            f"per_device_batch_size {each} makes {samples} samples on {devices} devices, which are no micro-batches of "
            f"{parts // fixed['dp']} x {fixed['dp']} data-parallel ranks."
        )
    if fixed["pp"] > 1 and steps > 1:
        keys.note(f"the pipeline drains {steps} times a step; it is priced as if it did so once.")
    batch = samples * steps
    kind = "unfused" if keys.value("attention") == "dot_product" else None
    gradients = keys.choice("grad_dtype", FORMATS, None)
    narrow = keys.choice("weight_dtype", {"float32": None, "bfloat16": "bf16"}, None)
    exchanges = {"all_gather": "all_gather", "ring": "ring"}
    exchange = keys.choice("context_parallel_strategy", exchanges, "all_gather") if fixed["cp"] > 1 else None
    keys.value("context_parallel_strategy")
    return {
        "global_batch": batch,
        "sequence_length": length,
        "tokens": batch * length * trained if trained > 0 else None,
        "precision": _precision(keys),
        "optimizer": _optimizer(keys),
        "gradients": narrow or gradients,  # Only those in single precision become `grad_dtype` (train.py).
        **dict.fromkeys(("master_weights", "master_gradients"), False if narrow else None),
        "offload": ["optimizer"] if keys.truth("optimizer_memory_host_offload") else None,
        "attention": kind,
        "context_exchange": exchange,
        "stack": STACK,
    }


def _optimizer(keys: Keys) -> str:
    """Moments are in `weight_dtype` where `mu_dtype` is left out (base.yml)."""
    name = keys.choice("opt_type", {"adamw": "adamw", "adam_pax": "adam", "sgd": "sgd"}, "adamw")
    weights = str(keys.value("weight_dtype") or "float32")
    if (moment := str(keys.value("mu_dtype") or weights)) != weights:
        keys.problem(f"mu_dtype is {moment:.40}, but nest prices both moments in weight_dtype {weights:.40}.")
    narrow = weights == "bfloat16"
    return "adam-bf16" if narrow and name != "sgd" else name


def _precision(keys: Keys) -> str:
    precision, narrow = keys.choice("dtype", FORMATS, "bf16"), str(keys.value("quantization") or "")
    if "fp8" in narrow:
        return "fp8"
    if narrow:
        keys.problem(f"quantization is {narrow:.60}, and nest prices bf16, fp16, fp32 and fp8.")
    return precision


def _model(keys: Keys) -> tuple[Any, bool]:
    """`model` of a problem, and whether it has experts; None: the problem has to say it."""
    name = str(keys.value("model_name") or "default")
    widths = {ours: keys.integer(theirs) or usual for theirs, (ours, usual) in WIDTHS.items()}
    block = str(keys.value("decoder_block") or "llama2")
    tied, normalised = keys.truth("logits_via_embedding"), keys.truth("use_qk_norm")
    experts, top_k = keys.integer("num_experts") or 1, keys.integer("num_experts_per_tok") or 1
    inner = keys.integer("base_moe_mlp_dim", -1)
    changes = keys.truth("override_model_config") and [key for key in MODEL_KEYS if keys.value(key) is not None]
    fewer = keys.integer(LAYERS) if changes == [LAYERS] else None
    if changes and name != "default" and fewer is None:
        keys.problem(
            f"override_model_config has {', '.join(changes)} change {name:.60}, which nest does not read; leave "
            "model_name out, and give all widths."
        )
    if name != "default":
        known = NAMES.get(name.removesuffix("-base")) or catalogued(name)
        if known is None:
            keys.note(f"model_name {name:.60} is not in the catalogue: {MODEL_LEFT}")
            return None, False
        config = library_models()[known].config
        if fewer is not None:
            kinds = {"layer_types": config["layer_types"][:fewer]} if "layer_types" in config else {}
            return {**config, **kinds, "num_hidden_layers": fewer}, "num_experts" in config
        return known, any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    scale = keys.integer("global_parameter_scale") or 1
    if block not in ("llama2", "mistral", "mixtral", "qwen3", "qwen3_moe") or scale > 1:
        keys.note(f"decoder_block {block:.60} with global_parameter_scale {scale} is not read: {MODEL_LEFT}")
        return None, experts > 1
    if block.startswith("qwen3") or normalised:
        return _qwen(widths, tied, experts, top_k, inner), experts > 1
    mixture = {"experts": experts, "top_k": top_k, "moe_ffn": inner if inner and inner > 0 else widths["ffn"]}
    return {"transformer": {**widths, "tied_embeddings": tied, **(mixture if experts > 1 else {})}}, experts > 1


def _qwen(widths: Mapping[str, int], tied: bool, experts: int, top_k: int, inner: int | None) -> dict[str, Any]:
    """Qwen 3, whose queries and keys have norms."""
    config = {
        "model_type": "qwen3" if experts == 1 else "qwen3_moe",
        "num_hidden_layers": widths["layers"],
        "hidden_size": widths["hidden"],
        "intermediate_size": widths["ffn"],
        "num_attention_heads": widths["heads"],
        "num_key_value_heads": widths["kv_heads"],
        "head_dim": widths["head_dim"],
        "vocab_size": widths["vocab"],
        "tie_word_embeddings": tied,
    }
    narrow = inner if inner and inner > 0 else widths["ffn"]
    mixture = {"num_experts": experts, "num_experts_per_tok": top_k, "moe_intermediate_size": narrow}
    return {**config, **(mixture if experts > 1 else {})}
