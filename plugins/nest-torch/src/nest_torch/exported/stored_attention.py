"""Attention without a fused kernel: three operators that store the scores, as in nest's own models."""

from nest_torch.program.axes import Dim, size
from nest_torch.program.makers import meet
from nest_torch.program.recorder import Call, Recorder
from nest_torch.program.values import Extent, Value


def stored_attention(recorder: Recorder, call: Call) -> Value:
    """Write down scores, softmax and weighted sum over all keys, masked or not; the sum.

    The products have two gradients each, twice the forward FLOP. All three are of kind `attention`, so that selective
    recomputation drops the scores and probabilities (arXiv 2205.05198, section 5).

    Args:
        recorder: writes them down.
        call: attention as one call: queries, keys, values and perhaps a mask.
    """
    query, key, value, *rest = call.values
    mask = rest[0] if rest else None
    meet(query, key, value, mask)
    outer, keys = query.dims[:-1], key.dims[-2]
    rows, scores = [Extent(dim) for dim in outer], (*outer, keys)

    def one(values: list[Value], dims: tuple[Dim, ...]) -> Call:
        shape = tuple(size(dim) for dim in dims)
        return Call(call.target, call.path, values, {}, [shape], [query.itemsize], [True], False)

    space = [*rows, Extent(keys, "keys"), Extent(query.dims[-1], contracted=True)]
    made = recorder.add(
        one([query, key], scores), "attention", [scores], saves=[query, key], space=space, flops_per_point=2.0
    )
    masked = [*made, *([mask] if mask is not None else [])]
    probabilities = recorder.add(one(masked, scores), "attention", [scores])
    recorder.operators[-1].saves += recorder.operators[-1].outputs
    result = (*outer, value.dims[-1])
    space = [*rows, Extent(value.dims[-1]), Extent(keys, "keys", contracted=True)]
    operands = [*probabilities, value]
    return recorder.add(one(operands, result), "attention", [result], saves=operands, space=space, flops_per_point=2.0)[
        0
    ]
