"""`nest evaluate` reads what it does not need: broken constraints and unknown names are refused, violations named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.cli import app
from nest.cli.evaluate import _compared
from nest.errors import InputError
from tests.plan.test_check import PROBLEM

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["nest", *arguments])
        with pytest.raises(SystemExit) as stop:
            app.main()
        printed = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, printed.out, printed.err

    return call


def asked(*constraints: str, **fixed: Any) -> dict[str, Any]:
    return {**PROBLEM, "constraints": list(constraints), "fixed": fixed}


def written(folder: Path, problem: dict[str, Any]) -> str:
    path = folder / "problem.json"
    path.write_text(json.dumps(problem, indent=1))
    return str(path)


@pytest.mark.parametrize(
    ("constraint", "held", "broken"),
    [
        ("pp <= 2", {"pp": 2}, {"pp": 4}),
        ("zero == 1", {"pp": 2, "zero": 1}, {"pp": 2}),
        ("devices == 4", {"pp": 2, "replicas": 2}, {"pp": 2, "replicas": 1}),
        ('same_stage("a", "b")', {"pp": 2}, {"pp": 4}),
        ('rank_order == "pp-inner"', {"rank_order": "pp-inner"}, {}),
    ],
)
def test_a_constraint_that_does_not_hold_is_named(
    constraint: str, held: dict[str, Any], broken: dict[str, Any]
) -> None:
    assert nest.evaluate(asked(constraint, **held)).violates == ()
    plan = nest.evaluate(asked(constraint, "pp >= 1", **broken))
    assert plan.violates == (constraint,)
    assert nest.check(plan.to_dict()).ok


def test_standard_error_names_what_does_not_hold(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, asked("pp <= 2", "zero == 0", "micro_batches == 3", pp=4))
    code, out, err = run("evaluate", path, "--json")
    assert code == 0
    assert json.loads(out)["violates"] == ["pp <= 2", "micro_batches == 3"]
    assert [line for line in err.splitlines() if "`pp <= 2`" in line and path in line and "warning" in line]
    assert "zero == 0" not in err
    assert "Constraint violated: pp <= 2" in run("evaluate", path)[1]


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        ("pp <=", "is not an expression"),
        ("ppp <= 2", "Did you mean 'pp'"),
        ('same_stage("a", "bb")', "no layer called 'bb'"),
        ("uniform(zro)", "uniform takes one of"),
        ("1 / (pp - 4) > 0", "cannot be computed: division by zero"),
        ('pp < "x"', "cannot be computed"),
    ],
)
def test_a_broken_constraint_is_refused_with_its_place(run: Run, tmp_path: Path, constraint: str, told: str) -> None:
    path = written(tmp_path, asked("pp >= 1", constraint, pp=4))
    line = Path(path).read_text().splitlines().index(f"  {json.dumps(constraint)}") + 1
    code, out, err = run("evaluate", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"nest: {path}:{line}: constraints[1]")
    assert told in err


@pytest.mark.parametrize(
    ("section", "name", "listed", "fixed", "told"),
    [
        ("training", "schedule", ["1f1b", "gpip"], {}, "no schedule called 'gpip'. Did you mean 'gpipe'"),
        ("training", "schedule", ["1f1b", "gpip"], {"schedule": "1f1b"}, "no schedule called 'gpip'"),
        ("search", "recompute", ["none", "nome"], {}, "no recompute mode called 'nome'. Did you mean 'none'"),
        ("search", "recompute", ["none", "nome"], {"recompute": "none"}, "no recompute mode called 'nome'"),
        ("strategies", "tpp", [1], {}, "no strategy called 'tpp'. Did you mean 'tp'"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "evaluate"])
def test_names_nobody_knows_are_refused_also_where_others_are_decided(
    run: Run, tmp_path: Path, command: str, section: str, name: str, listed: Any, fixed: dict[str, Any], told: str
) -> None:
    problem = {**PROBLEM, section: {**PROBLEM.get(section, {}), name: listed}, "fixed": fixed}
    code, out, err = run(command, written(tmp_path, problem))
    assert (code, out) == (2, "")
    assert told in err


def test_violations_that_are_not_told_are_noticed() -> None:
    plan = nest.evaluate(asked("pp <= 2", pp=4)).to_dict()
    for told in ([], ["pp <= 3"], ["pp <= 2", "pp <= 2"]):
        assert "violates" in nest.check({**plan, "violates": told}).disagreements[0]


def test_fixed_decisions_stay_demands() -> None:
    with pytest.raises(InputError, match="is not a valid plan"):
        nest.evaluate(asked("pp <= 2", pp=2, micro_batches=3, replicas=1))


@pytest.mark.parametrize(
    ("best", "told"),
    [
        (1.6, "The best plan takes 20.0 % less time per step (1.25x as fast):"),
        (2.5, "This run may not fit. The best plan that fits is 25.0 % slower:"),
        (None, "No plan fits the memory of this cluster."),
    ],
)
def test_what_could_be_gained_is_a_share_of_the_time_of_today(best: float | None, told: str) -> None:
    assert _compared(2.0, best) == told


def test_a_decided_plan_is_set_against_the_best_on_as_many_devices(tmp_path: Path, run: Run) -> None:
    problem = written(tmp_path, asked(pp=2, replicas=1))
    code, out, err = run("evaluate", problem, "--against-best", "--json")
    both = json.loads(out)
    assert code == 0
    assert set(both) == {"plan", "best"}
    assert both["best"]["batch_time"] <= both["plan"]["batch_time"]
    assert both["plan"] == json.loads(run("evaluate", problem, "--json")[1])
    assert "on the 2 devices of the run" in err
    alone = nest.solve({**PROBLEM, "constraints": ["devices <= 2"]})
    assert both["best"]["batch_time"] == alone.batch_time


def test_the_best_plan_is_found_for_one_problem_only(tmp_path: Path, run: Run) -> None:
    problem = written(tmp_path, asked(pp=4))
    code, out, err = run("evaluate", problem, problem, "--against-best")
    assert (code, out) == (2, "")
    assert "one by one" in err
