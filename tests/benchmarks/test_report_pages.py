"""The measurement of report pages: what it calls too large or too slow, and how it tells it."""

from attrs import evolve

from benchmarks.report.measure import Page
from benchmarks.report.table import HEADINGS, broken, table

GOOD = Page(
    name="good", devices=1024, stages=4, micro_batches=32, size=200_000, elements=2000, writing=50.0, first_paint=0.1,
    shown=0.2, whole=2.0, phone=9.0,
)  # fmt: skip


def test_limits_are_those_of_a_thousand_devices() -> None:
    assert list(broken(GOOD)) == []
    assert len(list(broken(evolve(GOOD, size=3_000_000)))) == 1
    assert len(list(broken(evolve(GOOD, shown=2.1, whole=2.2)))) == 2
    assert list(broken(evolve(GOOD, devices=2048, size=10**9, shown=60.0))) == []


def test_columns_of_the_table_align() -> None:
    lines = table([GOOD, evolve(GOOD, name="a longer name", size=12_345_678)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}
    assert "12,346 kB" in lines[-1]
