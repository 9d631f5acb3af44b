"""Explanations in words: what is said of ends that tests of searches seldom meet."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.report.decisions import difference, whole
from nest.report.text.layout import Screen, columns
from nest_whatif.text.explanation import explanation_section, explanation_text

DECIDED = {
    "tp": ["2"], "cp": ["4"], "sp": ["2"], "micro_batch": ["1"], "pp": ["4"], "replicas": ["1"], "schedule": ["1f1b"],
    "chunks": ["1"], "rank_order": ["pp-inner"], "recompute": ["none"] * 4, "zero": ["1", "1", "0", "0"],
    "zero_degree": ["all"],
}  # fmt: skip
PLAN: dict[str, Any] = {
    "status": "optimal", "plan": "tp 2, cp 4, pp 4, replicas 1, micro-batch 1", "batch_time": 2.0, "loses": None,
    "apart": 0.0, "diagnosis": None, "best_batch_time": 2.0, "best_status": "optimal", "best_diagnosis": None,
    "searched": True, "parts": [], "binding": [], "constraints": [], "alternatives": [], "flips": [], "solves": 3,
    "decided": DECIDED, "best_decided": DECIDED,
}  # fmt: skip
FOUND: dict[str, Any] = {
    "plan": "cp 4, pp 8, replicas 1, micro-batch 1",
    "batch_time": 2.1,
    "relative": 0.05,
    "changes": [],
    "reason": "the pipeline bubble takes 5.00% of the step time more",
    "refusal": None,
    "proved": True,
    "decided": {**DECIDED, "tp": ["1"], "sp": ["1"], "pp": ["8"]},
    "grown": {"compute": -0.0125, "bubble": 0.0625},
}
NONE: dict[str, Any] = {
    **FOUND, "plan": None, "batch_time": None, "relative": None, "reason": None, "decided": {}, "grown": {},
}  # fmt: skip
EQUAL: dict[str, Any] = {"reason": None, "relative": 0.0}


def cells(text: str) -> list[list[str]]:
    """The lines of the last section: cells of tables, and sentences."""
    lines = text.rpartition("\n\n")[2] if text.count("\n\n") == 1 else "\n".join(text.split("\n\n")[1:])
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines.splitlines()]


def alternative(**told: Any) -> dict[str, Any]:
    return {"decision": "tp", "value": "2", "asked": "tp != 2", "instead": "1", **FOUND, **told}


def alternatives(*found: dict[str, Any], **plan: Any) -> list[list[str]]:
    return cells(explanation_text({**PLAN, "parts": ["alternatives"], "alternatives": list(found), **plan}))


@pytest.mark.parametrize(
    ("status", "searched", "begin"),
    [
        ("optimal", True, "Optimal plan: "),
        ("near-optimal", True, "Near-optimal plan: "),
        ("feasible", True, "Best plan found: "),
        ("feasible", False, "Plan as given: "),
    ],
)
def test_a_headline_says_what_is_proved(status: str, searched: bool, begin: str) -> None:
    answer = {"status": status, "searched": searched, "decided": {"pp": ["2"]}, "batch_time": 2.0}
    assert explanation_section(answer, "plan") == f"{begin}pp 2; 2 s per step"


@pytest.mark.parametrize(
    ("rival", "told"),
    [(None, "Another plan"), ("pp 2, replicas 1, micro-batch 1", "The runner-up (pp 2, replicas 1, micro-batch 1)")],
)
def test_what_takes_the_lead_where_bandwidth_is_missing(rival: str | None, told: str) -> None:
    loses = {"to": rival, "less": 0.1, "bandwidths": ["bandwidth of node", "bandwidth of rack"]}
    text = explanation_text({**PLAN, "loses": loses})
    assert f"{told} wins if the bandwidth of node or the bandwidth of rack is 10 % lower." in text


def flip(**told: Any) -> dict[str, Any]:
    return {
        "parameter": "bandwidth of rack", "unit": "bytes/s", "value": 50e9, "direction": "less", "same_at": 40e9,
        "changed_at": 39.8e9, "kept": 0.001, "same_kept": 0.0, "outcome": FOUND, "proved": True, "precise": True,
        **told,
    }  # fmt: skip


ADJUSTED = "Adjusted: only layers, recomputation or ZeRO of some stages change."


def flips(*found: dict[str, Any], **plan: Any) -> list[list[str]]:
    return cells(explanation_text({**PLAN, "parts": ["flips"], "flips": list(found), **plan}))


def price(**told: Any) -> dict[str, Any]:
    return {"place": "constraints[0]", "written": "pp == 1", "instead": "", "costs": True, **FOUND, **told}


def prices(*found: dict[str, Any], **plan: Any) -> list[list[str]]:
    return cells(explanation_text({**PLAN, "parts": ["constraints"], "constraints": list(found), **plan}))


def test_a_plan_is_told_with_all_it_decides_in_the_usual_order() -> None:
    assert whole(DECIDED) == (
        "tp 2, cp 4, pp 4, 1 replica, micro-batch 1, schedule 1f1b, rank order pp-inner, recompute none, ZeRO 0-1"
    )


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"tp": ["4"], "sp": ["4"], "replicas": ["2"]}, "tp 4, 2 replicas"),
        ({"sp": ["1"]}, "sp 1"),
        ({"tp": ["4"]}, "tp 4, sp 2"),
        ({"ep": ["8"]}, "ep 8"),
        ({"zero": ["1", "0", "0", "0"], "pp": ["2"]}, "pp 2"),
        ({"zero": ["0", "0", "1", "1"]}, "ZeRO 0-1 on other stages"),
        ({"zero": ["0", "3", "3", "3"]}, "ZeRO 0 and 3"),
        ({"recompute": ["none", "full", "none", "none"]}, "recompute none, full on 1 of 4 stages"),
        (
            {"recompute": ["full", "full", "none", "selective"]},
            "recompute full, none on 1 and selective on 1 of 4 stages",
        ),
        ({"zero_degree": ["8"], "chunks": ["2"]}, "2 chunks, shard groups of 8"),
        ({"tp": ["2", "4", "4", "2"]}, "tp 2/4, sp 2"),
        ({}, "the same decisions"),
    ],
)
def test_of_another_plan_is_told_what_differs_and_consequences_once(now: dict[str, list[str]], told: str) -> None:
    if told == "tp 4, sp 2":  # Here sp is no consequence of tp.
        now, before = {"tp": ["4"], "sp": ["2"]}, {**DECIDED, "sp": ["1"]}
    elif told == "tp 2/4, sp 2":
        before = {**DECIDED, "sp": ["1"]}
    else:
        before = DECIDED
    assert difference(before, {**DECIDED, **now}) == told


def test_alternatives_that_are_one_plan_are_one_row_and_the_closest_comes_first() -> None:
    bubble = "bubble 6.2 % more, compute 1.2 % less"
    _, header, _, *rows = alternatives(
        alternative(),
        alternative(decision="sp"),
        alternative(decision="pp", value="4", instead="8"),
        alternative(decision="zero", value="0", instead="1", **EQUAL, decided={**DECIDED, "zero": ["1"] * 4}),
    )
    assert header == ["instead", "step time", "with", "because"]
    assert rows == [["ZeRO 1", "as fast", "-"], ["tp 1, pp 8", "5.0 % slower", "-", bubble]]


@pytest.mark.parametrize(
    ("told", "row"),
    [
        ({}, ["tp 1", "5.0 % slower", "pp 8", "bubble 6.2 % more, compute 1.2 % less"]),
        (EQUAL, ["tp 1", "as fast", "pp 8"]),
        ({"relative": 1e-6}, ["tp 1", "under 0.01 % slower", "pp 8", "bubble 6.2 % more, compute 1.2 % less"]),
        ({"relative": -1e-6}, ["under 0.01 % faster"]),
        ({"relative": -0.0125}, ["1.2 % faster"]),
        ({"proved": False}, ["at most 5.0 % slower", "At most: search stopped early."]),
        ({**NONE, "refusal": "Memory is tightest."}, ["No plan without tp 2: Memory is tightest."]),
        ({**NONE, "asked": "", "refusal": "fixed.tp decides it"}, ["No alternative to tp 2: fixed.tp decides it"]),
    ],
)
def test_alternatives(told: dict[str, Any], row: list[str]) -> None:
    found = [cell for line in alternatives(alternative(**told)) for cell in line]
    assert [cell for cell in found if cell in row] == row


def test_what_is_refused_for_one_reason_is_told_once() -> None:
    refused = {**NONE, "asked": "", "refusal": "the problem offers nothing else"}
    *_, line = alternatives(alternative(**refused), alternative(**refused, decision="schedule", value="1f1b"))
    assert line == ["No alternative to tp 2 or schedule 1f1b: the problem offers nothing else"]


@pytest.mark.parametrize(
    ("told", "row"),
    [
        ({}, ["bandwidth of rack", "50 GB/s", "< 40 GB/s", "0.8x", "tp 1, pp 8", "2.10 s"]),
        (
            {"direction": "more", "same_at": 100e9, "changed_at": 100.5e9, "proved": False},
            ["bandwidth of rack", "50 GB/s", "> 100 GB/s", "2x", "tp 1, pp 8*", "2.10 s", "* search stopped early"],
        ),
        (
            {"changed_at": 20e9, "precise": False},
            [
                "bandwidth of rack", "50 GB/s", "40 GB/s to 20 GB/s", "0.8x", "tp 1, pp 8", "2.10 s",
                "Two values bracket the change: the search between them was stopped.",
            ],
        ),
        (
            {"changed_at": None, "outcome": None, "proved": False},
            ["No change: bandwidth of rack down to 40 GB/s (0.8x) (search stopped early)"],
        ),
        (
            {"parameter": "memory", "unit": "bytes", "value": 2**36, "same_at": 2**35, "changed_at": 2**35 * (1 - 1e-6),
             "kept": None},
            ["memory", "64 GiB", "< 32 GiB", "0.5x", "tp 1, pp 8; today's plan no longer fits", "2.10 s"],
        ),
        (
            {"parameter": "memory", "unit": "bytes", "value": 2**36, "same_at": 2**35, "changed_at": 2**35 * (1 - 1e-6),
             "kept": None, "outcome": NONE},
            ["memory", "64 GiB", "< 32 GiB", "0.5x", "no plan fits"],
        ),
        (
            {"same_kept": 0.19},
            ["bandwidth of rack", "50 GB/s", "< 40 GB/s, adjusted", "0.8x", "tp 1, pp 8", "2.10 s", ADJUSTED],
        ),
        (
            {"same_kept": None, "changed_at": None, "outcome": None},
            [ADJUSTED, "No change: bandwidth of rack down to 40 GB/s (0.8x, adjusted)"],
        ),
        (
            {"parameter": "global batch", "unit": "samples", "value": 64, "same_at": 64, "changed_at": 32},
            ["global batch", "64 samples", "32 samples", "0.5x", "tp 1, pp 8", "2.10 s"],
        ),
    ],
)  # fmt: skip
def test_flips(told: dict[str, Any], row: list[str]) -> None:
    found = [cell for line in flips(flip(**told))[1:] for cell in line]
    skipped = 6 + 6 if flip(**told)["changed_at"] else 0  # Header and line.
    assert found[skipped:] == row


def test_flips_where_there_is_no_plan_say_with_how_much_there_is_one() -> None:
    memory = {"parameter": "memory", "unit": "bytes", "value": 2**35, "direction": "more", "same_at": 2**36 - 2**15}
    lines = flips(flip(**memory, changed_at=2**36, kept=None), best_batch_time=None, best_decided={})
    assert lines[-1][:4] == ["memory", "32 GiB", ">= 64 GiB", "2x"]
    assert lines[-1][4].startswith("cp 4, pp 8, 1 replica")


@pytest.mark.parametrize(
    ("told", "row"),
    [
        (
            {"relative": -0.05, "grown": {"recompute": -0.06, "sync": 0.01}},
            ["`pp == 1`", "nothing", "5.0 %", "tp 1, pp 8", "recomputation 6.0 % less, gradient sync 1.0 % more"],
        ),
        ({"relative": -1e-6, "instead": "any"}, ["`pp == 1`", "any", "under 0.01 %", "tp 1, pp 8"]),
        ({"relative": -0.05, "proved": False}, ["at least 5.0 %", "At least: search stopped early."]),
        ({"relative": 0.0, "costs": False}, ["No cost: `pp == 1`"]),
        ({**NONE, "costs": False, "refusal": "Why not."}, ["No plan without `pp == 1`: Why not."]),
    ],
)
def test_prices(told: dict[str, Any], row: list[str]) -> None:
    found = [cell for line in prices(price(**told)) for cell in line]
    assert [cell for cell in found if cell in row] == row


def test_prices_where_there_is_no_plan() -> None:
    there = price(relative=None, reason=None, grown={})
    lines = prices(there, price(**{**NONE, "costs": False}, written="tp == 1"), best_batch_time=None, best_decided={})
    assert ["without", "instead", "plan", "step time"] in lines
    assert any(line[:2] == ["`pp == 1`", "nothing"] and line[2].startswith("cp 4, pp 8") for line in lines)
    assert lines[-1] == ["Lifting one of these alone gives no plan: `tp == 1`"]


def test_a_part_without_anything_says_so() -> None:
    assert explanation_text({**PLAN, "parts": ["constraints"]}).endswith("\nNothing found.")


MEMORY: dict[str, Any] = {
    "name": "memory", "stage": 2, "stages": [2], "upper": 2.0**36, "expected": 2.0**35, "capacity": 2.0**37,
    "free": 2.0**36, "likely": 0.93, "in_flight": 1, "recompute": "none", "parts": {"weights": 2.0**35},
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "stage 2: estimate 32 GiB, upper estimate 64 GiB, of 128 GiB; 64 GiB to spare; 93 % likely to fit"),
        ({"stages": [1, 2]}, "64 GiB to spare; 1 other stage within 1 % of it; 93 % likely to fit"),
        ({"stages": [1, 2, 3]}, "64 GiB to spare; 2 other stages within 1 % of it; 93 % likely to fit"),
        ({"upper": 2.0**35, "likely": None}, "stage 2: estimate 32 GiB of 128 GiB; 64 GiB to spare"),
        ({"free": -(2.0**30)}, "1 GiB too much; 93 % likely to fit"),
        ({}, "parts of the estimate: weights 32 GiB"),
        ({}, "1 micro-batch in flight, recomputation none"),
    ],
)
def test_memory(told: dict[str, Any], line: str) -> None:
    text = explanation_text({**PLAN, "parts": ["binding"], "binding": [{**MEMORY, **told}]})
    assert any(each.endswith(line) for each in text.splitlines())


def words(text: str) -> set[str]:
    """The words of a text, without lines under headers and colons behind names."""
    return {word.strip("-:") for word in text.split()}


@given(st.integers(30, 200))
def test_nothing_is_lost_and_no_line_is_too_long_on_a_narrow_terminal(width: int) -> None:
    told = {
        **PLAN, "parts": ["binding", "constraints", "alternatives", "flips"], "binding": [MEMORY],
        "constraints": [price(relative=-0.05), price(costs=False)], "alternatives": [alternative()],
        "flips": [flip(), flip(changed_at=None)],
    }  # fmt: skip
    text = explanation_text(told, Screen(width))
    assert max(map(columns, text.splitlines())) <= width
    assert words(explanation_text(told)) - {""} <= words(text)
