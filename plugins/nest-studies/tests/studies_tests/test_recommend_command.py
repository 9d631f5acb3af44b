"""`nest recommend`."""

import json
from pathlib import Path

import pytest

from tests.command_line import Caller

OWN = ("--cluster", "the problem's")
PROBLEM = {
    "nest": 1,
    "model": "gpt2",
    "cluster": {
        "device": "a100-sxm-80g",
        "levels": [{"fanout": 2, "link": "nvlink3"}, {"fanout": 2, "link": "infiniband-hdr"}],
    },
    "training": {"global_batch": 8, "sequence_length": 1024, "stack": "none", "schedule": ["1f1b"], "micro_batch": [1]},
    "search": {"target": "none", "recompute": ["none"], "zero": [0]},
    "strategies": {"tp": [1], "cp": [1], "sp": [1]},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


@pytest.mark.longer
def test_a_deadline_that_is_met(file: Path, call: Caller) -> None:
    code, out, _ = call("recommend", file, "--tokens", "1B", "--within", "30d", *OWN)
    assert code == 0
    lines = out.splitlines()
    assert lines[2].startswith("the problem's  fewest, cheapest  1 of 2")
    assert "cost" not in lines[0]
    assert max(map(len, lines[:3])) <= 100


@pytest.mark.longer
def test_one_that_is_not_names_the_nearest(file: Path, call: Caller) -> None:
    code, out, _ = call("recommend", file, "--tokens", "1T", "--within", "1h", *OWN, "--json")
    assert code == 1
    told = json.loads(out)
    assert (told["met"], told["nearest"]) == (False, "the problem's")
    (cluster,) = told["clusters"]
    assert cluster["fewest"] is None
    assert cluster["nearest"]["plan"]["status"] == "optimal"
    assert cluster["nearest"]["low"] < cluster["nearest"]["time"] < cluster["nearest"]["high"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs --within"),
        (("--within", "soon"), "must be a time"),
        (("--within", "30d", "--budget", "much", "--tokens", "1B"), "must be a whole number"),
        (("--within", "30d"), "tokens is missing"),
        (("--nodes", "3"), "not a file of `nest recommend --curve`"),
        (("--within", "30d", "--output", "plan.json"), "need --nodes"),
    ],
)
def test_slips_are_told(file: Path, words: tuple[str, ...], said: str, call: Caller) -> None:
    code, _, err = call("recommend", file, *words)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["1"], 1, "no plan on 1 nodes"),
        (["2"], 2, "those of 1 to 1"),
        (["1", "--cluster", "b"], 2, "no cluster 'b'"),
    ],
)
def test_a_curve_without_such_a_row_is_told(
    options: list[str], code: int, said: str, tmp_path: Path, call: Caller
) -> None:
    path = tmp_path / "plans.jsonl"
    path.write_text('{"cluster": "a", "nodes": 1, "uses": null, "plan": null}\n')
    found, *printed = call("recommend", path, "--nodes", *options)
    assert found == code
    assert said in printed[code - 1]
