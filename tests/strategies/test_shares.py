"""What tp, sp, cp, ep and etp, alone and together, leave on the ranks adds up to the unsplit model's, for every family.

The rules by which ranks repeat something stand in `tests.strategies.shares`; nothing here is a tolerance, but for the
last bits of floating-point sums.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, Operator, OperatorGraph, Tensor, elements
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Training
from nest.testing import SampleCluster, SampleModel, assert_conforms
from tests.strategies.families import FAMILIES, LLAMA, QWEN_EXPERTS, TOKENS, transformers
from tests.strategies.shares import Degrees, expected, holds_experts, parameters

NAMES = ("tp", "sp", "cp", "ep", "etp")
STEPPING = ("scan", "convolution")  # Kinds of operators that need the tokens before each one.
LAST_BITS = Fraction(1, 10**12)


def on(*fanouts: int, **training: Any) -> StrategyContext:
    """A cluster and a training."""
    levels = tuple(Level(f"l{index}", fanout, 1e11, 1e-6) for index, fanout in enumerate(fanouts))
    asked = Training(global_batch=64, sequence_length=TOKENS, **training)
    return StrategyContext(Cluster(levels, memory=80e9), asked)


def build(source: Any, training: Training) -> OperatorGraph:
    """The graph of one sample."""
    (importer,) = (each for each in registry().model_importers().values() if each.accepts(source))
    graph: OperatorGraph = importer.load(source, training)
    return graph


def blocks(graph: OperatorGraph, context: StrategyContext, samples: int = 1) -> Iterator[tuple[Degrees, Block]]:
    """Every combination of degrees that strategies offer, searched or not."""
    strategies = registry().strategies()
    found = [Block(graph.with_samples(samples), samples)]
    for name in NAMES:
        strategy = strategies[name]
        found = [
            strategy.apply(block, degree, context) if degree > 1 else block.applied(name, 1, block.graph)
            for block in found
            for degree in sorted({1, *strategy.degrees(block, context)})
        ]
    assert list(dict.fromkeys(strategies))[: len(NAMES)] == list(NAMES)
    return ((Degrees.of(dict(block.degrees)), block) for block in found)


def close(found: Fraction, wanted: Fraction) -> bool:
    return abs(found - wanted) <= LAST_BITS * wanted


def assert_adds_up(whole: OperatorGraph, degrees: Degrees, block: Block) -> None:
    """Work, activations, parameters and what passes between layers, of all ranks, per sample."""
    made = frozenset(tensor.name for operator in whole.operators for tensor in operator.outputs)
    per_sample = Fraction(block.width, block.samples)
    left = {operator.name: operator for operator in block.graph.operators}
    for operator in whole.operators:
        wanted = degrees.times(operator.space, inside_experts=holds_experts(operator)) * elements(operator.space)
        assert per_sample * elements(left[operator.name].space) == wanted, operator.name
    for operator in block.graph.operators:
        assert {*operator.saves} <= {t.name for t in (*operator.inputs, *operator.outputs)}, operator.name
    for name, before, after in zip(whole.layers, whole.by_layer, block.graph.by_layer, strict=True):
        for mode in ("none", "full"):
            repeated = name in whole.blocks
            kept = recompute_modes(before, (), repeated)[mode].stored
            wanted = expected(before, degrees, kept, made)
            found = recompute_modes(after, (), repeated)[mode]
            assert close(per_sample * Fraction(found.stored_bytes(tensor_bytes(after))), wanted.saved), (name, mode)
        assert close(per_sample * sum(Fraction(o.flops) for o in after), wanted.forward), name
        assert close(per_sample * sum(Fraction(o.backward_flops) for o in after), wanted.backward), name
    for group in dict.fromkeys(p.group for operator in whole.operators for p in operator.parameters):
        held = sum(p.count for o in block.graph.operators for p in o.parameters if p.group == group)
        different = Fraction(block.width, len(block.replica_ranks(group)))
        assert held * different == parameters(whole, group, degrees), group
    for before, after in zip(whole.layer_tensors, block.graph.layer_tensors, strict=True):
        assert (after.tensor.name, after.consumers) == (before.tensor.name, before.consumers)
        heads = dict(before.tensor.shape).get("kv_heads")  # Keys that later layers read are divided by heads.
        copies = degrees.alike if heads is None else Fraction(degrees.tp, min(degrees.tp, heads))
        assert per_sample * Fraction(after.tensor.bytes) == copies * Fraction(before.tensor.bytes)


def assert_laid_out(degrees: Degrees, block: Block) -> None:
    """Groups of ranks: what each device holds of parameters and tokens."""
    assert block.width == degrees.width
    assert block.samples == block.micro_batch * degrees.copies
    devices = list(range(block.width))
    # Dense parameters: a device holds those of its place among the tensor-parallel ranks.
    assert block.replica_ranks("dense") == tuple(range(0, block.width, degrees.tp))
    groups = {p.group for operator in block.graph.operators for p in operator.parameters}
    if "expert" not in groups:
        return
    # Expert gradients: over all ranks that hold the same experts and saw other tokens.
    assert block.replica_ranks("expert") == tuple(range(0, block.width, degrees.expert_ranks))
    unsplit = degrees.ep * degrees.etp == 1
    inner = tuple(range(degrees.alike)) if unsplit else block.ranks("etp")
    across = block.ranks("ep")
    assert len(across) == degrees.ep
    assert sorted(a + b + c for a in inner for b in across for c in block.replica_ranks("expert")) == devices
    # A device's tokens: of its copy and its context rank, and of its place in `tp` with sequence parallelism.
    tokens = [device // degrees.alike for device in devices]
    for first in (r + i for r in block.replica_ranks("expert") for i in inner):
        # Ranks with the same tokens each send theirs, unless they split the experts among them.
        repeated = degrees.alike if degrees.etp == 1 else 1
        assert len({tokens[first + rank] for rank in across}) == max(degrees.ep // repeated, 1)
    for first in (r + a for r in block.replica_ranks("expert") for a in across):
        assert len({tokens[first + rank] for rank in inner}) == (1 if degrees.alike > 1 else degrees.etp)


Calls = Counter[tuple[str, str, Fraction, int]]
"""How often a layer calls (kind, axis, bytes, count)."""


def calls(block: Block, layer: int, direction: str) -> Calls:
    """The calls of one layer in one direction."""
    made = (operator.collective for operator in block.graph.by_layer[layer])
    return Counter(
        (call.kind, call.axis, Fraction(call.bytes), call.count)
        for collective in made
        if collective
        for call in getattr(collective, direction)
    )


def exchanged(operators: tuple[Operator, ...], degrees: Degrees, samples: int, exchange: str, direction: str) -> Calls:
    """The calls that cp, ep and etp must make for one unsplit layer in one direction.

    Backward, keys and values travel again and their gradients with them; what reaches experts and what leaves them
    takes the same way in the other direction.
    """
    found: Calls = Counter()
    forward = direction == "forward"

    def call(kind: str, axis: str, tensor: Tensor, times: Fraction, gathered: int = 1, count: int = 1) -> None:
        size = samples * times * Fraction(tensor.bytes) * gathered / (degrees.tp * degrees.cp)
        found[kind, axis, size, count] += 1

    inside, read = set[str](), {t.name for each in operators if not holds_experts(each) for t in each.inputs}
    for operator in operators:
        keys = tuple(t for t in operator.inputs[1:] if operator.kind == "attention" and "keys" not in dict(t.shape))
        if degrees.cp > 1 and keys and exchange == "all_gather":
            for kind in ("all_gather",) if forward else ("all_gather", "reduce_scatter"):
                for tensor in keys:
                    call(kind, "cp", tensor, degrees.times(tensor.shape, whole=True), degrees.cp)
        elif degrees.cp > 1 and keys:
            # Compressed keys are fewer than those of the window: each tensor has its own share.
            share = sum(Fraction(t.bytes) * degrees.times(t.shape, whole=True) for t in keys)
            size = samples * share / (degrees.tp * degrees.cp)
            found["point_to_point", "cp", size, degrees.cp - 1] += 1 if forward else 2
        if degrees.cp > 1 and operator.kind in STEPPING:
            inner = {t.name for each in operators if each.kind in STEPPING for t in each.outputs}
            outer = {t.name for each in operators if each.kind not in STEPPING for t in each.inputs}
            moved = [t for t in operator.inputs if t.name not in inner] + [
                t for t in operator.outputs if t.name in outer
            ]
            for tensor in moved:
                if not {"heads", "kv_heads", "ffn"} & {*dict(tensor.shape)}:
                    kind = "all_gather" if forward else "reduce_scatter"
                    call(kind, "cp", tensor, degrees.times(tensor.shape, whole=True), degrees.cp)
                    continue
                groups = dict(tensor.shape).get("kv_heads", 0)
                repeated = Fraction(degrees.cp, -(-groups // degrees.tp)) if groups else Fraction(1)
                call("all_to_all", "cp", tensor, degrees.times(tensor.shape, whole=True) * max(repeated, Fraction(1)))
        if not holds_experts(operator):
            continue
        entering = [t for t in operator.inputs if t.name not in inside]
        inside |= {t.name for t in (*entering, *operator.outputs)}
        for tensor, leaves in [(t, False) for t in entering] + [(t, True) for t in operator.outputs if t.name in read]:
            alike = Fraction(degrees.alike)
            if degrees.ep > 1:
                call("all_to_all", "ep", tensor, alike)
            if degrees.etp > 1 and degrees.alike > 1 and leaves == forward:
                call("all_reduce", "etp", tensor, alike)
            if degrees.etp > 1 and degrees.alike == 1:
                call("reduce_scatter" if leaves == forward else "all_gather", "etp", tensor, alike, degrees.etp)
    return found


def assert_communicates(whole: OperatorGraph, found: dict[Degrees, Block], exchange: str) -> None:
    """Each layer's calls: those over cp, ep and etp by rule; those over tp are a share of what they are without cp."""
    for degrees, block in found.items():
        alone = found[Degrees(degrees.tp, degrees.sp)]
        for index, operators in enumerate(whole.by_layer):
            for direction in ("forward", "backward"):
                made = calls(block, index, direction)
                tensor = Counter({call: times for call, times in made.items() if call[1] == "tp"})
                assert made - tensor == exchanged(operators, degrees, block.micro_batch, exchange, direction)
                shares = calls(alone, index, direction).items()
                assert tensor == Counter({(k, a, size / degrees.cp, n): times for (k, a, size, n), times in shares})


EXCHANGES = ("ring", "all_gather")
LIKE_OTHERS = ("deepseek_v2", "ernie4_5_moe", "glm4_moe", "hunyuan_v1_moe", "minimax_m2", "qwen3_moe")
"""Families whose blocks with experts are made of what blocks of Mixtral, Qwen 2, DeepSeek V3 or Llama are made of."""

CASES = [
    pytest.param(family, exchange, marks=[pytest.mark.slow] if (row + column) % 2 or family in LIKE_OTHERS else [])
    for row, family in enumerate(FAMILIES)
    for column, exchange in enumerate(EXCHANGES)
]
"""Every family with every exchange of keys and values; in the longer run with one, its neighbour with the other."""
SOON = (
    *("deepseek_v3", "llama", "gpt_oss", "mixtral", "qwen2_moe", "gemma4_text", "jamba", "kimi_linear", "nemotron_h"),
    *("qwen3_next", "deepseek_v4", "transformer"),
)
EARLY = [c if c.values[0] in SOON else pytest.param(*c.values, marks=[pytest.mark.longer, *c.marks]) for c in CASES]
"""The same cases; the default run takes families of `SOON` only."""


@pytest.mark.parametrize(("family", "exchange"), EARLY)
def test_calls_are_those_of_the_tensors_that_move(family: str, exchange: str) -> None:
    for capacity, attention in ((1.0, "flash"), (1.5, "unfused")):
        context = on(4, 4, context_exchange=exchange, expert_capacity=capacity, attention=attention)
        whole = build(FAMILIES[family], context.training)
        assert_communicates(whole, dict(blocks(whole, context, samples=2)), exchange)


EIGHT_HEADS = (
    *("bailing_hybrid", "bamba", "falcon_h1", "granitemoehybrid", "kimi_linear", "mamba2", "minimax"),
    *("nemotron_h", "qwen3_5", "qwen3_5_moe", "qwen3_next"),
)
"""Families whose states here have eight heads, which `cp` divides beside `tp`."""


@pytest.mark.longer
@pytest.mark.parametrize(("family", "exchange"), CASES)
def test_every_combination_adds_up(family: str, exchange: str) -> None:
    context = on(4, 4, attention="unfused" if exchange == "ring" else "flash", context_exchange=exchange)
    whole = build(FAMILIES[family], context.training)
    tried = set()
    for degrees, block in blocks(whole, context):
        tried.add(degrees)
        assert_laid_out(degrees, block)
        assert_adds_up(whole, degrees, block)
    widest = {Degrees(tp=8, sp=True), Degrees(cp=8), Degrees(tp=2 if family in EIGHT_HEADS else 4, sp=True, cp=4)}
    if family == "deepseek_v4":  # Of 48 tokens it makes as few as 6 compressed ones, which `sp` and `cp` divide.
        widest = {Degrees(tp=2, sp=True), Degrees(tp=8, cp=2)}
    assert {Degrees(), Degrees(tp=8), *widest} <= tried


def test_every_family_is_tried() -> None:
    assert {*FAMILIES, "operator_graph"} == set(registry().model_importers())


@pytest.mark.longer
@settings(max_examples=8)
@given(
    transformers(),
    st.sampled_from([(16,), (2, 4), (3, 4), (6, 2), (4, 3), (24,)]),
    st.integers(1, 3),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.sampled_from(["ring", "all_gather"]),
    st.data(),
)
def test_any_transformer_adds_up(
    source: Any, fanouts: tuple[int, ...], samples: int, capacity: float, exchange: str, data: st.DataObject
) -> None:
    if source.experts and source.top_k > source.experts:
        return
    context = on(*fanouts, expert_capacity=capacity, context_exchange=exchange)
    whole = build(source, context.training)
    found = list(blocks(whole, context, samples))
    degrees, block = data.draw(st.sampled_from(found), label="block")
    assert context.cluster.admits(block.width)
    assert_laid_out(degrees, block)
    assert_adds_up(whole, degrees, block)


@pytest.mark.longer
@pytest.mark.parametrize("capacity", [1.25, 3.0])
def test_room_for_more_tokens_costs_work_memory_and_traffic_inside_the_experts_alone(capacity: float) -> None:
    """The capacity factor of arXiv 2101.03961, section 2.2: experts compute on, keep and receive the padding too."""
    exact, roomy = (on(16, expert_capacity=each) for each in (1.0, capacity))
    source = FAMILIES["mixtral"]
    plain = dict(blocks(build(source, exact.training), exact))
    for degrees, block in blocks(build(source, roomy.training), roomy):
        for before, after in zip(plain[degrees].graph.operators, block.graph.operators, strict=True):
            times = capacity if holds_experts(before) and before.parameters else 1.0
            assert after.flops == pytest.approx(times * before.flops, rel=1e-12)
            assert after.model_flops == before.model_flops
            assert after.parameters == before.parameters
            padded = {"dispatched", "expert_up", "expert_activated", "expert_down"}
            for old, new in zip((*before.inputs, *before.outputs), (*after.inputs, *after.outputs), strict=True):
                name = old.name.split("/")[-1].split(".")[0]
                assert new.bytes == pytest.approx((capacity if name in padded else 1.0) * old.bytes, rel=1e-12)


def offered(sizes: dict[str, int], fanouts: tuple[int, ...]) -> set[Degrees]:
    """Every admissible combination for a mixture of experts (FORMATS.md, `fixed`; PROBLEM.md section 2)."""
    capacities = [prod(fanouts[: index + 1]) for index in range(len(fanouts))]
    numbers = range(1, capacities[-1] + 1)

    def admits(width: int) -> bool:
        return all(capacity % width == 0 or width % capacity == 0 for capacity in capacities)

    def laid_over(width: int, needed: int) -> bool:
        return max(width, needed) % min(width, needed) == 0 and admits(max(width, needed))

    found = set()
    for tp in (n for n in numbers if sizes["heads"] % n == 0 and sizes["ffn"] % n == 0 and admits(n)):
        if sizes["kv_heads"] % tp and tp % sizes["kv_heads"]:
            continue
        for sp in {False, tp > 1 and TOKENS % tp == 0}:
            for cp in (n for n in numbers if TOKENS % (2 * n) == 0 and TOKENS // (tp if sp else 1) % n == 0):
                width = tp * cp
                if not admits(width):
                    continue
                alike = 1 if sp else tp
                for ep in (n for n in numbers if sizes["experts"] % n == 0 and (n == 1 or laid_over(width, n))):
                    wide = max(width, ep)
                    for etp in (n for n in numbers if sizes["expert_ffn"] % n == 0):
                        if etp == 1 or ((etp == tp or alike == 1) and laid_over(wide, ep * etp)):
                            found.add(Degrees(tp, sp, cp, ep, etp))
    return {each for each in found if each.width <= capacities[-1]}


@pytest.mark.longer
@pytest.mark.parametrize("fanouts", [(1,), (6,), (16,), (2, 4), (3, 4), (4, 3), (8, 3)], ids=str)
def test_combinations_that_fit_are_offered_and_no_others(fanouts: tuple[int, ...]) -> None:
    context = on(*fanouts)
    sizes = {"heads": 8, "kv_heads": 2, "ffn": 96, "experts": 12, "expert_ffn": 24}
    source = {
        **LLAMA,
        **QWEN_EXPERTS,
        "model_type": "qwen3_moe",
        "head_dim": 6,
        "num_experts": 12,
        "mlp_only_layers": [1],
    }
    found = [degrees for degrees, _ in blocks(build(source, context.training), context)]
    assert len(found) == len(set(found))
    assert set(found) == offered(sizes, fanouts)


@pytest.mark.longer
@pytest.mark.parametrize("family", ["deepseek_v3", "mixtral", "qwen2_moe", "transformer"])
@pytest.mark.parametrize("name", ["ep", "etp"])
def test_the_kit_has_no_objection_to_experts(name: str, family: str) -> None:
    """What strangers are asked to pass, on more models and devices than by default: 3, 6 and 12 divide some sizes."""
    context = on(24, expert_capacity=1.5)
    model, cluster = SampleModel(family, FAMILIES[family], context.training), SampleCluster("24", context.cluster)
    assert_conforms(registry().strategies()[name], models=[model], clusters=[cluster])
