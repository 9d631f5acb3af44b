"""What plug-ins may return, member by member, and what their calls leave behind."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from attrs import evolve

from nest.errors import InputError
from nest.graph import Axis, Block, Operator, OperatorGraph, Tensor
from nest.graph.sharded_graph import COPIES
from nest.hooks.calls import CALL_LIMIT, LONGEST, SECONDS, call_limit
from nest.hooks.graph_results import sound_network, sound_ranks
from nest.hooks.kinds import InvalidResult
from nest.hooks.planning import Assessment, whole_options
from nest.hooks.process_state import process_state_restored
from nest.hooks.results import check_of, files_by_name, sound_proposal
from nest.instance.pairs import Pairs
from planners_tests.instances import planned, problem


def taken(kind: str, member: str, result: Any, *arguments: Any) -> bool:
    try:
        check_of(kind, "mine", member)(result, *arguments)
    except InvalidResult:
        return False
    return True


@pytest.mark.parametrize(
    ("weights", "sound"), [((8.0, 3.0), True), ((8.0, 0.0), True), ((7.0, 0.5), False), ((7.9, 0.0), False)]
)
def test_a_schedule_runs_as_many_micro_batches_as_there_are(weights: tuple[float, float], sound: bool) -> None:
    assert taken("schedules", "weights", weights, 8, 4) is sound


@pytest.mark.parametrize(("copies", "sound"), [(0, False), (1, True), (2, True), (3, False), (True, False)])
def test_a_stage_holds_one_or_two_copies_of_its_weights(copies: int, sound: bool) -> None:
    assert taken("schedules", "copies", copies) is sound


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/up", "C:\\up", "a\\..\\up", "", ".."])
def test_files_stay_in_their_folder(name: str) -> None:
    assert files_by_name({"a/b.sh": "text"}) == {"a/b.sh": "text"}
    with pytest.raises(InvalidResult):
        files_by_name({name: "text"})


def test_pairs_are_alike_in_both_directions() -> None:
    even, odd = (numpy.array([[0.0, 1.0], [other, 0.0]]) for other in (1.0, 2.0))
    fast, uneven = (numpy.array([[numpy.inf, 1e9], [other, numpy.inf]]) for other in (1e9, 2e9))
    assert sound_network(Pairs(("a", "b"), fast.copy(), even.copy()))
    for bandwidth, latency in ((uneven, even), (fast, odd)):
        with pytest.raises(InvalidResult, match="differ in the two directions"):
            sound_network(Pairs(("a", "b"), bandwidth.copy(), latency.copy()))


def test_only_copies_on_further_devices_bring_samples() -> None:
    tensor = Tensor("x", (("batch", 4), ("sequence", 8)))
    graph = OperatorGraph((Operator("a/norm", "a", "norm", inputs=(tensor,)),), ("a",))
    before = Block(graph, 4).with_axis("tp", 2)
    copied = evolve(before.with_axis(COPIES, 2), samples=8).applied("mine", 2, graph)
    sound_ranks(copied, "mine", before, 2)
    without_copies = evolve(before.with_axis("mine", 2), samples=8).applied("mine", 2, graph)
    in_place_of_others = evolve(before, axes=(Axis(COPIES, 2),), samples=8).applied("mine", 2, graph)
    for block in (without_copies, in_place_of_others):
        with pytest.raises(InvalidResult, match="the block takes 8 samples in place of 4"):
            sound_ranks(block, "mine", before, 2)


def test_a_planner_names_layers_that_there_are() -> None:
    instance, proposal, _ = planned("manual", problem(1e12))
    assert sound_proposal(proposal, instance) == proposal
    *stages, last = proposal.solution.stages
    beyond = evolve(last, layers=(*last.layers, len(instance.graph.layers)))
    with pytest.raises(InvalidResult, match="a stage names layer 8, and there are 8"):
        sound_proposal(evolve(proposal, solution=evolve(proposal.solution, stages=(*stages, beyond))), instance)


def test_what_is_missing_is_told_of_the_fullest_stage() -> None:
    stages = [SimpleNamespace(memory=memory) for memory in (1.0, 5.0, 3.0)]
    priced: Any = SimpleNamespace(admitted=False, stages=stages, capacity=2.0)
    assert Assessment((), priced).missing == 3.0
    priced.admitted = True
    assert Assessment((), priced).missing == 0.0


@pytest.mark.parametrize(("written", "option"), [("1", 1), ("7", 7), ("0", None), ("-1", None), ("x", None)])
def test_options_of_planners_begin_with_the_least(written: str, option: int | None) -> None:
    if option is not None:
        assert whole_options("mine", {"steps": written}, {"steps": 1}) == {"steps": option}
    else:
        with pytest.raises(InputError, match="it is a whole number from 1"):
            whole_options("mine", {"steps": written}, {"steps": 1})


@pytest.mark.parametrize(("written", "seconds"), [(None, CALL_LIMIT), ("", CALL_LIMIT), ("0.5", 0.5), ("1e9", LONGEST)])
def test_the_environment_says_how_long_a_call_may_take(
    monkeypatch: pytest.MonkeyPatch, written: str | None, seconds: float
) -> None:
    monkeypatch.delenv(SECONDS, raising=False)
    if written is not None:
        monkeypatch.setenv(SECONDS, written)
    assert call_limit() == seconds


@pytest.mark.parametrize("written", ["0", "-1", "soon", "inf", "nan"])
def test_no_other_time_is_a_limit(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(SECONDS, written)
    with pytest.raises(InputError, match="must be a positive number of seconds"):
        call_limit()


def test_a_call_leaves_folder_and_streams_and_lowers_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    depth, stream = sys.getrecursionlimit(), sys.stdout
    with process_state_restored():
        monkeypatch.chdir(tmp_path / "other")
        sys.stdout = sys.stderr
        sys.setrecursionlimit(depth - 1)
    assert (Path.cwd(), sys.stdout, sys.getrecursionlimit()) == (tmp_path, stream, depth)
    with process_state_restored():
        sys.setrecursionlimit(depth + 1)
    raised = sys.getrecursionlimit()
    sys.setrecursionlimit(depth)
    assert raised == depth + 1
