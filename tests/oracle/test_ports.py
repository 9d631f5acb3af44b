"""Busy ports, against numbers worked out by hand from PROBLEM.md section 4."""

import pytest

from tests.measured import profile
from tests.oracle.price import price


def one_layer(busy: list[float], again: list[float], *, exposed: float, zero: int) -> tuple[dict, dict]:
    """A layer of 3 s forward and 6 s backward on four devices, two under each of two switches; and a plan of it.

    Gradients of 40 bytes scatter in 1/2 * 40/10 = 2 s inside and 1/2 * 20/1 = 10 s across; half as many weights gather
    in 1 s and 5 s. The optimizer takes 4 s.
    """
    state, kept = {"weights": [20.0], "gradients": [40.0], "update": [4.0]}, {"busy": [[seconds] for seconds in again]}
    problem = {
        "nest": 1,
        "training": {"global_batch": 16, "exposed": exposed},
        "cluster": {
            "memory": 1e3,
            "levels": [
                {"name": "node", "fanout": 2, "bandwidth": 10.0, "latency": 0.0},
                {"name": "rack", "fanout": 2, "bandwidth": 1.0, "latency": 0.0},
            ],
        },
        "profile": profile([3.0], [6.0], state=state, kept=kept, busy=[[seconds] for seconds in busy]),
    }
    stage = {"layers": [0], "candidate": "one", "offset": 0, "recompute": "none", "zero": zero}
    return problem, {"replicas": 4, "rank_order": "pp-inner", "schedule": "1f1b", "stages": [stage]}


# In turn: what ports are busy inside and across, what of it recomputation adds, e, the ZeRO stage, t, y.
@pytest.mark.parametrize(
    ("busy", "again", "exposed", "zero", "time", "sync"),
    [
        # All 24 s per micro-batch are sent, 20 of them across, whatever the half of them that shows.
        ([7, 4], [0, 0], 0.5, 3, 24.0, 1.0),
        ([7, 0.5], [0, 0], 0.5, 3, 21.0, 1.0),
        ([7, 0.5], [0, 1], 0.5, 3, 21.5, 1.0),
        # Of 18 s once per batch, four micro-batches hide 2 s each inside, where less is free than across.
        ([7, 4], [0, 0], 0.0, 1, 9.0, 18 - 4 * 2 + 1.0),
        ([5, 2], [2, 0], 0.0, 0, 9.0, 24 - 4 * 2 + 4.0),
        ([0, 3], [0, 0], 0.0, 0, 9.0, 4.0),
        ([11, 0], [0, 0], 0.5, 1, 11.0, 18 + 1.0),
        # Nothing may hide, so that nothing is held up.
        ([11, 0], [0, 0], 1.0, 1, 11.0, 18 + 1.0),
        ([1, 1], [0, 0], 1.0, 1, 9.0, 18 + 1.0),
        ([1, 1], [0, 0], 0.5, 1, 9.0, 9 + 1.0),
    ],
)
def test_a_busy_port_holds_up_a_stage_and_what_hides(busy, again, exposed, zero, time, sync):
    (stage,) = price(*one_layer(busy, again, exposed=exposed, zero=zero))["stages"]
    assert (stage["time"], stage["sync_time"]) == (pytest.approx(time, rel=1e-12), pytest.approx(sync, rel=1e-12))


def test_messages_occupy_the_levels_they_cross():
    """Two stages with 6 s across between them: activations on the second, gradients on the first."""
    problem, plan = one_layer([0, 0], [0, 0], exposed=1.0, zero=0)
    profile = problem["profile"]
    (candidate,) = profile["candidates"]
    profile |= {"layers": ["a", "b"], "edges": [[0, 1]]}
    candidate |= {"forward": [3.0, 0.0], "backward": [0.0, 3.0], "edge_bytes": [6.0], "busy": [[8.0, 1.0], [4.0, 1.0]]}
    candidate["state"] = {}
    for record in candidate["recompute"].values():
        record.update({key: [0.0, 0.0] for key in ("extra", "first", "more", "peak")})
        record["busy"] = [[0.0, 0.0], [0.0, 5.0]]
    first, second = ({**plan["stages"][0], "layers": [layer], "offset": 2 * layer} for layer in (0, 1))
    told = price(problem, {**plan, "replicas": 1, "stages": [first, second]})
    assert [stage["time"] for stage in told["stages"]] == [10.0, 12.0]
