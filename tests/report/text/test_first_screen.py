"""The first screen of `nest solve`: what stands on it, and that it is one screen of 80 columns.

The screens are in tests/golden/first_screen; `python -m tests.report.text.test_first_screen` writes them anew.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.io import structure, unstructure
from nest.report.framework_words import (
    FRAMEWORKS,
    data_parallel_ranks,
    layout_difference,
    layout_text,
    other_plan_texts,
)
from nest.report.subject import accelerator, subject
from nest.report.text.first_screen import MOST_LINES, first_screen, next_command
from nest.report.text.layout import Screen, Tone, columns
from nest.spec import Decisions, OtherPlan, PlanDocument

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES, GOLDEN = REPOSITORY / "examples", REPOSITORY / "tests" / "golden" / "first_screen"
QUICK = ("measured-layers",)
"""Examples that are planned in a moment."""

NODE = {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us", "link": "nvlink"}
TWO_NODES = [NODE, {"name": "rack", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us", "link": "infiniband"}]


def asked(model: str, batch: int, **sections: Any) -> dict[str, Any]:
    """A problem of a model of the catalogue on two nodes of H100."""
    training = {"global_batch": batch, "sequence_length": 8192, **sections.pop("training", {})}
    cluster = {"device": "h100-sxm", "levels": TWO_NODES, **sections.pop("cluster", {})}
    search = {"target": "megatron", **sections.pop("search", {})}
    return {"nest": 1, "model": model, "training": training, "cluster": cluster, "search": search, **sections}


def found(problem: Any, **fix: Any) -> PlanDocument:
    """A plan with these decisions as a search that proves it would answer with it."""
    plan = api.evaluate(problem, fix=fix)
    return evolve(plan, status="optimal", lower_bound=plan.batch_time)


def beside(other: PlanDocument, slower_by: float, likely: float | None) -> OtherPlan:
    """Another plan as documents state it, with figures as a search may find them."""
    names = ("candidate", "data_parallel", "rank_order", "schedule", "chunks", "zero_degree")
    stages = [{key: value for key, value in each.items() if key in STAGE} for each in unstructure(other)["stages"]]
    decisions = structure({name: unstructure(other)[name] for name in names} | {"stages": stages}, Decisions)
    return OtherPlan("", 1.0, slower_by, likely, max(stage.memory for stage in other.stages), decisions)


STAGE = ("layers", "candidate", "recompute", "zero", "devices", "chunks", "pool")


@cache
def near_optimal() -> PlanDocument:
    """A plan with three others beside it."""
    problem = asked("llama-3.1-8b", 256)
    plan = found(problem, **FIXED["near-optimal"])
    fastest = found(problem, cp=2, pp=2, zero=1, schedule="interleaved", chunks=8)
    safer = found(problem, tp=4, sp=True, pp=2, zero=1, recompute="selective")
    simpler = found(problem, tp=2, sp=True, cp=2, zero=1)
    assert plan.batch_time is not None
    return evolve(
        plan,
        status="near-optimal",
        lower_bound=plan.batch_time / 1.004,
        fit_probability=0.86,
        fastest=beside(fastest, -0.004, 0.81),
        safer=beside(safer, 0.031, 0.97),
        simpler=beside(simpler, 0.018, 0.86),
    )


OTHERS = ((0.0, 0.6), (0.09, 0.97), (0.04, 0.62))


def everything() -> PlanDocument:
    """A plan of which there is as much to say as there can be."""
    levels = [{**NODE, "link": "nvlink3", "name": None}, {"fanout": 4, "link": "infiniband-hdr"}]
    pools = [
        {"name": "reserved-h100-machines", "device": "h100-sxm", "levels": [NODE], "price": 3.0},
        {"name": "leftover-a100-machines", "device": "a100-sxm-80g", "price": 1.5, "levels": levels},
    ]
    names = [pool["name"] for pool in pools]
    between = [{"pools": names, "bandwidth": "5 GB/s", "latency": "20 us", "egress": 0.01}]
    cluster = {"pools": pools, "between": between, "device": None, "levels": None}
    problem = asked("llama-3.1-8b", 256, cluster=cluster, training={"tokens": 10**13})
    problem["cluster"] = {key: value for key, value in problem["cluster"].items() if value is not None}
    plan = evolve(found(problem, tp=2, cp=2, pp=3, zero=1), fit_probability=0.62)
    lora = {"what": "LoRA of rank 16 on q_proj, k_proj, v_proj, o_proj, gate_proj", "parameters": 41_943_040}
    summary = {**plan.summary, "trained": {**lora, "of": 8_030_261_248}}
    plan = evolve(plan, summary=summary, status="near-optimal")
    fastest, safer, simpler = (beside(plan, slower, likely) for slower, likely in OTHERS)
    return evolve(plan, fastest=fastest, safer=safer, simpler=simpler)


def example(name: str) -> str:
    return str(EXAMPLES / name / "problem.yaml")


def mixture() -> PlanDocument:
    """A plan of a search that was stopped."""
    problem = asked("mixtral-8x7b", 128, search={"target": "torchtitan"}, training={"memory_risk": 0.5})
    plan = found(problem, **FIXED["experts"])
    assert plan.batch_time is not None
    return evolve(plan, status="feasible", lower_bound=plan.batch_time / 1.07)


SCREENS: Mapping[str, Callable[[], PlanDocument]] = {
    "dense-on-one-node": lambda: found(
        asked("llama-3.1-8b", 128, cluster={"levels": [NODE]}, training={"tokens": 10**12}), tp=2, sp=True, cp=2, zero=1
    ),
    "dense": lambda: found(
        example("llama-3-70b-on-128-h100"), tp=4, sp=True, cp=2, pp=4, zero=1, schedule="interleaved", chunks=10
    ),
    "experts": mixture,
    "profile": lambda: found(example("measured-layers"), **FIXED["profile"]),
    "pools": lambda: found(example("opt-350m-on-three-kinds-of-rtx"), **FIXED["pools"]),
    "infeasible": lambda: api.solve(example("measured-layers"), changes={"cluster": {"memory": "1 GB"}}),
    "near-optimal": near_optimal,
    "everything": everything,
}
"""Plans by the name of their screens."""


@cache
def planned(name: str) -> PlanDocument:
    return SCREENS[name]()


def shown(plan: PlanDocument, width: int | None) -> str:
    return first_screen(plan, Screen(width), next_command(plan, Path("plan.json"))) + "\n"


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", SCREENS)
def test_screens_are_as_they_were(name: str, width: int) -> None:
    assert shown(planned(name), width) == (GOLDEN / f"{name}-{width}.txt").read_text()


def fits_a_screen(text: str) -> bool:
    lines = text.splitlines()
    return len(lines) <= MOST_LINES == 22 and max(map(columns, lines)) <= 80


@pytest.mark.parametrize("name", SCREENS)
def test_every_plan_is_one_screen(name: str) -> None:
    assert fits_a_screen(shown(planned(name), 80))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.parent.name, marks=() if path.parent.name in QUICK else pytest.mark.slow)
        for path in sorted(EXAMPLES.glob("*/problem.yaml"))
    ],
)
def test_the_plan_of_every_example_is_one_screen(name: str) -> None:
    plan = api.solve(example(name))
    text = first_screen(plan, Screen(80), next_command(plan, None))
    assert fits_a_screen(text)
    assert subject(plan) in " ".join(text.split())


def marked(text: str, tone: Tone) -> str:
    return f"<{tone.name} {text}>"


@pytest.mark.parametrize(
    ("likely", "fits", "verdict"),
    [
        (0.93, True, "<GOOD fits>: 36.3 GiB of 79.6 GiB on stage 1, 93 % likely to fit"),
        (0.8 - 1e-12, True, "<GOOD fits>: 36.3 GiB of 79.6 GiB on stage 1, 80 % likely to fit"),
        (0.61, True, "<FAIR tight>: 36.3 GiB of 79.6 GiB on stage 1, 61 % likely to fit"),
        (0.001, False, "<BAD does not fit>: 36.3 GiB of 79.6 GiB on stage 1, under 1 % likely to fit"),
        (0.9999, True, "<GOOD fits>: 36.3 GiB of 79.6 GiB on stage 1, over 99 % likely to fit"),
    ],
)
def test_the_verdict_on_memory_has_a_colour(likely: float, fits: bool, verdict: str) -> None:
    plan = evolve(near_optimal(), fit_probability=likely, fits=fits)
    assert f"memory        {verdict}\n" in first_screen(plan, Screen(None, marked))


def test_the_bytes_of_a_profile_are_exact() -> None:
    assert "memory        <GOOD fits>: 7.43 GiB of 14.9 GiB\n" in first_screen(planned("profile"), Screen(None, marked))


@pytest.mark.parametrize(
    ("fits", "verdict"), [(True, "<GOOD fits>: 36.3 GiB"), (False, "<BAD does not fit>: 36.3 GiB")]
)
def test_a_margin_decides_whatever_is_likely(fits: bool, verdict: str) -> None:
    plan = near_optimal()
    training = {**plan.problem["training"], "memory_margin": 2.0}
    plan = evolve(plan, problem={**plan.problem, "training": training}, fits=fits, fit_probability=0.7)
    told = first_screen(plan, Screen(None, marked))
    assert f"memory        {verdict} of 79.6 GiB on stage 1, 70 % likely to fit" in told
    assert ("without training.memory_margin" in told) == (not fits)


STOPPED = {"status": "feasible"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"status": "optimal"}, "<GOOD Optimal.>"),
        ({"status": "optimal", "space": "even plans"}, "<GOOD Optimal among even plans.>"),
        ({"lower_bound": 59.0}, "<GOOD Simplest plan within 1 %> of the fastest possible step (59 s)."),
        ({**STOPPED, "lower_bound": 0.0}, "<FAIR Best plan found.> The search was stopped; a faster plan may exist."),
        ({**STOPPED, "batch_time": 60.0, "lower_bound": 59.0}, "<FAIR Best plan found:> at most 1.7 % slower than"),
        ({**STOPPED, "batch_time": 59.0, "lower_bound": 58.9999}, "<FAIR Best plan found:> less than 0.1 % slower"),
        ({**STOPPED, "lower_bound": None}, "<HEADING Plan as given, not searched.>"),
    ],
)
def test_what_is_proved_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert first_screen(evolve(near_optimal(), **changes), Screen(None, marked)).splitlines()[2].startswith(sentence)


@pytest.mark.parametrize(
    ("training", "told"), [({}, True), ({"memory_risk": 0.5}, False), ({"memory_margin": 0.0}, False)]
)
def test_the_first_line_says_that_no_plan_is_likely_to_fit(training: dict[str, Any], told: bool) -> None:
    plan = near_optimal()
    problem = {**plan.problem, "training": {**plan.problem["training"], **training}}
    plan = evolve(plan, problem=problem, fit_probability=0.7)
    first, second, *_ = first_screen(plan).splitlines()
    assert first.startswith("No plan is 80 % likely to fit") == told
    assert (second if told else first) == subject(plan)
    assert ("Likeliest plan within 10 % of" in first_screen(plan)) == told
    for other in (evolve(plan, fit_probability=0.8), evolve(plan, lower_bound=None)):
        assert first_screen(other).startswith(subject(plan))


WORDS = {
    "none": "TP 2, PP 2, DP 4, micro-batch 1 x 64, 1F1B, ZeRO 1, no recomputation",
    "megatron": "TP 2, PP 2, DP 4, micro-batch 1 x 64, 1F1B, distributed optimizer (ZeRO 1), no recomputation",
    "torchtitan": "TP 2, PP 2, DP 4, micro-batch 1 x 64, 1F1B, FSDP without resharding (ZeRO 1), "
    "no activation checkpointing",
    "deepspeed": "AutoTP 2, PP 2, DP 4, micro-batch 1 per GPU, gradient accumulation 64, 1F1B, ZeRO stage 1, "
    "no activation checkpointing",
}


@pytest.mark.parametrize(("target", "words"), WORDS.items())
def test_the_layout_is_in_the_words_of_the_framework(target: str, words: str) -> None:
    plan = near_optimal()
    assert layout_text(evolve(plan, problem={**plan.problem, "search": {"target": target}})) == words


@pytest.mark.parametrize("name", ["experts", "profile", "pools", "near-optimal"])
def test_the_data_parallel_size_is_the_one_that_constraints_name(name: str) -> None:
    plan = planned(name)
    ranks = data_parallel_ranks(plan)
    assert f"DP {ranks}, " in layout_text(plan)
    checked = {**plan.problem, "constraints": [f"dp == {ranks}", f"dp == {ranks + 1}"]}
    assert api.evaluate(checked, fix=FIXED[name]).violates == (f"dp == {ranks + 1}",)


FIXED: Mapping[str, Mapping[str, Any]] = {
    "experts": {"tp": 2, "sp": True, "ep": 8, "etp": 1, "zero": 3},
    "profile": {"zero": 1},
    "pools": {"tp": 4, "pp": 5},
    "near-optimal": {"tp": 2, "sp": True, "pp": 2, "zero": 1},
}
"""The decisions of some of the plans."""


def test_every_framework_that_has_words_is_one_that_plans_are_exported_to() -> None:
    from nest.hooks.registry import registry

    assert FRAMEWORKS.keys() <= registry().exporters().keys()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank_order": "pp-inner"}, "rank order pp-inner"),
        ({"zero_degree": 4}, "sharded over groups of 4"),
        ({"stages": {"recompute": "selective"}}, "selective recomputation"),
        ({"stages": {"recompute": "offload"}}, "activations offloaded"),
        ({"stages": {"zero": 3}}, "Megatron FSDP optim_grads_params (ZeRO 3)"),
    ],
)
def test_other_plans_are_told_by_what_differs(changes: dict[str, Any], words: str) -> None:
    plan = near_optimal()
    if "stages" in changes:
        changes = {"stages": tuple(evolve(stage, **changes["stages"]) for stage in plan.stages)}
    other = evolve(plan, **changes)
    assert words in layout_text(other)
    assert layout_difference(plan, other) == [words]
    assert layout_difference(plan, plan) == ["layers cut elsewhere"]


def test_stages_that_differ_are_counted() -> None:
    plan = near_optimal()
    first, second = plan.stages
    mixed = evolve(plan, stages=(evolve(first, zero=0, recompute="full"), evolve(second, layers=second.layers[1:])))
    assert layout_text(mixed).endswith("uneven stages, ZeRO 0 and 1, full recomputation (none on 1 of 2 stages)")
    assert layout_difference(mixed, plan)[0] == "even stages"


def test_without_a_pipeline_neither_even_stages_nor_a_rank_order_are_told() -> None:
    plan = near_optimal()
    first, second = plan.stages
    uneven = evolve(plan, stages=(first, evolve(second, layers=second.layers[1:])), rank_order="pp-inner", chunks=1)
    alone = evolve(uneven, stages=(evolve(first, layers=(*first.layers, *second.layers)),))
    assert {"uneven stages", "rank order pp-inner"} <= {*layout_text(uneven).split(", ")}
    assert layout_difference(uneven, alone) == ["no PP"]


@pytest.mark.parametrize("width", [49, 69, 89, None])
def test_other_plans_take_one_line_each(width: int | None) -> None:
    plan = near_optimal()
    texts = dict(other_plan_texts(plan, width))
    room = None if width is None else width - len("fastest  ")
    assert [*texts] == ["fastest", "safer", "simpler"]
    for name, text in texts.items():
        differing, _, effects = text.partition(": ")
        assert room is None or len(text) <= max(room, len(effects) + len("no TP, ...: "))
        assert effects == EFFECTS[name]
        whole = ", ".join(layout_difference(plan, getattr(plan, name).decisions))
        assert differing == whole if room is None else whole.startswith(differing.removesuffix(", ..."))


def test_plans_that_read_alike_are_one_line() -> None:
    plan = near_optimal()
    rows = other_plan_texts(evolve(plan, safer=plan.fastest, simpler=None), 80)
    assert [name for name, _ in rows] == ["fastest and safer"]
    assert [name for name, _ in other_plan_texts(evolve(plan, safer=plan.fastest, simpler=plan.fastest))] == [
        "fastest, safer and simpler"
    ]


def test_nothing_is_cut_short_where_more_is_asked_for() -> None:
    plan = near_optimal()
    whole = first_screen(plan, Screen(40), whole=True)
    assert whole.split() == first_screen(plan).split()
    assert max(map(len, whole.splitlines())) <= 40
    assert first_screen(plan, Screen(40)).split() != whole.split()


EFFECTS = {
    "fastest": "0.4 % faster, 81 % likely to fit",
    "safer": "97 % likely to fit, 3.1 % slower",
    "simpler": "1.8 % slower, 86 % likely to fit",
}


def test_plans_of_exact_bytes_are_told_with_their_memory() -> None:
    plan = planned("profile")
    plan = evolve(plan, fastest=beside(found(example("measured-layers"), tp=2, zero=1), -0.02, None))
    assert other_plan_texts(plan) == [("fastest", "TP 2: 2.0 % faster, 4.24 GiB on the fullest stage")]


def test_texts_and_pages_say_the_same_of_other_plans() -> None:
    from nest_page.sections import why_section

    said = why_section(near_optimal())[0].paragraphs
    for name, text in other_plan_texts(near_optimal()):
        assert f"The {name} plan: {text}." in said


@pytest.mark.parametrize(
    ("cluster", "named", "device"),
    [
        ({"name": "dgx-h100-superpod-16"}, "16 H100 SXM (2 nodes)", "GPU"),
        ({"name": "gb200-nvl72-superpod-144"}, "144 GB200 (2 racks)", "GPU"),
        ({"device": "tpu-v5p", "levels": [{"fanout": 4}]}, "4 TPU v5p", "device"),
        ({"device": {"name": "prototype"}, "levels": [{"fanout": 4}, {"fanout": 2}]}, "8 prototype", "device"),
        ({"levels": [{"fanout": 1, "name": "node"}, {"fanout": 1}]}, "1 device (1 node)", "device"),
        ({"device": "mi300x", "topology": {"torus": {}}}, "MI300X", "GPU"),
    ],
)
def test_machines_have_their_names(cluster: dict[str, Any], named: str, device: str) -> None:
    problem = {"model": "qwen3-30b-a3b", "training": {"global_batch": 3}, "cluster": cluster}
    plan = evolve(near_optimal(), problem=problem, summary={})
    assert subject(plan) == f"Qwen3 30B A3B on {named}, batch 3"
    assert accelerator(problem["cluster"]) == device


def test_the_next_command_is_one_that_works() -> None:
    plan = evolve(near_optimal(), runs_on=("deepspeed", "megatron"))
    file = Path("my plan.json")
    assert (
        next_command(plan, file)
        == "Next: `nest explain 'my plan.json'`, or `nest export 'my plan.json' --to megatron`."
    )
    other = evolve(plan, problem={**plan.problem, "search": {}})
    assert next_command(other, file).endswith("--to deepspeed`.")
    assert "export" not in next_command(evolve(plan, runs_on=()), file)
    assert "--output" in next_command(plan, None)


if __name__ == "__main__":
    for each in SCREENS:
        for columns_shown in (80, 140):
            (GOLDEN / f"{each}-{columns_shown}.txt").write_text(shown(planned(each), columns_shown))
