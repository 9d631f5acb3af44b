"""Launch files are those that `nest export` writes; what cannot run a plan says why."""

import pytest

from nest import api
from nest.formulate.target import reasons
from nest.hooks.registry import registry
from nest_page.sections import LONGEST
from page_tests.plans import decided, quick, solved
from page_tests.reading import Page


def test_flags_are_the_exporters() -> None:
    plan = decided(zero=1, sp=True)
    (text, *_) = api.exported(plan, ("megatron",)).files.values()
    assert Page(quick(plan)).listings[0] == text


def test_launchers_start_the_ranks_of_the_framework() -> None:
    plan = decided(zero=1, sp=True, rank_order="pp-inner")
    listings = Page(quick(plan)).listings
    together = api.exported(plan, ("megatron", "torchrun", "slurm")).files
    assert {text for text in together.values() if len(text) <= LONGEST} <= set(listings)


@pytest.mark.longer
def test_every_framework_is_there_or_says_why_not() -> None:
    for plan in (solved(), decided(), decided(zero=1, sp=True)):
        page = Page(quick(plan))
        against = reasons(plan, registry())
        refused = [table for table in page.tables if table.caption == "Frameworks that cannot run this plan"]
        told = {row[0].text: row[1].text for table in refused for row in table.rows}
        assert {name for name, why in against.items() if why} <= set(told)
        for name, why in against.items():
            if why:
                assert told[name] == "; ".join(why).replace("`", "")
            elif name not in told:
                files = api.exported(plan, (name,)).files.values()
                assert {text for text in files if len(text) <= LONGEST} <= set(page.listings)


def test_a_plan_of_measured_layers_has_a_page() -> None:
    from tests.simulate.uniform_plans import uniform_plan

    page = Page(quick(uniform_plan(2, "1f1b")))
    assert "Launch" in page.text
