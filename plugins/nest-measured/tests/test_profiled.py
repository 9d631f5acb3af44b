"""What `nest profile` writes, as the table that `costs: measured` reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from nest.errors import InputError
from nest.spec.measurements import OperatorMeasurement
from nest_measured.profiled import table_of
from nest_measured.table import read_table
from small_models import call

PRODUCT = {"batch": 2, "rows": 8, "columns": 16, "contracted": 32}
ATTENTION = {"batch": 1, "heads": 4, "kv_heads": 2, "head": 8, "sequence": 16}


def measured(kind: str, shape: dict[str, Any], seconds: float, **more: Any) -> OperatorMeasurement:
    return OperatorMeasurement(1, "operator", kind, "bf16", seconds, shape, **{"device": "some GPU", **more})  # type: ignore[arg-type]


def test_both_passes_of_an_operator_are_one_row() -> None:
    rows = table_of(
        [
            measured("matmul", PRODUCT, 1e-3),
            measured("matmul", PRODUCT, 3e-3),
            measured("matmul", PRODUCT, 4e-3, direction="backward"),
            measured("norm", {"rows": 8, "width": 16}, 1e-6, bytes=512.0),
            measured("launch", {}, 1e-6),
        ],
        "h100-sxm",
    ).operators
    assert [(row.kind, row.forward, row.backward, row.precision) for row in rows] == [
        ("matmul", 2e-3, 4e-3, "bf16"),
        ("norm", 1e-6, None, "bf16"),
    ]
    assert rows[0].sizes == {"rows": 16, "columns": 16, "contracted": 32, "groups": 2}
    assert rows[1].sizes == {"bytes": 512}


def test_causal_attention_stands_for_both() -> None:
    whole = measured("attention", {**ATTENTION, "causal": False}, 2e-3)
    causal = measured("attention", {**ATTENTION, "causal": True}, 1e-3)
    assert [row.forward for row in table_of([whole, causal], "h100-sxm").operators] == [1e-3]
    (row,) = table_of([whole], "h100-sxm").operators
    assert (row.forward, row.sizes["keys"], row.sizes["value"]) == (2e-3, 16, 8)


def test_what_makes_no_table_is_refused() -> None:
    with pytest.raises(InputError, match="no forward pass"):
        table_of([measured("launch", {}, 1e-6)], "h100-sxm")
    with pytest.raises(InputError, match="a table is of one device"):
        table_of([measured("matmul", PRODUCT, 1.0), measured("matmul", PRODUCT, 1.0, device="other")], "h100-sxm")


LARGE = {"batch": 1, "rows": 8192, "columns": 8192, "contracted": 8192}
LINE = {"nest": 1, "measurement": "operator", "kind": "matmul", "precision": "bf16", "seconds": 1.5e-3}


def command(folder: Path, *lines: dict[str, Any], device: str = "h100-sxm") -> Result:
    """`nest measured profile` on lines of products."""
    source, output = folder / "out.jsonl", folder / "table.json"
    source.write_text(
        "".join(json.dumps({**LINE, "shape": LARGE, "device": "some GPU", **line}) + "\n" for line in lines)
    )
    return call("profile", source, "--device", device, "--output", output)


def test_the_command_writes_what_the_cost_model_reads(tmp_path: Path) -> None:
    result = command(tmp_path, {}, {"direction": "backward", "seconds": 3e-3})
    assert result.exit_code == 0, result.exception
    assert result.stderr == ""
    assert read_table(tmp_path / "table.json").device == "h100-sxm"
    (row,) = read_table(tmp_path / "table.json").operators
    assert (row.forward, row.backward) == (1.5e-3, 3e-3)


@pytest.mark.parametrize(("seconds", "told"), [(1.5, 'if it is in ms, write "1.5 ms"'), (5e-4, "is at least 1.1")])
def test_times_that_cannot_be_make_no_table(tmp_path: Path, seconds: float, told: str) -> None:
    result = command(tmp_path, {}, {"seconds": seconds})
    assert isinstance(result.exception, InputError)
    assert f"{tmp_path / 'out.jsonl'}:2: seconds is " in str(result.exception)
    assert told in str(result.exception)
    assert not (tmp_path / "table.json").exists()
    assert command(tmp_path, {"seconds": seconds}, device="a device of ones own").exit_code == 0


def test_contradictions_and_repeated_lines_are_told(tmp_path: Path) -> None:
    result = command(tmp_path, {}, {}, {"seconds": 3e-3})
    assert result.exit_code == 0
    place = tmp_path / "out.jsonl"
    assert f"nest: warning: {place}:2: equal to {place}:1; it counts once." in result.stderr
    assert f"nest: warning: {place}:1 and {place}:3 measure the same" in result.stderr


def test_backward_passes_join_the_forward_pass_of_their_shape() -> None:
    """They move other bytes, here as many as a forward pass of twice the width."""
    shapes = [({"rows": 8, "width": width}, 3 * 16.0 * width) for width in (16, 32)]
    rows = table_of(
        [
            *(measured("elementwise", shape, moved * 1e-9, bytes=moved) for shape, moved in shapes),
            *(
                measured("elementwise", shape, moved * 5e-9, direction="backward", bytes=2 * moved)
                for shape, moved in shapes
            ),
        ],
        "h100-sxm",
    ).operators
    assert [row.sizes["bytes"] for row in rows] == [768, 1536]
    assert [row.backward for row in rows] == [pytest.approx(5 * row.forward) for row in rows]


def test_a_softmax_stands_for_the_loss_of_its_logits() -> None:
    (softmax, loss) = table_of([measured("softmax", {"rows": 8, "width": 16}, 1e-6, bytes=512.0)], "h100-sxm").operators
    assert (loss.kind, loss.sizes, loss.forward) == ("loss", {"bytes": 256}, softmax.forward)
