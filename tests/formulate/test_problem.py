"""What reading a problem says: contradictions, and degrees that a sequence length rules out."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.errors import InputError
from tests.test_any_problem import DESCRIBED

OPEN = {key: value for key, value in DESCRIBED.items() if key not in ("constraints", "fixed")}


def asked(place: str, listed: Any, **fixed: Any) -> dict[str, Any]:
    section, name = place.split(".")
    problem = copy.deepcopy(OPEN)
    problem.setdefault(section, {})[name] = listed
    return {**problem, "fixed": fixed}


CONTRADICTIONS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("strategies.tp", [1, 2], {"tp": 4}, "fixed.tp is 4, but strategies.tp allows 1, 2 only"),
    ("strategies.sp", [False], {"sp": True}, "fixed.sp is true, but strategies.sp allows false only"),
    ("strategies.sp", [True], {"sp": False}, "fixed.sp is false, but strategies.sp allows true only"),
    ("strategies.ep", [2], {"ep": 1}, "fixed.ep is 1, but strategies.ep allows 2 only"),
    ("search.zero", [0, 1], {"zero": 3}, "fixed.zero is 3, but search.zero allows 0, 1 only"),
    ("search.zero_degree", [2], {"zero_degree": 4}, "fixed.zero_degree is 4, but search.zero_degree allows 2 only"),
    ("search.zero_degree", ["all"], {"zero_degree": 4}, "fixed.zero_degree is 4, but search.zero_degree allows all"),
    ("search.recompute", ["none"], {"recompute": "full"}, "fixed.recompute is full, but search.recompute allows none"),
    ("search.rank_order", ["pp-inner"], {"rank_order": "dp-inner"}, "fixed.rank_order is dp-inner, but search.rank_"),
    ("training.micro_batch", [1, 2], {"micro_batch": 4}, "fixed.micro_batch is 4, but training.micro_batch allows 1"),
    ("training.schedule", ["1f1b"], {"schedule": "gpipe"}, "fixed.schedule is gpipe, but training.schedule allows 1f1"),
    ("training.schedule", ["1f1b"], {"chunks": 2}, "fixed.chunks is 2, but training.schedule allows 1f1b only"),
    ("training.schedule", ["interleaved"], {"chunks": 1}, "fixed.chunks is 1, but training.schedule allows interl"),
]


@pytest.mark.parametrize(("place", "listed", "fixed", "told"), CONTRADICTIONS, ids=lambda each: str(each)[:30])
def test_both_places_are_told(tmp_path: Path, place: str, listed: Any, fixed: dict[str, Any], told: str) -> None:
    problem = asked(place, listed, **fixed)
    with pytest.raises(InputError) as refused:
        nest.solve(problem)
    assert str(refused.value).startswith(told)
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem, indent=1))
    lines = path.read_text().splitlines()
    section, name = place.split(".")
    decided = lines.index(' "fixed": {') + 2
    other = next(n for n, line in enumerate(lines, 1) if f'"{name}":' in line and n > lines.index(f' "{section}": {{'))
    with pytest.raises(InputError) as refused:
        nest.solve(path)
    assert str(refused.value).startswith(f"{path}:{decided}: fixed.")
    assert f"but {place} (line {other}) allows" in str(refused.value)


def test_chunks_contradict_the_schedule_that_is_fixed() -> None:
    problem = asked("training.schedule", ["gpipe", "interleaved"], schedule="gpipe", chunks=2)
    with pytest.raises(InputError, match=r"^fixed\.chunks is 2, but fixed\.schedule allows gpipe only"):
        nest.solve(problem)


def test_what_is_wrong_otherwise_is_told_too() -> None:
    problem = {**asked("search.zero", [0], zero=1), "constraints": ["ppp == 1"], "costs": "rofline"}
    with pytest.raises(InputError) as refused:
        nest.solve(problem)
    assert [told in str(refused.value) for told in ("search.zero allows", "'ppp'", "'rofline'")] == [True] * 3


def test_what_is_no_value_at_all_is_told_as_that() -> None:
    with pytest.raises(InputError, match=r"no schedule called '1f1c'\. Did you mean '1f1b'"):
        nest.solve(asked("training.schedule", ["1f1b"], schedule="1f1c"))


def problem(length: int, **sections: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}},
        "training": {"global_batch": 8, "sequence_length": length},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
        **sections,
    }
