"""Columns of tables that read as columns."""

from hypothesis import given
from hypothesis import strategies as st

from nest.units import format_bytes, format_seconds
from nest_page.records import Cell, Table, aligned, alike, column_styles
from nest_page.rendering import fact_columns, unbroken

GIB = 2.0**30


def told(*values: float) -> list[str]:
    return alike([format_bytes(value) for value in values], values)


def test_figures_of_one_unit_have_as_many_decimals() -> None:
    assert told(21.8 * GIB, 23.87 * GIB) == ["21.8 GiB", "23.9 GiB"]
    assert told(8.332 * GIB, 16.77 * GIB, 0.0) == ["8.33 GiB", "16.77 GiB", "0 GiB"]
    assert told(4 * GIB, 16 * GIB) == ["4 GiB", "16 GiB"]
    assert alike(["40.5 ms", "99.92 ms", "171.8 ms"], [0.0405, 0.09992, 0.1718]) == ["40.5 ms", "99.9 ms", "171.8 ms"]


def test_figures_of_several_units_and_words_stay() -> None:
    assert told(0.5 * GIB, 21.8 * GIB) == ["512 MiB", "21.8 GiB"]
    assert alike(["1", "none fits", "62.5%"], [1.0, None, 0.625]) == ["1", "none fits", "62.5%"]
    assert alike(["21.8 GiB", "none fits", "3 GiB"], [21.8 * GIB, None, 3 * GIB]) == [
        "21.8 GiB",
        "none fits",
        "3.0 GiB",
    ]


@given(st.lists(st.floats(1e-12, 1e7), min_size=1, max_size=6))
def test_no_figure_changes_by_more_than_its_last_digit(values: list[float]) -> None:
    units = {"days": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    for text, value in zip(alike([format_seconds(value) for value in values], values), values, strict=True):
        number, _, unit = text.partition(" ")
        digits = len(number.partition(".")[2])
        # What is far below a nanosecond has three digits of its own.
        assert abs(float(number) * units[unit] - value) <= max(0.51 * 10.0**-digits * units[unit], 6e-3 * value)


def test_words_and_what_names_a_row_stay() -> None:
    table = Table("x", ("a", "b", "c"), ((Cell("1 s", 1.0), Cell("1.5 s", 1.5), Cell("2.25 s", 2.25)),), words=(0, 1))
    assert aligned(table) == table.rows


def test_long_words_have_a_column_that_is_wide_enough() -> None:
    table = Table("x", ("a", "b", "c"), ((Cell("x"), Cell("short"), Cell("a long plan " * 4)),), words=(0, 1, 2))
    assert column_styles(table) == ("words", "words", "words long")


def test_figures_of_the_headline_leave_no_hole() -> None:
    for count in range(2, 10):
        columns = fact_columns(count)
        # The last of seven figures takes two places.
        assert count < columns or -count % columns <= 1


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    told = "The batch takes 62.81 s, 74.51 GiB at most; 4 stages share 8 books."
    assert unbroken(told).split(" ") == [
        *("The", "batch", "takes", "62.81\N{NO-BREAK SPACE}s,", "74.51\N{NO-BREAK SPACE}GiB", "at", "most;"),
        *("4", "stages", "share", "8", "books."),
    ]
