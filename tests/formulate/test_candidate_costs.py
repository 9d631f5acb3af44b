"""Candidates from blocks, by hand on small graphs."""

from collections.abc import Callable

import pytest
from attrs import evolve

from nest.catalogue import optimizer, precision
from nest.errors import InputError
from nest.formulate.candidate_costs import candidate
from nest.formulate.instance import build_instance
from nest.formulate.layer_classes import CrossingTensors, layer_classes
from nest.formulate.pricing import Pricing
from nest.graph import Axis, Block, Collective, Communication, Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.protocols import CostModel, OperatorCost
from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Level
from nest.spec import DeviceSpec, MatrixPeaks, Overlap, Problem, Training
from tests.formulate.conftest import EXPERTS

NODE = Level("node", 4, 1e3, 1.0)
DEVICE = DeviceSpec("toy", memory=1e3, memory_bandwidth=1.0, peak=MatrixPeaks(bf16=1.0))


@pytest.mark.parametrize("tp", [1, 2])
def test_muon_keeps_one_moment_of_matrices_and_two_of_all_else(problem: Callable[..., Problem], tp: int) -> None:
    """Experts (which tp leaves whole), dense layers and routers count; embeddings, the head and norms do not."""
    hidden, ffn, experts, moe_ffn = 64, 128, 4, 32
    attention = 2 * hidden * hidden + 2 * hidden * hidden  # As many keys and values as queries.
    sparse = 4 * (3 * experts * hidden * moe_ffn + hidden * experts)
    matrices = 6 * attention / tp + 2 * 3 * hidden * ffn / tp + sparse

    def state(name: str) -> float:
        asked = problem(EXPERTS, {"optimizer": name}, strategies={"tp": [tp]})
        found = build_instance(asked, registry()).candidates[0]
        return float(sum(group.optimizer.sum() for group in found.state))

    assert state("adam") - state("muon") == 4 * matrices


class PerOperator:
    """Prices an operator by its kind."""

    name = "per-operator"

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        if operator.kind == "core":
            return OperatorCost(1.0, 2.0, saved=7.0, transient=100.0)
        return OperatorCost(10.0, 20.0, update=operator.parameter_count / 10, transient=50.0)


def tensor(name: str, size: int) -> Tensor:
    return Tensor(name, (("hidden", size),), itemsize=1.0)


def graph() -> OperatorGraph:
    """Two equal blocks of a product with two parameter groups, a core operator and an all-reduce; then a head."""

    def block(layer: str, source: str) -> tuple[Operator, ...]:
        a, b, c = (tensor(f"{layer}/{name}", 8) for name in "abc")
        weights = (Parameter("w", (("ffn", 30),)), Parameter("e", (("ffn", 10),), group="expert"))
        calls = Collective(
            forward=(Communication("all_reduce", 8e3, "tp"),), backward=(Communication("all_gather", 8e3, "tp"),) * 2
        )
        read = tensor(source, 8)
        return (
            Operator(f"{layer}/p", layer, "matmul", inputs=(read,), outputs=(a,), saves=(source,), parameters=weights),
            Operator(f"{layer}/c", layer, "core", inputs=(a,), outputs=(b,), saves=(a.name,)),
            Operator(f"{layer}/r", layer, "collective", inputs=(b,), outputs=(c,), collective=calls),
        )

    last = tensor("l1/c", 8)
    head = Operator("head/p", "head", "matmul", inputs=(last,), outputs=(tensor("y", 2),), saves=("l1/c",))
    operators = (*block("l0", "x"), *block("l1", "l0/c"), head)
    return OperatorGraph(operators, ("l0", "l1", "head"), blocks=("l0", "l1"))


def pricing_on(levels: tuple[Level, ...], training: Training | None = None, costs: CostModel | None = None) -> Pricing:
    """Prices on a cluster of these levels, by default of whole layers whose operators take what `PerOperator` says."""
    return Pricing(
        Cluster(levels, memory=1e3),
        DEVICE,
        training or Training(1),
        precision("bf16"),
        optimizer("adam"),
        costs or PerOperator(),
        registry().collective_models()["alpha-beta"],
        registry().layer_times()["sequential"],
    )


def priced(training: Training | None = None, block: Block | None = None, costs: CostModel | None = None) -> Candidate:
    layers = layer_classes(graph())
    pricing = pricing_on((NODE,), training or Training(1, selective=("core",)), costs)
    made = block or Block(layers.graph, 1).with_axis("tp", 2).applied("tp", 2, layers.graph)
    return candidate("c", made, layers, pricing)


# Two members: a reduce-scatter or an all-gather of 8,000 bytes takes one step and 4,000 bytes at 1,000 a second.
GATHER = 1.0 + 4.0


def test_times_are_sums_over_operators() -> None:
    found = priced()
    assert found.forward.tolist() == [11 + 2 * GATHER, 11 + 2 * GATHER, 10]
    assert found.backward.tolist() == [22 + 2 * GATHER, 22 + 2 * GATHER, 20]


def test_gradients_of_weights_are_no_more_than_schedules_are_priced_for() -> None:
    """A cost model may say more: then half of the layer's backward pass counts."""
    assert said(1.0, 20.0, 19.0) == 10.0
    assert said(10.0, 5.0, 5.0) == 2.5
    assert said(10.0, 20.0, 3.0) == 3.0


def said(forward: float, backward: float, weights: float) -> float:
    """Those of the head, whose only operator takes so long, as a cost model says it."""

    class Saying:
        name = "saying"

        def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
            return OperatorCost(forward, backward, weight_gradients=weights)

    found = priced(costs=Saying()).weight_gradients
    assert found is not None
    return float(found[-1])


def test_overlap_lets_the_longer_hide_the_other() -> None:
    found = priced(Training(1, selective=("core",), overlap=Overlap(tensor=True)))
    assert found.forward.tolist() == [11, 11, 10]
    assert found.backward.tolist() == [22, 22, 20]
    # A full recomputation hides the same way; a selective one runs no collective here.
    assert found.mode("full").extra.tolist() == [11, 11, 0]


def test_what_hides_under_an_operator_keeps_the_links_busy_all_the_same() -> None:
    """Where collectives hide under all computation, all of them together do, those that hid already included."""
    steps = (Communication("point_to_point", 3e3, "tp", 2),)
    ring = Collective(steps, steps, under="l0/p", share=0.5)

    def beside(operator: Operator) -> tuple[Operator, ...]:
        made = Operator("l0/ring", "l0", "collective", inputs=operator.inputs, collective=ring)
        return (made, operator) if operator.name == "l0/p" else (operator,)

    small = layer_classes(graph()).graph
    block = Block(small.map_operators(beside), 1).with_axis("tp", 2)
    # Two steps of 4 s under 10 s of computation, half of which hides them: 3 s are left.
    assert priced(block=block).forward[0] == 11 + 3 + 2 * GATHER
    assert priced(Training(1, overlap=Overlap(tensor=True)), block).forward[0] == max(11, 8 + 2 * GATHER)


def test_modes_cost_and_keep_what_they_should() -> None:
    found = priced()
    assert [mode.name for mode in found.recompute] == ["none", "selective", "full", "stage"]
    none, selective, full = found.recompute[:3]
    assert none.extra.tolist() == [0, 0, 0]
    assert selective.extra.tolist() == [1, 1, 0]
    assert full.extra.tolist() == [11 + 2 * GATHER, 11 + 2 * GATHER, 0]
    # 8 bytes of the input and 8 of `a`, and the 7 the cost model adds for the core.
    assert none.first.tolist() == [23, 23, 8]
    assert selective.first.tolist() == [16, 16, 8]
    assert full.first.tolist() == [8, 8, 8]
    # The cluster has room for several blocks: two tensors of 8 bytes are on their way at a stage's boundaries.
    assert none.peak.tolist() == [100 + 16, 100 + 16, 50 + 16]
    assert selective.peak.tolist() == [107 + 16, 107 + 16, 50 + 16]
    assert full.peak.tolist() == [115 + 16, 115 + 16, 50 + 16]
    for mode in (none, selective, full):
        assert mode.more.tolist() == mode.first.tolist()
        assert not mode.stash_inputs


def test_a_stage_that_runs_again_keeps_its_inputs_and_what_comes_with_the_data() -> None:
    found = priced()
    none, stage = found.mode("none"), found.mode("stage")
    assert stage.extra.tolist() == found.forward.tolist()
    assert stage.first.tolist() == none.first.tolist()
    assert stage.peak.tolist() == none.peak.tolist()
    assert stage.stash_inputs
    # No layer makes `x`, so that no cut holds it.
    assert stage.more.tolist() == [8, 0, 0]


def test_state_is_counted_by_group() -> None:
    dense, expert = priced().state
    assert (dense.name, expert.name) == ("dense", "expert")
    assert dense.weights.tolist() == [60, 60, 0]
    assert dense.gradients.tolist() == [120, 120, 0]
    assert dense.optimizer.tolist() == [360, 360, 0]
    assert expert.weights.tolist() == [20, 20, 0]
    assert dense.update.tolist() == pytest.approx([3, 3, 0])
    assert expert.update.tolist() == pytest.approx([1, 1, 0])


def test_ranks_that_hold_the_same_parameters_are_named() -> None:
    small = layer_classes(graph()).graph
    block = Block(small, 1).with_axis("tp", 2).with_axis("cp", 2).applied("tp", 2, small)
    dense, expert = priced(block=evolve(block, replicated=(("dense", "cp"),))).state
    assert dense.ranks == (0, 2)
    assert expert.ranks == (0,)


def test_what_crosses_layers_is_counted() -> None:
    assert priced().tensor_bytes.tolist() == [8, 8]


def test_collectives_pay_for_the_distance_of_their_ranks() -> None:
    levels = (Level("pair", 2, 1e3, 1.0), Level("fabric", 2, 1e1, 1.0))
    layers = layer_classes(graph())
    near = Block(layers.graph, 1).with_axis("tp", 2).with_axis("other", 2)
    far = Block(layers.graph, 1).with_axis("other", 2).with_axis("tp", 2)
    pricing = pricing_on(levels)
    times = [candidate("c", block, layers, pricing).forward[0] for block in (near, far)]
    assert times == pytest.approx([11 + 2 * 5, 11 + 2 * (1 + 400)])


def test_the_group_of_ranks_that_lies_worst_counts() -> None:
    """Three ranks on every two nodes of four devices: the first group fits on one, the second does not."""
    levels = (Level("node", 4, 1e3, 1.0), Level("fabric", 3, 1e1, 1.0))
    layers = layer_classes(graph())
    whole = Block(layers.graph, 1).with_axis("other", 12)
    pricing = pricing_on(levels)
    assert len(whole.folded("expert", (Axis("tp", 4),)).groups("tp")) == 3
    assert whole.folded("expert", (Axis("tp", 3),)).groups("tp") == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
    assert whole.folded("expert", (Axis("ep", 3), Axis("tp", 2))).groups("tp")[:4] == ((0, 3), (1, 4), (2, 5), (6, 9))
    near, far = (
        candidate("c", whole.folded("expert", (Axis("tp", degree),)), layers, pricing).forward[0] for degree in (4, 3)
    )
    # All-reduces of 8,000 bytes, one way: three steps on the node; and two and a pair on each side of the fabric.
    assert near == pytest.approx(11 + 2 * (3 * 1.0 + 3 / 4 * 8.0))
    assert far == pytest.approx(11 + 2 * (2 * 1.0 + 1 / 2 * 8.0 + 1 / 2 * 400.0))


def test_a_strategy_that_loses_a_tensor_is_told() -> None:
    layers = layer_classes(graph())
    lost = layers._replace(crossing=(CrossingTensors(0, (1,), ("gone",)),))
    block = Block(layers.graph, 1).with_axis("tp", 2)
    pricing = pricing_on((NODE,))
    with pytest.raises(InputError, match="no operator writes tensor 'gone'"):
        candidate("c", block, lost, pricing)
