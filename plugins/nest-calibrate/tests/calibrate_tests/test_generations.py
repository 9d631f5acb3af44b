"""From files of runs and operators to calibrated devices."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from calibrate_tests.synthetic import MULTI_HEAD, on, problem, run, seconds, write
from nest import evaluate
from nest.catalogue import calibrations, devices, published_devices
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import read
from nest.spec import Coefficients, DeviceSpec
from nest_calibrate.entries import device_text
from nest_calibrate.generations import Calibrated, calibrate_devices, error_rows

HIDDEN = evolve(
    published_devices()["h100-sxm"],
    efficiency={"matmul": 0.6, "attention": 0.3, "attention.cudnn": 0.45, "memory": 0.8},
    calibration=Coefficients(contracted_half=200.0, rows_half=50.0, host_launch=3e-5, data_exposed=0.3),
)
"""What the runs were really on."""

PLANS = {
    "large": problem(tp=2, dp=16, zero=1, batch=32, sequence=4096),
    "small": problem(MULTI_HEAD, dp=32, zero=1, batch=32, sequence=128),
    "deep": problem(MULTI_HEAD, tp=4, pp=2, dp=4, zero=1, batch=16, sequence=1024),
}


def line(name: str, **rest: Any) -> dict[str, Any]:
    """A measured run of one of the plans."""
    return run(PLANS[name], seconds(on(PLANS[name], HIDDEN)), id=name, family=name, group=name, **rest)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs") / "own.jsonl", [line(name) for name in PLANS])


def calibrated(*files: Path, device: str | None = None, folds: int = 2, prior: str = "published") -> list[Calibrated]:
    return calibrate_devices(files, registry(), device, folds, prior=prior)


@pytest.fixture(scope="module")
def found(runs: Path) -> Calibrated:
    (one,) = calibrated(runs)
    return one


@pytest.mark.longer
def test_predictions_come_closer(found: Calibrated) -> None:
    assert found.calibration.name == "hopper"
    assert [each.name for each in found.devices] == ["h100-sxm"]
    rows = {row.group: row for row in error_rows([found])}
    assert set(rows) == {*PLANS, "all"}
    assert rows["all"].count == 3
    assert rows["all"].after[0] < 0.05 < rows["all"].before[0]


@pytest.mark.longer
def test_before_is_what_the_published_figures_say_and_after_what_the_calibration_does(found: Calibrated) -> None:
    after = found.calibration.on(published_devices()["h100-sxm"])
    for device, told in ((published_devices()["h100-sxm"], found.before), (after, found.after)):
        assert told.tolist() == pytest.approx([seconds(on(each, device)) for each in PLANS.values()], rel=1e-12)


@pytest.mark.longer
def test_begun_at_the_catalogue_before_is_what_evaluate_says(runs: Path) -> None:
    """What somebody gains is told against the predictions she would have had."""
    (one,) = calibrated(runs, prior="catalogue")
    assert one.before.tolist() == pytest.approx([evaluate(each).batch_time for each in PLANS.values()], rel=1e-12)
    assert "by the catalogue" in one.calibration.sources[0]


def test_the_written_device_is_a_device_of_problems(found: Calibrated, tmp_path: Path) -> None:
    """Its path starts at the folder of the problem; plans carry its figures along."""
    device = found.calibration.on(found.devices[0])
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "own.toml").write_text(device_text(device))
    assert read(tmp_path / "machines" / "own.toml", DeviceSpec) == device
    written = PLANS["large"]
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({**written, "cluster": {**written["cluster"], "device": "machines/own.toml"}}))
    plan = evaluate(path)
    assert plan.batch_time == pytest.approx(found.after[0], rel=1e-12)
    assert plan.problem["cluster"]["device"]["calibration"]["rows_half"] == device.calibration.rows_half


@pytest.mark.longer
def test_a_device_beside_the_runs_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Calibrated
) -> None:
    """The working directory is another one."""
    (tmp_path / "own.toml").write_text(device_text(evolve(HIDDEN, name="own", generation="")))
    own = line("small")
    own["problem"] = {**own["problem"], "cluster": {**own["problem"]["cluster"], "device": "./own.toml"}}
    monkeypatch.chdir(Path(__file__).parent)
    (one,) = calibrated(write(tmp_path / "runs.jsonl", [own]))
    assert one.calibration.name == "own"
    assert one.devices == (evolve(HIDDEN, name="own", generation="", calibration=Coefficients()),)


def test_figures_of_ones_own_under_a_known_name_are_not_the_catalogues(tmp_path: Path) -> None:
    own = evolve(published_devices()["h100-sxm"], memory_bandwidth=1e12)  # type: ignore[arg-type]
    (one,) = calibrated(write(tmp_path / "a.jsonl", [run(on(PLANS["small"], own), 0.1)]))
    assert one.devices == (own,)
    both = [run(on(PLANS["small"], own), 0.1), run(PLANS["small"], 0.1)]
    with pytest.raises(InputError, match="'h100-sxm' stands for devices of different figures"):
        calibrated(write(tmp_path / "b.jsonl", both))


@pytest.mark.longer
@pytest.mark.parametrize("seed", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_the_same_files_are_written_whatever_the_hash_seed(
    runs: Path, found: Calibrated, tmp_path: Path, seed: str
) -> None:
    options = ("--folds", "2", "--prior", "published", "--output", str(tmp_path))
    command = [sys.executable, "-m", "nest", "calibrate", "devices", str(runs), *options]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "h100-sxm.toml").read_text() == device_text(found.calibration.on(found.devices[0]))


def operator(kind: str, precision: str = "bf16", **rest: Any) -> dict[str, Any]:
    """A measured operator whose seconds are still to be said."""
    return {"nest": 1, "measurement": "operator", "kind": kind, "precision": precision, **rest}


def product(rows: int, columns: int, contracted: int, precision: str = "bf16") -> dict[str, Any]:
    """By the formula of docs/explanation/cost-model.md, on a device of 0.55 of its peak, 0.4 in 8 bits."""
    device = published_devices()["h100-sxm"]
    peak, share = (device.peak.fp8, 0.4) if precision == "fp8" else (device.peak.bf16, 0.55)
    assert peak is not None
    assert device.peak.bf16 is not None
    # On 132 multiprocessors, 33 tiles of 256 columns and a multiple of 4 of 128 rows leave none idle.
    time = 2 * rows * columns * contracted / peak / share * (1 + 250 * (peak / device.peak.bf16) / contracted)
    shape = {"batch": 1, "rows": rows, "columns": columns, "contracted": contracted}
    return operator("matmul", precision, shape=shape, seconds=time * (1 + 100 / rows))


MICROBENCHMARKS = [
    *(
        product(rows, 33 * 256, contracted, precision)
        for precision in ("bf16", "fp8")
        for rows in (512, 2048, 8192)
        for contracted in (256, 1024, 8192)
    ),
    *(operator("launch", shape={}, seconds=2e-5) for _ in range(3)),
    *(
        operator(kind, shape=shape, bytes=float(size), seconds=size / (0.7 * 3.35e12))
        for size in (10**8, 10**9, 10**10)
        for kind, shape in (("copy", {}), ("norm", {"rows": 8, "width": 8}), ("update", {"parameters": 9}))
    ),
]


@pytest.mark.longer
def test_microbenchmarks_tell_the_shares_they_were_made_with(tmp_path: Path) -> None:
    path = write(
        tmp_path / "operators.jsonl", [{**each, "date": str(day)} for day in range(3) for each in MICROBENCHMARKS]
    )
    (one,) = calibrated(path, device="h100-sxm")
    terms = one.calibration
    assert one.after == pytest.approx(one.measured, rel=0.05)
    assert terms.efficiency["matmul"] == pytest.approx(0.55, rel=0.05)
    assert terms.efficiency["matmul.fp8"] == pytest.approx(0.4, rel=0.1)
    assert terms.efficiency["memory"] == pytest.approx(0.7, rel=0.02)
    assert terms.coefficients.host_launch == pytest.approx(2e-5, rel=0.02)
    assert terms.coefficients.contracted_half == pytest.approx(250, rel=0.2)


@pytest.mark.longer
def test_runs_that_name_no_family_are_of_one_where_they_share_model_device_and_precision(tmp_path: Path) -> None:
    other = {**PLANS["small"], "fixed": {**PLANS["small"]["fixed"], "zero": 0}}
    lines = [run(each, 0.02, id=str(index)) for index, each in enumerate((PLANS["small"], other, PLANS["large"]))]
    (one,) = calibrated(write(tmp_path / "own.jsonl", [*lines, run(PLANS["deep"], 0.02, group="mine")]))
    assert one.families[0] == one.families[1]
    assert len(set(one.families)) == 3
    assert one.families[3] == "mine"


@pytest.mark.longer
def test_operators_and_runs_are_fitted_together(tmp_path: Path) -> None:
    path = write(tmp_path / "both.jsonl", [line("small"), *MICROBENCHMARKS[:3]])
    (one,) = calibrated(path, device="h100-sxm")
    assert one.groups == ("small", "matmul", "matmul", "matmul")
    assert set(one.families) == {"small", "None|matmul|bf16"}


def test_sources_name_files_numbers_and_errors(found: Calibrated) -> None:
    (source,) = found.calibration.sources
    assert source.startswith("nest calibrate devices own.jsonl, begun at published figures: robust least squares")
    assert "3 measurements of 3 families" in source
    assert source in " ".join(found.calibration.on(found.devices[0]).sources)


@pytest.mark.parametrize(
    ("lines", "device", "told"),
    [
        (MICROBENCHMARKS[:1], None, "--device is missing"),
        (MICROBENCHMARKS[:1], "h100-smx", "--device.*h100-smx.*h100-sxm"),
        (MICROBENCHMARKS[:1], "absent.toml", "--device: there is no file"),
        ([{**MICROBENCHMARKS[0], "direction": "backward"}], "h100-sxm", "matmul is backward; measure its two products"),
        ([{**MICROBENCHMARKS[0], "device": name} for name in "ab"], "h100-sxm", "come from a and b; fit one"),
        ([{**MICROBENCHMARKS[0], "precision": "fp16"}], "tpu-v4", "'tpu-v4' has no matrix peak"),
        (
            [{"nest": 1, "measurement": "collective", "kind": "all_reduce", "bytes": 9, "members": 2, "seconds": 1}],
            None,
            "no runs and no operators",
        ),
        ([run({**PLANS["small"], "fixed": {"tp": 3}}, 1.0, id="odd")], None, "own.jsonl:1: "),
        ([run(PLANS["small"], 1.0), run({**PLANS["small"], "fixed": {"tp": 3}}, 1.0)], None, "own.jsonl:2: "),
    ],
)
def test_what_cannot_be_fitted_to_is_told(
    tmp_path: Path, lines: list[Mapping[str, Any]], device: str | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        calibrated(write(tmp_path / "own.jsonl", lines), device=device)


def test_groups_that_are_left_out_have_no_part(runs: Path) -> None:
    (found,) = calibrate_devices([runs], registry(), folds=2, prior="published", without=["deep"])
    assert set(found.groups) == {"large", "small"}
    assert "own.jsonl --without deep, begun at" in found.calibration.sources[0]
    with pytest.raises(InputError, match="--without dep: no run is of this group; groups here: deep, large, small"):
        calibrate_devices([runs], registry(), folds=2, without=["dep"])


@pytest.mark.longer
def test_begun_at_the_catalogue_what_nothing_tells_of_stays_as_it_knows(runs: Path) -> None:
    """These runs are dense, in bf16 and on one device."""
    (found,) = calibrated(runs, prior="catalogue")
    known = calibrations()["hopper"].coefficients
    assert found.calibration.coefficients.cast == known.cast
    assert found.calibration.coefficients.grouped == known.grouped
    assert found.calibration.efficiency["matmul.fp8"] == calibrations()["hopper"].efficiency["matmul.fp8"]
    (published,) = calibrated(runs)
    assert published.calibration.coefficients.cast != known.cast


@pytest.mark.slow
def test_the_catalogues_calibrations_come_from_the_published_runs(shared: Path) -> None:
    """`nest calibrate devices measured.jsonl --prior published --generations` is what wrote them."""
    published = calibrated(shared / "fidelity" / "measured.jsonl", folds=8)
    found = {each.calibration.name: each.calibration for each in published}
    assert found == calibrations()
    assert devices()["h100-sxm"].calibration == found["hopper"].coefficients
