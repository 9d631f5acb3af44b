"""How many nodes of which cluster: equal to solving every number of nodes."""

from itertools import accumulate
from json import dumps
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.catalogue import clusters
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.formulate.problem import read_record, self_contained
from nest.hooks.registry import registry
from nest.instance import Instance, Result
from nest.io import structure
from nest.public.planning import fastest_within
from nest.public.questions import Nodes
from nest.solve import dp
from nest.spec import ClusterSpec, LevelSpec, Problem
from nest_studies.clusters.curve import rows_of
from nest_studies.clusters.node_search import NodeSearch
from nest_studies.clusters.recommend import Recommendation, Wanted, _comparable, _Training, recommendation
from nest_studies.clusters.recommendation import recommendation_text
from nest_studies.clusters.sizes import Sizes

DAY = 86400.0
LEVELS = (
    {"name": "node", "fanout": 4, "bandwidth": 300e9, "link": "nvlink3"},
    {"name": "unit", "fanout": 3, "bandwidth": 25e9, "link": "infiniband-hdr"},
    {"name": "spine", "fanout": 2, "bandwidth": 12.5e9, "link": "infiniband-hdr"},
)
CLUSTER = {"device": "a100-sxm-80g", "levels": list(LEVELS), "price": 2.0}
RACKS = {"device": "gb200", "levels": [{"fanout": 12, "link": "nvlink5"}, {"fanout": 2, "link": "infiniband-ndr"}]}


def problem(cluster: Any = None, **training: Any) -> dict[str, Any]:
    """GPT-2 with few choices, trained on 100 billion tokens."""
    return {
        "nest": 1,
        "model": "gpt2",
        "cluster": cluster or CLUSTER,
        "training": {
            "global_batch": 48,
            "sequence_length": 1024,
            "tokens": "100B",
            "stack": "none",
            "schedule": ["1f1b"],
            "micro_batch": [1, 2],
            **training,
        },
        "search": {"target": "none", "recompute": ["none"], "zero": [0, 1], "within": 0},
        "strategies": {"tp": [1, 2, 4, 8], "cp": [1], "sp": [1]},
    }


def whole(cluster: Any = None) -> Problem:
    return self_contained(read_record(problem(cluster), Problem)[0], None, registry())


def times(cluster: Any = None) -> dict[int, float]:
    """The step time of every number of nodes, each solved."""
    base = whole(cluster)
    nodes = Nodes.of(base.cluster)
    assert nodes is not None
    result = {}
    for count in range(1, nodes.count + 1):
        here = nodes.on(base, count)
        if here is not None:
            plan = nest.solve(here)
            result[count] = plan.batch_time or float("inf")
    return result


def shares(answer: dict[str, Any]) -> tuple[int, float]:
    return answer["nodes"], answer["batch_time"]


@pytest.fixture(scope="module")
def solved() -> dict[int, float]:
    return times()


@pytest.mark.longer
@pytest.mark.parametrize("place", [0.2, 0.5, 1.0])
def test_answers_are_those_of_solving_every_number_of_nodes(solved: dict[int, float], place: float) -> None:
    ordered = sorted(solved.values(), reverse=True)
    limit = ordered[min(int(place * len(ordered)), len(ordered) - 1)] * (1 + 1e-9)
    steps = -(-100_000_000_000 // (48 * 1024))
    hours = {count: count * 4 * seconds * steps / 3600 for count, seconds in solved.items()}
    budget = sorted(hours.values())[len(hours) // 2] * 2.0 * (1 + 1e-9)
    found = nest.recommend(problem(), within=limit * steps, budget=budget, clusters=["the problem's"]).clusters[0]
    fitting = [count for count, seconds in solved.items() if seconds <= limit]
    assert shares(found["fewest"]) == (min(fitting), pytest.approx(solved[min(fitting)], rel=1e-9))
    assert all(seconds > limit for count, seconds in solved.items() if count < found["fewest"]["nodes"])
    assert found["cheapest"]["device_hours"] == pytest.approx(min(hours[count] for count in fitting), rel=1e-9)
    paid = min(solved[count] for count in solved if hours[count] * 2.0 <= budget)
    assert found["fastest"]["batch_time"] == pytest.approx(paid, rel=1e-9)
    assert found["fastest"]["cost"] <= budget


@pytest.mark.longer
def test_the_curve_is_the_least_of_all_smaller_numbers(solved: dict[int, float], tmp_path: Any) -> None:
    path = tmp_path / "curve.jsonl"
    nest.recommend(problem(), within=60.0, clusters=["the problem's"], curve=path)
    rows = [rows_of(path, count)[0] for count in range(1, 7)]
    least = list(accumulate((solved.get(count, float("inf")) for count in range(1, 7)), min))
    assert [row["batch_time"] for row in rows] == pytest.approx(least, rel=1e-9)
    assert all(row["uses"] <= row["nodes"] for row in rows)
    for row in rows:
        assert nest.check(row["plan"]).ok
        assert row["plan"]["batch_time"] == row["batch_time"]


@pytest.mark.longer
@pytest.mark.parametrize("cluster", [CLUSTER, RACKS, "dgx-h100-superpod-16"], ids=["units", "racks", "catalogue"])
def test_no_plan_beats_the_floor_of_its_number_of_nodes(cluster: Any) -> None:
    base = whole(cluster)
    sizes = Sizes(base, registry(), Nodes.of(base.cluster))
    solved = times(cluster)
    assert sizes.counts() == tuple(solved)
    for count, seconds in solved.items():
        assert 0 < sizes.least(count) <= seconds


@pytest.mark.longer
@pytest.mark.parametrize("cluster", [CLUSTER, RACKS], ids=["units", "racks"])
def test_clusters_that_share_a_formulation_would_be_formulated_alike(cluster: Any) -> None:
    base, known = whole(cluster), registry()
    sizes = Sizes(base, known, Nodes.of(base.cluster))
    for count in sizes.counts():
        here, instance, _ = sizes.formulated(count)
        alone = build_instance(here, known)
        assert [each.name for each in instance.candidates] == [each.name for each in alone.candidates]
        for mine, other in zip(instance.candidates, alone.candidates, strict=True):
            assert mine.width == other.width
            assert (mine.forward == other.forward).all()
            assert (mine.backward == other.backward).all()
            for mode, same in zip(mine.recompute, other.recompute, strict=True):
                assert (mode.first == same.first).all()


def test_nodes_fill_as_few_groups_as_hold_them_evenly() -> None:
    nodes = Nodes.of(self_contained(whole(), None, registry()).cluster)
    assert nodes is not None
    assert nodes.count == 6

    def fanouts(count: int) -> list[int]:
        return [level.fanout for level in nodes.some(count) or ()]

    assert [fanouts(count) for count in range(1, 7)] == [[4], [4, 2], [4, 3], [4, 2, 2], [4, 5], [4, 3, 2]]
    merged = (nodes.some(5) or ())[-1]
    assert merged.name == "spine"  # The slower of the levels that are taken for one.


def test_machines_within_a_level_are_its_nodes() -> None:
    levels = (LevelSpec(fanout=12, link="nvlink5"), LevelSpec(fanout=2, link="infiniband-ndr"))
    nodes = Nodes.of(ClusterSpec(levels=levels, device="gb200", devices_per_host=4))
    assert nodes is not None
    assert (nodes.devices, nodes.fanouts) == (4, (3, 2))
    assert [level.fanout for level in nodes.some(2) or ()] == [8]
    assert [level.fanout for level in nodes.some(4) or ()] == [8, 2]
    assert nodes.some(5) is None


def test_of_clusters_that_are_all_too_slow_the_fastest_is_the_nearest() -> None:
    late = tuple(
        {"cluster": name, "fewest": None, "nearest": {"time": time}} for name, time in (("a", 9.0), ("b", 3.0))
    )
    assert Recommendation(1, 1, Wanted(1.0), late).to_dict()["nearest"] == "b"


def test_an_hour_of_nodes_costs_that_of_their_devices() -> None:
    as_a_whole = Sizes(whole(), registry(), None)
    assert as_a_whole.hourly(1) == 24 * CLUSTER["price"]


def test_clusters_that_differ_by_name_are_answered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network around all of their devices counts for nothing; one of other devices is answered by itself."""
    own = tmp_path / "own.yaml"
    node = {"fanout": 8, "bandwidth": 450e9, "link": "nvlink4", "name": "node"}
    own.write_text(dumps({"cluster": {"device": "h100-sxm", "levels": [node]}}))
    names = ["p5.48xlarge-8", "BM.GPU4.8-8", "a3-highgpu-8g-8", str(own), "p5.48xlarge-16", "a3-highgpu-8g-16"]
    wanted, answered = Wanted(20 * DAY), []
    alone = [recommendation(problem(), [name], None, wanted, registry(), jobs=1) for name in names]
    answers = NodeSearch.answers
    monkeypatch.setattr(NodeSearch, "answers", lambda self, *asked: answered.append(self) or answers(self, *asked))
    found = recommendation(problem(), names, None, wanted, registry(), jobs=1)
    assert [each["cluster"] for each in found.clusters] == names
    assert [each.clusters[0] for each in alone] == list(found.clusters)
    assert len(answered) == 4  # On two nodes their networks are others.
    for each in found.clusters:
        assert nest.check(each["fewest"]["plan"]).ok


@pytest.mark.parametrize(
    ("proved", "said"), [(True, "are proved too slow"), (False, "of own may be enough: some plans")]
)
def test_fewer_nodes_are_called_too_slow_only_where_no_plan_was_missed(
    monkeypatch: pytest.MonkeyPatch, proved: bool, said: str
) -> None:
    """A search misses plans where it cannot simulate all layouts of virtual stages."""
    asked: list[float] = []

    def missing(instance: Instance, limit: float) -> tuple[Result | None, bool]:
        asked.append(limit)
        return (None, proved) if len(asked) == 1 else fastest_within(instance, limit)

    monkeypatch.setattr("nest.public.planning.fastest_within", missing)
    search = NodeSearch(whole(), registry())
    least, limit = min(search._least), 2 * max(search._least.values())
    search._least[least] = 0.0  # Bounds alone do not decide.
    answers = search.answers(limit * search.steps, None)
    assert answers["proved"] is proved
    assert answers["fewest"]["nodes"] > search.sizes.used(least)
    document = Recommendation(
        1, 48, Wanted(limit), ({"cluster": "own", "price": None, "nodes": 6, **answers},)
    ).to_dict()
    answer = {**dict.fromkeys(("fewest", "cheapest", "fastest", "nearest", "reason")), **document["clusters"][0]}
    assert said in recommendation_text({**document, "clusters": [answer]})


@pytest.mark.parametrize(
    ("status", "bound", "proved"),
    [("optimal", 2.0, True), ("infeasible", None, True), ("feasible", 1.9, False), ("feasible", 2.1, True)],
)
def test_no_plan_is_proof_only_of_a_search_that_missed_none(
    monkeypatch: pytest.MonkeyPatch, status: str, bound: float | None, proved: bool
) -> None:
    instance = build_instance(whole(), registry())
    monkeypatch.setattr(dp, "solve", lambda *_, **__: Result(status, lower_bound=bound))
    assert fastest_within(instance, 2.0) == (None, proved)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(InputError, match="tokens is missing"):
        nest.recommend(problem(tokens=None), within=DAY)
    for within, budget in ((0, None), (inf, None), (nan, None), (DAY, inf), (DAY, -1.0)):
        with pytest.raises(InputError, match="finite and above 0"):
            nest.recommend(problem(), within=within, budget=budget)
    with pytest.raises(InputError, match="dgx-h1"):
        nest.recommend(problem(), within=DAY, clusters=["dgx-h1"])


@pytest.mark.parametrize(("nodes", "name"), [(1, "p5.48xlarge"), (3, "p5.48xlarge-24"), (8, "p5.48xlarge-64")])
def test_machines_of_a_cloud_are_as_many_as_the_own_cluster_has_devices(nodes: int, name: str) -> None:
    written = {
        "nest": 1,
        "model": "llama-3-8b",
        "training": {"global_batch": 64, "sequence_length": 128},
        "cluster": {**CLUSTER, "levels": [{"fanout": 8, "bandwidth": 1e11}, {"fanout": nodes, "bandwidth": 1e10}]},
    }
    training = _Training(structure(written, Problem), written, None, registry(), "the problem's")
    names = list(_comparable(training))
    assert name in names
    assert "dgx-h100-superpod" in names
    assert len(names) == len(clusters())


def test_machines_of_a_cloud_are_counted_where_nobody_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nest_studies.clusters.recommend.COUNTED", 24)
    own = {**problem(), "cluster": "p5.48xlarge"}
    for asked in ([], ["p5.48xlarge"], ["a3-highgpu-8g", "p5.48xlarge-16"]):
        found = recommendation(own, asked or ["p5.48xlarge"], None, Wanted(20 * DAY), registry(), jobs=1)
        told = {each["cluster"]: each["nodes"] for each in found.clusters}
        assert told == ({"a3-highgpu-8g-24": 3, "p5.48xlarge-16": 2} if len(asked) > 1 else {"p5.48xlarge-24": 3})
