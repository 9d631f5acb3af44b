"""Ratios of planners over several problems."""

import pytest

from nest.report.text.layout import Screen
from nest_whatif.text.ratios import ratios_text, ratios_to_ours, total


def entry(relative: float | None, **other: object) -> dict[str, object]:
    known = {"name": "a", "plan": {}, "missing_bytes": 0.0, "within_problem": True, "reasons": [], "remarks": ["seen."]}
    return {**known, "relative": relative, **other}


def ratio(found: dict[str, object]) -> float | str:
    ours = {"batch_time": 2.0, "diagnosis": None}
    return ratios_to_ours({"x": {"plan": ours, "others": [found]}})["a"]["x"]


def test_a_plan_that_counts_has_a_ratio_and_others_a_reason() -> None:
    assert ratio(entry(1.5)) == 1.5
    assert ratio(entry(0.5, missing_bytes=2.0**30)) == "its plan needs 1 GiB too much memory."
    assert ratio(entry(0.5, within_problem=False, reasons=["It mixes."], remarks=[])) == "It mixes."
    assert ratio(entry(None, plan=None, within_problem=False)) == "seen."


def test_problems_without_a_plan_and_planners_of_other_clusters_are_told() -> None:
    none = {"plan": {"batch_time": None, "diagnosis": "too little memory."}, "others": [entry(None, remarks=[])]}
    other = {"plan": {"batch_time": 2.0, "diagnosis": None}, "others": [entry(2.0, name="b")]}
    assert ratios_to_ours({"x": none, "y": other}) == {
        "nest": {"x": "too little memory.", "y": 1.0},
        "a": {"x": "nest has no plan to compare with.", "y": "it does not support this cluster."},
        "b": {"x": "it does not support this cluster.", "y": 2.0},
    }


def test_the_mean_is_geometric_and_of_problems_with_a_plan() -> None:
    assert total({"x": 2.0, "y": 8.0, "z": "none."}) == (pytest.approx(4), 8.0, 1)
    assert total({"x": "none."}) == (None, None, 1)


def test_reasons_that_are_alike_are_told_once() -> None:
    planners = {"nest": {"x": 1.0, "y": 1.0, "z": 1.0}, "a": {"x": "no.", "y": 1.25, "z": "no."}}
    assert ratios_text(planners, Screen(None)).splitlines() == [
        "planner      x      y      z   mean  worst  no plan",
        "-------  -----  -----  -----  -----  -----  -------",
        "nest     1.000  1.000  1.000  1.000  1.000        0",
        "a            -  1.250      -  1.250  1.250        2",
        "",
        "a, x and z: no.",
    ]
