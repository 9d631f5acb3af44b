"""First plans of usual problems: none is simpler within a share, none as fast takes less memory, by searches alone.

Each search has `search.within: 0`, so that it takes no part in the rule, and is held by `constraints`, `fixed`, the
memory risk and the memory of devices to plans that are simpler than the first plan in one entry and alike in those
before. Entries are counted here from plan documents.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from benchmarks.usual_problems import Usual, main, page, usual_problems
from nest import api
from nest.spec import PlanDocument
from tests.docs.document import REPOSITORY

WITHIN, RISK, USUAL_ZERO = 0.01, 0.2, 1
STRATEGIES = ("tp", "cp", "ep", "etp")
DEFAULT = ("llama-3-1-8b-on-8",)


class Search(NamedTuple):
    """What a search is held to."""

    constraints: tuple[str, ...] = ()
    fixed: dict[str, Any] = {}  # noqa: RUF012
    risk: float = RISK
    memory: float | None = None

    def held(self, *constraints: str, fixed: dict[str, Any] | None = None, **changes: Any) -> "Search":
        return self._replace(
            constraints=(*self.constraints, *constraints), fixed={**self.fixed, **(fixed or {})}, **changes
        )

    def answer(self, usual: Usual, target: str) -> PlanDocument:
        memory = {} if self.memory is None else {"memory": self.memory}
        training = {**usual.problem["training"], "memory_risk": self.risk}
        return api.solve(
            {
                **usual.problem,
                "training": training,
                "cluster": {"name": usual.problem["cluster"], **memory},
                "constraints": list(self.constraints),
                "fixed": self.fixed,
                "search": {"within": 0, "target": target},
            }
        )


def simpler(plan: PlanDocument) -> Iterator[tuple[str, Search]]:
    """Searches of plans that have less of one entry than `plan` and as much of those before; last, those alike."""
    stages, chunks = len(plan.stages), plan.chunks or 1
    assert len({stage.candidate for stage in plan.stages}) == 1
    assert plan.candidate is not None
    held = Search()
    if stages > 1:
        yield "pipeline", held.held("pp == 1")
        if plan.schedule != "1f1b":
            yield "schedule", held.held("schedule == '1f1b'")
        else:
            held = held.held("schedule == '1f1b'")
        if chunks > 1:
            yield "chunks", held.held(f"chunks < {chunks}")
        held = held.held(f"chunks == {chunks}")
        if stages > 2:
            yield "stages", held.held(f"pp < {stages}")
        held = held.held(f"pp == {stages}")
        even = evenly_cut([name for stage in plan.stages for name in stage.layers], stages * chunks)
        if is_cut(plan, even):
            held = held.held(*together(even))
        elif even:
            yield "uneven", held.held(*together(even))
    else:
        held = held.held("pp == 1")
    if len({(stage.recompute, stage.zero) for stage in plan.stages}) > 1:
        yield "unlike", held.held("uniform(recompute)", "uniform(zero)")
    else:
        held = held.held("uniform(recompute)", "uniform(zero)")
    assert {stage.recompute for stage in plan.stages} <= {"none", "full"}
    if any(stage.recompute == "full" for stage in plan.stages):
        yield "recompute", held.held("recompute != 'full'")
    else:
        held = held.held("recompute == 'none'")
    above = sum(plan.candidate.degrees.get(name, 1) > 1 for name in STRATEGIES)
    if above:
        yield "degrees", held.held(*at_most(above - 1))
    held = held.held(*at_most(above))
    if {stage.zero for stage in plan.stages} != {USUAL_ZERO}:
        yield "ZeRO", held.held(f"zero == {USUAL_ZERO}")
    else:
        held = held.held(f"zero == {USUAL_ZERO}")
    if stages > 1 and (plan.data_parallel or 1) > 1:
        if plan.rank_order == "pp-inner":
            yield "rank order", held.held("rank_order == 'dp-inner'")
        else:
            held = held.held("rank_order == 'dp-inner' or replicas == 1")
    used = (plan.data_parallel or 1) * plan.candidate.width * stages
    assert used == plan.summary["devices"]
    held = held.held(f"devices == {used}")
    assert plan.fit_probability is not None
    likelier = [1 - chance / 100 for chance in (95, 90, 85, 80) if plan.fit_probability < chance / 100 - 1e-9]
    if likelier:
        yield "fit", held.held(risk=likelier[-1])
    risk = next(1 - chance / 100 for chance in (95, 90, 85, 80) if plan.fit_probability >= chance / 100 - 1e-9)
    yield "alike", held.held(risk=risk)


def evenly_cut(layers: Sequence[str], runs: int) -> list[list[str]]:
    """Runs of as many transformer blocks, else of layers with embedding and head; none: neither works out."""
    blocks = sorted((name for name in layers if name.startswith("layers.")), key=lambda name: int(name[7:]))
    for chain in (blocks, ["embedding", *blocks, "head"]):
        if len(chain) % runs == 0:
            size = len(chain) // runs
            cut = [chain[first : first + size] for first in range(0, len(chain), size)]
            return cut if chain is not blocks else [["embedding", *cut[0]], *cut[1:-1], [*cut[-1], "head"]]
    return []


def is_cut(plan: PlanDocument, runs: Sequence[Sequence[str]]) -> bool:
    """Whether the stages of a plan hold these runs in turn."""
    count = len(plan.stages)
    wanted = [{name for run in runs[first::count] for name in run} for first in range(count)]
    return wanted == [set(stage.layers) for stage in plan.stages]


def together(runs: Sequence[Sequence[str]]) -> list[str]:
    """Constraints: no such run is cut."""
    return [f"same_stage({', '.join(map(repr, run))})" for run in runs if len(run) > 1]


def at_most(degrees: int) -> list[str]:
    """Constraints: no more strategies than that have a degree above 1."""
    if degrees >= len(STRATEGIES):
        return []
    return [" or ".join(f"{name} == 1" for name in group) for group in combinations(STRATEGIES, degrees + 1)]


def problems() -> list[Any]:
    return [
        pytest.param(usual, id=usual.name, marks=() if usual.name in DEFAULT else pytest.mark.slow)
        for usual in usual_problems()
    ]


@cache
def first_plan(usual: Usual) -> tuple[PlanDocument, str]:
    """The first plan of a problem, and the target it was searched for."""
    plan = api.solve(usual.problem)
    return plan, plan.problem["search"]["target"]


@pytest.mark.longer
@pytest.mark.parametrize("usual", problems())
def test_no_plan_within_the_share_is_simpler(usual: Usual) -> None:
    plan, target = first_plan(usual)
    assert plan.lower_bound is not None
    assert plan.batch_time is not None
    limit = plan.lower_bound * (1 + WITHIN)
    assert plan.batch_time <= limit * (1 + 1e-9)
    for entry, search in simpler(plan):
        found = search.answer(usual, target)
        if entry == "alike":
            assert found.batch_time == pytest.approx(plan.batch_time, rel=1e-9)
        else:
            assert found.lower_bound is None or found.lower_bound > limit, (entry, search, found.lower_bound, limit)


@pytest.mark.longer
@pytest.mark.parametrize("usual", problems())
def test_no_plan_that_is_alike_and_as_fast_takes_less_memory(usual: Usual) -> None:
    plan, target = first_plan(usual)
    assert plan.batch_time is not None
    needed = max(stage.upper_memory or stage.memory for stage in plan.stages)
    emptier = dict(simpler(plan))["alike"].held(risk=RISK, memory=needed * (1 - 1e-6))
    found = emptier.answer(usual, target)
    slower = found.lower_bound is None or found.lower_bound > plan.batch_time * (1 + 1e-9)
    # Chunks are not made more uneven for memory.
    assert slower or spread(found) > spread(plan)


def spread(plan: PlanDocument) -> int:
    """Transformer blocks by which the largest chunk exceeds the smallest; 0 where stages have one."""
    chunks = [chunk for stage in plan.stages for chunk in stage.chunks or ()]
    counts = [sum(name.startswith("layers.") for name in chunk) for chunk in chunks]
    return max(counts) - min(counts) if counts else 0


def test_an_unknown_problem_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llama-on-a-laptop"]) == 2
    assert capsys.readouterr().err.startswith("llama-on-a-laptop: there are llama-3-1-8b-on-8, ")


@pytest.mark.slow
def test_the_page_shows_what_the_command_prints() -> None:
    text = (REPOSITORY / "benchmarks" / "usual_problems.md").read_text()
    assert "\n".join(page()) in text
