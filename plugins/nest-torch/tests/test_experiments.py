"""Experiments and the default grid: no PyTorch takes part."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputErrors
from nest.spec.measurements import OPERATORS
from nest_torch.experiments import Experiment, read_experiments
from nest_torch.grid import default_grid

GRID = default_grid(2e13, 1e11, 2)


def test_the_grid_has_every_kind_and_nothing_twice() -> None:
    assert {each.kind for each in GRID} == set(OPERATORS)
    assert len({str(each) for each in GRID}) == len(GRID)
    assert {each.direction for each in GRID if each.kind == "attention"} == {"forward", "backward"}


@pytest.mark.longer
@given(flops=st.floats(1e6, 1e14), memory=st.floats(1e4, 1e11), itemsize=st.sampled_from([1, 2, 4]))
def test_the_grid_fits_the_device(flops: float, memory: float, itemsize: int) -> None:
    grid = default_grid(flops, memory, itemsize)
    assert all(each.flops <= flops and each.held(itemsize) <= memory for each in grid)
    assert any(each.kind == "launch" for each in grid)


def test_what_is_measured_first_is_of_every_sort() -> None:
    """A budget that ends early leaves some of each behind."""
    assert len({each.kind for each in GRID[:12]}) >= 5


def test_matrix_products_need_their_flop() -> None:
    product = Experiment("matmul", {"batch": 3, "rows": 5, "columns": 7, "contracted": 11})
    assert product.flops == 2 * 3 * 5 * 7 * 11
    assert product.held(2) == 2 * 3 * (5 * 11 + 11 * 7 + 5 * 7)


@pytest.mark.parametrize(
    ("kind", "shape", "direction", "tensors"),
    [
        ("norm", {}, "forward", 2),
        ("norm", {}, "backward", 3),
        ("elementwise", {}, "forward", 3),
        ("activation", {}, "forward", 2),
        ("activation", {"branches": 2}, "forward", 3),
        ("activation", {"branches": 2}, "backward", 5),
        ("softmax", {}, "forward", 2),
    ],
)
def test_bytes_are_those_of_the_tensors_read_and_written(
    kind: str, shape: dict[str, int | bool], direction: str, tensors: int
) -> None:
    experiment = Experiment(kind, {"rows": 10, "width": 20, **shape}, direction)
    assert experiment.moved(2) == tensors * 10 * 20 * 2


def test_a_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shapes.yaml"
    path.write_text(
        "operators:\n"
        "  - {kind: matmul, shape: {batch: 1, rows: 8, columns: 8, contracted: 8}}\n"
        "  - {kind: copy, bytes: 1 KiB}\n"
    )
    product, copy = read_experiments(path)
    assert product.size("rows") == 8
    assert copy.moved(2) == 1024


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{kind: matmul, shape: {rows: 8, columns: 8, contracted: 8}}", "shape.batch is missing"),
        ("{kind: copy}", "bytes is missing"),
        ("{kind: norm, shape: {rows: 8, width: 8}, bytes: 3}", "bytes follow from the shape of norm"),
        ("{kind: copy, bytes: 8, direction: backward}", "direction of copy is forward"),
        ("{kind: convolution}", "kind must be one of"),
        (
            "{kind: attention, shape: {batch: 1, heads: 4, kv_heads: 3, head: 8, sequence: 8, causal: true}}",
            "must divide",
        ),
    ],
)
def test_mistakes_in_a_list_name_their_line(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "shapes.yaml"
    path.write_text(f"operators:\n  - {line}\n")
    with pytest.raises(InputErrors, match=told) as raised:
        read_experiments(path)
    assert raised.value.problems[0].startswith(f"{path}:2: operators[0].")


def test_a_problem_gives_the_operators_of_its_candidates(tmp_path: Path) -> None:
    from nest_torch.problem_shapes import problem_experiments

    path = tmp_path / "problem.yaml"
    path.write_text(
        "nest: 1\n"
        "model: {transformer: {layers: 8, hidden: 64, ffn: 128, heads: 4, kv_heads: 2, vocab: 100}}\n"
        "training: {global_batch: 8, sequence_length: 32, micro_batch: [1, 2]}\n"
        "cluster: {device: a100-sxm-40g, levels: [{fanout: 2, link: nvlink3}]}\n"
        "strategies: {tp: [1, 2], cp: [1], sp: [1]}\n"
    )
    found = problem_experiments(path)
    shapes: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        shapes.setdefault(each.kind, []).append(each.shape)
    assert {"batch": 1, "rows": 64, "columns": 64, "contracted": 64} in shapes["matmul"]
    assert {"batch": 1, "rows": 32, "columns": 32, "contracted": 64} in shapes["matmul"]
    heads = {(each["batch"], each["heads"], each["kv_heads"], each["causal"]) for each in shapes["attention"]}
    assert heads == {(1, 4, 2, True), (2, 4, 2, True), (1, 2, 1, True), (2, 2, 1, True)}
    assert {"rows": 32, "width": 100} in shapes["softmax"]  # Of the loss.
    assert {"rows": 64, "width": 128} in shapes["elementwise"] or {"rows": 128, "width": 64} in shapes["elementwise"]
    assert len({str(each) for each in found}) == len(found)
