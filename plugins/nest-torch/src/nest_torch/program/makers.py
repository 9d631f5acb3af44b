"""Notation of calls of PyTorch's operators: products, attention, norms and the rest by name."""

from collections.abc import Mapping, Sequence

from nest.errors import InputError
from nest_torch.program.axes import Dim, aligned, fresh, leaves, size, unify
from nest_torch.program.products import einsum, product
from nest_torch.program.recorder import Call, Maker, Recorder, result_dims
from nest_torch.program.targets import ACTIVATIONS, DROPOUTS, EMBEDDINGS, GROUPED_PRODUCTS, LOSSES, NORMS, SOFTMAXES
from nest_torch.program.values import PARAMETER, Extent, Value

STATISTICS_BYTES = 4
"""Bytes of a log-sum-exp, which flash attention keeps in single precision (arXiv 2307.08691)."""

MASK_BYTES = 1
"""Bytes of an element of a dropout mask (arXiv 2205.05198, section 4.1)."""


def _linear(recorder: Recorder, call: Call) -> list[Value]:
    source, weight, bias = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "bias")
    unify(source.dims[-1], weight.dims[1])
    result = (*source.dims[:-1], weight.dims[0])
    if bias is not None:
        unify(weight.dims[0], bias.dims[0])
    return product(recorder, call, (source, weight), [weight.dims[1]], result)


def _multiplied(recorder: Recorder, call: Call, left: Value, right: Value) -> list[Value]:
    """`left @ right` with broadcast batches; vectors as PyTorch takes them."""
    rows = left.dims if len(left.dims) > 1 else ((), *left.dims)
    columns = right.dims if len(right.dims) > 1 else (*right.dims, ())
    unify(rows[-1], columns[-2])
    shape = call.shapes[0]
    outer = [*([rows[-2]] if len(left.dims) > 1 else []), *([columns[-1]] if len(right.dims) > 1 else [])]
    batch = aligned((), shape[: len(shape) - len(outer)], [rows[:-2], columns[:-2]])
    return product(recorder, call, (left, right), [rows[-1]], (*batch, *outer))


def _matmul(recorder: Recorder, call: Call) -> list[Value]:
    return _multiplied(recorder, call, call.arguments[0], call.arguments[1])


def _added_matmul(recorder: Recorder, call: Call) -> list[Value]:
    """`addmm`, `baddbmm`: a product and a sum."""
    made = _multiplied(recorder, call, call.arguments[1], call.arguments[2])
    aligned(made[0].dims, call.shapes[0], [call.arguments[0].dims])
    return made


def _grouped(recorder: Recorder, call: Call) -> list[Value]:
    """A product of each row with the matrix of its group: what passes through routed experts, each row one of them."""
    source, weight = call.values[0], call.values[1]
    if len(source.dims) != 2 or len(weight.dims) != 3:
        raise InputError(
            f"{call.path or 'the module'} calls {call.target} without rows of groups; nest reads no other form."
        )
    unify(source.dims[1], weight.dims[1])
    made = product(recorder, call, (source, weight), [weight.dims[1]], (source.dims[0], weight.dims[2]))
    recorder.operators[-1].experts = weight.dims[0]
    return made


def _convolution(recorder: Recorder, call: Call) -> list[Value]:
    """A product of every window of the input with the weights: output positions by channels by window."""
    source, weight = call.argument(0, "input"), call.argument(1, "weight")
    if call.target.startswith("conv_transpose") or (call.target == "convolution" and call.argument(6, "transposed")):
        raise InputError(f"{call.path or 'the module'} is a transposed convolution, which nest does not read.")
    shape = call.shapes[0]
    channels = weight.dims[0]
    if size(source.dims[-len(shape) + 1]) == size(weight.dims[1]):
        unify(source.dims[-len(shape) + 1], weight.dims[1])
    spatial = tuple(
        dim if size(dim) == length else fresh(length) for dim, length in zip(source.dims[2:], shape[2:], strict=True)
    )
    result = (source.dims[0], channels, *spatial)
    return product(recorder, call, (source, weight), list(weight.dims[1:]), result)


def _attention(recorder: Recorder, call: Call) -> list[Value]:
    """Scaled dot-product attention as one kernel (FlashAttention-2, arXiv 2307.08691), counted as in nest's models.

    A causal query meets `(sequence + 1)/2` keys on average, which is what the kernel executes; by the convention of
    utilisation figures the mask saves nothing (arXiv 2204.02311, appendix B). The backward pass computes the scores
    again: three products of the width of the keys, two of that of the values.
    """
    query, key, value = call.arguments[:3]
    mask, causal = call.argument(3, "attn_mask"), bool(call.argument(5, "is_causal", False))
    meet(query, key, value, mask)
    result = (*query.dims[:-1], value.dims[-1])
    sequence, keys = size(query.dims[-2]), size(key.dims[-2])
    head, channels = size(query.dims[-1]), size(value.dims[-1])
    per_key = 2.0 * (head + channels) / head
    met = (keys + 1) / 2 / keys if causal and sequence == keys and mask is None else 1.0
    space = [Extent(dim) for dim in query.dims[:-1]]
    space += [Extent(key.dims[-2], "keys", contracted=True), Extent(query.dims[-1], "head")]
    call.shapes.append(call.shapes[0][:-1])
    call.itemsizes.append(STATISTICS_BYTES)
    call.floating.append(True)
    made = recorder.add(
        call,
        "attention",
        [result, query.dims[:-1]],
        saves=[query, key, value],
        space=space,
        flops_per_point=per_key * met,
        model_flops_per_point=per_key,
        backward_flops_ratio=(3 * head + 2 * channels) / (head + channels),
    )
    recorder.operators[-1].saves += recorder.operators[-1].outputs
    return made[:1]


def meet(query: Value, key: Value, value: Value, mask: Value | None) -> None:
    """Say which dimensions of the operands of attention are the same axis, and what they are called."""
    for one, other in ((query, key), (query, value)):
        for index in range(len(query.dims) - 3):
            _unify_equal(one.dims[index], other.dims[index])
    if isinstance(mask, Value):
        aligned((*query.dims[:-1], key.dims[-2]), [*map(size, query.dims[:-1]), size(key.dims[-2])], [mask.dims])
    _unify_equal(key.dims[-2], value.dims[-2])
    _unify_equal(query.dims[-1], key.dims[-1])
    _name_heads(query, key, value)


def _unify_equal(one: Dim, other: Dim) -> None:
    if size(one) == size(other):
        unify(one, other)


def _name_heads(query: Value, key: Value, value: Value) -> None:
    """Say what heads are; keys and values that only repeat heads for the queries have as many as they hold."""
    if len(query.dims) < 3:
        return
    heads, own = query.dims[-3], key.dims[-3]
    _unify_equal(own, value.dims[-3])
    held = [leaf for leaf in leaves(own) if not leaf.repeated]
    if size(heads) == size(own) and len(held) == len(leaves(own)):
        unify(heads, own)
    elif len(held) == 1 and not held[0].found().name:
        held[0].found().name = "kv_heads"
    found = leaves(heads)
    if len(found) == 1 and not found[0].name:
        found[0].name = "heads"
    for each in (query, key, value):
        channels = leaves(each.dims[-1])
        if len(channels) == 1 and not channels[0].name:
            channels[0].name = "head"


def _norm(recorder: Recorder, call: Call) -> list[Value]:
    """A norm; what it needs whole rows of are the dimensions its weight has, or all but the batch."""
    source = call.values[0]
    dims = [source.dims, *(tuple(fresh(length) for length in shape) for shape in call.shapes[1:])]
    learned = [value for value in call.values[1:] if value.stored.origin == PARAMETER]
    for value in learned:
        _unify_equal(source.dims[1 if "batch" in call.target or "group" in call.target else -1], value.dims[0])
    return recorder.add(call, "norm", dims, saves=[source], reduced=list(source.dims[-1:]))


def _softmax(recorder: Recorder, call: Call) -> list[Value]:
    source = call.values[0]
    along = call.argument(1, "dim", -1)
    made = recorder.add(call, "softmax", [source.dims], reduced=[source.dims[along]])
    recorder.operators[-1].saves += recorder.operators[-1].outputs
    return made


def _activation(recorder: Recorder, call: Call) -> list[Value]:
    return recorder.add(call, "activation", [result_dims(call)], saves=call.values[:1])


def _embedding(recorder: Recorder, call: Call) -> list[Value]:
    table, indices = call.arguments[0], call.arguments[1]
    result = (*indices.dims, table.dims[1]) if call.target == "embedding" else tuple(map(fresh, call.shapes[0]))
    space = [*(Extent(dim) for dim in result), Extent(table.dims[0], contracted=True)]
    more = [tuple(fresh(length) for length in shape) for shape in call.shapes[1:]]
    return recorder.add(call, "embedding", [result, *more], saves=[indices], space=space)


def _dropout(recorder: Recorder, call: Call) -> list[Value]:
    """Dropout that keeps a mask of a byte for each element."""
    source = call.values[0]
    call.shapes[1:] = [call.shapes[0]]
    call.itemsizes[1:] = [MASK_BYTES]
    call.floating[1:] = [False]
    made = recorder.add(call, "elementwise", [source.dims, source.dims])
    recorder.operators[-1].saves.append(recorder.operators[-1].outputs[1])
    return made


def _loss(recorder: Recorder, call: Call) -> list[Value]:
    source = call.values[0]
    dims = [result_dims(call, index) for index in range(len(call.shapes))]
    classes = 1 if len(source.dims) > 1 else 0
    space = [Extent(dim, contracted=index == classes) for index, dim in enumerate(source.dims)]
    return recorder.add(call, "loss", dims, saves=call.values[:2], space=space)


def _with_identity(names: Sequence[str], maker: Maker) -> dict[str, Maker]:
    """The maker of each name, and of its form that works in place."""
    return {each: maker for name in names for each in (name, f"{name}_")}


MAKERS: Mapping[str, Maker] = {
    "linear": _linear,
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _added_matmul),
    **dict.fromkeys(GROUPED_PRODUCTS, _grouped),
    "einsum": einsum,
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d"), _convolution
    ),
    "conv_transpose3d": _convolution,
    "scaled_dot_product_attention": _attention,
    **_with_identity(NORMS, _norm),
    **_with_identity(SOFTMAXES, _softmax),
    **_with_identity(ACTIVATIONS, _activation),
    **_with_identity(DROPOUTS, _dropout),
    **dict.fromkeys(EMBEDDINGS, _embedding),
    **dict.fromkeys(LOSSES, _loss),
}
"""By PyTorch's name; every other operator is bound by memory."""
