"""Mixers with a state in place of keys: gated delta nets, Mamba, linear attention; and short convolutions.

Heads are split like those of attention; keys, or the matrices that several heads share, like key-value heads.
"""

from collections.abc import Callable
from typing import Any

from nest.graph import Parameter, Shape, Tensor
from nest.models.building.layer import FP32, LayerBuilder
from nest.spec.architecture import DeltaNet, LinearAttention, SelectiveScan, ShortConvolution, Stateful, StateSpace

DELTA_CHUNK = 64
"""Tokens that a delta rule takes at once (`chunk_gated_delta_rule` of flash-linear-attention 0.4)."""

SELECTIVE_FLOPS = 9.0
"""FLOP per token, channel and state number of a selective scan (state-spaces/mamba issue 110); no products."""


def convolve(layer: LayerBuilder, sources: tuple[Tensor, ...], taps: int, *, bias: bool) -> tuple[Tensor, ...]:
    """Add one causal convolution of each channel along the sequence, and its activation; it saves what it reads."""
    results = tuple(Tensor(f"{each.name} convolved", each.shape, each.itemsize) for each in sources)
    parameters = []
    for each in sources:
        name = each.name.rpartition("/")[2]
        parameters.append(Parameter(f"{name}_taps", (*each.shape[2:], ("taps", taps))))
        parameters += [Parameter(f"{name}_bias", each.shape[2:])] if bias else []
    layer.add("convolution", "convolution", sources, results, parameters=tuple(parameters), saves=sources)
    return results


def gated_norm(layer: LayerBuilder, source: Tensor, gate: Tensor, weights: Shape) -> Tensor:
    """Add the norm of a result and its product with a gate, one kernel; without `weights` the product alone."""
    kind, learned = ("norm", (Parameter("weight", weights),)) if weights else ("activation", ())
    return layer.make("gated", kind, (source, gate), *source.shape[2:], parameters=learned, saves=(source, gate))


def scan(
    layer: LayerBuilder,
    inputs: tuple[Tensor, ...],
    output: Tensor,
    state: int,
    saves: tuple[Tensor, ...],
    *,
    executed: float,
    required: float,
    again: float,
    parameters: tuple[Parameter, ...] = (),
    further: tuple[Tensor, ...] = (),
) -> None:
    """Add a recurrence over a state of `state` numbers for each channel of `output`.

    Args:
        executed: forward FLOP per token and head of the chunked kernel.
        required: the same of the recurrence itself, the convention of utilisation figures.
        again: FLOP that the backward pass repeats beside the two gradients of each product.
        further: results beside `output`.
    """
    channels = output.shape[-1][1] * state
    layer.add(
        "scan",
        "scan",
        inputs,
        (output, *further),
        space=(*output.shape, ("state", state)),
        parameters=parameters,
        saves=saves,
        flops_per_point=executed / channels,
        model_flops_per_point=required / channels,
        backward_flops_ratio=2.0 + again / executed,
    )


def add_delta_net(layer: LayerBuilder, net: DeltaNet, source: Tensor) -> Tensor:
    """Add a gated delta net (Yang et al., arXiv 2412.06464, section 3.3; Qwen3-Next's of transformers 5.23.0).

    In a chunk of `C` tokens the keys meet each other and the queries (`2*C*key` each), the inverse of the first product
    meets keys and values (`2*C*(key + value)`), the second the corrected values (`2*C*value`). Keys and queries read
    the state, and keys and values update it (`2*key*value` each). Kept are its operands, decays, and the inverse, `C`
    numbers per token and head; the backward pass computes the products with the inverse and the states again.
    """
    heads, keys = ("heads", net.heads), ("kv_heads", net.key_heads)
    channels, key_channels = ("head", net.value), ("state", net.key)
    query, key = layer.tensor("query", keys, key_channels), layer.tensor("key", keys, key_channels)
    layer.matmul("query_key", source, (("branch", 2), keys, key_channels), ("hidden",), (query, key))
    rate = layer.project("rate", source, (heads,))
    if net.rank is None:
        value, gate = layer.tensor("value", heads, channels), layer.tensor("gate", heads, channels)
        layer.matmul("value_gate", source, (("branch", 2), heads, channels), ("hidden",), (value, gate))
        decay, decayed = layer.project("decay", source, (heads,)), layer.tensor("log_decay", heads, itemsize=FP32)
    else:
        value = layer.project("value", source, (heads, channels))
        gate = _compressed(layer, "gate", source, net.rank, (heads, channels))
        decay = _compressed(layer, "decay", source, net.rank, (heads, key_channels))
        decayed = layer.tensor("log_decay", heads, key_channels, itemsize=FP32)
    learned = (Parameter("rates", (heads,)), Parameter("bias", decay.shape[2:]))
    layer.add("log_decay", "elementwise", (decay,), (decayed,), parameters=learned, saves=(decay,))
    operands = convolve(layer, (query, key, value), net.taps, bias=False)
    chunk = min(DELTA_CHUNK, layer.sequence)
    inverse, result = layer.tensor("inverse", heads, ("chunk", chunk)), layer.tensor("context", heads, channels)
    states, solved = 2.0 * net.key * net.value, 2.0 * chunk * (net.key + net.value)
    scan(
        layer,
        (*operands, rate, decayed),
        result,
        net.key,
        (*operands, rate, decayed, inverse),
        executed=2.0 * chunk * (2 * net.key + net.value) + solved + 3 * states,
        required=3 * states,
        again=solved + 2 * states,
        further=(inverse,),
    )
    gated = gated_norm(layer, result, gate, (channels,))
    return layer.project("attention_output", gated, source.shape[-1:], ("heads", "head"))


def _compressed(layer: LayerBuilder, name: str, source: Tensor, rank: int, columns: Shape) -> Tensor:
    """Add a product of `source` with `columns`, by way of `rank` numbers unless that is 0."""
    if not rank:
        return layer.project(name, source, columns)
    return layer.project(name, layer.project(f"{name}_latent", source, (("latent", rank),)), columns, ("latent",))


def add_state_space(layer: LayerBuilder, space: StateSpace, source: Tensor) -> Tensor:
    """Add a Mamba-2 layer (Dao and Gu, arXiv 2405.21060, section 6).

    In a chunk of `Q` tokens the output matrices meet the input matrices (`2*Q*state` a group), and the product the
    values (`2*Q*head` a head). Values enter the states and outputs leave them (`2*head*state` each). The kernel
    `mamba_split_conv1d_scan_combined` of mamba_ssm keeps what the projection gave and the result; the backward pass
    computes the convolution, the first product and the states again, and one gradient of the second twice
    (`_mamba_chunk_scan_combined_bwd` of state-spaces/mamba@e9594ce1: `dcb` and `ddAcs_stable`).
    """
    heads, groups = ("heads", space.heads), ("kv_heads", space.groups)
    channels, state = ("head", space.head), ("state", space.state)
    gate, value = layer.tensor("gate", heads, channels), layer.tensor("value", heads, channels)
    layer.matmul("value_gate", source, (("branch", 2), heads, channels), ("hidden",), (gate, value), bias=space.bias)
    step = layer.project("step", source, (heads,), bias=space.bias)
    enter, leave = layer.tensor("input", groups, state), layer.tensor("output", groups, state)
    layer.matmul("input_output", source, (("branch", 2), groups, state), ("hidden",), (enter, leave), bias=space.bias)
    operands = convolve(layer, (value, enter, leave), space.taps, bias=space.taps_bias)
    chunk, result = min(space.chunk, layer.sequence), layer.tensor("context", heads, channels)
    met, states = 2.0 * chunk * space.state * space.groups / space.heads, 2.0 * space.head * space.state
    mixed = 2.0 * chunk * space.head
    scan(
        layer,
        (*operands, step),
        result,
        space.state,
        (*(operands if layer.kernels == "eager" else ()), step, result),
        executed=met + mixed + 2 * states,
        required=2 * states,
        again=met + mixed + states,
        parameters=tuple(Parameter(each, (heads,)) for each in ("rates", "skip", "bias")),
    )
    gated = gated_norm(layer, result, gate, (heads, channels) if space.normalised else ())
    return layer.project("attention_output", gated, source.shape[-1:], ("heads", "head"), bias=space.output_bias)


def add_selective_scan(layer: LayerBuilder, space: SelectiveScan, source: Tensor) -> Tensor:
    """Add a Mamba layer (Gu and Dao, arXiv 2312.00752, algorithm 2), split by channels.

    Time steps and matrices are the same for all channels: sums over the ranks of tensor parallelism. The kernel
    `selective_scan_fn` of mamba_ssm keeps its operands and the result before the gate, and steps again backward.
    """
    channels, state, rank = ("ffn", space.inner), ("rank", space.state), ("rank", space.rank)
    value, gate = layer.tensor("value", channels), layer.tensor("gate", channels)
    layer.matmul("value_gate", source, (("branch", 2), channels), ("hidden",), (value, gate), bias=space.bias)
    (value,) = convolve(layer, (value,), space.taps, bias=space.taps_bias)
    low, enter, leave = layer.tensor("low_step", rank), layer.tensor("input", state), layer.tensor("output", state)
    columns = (("rank", space.rank + 2 * space.state),)
    layer.matmul("step_matrices", value, columns, ("ffn",), (low, enter, leave))
    if space.normalised:
        named = (("step_norm", low), ("input_norm", enter), ("output_norm", leave))
        low, enter, leave = (layer.norm(name, each, bias=False) for name, each in named)
    step, result = layer.project("step", low, (channels,), ("rank",), bias=True), layer.tensor("context", channels)
    operands, count = (value, step, enter, leave, gate), SELECTIVE_FLOPS * space.inner * space.state
    learned = (Parameter("rates", (channels, ("state", space.state))), Parameter("skip", (channels,)))
    saves = (*operands, result)
    scan(layer, operands, result, space.state, saves, executed=count, required=count, again=count, parameters=learned)
    return layer.project("attention_output", result, source.shape[-1:], ("ffn",), bias=space.bias)


def add_linear_attention(layer: LayerBuilder, attention: LinearAttention, source: Tensor) -> Tensor:
    """Add Lightning attention (Qin et al., arXiv 2401.04658; MiniMax-01, arXiv 2501.08313).

    Within a chunk of `C` tokens queries meet keys and the products values (`2*C*head` each); keys and values update the
    state, and queries read it (`2*head*head` each).
    """
    heads, channels = ("heads", attention.heads), ("head", attention.head)
    raw = tuple(layer.tensor(f"raw_{name}", heads, channels) for name in ("query", "key", "value"))
    operands = tuple(layer.tensor(name, heads, channels) for name in ("query", "key", "value"))
    layer.matmul("query_key_value", source, (("branch", 3), heads, channels), ("hidden",), raw)
    layer.add("feature", "activation", raw, operands, saves=raw)
    gate, result = layer.project("gate", source, (heads, channels)), layer.tensor("context", heads, channels)
    chunk, states = min(attention.chunk, layer.sequence), 4.0 * attention.head**2
    executed = 4.0 * chunk * attention.head + states
    scan(layer, operands, result, attention.head, operands, executed=executed, required=states, again=states / 2)
    gated = gated_norm(layer, result, gate, (heads, channels))
    return layer.project("attention_output", gated, source.shape[-1:], ("heads", "head"))


def add_short_convolution(layer: LayerBuilder, mixer: ShortConvolution, source: Tensor) -> Tensor:
    """Add a convolution between two gates (Lfm2ShortConv of transformers 5.24.0), split by channels."""
    channels = ("ffn", mixer.inner)
    first, last, value = (layer.tensor(name, channels) for name in ("first_gate", "last_gate", "value"))
    columns = (("branch", 3), channels)
    layer.matmul("value_gates", source, columns, ("hidden",), (first, last, value), bias=mixer.bias)
    before = (first, value)
    entered = layer.make("first_gate", "activation", before, channels, output="entered", saves=before)
    after = (last, *convolve(layer, (entered,), mixer.taps, bias=mixer.bias))
    left = layer.make("last_gate", "activation", after, channels, output="left", saves=after)
    return layer.project("attention_output", left, source.shape[-1:], ("ffn",), bias=mixer.bias)


MIXERS: dict[type[Stateful], Callable[[LayerBuilder, Any, Tensor], Tensor]] = {
    DeltaNet: add_delta_net,
    StateSpace: add_state_space,
    SelectiveScan: add_selective_scan,
    LinearAttention: add_linear_attention,
    ShortConvolution: add_short_convolution,
}
