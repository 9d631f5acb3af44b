"""A plan lists the distributions that took part in it; a check names those that are missing or of another version."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from nest import api
from nest.errors import InputError
from nest.hooks.registry import Registry
from tests.command_line import call
from tests.hooks.test_plugin_errors import NAMING, OF_KIND, PROBLEM, offering

PLAIN = {"nest-planner"}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return api.solve(PROBLEM, plugins=Registry()).to_dict()


def offered(kind: str) -> Registry:
    return Registry([offering(kind, OF_KIND[kind]())])


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["strategies", "cost_models", "collective_models", "layer_times", "schedules"])
def test_what_is_installed_but_not_used_is_not_listed(kind: str) -> None:
    plan = api.evaluate(PROBLEM, plugins=offered(kind))
    assert set(plan.plugins) == PLAIN


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["cost_models", "collective_models", "layer_times", "schedules"])
def test_what_is_used_is_listed(kind: str) -> None:
    plan = api.evaluate({**PROBLEM, **NAMING[kind]}, plugins=offered(kind))
    assert set(plan.plugins) == PLAIN | {"faulty"}
    # Another plan of the same registry is another plan.
    known = offered(kind)
    api.evaluate({**PROBLEM, **NAMING[kind]}, plugins=known)
    assert set(api.evaluate(PROBLEM, plugins=known).plugins) == PLAIN


@pytest.mark.longer
@pytest.mark.parametrize(("asked", "listed"), [({"foo": 2}, True), ({"foo": 1}, True), ({}, False)], ids=str)
def test_a_strategy_takes_part_that_splits_something_or_is_named(asked: dict[str, int], listed: bool) -> None:
    plan = api.evaluate({**PROBLEM, "fixed": asked}, plugins=offered("strategies"))
    assert ("faulty" in plan.plugins) == listed


@pytest.mark.longer
def test_an_importer_takes_part_whose_model_it_is() -> None:
    class Own(OF_KIND["model_importers"]):  # type: ignore[misc]
        def accepts(self, source: Any) -> bool:
            return False

    known = Registry([offering("model_importers", Own())])
    assert set(api.evaluate(PROBLEM, plugins=known).plugins) == PLAIN


def test_a_missing_plug_in_is_named_with_its_version_and_the_way_to_it(plain: dict[str, Any]) -> None:
    problem = {**plain["problem"], "strategies": {"ulysses": [1, 2]}}
    made = {**plain, "problem": problem, "plugins": {**plain["plugins"], "nest-ulysses": "0.3"}}
    with pytest.raises(InputError) as refused:
        api.check(made, plugins=Registry())
    first, second = str(refused.value).splitlines()
    assert first.startswith("the plan was made with nest-ulysses 0.3, which is not installed")
    assert "pip install 'nest-ulysses==0.3'" in first
    assert "no strategy called 'ulysses'" in second


@pytest.mark.longer
def test_numbers_that_a_missing_plug_in_gave_are_told_with_it() -> None:
    plan = api.evaluate({**PROBLEM, "collectives": "foo"}, plugins=offered("collective_models")).to_dict()
    other = copy.deepcopy(plan)
    del other["problem"]["collectives"]  # As if the plug-in were the default where the plan was made.
    report = api.check(other, plugins=Registry())
    assert report.disagreements[0].startswith("the plan was made with faulty, which is not installed")
    assert len(report.disagreements) > 1
    assert api.check(plan, plugins=offered("collective_models")).notes == ()


def test_another_version_is_named_though_the_plan_holds(
    plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {**plain, "plugins": {"nest-planner": "0.0.1", "nest-sharp": "7"}}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made))
    assert call(monkeypatch, "check", str(path)) == 0
    printed = capsys.readouterr()
    assert "The plan holds" in printed.out
    here = plain["plugins"]["nest-planner"]
    assert f"made with nest-planner 0.0.1; here it is {here}." in printed.err
    assert "made with nest-sharp 7, which is not installed" in printed.err
