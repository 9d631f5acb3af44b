"""What `nest calibrate` refuses of measurements, and what it calls doubtful of them and of fits to them."""

import json
from collections.abc import Mapping
from math import exp
from pathlib import Path
from typing import Any

import numpy
import pytest
from attrs import evolve

import nest
from calibrate_tests.synthetic import MULTI_HEAD, on, problem, run, seconds, write
from calibrate_tests.test_generations import product
from nest.catalogue import published_devices
from nest.instance import EstimateError
from nest_calibrate.devices import unknowns
from nest_calibrate.fit_doubts import Fitted, at_bounds
from nest_calibrate.lines import TOLD
from nest_calibrate.memory import Verdict, doubt_memory, doubt_memory_figures, fit, left_out
from nest_calibrate.robust_fit import Prior, belief_left, robust_fit
from tests.command_line import Caller

GRAPHS = {"graphs": "iteration"}
SMALL = problem(MULTI_HEAD, dp=32, zero=1, batch=32, sequence=128, training=GRAPHS)
LARGE = problem(MULTI_HEAD, tp=2, dp=16, zero=1, batch=32, sequence=4096, training=GRAPHS)
H100 = published_devices()["h100-sxm"]
COLLECTIVE = {"nest": 1, "measurement": "collective", "kind": "all_gather", "members": 4, "link": "nvlink4"}
"""Without its bytes and seconds."""


def gathers(slower: float = 1.0) -> list[dict[str, Any]]:
    """All-gathers as the catalogue predicts them or `slower`, roughly."""
    sizes = [2**power for power in range(10, 30)]
    return [COLLECTIVE | {"bytes": size, "seconds": slower * (1e-5 + size * 0.75 / 360e9)} for size in sizes]


def told(call: Caller, kind: str, path: Path, *more: str) -> tuple[int, list[str]]:
    """The exit code of `nest calibrate KIND`, and the lines on standard error."""
    code, out, err = call("calibrate", kind, str(path), *more)
    if "--json" in more and code == 0:
        assert [f"nest: warning: {each}" for each in json.loads(out)["warnings"]] == err.splitlines()
    return code, err.splitlines()


def lines(kind: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Measurements that there is nothing wrong with, and how they are calibrated to."""
    if kind == "collectives":
        return gathers(), ()
    if kind == "operators":
        return [product(rows, 8448, 1024) for rows in (512, 2048, 8192)], ("--device", "h100-sxm")
    problems = enumerate((SMALL, LARGE, {**SMALL, "fixed": {**SMALL["fixed"], "zero": 2}}))
    named = [run(each, 1.2 * seconds(each), id=str(at), family=str(at), group=str(at % 2)) for at, each in problems]
    return named, ("--folds", "2") if kind == "devices" else ()


def command_of(kind: str) -> str:
    return "devices" if kind == "operators" else kind


def changed(kind: str, line: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The line with its time multiplied; of a run that is calibrated to for its memory, its peak."""
    if kind in ("collectives", "operators"):
        return {**line, "seconds": factor * line["seconds"]}
    if kind == "memory":
        plan = nest.evaluate(line["problem"])
        return {**line, "measured": {**line["measured"], "peak_memory": factor * plan.stages[0].memory}}
    return {**line, "measured": {**line["measured"], "batch_time": factor * line["measured"]["batch_time"]}}


DOORS = ("collectives", "operators", "devices", "cluster", "memory")


@pytest.mark.parametrize(
    ("kind", "factor", "unit"),
    [
        *((kind, 1e3, '"') for kind in DOORS[:4]),
        ("operators", 1e6, ' us"'),
        ("operators", 1 / 3600, ' h"'),
        *(("memory", factor, unit) for factor, unit in ((2.0**-30, ' GiB"'), (2.0**-20, ' MiB"'))),
    ],
)
def test_figures_in_another_unit_are_refused_with_their_line_and_what_to_write(
    tmp_path: Path, call: Caller, kind: str, factor: float, unit: str
) -> None:
    """As if each unit had been written without its name."""
    good, options = lines(kind)
    path = write(tmp_path / "own.jsonl", [*good[:-1], changed(kind, good[-1], factor)])
    code, err = told(call, command_of(kind), path, *options)
    assert code == 2
    (sentence,) = err
    assert sentence.startswith(f"nest: {path}:{len(good)}: ")
    assert "Numbers are in SI units; if it is in " in sentence
    assert f"{unit}." in sentence
    if kind in ("devices", "cluster"):
        return  # What is to be written is as of operators, which take less time.
    written = sentence.rsplit('write "', 1)[1].split('"')[0]
    fixed = changed(kind, good[-1], 1.0)
    if kind == "memory":
        fixed["measured"]["peak_memory"] = written
    else:
        fixed["seconds"] = written
    write(path, [*good[:-1], fixed])
    assert told(call, command_of(kind), path, *options)[0] == 0


@pytest.mark.parametrize("kind", DOORS[:4])
def test_nothing_is_faster_than_the_peak_or_the_link(tmp_path: Path, call: Caller, kind: str) -> None:
    """A utilisation above 1 that is no slip of a unit."""
    good, options = lines(kind)
    # The largest of operators and collectives come near their roof, the longest run to a fifth of it.
    longest = 1 if kind in ("devices", "cluster") else len(good) - 1
    fast = [*good[:longest], changed(kind, good[longest], 0.1), *good[longest + 1 :]]
    path = write(tmp_path / "own.jsonl", fast)
    code, (sentence, *_) = told(call, command_of(kind), path, *options)
    assert code == 2
    assert sentence.startswith(f"nest: {path}:{longest + 1}: ")
    assert "is at least" in sentence
    assert ("nvlink4" if kind == "collectives" else "at the matrix peak of ") in sentence


@pytest.mark.longer
def test_a_peak_beyond_the_device_is_refused(tmp_path: Path, call: Caller) -> None:
    path = write(tmp_path / "own.jsonl", [{**run(SMALL, seconds(SMALL)), "measured": {"peak_memory": "100 GB"}}])
    for kind in ("memory", "cluster"):
        code, (sentence,) = told(call, kind, path)
        assert code == 2
        assert f"{path}:1: measured.peak_memory is 93.1 GiB, but is at most " in sentence
        assert "on the device" in sentence


@pytest.mark.parametrize("kind", DOORS)
def test_a_line_that_stands_there_twice_counts_once(tmp_path: Path, call: Caller, kind: str) -> None:
    good, options = lines(kind)
    path = write(tmp_path / "own.jsonl", good)
    once = call("calibrate", command_of(kind), str(path), *options)
    write(path, [*good, good[0]])
    twice = call("calibrate", command_of(kind), str(path), *options)
    assert twice[:2] == once[:2]
    (more,) = set(twice[2].splitlines()) - set(once[2].splitlines())
    assert f"{path}:{len(good) + 1}: equal to {path}:1; it counts once." in more


@pytest.mark.longer
@pytest.mark.parametrize("kind", DOORS)
def test_a_file_that_is_given_twice_is_refused(tmp_path: Path, call: Caller, kind: str) -> None:
    good, options = lines(kind)
    path = write(tmp_path / "own.jsonl", good)
    code, _, err = call("calibrate", command_of(kind), str(path), str(tmp_path / "." / "own.jsonl"), *options)
    assert code == 2
    assert "given twice" in err


@pytest.mark.longer
def test_many_repeated_lines_are_counted(tmp_path: Path, call: Caller) -> None:
    path = write(tmp_path / "own.jsonl", gathers() * 2)
    _, err = told(call, "collectives", path)
    assert sum("it counts once" in line for line in err) == TOLD
    assert f"nest: warning: There are {len(gathers()) - TOLD} more lines that stand there before." in err


@pytest.mark.longer
@pytest.mark.parametrize("kind", DOORS[:4])
@pytest.mark.parametrize(("factor", "contradicts"), [(1.1, False), (1.6, True)])
def test_times_of_one_thing_that_contradict_each_other_are_told(
    tmp_path: Path, call: Caller, kind: str, factor: float, contradicts: bool
) -> None:
    good, options = lines(kind)
    again = changed(kind, good[-1], factor)
    path = write(tmp_path / "own.jsonl", [*good, {**again, "id": "again"} if "problem" in again else again])
    code, err = told(call, command_of(kind), path, *options, "--json")
    assert code == 0
    sentences = [line for line in err if "measure the same" in line]
    assert bool(sentences) is contradicts
    if contradicts:
        assert f"{path}:{len(good)} and {path}:{len(good) + 1}" in sentences[0]
        assert "is 1.6x" in sentences[0]


def test_other_software_contradicts_nothing(tmp_path: Path, call: Caller) -> None:
    good, _ = lines("devices")
    other = {**changed("devices", good[0], 1.6), "family": "of other software", "id": "other"}
    path = write(tmp_path / "own.jsonl", [*good, other])
    assert not [line for line in told(call, "devices", path, "--json")[1] if "measure the same" in line]


def test_a_fit_to_what_was_predicted_already_is_no_better(tmp_path: Path, call: Caller) -> None:
    """Runs that take as long as predicted but for chance: what is fitted to some makes others no nearer."""
    figures = [(SMALL, 1.05), (LARGE, 0.95)]
    runs = [run(each, factor * seconds(each), family=str(factor)) for each, factor in figures]
    path = write(tmp_path / "own.jsonl", runs)
    for kind, what in (("devices", "the mean error, cross-validated, is"), ("cluster", "leaving out one run")):
        code, err = told(call, kind, path, "--json")
        assert code == 0
        assert [line for line in err if "No improvement: " in line and what in line]


@pytest.mark.longer
def test_a_fit_that_is_better_is_not_called_into_question(tmp_path: Path, call: Caller) -> None:
    runs = [run(each, 1.5 * seconds(each), family=str(at)) for at, each in enumerate((SMALL, LARGE))]
    path = write(tmp_path / "own.jsonl", runs)
    assert not [line for line in told(call, "cluster", path)[1] if "No better" in line]
    write(path, gathers(3.0))
    assert not [line for line in told(call, "collectives", path)[1] if "No better" in line]


@pytest.mark.longer
def test_collectives_as_predicted_are_no_reason_to_change_a_link(tmp_path: Path, call: Caller) -> None:
    from nest.catalogue import link
    from nest.hooks.registry import registry
    from nest_calibrate.collective_measurements import read_collectives
    from nest_calibrate.links import grouped

    path = write(tmp_path / "own.jsonl", gathers())
    model = next(iter(registry().collective_models().values()))
    (group,) = grouped(read_collectives([path]), link("nvlink4"))
    predicted = group.predicted(link("nvlink4"), model).tolist()
    write(path, [{**line, "seconds": time} for line, time in zip(gathers(), predicted, strict=True)])
    code, err = told(call, "collectives", path, "--json")
    assert code == 0
    assert [line for line in err if "No improvement: nvlink4: the error in the median is" in line]


def test_one_family_tells_nothing_of_another(tmp_path: Path, call: Caller) -> None:
    path = write(tmp_path / "own.jsonl", [run(SMALL, 1.2 * seconds(SMALL), family="mine")])
    code, err = told(call, "devices", path, "--json")
    assert code == 0
    assert [line for line in err if "All measurements have one family (mine)" in line]


@pytest.mark.longer
def test_coefficients_that_nothing_tells_of_are_named(tmp_path: Path, call: Caller) -> None:
    """Dense runs in bf16 tell nothing of experts; small all-gathers nothing of all-to-alls, nor of wide protocols."""
    good, _ = lines("devices")
    path = write(tmp_path / "own.jsonl", good)
    (sentence,) = [line for line in told(call, "devices", path, "--json")[1] if "do not determine" in line]
    assert "grouped" in sentence
    assert "contracted_half" not in sentence
    write(path, gathers(2.0)[:4])
    (sentence,) = [line for line in told(call, "collectives", path, "--json")[1] if "do not determine" in line]
    assert "all of all_to_all" in sentence
    assert "efficiency of Simple" in sentence


def test_coefficients_at_their_bounds_are_named(tmp_path: Path, call: Caller) -> None:
    """A host that takes longer than any can: the least and the most stand in the ranges of coefficients."""
    launch = {"nest": 1, "measurement": "operator", "kind": "launch", "precision": "bf16", "seconds": 1e-3}
    path = write(tmp_path / "own.jsonl", [launch, *lines("operators")[0]])
    code, err = told(call, "devices", path, "--device", "h100-sxm", "--prior", "published")
    assert code == 0
    (sentence,) = [line for line in err if "hits its limits" in line]
    most = next(each.range.high for each in unknowns([H100], {"bf16"}) if each.name == "host_launch")
    assert f"host_launch ({most:.3g}, the most it can be)" in sentence


def test_a_bound_that_was_believed_in_is_none_to_tell() -> None:
    rows = [Fitted("a", 1.0, 0.5, 0.0, 1.0), Fitted("b", 1.0, 1.0, 0.0, 1.0), Fitted("c", 0.5, 0.5, 0.0, 1.0)]
    assert at_bounds(rows) == ["a (1, the most it can be)"]


def test_what_is_left_of_a_belief_is_the_posterior_variance() -> None:
    """One coefficient measured often, one never: a normal variable of known noise, by its conjugate prior."""
    measured, noise, spread = numpy.array([0.1, 0.12, 0.08]), 0.5, 2.0

    def residuals(at: Any) -> Any:
        return at[0] - measured

    prior = Prior(numpy.zeros(2), numpy.full(2, spread), numpy.full(2, -9.0), numpy.full(2, 9.0))
    at = robust_fit(residuals, prior, 1e3, noise)
    left = belief_left(residuals, at, prior, 1e3, noise)
    assert left == pytest.approx([1 / (1 + 3 * spread**2 / noise**2), 1.0], rel=1e-4)


def peaks(group: str, ratio: float) -> list[Verdict]:
    """Runs that needed a multiple of what was estimated."""
    return [Verdict(group, 50e9, 80e9, True, 50e9 * ratio * exp(away)) for away in (-0.02, 0.0, 0.02)]


def test_what_memory_tells() -> None:
    begun, said = EstimateError(1.0, 0.2), list[str]()
    room = [Verdict("a", 1e9, 80e9, True, None), Verdict("b", 1e9, 80e9, True, None)]
    doubt_memory(room, begun, {"a": begun, "b": begun}, begun, said.append)
    assert any("No improvement" in each for each in said)
    assert any("these measurements do not determine" in each and "median, spread" in each for each in said)
    said.clear()
    seen = [*peaks("a", 1.3), *peaks("b", 1.3)]
    found = fit(seen, begun)
    doubt_memory(seen, found, left_out(seen, begun), begun, said.append)
    assert said == []
    doubt_memory_figures(peaks("a", 2.5), EstimateError(2.0, 0.3), said.append, begun)
    assert any("median (2, the most it can be)" in each for each in said)
    said.clear()
    doubt_memory(peaks("a", 1.3), found, {"a": begun}, begun, said.append)
    assert any("All measurements have one source (a)" in each for each in said)


def test_operators_on_a_device_of_ones_own_are_judged_by_its_figures(tmp_path: Path, call: Caller) -> None:
    """What is too fast for an H100 is not for a device of ten times its speed."""
    fast = evolve(H100, name="own", generation="", peak=evolve(H100.peak, bf16=10 * (H100.peak.bf16 or 0)))
    (tmp_path / "own.json").write_text(json.dumps(on(SMALL, fast)["cluster"]["device"]))
    quick = [changed("operators", line, 0.1) for line in lines("operators")[0]]
    path = write(tmp_path / "own.jsonl", quick)
    assert told(call, "devices", path, "--device", "h100-sxm")[0] == 2
    assert told(call, "devices", path, "--device", str(tmp_path / "own.json"))[0] == 0


@pytest.mark.longer
def test_runs_on_several_kinds_of_device_are_judged_by_the_fullest(tmp_path: Path, call: Caller) -> None:
    """Memory and level of a cluster tell of pools, the coefficients of a device do not."""
    pools = [
        {"name": "new", "device": "h100-sxm", "levels": [{"fanout": 8, "link": "nvlink4"}]},
        {"name": "old", "device": "a100-sxm-40g", "levels": [{"fanout": 8, "link": "nvlink3"}]},
    ]
    between = [{"pools": ["new", "old"], "bandwidth": "12.5 GB/s", "latency": "10 us"}]
    cluster = {"pools": pools, "between": between}
    mixed = {**SMALL, "cluster": cluster, "fixed": {"pp": 2, "tp": 8, "pools": ["new", "old"]}}
    line = run(mixed, 1.2 * seconds(mixed))
    line["measured"]["peak_memory"] = nest.evaluate(mixed).stages[1].memory
    path = write(tmp_path / "own.jsonl", [line])
    assert told(call, "cluster", path)[0] == 0
    assert told(call, "memory", path)[0] == 0
    code, (sentence,) = told(call, "devices", path)
    assert code == 2
    assert f"{path}:1: cluster.pools: calibration supports one device type" in sentence
    line["measured"]["peak_memory"] = 60e9  # More than the smaller of the two has.
    write(path, [line])
    assert told(call, "memory", path)[0] == 2
