"""Which recompute modes a problem allows, of whole stages and of their first layers."""

import pytest

import nest
from nest.errors import InputError
from nest.formulate.modes import recomputes_parts
from nest.io import structure
from nest.spec import Problem
from tests.oracle.test_parts import chain

POOLS = ["h100-sxm", "a100-sxm-80g"]


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        ({"recompute_layers": 2}, ("full", 2, "none")),
        ({"recompute": "full", "recompute_layers": 3, "recompute_rest": "none"}, ("full", 3, "none")),
        ({"recompute_layers": 4}, ("full", None, None)),
        ({"recompute_layers": 9}, ("full", None, None)),
        ({"recompute": "full", "recompute_layers": 4}, ("full", None, None)),
        ({"recompute": "full"}, ("full", None, None)),
    ],
)
def test_what_is_fixed_is_the_only_choice(fixed, expected):
    plan = nest.solve({**chain(), "fixed": fixed})
    assert {(s.recompute, s.recompute_layers, s.recompute_rest) for s in plan.stages} == {expected}


@pytest.mark.parametrize("answer", [nest.solve, nest.evaluate])
@pytest.mark.parametrize("count", [0, -1, 2.5, True, "two"])
def test_a_number_of_layers_is_a_whole_number(answer, count):
    with pytest.raises(InputError, match=r"recompute_layers"):
        answer({**chain(), "fixed": {"recompute_layers": count}})


@pytest.mark.parametrize(
    ("fixed", "listed", "needed"),
    [
        ({"recompute_layers": 2}, ["none"], "is 2, which needs full and none, but search.recompute allows none"),
        ({"recompute_layers": 2}, ["full"], "is 2, which needs full and none, but search.recompute allows full"),
        ({"recompute_layers": 9}, ["none"], "is 9, which needs full, but search.recompute allows none"),
        (
            {"recompute": "full", "recompute_layers": 2, "recompute_rest": "none"},
            ["full"],
            "is 2, which needs full and none, but search.recompute allows full",
        ),
    ],
)
def test_modes_of_a_number_of_layers_are_among_those_of_the_search(fixed, listed, needed):
    """What is priced as it stands is searched for nothing."""
    problem = {**chain(), "search": {"recompute": listed}, "fixed": fixed}
    with pytest.raises(InputError, match=f"fixed.recompute_layers {needed} only; change one of them"):
        nest.solve(problem)
    assert nest.evaluate(problem).stages[0].recompute == "full"


@pytest.mark.parametrize("mode", ["stage", "offload"])
def test_a_mode_of_whole_stages_has_no_number_of_layers(mode):
    problem = {**chain(), "fixed": {"recompute": mode, "recompute_layers": 3}}
    for candidate in problem["profile"]["candidates"]:
        candidate["recompute"][mode] = candidate["recompute"]["full"]
    for answer in (nest.solve, nest.evaluate):
        with pytest.raises(InputError, match=f"mode '{mode}' is for whole stages only; leave it out"):
            answer(problem)


def test_a_plan_beside_the_first_says_what_it_recomputes():
    """A pipeline of two stages is next to two replicas; the first stage of each has no room for all it computes."""
    problem = {**chain(), "constraints": []}
    problem["cluster"]["memory"] = 25.0
    plan = nest.solve(problem)
    stages = plan.to_dict()["runner_up"]["decisions"]["stages"]
    told = [tuple(each.get(f"recompute{end}") for end in ("", "_layers", "_rest")) for each in stages]
    assert told == [("full", 1, "none"), ("none", None, None)]
    assert nest.check(plan).ok


@pytest.mark.parametrize(("stated", "searched"), [(None, False), (False, False), (True, True)])
def test_parts_are_searched_on_several_pools_only_where_asked_for(stated, searched):
    pools = [{"name": name, "device": name, "levels": [{"fanout": 8, "link": "nvlink4"}]} for name in POOLS]
    problem = structure(
        {
            "nest": 1,
            "model": "llama-3-8b",
            "training": {"global_batch": 16},
            "cluster": {"pools": pools, "between": [{"pools": POOLS, "bandwidth": 1e10, "latency": 1e-5}]},
            "search": {} if stated is None else {"recompute_layers": stated},
        },
        Problem,
    )
    assert recomputes_parts(problem) is searched
