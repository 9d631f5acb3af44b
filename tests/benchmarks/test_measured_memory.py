"""Peaks of memory against published ones."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.memory import Peak, peaks, report
from nest.catalogue import devices
from nest.formulate.margin import MEASURED


@pytest.fixture(scope="module")
def published(shared: Path) -> list[Peak]:
    with (shared / "fidelity" / "measured.jsonl").open(encoding="utf-8") as lines:
        return peaks(json.loads(line) for line in lines)


def test_runs_are_met_within_a_tenth(published: list[Peak]) -> None:
    """All together, and each group but the one whose framework keeps more than others (docs/explanation)."""
    groups = defaultdict(list)
    for peak in published:
        groups[peak.group].append(abs(peak.ratio - 1))
    assert fmean(error for errors in groups.values() for error in errors) < 0.07
    assert {name for name, errors in groups.items() if fmean(errors) > 0.10} <= {"nanotron_h100"}
    assert all(fmean(errors) < 0.20 for errors in groups.values())


def test_the_default_margins_cover_every_run_and_little_more(published: list[Peak]) -> None:
    needed: dict[str, float] = {}
    for peak in published:
        needed[peak.generation] = max(needed.get(peak.generation, 0.0), peak.margin)
    margins = {each.generation: each.memory_overheads.margin for each in devices().values() if each.generation}
    for generation, least in needed.items():
        margin = margins[generation]
        assert margin is not None
        assert least <= margin < least + 0.03
    assert max(margin for margin in margins.values() if margin is not None) == MEASURED


def test_a_margin_covers_what_it_was_derived_from() -> None:
    one = Peak("one", "mine", "hopper", predicted=70.0, measured=90.0, reserve=10.0)
    other = Peak("other", "mine", "hopper", predicted=70.0, measured=60.0, reserve=10.0)
    assert one.margin == pytest.approx(1 / 3)
    assert one.reserve + (one.predicted - one.reserve) * (1 + one.margin) == pytest.approx(one.measured)
    assert other.margin < 0
    told = report([one, other]).splitlines()
    assert told[-2] == "the smallest margin that covers all: 0.333 (one)"
    assert told[-1] == "the smallest that covers hopper: 0.333 (one)"
    assert told[1].split() == ["mine", "2", "19.4%", "0.78", "1.17", "0.333"]
