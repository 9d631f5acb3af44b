"""`nest calibrate devices` from files to devices, and what it says of files it cannot use."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from calibrate_tests.synthetic import MULTI_HEAD, on, problem, run, write
from nest.catalogue import published_devices
from nest.io import read, unstructure
from nest.spec import DeviceSpec
from nest.spec.device import ENGINES
from nest_calibrate.entries import device_text
from tests.command_line import Caller

SMALL = problem(MULTI_HEAD, dp=32, zero=1, batch=32, sequence=128)
LARGE = problem(MULTI_HEAD, tp=2, dp=16, batch=32, sequence=2048)
LAUNCH = {"nest": 1, "measurement": "operator", "kind": "launch", "precision": "bf16", "seconds": 2e-5}
H100 = published_devices()["h100-sxm"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    lines = [run(SMALL, 0.02, family="a", group="mine"), run(LARGE, 0.04, family="b", group="theirs")]
    return write(tmp_path / "own.jsonl", lines)


@pytest.mark.longer
def test_it_prints_errors_by_group_and_writes_the_device(call: Caller, runs: Path) -> None:
    code, out, err = call("calibrate", "devices", runs, "--folds", 2, "--output", runs.parent)
    assert code == 0
    assert err.startswith("nest: warning: hopper: these measurements do not determine ")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["mine", "theirs", "all"]
    written = read(runs.parent / "h100-sxm.toml", DeviceSpec)
    assert written.peak == H100.peak
    assert "own.jsonl" in written.sources[-1]
    assert sorted(each.name for each in runs.parent.iterdir()) == ["h100-sxm.toml", "own.jsonl"]


@pytest.mark.longer
def test_json_says_the_same_as_the_table_and_the_file_of_the_generation(call: Caller, runs: Path) -> None:
    code, out, _ = call("calibrate", "devices", runs, "--folds", 2, "--json", "--generations", "--output", runs.parent)
    found = json.loads(out)
    assert code == 0
    assert [row["group"] for row in found["errors"]] == ["mine", "theirs", "all"]
    assert set(found["errors"][0]) == {"group", "count", "before", "after", "cross_validated"}
    (fitted,) = found["calibrations"]
    assert (fitted["name"], fitted["devices"]) == ("hopper", ["h100-sxm"])
    text = (runs.parent / "hopper.toml").read_text()
    assert all(f"{name} = {value!r}" in text for name, value in fitted["coefficients"].items())
    assert not (runs.parent / "h100-sxm.toml").exists()


def test_names_of_devices_lead_to_no_other_folder(call: Caller, tmp_path: Path) -> None:
    own = evolve(H100, name="../up/H100 80GB", generation="")
    path = write(tmp_path / "own.jsonl", [run(on(SMALL, own), 0.02)])
    (tmp_path / "out").mkdir()
    assert call("calibrate", "devices", path, "--output", tmp_path / "out")[0] == 0
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["up-H100-80GB.toml"]
    assert read(tmp_path / "out" / "up-H100-80GB.toml", DeviceSpec).name == own.name


NOTHING = {"extra": [0], "first": [0], "more": [0], "peak": [0]}
ALONE = {"name": "c", "width": 1, "samples": 1, "forward": [1.0], "backward": [2.0], "recompute": {"none": NOTHING}}
PROFILED: dict[str, Any] = {
    "nest": 1,
    "profile": {"layers": ["a"], "edges": [], "candidates": [{**ALONE, "state": {}, "edge_bytes": []}]},
    "training": {"global_batch": 8},
    "cluster": {"memory": 1e9, "levels": [{"fanout": 8, "bandwidth": 1e9}]},
    "fixed": {"pp": 1},
}

BAD: dict[str, tuple[list[Any], tuple[str, ...], str]] = {
    "operators without their device": ([LAUNCH], (), "--device is missing"),
    "an unknown device": (
        [LAUNCH],
        ("--device", "h100-smx"),
        "--device: there is no device called 'h100-smx'. Did you mean 'h100-sxm'?",
    ),
    "a device file that is not there": ([LAUNCH], ("--device", "mine.toml"), "--device: there is no file 'mine.toml'"),
    "one fold": ([run(SMALL, 0.02)], ("--folds", "1"), "--folds"),
    "no folder to write to": ([run(SMALL, 0.02)], ("--output", "absent"), "--output absent: there is no such folder"),
    "no measurement": ([{"nest": 1}], (), "bad.jsonl:1: measurement is missing"),
    "a run without a time": ([run(SMALL, 0.02), {"problem": SMALL}], (), "bad.jsonl:2: measured is missing"),
    "a time of nothing": ([run(SMALL, 0.0)], (), "bad.jsonl:1: measured.batch_time must be above 0"),
    "a plan that is none": ([run({**SMALL, "fixed": {"tp": 3}}, 0.2, id="odd one")], (), "bad.jsonl:1: "),
    "a plan that does not add up": (
        [run(SMALL, 0.02), run({**SMALL, "fixed": {"tp": 2, "dp": 32}}, 0.2)],
        (),
        "bad.jsonl:2: ",
    ),
    "a device with several engines": (
        [run(on(SMALL, evolve(H100, name="odd", engines=ENGINES)), 0.2, id="odd")],
        (),
        "bad.jsonl:1: cluster.device: 'odd' has several engines",
    ),
    "a profile": ([run(PROFILED, 0.2)], (), "bad.jsonl:1: profile: calibration needs runs of a `model`"),
    "an unknown device in a run": (
        [run({**SMALL, "cluster": {**SMALL["cluster"], "device": "h100"}}, 0.2)],
        (),
        "bad.jsonl:1: cluster.device: ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_a_sentence_or_two(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    lines, arguments, told = BAD[case]
    path = write(tmp_path / "bad.jsonl", lines)
    monkeypatch.chdir(tmp_path)
    output = () if "--output" in arguments else ("--output", tmp_path)
    code, out, err = call("calibrate", "devices", path, *output, *arguments)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert "Traceback" not in err
    assert [each.name for each in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "bad.jsonl: there is no such file"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ('{"nest": 1\n', "bad.jsonl:1: this is not JSON"),
        (json.dumps(LAUNCH) + "\nseconds 7\n", "bad.jsonl:2: this is not JSON"),
        ("[1, 2]\n", "bad.jsonl:1: "),
        ("7\n", "bad.jsonl:1: "),
        (json.dumps(LAUNCH).replace("2e-05", "NaN") + "\n", "bad.jsonl:1: "),
        ("\x00\x01", "bad.jsonl"),
    ],
)
def test_files_that_are_none_are_told(call: Caller, tmp_path: Path, content: str | None, told: str) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    code, out, err = call("calibrate", "devices", path, "--device", "h100-sxm")
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_a_device_may_be_told_by_a_file_of_figures(call: Caller, tmp_path: Path) -> None:
    own = evolve(H100, name="own", generation="")
    for name, text in (("own.toml", device_text(own)), ("own.json", json.dumps(unstructure(own)))):
        (tmp_path / name).write_text(text)
        path = write(tmp_path / "operators.jsonl", [LAUNCH])
        code, out, _ = call("calibrate", "devices", path, "--device", tmp_path / name, "--json")
        assert code == 0
        assert json.loads(out)["calibrations"][0]["devices"] == ["own"]
