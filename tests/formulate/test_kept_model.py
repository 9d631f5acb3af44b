"""Models kept: what is asked again of one is answered as without it, to the byte, and sooner."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as draw

import nest
from nest.formulate import candidates, kept_model
from nest.formulate.kept_model import LASTING, KeptModel
from nest.formulate.problem import complete_problem
from nest.hooks.registry import Registry, registry
from nest.solve.effort import Deadline
from nest.spec import LevelSpec, Problem
from tests.formulate.conftest import DENSE, EXPERTS, NODES

Build = Callable[..., Problem]

SLOWER = (NODES[0], evolve(NODES[1], bandwidth=10e9))
INSIDE = (evolve(NODES[0], bandwidth=100e9), NODES[1])
UNPRICED: list[dict[str, Any]] = [
    {},
    {"constraints": ("pp <= 2",)},
    {"cluster": {"memory": 1e9}},
    {"training": {"memory_margin": 0.2}},
    {"training": {"global_batch": 32}},
    {"training": {"schedule": ("1f1b", "zero-bubble")}},
]
CHANGES: list[dict[str, Any]] = [
    *UNPRICED,
    {"cluster": {"memory": 1e5}},
    {"cluster": {"levels": SLOWER}},
    {"cluster": {"levels": INSIDE}},
    {"cluster": {"levels": (evolve(NODES[0], fanout=4), evolve(NODES[1], fanout=4))}},
    {"cluster": {"levels": (LevelSpec(fanout=16, bandwidth=50e9, latency=1e-6),)}},  # type: ignore[arg-type]
    {"training": {"micro_batch": (2,)}},
    {"strategies": {"tp": (1, 2)}},
    {"training": {"sequence_length": 256}},
]


@pytest.fixture(autouse=True)
def _only_stated_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other values of unknown facts formulate problems of their own."""
    monkeypatch.setattr("nest.documents.unknown._facts", lambda *_: ())


def told(problem: Problem, **options: Any) -> str:
    """What a process answers that was asked nothing before."""
    registry().take(LASTING)
    return told_next(problem, **options)


def kept(known: Registry) -> KeptModel:
    """What a registry keeps of the model asked about last."""
    model: KeptModel = known.take(LASTING)
    known.keep(LASTING, model)
    return model


def told_next(problem: Problem, **options: Any) -> str:
    """What this process answers."""
    return json.dumps(nest.solve(problem, **options).to_dict())


def alone(problem: Problem) -> str:
    """What is answered where nothing is kept."""
    before = registry().take(LASTING)
    answer = told(problem)
    registry().keep(LASTING, before)
    return answer


@pytest.mark.longer
@given(data=draw.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])  # What it gives keeps nothing.
def test_answers_are_those_without_it(data: draw.DataObject, problem: Build) -> None:
    base = {"model": data.draw(draw.sampled_from([DENSE, EXPERTS]), label="model"), "strategies": {"tp": (1, 2, 4)}}
    asked = data.draw(draw.lists(draw.sampled_from(CHANGES), min_size=1, max_size=3), label="asked")
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(draw.booleans(), label="many candidates"):
            for module in (candidates, kept_model):
                patch.setattr(module, "MANY", 2)
        for changes in ({}, *asked):
            changed = problem(**{**base, **changes})
            assert told_next(changed) == alone(changed)


@pytest.mark.longer
@pytest.mark.parametrize("changed", UNPRICED, ids=str)
def test_of_many_candidates_a_process_prices_each_once(
    problem: Build, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    known = {"training": {"unknown": {}}}  # Other values are priced on their own.
    for module in (candidates, kept_model):
        monkeypatch.setattr(module, "MANY", 2)
    answer = told(problem(**{**changed, "training": {**changed.get("training", {}), **known["training"]}}))
    registry().take(LASTING)
    names = priced_again(monkeypatch)
    told_next(problem(**known))
    latest = kept(registry())._formulation
    assert latest is not None
    assert latest.bounded is not None
    assert told_next(problem(**{**changed, "training": {**changed.get("training", {}), **known["training"]}})) == answer
    assert len(set(names)) == len(names) > 0


def priced_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of candidates that are priced from now on."""
    names, price = list[str](), candidates.candidate

    def noted(name: str, *arguments: Any, **options: Any) -> Any:
        names.append(name)
        return price(name, *arguments, **options)

    monkeypatch.setattr(candidates, "candidate", noted)
    return names


@pytest.mark.longer
def test_while_one_is_asked_about_another_thread_begins_anew(problem: Build) -> None:
    asked = complete_problem(problem(), registry())
    told(asked)
    one, other = (KeptModel.of_problem(asked, registry(), Deadline()) for _ in range(2))
    assert one.tables.known
    assert not other.tables.known


def test_other_blocks_are_priced_anew(problem: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    told(problem())
    names = priced_again(monkeypatch)
    changed = problem(strategies={"tp": (1, 2)})
    assert told_next(changed) == alone(changed)
    assert names


@pytest.mark.longer
def test_nothing_is_kept_with_plug_ins_a_time_limit_or_a_profile(
    problem: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(problem(), time_limit=60)
    nest.solve("examples/measured-layers/problem.yaml")
    assert registry().take(LASTING) is None
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("NEST_PLUGINS", str(tmp_path / "mine.py"))
    told(problem())
    assert registry().take(LASTING) is None


def test_searches_that_say_what_they_left_out_are_not_kept(problem: Build) -> None:
    """Later ones would say it, too, whether they leave it out or not."""
    asked = complete_problem(problem(), registry())
    told(problem())
    known = KeptModel.of_problem(asked, registry(), Deadline()).tables
    assert known.lasting().known == known.known
    known.known[0].splits.even_only = True
    assert known.lasting().known == known.known[1:]
