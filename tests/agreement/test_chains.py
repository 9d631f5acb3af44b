"""The planner against the chain program on long random chains, and the comparison itself."""

from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest

from tests.agreement import chains, compare
from tests.agreement.chains import chain_disagreements, draw_chain
from tests.agreement.random_chains import random_chain
from tests.oracle.chain_program import solve_chain
from tests.oracle.document import document_of
from tests.oracle.network import Network
from tests.seeds import blocks, seeds


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_the_planner_agrees_with_the_chain_program(seed):
    problem = draw_chain(seed)
    wrong = chain_disagreements(problem)
    assert not wrong, compare.complaint(f"seed {seed}", problem, wrong)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_the_planner_agrees_with_the_chain_program_where_shard_groups_are_chosen(seed):
    problem = draw_chain(seed, sharded=True)
    wrong = chain_disagreements(problem)
    assert not wrong, compare.complaint(f"sharded seed {seed}", problem, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 2500))
def test_the_planner_agrees_with_the_chain_program_on_many(block):
    for seed in block:
        problem = random_chain(Random(seed))
        wrong = chain_disagreements(problem)
        assert not wrong, compare.complaint(f"seed {seed}", problem, wrong)


def has_gap(problem: dict, stages: list[dict]) -> bool:
    width = {candidate["name"]: candidate["width"] for candidate in problem["profile"]["candidates"]}
    return any(two["offset"] - one["offset"] > width[one["candidate"]] for one, two in pairwise(stages))


@pytest.mark.slow
def test_random_chains_are_of_every_kind():
    problems = [random_chain(Random(seed)) for seed in range(120)]
    assert {len(problem["profile"]["layers"]) for problem in problems} == set(range(6, 15))
    sizes = {Network(problem["cluster"]).size for problem in problems}
    assert (min(sizes), max(sizes)) == (8, 64)
    solved = [(problem, solve_chain(problem).plan) for problem in problems]
    plans = [(problem, plan) for problem, plan in solved if plan is not None]
    assert 0 < len(problems) - len(plans) < len(problems) / 4
    several = [(problem, plan) for problem, plan in plans if len(plan["stages"]) > 1]
    assert len(several) > len(plans) / 2
    assert max(len(plan["stages"]) for _, plan in several) >= 8
    fanouts = [(plan["replicas"], problem["cluster"]["levels"][0]["fanout"]) for problem, plan in several]
    assert sum(bool(fanout % replicas and replicas % fanout) for replicas, fanout in fanouts) > 10
    assert any(has_gap(problem, plan["stages"]) for problem, plan in several)
    assert {plan["rank_order"] for _, plan in several} == {"pp-inner", "dp-inner"}


def planner_off_by(factor: float) -> SimpleNamespace:
    """A planner whose step times are wrong by a factor and whose check accepts everything."""

    def solve(problem):
        document = document_of(problem, solve_chain(problem).plan)
        document["batch_time"] = document["lower_bound"] = document["batch_time"] * factor
        return SimpleNamespace(to_dict=lambda: document)

    return SimpleNamespace(solve=solve, check=lambda _: SimpleNamespace(ok=True))


@pytest.mark.longer
@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1 + 1e-8, 1)])
def test_the_script_reports_and_returns_a_code(monkeypatch, capsys, factor, code):
    monkeypatch.setattr(chains, "planner", lambda: planner_off_by(factor))
    monkeypatch.setattr("sys.argv", ["chains", "--count", "3", "--seed", "5"])
    assert chains.main() == code
    output = capsys.readouterr().out
    assert "3 chains from seed 5" in output.splitlines()[-1]
    assert ("the chain program finds" in output) == bool(code)
