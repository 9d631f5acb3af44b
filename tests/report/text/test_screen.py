"""Texts on screens of any width: nothing is left out, and no line is longer than it has to be."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nest.report.text.layout import Screen, Tone, columns, figures, longest_piece, padded, paragraph, pieces, table

WORD = st.text("ab7%,.-é漢字", min_size=1, max_size=12)
CELL = st.lists(WORD, max_size=6).map(" ".join)
WIDTH = st.integers(8, 120)
LONG = "7a 7a 7a 7a 7a7777777a 7777777777a"
"""Never parted, as each word goes with the number behind it."""


def _marked(text: str, tone: Tone) -> str:
    """A stand-in for escape codes, easy to remove again."""
    return f"\x1b[{tone.value}m{text}\x1b[0m"


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9]+m", "", text)


def _letters(text: str) -> str:
    return "".join(text.split())


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], list[int]]:
    count = draw(st.integers(1, 6))
    header = draw(st.lists(CELL, min_size=count, max_size=count))
    rows = draw(st.lists(st.lists(CELL, min_size=count, max_size=count), max_size=5))
    return header, rows, draw(st.lists(st.integers(0, count - 1), unique=True))


def test_wide_letters_take_two_columns_and_combining_ones_none() -> None:
    assert (columns("layers"), columns("漢字"), columns("e\u0301")) == (6, 4, 1)
    assert padded("漢字", 6, right=True) == "  漢字"
    lines = table(["name", "n"], [["漢字", "1"], ["abc", "22"]], [1]).splitlines()
    assert lines == ["name   n", "----  --", "漢字   1", "abc   22"]


def test_numbers_stay_with_their_units_and_names_with_their_numbers() -> None:
    text = "pp 62, micro-batch 1 x 960 takes 12.3 ms of 4 GiB at 5 % in 3 steps"
    parts = ["pp 62,", "micro-batch 1 x 960", "takes 12.3 ms", "of 4 GiB", "at 5 %", "in 3", "steps"]
    assert [piece.strip() for piece in pieces(text)] == parts


@given(CELL, WIDTH)
def test_paragraphs_lose_nothing_and_keep_to_the_width(text: str, width: int) -> None:
    assert paragraph(text) == text
    lines = paragraph(text, Screen(width), 2).split("\n")
    assert _letters("".join(lines)) == _letters(text)
    for line in lines:
        assert columns(line) <= width or len(pieces(line.strip())) == 1


@pytest.mark.longer
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), WIDTH)
@example([("abababababab ab", LONG)], 40)
def test_figures_lose_nothing_and_keep_to_the_width(rows: list[tuple[str, str]], width: int) -> None:
    told = _plain(figures(rows, Screen(width, _marked), 2, {0: Tone.GOOD}))
    rest = _letters(told).replace(":", "")
    for name, value in rows:
        for part in (_letters(name), _letters(value)):
            assert part in rest
            rest = rest[rest.index(part) + len(part) :]
    for line in told.split("\n"):
        assert columns(line) <= width or max(longest_piece(part) for row in rows for part in row) + 4 > width


@pytest.mark.longer
@given(tables(), WIDTH)
@example((["abababababab ab", "b"], [[LONG, "bbbbbbb bbbbbbb bbbbbbbbbb bbbbbb"]], []), 40)
def test_tables_lose_nothing_and_keep_to_the_width(
    given_table: tuple[list[str], list[list[str]], list[int]], width: int
) -> None:
    header, rows, right = given_table
    wide = table(header, rows, right)
    told = table(header, rows, right, Screen(width))
    if max(map(columns, wide.splitlines()), default=0) > width:
        # Every word of every cell is shown as often as in the wide table, or more often where a column is repeated.
        words = [piece.strip() for row in rows for cell in row for piece in pieces(cell) if piece.strip()]
        left = _letters(told)
        for word in set(words):
            assert left.count(_letters(word)) >= words.count(word)
    for line in told.splitlines():
        longest = max((longest_piece(cell) for row in (header, *rows) for cell in row), default=0)
        assert columns(line) <= width or longest + 3 > width


@pytest.mark.longer
@given(tables(), WIDTH, st.sampled_from([None, 1]))
def test_paint_takes_no_columns(
    given_table: tuple[list[str], list[list[str]], list[int]], width: int, narrow: int | None
) -> None:
    header, rows, right = given_table
    size = None if narrow is None else width
    tones = {(row, column): Tone.BAD for row in range(len(rows)) for column in range(len(header))}
    painted = table(header, rows, right, Screen(size, _marked), tones)
    assert _plain(painted) == table(header, rows, right, Screen(size))


def test_a_table_of_numbers_is_parted_and_its_first_column_repeated() -> None:
    header = ["stage", "time", "sync", "memory"]
    rows = [[str(index), "12.3 ms", "45.6 ms", "20.2 GiB"] for index in range(1, 6)]
    told = table(header, rows, [1, 2, 3], Screen(24)).splitlines()
    assert [line for line in told if "stage" in line] == ["stage     time     sync", "stage    memory"]
    assert max(map(len, told)) <= 24


def test_one_row_that_is_too_wide_is_a_list() -> None:
    told = table(["name", "writes", "limits"], [["dot", "Graphviz, boundaries", "none stated"]], [], Screen(20))
    assert told.splitlines() == ["name    dot", "writes:", "  Graphviz,", "  boundaries", "limits  none stated"]
