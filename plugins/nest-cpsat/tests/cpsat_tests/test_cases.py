"""What stages share, listed: constraints leave the cases that they should."""

from collections.abc import Callable

import pytest

from nest_cpsat.cases import Case, cases
from tests.small_instances import candidate, cluster, instance

NARROW, WIDE = candidate(3, name="narrow", degrees={"tp": 1}), candidate(3, name="wide", width=2, degrees={"tp": 2})


@pytest.mark.parametrize(("name", "place"), [("recompute", 0), ("zero", 1)])
def test_what_must_be_uniform_is_one_thing_in_each_case(name: str, place: int) -> None:
    free, bound = (
        [{mode[place] for mode in case.modes[0]} for case in cases(instance([NARROW], constraints=texts), 3)]
        for texts in ([], [f"uniform({name})"])
    )
    assert all(len(each) > 1 for each in free)
    assert all(len(each) == 1 for each in bound)
    assert set.union(*free) == set.union(*bound)


MEANT: dict[str, Callable[[Case], bool]] = {
    "devices == 8": lambda case: case.replicas * (case.block_devices or 0) == 8,
    "devices == replicas * pp * width": lambda case: True,
    "width == 2": lambda case: case.candidates == (1,),
    "tp == width": lambda case: True,
    "pp == 3": lambda case: case.stages == 3,
    "replicas % 2 == 0": lambda case: case.replicas % 2 == 0,
    "micro_batches >= 4": lambda case: case.micro_batches >= 4,
    "micro_batch == 1": lambda case: True,
    "rank_order == 'dp-inner'": lambda case: case.rank_order == "dp-inner",
    "schedule == 'gpipe'": lambda case: case.schedule.name == "gpipe",
    "chunks == 1": lambda case: True,
    "zero_degree == 2": lambda case: case.zero_degree == 2,
}


@pytest.mark.parametrize("text", MEANT)
def test_constraints_leave_the_cases_that_they_mean(text: str) -> None:
    def listed(condition: str) -> list[Case]:
        problem = instance(
            [NARROW, WIDE],
            machines=cluster((2, 3, 2)),
            schedules=("1f1b", "gpipe"),
            constraints=[condition],
            zero_degrees=(2, 4),
        )
        return list(cases(problem, 3))

    # What is always true reads the same names, which alone may tell cases apart.
    every = listed(f"{text} or not ({text})")
    assert [_decided(case) for case in listed(text)] == [_decided(case) for case in every if MEANT[text](case)] != []


def _decided(case: Case) -> tuple[object, ...]:
    return case.candidates, case.replicas, case.rank_order, case.schedule.name, case.stages, case.zero_degree


def test_blocks_of_one_width_have_the_devices_of_their_case() -> None:
    """Three devices are a wide block and a narrow one; where constraints leave no narrow one, they are none."""
    asked = ["devices <= 3", "tp == 2"]
    problem = instance([NARROW, WIDE], mixed=True, machines=cluster((4,)), global_batch=1, constraints=asked)
    assert {(case.stages, case.block_devices) for case in cases(problem, 3)} == {(1, 2)}
