"""Places of blocks and groups of devices, against the sets of devices written out."""

import numpy
import pytest

from nest.instance import Candidate, ParameterGroup
from nest_cpsat.cases import Case, cases, replica_devices
from nest_cpsat.placement import block_starts, places, slots
from nest_cpsat.stages import data_parallel_groups
from tests.oracle.network import Network
from tests.small_instances import candidate, cluster, instance

FANOUTS = [(2, 2), (3, 2), (1, 4), (2, 3, 2), (4, 1, 3), (8,), (6, 2), (2, 7)]


def some_cases(fanouts: tuple[int, ...], **space: object):  # type: ignore[no-untyped-def]
    machines = cluster(fanouts)
    wide = [candidate(3, name=f"w{w}", width=w, seed=w) for w in (1, 2, 3, 4) if machines.admits(w)]
    problem = instance(wide, machines=machines, uneven_batch=True, global_batch=24, **space)
    levels = [{"fanout": f, "bandwidth": 1.0, "latency": 0.0} for f in fanouts]
    return problem, Network({"levels": levels}), list(cases(problem, 3))


def block(problem, case: Case, offset: int, width: int, replica: int) -> range:  # type: ignore[no-untyped-def]
    size = case.widest * (problem.cluster.size // (case.replicas * case.widest))
    first = replica * size + offset if case.rank_order == "pp-inner" else offset * case.replicas + replica * width
    return range(first, first + width)


@pytest.mark.parametrize("fanouts", FANOUTS)
def test_groups_of_slots_tell_the_level_of_every_two_blocks(fanouts: tuple[int, ...]) -> None:
    problem, network, every = some_cases(fanouts)
    for case in every:
        width = problem.candidates[case.candidates[0]].width
        found = slots(problem, case, width)
        seen = set()
        for one in range(found.count):
            for two in range(one + 1, found.count):
                within = [group[one] == group[two] for group in found.groups]
                expected = max(
                    network.level(
                        [*block(problem, case, one * width, width, r), *block(problem, case, two * width, width, r)]
                    )
                    for r in range(case.replicas)
                )
                assert within.index(True) == expected
                seen.add(expected)
        assert set(numpy.nonzero(found.closest(len(fanouts)))[0].tolist()) == seen


@pytest.mark.parametrize("fanouts", FANOUTS)
def test_listed_places_tell_the_level_of_every_two_blocks(fanouts: tuple[int, ...]) -> None:
    problem, network, every = some_cases(fanouts, mixed=True)
    for case in every:
        widths = tuple(sorted({problem.candidates[each].width for each in case.candidates}))
        found = places(problem, case, widths)
        room = replica_devices(problem, case)
        assert {(int(w), int(o)) for w, o in zip(found.widths, found.offsets, strict=True)} == {
            (width, offset) for width in widths for offset in range(0, room - width + 1, width)
        }
        for one, two in zip(*numpy.nonzero(found.apart()), strict=True):
            blocks = [(int(found.offsets[each]), int(found.widths[each])) for each in (one, two)]
            assert blocks[0][0] + blocks[0][1] <= blocks[1][0]
            expected = max(
                network.level([device for each in blocks for device in block(problem, case, *each, r)])
                for r in range(case.replicas)
            )
            assert found.levels[one, two] == found.levels[two, one] == expected


@pytest.mark.parametrize("fanouts", FANOUTS)
def test_data_parallel_groups_are_the_devices_that_share_parameters(fanouts: tuple[int, ...]) -> None:
    problem, network, _ = some_cases(fanouts)
    ones = numpy.ones(3)
    used = problem.candidates[-1]
    groups = tuple(
        ParameterGroup(name, ranks, ones, ones, ones, ones)
        for name, ranks in (("dense", (0,)), ("shared", tuple(range(used.width))))
    )
    shared = Candidate("s", {}, used.width, 1, ones, ones, groups, used.recompute, used.tensor_bytes)
    problem = instance([shared], machines=problem.cluster, uneven_batch=True, global_batch=24)
    for case in cases(problem, 1):
        starts = block_starts(problem, case, numpy.array([0]), numpy.array([used.width]))[0].tolist()
        for group, found in zip(groups, data_parallel_groups(problem, case, 0), strict=True):
            devices = {start + rank for start in starts for rank in group.ranks}
            assert found.shard_size == len(devices)
            assert list(found.shape) == network.shape(devices)
