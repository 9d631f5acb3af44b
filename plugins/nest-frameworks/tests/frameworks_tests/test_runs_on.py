"""`runs_on` names the exporters that write a plan's files: each is asked. Nothing is said where a plan does not fit."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve

import nest
from frameworks_tests.plans import DENSE, plan, problem
from nest import api
from nest.deployment import Limits
from nest.errors import InputError
from nest.formulate.model import load_model
from nest.formulate.target import reasons, runs_on
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.io import unstructure
from nest.report.text.summary import summary
from nest.spec import PlanDocument, Problem, Training
from nest_frameworks import pipeline_actions
from page_tests.plans import quick
from page_tests.reading import Page

SENTENCE = "Exporters:"


def captured() -> dict[str, Any]:
    """A small Llama as an operator graph with layers of the names that a captured module has."""
    graph = load_model({"transformer": dict(DENSE)}, Training(1, 32), registry())
    renamed: dict[str, Any] = json.loads(json.dumps(unstructure(graph)).replace("layers.", "model.layers."))
    return renamed


def exporters_of(document: PlanDocument) -> tuple[str, ...]:
    taken = []
    for name, exporter in sorted(registry().exporters().items()):
        if hasattr(exporter, "limits"):
            with suppress(InputError):
                api.exported(document, (name,))
                taken.append(name)
    return tuple(taken)


@pytest.mark.longer
@pytest.mark.parametrize("fixed", [{}, {"pp": 2, "dp": 2}, {"dp": 4, "zero": 3}])
def test_a_captured_model_is_exported_to_what_is_named(fixed: dict[str, Any]) -> None:
    asked = {
        "nest": 1,
        "model": captured(),
        "training": {"global_batch": 8, "sequence_length": 32, "micro_batch": [1]},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
    }
    found = nest.evaluate(asked, fix=fixed) if fixed else nest.solve(asked)
    assert found.runs_on == exporters_of(found)
    assert "pytorch" in found.runs_on
    assert "accelerate" not in found.runs_on
    assert f"{SENTENCE} pytorch." in summary(found) or found.lower_bound is None
    assert not api.check({**found.to_dict(), "runs_on": ["accelerate"]}).ok


class Wordless:
    """An exporter that has no words for plans of several stages, which its limits allow."""

    name = "wordless"

    def limits(self, problem: Problem) -> Limits:
        return Limits()

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        if len(plan.stages) > 1:
            raise InputError("there is no word for stages.")
        return {"words.txt": "one stage"}


class Quick(Wordless):
    """One that says so itself, without writing."""

    def refuse(self, plan: PlanDocument) -> None:
        Wordless.export(self, plan)

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        raise AssertionError("nobody asked for files")


class Offering:
    """A plug-in with one exporter."""

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter

    @hook
    def nest_exporters(self) -> list[Any]:
        return [self.exporter]


def known(exporter: Any) -> Registry:
    return registry(extra=[Offering(exporter)])


@pytest.mark.longer
@pytest.mark.parametrize("exporter", [Wordless(), Quick()])
def test_exporters_of_plug_ins_are_asked(exporter: Any) -> None:
    one, two = plan({"dp": 16}), plan({"pp": 2, "dp": 8})
    assert "wordless" in runs_on(one, known(exporter))
    assert "wordless" not in runs_on(two, known(exporter))
    assert reasons(two, known(exporter))["wordless"] == ("there is no word for stages",)
    assert "wordless" in (nest.evaluate(problem({"dp": 16}), plugins=known(exporter)).runs_on or ())


@pytest.mark.longer
@pytest.mark.parametrize("name", ["pytorch", "torchtitan"])
def test_long_files_are_not_written_for_a_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = plan({"pp": 4, "dp": 4, "zero": 1, "schedule": "gpipe"})
    assert pipeline_actions.SCHEDULE_FILE in registry().exporters()[name].export(document)
    monkeypatch.setattr(pipeline_actions, "orders", lambda _: pytest.fail("the file was written"))
    assert name in runs_on(document, registry())


def test_plans_that_fit_can_be_exported() -> None:
    fits = plan({"tp": 4, "sp": True, "dp": 4})
    assert SENTENCE in Page(quick(fits)).text
    assert SENTENCE in summary(evolve(fits, status="optimal", lower_bound=fits.batch_time))
    none = evolve(fits, status="optimal", lower_bound=fits.batch_time, runs_on=())
    assert "No framework can run this plan" in summary(none)
