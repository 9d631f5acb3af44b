"""Models kept: what is asked again of one is answered as without it, to the byte, and sooner."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as draw

import nest
from nest.formulate import candidates, kept_model
from nest.formulate.kept_model import KeptModel
from nest.formulate.problem import carried_problem, complete_problem
from nest.hooks.registry import registry
from nest.io import KEPT_IN, KEPT_NOWHERE, write_text
from nest.solve.dp import tables
from nest.solve.effort import Deadline
from nest.spec import LevelSpec, Problem
from nest.whatif import answer_cache
from nest.whatif.solver import Solver
from tests.formulate.conftest import DENSE, EXPERTS, NODES

Build = Callable[..., Problem]

DEEP = evolve(DENSE, layers=12)
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models alone are kept: who is told a plan that is kept needs none."""
    monkeypatch.setattr(answer_cache, "kept_plan", lambda problem, known, deadline, solve: solve())
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "cache"))
    return tmp_path / "cache"


def told(problem: Problem, **options: Any) -> str:
    """What a process answers that was asked nothing before."""
    kept_model._LATEST.clear()
    return told_next(problem, **options)


def told_next(problem: Problem, **options: Any) -> str:
    """What this process answers."""
    return json.dumps(nest.solve(problem, **options).to_dict())


def alone(problem: Problem) -> str:
    """What is answered where nothing is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEPT_IN, KEPT_NOWHERE)
        before = kept_model._LATEST.copy()
        answer = told(problem)
        kept_model._LATEST.update(before)
        return answer


@given(data=draw.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])  # What it gives keeps nothing.
def test_answers_are_those_without_it(
    data: draw.DataObject, problem: Build, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = {"model": data.draw(draw.sampled_from([DENSE, EXPERTS]), label="model"), "strategies": {"tp": (1, 2, 4)}}
    asked = data.draw(draw.lists(draw.sampled_from(CHANGES), min_size=1, max_size=3), label="asked")
    on_disk, by = data.draw(draw.booleans(), label="on disk"), data.draw(draw.booleans(), label="by one process")
    ask = told_next if by else told
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEPT_IN, str(tmp_path_factory.mktemp("cache")) if on_disk else KEPT_NOWHERE)
        if data.draw(draw.booleans(), label="many candidates"):
            for module in (candidates, kept_model):
                patch.setattr(module, "MANY", 2)
        for changes in ({}, *asked):
            changed = problem(**{**base, **changes})
            assert ask(changed) == alone(changed)


@pytest.mark.parametrize("changed", UNPRICED, ids=str)
def test_of_many_candidates_a_process_prices_each_once(
    problem: Build, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    for module in (candidates, kept_model):
        monkeypatch.setattr(module, "MANY", 2)
    answer = told(problem(**changed))
    kept_model._LATEST.clear()
    names = priced_again(monkeypatch)
    told_next(problem())
    latest = kept_model._LATEST[registry()]._formulation
    assert latest is not None
    assert latest.bounded is not None
    assert told_next(problem(**changed)) == answer
    assert len(set(names)) == len(names) > 0


def priced_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of candidates that are priced from now on, by a process that was asked nothing before."""
    kept_model._LATEST.clear()
    names, price = list[str](), candidates.candidate

    def noted(name: str, *arguments: Any, **options: Any) -> Any:
        names.append(name)
        return price(name, *arguments, **options)

    monkeypatch.setattr(candidates, "candidate", noted)
    return names


@pytest.mark.parametrize("changed", UNPRICED, ids=str)
def test_what_prices_no_layer_prices_none(
    problem: Build, folder: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    told(problem())
    names = priced_again(monkeypatch)
    told(problem(**changed))
    assert not names
    told(problem(training={"sequence_length": 256}))
    assert names


def test_the_process_keeps_the_model_asked_about_last(problem: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """On no disk."""
    told(problem())
    before = kept_model._LATEST.copy()
    names = priced_again(monkeypatch)
    kept_model._LATEST.update(before)
    told_next(problem(training={"memory_margin": 0.2}))
    plan = nest.solve(problem())
    Solver(registry()).instance(carried_problem(plan, registry()))
    told_next(problem())
    assert not names
    told_next(problem(model=EXPERTS))
    assert names
    names.clear()
    told_next(problem())
    assert names


def test_while_one_is_asked_about_another_thread_begins_anew(problem: Build) -> None:
    asked = complete_problem(problem(), registry())
    told(asked)
    one, other = (KeptModel.of_problem(asked, registry(), Deadline()) for _ in range(2))
    assert one.tables.known
    assert not other.tables.known


def test_what_the_process_keeps_is_written_where_it_is_not(problem: Build, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEPT_IN, KEPT_NOWHERE)
        told(problem())
    assert not folder.exists()
    told_next(problem())
    (path,) = folder.iterdir()
    before = path.stat().st_ino
    told_next(problem())
    assert path.stat().st_ino == before


def test_of_another_network_what_reaches_it_is_priced_anew(
    problem: Build, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(problem())
    names = priced_again(monkeypatch)
    told(problem(cluster={"levels": SLOWER}))
    assert not names
    plan = nest.solve(problem(cluster={"levels": INSIDE}))
    assert len(names) == plan.statistics["candidates"] - len({"mb1", "mb2"})
    assert {"mb1", "mb2"}.isdisjoint(names)


def test_questions_about_a_plan_begin_with_it(problem: Build, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ("constraints", "alternatives", "flips")
    plan = nest.solve(problem())
    names = priced_again(monkeypatch)
    Solver(registry()).instance(carried_problem(plan, registry()))
    assert not names
    found = nest.explain(plan, only=parts).to_dict()
    monkeypatch.delenv(KEPT_IN)
    kept_model._LATEST.clear()
    assert nest.explain(plan, only=parts).to_dict() == found


def test_tables_of_searches_are_kept(problem: Build, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(problem())
    made, make = list[object](), tables.SharedTables.__attrs_post_init__

    def noted(own: Any) -> None:
        made.append(own)
        make(own)

    monkeypatch.setattr(tables.SharedTables, "__attrs_post_init__", noted)
    told(problem(training={"memory_margin": 0.2}))
    assert not made
    told(problem(training={"global_batch": 32}))
    assert made


def numbers(key: object) -> Iterator[int]:
    """The numbers of a key."""
    if isinstance(key, tuple):
        for each in key:
            yield from numbers(each)
    elif isinstance(key, int):
        yield key


def dictionaries(value: object) -> Iterator[dict[Any, Any]]:
    """Those in a value, and it itself."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from dictionaries(each)


def test_no_key_of_a_table_is_told_by_identity(problem: Build, folder: Path) -> None:
    """A number of that size would be met by chance in another process. Those of so small a problem are small."""
    schedules = {"schedule": ("1f1b", "interleaved")}
    asked = complete_problem(problem(training=schedules, model=DEEP, constraints=("pp >= 2",)), registry())
    told(asked)
    kept_model._LATEST.clear()
    (own, *_) = KeptModel.of_problem(asked, registry(), Deadline()).tables.known
    assert "chunks" in own._by_search
    keys = [key for known in dictionaries((own.scheduled, own._by_search)) for key in known]
    assert len(keys) > 50
    assert max(max(numbers(key), default=0) for key in keys) < min(id(own), id(keys)) / 2


def test_another_process_reads_it(
    problem: Build, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another hash seed, in which nothing has the identity that it had."""
    asked, file = problem(training={"memory_margin": 0.2}), tmp_path / "problem.json"
    told(problem())
    write_text(file, json.dumps(asked.to_dict()))
    script = (
        "import json, sys, nest\n"
        "from nest.formulate import candidates\n"
        "candidates.candidate = None\n"
        "print(json.dumps(nest.solve(sys.argv[1]).to_dict()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.delenv(KEPT_IN)
    assert done.stdout.strip() == json.dumps(nest.solve(file).to_dict())


def test_graphs_are_read_when_they_are_asked_for(problem: Build, folder: Path) -> None:
    asked = complete_problem(problem(), registry())
    told(asked)
    new = kept_model._LATEST[registry()]._formulation
    kept_model._LATEST.clear()
    read = KeptModel.of_problem(asked, registry(), Deadline())._formulation
    assert new is not None
    assert read is not None
    for block, its in zip(new.sharded, read.sharded, strict=True):
        assert (its.width, its.degrees, its.called) == (block.width, block.degrees, block.called)
        assert "graph" not in vars(its)
        assert evolve(its) == its == block


def test_what_is_damaged_is_made_again(problem: Build, folder: Path) -> None:
    new = told(problem())
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    assert told(problem()) == new


@pytest.mark.parametrize("changed", [{}, {"cluster": {"levels": INSIDE}}, {"training": {"global_batch": 32}}], ids=str)
def test_what_is_there_is_not_written_again(problem: Build, folder: Path, changed: dict[str, Any]) -> None:
    told(problem())
    (path,) = folder.iterdir()
    before = path.stat().st_ino
    told(problem(**changed))
    assert [each.stat().st_ino for each in folder.iterdir()] == [before]


def test_another_model_and_other_candidates_are_written(problem: Build, folder: Path) -> None:
    told(problem())
    (path,) = folder.iterdir()
    before = path.stat().st_ino
    told(problem(strategies={"tp": (1, 2)}))
    assert path.stat().st_ino != before
    told(problem(model=EXPERTS))
    assert len(list(folder.iterdir())) == 2


def test_kinds_of_tables_that_are_lacking_are_written(problem: Build, folder: Path) -> None:
    """Those of a problem without a plan lack what plans are made with."""
    told(problem(cluster={"memory": 1e5}))
    (path,) = folder.iterdir()
    before = path.stat().st_size
    told(problem())
    assert path.stat().st_size > before


def test_nothing_is_kept_with_plug_ins_a_time_limit_or_a_profile(
    problem: Build, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(problem(), time_limit=60)
    nest.solve("examples/measured-layers/problem.yaml")
    assert not folder.exists()
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("NEST_PLUGINS", str(tmp_path / "mine.py"))
    told(problem())
    assert not folder.exists()


def test_searches_that_say_what_they_left_out_are_not_kept(problem: Build, folder: Path) -> None:
    """Later ones would say it, too, whether they leave it out or not."""
    asked = complete_problem(problem(), registry())
    told(problem())
    known = KeptModel.of_problem(asked, registry(), Deadline()).tables
    assert known.lasting().known == known.known
    known.known[0].splits.even_only = True
    assert known.lasting().known == known.known[1:]
