"""What the kit admits of planners beyond what a search of the problem tries."""

import pytest
from attrs import evolve

from nest.errors import InputError
from nest.hooks.planning import Proposal
from nest.testing import assert_conforms, check
from testing_tests.faulty_plugins import Planner


def without_constraints(instance, context):
    space = evolve(instance.space, constraints=())
    result = context.search(evolve(instance, space=space))
    return Proposal(result.solution, ("none fits.",), result.lower_bound)


def by_name(instance, context):
    return Proposal(None, decisions={"tp": 2})


class Tuned(Planner):
    """Names the option it lacks, as the protocol asks."""

    told = "no option {}"

    def with_options(self, options):
        raise InputError(self.told.format(*options))


@pytest.mark.longer
def test_planners_may_decide_what_the_problem_does_not_allow() -> None:
    assert_conforms(Planner("free", without_constraints), "planners")
    assert_conforms(Planner("by-name", by_name), "planners")


def test_planners_name_the_option_that_they_lack() -> None:
    assert_conforms(Tuned("tuned", by_name), "planners")
    silent = Tuned("silent", by_name)
    silent.told = "no."
    (finding,) = (each for each in check(silent, "planners") if not each.passed)
    assert finding.check == "it refuses an option that it lacks"
    assert "does not name the option" in finding.told
