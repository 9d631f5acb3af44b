"""What a layer takes: the host's floor and the share of collectives that shows, by hand."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, Timing
from nest.graph import Collective, Communication, Operator
from nest.hooks.protocols import OperatorCost
from nest.hooks.registry import registry

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


def test_parts_share_what_the_host_takes() -> None:
    fine = PricedLayer(ROWS, tuple((row,) for row in ROWS))
    found = fine.seconds(Direction.FORWARD, timing(host_launch=14.0))
    assert sum(found) == pytest.approx(16.0)
    assert found == pytest.approx([16.0 * 3 / 8, 16.0 * 4 / 8, 16.0 * 1 / 8])


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
