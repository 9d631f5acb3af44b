"""Quantities: every unit, every refusal, and numbers that come back as they were written."""

import math
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.units import (
    LARGEST,
    QUANTITIES,
    SMALLEST,
    Bytes,
    BytesPerSecond,
    Count,
    FlopPerSecond,
    Positions,
    Seconds,
    count_pattern,
    displayed,
    format_bytes,
    format_decimal,
    format_seconds,
    parse,
    parse_count,
    percent,
    three_digits,
    whole_number,
)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("450 GB/s", BytesPerSecond, 450e9),
        ("400 Gbit/s", BytesPerSecond, 50e9),
        ("400 Gb/s", BytesPerSecond, 50e9),
        ("1 GiB/s", BytesPerSecond, 2**30),
        ("3 us", Seconds, 3e-6),
        ("3 µs", Seconds, 3e-6),  # the micro sign
        ("3 μs", Seconds, 3e-6),  # the Greek letter
        ("80 GiB", Bytes, 80 * 2**30),
        ("  1.5e3\tkB ", Bytes, 1.5e6),
        ("12", Bytes, 12.0),
        (".5 TiB", Bytes, 2**39),
        ("989.4 TFLOP/s", FlopPerSecond, 989.4e12),
        ("-3 s", Seconds, -3.0),
        (7, Seconds, 7.0),
        (0, Bytes, 0.0),
    ],
)
def test_what_is_written_is_read(text: object, kind: object, value: float) -> None:
    assert parse(text, kind) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("450 GiB", BytesPerSecond, "has the unit 'GiB', not a unit of a bandwidth"),
        ("3 parsecs", Seconds, "has the unit 'parsecs', not a unit of a time"),
        ("450 gb/s", BytesPerSecond, "has the unit 'gb/s'"),
        ("nan GB/s", BytesPerSecond, "must be a bandwidth"),
        ("1e999 B", Bytes, "must be a finite number"),
        ("1,5 GB", Bytes, "must be a size"),
        ("1_000", Bytes, "unit '_000'"),
        ("", Bytes, "must be a size"),
        ("٣ GB", Bytes, "must be a size"),  # a digit, but no decimal point goes with it
        (math.nan, Bytes, "must be a finite number"),
        (10**400, Bytes, "must be a finite number, is a very large number"),
        (1e31, Bytes, "must be 0 or from 1e-30 to 1e"),
        ("1e-300 GB", Bytes, "must be 0 or from 1e-30 to 1e"),
        (True, Bytes, "must be a size.*is true"),
        ([1], Bytes, "must be a size.*is a list"),
        ("1" * 200_000 + " a b", Bytes, r"must be a size.{0,200}\.\.\.$"),
        ("1 " + "x" * 200_000, Bytes, r"has the unit .{0,200}\.\.\., not"),
    ],
)
def test_what_is_no_quantity_is_refused(value: object, kind: object, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        parse(value, kind)
    assert len(str(error.value)) < 300


numbers = st.floats(min_value=1e-10, max_value=1e10, allow_nan=False)


@given(st.sampled_from(sorted(QUANTITIES, key=str)), numbers, st.data())
def test_every_unit_scales_the_number(kind: Any, number: float, data: st.DataObject) -> None:
    unit, factor = data.draw(st.sampled_from(sorted(QUANTITIES[kind].units.items())))
    expected = number * factor
    for text in (f"{number!r} {unit}", f"{number!r}{unit}", f" {number!r}  {unit} "):
        assert parse(text, kind) == expected
    assert parse(-number, kind) == -number


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    for kind in QUANTITIES:
        with suppress(ValueError):
            found = parse(text, kind)
            assert found == 0 or SMALLEST <= abs(found) <= LARGEST


@given(st.floats(min_value=1e-9, max_value=1e7))
def test_seconds_people_read_are_the_seconds(seconds: float) -> None:
    assert parse(format_seconds(seconds).replace(",", ""), Seconds) == pytest.approx(seconds, rel=6e-3)


@given(st.floats(min_value=1, max_value=1e18))
def test_bytes_people_read_are_the_bytes(size: float) -> None:
    assert parse(format_bytes(size).replace(",", ""), Bytes) == pytest.approx(size, rel=6e-3)


def test_nothing_has_no_unit_to_choose() -> None:
    assert (format_seconds(0), format_bytes(0)) == ("0 s", "0 B")
    assert (format_seconds(90 * 60), format_seconds(48 * 3600)) == ("90 min", "48 h")
    assert (format_seconds(150 * 60), format_seconds(60 * 3600)) == ("2.50 h", "2.50 days")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("8k", Positions, 8192),
        ("1M", Positions, 1048576),
        ("0.5 k", Positions, 512),
        ("8k", Count, 8000),
        ("8Ki", Count, 8192),
        ("15T", Count, 15 * 10**12),
        ("1.5e2B", Count, 150 * 10**9),
        ("4.35k", Count, 4350),
    ],
)
def test_counts_with_a_suffix(text: str, kind: object, value: int) -> None:
    assert parse_count(text, kind) == value
    assert re.fullmatch(count_pattern(kind), text)


@pytest.mark.parametrize(("text", "count"), [("15e12", 15 * 10**12), ("1.5E13", 15 * 10**12), ("15T", 15 * 10**12)])
def test_counts_may_have_a_power_of_ten(text: str, count: int) -> None:
    assert parse_count(text, Count) == count
    assert re.fullmatch(count_pattern(Count), text)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("8", Count, "must be a whole number, is '8'"),
        ("8 kB", Count, "must be a whole number, is '8 kB'"),
        ("1T", Positions, "must be a whole number, is '1T'"),
        ("0.3k", Positions, "is '0.3k', which makes 307.2"),
        ("1e999999999k", Count, "too large"),
        ("", Count, "must be a whole number"),
    ],
)
def test_what_is_no_count_is_refused(text: str, kind: object, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_count(text, kind)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1\x1c", "1\n", "1_0", "²", "٣", "1.0", "9" * 10, "9" * 5000])
def test_whole_numbers_are_up_to_nine_digits_alone(text: str) -> None:
    assert whole_number(text) is None
    assert [whole_number(each) for each in ("0", "08", "9" * 9)] == [0, 8, 999_999_999]


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("400G", BytesPerSecond, "did you mean GB/s or GiB/s or Gbit/s?"),
        ("450 GBps", BytesPerSecond, "did you mean GB/s or Gb/s?"),
        ("450 Gb", BytesPerSecond, "did you mean Gb/s or GB/s?"),
        ("400 Gbits/s", BytesPerSecond, "did you mean Gbit/s?"),
        ("5 mins", Seconds, "did you mean min?"),
        ("5 parsecs", Seconds, "use ns, us, ms, s, min, h, d"),
    ],
)
def test_the_unit_that_was_meant_is_offered(text: str, kind: object, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse(text, kind)


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "nothing"), (True, "true"), ({}, "a mapping"), ((), "a list"), (10**4000, "a very large number"), (3, "3")],
)
def test_values_in_messages_are_short(value: object, told: str) -> None:
    assert displayed(value) == told
    assert len(displayed("x" * 1000)) <= 60


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (59.03, "59.0"),
        (59.96, "60.0"),
        (9.996, "10.0"),
        (999.6, "1,000"),
        (1110.26, "1,110"),
        (0.3124, "0.312"),
        (-2.0, "-2"),
        (0.0, "0"),
        (1e-4, "0.000100"),
    ],
)
def test_three_significant_digits_are_shown_in_full(value: float, told: str) -> None:
    assert three_digits(value) == told


def test_figures_of_a_screen_have_three_digits() -> None:
    assert (format_seconds(59.03), format_seconds(86400.0 * 30)) == ("59.0 s", "30 days")
    assert format_bytes(65.83 * 2**30) == "65.8 GiB"
    assert (percent(0.00312), percent(0.793, 0)) == ("0.3 %", "79 %")
    assert (percent(0.00031), percent(1e-6), percent(0.0)) == ("0.03 %", "under 0.01 %", "0.0 %")
    assert (format_seconds(0.99961), format_seconds(9.9996e-4), format_seconds(-0.9999)) == (
        "1.00 s",
        "1.00 ms",
        "-1.00 s",
    )
    assert (format_bytes(2.0**30 - 1), format_bytes(1020 * 2.0**20)) == ("1.00 GiB", "1,020 MiB")
    assert format_decimal(999.96e9, "B/s") == "1 TB/s"
    assert (format_bytes(80 * 2.0**30), format_seconds(1.5)) == ("80 GiB", "1.50 s")
