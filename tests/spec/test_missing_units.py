"""Numbers whose unit was left out: refused where they can be nothing else, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.errors import InputError, InputErrors
from nest.formulate.problem import whole_problem
from nest.hooks.registry import registry
from nest.io import read_mapping, structure
from nest.spec import Problem

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
SHAPE = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 100}


def problem(**cluster: Any) -> dict[str, Any]:
    levels = [{"fanout": 2, "bandwidth": cluster.pop("bandwidth", 1e9), "latency": cluster.pop("latency", 0)}]
    return {
        "nest": 1,
        "model": {"transformer": SHAPE},
        "training": {"global_batch": 4, "sequence_length": 64, **cluster.pop("training", {})},
        "cluster": {"device": "h100-sxm", "levels": levels, **cluster},
    }


DEVICE = {"name": "mine", "memory": 80, "memory_bandwidth": 3350, "peak": {"bf16": 989}, "launch_overhead": 4}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"bandwidth": 450}, ["cluster.levels[0].bandwidth: 450 is 450 bytes per second; did you mean 450 GB/s?"]),
        ({"latency": 3}, ["cluster.levels[0].latency: 3 is 3 seconds; did you mean 3 us?"]),
        ({"latency": 1}, ["cluster.levels[0].latency: 1 is 1 seconds; did you mean 1 us?"]),
        ({"memory": "80"}, ["cluster.memory: 80 is 80 bytes; did you mean 80 GiB?"]),
        ({"memory": 81920}, ["cluster.memory: 81920 is 81920 bytes; give its unit, as in 80 GiB."]),
        ({"reserve": 0.5}, ["cluster.reserve: 0.5 is 0.5 bytes; did you mean 0.5 GiB?"]),
        ({"training": {"context": 300}}, ["training.context: 300 is 300 bytes; did you mean 300 MiB?"]),
        (
            {"device": DEVICE},
            [
                "cluster.device.memory: 80 is 80 bytes; did you mean 80 GiB?",
                "cluster.device.memory_bandwidth: 3350 is 3350 bytes per second; did you mean 3350 GB/s?",
                "cluster.device.peak.bf16: 989 is 989 FLOP per second; did you mean 989 TFLOP/s?",
                "cluster.device.launch_overhead: 4 is 4 seconds; did you mean 4 us?",
            ],
        ),
        (
            {"levels": None, "topology": {"torus": {"shape": [2], "bandwidth": 50}}},
            ["cluster.topology.torus.bandwidth: 50 is 50 bytes per second; did you mean 50 GB/s?"],
        ),
    ],
)
def test_each_is_told_with_its_place_and_the_likely_meaning(written: dict[str, Any], told: list[str]) -> None:
    given = problem(**written)
    given["cluster"] = {key: value for key, value in given["cluster"].items() if value is not None}
    with pytest.raises(InputErrors) as error:
        whole_problem(given, registry())
    assert list(error.value.problems) == told


@given(st.floats(1e-3, 1e15), st.floats(1e-3, 1e15), st.one_of(st.just(0.0), st.floats(1e-3, 1e12)))
def test_only_what_can_be_nothing_else_is_refused(bandwidth: float, memory: float, reserve: float) -> None:
    found = structure(problem(bandwidth=bandwidth, memory=memory, reserve=reserve), Problem)
    small = bandwidth < 1e6 or memory < 1e6 or 0 < reserve < 1e6
    try:
        found.refuse_missing_units()
    except InputErrors:
        assert small
    else:
        assert not small


@pytest.mark.longer
def test_records_made_in_python_mean_what_they_say() -> None:
    slow = structure(problem(bandwidth=450), Problem)
    assert nest.evaluate(slow).batch_time > 0
    with pytest.raises(InputError, match="did you mean 450 GB/s"):
        nest.evaluate(problem(bandwidth=450))


def files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.suffix in {".yaml", ".json"} and each.stat().st_size < 1e6)


def check(folder: Path) -> int:
    seen = 0
    for path in files(folder):
        try:
            written = read_mapping(path).mapping
        except InputError:
            continue
        for each in (written, written.get("problem", {})):
            if isinstance(each, dict) and {"training", "cluster"} <= each.keys():
                try:
                    found = structure(each, Problem)
                except InputError:
                    continue
                found.refuse_missing_units()
                seen += 1
    return seen


@pytest.mark.longer
def test_no_example_is_refused() -> None:
    assert check(EXAMPLES) >= 9
