"""Launch files are those that `nest export` writes; what cannot run a plan says why."""

import pytest

from nest import api
from nest_page.sections import LONGEST
from page_tests.plans import decided, quick
from page_tests.reading import Page


@pytest.mark.longer
def test_flags_are_the_exporters() -> None:
    plan = decided(zero=1, sp=True)
    (text, *_) = api.exported(plan, ("megatron",)).files.values()
    assert Page(quick(plan)).listings[0] == text


def test_launchers_start_the_ranks_of_the_framework() -> None:
    plan = decided(zero=1, sp=True, rank_order="pp-inner")
    listings = Page(quick(plan)).listings
    together = api.exported(plan, ("megatron", "torchrun", "slurm")).files
    assert {text for text in together.values() if len(text) <= LONGEST} <= set(listings)
