"""Four gloo ranks with the shares that nest gives them compute what one process does: a mixer of transformers each.

With tensor parallelism a rank has the slices of a mixer's weights that nest counts, and sends what nest sends. With
context parallelism a rank has a share of the tokens, and exchanges them for heads or channels around convolutions and
recurrences, or gathers keys and values. Outputs and gradients of all weights equal those of one process. PyTorch counts
the FLOP of the products that nest has.
"""

from itertools import takewhile
from typing import Any

from nest.formulate.model import load_model
from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Training
from tests.conformance.consumer import consume, needs
from tests.strategies.families import FAMILIES

RANKS, TOKENS = 4, 64
BEFORE = ("layers.0/attention_norm", "layers.0/attention_weights")
AFTER = ("layers.0/attention_residual", "layers.0/attention_mix")
RANKED = """
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from importlib import import_module
from operator import attrgetter
from transformers import AutoModelForCausalLM
from transformers.integrations import moe
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

moe._can_use_grouped_mm = lambda *_: False  # Its kernels have no double precision.
RANKS, sent = given["ranks"], []

class Sum(torch.autograd.Function):
    # Sums over ranks, forward or backward or both.
    @staticmethod
    def forward(ctx, source, forth, back):
        ctx.back = back
        source = source.clone()
        if forth:
            sent.append(source.numel())
            dist.all_reduce(source)
        return source
    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if ctx.back:
            dist.all_reduce(gradient)
        return gradient, None, None

def own(source, dim, parts, rank):
    pieces = source.split(parts, dim) if parts else (source,)
    return torch.cat([piece.chunk(RANKS, dim)[rank] for piece in pieces], dim)

def moved(source, given, taken, parts):
    sends = [own(source, given, parts, rank).contiguous() for rank in range(RANKS)]
    every = [torch.empty_like(sends[0]) for _ in sends]
    exchanged(every, sends)
    return torch.cat(every, taken)

def exchanged(every, sends):
    for rank in range(RANKS):
        dist.scatter(every[rank], sends if dist.get_rank() == rank else None, src=rank)

def back(source, given, taken, parts):
    sends = [each.contiguous() for each in source.chunk(RANKS, taken)]
    every = [torch.empty_like(sends[0]) for _ in sends]
    exchanged(every, sends)
    pieces = [each.split([part // RANKS for part in parts], given) if parts else (each,) for each in every]
    return torch.cat([torch.cat(piece, given) for piece in zip(*pieces)], given)

def exchange(there, home):
    # Exchanges shares along one dimension for shares along another, each part of which is divided by ranks.
    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, source, given, taken, parts):
            ctx.asked = given, taken, parts
            return there(source, given, taken, parts)
        @staticmethod
        def backward(ctx, gradient):
            return home(gradient, *ctx.asked), None, None, None
    return Exchange

Move, Back = exchange(moved, back), exchange(back, moved)

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, source, dim):
        ctx.dim = dim
        every = [torch.empty_like(source) for _ in range(RANKS)]
        dist.all_gather(every, source.contiguous())
        return torch.cat(every, dim)
    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient.chunk(RANKS, ctx.dim)[dist.get_rank()], None

def built(case):
    config = dict(case["config"])
    config = CONFIG_MAPPING[config.pop("model_type")](**config, attn_implementation="eager", use_cache=False)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape) * 0.1 + (each if each.dim() == 1 else 0))
    path = case["mixer"]
    return model, model.get_submodule(path), import_module(type(model.get_submodule(path)).__module__)

def split(case, mixer, rank):
    # Keeps a rank's slices of weights and buffers, and sums what all ranks read and add to.
    kept = {}
    for name, (dim, *parts) in case["splits"].items():
        place, _, last = name.rpartition(".")
        holder = mixer.get_submodule(place)
        whole = getattr(holder, last)
        share = own(whole.detach(), dim, parts, rank).clone()
        setattr(holder, last, torch.nn.Parameter(share) if isinstance(whole, torch.nn.Parameter) else share)
        kept[name] = (dim, parts)
    for name in case["divided"]:
        place, _, last = name.rpartition(".")
        holder = attrgetter(place)(mixer) if place else mixer
        setattr(holder, last, getattr(holder, last) // RANKS)
    mixer.register_forward_pre_hook(shared, with_kwargs=True)
    mixer.register_forward_hook(summed)
    for name in case["summed"]:
        mixer.get_submodule(name).register_forward_hook(lambda module, asked, result: Sum.apply(result, True, True))
    if case["normed"]:
        norm = mixer.get_submodule(case["normed"])
        norm.forward = lambda source: norm.weight * source * torch.rsqrt(
            Sum.apply(source.pow(2).sum(-1, keepdim=True), True, True) / (source.shape[-1] * RANKS)
            + norm.variance_epsilon
        )
    return kept

def shared(module, asked, named):
    named = {k: Sum.apply(v, False, True) if k == "hidden_states" else v for k, v in named.items()}
    return tuple(Sum.apply(v, False, True) if i == 0 else v for i, v in enumerate(asked)), named

def summed(module, asked, result):
    if isinstance(result, tuple):
        return (Sum.apply(result[0], True, False), *result[1:])
    return Sum.apply(result, True, False)

def exchanging(case, module, rank):
    # Tokens for channels around convolutions, tokens for heads around recurrences.
    convolve = module.causal_conv1d_fn
    def convolved(source, weight, bias=None, **named):
        weight = Parted.apply(weight, case["channels"], rank)
        bias = None if bias is None else Parted.apply(bias, case["channels"], rank)
        result = convolve(Move.apply(source, 1, 2, case["channels"]), weight, bias, **named)
        return Back.apply(result, 1, 2, case["channels"])
    module.causal_conv1d_fn = convolved
    if case["scan"]:
        scan = getattr(module, case["scan"])
        def scanned(*operands, **named):
            def entering(each):
                if not isinstance(each, torch.Tensor):
                    return each
                if each.dim() < 3:
                    return Parted.apply(each, [], rank)
                if case["last"] and each.shape[1] not in case["channels"]:
                    return Gather.apply(each, 2)
                return Move.apply(each, *axes, [])
            axes = (1, 2) if case["last"] else (2, 1)
            result = scan(*map(entering, operands), **{key: entering(each) for key, each in named.items()})
            if isinstance(result, tuple):
                return (Back.apply(result[0], *axes, []), *result[1:])
            return Back.apply(result, *axes, [])
        setattr(module, case["scan"], scanned)

class Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, source, parts, rank):
        ctx.asked = source, parts, rank
        return own(source, 0, parts, rank).clone()
    @staticmethod
    def backward(ctx, gradient):
        source, parts, rank = ctx.asked
        places = own(torch.arange(len(source)), 0, parts, rank)
        return torch.zeros_like(source).index_copy_(0, places, gradient), None, None

def gathering(module, rank, tokens):
    def attended(self, query, key, value, mask, scaling, **named):
        key, value = (Gather.apply(each, 2) for each in (key, value))
        shares = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(shares, 1) for each in (key, value))
        rows = torch.arange(query.shape[2])[:, None] + rank * query.shape[2]
        scores = (query @ key.transpose(2, 3) * scaling).masked_fill(torch.arange(tokens) > rows, -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None
    module.eager_attention_forward = attended

def compared(case, mode, rank):
    model, mixer, module = built(case)
    tokens = case["tokens"]
    ids = torch.randint(0, case["config"]["vocab_size"], (1, tokens), generator=torch.Generator().manual_seed(1))
    places = torch.arange(tokens)[None]
    expected = model(input_ids=ids, position_ids=places).logits
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2), dtype=expected.dtype)
    (expected * weights).sum().backward()
    wanted = {name: each.grad for name, each in mixer.named_parameters()}
    ours, mixer, module = built(case)
    kept = {}
    if mode == "tp":
        kept = split(case, mixer, rank)
    elif case["channels"]:
        exchanging(case, module, rank)
    else:
        gathering(module, rank, tokens)
    if mode == "cp":
        ids, places, expected, weights = (
            each.chunk(RANKS, 1)[rank] for each in (ids, places, expected.detach(), weights)
        )
    sent.clear()
    found = ours(input_ids=ids, position_ids=places).logits
    forward = sum(sent)
    (found * weights).sum().backward()
    pairs = [(found, expected)]
    for name, each in mixer.named_parameters():
        if wanted[name] is None:
            continue
        gradient, target = each.grad, wanted[name]
        if name in kept:
            target = own(target, kept[name][0], kept[name][1], rank)
        else:
            dist.all_reduce(gradient)
        pairs.append((gradient, target))
    apart = torch.stack([(one - other).abs().max() / other.abs().max() for one, other in pairs])
    return [float(apart.max()), sum(each.numel() for each in mixer.parameters()), forward]

def ranked(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    found = {name: compared(case, given["mode"], rank) for name, case in given["cases"].items()}
    every = [None] * RANKS
    dist.all_gather_object(every, found)
    if rank == 0:
        answer(every)
    dist.destroy_process_group()

with tempfile.TemporaryDirectory() as folder:
    mp.start_processes(ranked, (folder,), RANKS, start_method="fork")
"""

COUNT = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
found = {}
for name, case in given.items():
    config = dict(case["config"])
    config = CONFIG_MAPPING[config.pop("model_type")](**config, attn_implementation="eager", use_cache=False)
    model = AutoModelForCausalLM.from_config(config).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros(1, case["tokens"], dtype=torch.long))
    counts = counter.get_flop_counts()[f"{type(model).__name__}.{case['mixer']}"]
    found[name] = [counts.get(each, 0) for each in (torch.ops.aten.mm, torch.ops.aten.bmm)]
answer(found)
"""


def case(family: str, mixer: str, splits: dict[str, list[int]], **details: Any) -> dict[str, Any]:
    """A model with one layer of a mixer, and what is divided of it; a dimension comes before the sizes of its parts."""
    config = {**FAMILIES[family], "num_hidden_layers": 1, "vocab_size": 96, **details.pop("config", {})}
    rest = {"divided": [], "summed": [], "normed": "", "channels": [], "scan": "", "last": False, "tokens": TOKENS}
    return {"config": config, "mixer": f"model.layers.0.{mixer}", "splits": splits, **rest, **details}


LATENT = {"q_b_proj.weight": [0], "kv_b_proj.weight": [0], "o_proj.weight": [1]}
ROWS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "b_proj.weight", "g_b_proj.weight")
CASES = {
    "grouped": case("llama", "self_attn", {**{f"{each}_proj.weight": [0] for each in "qkv"}, "o_proj.weight": [1]},
        config={"num_key_value_heads": 4, "attention_bias": False}),
    "latent": case("deepseek_v3", "self_attn", LATENT, divided=["num_heads"]),
    "indexer": case("deepseek_v32", "self_attn", LATENT, divided=["num_heads"]),
    "compressed": case("deepseek_v4", "self_attn", {
            "q_b_proj.weight": [0], "sinks": [0], "o_a_proj.weight": [0], "o_b_proj.weight": [1]},
        divided=["num_heads", "num_key_value_groups", "config.o_groups", "o_a_proj.n_groups"],
        config={"layer_types": ["compressed_sparse_attention"], "compress_ratios": None,
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}, "head_dim": 16,
            "index_head_dim": 16, "partial_rotary_factor": 0.5}),
    "delta net": case("qwen3_next", "linear_attn", {
            "in_proj_qkvz.weight": [0], "in_proj_ba.weight": [0], "conv1d.weight": [0, 24, 24, 32], "dt_bias": [0],
            "A_log": [0], "out_proj.weight": [1]},
        divided=["num_v_heads", "num_k_heads", "key_dim", "value_dim", "conv_dim"], channels=[24, 24, 32],
        scan="torch_chunk_gated_delta_rule",
        config={"linear_num_key_heads": 4, "layer_types": ["linear_attention"], "mlp_only_layers": [0]}),
    "Kimi delta": case("kimi_linear", "self_attn", {
            **{key: [0] for key in ROWS}, "conv1d.weight": [0, 48, 48, 48], "forget_gate.f_b_proj.weight": [0],
            "forget_gate.dt_bias": [0], "forget_gate.A_log": [2], "o_proj.weight": [1]},
        divided=["num_heads", "qkv_dim", "forget_gate.num_heads", "forget_gate.qkv_dim"], channels=[48, 48, 48],
        scan="chunk_kimi_delta_attention", config={"layer_types": ["linear_attention"], "pad_token_id": 0}),
    "state space": case("nemotron_h", "mixer", {
            "in_proj.weight": [0, 96, 96, 20, 20, 8], "conv1d.weight": [0, 96, 20, 20], "conv1d.bias": [0, 96, 20, 20],
            "dt_bias": [0], "A_log": [0], "D": [0], "norm.weight": [0], "out_proj.weight": [1]},
        divided=["num_heads", "n_groups", "intermediate_size", "conv_dim"], channels=[96, 20, 20],
        scan="mamba2_chunk_scan", config={"hybrid_override_pattern": "M", "n_groups": 4}),
    "selective scan": case("jamba", "mamba", {
            "in_proj.weight": [0, 96, 96], "conv1d.weight": [0], "conv1d.bias": [0], "x_proj.weight": [1],
            "dt_proj.weight": [0], "dt_proj.bias": [0], "A_log": [0], "D": [0], "out_proj.weight": [1]},
        divided=["intermediate_size"], summed=["x_proj"], channels=[96], scan="mamba_selective_scan", last=True,
        config={"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1, "mamba_dt_rank": 3}),
    "linear": case("minimax", "self_attn", {
            "qkv_proj.weight": [0], "output_gate.weight": [0], "norm.weight": [0], "out_proj.weight": [1],
            "slope_rate": [0], "query_decay": [0], "key_decay": [0], "diagonal_decay": [1]},
        divided=["num_attention_heads"], normed="norm",
        config={"attn_type_list": None, "layer_types": ["linear_attention"]}),
    "short convolution": case("lfm2", "conv", {
            "in_proj.weight": [0, 48, 48, 48], "conv.weight": [0], "out_proj.weight": [1]}, channels=[48],
        config={"conv_bias": False, "layer_types": ["conv"], "full_attn_idxs": None}),
}  # fmt: skip
BY_CONTEXT = [name for name, each in CASES.items() if each["channels"]] + ["grouped", "latent"]


def shares(name: str) -> tuple[int, int]:
    """Weights of a mixer on one of the ranks, and numbers that it sums over them forward, as nest has them."""
    levels = (Level("node", RANKS, 1e11, 1e-6),)
    context = StrategyContext(Cluster(levels, memory=80e9), Training(global_batch=1, sequence_length=TOKENS))
    graph = load_model(CASES[name]["config"], Training(1, TOKENS, precision="fp32"), registry())
    block = registry().strategies()["tp"].apply(Block(graph, 1), RANKS, context)
    layer = list(takewhile(lambda each: each.name not in AFTER, block.graph.by_layer[1]))
    held = sum(p.count for each in layer if each.name not in BEFORE for p in each.parameters)
    calls = [call for each in layer if each.collective for call in each.collective.forward]
    return held, round(sum(call.bytes for call in calls) / 4)


def ranked(mode: str, names: list[str]) -> dict[str, list[list[float]]]:
    needs("torch", "transformers")
    given = {"ranks": RANKS, "mode": mode, "cases": {name: CASES[name] for name in names}}
    every = consume(RANKED, given)
    return {name: [each[name] for each in every] for name in names}


def test_heads_divided_by_tensor_parallelism_compute_what_one_process_does():
    found = ranked("tp", list(CASES))
    for name, every in found.items():
        assert max(apart for apart, _, _ in every) < 1e-5, name
        held, sent = shares(name)
        # The norm of linear attention also sums a number per token, which nest leaves out.
        assert {(count, numbers) for _, count, numbers in every} == {(held, sent + (TOKENS if name == "linear" else 0))}


def test_tokens_divided_by_context_parallelism_compute_what_one_process_does():
    found = ranked("cp", BY_CONTEXT)
    assert {name: max(apart for apart, _, _ in every) < 1e-5 for name, every in found.items()} == dict.fromkeys(
        BY_CONTEXT, True
    )


# transformers multiplies by the weights of index heads, which nest counts no FLOP for. It attends to compressed blocks,
# and scans, by other products than kernels.
BATCHED = {"indexer": 2 * 4 * TOKENS**2}


def test_products_have_the_flop_that_pytorch_counts_in_transformers():
    needs("torch", "transformers")
    found = consume(COUNT, CASES)
    for name, (products, batched) in found.items():
        graph = load_model(CASES[name]["config"], Training(1, TOKENS, attention="unfused"), registry())
        layer = list(takewhile(lambda each: each.name not in AFTER, graph.by_layer[1]))
        layer = [each for each in layer if each.name not in (*BEFORE, "layers.0/grouped")]
        assert sum(each.flops for each in layer if each.kind == "matmul") == products, name
        if name in ("grouped", "latent", "indexer", "linear"):
            others = sum(each.flops for each in layer if each.kind != "matmul")
            assert others == batched - BATCHED.get(name, 0), name
