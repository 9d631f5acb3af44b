"""Remedies for unknown keys and names: nest's word for another tool's, or the nearest name.

They are only suggested, never accepted, so that every file says a thing in one way.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

_TENSOR = "tensor_parallel tensor_parallelism tensor_model_parallel model_parallel mp"
_PIPELINE = "pipeline_parallel pipeline_parallelism pipeline_model_parallel pipeline pipeline_stages num_stages stages"
_CHUNKS = "vpp virtual_pipeline virtual_pipeline_model_parallel virtual_pipeline_stages virtual_stages num_model_chunks"
_CHECKPOINTING = "activation_checkpointing gradient_checkpointing activation_recomputation checkpoint_activations"
_LEVELS = "nodes num_nodes gpus num_gpus devices num_devices world hosts_count machines gpus_per_node nproc_per_node"

KEYS: tuple[tuple[str, str, str, str], ...] = (
    ("tp", "fixed", "tp: <8>", _TENSOR),
    ("pp", "fixed", "pp: <4>", _PIPELINE),
    ("dp", "fixed", "dp: <8>", "data_parallel data_parallelism ddp"),
    ("cp", "fixed", "cp: <2>", "context_parallel context_parallelism ring_attention"),
    ("sp", "fixed", "sp: <true>", "sequence_parallel sequence_parallelism"),
    ("ep", "fixed", "ep: <8>", "expert_parallel expert_parallelism expert_model_parallel moe_parallel"),
    ("etp", "fixed", "etp: <1>", "expert_tensor_parallel"),
    ("zero", "fixed", "zero: <1>", "zero_stage zero_optimization"),
    ("zero", "fixed", "zero: 3", "fsdp fsdp2 fully_sharded zero3 fully_sharded_data_parallel full_shard"),
    ("zero", "fixed", "zero: 1", "distributed_optimizer use_distributed_optimizer zero1 shard_optimizer"),
    ("zero", "fixed", "zero: 2", "zero2 shard_grad_op"),
    ("zero_degree", "fixed", "zero_degree: <8>", "data_parallel_shard hsdp hybrid_shard"),
    ("chunks", "fixed", "chunks: <2>", _CHUNKS),
    ("rank_order", "fixed", "rank_order: <dp-inner>", "order"),
    ("recompute", "fixed", "recompute: full", _CHECKPOINTING),
    ("recompute", "fixed", "recompute: <full>", "recomputation recompute_granularity rematerialization"),
    ("recompute_layers", "fixed", "recompute_layers: <5>", "recompute_num_layers checkpoint_num_layers"),
    ("micro_batches", "fixed", "micro_batches: <16>", "gradient_accumulation gradient_accumulation_steps grad_accum"),
    ("micro_batches", "fixed", "micro_batches: <16>", "num_microbatches accumulate_grad_batches gas"),
    ("replicas", "fixed", "replicas: <8>", "num_replicas data_parallel_replicate"),
    ("micro_batch", "training", "micro_batch: <1>", "mbs per_device_train_batch per_device_batch batch_per_gpu"),
    ("micro_batch", "training", "micro_batch: <1>", "train_micro_batch_size_per_gpu local_batch per_gpu_batch"),
    ("global_batch", "training", "global_batch: <1024>", "gbs batch train_batch train_batch_size total_batch"),
    ("sequence_length", "training", "sequence_length: <8192>", "seq seq_len seq_length max_seq_len max_seq_length"),
    ("sequence_length", "training", "sequence_length: <8192>", "context context_length context_window block seqlen"),
    ("sequence_length", "training", "sequence_length: <8192>", "model_max_length max_position_embeddings n_positions"),
    ("precision", "training", "precision: <bf16>", "dtype torch_dtype mixed_precision amp compute_dtype param_dtype"),
    ("schedule", "training", "schedule: <1f1b>", "pipeline_schedule pipeline_parallel_schedule"),
    ("tensor", "training.overlap", "tensor: <true>", "tp tensor_parallel tp_comm tp_comm_overlap"),
    ("data", "training.overlap", "data: <true>", "dp data_parallel grad_reduce param_gather overlap_grad_reduce"),
    ("experts", "training.overlap", "experts: <true>", "ep expert_parallel moe all_to_all"),
    ("optimizer", "training", "optimizer: <adam>", "optim optimizer_name"),
    ("target", "search", "target: <megatron>", "framework backend"),
    ("fanout", "cluster.levels", "fanout: <8>", f"size count {_LEVELS}"),
    ("levels", "cluster", "levels: [{fanout: 8, link: nvlink4}, {fanout: 16, link: infiniband-ndr}]", _LEVELS),
    ("levels", "cluster", "levels: [{fanout: 8, link: nvlink4}, {fanout: 16, link: infiniband-ndr}]", "network"),
    ("device", "cluster", "device: <h100-sxm>", "gpu accelerator gpu_type device_type hardware chip"),
    ("memory", "cluster", "memory: <80 GiB>", "hbm gpu_memory device_memory vram mem"),
    ("bandwidth", "cluster.levels", "bandwidth: <450 GB/s>", "bw speed throughput"),
    ("link", "cluster.levels", "link: <nvlink4>", "interconnect fabric nic"),
    ("latency", "cluster.levels", "latency: <3 us>", "lat delay alpha"),
    ("layers", "model.transformer", "layers: <32>", "num_layers num_hidden_layers n_layer n_layers depth blocks"),
    ("hidden", "model.transformer", "hidden: <4096>", "hidden_size d_model n_embd dim embedding_dim model_dim"),
    ("ffn", "model.transformer", "ffn: <14336>", "intermediate ffn_hidden ffn_dim d_ff n_inner ffn_size"),
    ("heads", "model.transformer", "heads: <32>", "num_attention_heads num_heads n_head n_heads attention_heads"),
    ("kv_heads", "model.transformer", "kv_heads: <8>", "num_key_value_heads n_kv_heads num_query_groups num_kv_heads"),
    ("head_dim", "model.transformer", "head_dim: <128>", "kv_channels d_head d_kv"),
    ("vocab", "model.transformer", "vocab: <128256>", "vocabulary n_vocab padded_vocab"),
    ("experts", "model.transformer", "experts: <8>", "num_experts n_routed_experts num_local_experts moe_experts"),
    ("top_k", "model.transformer", "top_k: <2>", "num_experts_per_tok moe_router_topk experts_per_token"),
    ("moe_ffn", "model.transformer", "moe_ffn: <2048>", "moe_intermediate moe_ffn_hidden expert_ffn"),
    ("tied_embeddings", "model.transformer", "tied_embeddings: <true>", "tie_word_embeddings tie_embeddings"),
)
"""Key, its section, how it is written (in angle brackets an example of its value), names in other tools."""

_OF_LESS_MEMORY = "nest has no ZB-V of half or least memory; the nearest is zb-v"

WORDS: tuple[tuple[str, str, str], ...] = (
    ("interleaved", "interleaved", "vpp virtual_pipeline interleaved_1f1b 1f1b_interleaved looped_bfs"),
    ("zero-bubble", "zero-bubble", "zb_h1 zb1p zbh1 zb zero_bubble_h1"),
    ("zero-bubble-h2", "zero-bubble-h2", "zb_h2 zbh2"),
    ("zb-v", _OF_LESS_MEMORY, "zb_vhalf zb_vmin v_half v_min"),
    ("1f1b", "1f1b", "pipedream pipedream_flush one_forward_one_backward"),
    ("full", "full", f"true yes on block uniform all {_CHECKPOINTING}"),
    ("none", "none", "false no off null"),
    ("bf16", "bf16", "bfloat16 bf16_mixed"),
    ("fp16", "fp16", "float16 half 16_mixed"),
    ("fp32", "fp32", "float32 float single tf32"),
    ("fp8", "fp8", "e4m3 float8 fp8_e4m3 hybrid"),
    ("adamw", "adamw", "adamw_torch adamw_torch_fused fused_adamw"),
    ("adam", "adam", "fused_adam fusedadam"),
    ("adam-8bit", "adam-8bit", "adamw_8bit adamw_bnb_8bit bnb_adam"),
    ("infiniband-ndr", "infiniband-ndr", "ndr ndr400 ndr_400 infiniband_400"),
    ("infiniband-hdr", "infiniband-hdr", "hdr hdr200 infiniband_200"),
    ("infiniband-xdr", "infiniband-xdr", "xdr xdr800"),
    ("infiniband-edr", "infiniband-edr", "edr edr100"),
    ("infiniband", "infiniband", "ib rdma"),
    ("ethernet", "ethernet", "roce rocev2 400gbe 100gbe"),
    ("infinity-fabric", "infinity-fabric", "xgmi"),
    ("megatron", "megatron", "megatron_lm megatron_core mcore"),
    ("pytorch", "pytorch", "torch fsdp fsdp2 fully_shard"),
    ("deepspeed", "deepspeed", "zero ds"),
    ("megatron-core", "megatron-core", "mcore megatron"),
)
"""A word of nest, its suggested form, words of other tools."""


class Meant(NamedTuple):
    """The meaning of a name unknown to nest."""

    name: str  # Nest's.
    section: str  # Of a problem; empty: where the other name was.
    written: str  # How it is written there, or a sentence.

    def remedy(self, value: object = None) -> str:
        """Return the suggested text in code marks, with `value` if it fits, and its section."""
        if " " in self.written and ":" not in self.written.split()[0]:
            return self.written
        text = re.sub(_EXAMPLE, lambda match: _scalar(value) or match[1], self.written)
        return f"write `{text}`" + (f" under `{self.section}`" if self.section else "")


def _scalar(value: object) -> str:
    """Return a value in nest's words; empty: none that fits into a sentence."""
    if isinstance(value, str):
        words = (each.name for each in _table().get(plain(value), ()) if not each.section)
        return next(words, value) if len(value) <= LONGEST else ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, (int, float)) and abs(value) < 1e6 else ""


LONGEST = 20  # Most characters of a repeated value.

_EXAMPLE = "<([^<>]+)>"
_FILLER = r"(size|degree|world)+$"


def plain(name: str) -> str:
    """Return `name` without case, separators and anything before a slash."""
    return re.sub(r"[\s_-]", "", name.strip("/").rpartition("/")[2].lower())


def meant(name: str, known: Collection[str]) -> Meant | None:
    """Return the meaning in other tools of a `name` that is none of the `known`; None: unknown.

    Names known at that place win over keys of another section.
    """
    written = plain(name[:100])
    meanings = _table().get(written) or _table().get(re.sub(_FILLER, "", written)) or ()
    if written in map(plain, known):  # Written with other capitals or separators only.
        meanings = tuple(each for each in meanings if plain(each.name) == written)
    here = next((each for each in meanings if each.name in known), None)
    if here is not None:
        return Meant(here.name, "", here.written)
    return next((each for each in meanings if each.section), None)


@cache
def _table() -> dict[str, tuple[Meant, ...]]:
    table: dict[str, tuple[Meant, ...]] = {}
    for foreign, row in _rows():
        table[plain(foreign)] = (*table.get(plain(foreign), ()), row)
    return table


def _rows() -> Iterator[tuple[str, Meant]]:
    for name, section, written, others in KEYS:
        for foreign in (*others.split(), name):
            yield foreign, Meant(name, section, written)
    for name, written, others in WORDS:
        for foreign in others.split():
            yield foreign, Meant(name, "", written)


SHORTEST = 4  # Least letters of a name searched inside another.
MOST = 3  # Most names offered.


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the `known` names resembling `name`, best first, regardless of case, separators and organisations."""
    options = {plain(option): option for option in known}
    written = plain(name[:100])
    if written in options:
        return (options[written],)
    inside = [option for option in options if len(option) >= SHORTEST and option in written]
    if inside:
        return (options[max(inside, key=len)],)
    words = re.findall(r"[^\s_-]+", name.strip("/").rpartition("/")[2].lower()[:100])
    around = [each for each in options if len(written) >= SHORTEST and all(word in each for word in words)]
    around.sort(key=lambda each: not each.startswith(written))
    if around:
        return tuple(options[option] for option in around[:MOST])
    return tuple(options[option] for option in get_close_matches(written[:60], options, n=1))


def any_of(names: Iterable[str]) -> str:
    """Join names for the end of a question: `a`, `a or b`."""
    return " or ".join(names)


def hint(name: str, known: Iterable[str], value: object = None) -> str:
    """Suggest nest's name, or the nearest ones, for a name that is none of the `known`; empty: none found.

    Args:
        known: names allowed there.
        value: written under it.
    """
    options = list(known)
    other, close = meant(name, options), near(name, options)
    if other is not None:
        return other.remedy(value)
    return f"did you mean {any_of(close)}?" if close else ""


def nearest(name: str, known: Iterable[str], value: object = None) -> str:
    """Return `hint`'s suggestion or, without one, all `known` names."""
    options = list(known)
    if not options:
        return "no key is known here"
    first = get_close_matches(name[:60], options, n=1, cutoff=0.0)[0]
    return hint(name, options, value) or f"the nearest is {first}; known here: {', '.join(options)}"
