"""The plan in words: where stages use different candidates, each row says which."""

from nest.instance import LayerGraph, Solution, StageDecision
from nest.plan.document import document
from nest.plan.evaluate import evaluate
from nest.report.text.summary import summary
from tests.small_instances import candidate, cluster, instance

MACHINES = cluster((2, 32))
WRITTEN = {"profile": {}, "training": {"global_batch": 8}, "cluster": {"levels": [{"fanout": 2}, {"fanout": 32}]}}
LAYERS = 30
PROBLEM = instance(
    [
        candidate(LAYERS, name="narrow", width=1, degrees={"tp": 1}),
        candidate(LAYERS, name="wide", width=2, degrees={"tp": 2}),
    ],
    graph=LayerGraph(tuple(f"layers.{i}" for i in range(LAYERS)), tuple((i, (i + 1,)) for i in range(LAYERS - 1))),
    machines=MACHINES,
    mixed=True,
)


def told(used: list[int]) -> list[str]:
    """The summary of a plan with a stage for each of these candidates, the last of which takes the layers left."""
    layers = [(index,) for index in range(len(used) - 1)] + [tuple(range(len(used) - 1, LAYERS))]
    stages = tuple(
        StageDecision(held, index, "none", 0, 2 * place)
        for place, (held, index) in enumerate(zip(layers, used, strict=True))
    )
    plan = Solution(1, "pp-inner", "1f1b", stages)
    priced = evaluate(PROBLEM, plan)
    levels = {"levels": [level.name for level in MACHINES.levels]}
    found = document(PROBLEM, plan, priced, status="feasible", lower_bound=None, problem=WRITTEN, summary=levels)
    return summary(found).splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of the stage table, its header first."""
    start = next(number for number, line in enumerate(lines) if line.startswith("stage "))
    end = lines.index("", start)
    return [line.split() for number, line in enumerate(lines[start:end]) if number != 1]


def test_the_stages_of_one_candidate_do_not_repeat_it() -> None:
    lines = told([1, 1])
    assert lines[1].startswith("TP 2, PP 2, ")
    assert "candidate" not in rows(lines)[0]


def test_every_stage_of_a_mixed_plan_names_its_candidate() -> None:
    lines = told([0, 1, 0])
    assert lines[1].startswith("narrow and wide, PP 3, ")
    header, *stages = rows(lines)
    assert [row[header.index("candidate")] for row in stages] == ["narrow", "wide", "narrow"]
    assert [row[header.index("devices")] for row in stages] == ["0", "2-3", "4"]


def test_neighbours_share_a_row_only_with_their_candidate() -> None:
    """With more stages than are shown one by one."""
    header, *stages = rows(told([0] * 10 + [1] * 15))
    column = header.index("candidate")
    shown = [(row[0], row[column]) for row in stages]
    assert shown == [("1-10", "narrow"), ("11-24", "wide"), ("25", "wide")]
