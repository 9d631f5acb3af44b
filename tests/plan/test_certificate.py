"""`M`, `A`, `B` and counts in flight, found anew from the order of a schedule: equal where it is right, else told."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.cli.output import to_json
from nest.hooks.registry import registry
from nest.instance import Instance, OrderedSchedule, Pass, admits, chunks_of, fullest_moments, in_flight
from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, PASSES, Places, places_of
from nest.plan.certificate import MOST, batch_length, certify, is_staggered
from nest.schedules.interleaved import Interleaved
from nest.schedules.one_forward_one_backward import NestBound, OneForwardOneBackward
from nest.simulate.timeline import Message, makespan, run
from tests.command_line import call
from tests.plan.four_layers import four_layers


def ordered(chunks: int = 2) -> list[OrderedSchedule]:
    found = registry().schedules().values()
    return [each.with_chunks(chunks) if hasattr(each, "with_chunks") else each for each in found]  # type: ignore[misc]


@pytest.mark.parametrize(("micro_batches", "stages"), list(product((1, 2, 3, 6, 12, 30), (1, 2, 3, 4, 6))))
def test_built_in_schedules_are_certified(micro_batches: int, stages: int) -> None:
    for schedule in (*ordered(), Interleaved(3)):
        if not admits(schedule, stages, micro_batches):
            continue
        found = certify(schedule, micro_batches, stages)
        assert (found.faults, found.missing) == ((), None), schedule.name
        moments = [fullest_moments(schedule, stage, stages, micro_batches) for stage in range(1, stages + 1)]
        assert found.in_flight == tuple(map(in_flight, moments))


@pytest.mark.longer
def test_passes_take_as_long_as_the_replay_of_another_hand_says() -> None:
    random = Random(1)
    for schedule, stages, rounds in product(ordered(), (1, 2, 4, 6), (1, 2, 3, 4)):
        micro_batches = stages * rounds
        if not admits(schedule, stages, micro_batches):
            continue
        places = places_of(schedule, stages, micro_batches)
        orders = [schedule.order(stage, stages, micro_batches) for stage in range(1, stages + 1)]
        steps = list(product(PASSES, range(chunks_of(schedule))))
        lengths, travel = (
            [{step: random.choice((0.0, random.random())) for step in steps} for _ in orders] for _ in range(2)
        )

        def length(stage: int, step: Pass, lengths: Any = lengths) -> float:
            return float(lengths[stage][step.kind, step.chunk])

        def under_way(message: Message, travel: Any = travel, places: Places = places) -> float:
            gradients, place, _ = message
            stage = places.route[place]
            kind = INPUT_GRADIENTS if gradients else FORWARD
            return float(travel[stage][kind, places.chunks[stage].index(place)])

        staggered = is_staggered(schedule)
        for late, sent in ((None, lambda _: 0.0), (travel, under_way)):
            expected = makespan(run(orders, places, length, sent), staggered)
            assert batch_length(orders, places, lengths, staggered, late) == expected, schedule.name


class Wrong(OneForwardOneBackward):
    """One forward, one backward, that says something else than it does."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        for name, method in methods.items():
            setattr(self, name, method)


FAULTS: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "A too small": ({"weights": lambda m, s: (m - 2.0, 1.0)}, "its order takes 11 (8 micro-batches, 4 stages)"),
    "A too large": ({"weights": lambda m, s: (float(m), 1.0)}, "prices equal stages at 12 times"),
    "B too small": ({"weights": lambda m, s: (m - 1.0, 0.5)}, "prices equal stages at 9 times"),
    "B for A": ({"weights": lambda m, s: (m - 5.0, 2.0)}, "with all its work in one stage at 5 times"),
    "M for s": ({"weights": lambda m, s: (s - 1.0, 1.0)}, "prices equal stages at 7 times"),
    "too few in flight": (
        {"in_flight": lambda i, s, m: max(min(m, s - i), 1)},
        "counts 3 micro-batches in flight in stage 1 of 4, but its order holds 4",
    ),
    "too many in flight": ({"in_flight": lambda i, s, m: min(m, s - i + 2)}, "counts 5 micro-batches in flight"),
    "a pass too few": ({"order": lambda i, s, m: [Pass("forward", 0)]}, "gives stage 1 of 4 an invalid order"),
    "passes that wait": (
        {
            "order": lambda i, s, m: [
                Pass(kind, index if i % 2 else m - 1 - index) for index in range(m) for kind in ("forward", "backward")
            ]
        },
        "orders passes so that stage 1 waits for ever",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_contradicts_the_order_is_told(fault: str) -> None:
    methods, expected = FAULTS[fault]
    found = certify(Wrong(**methods), 8, 4)
    assert any(expected in told for told in found.faults), found.faults


def test_the_bound_of_the_paper_has_the_order_of_one_forward_one_backward() -> None:
    """So `A` and `B` apart cannot be found anew: both schedules are right."""
    bound, exact = certify(NestBound(), 8, 4), certify(OneForwardOneBackward(), 8, 4)
    assert (bound.faults, bound.equal_stages) == ((), exact.equal_stages)


class Silent:
    """A schedule without an order."""

    name = "silent"
    weights, in_flight = OneForwardOneBackward.weights, OneForwardOneBackward.in_flight


def test_what_cannot_be_certified_is_told() -> None:
    silent = certify(Silent(), 8, 4)  # type: ignore[arg-type]
    assert silent.to_dict()["computed"] is False
    assert "states no order of passes" in str(silent.missing)
    large = certify(OneForwardOneBackward(), MOST + 1, 1)
    assert large.faults == ()
    assert f"more than {MOST}" in str(large.missing)


MISTAKES: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "weights": (OneForwardOneBackward, "weights", lambda self, m, s: (m - 1.0, 0.5), "prices equal stages at 9 times"),
    "in flight": (OneForwardOneBackward, "in_flight", lambda self, i, s, m: 1, "counts 1 micro-batches in flight"),
    "micro-batches": (Instance, "micro_batches", lambda self, candidate, replicas: 3, "is given 3 micro-batches"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_solvers_and_pricing_share_is_found(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    owner, member, method, expected = MISTAKES[mistake]
    monkeypatch.setattr(owner, member, method)
    plan = api.solve(four_layers(fixed={"pp": 4, "replicas": 1}))
    assert plan.status == "optimal"  # Who shares the mistake agrees.
    found = api.check(plan).disagreements
    assert any(expected in told for told in found), found


@pytest.mark.longer
def test_check_and_verify_say_what_was_found_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(to_json(api.solve(four_layers(fixed={"pp": 4, "replicas": 1})).to_dict()))
    assert call(monkeypatch, "check", str(path)) == 0
    told = capsys.readouterr().out
    assert "The schedule '1f1b' was simulated: step time and memory agree with the formula." in told
    assert call(monkeypatch, "verify", str(path), "--json") == 0
    certificate = json.loads(capsys.readouterr().out)["certificate"]
    assert certificate == {
        "computed": True,
        "schedule": "1f1b",
        "micro_batches": 8,
        "stages": 4,
        "equal_stages": 11.0,
        "in_flight": [4.0, 3.0, 2.0, 1.0],
    }


def test_a_certificate_that_was_changed_by_hand_is_found() -> None:
    plan = api.solve(four_layers(fixed={"pp": 4, "replicas": 1}), verify=True)
    assert plan.verification is not None
    assert api.check(plan).ok
    changed = {**plan.verification, "certificate": {**plan.verification["certificate"], "equal_stages": 10.0}}
    found = api.check(evolve(plan, verification=changed)).disagreements
    assert found == ("verification.certificate.equal_stages is 10, recomputed 11.",)


def test_a_batch_that_does_not_come_out_even_is_rounded_up() -> None:
    uneven = four_layers(training={"global_batch": 9, "uneven_batch": True}, fixed={"pp": 2, "replicas": 2})
    found = api.check(api.solve(uneven)).certificate
    assert found is not None
    assert (found.micro_batches, found.stages, found.faults) == (5, 2, ())
