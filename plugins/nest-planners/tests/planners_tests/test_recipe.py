"""NVIDIA's table by model size."""

import pytest

from nest_planners.recipe import DENSE, EXPERTS, parameters
from planners_tests.instances import LAYERS, candidate, planned, problem


def sized(count: float, *degrees, memory: float = 1e15, **keys):
    """Layers of so many 16-bit parameters together."""
    offered = [candidate(width, **chosen) for width, chosen in degrees]
    levels = [{"fanout": 8, "bandwidth": 1e11, "latency": 1e-6}, {"fanout": 8, "bandwidth": 1e10, "latency": 1e-5}]
    for each in offered:
        each["state"]["dense"]["weights"] = [2 * count / LAYERS / each["width"]] * LAYERS
    written = problem(memory, *offered, zero=(0, 1), **keys)
    written["cluster"]["levels"] = levels
    return planned("recipe", written)


ALL = [(width, {"tp": width, "sp": 1}) for width in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("count", "tp", "pp"),
    [(0.5e9, (1,), (1,)), (7e9, (2, 4), (1,)), (70e9, (4, 8), (2, 4)), (175e9, (8,), (4, 8)), (400e9, (8,), (8, 16))],
)
def test_degrees_are_those_of_the_size(count, tp, pp):
    instance, proposal, seen = sized(count, *ALL)
    assert seen.faults == ()
    assert parameters(instance) == pytest.approx(count)
    assert instance.candidates[proposal.solution.stages[0].candidate].degrees["tp"] in tp
    assert len(proposal.solution.stages) in pp
    assert {stage.zero for stage in proposal.solution.stages} == {1}


def test_experts_are_spread_before_anything_else():
    offered = [(4, {"tp": 4, "ep": 1}), (4, {"tp": 1, "ep": 4}), (8, {"tp": 1, "ep": 8}), (8, {"tp": 8, "ep": 8})]
    instance, proposal, _ = sized(50e9, *offered)
    assert instance.candidates[proposal.solution.stages[0].candidate].degrees == {"tp": 1, "ep": 8}


def test_more_is_done_only_where_nothing_fits():
    roomy = sized(7e9, *ALL)
    assert roomy[1].solution.stages[0].recompute == "none"
    tight = sized(0.5e9, (1, {"tp": 1}), memory=2.2e9)
    assert tight[2].admitted
    assert len(tight[1].solution.stages) > 1 or tight[1].solution.stages[0].recompute == "full"
    assert not sized(0.5e9, (1, {"tp": 1}), memory=1e6)[2].admitted


def test_the_table_goes_up():
    for rules in (DENSE, EXPERTS):
        assert [rule.most for rule in rules] == sorted(rule.most for rule in rules)
        assert rules[-1].most == float("inf")
