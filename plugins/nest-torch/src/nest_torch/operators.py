"""Operators in PyTorch, ready to be run again and again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import cycle
from typing import Any

import torch
from torch.nn import functional

from nest_torch.experiments import LARGEST_TABLE, Experiment
from nest_torch.machine import FORMATS, Machine
from nest_torch.timing import Run

Tensor = Any
Forward = tuple[Callable[..., Tensor], Sequence[Tensor]]
"""A function and the tensors it is called with."""


class Unavailable(Exception):  # noqa: N818 - what is said of an experiment, not a failure of the program
    """This device or this PyTorch has no kernel for an experiment; the text says why."""


@contextmanager
def in_turn(experiment: Experiment, machine: Machine, precision: str, sets: int) -> Iterator[Run]:
    """Like `prepared`, with several sets of operands that runs take in turn.

    Raises:
        Unavailable: there is no kernel for it here.
    """
    with ExitStack() as stack:
        runs = cycle([stack.enter_context(prepared(experiment, machine, precision)) for _ in range(sets)])
        yield lambda: next(runs)()


@contextmanager
def prepared(experiment: Experiment, machine: Machine, precision: str) -> Iterator[Run]:
    """A function that starts one run of `experiment`, with its operands in place.

    Raises:
        Unavailable: there is no kernel for it here.
    """
    make = _MAKERS[experiment.kind]
    if precision == "fp8" and experiment.kind != "matmul":
        raise Unavailable("PyTorch runs only matrix products in fp8")
    context = _fused_attention() if machine.cuda and experiment.kind == "attention" else nullcontext()
    try:
        with context:
            run = make(experiment, machine.device, getattr(torch, FORMATS[precision]))
            run()
            if machine.cuda:
                torch.cuda.synchronize(machine.device)
            yield run
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise Unavailable(" ".join(str(error).split())[:160] or type(error).__name__) from None


def _fused_attention() -> Any:
    """Only kernels that never store the scores; without it PyTorch falls back to storing them, and says nothing."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    return sdpa_kernel(list(fused))


def _either_way(forward: Callable[[Experiment, Any, Any], Forward]) -> Callable[[Experiment, Any, Any], Run]:
    """Runs of a function in the direction an experiment asks for; forward as in training, for a backward pass."""

    def make(experiment: Experiment, device: Any, dtype: Any) -> Run:
        function, operands = forward(experiment, device, dtype)
        learned = [each.requires_grad_() for each in operands if each.is_floating_point()]
        if experiment.direction == "forward":
            return lambda: function(*operands)
        result = function(*operands)
        gradient = torch.randn_like(result)
        return lambda: torch.autograd.grad(result, learned, gradient, retain_graph=True)

    return make


def _random(device: Any, dtype: Any, *sizes: int) -> Tensor:
    """Normal numbers: zeros would spare a GPU power and so run faster than anything real."""
    if dtype.itemsize == 1:
        return torch.randn(*sizes, device=device, dtype=torch.float32).to(dtype)
    return torch.randn(*sizes, device=device, dtype=dtype)


def _matmul(experiment: Experiment, device: Any, dtype: Any) -> Run:
    if dtype.itemsize == 1:
        return _scaled_matmul(experiment, device, dtype)
    return _either_way(_product)(experiment, device, dtype)


def _product(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    """A linear layer's product, whose weight is stored by columns; or a batched one."""
    batch, rows, columns, inner = (experiment.size(name) for name in ("batch", "rows", "columns", "contracted"))
    if batch > 1:
        return torch.bmm, (_random(device, dtype, batch, rows, inner), _random(device, dtype, batch, inner, columns))
    return functional.linear, (_random(device, dtype, rows, inner), _random(device, dtype, columns, inner))


def _scaled_matmul(experiment: Experiment, device: Any, dtype: Any) -> Run:
    """A product of 8-bit numbers with one scale for each operand, into bfloat16."""
    if experiment.size("batch") > 1 or experiment.direction == "backward":
        raise Unavailable("PyTorch runs only single forward products in fp8")
    if not hasattr(torch, "_scaled_mm"):
        raise Unavailable("this PyTorch has no product in fp8")
    rows, columns, inner = (experiment.size(name) for name in ("rows", "columns", "contracted"))
    left, right = _random(device, dtype, rows, inner), _random(device, dtype, columns, inner).t()
    one = torch.ones((), device=device, dtype=torch.float32)
    return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _attention(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    batch, heads, kv_heads = (experiment.size(name) for name in ("batch", "heads", "kv_heads"))
    sequence, head = experiment.size("sequence"), experiment.size("head")
    keys, value = experiment.size("keys", sequence), experiment.size("value", head)
    causal, grouped = bool(experiment.shape["causal"]), kv_heads < heads
    operands = (
        _random(device, dtype, batch, heads, sequence, head),
        _random(device, dtype, batch, kv_heads, keys, head),
        _random(device, dtype, batch, kv_heads, keys, value),
    )

    def attend(query: Tensor, key: Tensor, values: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, values, is_causal=causal, enable_gqa=grouped)

    return attend, operands


def _norm(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    """A layer norm: one fused kernel in every PyTorch, and bound by the same bytes as an RMS norm."""
    width = experiment.size("width")
    weight, bias = torch.ones(width, device=device, dtype=dtype), torch.zeros(width, device=device, dtype=dtype)
    rows = _random(device, dtype, experiment.size("rows"), width)
    return (lambda source, scale, shift: functional.layer_norm(source, (width,), scale, shift)), (rows, weight, bias)


def _elementwise(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    rows, width = experiment.size("rows"), experiment.size("width")
    return torch.mul, (_random(device, dtype, rows, width), _random(device, dtype, rows, width))


def _activation(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    """GELU; with two branches PyTorch's gated linear unit, one kernel that moves what a fused SwiGLU moves."""
    branches = experiment.size("branches")
    rows = _random(device, dtype, experiment.size("rows"), experiment.size("width") * branches)
    if branches > 2:
        raise Unavailable("activations have one branch or two")
    return (functional.glu if branches == 2 else functional.gelu), (rows,)


def _softmax(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    rows = _random(device, dtype, experiment.size("rows"), experiment.size("width"))
    return (lambda scores: functional.softmax(scores, dim=-1)), (rows,)


def _embedding(experiment: Experiment, device: Any, dtype: Any) -> Forward:
    vocabulary = experiment.size("vocab", LARGEST_TABLE)
    indices = torch.randint(vocabulary, (experiment.size("rows"),), device=device)
    return functional.embedding, (indices, _random(device, dtype, vocabulary, experiment.size("width")))


def _update(experiment: Experiment, device: Any, _: Any) -> Run:
    """A step of AdamW in one kernel, parameters, gradients and moments in single precision."""
    learned = torch.nn.Parameter(torch.zeros(experiment.size("parameters"), device=device, dtype=torch.float32))
    learned.grad = torch.randn_like(learned)
    return torch.optim.AdamW([learned], fused=True).step  # type: ignore[no-any-return]


def _copy(experiment: Experiment, device: Any, _: Any) -> Run:
    source = torch.randint(256, (int((experiment.bytes or 2) // 2),), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _launch(_: Experiment, device: Any, dtype: Any) -> Run:
    number = torch.zeros(1, device=device, dtype=dtype)
    return lambda: number.add_(1)


_MAKERS: Mapping[str, Callable[[Experiment, Any, Any], Run]] = {
    "matmul": _matmul,
    "attention": _either_way(_attention),
    "norm": _either_way(_norm),
    "elementwise": _either_way(_elementwise),
    "activation": _either_way(_activation),
    "softmax": _either_way(_softmax),
    "embedding": _either_way(_embedding),
    "update": _update,
    "copy": _copy,
    "launch": _launch,
}
