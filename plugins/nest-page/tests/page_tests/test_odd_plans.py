"""Plans that a file may well hold: written by an older nest, piped in, tampered with, or hardly searched."""

import json
import os
import re

import html5lib
import pytest

import nest
from nest import api
from nest.errors import InputError
from nest_page.page_of_plan import PARTS
from page_tests.plans import LEVELS, decided, problem, quick, solved
from page_tests.reading import Page
from tests.measured import profile


@pytest.mark.longer
def test_a_pipe_is_read_once() -> None:
    out, into = os.pipe()
    with os.fdopen(into, "w") as stream:  # A plan is shorter than what a pipe holds.
        json.dump(decided().to_dict(), stream)
    try:
        assert nest.report_page(f"/dev/fd/{out}", without=PARTS) == quick(decided())
    finally:
        os.close(out)


@pytest.mark.longer
def test_a_plan_that_says_two_things_has_no_page() -> None:
    with pytest.raises(InputError, match="fails its check"):
        nest.report_page({**solved().to_dict(), "status": "infeasible"})


@pytest.mark.longer
def test_a_batch_of_no_time_has_a_whole_page() -> None:
    state = {key: [1e9] for key in ("weights", "gradients", "optimizer")}
    plan = api.solve(
        {
            "nest": 1,
            "profile": profile([0.0], [0.0], state=state, kept={"first": [1e9], "more": [1e9]}),
            "training": {"global_batch": 4},
            "cluster": {"levels": [{"name": "node", "fanout": 2, "bandwidth": 1e9}], "memory": 1e12},
        }
    )
    assert plan.batch_time == 0
    assert Page(nest.report_page(plan)).facts["Step time"].value == 0


@pytest.mark.longer
@pytest.mark.parametrize("name", ["bell \x07", "null \x00", "escape \x1b[31m", "none \ufffe \U0010ffff", "c1 \x9b"])
def test_characters_that_html_must_not_hold_are_replaced(name: str) -> None:
    levels = [{**level, "name": name} for level in LEVELS]
    text = quick(api.evaluate(problem(cluster={"device": "h100-sxm", "levels": levels}), fix={"tp": 2, "pp": 4}))
    html5lib.HTMLParser(strict=True).parse(text)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\U0010ffff]", text)
    assert f"{name.split()[0]} \ufffd" in text
