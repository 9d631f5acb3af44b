"""PyTorch counts the FLOP, and finds the saved tensors, of mixers in chunks; they equal the recurrences token by token.

The references are written from the papers: gated delta rule (arXiv 2412.06464, section 3.3), state space duality
(arXiv 2405.21060, section 6), Lightning attention (arXiv 2401.04658).
"""

import pytest

from nest.formulate.model import load_model
from nest.hooks.registry import registry
from nest.spec import Training
from tests.conformance.consumer import consume, needs
from tests.strategies.families import FAMILIES

TOKENS = 192
COUNT = """
import torch
from torch.utils.flop_counter import FlopCounterMode
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

def counted(inputs, chunked, stepped):
    for each in inputs:
        each.requires_grad_(True)
    with FlopCounterMode(display=False) as forward:
        result = chunked(*inputs)
    with torch.no_grad():
        assert torch.allclose(result, stepped(*inputs)), (result - stepped(*inputs)).abs().max()
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    answer([forward.get_total_flops(), backward.get_total_flops()])
"""

STATE_SPACE = (
    COUNT
    + """
heads, head, groups, state, chunk, tokens = given
def chunked(x, rates, enter, leave):
    shares, parts = heads // groups, tokens // chunk
    x = x.view(heads, parts, chunk, head)
    sums = rates.view(heads, parts, chunk).cumsum(-1)
    inside = (sums[..., :, None] - sums[..., None, :]).masked_fill(torch.ones(chunk, chunk).triu(1).bool(), -torch.inf)
    enter, leave = (each.view(groups, parts, chunk, state) for each in (enter, leave))
    met = (leave @ enter.transpose(-1, -2)).repeat_interleave(shares, 0)
    near = (met * inside.exp()) @ x
    wide = enter.repeat_interleave(shares, 0) * (sums[..., -1:] - sums).exp()[..., None]
    states = wide.transpose(-1, -2) @ x
    held, kept = torch.zeros(heads, state, head), []
    for part in range(parts):
        kept.append(held)
        held = held * sums[:, part, -1].exp()[:, None, None] + states[:, part]
    far = (leave.repeat_interleave(shares, 0) * sums.exp()[..., None]) @ torch.stack(kept, 1)
    return (near + far).reshape(heads, tokens, head)
def stepped(x, rates, enter, leave):
    held, results = torch.zeros(heads, state, head), []
    enter, leave = (each.repeat_interleave(heads // groups, 0) for each in (enter, leave))
    for t in range(tokens):
        held = held * rates[:, t].exp()[:, None, None] + enter[:, t, :, None] * x[:, t, None, :]
        results.append((leave[:, t, :, None] * held).sum(1))
    return torch.stack(results, 1)
parts = [torch.randn(heads, tokens, head), -torch.rand(heads, tokens)]
counted(parts + [torch.randn(groups, tokens, state) for _ in range(2)], chunked, stepped)
"""
)

DELTA_RULE = (
    COUNT
    + """
heads, key, value, chunk, tokens = given
def chunked(q, k, v, rate, decay):
    parts = tokens // chunk
    q, k, v = (each.view(heads, parts, chunk, -1) for each in (q, k, v))
    rate, sums = rate.view(heads, parts, chunk, 1), decay.view(heads, parts, chunk).cumsum(-1)
    lower = torch.ones(chunk, chunk).tril().bool()
    inside = (sums[..., :, None] - sums[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    system = ((rate * k) @ k.transpose(-1, -2) * inside).tril(-1) + torch.eye(chunk)
    inverse = torch.linalg.solve_triangular(system, torch.eye(chunk), upper=False)
    solved = inverse @ torch.cat([rate * v, rate * k * sums.exp()[..., None]], -1)
    fresh, read = solved.split([value, key], -1)
    scores = (q @ k.transpose(-1, -2)) * inside
    held, results = torch.zeros(heads, key, value), []
    for part in range(parts):
        left = sums[:, part].exp()[..., None]
        new = fresh[:, part] - read[:, part] @ held
        results.append((q[:, part] * left) @ held + scores[:, part] @ new)
        rest = (sums[:, part, -1:] - sums[:, part]).exp()[..., None]
        held = held * left[:, -1:] + (k[:, part] * rest).transpose(-1, -2) @ new
    return torch.stack(results, 1).reshape(heads, tokens, value)
def stepped(q, k, v, rate, decay):
    held, results = torch.zeros(heads, key, value), []
    for t in range(tokens):
        held = held * decay[:, t].exp()[:, None, None]
        old = (held * k[:, t, :, None]).sum(1)
        held = held + k[:, t, :, None] * (rate[:, t, None] * (v[:, t] - old))[:, None, :]
        results.append((held * q[:, t, :, None]).sum(1))
    return torch.stack(results, 1)
unit = torch.nn.functional.normalize
made = [unit(torch.randn(heads, tokens, key), dim=-1) for _ in range(2)] + [torch.randn(heads, tokens, value)]
counted(made + [torch.rand(heads, tokens), -torch.rand(heads, tokens)], chunked, stepped)
"""
)

SHORT = """
import torch
hidden, tokens, taps, found = *given, {}
source = torch.randn(tokens, hidden, requires_grad=True)
weights = [torch.randn(hidden, size, requires_grad=True) for size in (3 * hidden, hidden)]
filters = torch.randn(hidden, 1, taps, requires_grad=True)
def keep(tensor):
    found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor
with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
    first, last, value = (source @ weights[0]).chunk(3, -1)
    entered = torch.nn.functional.pad((first * value).T, (taps - 1, 0))
    convolved = torch.nn.functional.conv1d(entered[None], filters, groups=hidden)[0].T
    result = (last * convolved) @ weights[1]
learned = {each.untyped_storage().data_ptr() for each in (*weights, filters)}
answer(sum(size for pointer, size in found.items() if pointer not in learned))
"""


def graph_of(config, **training):
    return load_model(config, Training(global_batch=1, sequence_length=TOKENS, **training), registry())


@pytest.mark.parametrize(
    ("family", "script", "sizes", "repeated"),
    [
        # What kernels compute once more backward: of a state space, the groups' products, a gradient of theirs with the
        # values and the states; of a delta rule, what the inverse meets, and two of the three products with states.
        ("bamba", STATE_SPACE, (8, 12, 2, 5, 16, TOKENS), TOKENS * (2 * 2 * 16 * 5 + 8 * 2 * 12 * (16 + 5))),
        ("qwen3_next", DELTA_RULE, (8, 6, 4, 64, TOKENS), TOKENS * 8 * (2 * 64 * 10 + 2 * 2 * 6 * 4)),
    ],
)
def test_flop_are_those_that_pytorch_counts(family, script, sizes, repeated):
    needs("torch")
    ours = next(each for each in graph_of(FAMILIES[family]).operators if each.kind == "scan")
    forward, backward = consume(script, sizes)
    assert ours.flops == pytest.approx(forward)
    # Each product has two gradients; the first state is a constant. PyTorch inverts a system backward by products.
    assert family == "qwen3_next" or backward == pytest.approx(2 * forward, rel=0.15)
    assert ours.backward_flops == pytest.approx(2 * forward + repeated)


def test_a_short_convolution_saves_what_pytorch_saves():
    needs("torch")
    graph = graph_of({**FAMILIES["lfm2"], "conv_bias": False}, precision="fp32")
    outside = ("attention_norm", "attention_residual", "mlp")
    mixer = [each for each in graph.by_layer[1] if not each.name.partition("/")[2].startswith(outside)]
    sizes = {t.name: t.bytes for each in mixer for t in (*each.inputs, *each.outputs)}
    ours = sum(sizes[name] for name in {name for each in mixer for name in each.saves})
    # PyTorch keeps the two tokens in front of the sequence as well.
    assert ours + 4 * 2 * 48 == consume(SHORT, [48, TOKENS, 3])
