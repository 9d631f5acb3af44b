"""The rank table against PROBLEM.md section 3, worked out anew, and against the groups that solvers price."""

from itertools import product
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.deployment import Rank, rank_table
from nest.errors import InputError
from nest.formulate.fixed_plan import fixed_plan
from nest.formulate.problem import self_contained
from nest.hooks.placements import placement
from nest.hooks.registry import registry
from nest.network import pairs, reduce
from nest.network.graph import read_graph
from nest.plan.layout import first_devices, replica_size, widest
from nest.spec import PlanDocument, Problem
from tests.deployment.plans import Decisions, decisions, made_up


def by_hand(one: Decisions) -> dict[tuple[int, int, int, int], int]:
    """Device of every (pp, dp, cp, tp), by PROBLEM.md section 3; `dp` counts copies inside replicas."""
    found = {}
    replica_devices = one.width * (one.devices // (one.replicas * one.width))
    for stage, replica in product(range(len(one.places)), range(one.replicas)):
        offset = one.places[stage] * one.width
        first = replica * replica_devices + offset
        if one.rank_order == "dp-inner":
            first = offset * one.replicas + replica * one.width
        block = product(range(one.copies), range(one.cp), range(one.tp))
        for inside, (copy, cp, tp) in enumerate(block):
            found[stage, replica * one.copies + copy, cp, tp] = first + inside
    return found


@given(decisions())
def test_every_rank_is_where_section_3_says(one: Decisions) -> None:
    table = rank_table(made_up(one))
    assert {(each.pp, each.dp, each.cp, each.tp): each.device for each in table} == by_hand(one)
    assert [each.rank for each in table] == list(range(len(by_hand(one))))
    used = [each.device for each in table]
    assert len(set(used)) == len(used)
    assert all(0 <= device < one.devices for device in used)


@given(decisions())
def test_ranks_count_as_megatron_counts_them(one: Decisions) -> None:
    """`tp-cp-dp-pp`, and of experts `etp-ep-edp-pp` (megatron/core/parallel_state.py, RankGenerator)."""
    stage = one.width * one.replicas
    for each in rank_table(made_up(one)):
        assert each.rank == each.tp + one.tp * (each.cp + one.cp * each.dp) + stage * each.pp
        assert each.etp == each.rank % stage % one.etp
        assert each.ep == each.rank % stage // one.etp % one.ep


@given(decisions(), st.permutations(["tp", "cp", "dp", "pp"]))
def test_the_order_renumbers_ranks_and_moves_none(one: Decisions, order: list[str]) -> None:
    plan = made_up(one)
    table = rank_table(plan, order)
    assert {evolve(each, rank=0) for each in table} == {evolve(each, rank=0) for each in rank_table(plan)}
    assert [each.rank for each in table] == list(range(len(table)))
    assert table == tuple(sorted(table, key=lambda each: [getattr(each, name) for name in reversed(order)]))


TRANSFORMER = {"layers": 8, "hidden": 64, "ffn": 64, "heads": 8, "vocab": 64}
EXPERTS = {"experts": 8, "top_k": 2, "moe_ffn": 32}


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Small problems whose `fixed` decides everything that says where ranks lie."""
    fanouts = draw(st.sampled_from([(4, 4), (8, 2), (2, 2, 4), (16,), (4, 5)]))
    mixture = draw(st.booleans())
    tp, cp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    fixed: dict[str, Any] = {"tp": tp, "cp": cp, "pp": draw(st.sampled_from([1, 2]))}
    fixed["rank_order"] = draw(st.sampled_from(["pp-inner", "dp-inner"]))
    if mixture:
        fixed |= {"ep": draw(st.sampled_from([1, 2, 4, 8])), "etp": draw(st.sampled_from([1, tp]))}
    if fixed["pp"] == 2 and draw(st.booleans()):
        fixed |= {"schedule": "interleaved", "chunks": 2}
    return {
        "nest": 1,
        "model": {"transformer": TRANSFORMER | (EXPERTS if mixture else {})},
        "training": {"global_batch": 32, "sequence_length": 16},
        "cluster": {
            "levels": [{"fanout": n, "bandwidth": 1e11 / 10**i, "latency": 1e-6} for i, n in enumerate(fanouts)],
            "device": "h100-sxm",
        },
        "fixed": fixed,
    }


@pytest.mark.longer
@settings(max_examples=20)
@given(problems())
def test_groups_are_those_that_gradients_are_reduced_over(problem: dict[str, Any]) -> None:
    """The devices that the instance says hold the same parameters are those the table says do."""
    try:
        plan = nest.evaluate(problem)
    except InputError:  # Some degrees do not go together.
        return
    table = rank_table(plan)
    instance, solution, *_ = fixed_plan(self_contained(_problem(problem), None), registry())
    size = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    for index, stage in enumerate(solution.stages):
        candidate = instance.candidates[stage.candidate]
        firsts = first_devices(solution, size, stage.offset, candidate.width).tolist()
        for group in candidate.state:
            expected = {first + rank for first in firsts for rank in group.ranks}
            assert any(first in expected for first in firsts)
            zero = next(each for each in table if each.device == firsts[0])
            names = ("ep", "etp") if group.name.startswith("expert") else ("tp",)
            found = {each.device for each in table if each.pp == index and _alike(each, zero, names)}
            if names != ("tp",) and experts_are_whole(plan):
                # Ranks of tensor parallelism repeat experts on the same tokens: there is nothing to reduce among them.
                assert expected <= found
            else:
                assert found == expected, group.name


def experts_are_whole(plan: PlanDocument) -> bool:
    """Whether experts are not split at all, though all else is."""
    degrees = plan.candidate.degrees if plan.candidate is not None else {}
    return degrees.get("tp", 1) > 1 and degrees.get("ep", 1) == degrees.get("etp", 1) == 1


def _problem(mapping: dict[str, Any]) -> Problem:
    from nest.io import structure

    return structure(mapping, Problem)


def _alike(one: Rank, other: Rank, names: tuple[str, ...]) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in names)


ONE = Decisions((4, 2), tp=2, cp=1, copies=1, etp=1, ep=1, replicas=2, rank_order="dp-inner", places=(0, 1))


def test_plans_without_a_grid_are_refused() -> None:
    plan = made_up(ONE)
    assert plan.candidate is not None
    mixed = evolve(plan, stages=(plan.stages[0], evolve(plan.stages[1], candidate="other")))
    with pytest.raises(InputError, match="different parallelism"):
        rank_table(mixed)
    with pytest.raises(InputError, match="no column for spatial 2"):
        rank_table(evolve(plan, candidate=evolve(plan.candidate, degrees={"tp": 1, "spatial": 2})))
    with pytest.raises(InputError, match="stages of 2 devices are neither tp 4"):
        rank_table(evolve(plan, candidate=evolve(plan.candidate, degrees={"tp": 4})))


@given(decisions(), st.sampled_from([2, 3]))
def test_a_strategy_with_a_column_lies_outside_copies(one: Decisions, degree: int) -> None:
    plan = made_up(one)
    assert plan.candidate is not None
    if one.copies % degree:
        return
    split = evolve(plan, candidate=evolve(plan.candidate, degrees={**plan.candidate.degrees, "spatial": degree}))
    table = rank_table(split, ("tp", "cp", "spatial", "dp", "pp"))
    assert sorted(each.device for each in table) == sorted(each.device for each in rank_table(plan))
    copies = one.copies // degree
    for each in table:
        ((name, place),) = each.places
        assert (name, each.offset // (one.tp * one.cp * copies)) == ("spatial", place)
        assert each.dp == each.replica * copies + each.offset // (one.tp * one.cp) % copies


def seat_lists(one: Decisions, **cluster: Any) -> list[tuple[str, int]]:
    """Seats by device number."""
    found = {each.rank.device: (each.node, each.gpu) for each in placement(made_up(one, **cluster))}
    return [found[device] for device in sorted(found)]


def test_hosts_are_called_node_where_nobody_names_them() -> None:
    assert seat_lists(ONE) == [(f"node{device // 4}", device % 4) for device in range(8)]
    assert seat_lists(ONE, devices_per_host=2) == [(f"node{device // 2}", device % 2) for device in range(8)]


def test_hosts_have_the_names_the_problem_gives_them() -> None:
    hosts = [f"rack1-n{index:02d}" for index in range(4)]
    assert seat_lists(ONE, hosts=hosts) == [(hosts[device // 2], device % 2) for device in range(8)]
    with pytest.raises(InputError, match="3 hosts of 2 do not make the 8 devices"):
        placement(made_up(ONE, hosts=hosts[:3]))


GRAPH = {
    "nodes": [
        *({"id": f"{host}.{index}", "kind": "device"} for host in ("b7", "a1", "c3", "d9") for index in range(2)),
        *({"id": name, "kind": "switch"} for name in ("s0", "s1", "top")),
    ],
    "edges": [
        {"source": f"{host}.{index}", "target": leaf, "bandwidth": 4e11, "latency": 1e-6}
        for leaf, hosts in (("s0", ("b7", "c3")), ("s1", ("a1", "d9")))
        for host in hosts
        for index in range(2)
    ]
    + [{"source": leaf, "target": "top", "bandwidth": 1e11, "latency": 1e-6} for leaf in ("s0", "s1")],
}


def planned(topology: dict[str, Any], **fixed: Any) -> Any:
    return nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": TRANSFORMER},
            "training": {"global_batch": 32, "sequence_length": 16},
            "cluster": {"device": "h100-sxm", "topology": topology},
            "fixed": fixed,
        }
    )


@pytest.mark.longer
def test_hosts_of_a_network_are_those_in_the_names_of_its_devices() -> None:
    """Hosts under one switch lie side by side along the levels, wherever the file lists them."""
    plan = planned(GRAPH, tp=4)
    groups: dict[int, set[str]] = {}
    for each in placement(plan):
        groups.setdefault(each.rank.dp, set()).add(each.node)
    assert sorted(map(sorted, groups.values())) == [["a1", "d9"], ["b7", "c3"]]
    assert sorted((each.node, each.gpu) for each in placement(plan)) == sorted(
        (host, index) for host in ("a1", "b7", "c3", "d9") for index in range(2)
    )


def uneven(names: list[str]) -> dict[str, Any]:
    """A pipeline of four on six devices, all linked alike but the second and third, whose link is slow."""
    links = [
        {"source": one, "target": other, "bandwidth": 1e9 if (i, j) == (1, 2) else 50e9, "latency": 1e-6}
        for i, one in enumerate(names)
        for j, other in enumerate(names)
        if i < j
    ]
    nothing = [0.0] * 4
    mode = {"extra": nothing, "first": nothing, "more": nothing, "peak": nothing}
    sizes = {"width": 1, "samples": 1, "forward": [1.0] * 4, "backward": [1.0] * 4, "edge_bytes": [1e9] * 3}
    candidate = {"name": "c", "degrees": {}, **sizes, "state": {}, "recompute": {"none": mode}}
    return {
        "nest": 1,
        "training": {"global_batch": 8},
        "constraints": ["replicas == 1", "pp == 4"],
        "cluster": {"memory": 1e12, "topology": {"nodes": [{"id": name} for name in names], "links": links}},
        "profile": {"layers": list("abcd"), "edges": [[0, 1], [1, 2], [2, 3]], "candidates": [candidate]},
    }


def test_a_placement_on_a_network_that_is_no_hierarchy_is_kept() -> None:
    names = ["x.0", "x.1", "y.0", "y.1", "z.0", "z.1"]
    plan = nest.solve(uneven(names))
    assert plan.placement is not None
    placed = [stage[0] for stage in plan.placement.replicas[0]]
    assert [f"{each.node}.{each.gpu}" for each in placement(plan)] == placed
    assert placed != names[:4]  # Which the slow link is in.


def test_devices_that_name_no_host_are_on_hosts_along_the_levels() -> None:
    names = [f"d{index}" for index in range(6)]
    problem = uneven(names)
    problem["cluster"] |= {"hosts": ["x", "y", "z"]}
    plan = nest.solve(problem)
    assert plan.placement is not None
    along = reduce(pairs(read_graph(problem["cluster"]["topology"]))).names
    seats = {name: ("xyz"[place // 2], place % 2) for place, name in enumerate(along)}
    placed = [seats[stage[0]] for stage in plan.placement.replicas[0]]
    assert [(each.node, each.gpu) for each in placement(plan)] == placed
