"""The page as a whole: valid, self-contained, accessible, the same bytes again, true to the plan."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import date
from itertools import pairwise
from typing import Any

import html5lib
import pytest
from attrs import evolve

from nest import api
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from nest_page.headline import about, headline, in_words, plan_status
from nest_page.page_of_plan import PARTS, subject
from nest_page.svg import WIDTHS
from nest_page.verbs import report_page
from page_tests.plans import decided, infeasible, problem, quick, solved
from page_tests.reading import Page
from tests.measured import profile
from tests.simulate.uniform_plans import uniform_plan

PLANS = {"solved": solved, "decided": decided, "infeasible": infeasible}


@pytest.fixture(scope="module", params=sorted(PLANS))
def text(request: pytest.FixtureRequest) -> str:
    return quick(PLANS[request.param]())


@pytest.mark.longer
def test_page_is_valid_html(text: str) -> None:
    html5lib.HTMLParser(strict=True).parse(text)


def test_nothing_is_loaded_and_nothing_runs(text: str) -> None:
    tags = Page(text).tags
    assert not {name for name, _ in tags} & {"script", "img", "iframe", "object", "embed", "video", "audio", "form"}
    for name, told in tags:
        assert not [key for key in told if key.startswith("on") or key == "style"], (name, told)
        for key in ("src", "href", "xlink:href", "srcset", "action"):
            assert (told.get(key) or "#").startswith(("#", "data:,")), (name, told)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert not re.search(r"@import|https?:|url\((?!#)", style[1])


def test_the_policy_allows_the_one_style_only(text: str) -> None:
    (policy,) = (told for name, told in Page(text).tags if told.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    allowed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{allowed}'" in (policy["content"] or "")
    assert (policy["content"] or "").startswith("default-src 'none';")


def test_page_can_be_read_without_seeing_it(text: str) -> None:
    tags = Page(text).tags
    names = Counter(name for name, _ in tags)
    assert names["h1"] == 1
    assert names["main"] == 1
    assert next(told for name, told in tags if name == "html")["lang"] == "en"
    headings = [int(name[1]) for name, _ in tags if re.fullmatch(r"h[1-6]", name)]
    assert headings[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(headings))
    identities = Counter(told["id"] for _, told in tags if "id" in told)
    assert max(identities.values()) == 1
    for _, told in tags:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set((told.get(key) or "").split()) <= set(identities), told
        if (told.get("href") or "").startswith("#"):
            assert (told["href"] or "")[1:] in identities
    for name, told in tags:
        if name == "svg" and told.get("aria-hidden") != "true":
            assert told["role"] == "img"
            assert len((told["aria-labelledby"] or "").split()) == 2
        if name == "th":
            assert told["scope"] in ("row", "col")


def test_a_figure_has_a_caption_and_a_table(text: str) -> None:
    for figure in re.findall(r"<figure.*?</details>", text, re.DOTALL):
        assert figure.count("<figcaption>") == 1
        assert figure.count("<figure") == 1
        assert "<table>" in figure
        assert "<desc" in figure
    assert text.count("<figure") == text.count("The same as a table")


def test_a_phone_scrolls_tables_not_the_page(text: str) -> None:
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    wide = re.findall("<table", text)
    boxed = re.findall(r'<div class="scroll" tabindex="0" role="group"[^>]*>\s*<table', text)
    assert len(wide) == len(boxed)
    assert ".scroll{overflow-x:auto" in text


def test_every_figure_is_drawn_for_every_screen(text: str) -> None:
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        sizes = re.split(r'<div class="at-[0-9]">', figure)[1:]
        assert len(sizes) == len(WIDTHS)
        for width, size in zip(WIDTHS, sizes, strict=True):
            drawn = [float(each) for each in re.findall(r'<svg class="drawing" role="img" width="([0-9.]+)"', size)]
            assert drawn
            assert max(drawn) <= width


@pytest.mark.longer
def test_same_plan_same_bytes(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(solved().to_dict()))
    script = "import sys; from page_tests.plans import quick; sys.stdout.write(quick(sys.argv[1]))"
    page = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    ).stdout
    assert page == quick(solved()).encode()


def test_tokens_a_day_are_those_of_all_devices() -> None:
    plan = decided()
    (fact,) = [fact for fact in headline(subject(plan, registry())).facts if fact.name.startswith("Tokens per second")]
    assert fact.note == f"{in_words(plan.summary['tokens_per_second'] * 86400)} a day in all"
    assert plan.summary["tokens_per_second"] > (fact.cell.value or 0.0)


@pytest.mark.longer
def test_names_are_text_whoever_wrote_them() -> None:
    nasty = "<script>alert(1)</script>\"'&`x`"
    levels = [{"name": nasty, "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"}]
    measured = profile([0.1, 0.1], [0.2, 0.2], state={"weights": [1, 1]}, sent=5, name=nasty)
    measured["layers"] = [f"{nasty}{index}" for index in range(2)]
    (only,) = measured["candidates"]
    only["state"] = {nasty: only["state"]["dense"]}
    hosts = [f"{nasty}{index}" for index in range(4)]
    cluster = {"levels": levels, "memory": 1e9, "hosts": hosts, "devices_per_host": 2}
    asked = {"nest": 1, "profile": measured, "training": {"global_batch": 8}, "cluster": cluster}
    text = quick(api.solve({**asked, "constraints": ["pp == 2"]}))
    html5lib.HTMLParser(strict=True).parse(text)
    page = Page(text)
    assert "script" not in {name for name, _ in page.tags}
    assert "<script" not in text
    assert nasty.replace("`x`", "x") in page.text


def test_an_infeasible_plan_says_why_and_is_not_told_to_be_made_faster() -> None:
    page = Page(quick(infeasible()))
    assert (infeasible().diagnosis or "?").replace("`", "") in page.text.replace("\n", " ")
    assert "Infeasible" in page.text
    assert "nest explain PLAN" in page.text
    assert not [words for words in ("nest verify", "faster", "data-value") if words in page.text]


def test_an_optimum_is_one_of_what_its_target_can_run() -> None:
    plan = solved()
    search = {**plan.problem["search"], "target": "none"}
    free = evolve(plan, problem={**plan.problem, "search": search})
    assert plan_status(free).proof == "No plan of this problem is faster."
    aimed = evolve(plan, problem={**plan.problem, "search": {**search, "target": "megatron"}})
    assert plan_status(aimed).proof == "No plan that megatron can run is faster."


@pytest.mark.parametrize(("within", "name"), [(None, "Simplest within 1 %"), (0.025, "Simplest within 2.5 %")])
def test_the_simplest_plan_near_the_fastest_was_not_stopped(within: float | None, name: str) -> None:
    plan = solved()
    assert plan.batch_time is not None
    asked = {**plan.problem, "search": {**plan.problem["search"], "within": within}}
    simple = evolve(plan, problem=asked, status="near-optimal", lower_bound=plan.batch_time / 1.005)
    assert (plan_status(simple).name, plan_status(simple).style) == (name, "good")
    assert plan_status(evolve(simple, status="feasible")).name == "Feasible"


def top_of(plan: PlanDocument) -> str:
    """What stands above the sections of a plan's page."""
    return Page(quick(plan).partition("<nav")[0]).text


@pytest.mark.longer
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "megatron-core: DP, TP and PP (interleaved) communication overlaps with compute. Precision bf16"),
        ({"constraints": ["pp == 2"], "strategies": {"tp": [2]}}, "Only plans with pp == 2, tp 2."),
        ({"cluster": {**problem()["cluster"], "reserve": 2.0**31}}, "2 GiB of each device stays free."),
    ],
)
def test_assumptions_stand_on_top(changes: dict[str, Any], said: str) -> None:
    (_, (_, assumed)) = about(evolve(solved(), problem={**solved().problem, **changes}))
    assert said in assumed.replace("`", "")
    assert (assumed in top_of(solved())) == (not changes)


def test_a_profile_is_what_the_prediction_assumes() -> None:
    assert "Times and memory of layers come from the profile." in top_of(uniform_plan(3, "1f1b"))


@pytest.mark.longer
def test_a_page_has_the_date_it_is_given_and_no_other() -> None:
    dated = report_page(solved(), without=PARTS, date=date(2026, 1, 31))
    assert "<time" not in quick(solved())
    assert dated.replace(', <time datetime="2026-01-31">2026-01-31</time>', "") == quick(solved())
