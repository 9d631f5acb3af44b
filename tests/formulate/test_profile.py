"""Profiles: numbers in, the same numbers out."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nest.errors import InputErrors
from nest.formulate.instance import build_instance
from nest.formulate.profile import profile_candidates, profile_graph
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Problem, ProfileCandidate, ProfileGroup, ProfileRecompute, ProfileSpec

Build = Callable[..., Problem]
CLUSTER = Cluster((Level("node", 4, 1.0, 0.0), Level("fabric", 2, 1.0, 0.0)), memory=10.0)


def candidate(**changes: Any) -> ProfileCandidate:
    keys: dict[str, Any] = {
        "name": "tp2",
        "width": 2,
        "samples": 1,
        "forward": (1.0, 2.0),
        "backward": (3.0, 4.0),
        "state": {"dense": ProfileGroup((1, 0), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0))},  # type: ignore[arg-type]
        "recompute": {"full": ProfileRecompute((1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0), True)},  # type: ignore[arg-type]
        "edge_bytes": (9.0,),
        "degrees": {"tp": 2},
    }
    return ProfileCandidate(**{**keys, **changes})


def profile(*candidates: ProfileCandidate) -> ProfileSpec:
    return ProfileSpec(("a", "b"), ((0, 1),), candidates)


def test_numbers_go_through() -> None:
    written = candidate()
    (found,) = profile_candidates(profile(written), CLUSTER, 4)
    assert (found.name, found.width, found.samples, found.degrees) == ("tp2", 2, 1, {"tp": 2})
    assert (found.forward.tolist(), found.backward.tolist()) == ([1, 2], [3, 4])
    (group,) = found.state
    assert (group.name, group.ranks) == ("dense", (0, 1))
    assert [getattr(group, key).tolist() for key in ("weights", "gradients", "optimizer", "update")] == [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]
    (mode,) = found.recompute
    assert (mode.name, mode.stash_inputs) == ("full", True)
    assert [getattr(mode, key).tolist() for key in ("extra", "first", "more", "peak")] == [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]
    assert found.tensor_bytes.tolist() == [9]
    assert profile_graph(profile(written)).tensors == ((0, (1,)),)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"width": 3}, r"profile.candidates\[0\].width is 3, .*groups of 4, 8 devices"),
        ({"width": 16}, r"profile.candidates\[0\].width is 16, but the cluster has 8"),
        ({"samples": 5}, r"profile.candidates\[0\].samples is 5, more than training.global_batch \(4\)"),
        ({"forward": (1.0,)}, r"profile.candidates\[0\].forward has 1 numbers for 2 layers"),
        ({"weight_gradients": (1.0,)}, r"profile.candidates\[0\].weight_gradients has 1 numbers for 2 layers"),
        ({"weight_gradients": (1.0, 3.5)}, r"profile.candidates\[0\]: .*weight_gradients\[1\] is 3.5 s"),
        ({"edge_bytes": ()}, r"profile.candidates\[0\].edge_bytes has 0 numbers for 1 edges"),
        (
            {"state": {"e": ProfileGroup((0, 2), (1.0, 2.0), (3.0,), (5.0, 6.0), (7.0, 8.0))}},  # type: ignore[arg-type]
            r"(?s)state.e.gradients has 1 numbers.*state.e.ranks",
        ),
        ({"recompute": {"m": ProfileRecompute((), (), (), ())}}, r"recompute.m.extra has 0 numbers"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputErrors, match=told):
        profile_candidates(profile(candidate(**changes)), CLUSTER, 4)


def test_null_is_a_layer_that_cannot_run() -> None:
    mode = ProfileRecompute((0.0, 0.0), (3.0, None), (5.0, 6.0), (7.0, 8.0))
    (found,) = profile_candidates(profile(candidate(recompute={"none": mode})), CLUSTER, 4)
    assert found.recompute[0].first.tolist() == [3.0, inf]


def test_gradients_of_weights_are_those_given_or_half_the_backward_pass() -> None:
    (found,) = profile_candidates(profile(candidate(weight_gradients=(0.0, 1.5))), CLUSTER, 4)
    assert found.finding_weight_gradients.tolist() == [0.0, 1.5]
    (found,) = profile_candidates(profile(candidate()), CLUSTER, 4)
    assert found.finding_weight_gradients.tolist() == [1.5, 2.0]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputErrors) as error:
        profile_candidates(profile(candidate(width=3, samples=9), candidate(forward=())), CLUSTER, 4)
    assert len(error.value.problems) == 4  # the second candidate's name is taken, too


def small(shared: Path) -> list[Problem]:
    from nest.io import structure

    lines = (shared / "small" / "optima.jsonl").read_text().splitlines()
    return [structure(json.loads(line)["problem"], Problem) for line in lines]


def test_strategies_restrict_a_profile_by_its_degrees(shared: Path) -> None:
    problem = next(p for p in small(shared) if isinstance(p.profile, ProfileSpec) and len(p.profile.candidates) == 2)
    instance = build_instance(evolve(problem, strategies={"tp": (2,)}), registry())
    assert [each.degrees for each in instance.candidates] == [{"tp": 2}]
    with pytest.raises(Exception, match=r"strategies.tp allows 8"):
        build_instance(evolve(problem, strategies={"tp": (8,)}), registry())


def test_a_degree_for_experts_is_asked_of_candidates_that_say_theirs(problem: Build) -> None:
    """FORMATS.md: `fixed` takes `etp`; where candidates say none it has nothing to choose from, as without experts."""
    one, two = (candidate(name=f"etp{degree}", degrees={"etp": degree}) for degree in (1, 2))

    def asked(*candidates: ProfileCandidate) -> Problem:
        return problem(model=None, profile=profile(*candidates), fixed={"etp": 2})

    (constraint,) = build_instance(asked(one, two), registry()).space.constraints
    assert constraint.holds({"etp": 2})
    assert not constraint.holds({"etp": 1})
    assert build_instance(asked(candidate()), registry()).space.constraints == ()
