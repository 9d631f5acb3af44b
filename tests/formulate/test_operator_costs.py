"""Times of operators, of collective calls and of layers."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.formulate.operator_costs import Calls, Direction, PricedLayer, PricedOperator, Timing
from nest.graph import Collective, Communication, Operator, Parameter, Routing, Tensor
from nest.hooks.kinds import InvalidResult
from nest.hooks.protocols import OperatorCost
from nest.hooks.registry import registry
from nest.hooks.results import operator_cost
from nest.instance import Cluster, Level
from nest.spec import Training

CALL = Communication("all_reduce", 1.0, "tp")
ROWS = (
    PricedOperator(Operator("l/a", "l", "matmul"), OperatorCost(3.0, 6.0, host=1.0), 0.0, 0.0),
    PricedOperator(
        Operator("l/b", "l", "collective", collective=Collective((CALL,), (CALL, CALL))),
        OperatorCost(0.0, 0.0),
        4.0,
        2.0,
    ),
    PricedOperator(Operator("l/c", "l", "norm"), OperatorCost(1.0, 0.0, host=1.0), 0.0, 0.0),
)
LAYER = PricedLayer(ROWS, (ROWS,))
SECONDS = st.floats(0, 10)


def overlapped(exposed: float) -> PricedLayer:
    """The layer with its collective hidden but for a share."""
    rows = tuple(evolve(row, exposed=1.0 if row.operator.collective is None else exposed) for row in ROWS)
    return PricedLayer(rows, (rows,))


def timing(host_launch: float = 0.0) -> Timing:
    return Timing(registry().layer_times()["sequential"], ("matrix",), host_launch)


def seconds(of: PricedLayer, direction: Direction, how: Timing) -> float:
    """Of a copy: a layer remembers what it took under one timing."""
    (found,) = PricedLayer(of.rows, of.parts).seconds(direction, how)
    return found


@pytest.mark.parametrize(
    ("layer", "how", "forward", "backward"),
    [
        (LAYER, timing(), 8.0, 8.0),  # one after the other
        (overlapped(0.0), timing(), 4.0, 6.0),  # all hidden: the longer of 4 and 4, of 6 and 2
        (overlapped(0.25), timing(), 5.0, 6.5),  # a quarter of 4 and of 2 holds computation up
        (overlapped(1.0), timing(), 8.0, 8.0),  # nothing hides
        (LAYER, timing(host_launch=7.0), 9.0, 15.0),  # 2 operators and a call forward; 1 operator and 2 calls backward
        (overlapped(0.25), timing(host_launch=7.0), 9.0, 15.0),
        (LAYER, timing(host_launch=5.0), 8.0, 11.0),  # forward the host is ahead
    ],
)
def test_by_hand(layer: PricedLayer, how: Timing, forward: float, backward: float) -> None:
    assert seconds(layer, Direction.FORWARD, how) == pytest.approx(forward)
    assert seconds(layer, Direction.BACKWARD, how) == pytest.approx(backward)


def test_only_what_runs_again_is_launched_again() -> None:
    (again,) = LAYER.seconds(Direction.FORWARD, timing(host_launch=9.0), frozenset({"l/a", "l/b"}))
    assert again == pytest.approx(1.0 + 9.0)


def test_what_hides_under_an_operator_keeps_the_links_busy() -> None:
    hiding = overlapped(0.25).rows
    rows = (hiding[0], evolve(hiding[1], hidden=(5.0, 0.0)), hiding[2])
    assert seconds(PricedLayer(rows, (rows,)), Direction.FORWARD, timing()) == pytest.approx(4.0 + 5.0)


@pytest.mark.parametrize(
    ("host_launch", "forward", "backward"),
    [(0.0, 0.0, 0.0), (5.0, 0.0, 3.0), (7.0, 1.0, 7.0)],  # beyond 8 forward, and 8 backward
)
def test_a_layer_waits_for_launches_beyond_its_work(host_launch: float, forward: float, backward: float) -> None:
    layer, how = PricedLayer(LAYER.rows, LAYER.parts), timing(host_launch)
    assert layer.waiting(Direction.FORWARD, how) == pytest.approx(forward)
    assert layer.waiting(Direction.BACKWARD, how) == pytest.approx(backward)


TOKEN_IDS = Tensor("ids", (("sequence", 4),), differentiable=False)
STREAM = Tensor("stream", (("sequence", 4), ("hidden", 8)))
WEIGHT = Parameter("w", (("hidden", 8),))


@pytest.mark.parametrize(
    ("operator", "share"),
    [
        (Operator("l/a", "l", "matmul", inputs=(STREAM,), parameters=(WEIGHT,), contracted=("hidden",)), 0.5),
        (Operator("l/a", "l", "matmul", inputs=(STREAM, STREAM), contracted=("hidden",)), 0.0),
        (Operator("l/a", "l", "norm", inputs=(STREAM,), parameters=(WEIGHT,)), 0.0),
        (Operator("l/a", "l", "embedding", inputs=(TOKEN_IDS,), parameters=(WEIGHT,)), 1.0),
    ],
    ids=["product with a weight", "product of two inputs", "norm", "look-up"],
)
def test_which_operators_find_gradients_of_weights(operator: Operator, share: float) -> None:
    row = PricedOperator(operator, OperatorCost(3.0, 6.0), 0.0, 0.0)
    assert row.finding_weight_gradients == 6.0 * share
    assert evolve(row, cost=OperatorCost(3.0, 6.0, weight_gradients=2.5)).finding_weight_gradients == 2.5


def test_a_cost_model_says_no_more_of_gradients_of_weights_than_the_backward_pass_takes() -> None:
    assert operator_cost(OperatorCost(1.0, 2.0, weight_gradients=2.0)).weight_gradients == 2.0
    assert operator_cost(OperatorCost(1.0, 2.0)).weight_gradients is None
    with pytest.raises(InvalidResult, match="weight_gradients is 3, more than backward, 2"):
        operator_cost(OperatorCost(1.0, 2.0, weight_gradients=3.0))


def test_calls_that_serve_gradients_of_weights_count_as_far_as_they_are_exposed() -> None:
    sent = evolve(ROWS[1], weight_gradients=1.5)
    assert [evolve(sent, exposed=share).finding_weight_gradients for share in (1.0, 0.5, 0.0)] == [1.5, 0.75, 0.0]


@given(SECONDS, SECONDS, SECONDS, st.floats(0, 1), SECONDS)
def test_between_all_hidden_and_one_after_the_other(
    computing: float, sending: float, hidden: float, exposed: float, host: float
) -> None:
    """More exposed is never faster, and no overlap takes longer than none."""
    engines, hidden = ["matrix", "matrix"], min(hidden, computing)

    def taken(share: float) -> float:
        rows = [(computing, 0.0, 0.0), (0.0, share * sending, (1 - share) * sending)]
        return timing().seconds(rows, engines, [], hidden, host)

    assert taken(0.0) <= taken(exposed) * (1 + 1e-12)
    assert taken(exposed) <= taken(1.0) * (1 + 1e-12)
    assert taken(exposed) >= max(computing, sending + hidden, host) * (1 - 1e-12)


NODE, NETWORK = Level("node", 8, 4e11, 0.0), Level("network", 8, 5e10, 0.0)
TOKENS = 8e9
"""Bytes that a rank hands over: eight copies of each token."""


def calls(nodes: int, **training: Any) -> Calls:
    cluster = Cluster((NODE, evolve(NETWORK, fanout=nodes)), 8e10)
    return Calls(cluster, registry().collective_models()["alpha-beta"], Training(1, **training), 1)


def sent(nodes: int, routing: Routing, **training: Any) -> Any:
    """Bytes that a device's port at each level sends of an exchange over so many nodes."""
    call = Communication("all_to_all", TOKENS, "ep", routing=routing)
    seconds = calls(nodes, **training).ports(call, ((8, nodes),), 8 * nodes)
    return seconds * [NODE.bandwidth, NETWORK.bandwidth] / TOKENS * routing.copies


def test_a_token_travels_once_to_each_node() -> None:
    """Of a token with eight experts on four nodes 2.7 copies leave the node, and not 6 (DeepSeek-V3, section 3.2.2)."""
    routing = Routing(8)
    assert sent(4, routing)[1] == pytest.approx(6.0)
    inside, across = sent(4, routing, dispatch="per-node")
    assert across == pytest.approx(4 * (1 - 0.75**8) * 3 / 4)
    assert across == pytest.approx(2.7, abs=0.01)
    # Each rank that has some of its experts gets it from the device of the same place.
    assert inside == pytest.approx(32 * (1 - (31 / 32) ** 8) * 7 / 8)


def test_node_limited_routing_reaches_fewer_nodes() -> None:
    """Of eight groups of experts on eight nodes a token keeps four (DeepSeek-V3, section 2.1.2)."""
    free, limited = Routing(8), Routing(8, groups=8, visited=4)
    assert free.reached(8) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert limited.reached(8) == pytest.approx(4 * (1 - (3 / 4) ** 8))
    assert limited.reached(64) == pytest.approx(32 * (1 - (31 / 32) ** 8))
    assert sent(8, limited, dispatch="per-node")[1] == pytest.approx(limited.reached(8) * 7 / 8)


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16, 256])
@pytest.mark.parametrize("routing", [Routing(1), Routing(8), Routing(8, 8, 4), Routing(6, 4, 3)], ids=str)
def test_no_more_parts_are_reached_than_there_are_or_copies(parts: int, routing: Routing) -> None:
    assert 1 <= routing.reached(parts) <= min(parts, routing.copies) + 1e-12


def test_the_busiest_experts_are_waited_for() -> None:
    even, uneven = (sent(4, Routing(8), expert_imbalance=share) for share in (None, 1.25))
    assert uneven == pytest.approx(1.25 * even)


def test_ways_inside_and_across_are_under_way_at_once() -> None:
    call = Communication("all_to_all", TOKENS, "ep", routing=Routing(8))
    priced = calls(4, dispatch="per-node")
    busy = priced.ports(call, ((8, 4),), 32)
    assert priced.seconds(call, ((8, 4),), 32) == pytest.approx(busy.max())
    assert priced.seconds(evolve(call, bytes=0.0), ((8, 4),), 32) == 0.0


MODEL = {"layers": 8, "hidden": 4096, "ffn": 14336, "heads": 32, "vocab": 32000}


def evaluated(devices: int = 16, training: dict[str, Any] | None = None, **fixed: Any) -> Any:
    levels = [{"fanout": 8, "link": "nvlink4"}, {"fanout": max(devices // 8, 1), "link": "infiniband-ndr"}]
    return nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": MODEL},
            "training": {"global_batch": 16, "sequence_length": 4096, "stack": "none", **(training or {})},
            "cluster": {"device": "h100-sxm", "levels": levels},
            "fixed": {"micro_batch": 1, **fixed},
        }
    )


@pytest.mark.parametrize(("tp", "hides"), [(8, True), (16, False)])
def test_overlap_reaches_as_far_as_its_links(tp: int, hides: bool) -> None:
    """Inside a node with a reach of `domain` as with `network`; over two nodes as with no overlap."""

    def time(overlap: bool, reach: str) -> float:
        chosen = {"overlap": {"tensor": overlap}, "overlap_reach": reach}
        return float(evaluated(training=chosen, tp=tp, sp=True).batch_time)

    assert time(True, "network") < time(False, "network")
    # The embedding's all-reduce never hides piece by piece.
    assert time(True, "domain") == pytest.approx(time(hides, "network"), rel=1e-3)
