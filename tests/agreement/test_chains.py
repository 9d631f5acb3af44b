"""The planner against the chain program on long random chains, and the comparison itself."""

from random import Random

import pytest

from tests.agreement import compare
from tests.agreement.chains import chain_disagreements, draw_chain
from tests.agreement.random_chains import random_chain
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
