"""Kineto traces: a small one by hand for a CPU and for a GPU, and a real one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InputError
from nest_measured.kineto import ENGINE, read_trace, table_of
from nest_measured.table import read_table
from small_models import call


def event(name: str, start: float, duration: float, thread: int = 1, category: str = "cpu_op", **args: Any) -> Any:
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 7,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": named,
    }


def product(start: float, duration: float, number: int, **args: Any) -> Any:
    shapes = {"Input_Dims": [[32, 64], [64, 128]], "Input_type": ["c10::BFloat16", "c10::BFloat16"]}
    return event("aten::mm", start, duration, Sequence_number=number, External_id=number, **shapes, **args)


def node(start: float, duration: float, number: int, name: str = "MmBackward0") -> Any:
    return event(ENGINE + name, start, duration, thread=2, Sequence_number=number, External_id=100 + number)


ON_CPU = [
    product(0, 900, 1),
    product(1000, 20, 2),
    product(2000, 30, 3),
    event("aten::mm", 3005, 5, thread=2, Input_Dims=[[64, 32], [32, 128]]),  # of a backward pass: it has no number
    node(3000, 50, 3),
    node(4000, 40, 2),
    node(5000, 70, 1),
    event("aten::silu", 6000, 10, Sequence_number=4, Input_Dims=[[32, 128]], Input_type=["float"]),
    {"ph": "s", "name": "fwdbwd", "ts": 0},
    {"ph": "M", "name": "process_name"},
]


def test_medians_on_a_cpu() -> None:
    (row,) = table_of({"traceEvents": ON_CPU}, "some-cpu").operators
    assert (row.kind, row.precision, row.samples) == ("matmul", "bf16", 3)
    assert row.whole_sizes == {"rows": 32, "columns": 128, "contracted": 64, "groups": 1}
    assert (row.forward, row.backward) == (pytest.approx(30e-6), pytest.approx(50e-6))


def test_on_a_gpu_kernels_count() -> None:
    """One kernel joined by `External id`, one by the correlation of its launch, one launched by an inner operator."""
    events = [
        product(0, 100, 1),
        event("aten::inner", 10, 20, External_id=11),
        event("cudaLaunchKernel", 50, 5, category="cuda_runtime", correlation=5, External_id=1),
        event("gemm", 500, 7, thread=9, category="kernel", External_id=1),
        event("more", 510, 2, thread=9, category="kernel", correlation=5),
        event("inner", 520, 1, thread=9, category="kernel", External_id=11),
        node(1000, 100, 1),
        event("aten::mm", 1010, 20, thread=2, External_id=21),
        event("gemm", 1500, 13, thread=9, category="kernel", External_id=21),
        event("stranger", 1600, 999, thread=9, category="kernel", External_id=77),
    ]
    (row,) = table_of({"traceEvents": events}).operators
    assert (row.forward, row.backward) == (pytest.approx(10e-6), pytest.approx(13e-6))


def test_attention_with_values_of_another_width() -> None:
    dims = [[2, 8, 64, 24], [2, 8, 96, 24], [2, 8, 96, 16], [], []]
    name = "aten::_scaled_dot_product_flash_attention"
    number = {"Sequence_number": 1, "Input_Dims": dims, "Input_type": ["c10::Half"] * 3}
    (row,) = table_of({"traceEvents": [event(name, 0, 5, **number)]}).operators
    assert row.sizes == {"batch": 2, "heads": 8, "sequence": 64, "keys": 96, "head": 24, "value": 16}
    assert (row.kind, row.precision, row.backward) == ("attention", "fp16", None)


def test_element_wise_operators_by_the_bytes_they_move() -> None:
    norm = event("aten::native_layer_norm", 0, 5, Sequence_number=1, Input_Dims=[[2, 8]], Input_type=["c10::Half"])
    ids = {"Input_Dims": [[100, 16], [2, 8]], "Input_type": ["float", "long int"]}
    looked_up = event("aten::embedding", 10, 5, Sequence_number=2, **ids)
    rows = table_of({"traceEvents": [norm, looked_up]}).operators
    assert [(row.kind, row.sizes) for row in rows] == [
        ("embedding", {"bytes": 16 * 8 + 16 * 16 * 4}),
        ("norm", {"bytes": 2 * 16 * 2}),
    ]


@pytest.mark.parametrize("dims", [None, [], [[32]], [[32, 64], []], [["a", "b"], ["c", "d"]], [[0, 64], [64, 1]]])
def test_calls_without_usable_shapes_are_left_out(dims: Any) -> None:
    strange = event("aten::mm", 0, 5, Sequence_number=9, Input_Dims=dims, Input_type=["float", "float"])
    assert len(table_of({"traceEvents": [*ON_CPU, strange, None, {"ph": "X"}]}).operators) == 1
    with pytest.raises(InputError, match="record_shapes=True"):
        table_of({"traceEvents": [strange]})


def test_the_command_writes_a_table(tmp_path: Path) -> None:
    trace, output = tmp_path / "trace.json.gz", tmp_path / "table.json"
    trace.write_bytes(gzip.compress(json.dumps({"traceEvents": ON_CPU}).encode()))
    done = call("kineto", trace, "--output", output, "--device", "some-cpu")
    assert done.exit_code == 0, done.output
    assert "1 sizes of matmul, from 3 calls" in done.output
    assert read_table(output) == table_of(read_trace(trace), "some-cpu")


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"traceEvents": 3}', b"\xff\xfe"])
def test_what_is_no_trace_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(text)
    (tmp_path / "trace.json.gz").write_bytes(text)
    for name in ("trace.json", "trace.json.gz"):
        with pytest.raises(InputError, match=r"trace\.json.*trace"):
            read_trace(tmp_path / name)


def test_a_real_trace(shared: Path, tmp_path: Path) -> None:
    """A step of a Llama of 2 layers, width 64: 15 products and 2 attention cores forward, each with a backward pass."""
    trace = read_trace(shared / "samples" / "kineto_cpu_tiny_llama.json")
    table = table_of(trace)
    counted: dict[str, int] = {}
    for row in table.operators:
        counted[row.kind] = counted.get(row.kind, 0) + row.samples
    assert counted == {"matmul": 15, "attention": 2, "embedding": 1}
    assert all(row.backward is not None and row.precision == "fp32" for row in table.operators)
    longest = max(event["dur"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op") * 1e-6
    assert all(0 < row.forward <= longest for row in table.operators)
