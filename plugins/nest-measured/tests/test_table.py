"""Tables: what is read, what is refused, and which measurement stands for an operator."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest_measured.sizes import work
from nest_measured.table import Row, Table, read_table


def product(rows: int, columns: int, contracted: int, forward: float = 1.0, **other: Any) -> Row:
    return Row("matmul", {"rows": rows, "columns": columns, "contracted": contracted}, forward, **other)  # type: ignore[arg-type]


def sizes(rows: int, columns: int, contracted: int, groups: int = 1) -> dict[str, int]:
    return {"rows": rows, "columns": columns, "contracted": contracted, "groups": groups}


TABLE = Table((product(1024, 64, 64, 1.0), product(4096, 256, 64, 9.0), product(2048, 64, 64, 2.0, precision="fp8")))


def test_a_measured_operator_stands_for_itself() -> None:
    assert TABLE.nearest("matmul", sizes(1024, 64, 64), "bf16") == (TABLE.operators[0], 1.0)
    assert TABLE.nearest("matmul", sizes(4096, 256, 64), "bf16") == (TABLE.operators[1], 1.0)


def test_inside_the_measured_range_the_nearest_is_scaled_by_work() -> None:
    assert TABLE.nearest("matmul", sizes(1024, 128, 64), "bf16") == (TABLE.operators[0], 2.0)
    assert TABLE.nearest("matmul", sizes(4096, 128, 64), "bf16") == (TABLE.operators[1], 0.5)
    # Of ratios 2.44 and 1.64 the nearer, though its size is further away.
    assert TABLE.nearest("matmul", sizes(2500, 128, 64), "bf16") == (TABLE.operators[1], 2500 / 4096 / 2)
    # As near to both: the smaller counts.
    assert TABLE.nearest("matmul", sizes(2048, 128, 64), "bf16") == (TABLE.operators[0], 4.0)


@pytest.mark.parametrize(
    ("kind", "asked", "precision"),
    [
        ("matmul", sizes(1023, 64, 64), "bf16"),
        ("matmul", sizes(4097, 256, 64), "bf16"),
        ("matmul", sizes(1024, 64, 128), "bf16"),
        ("matmul", sizes(1024, 64, 64, groups=8), "bf16"),
        ("router", sizes(1024, 64, 64), "bf16"),
        ("norm", {"bytes": 1024}, "bf16"),
    ],
)
def test_outside_nothing_is_said(kind: str, asked: dict[str, int], precision: str) -> None:
    assert TABLE.nearest(kind, asked, precision) is None


def test_rows_of_another_precision_do_not_count() -> None:
    assert TABLE.nearest("matmul", sizes(2048, 64, 64), "bf16") == (TABLE.operators[0], 2.0)
    assert TABLE.nearest("matmul", sizes(2048, 64, 64), "fp8") == (TABLE.operators[2], 1.0)


size = st.integers(1, 1 << 16)


@given(st.lists(st.tuples(size, size, size), min_size=1, max_size=6), size, size, size)
def test_the_answer_is_inside_and_keeps_the_rate(
    measured: list[tuple[int, int, int]], rows: int, columns: int, contracted: int
) -> None:
    """What is scaled runs at the speed of what was measured: work per second stays."""
    table = Table(tuple(product(*each) for each in measured))
    asked = sizes(rows, columns, contracted)
    found = table.nearest("matmul", asked, "bf16")
    for name, value in asked.items():
        known = [row.whole_sizes[name] for row in table.operators]
        if not min(known) <= value <= max(known):
            assert found is None
            return
    assert found is not None
    row, factor = found
    assert work("matmul", asked) == pytest.approx(factor * work("matmul", row.whole_sizes))


def test_what_may_be_left_out() -> None:
    assert product(1, 2, 3).whole_sizes == sizes(1, 2, 3)
    attention = Row("attention", {"batch": 1, "heads": 2, "sequence": 3, "keys": 3, "head": 4}, 1.0)  # type: ignore[arg-type]
    assert attention.whole_sizes["value"] == 4


JSON = '{"device": "h100-sxm", "operators": [{"kind": "norm", "sizes": {"bytes": 9}, "forward": "3 us", "samples": 2}]}'
CSV = "kind,bytes,rows,columns,contracted,forward,backward\nnorm,10,,,,3 us,\nmatmul,,1,2,3,1e-3,0.002\n"


def test_tables_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(JSON)
    (tmp_path / "table.csv").write_text(CSV)
    norm = Row("norm", {"bytes": 10}, 3e-6)  # type: ignore[arg-type]
    table = read_table(tmp_path / "table.json")
    assert table == Table((Row("norm", {"bytes": 9}, 3e-6, samples=2),), "h100-sxm")  # type: ignore[arg-type]
    assert read_table(tmp_path / "table.csv") == Table((norm, product(1, 2, 3, 1e-3, backward=0.002)))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "kind,rows,forward\nmatmul,1,1 s\n", r"t.csv: operators\[0\].*lacks columns"),
        ("t.csv", "kind,bytes,forward\nnorm,1,1 kg\n", r"t.csv: operators\[0\].forward"),
        ("t.csv", "kind,bytes,forward\nnorm,many,1 s\n", r"t.csv: operators\[0\].sizes.bytes"),
        ("t.csv", "kind,bytes,forward\n", r"t.csv: operators"),
        ("t.csv", None, "cannot be read"),
        ("t.json", '{"operators": [{"kind": "norm", "sizes": {"rows": 1}, "forward": 1}]}', "lacks bytes"),
        ("t.json", '{"operators": [{"kind": "norm", "sizes": {"bytes": 1}, "forward": 0}]}', "forward must be above 0"),
        ("t.json", '{"operators": [{"knd": "norm", "sizes": {"bytes": 1}, "forward": 1}]}', "kind"),
    ],
)
def test_mistakes_name_their_place(name: str, text: str | None, told: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=told):
        read_table(tmp_path / name)
