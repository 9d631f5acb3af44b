"""Measurements: read line by line, each mistake told with its line, and the reference's examples hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputErrors
from nest.graph import COLLECTIVES
from nest.io import unstructure
from nest.spec import CollectiveMeasurement, OperatorMeasurement, RunMeasurement, read_measurements
from nest.spec.measurements import COLLECTIVE_KINDS, OPERATORS
from nest.spec.training import PRECISIONS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "measurements.md"

OPERATOR: dict[str, Any] = {
    "nest": 1,
    "measurement": "operator",
    "kind": "matmul",
    "shape": {"batch": 1, "rows": 8, "columns": 4, "contracted": 2},
    "precision": "bf16",
    "seconds": "3 us",
}
COLLECTIVE: dict[str, Any] = {
    "nest": 1,
    "measurement": "collective",
    "kind": "all_reduce",
    "bytes": "1 MB",
    "members": 8,
    "seconds": 1e-5,
    "link": None,
}
RUN: dict[str, Any] = {
    "problem": {
        "nest": 1,
        "model": "llama-3-8b",
        "training": {"global_batch": 8, "sequence_length": 64},
        "cluster": "dgx-a100-superpod-8",
    },
    "measured": {"batch_time": 1.5},
}


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "measured.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_all_kinds_may_stand_in_one_file(tmp_path: Path) -> None:
    found = read_measurements(written(tmp_path, OPERATOR, "", COLLECTIVE, RUN))
    assert [type(each) for each in found] == [OperatorMeasurement, CollectiveMeasurement, RunMeasurement]
    operator, collective, run = found
    assert isinstance(operator, OperatorMeasurement)
    assert operator.seconds == 3e-6
    assert isinstance(collective, CollectiveMeasurement)
    assert collective.bytes == 1e6
    assert isinstance(run, RunMeasurement)
    assert run.problem.model == "llama-3-8b"


@pytest.mark.parametrize(
    ("base", "change", "told"),
    [
        (OPERATOR, {"shape": {"batch": 1, "rows": 8, "columns": 4}}, "shape.contracted is missing"),
        (OPERATOR, {"shape": {**OPERATOR["shape"], "rows": 0}}, "shape.rows must be at least 1, is 0"),
        (OPERATOR, {"shape": {**OPERATOR["shape"], "rows": True}}, "shape.rows must be a whole number, is true"),
        (OPERATOR, {"shape": {**OPERATOR["shape"], "head": 1}}, "shape.head is not a size"),
        (
            OPERATOR,
            {
                "kind": "attention",
                "shape": {"batch": 1, "heads": 6, "kv_heads": 4, "head": 64, "sequence": 8, "causal": True},
            },
            "shape.kv_heads must divide heads",
        ),
        (OPERATOR, {"kind": "norm", "shape": {"rows": 1, "width": 2}}, "bytes is missing"),
        (OPERATOR, {"kind": "convolution"}, "kind must be one of matmul, "),
        (OPERATOR, {"seconds": 0}, "seconds must be above 0"),
        (OPERATOR, {"secnds": 1}, "secnds is not a known key; did you mean seconds?"),
        (COLLECTIVE, {"members": 1}, "members must be at least 2"),
        (COLLECTIVE, {"nodes": 3}, "nodes is 3, which does not divide 8 members"),
        (RUN, {"problem": {"nest": 1}}, "problem.training is missing"),
        (RUN, {"measured": {}}, "measured.batch_time is missing"),
        (RUN, {"measurement": "walk"}, "measurement must be one of operator, collective, run, is 'walk'"),
    ],
)
def test_mistakes_name_their_line(tmp_path: Path, base: dict[str, Any], change: dict[str, Any], told: str) -> None:
    path = written(tmp_path, OPERATOR, "", {**base, **change})
    with pytest.raises(InputErrors) as raised:
        read_measurements(path)
    assert raised.value.problems[0].startswith(f"{path}:3: {told}")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, {"measurement": "operator"}, "[1]", "{", '{"nest": 1, "nest": 1}', {"seconds": 1})
    with pytest.raises(InputErrors) as raised:
        read_measurements(path)
    lines = [problem.removeprefix(f"{path}:").partition(":")[0] for problem in raised.value.problems]
    assert set(lines) == {"1", "2", "3", "4", "5"}
    assert lines == sorted(lines)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match="the file is empty"):
        read_measurements(written(tmp_path, "", " "))


def test_a_line_ends_where_lines_end_and_nowhere_else(tmp_path: Path) -> None:
    """JSON allows the line separator U+2028 within text, at which `str.splitlines` would cut."""
    path = tmp_path / "measured.jsonl"
    path.write_text(json.dumps({**OPERATOR, "device": "a\u2028b"}, ensure_ascii=False), encoding="utf-8")
    (found,) = read_measurements(path)
    assert isinstance(found, OperatorMeasurement)
    assert found.device == "a\u2028b"


@given(st.data())
def test_operators_are_read_as_they_are_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(OPERATORS)))
    sizes = OPERATORS[kind]
    shape: dict[str, int | bool] = {name: data.draw(st.integers(1, 2**40)) for name in sizes.required}
    shape |= {name: data.draw(st.booleans()) for name in sizes.truths}
    if "kv_heads" in shape:
        shape["heads"] = shape["kv_heads"] * data.draw(st.integers(1, 8))
    record = OperatorMeasurement(
        nest=1,
        measurement="operator",
        kind=kind,
        precision=data.draw(st.sampled_from(PRECISIONS)),
        seconds=data.draw(st.floats(1e-9, 1e3)),
        shape=shape,
        bytes=data.draw(st.floats(1, 1e15)) if sizes.moves else None,
        cold=data.draw(st.booleans()),
    )
    path = written(tmp_path_factory.mktemp("lines"), unstructure(record))
    assert read_measurements(path) == (record,)


def test_kinds_of_collective_are_those_of_graphs() -> None:
    assert COLLECTIVE_KINDS == COLLECTIVES


def test_examples_of_the_reference_are_read(tmp_path: Path) -> None:
    lines = [line for line in REFERENCE.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    assert len(read_measurements(written(tmp_path, *lines))) == len(lines) == 3


def test_the_reference_names_every_kind_and_size() -> None:
    rows = [line for line in REFERENCE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for kind, sizes in OPERATORS.items():
        row = next(line for line in rows if line.startswith(f"| `{kind}`"))
        assert all(f"`{name}`" in row for name in (*sizes.required, *sizes.truths, *sizes.optional)), kind


@pytest.mark.longer
def test_runs_measured_elsewhere_are_read(shared: Path) -> None:
    path = shared / "fidelity" / "measured.jsonl"
    found = read_measurements(path)
    assert len(found) == len(path.read_text(encoding="utf-8").splitlines())
    assert all(isinstance(each, RunMeasurement) and each.family for each in found)
