"""Blocks of documents that leave lines out are brought up to date, and what no command prints any more is named."""

import pytest

from tests.docs.compare import same
from tests.docs.refresh import shown_again

PRINTED = (
    "title",
    "step time  9.21 s",
    "memory  26.3 GiB",
    "",
    "stage  time",
    "-----  ----",
    "1  126 ms",
    "note: a",
)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (("...", "step time  8.4 s (less)", "..."), ("...", "step time  9.21 s", "...")),
        (("title", "...", "1  98.1 ms"), ("title", "...", "1  126 ms", "...")),
        (("step time  1 s", "memory  1 GiB"), ("...", "step time  9.21 s", "memory  26.3 GiB", "...")),
        (("...", "stage  time", "---  ---", "..."), ("...", "stage  time", "-----  ----", "...")),
        (("step time  1 s", "...", "note: a"), ("...", "step time  9.21 s", "...", "note: a")),
    ],
)
def test_lines_that_are_shown_follow_what_is_printed(expected: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert shown_again(expected, PRINTED) == found
    assert same(found, PRINTED)


def test_a_line_that_is_gone_is_not_replaced_by_another() -> None:
    assert shown_again(("...", "throughput  1,780 tokens/s per GPU, MFU 49.7 %", "..."), PRINTED) is None


def test_the_first_of_equal_lines_is_taken() -> None:
    assert shown_again(("a line", "..."), ("a line", "b", "a line")) == ("a line", "...")


def test_of_lines_that_differ_in_numbers_the_nearest_is_taken() -> None:
    assert shown_again(("...", "99 %  7.57 s"), ("5 %  7.53 s", "50 %  7.56 s", "99 %  7.58 s")) == (
        "...",
        "99 %  7.58 s",
    )
