"""Software stacks: what fills a problem in, and how much communication is exposed."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve, fields

from nest import api
from nest.catalogue import device
from nest.errors import InputError
from nest.formulate.problem import carried_problem, self_contained
from nest.formulate.stack import Exposure, data_parallel_exposure, hidden_messages, with_stack
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.io import structure
from nest.spec import NO_STACK, Coefficients, Overlap, PlanDocument, Problem, StackDefaults, StackSpec, Training
from tests.bare_devices import bare
from tests.measured import profile

WRITTEN: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000}},
    "training": {"global_batch": 4, "sequence_length": 256, "micro_batch": [1]},
    "cluster": {
        "device": {"name": "mine", "memory": "80 GB", "memory_bandwidth": "2 TB/s", "peak": {"bf16": "300 TFLOP/s"}},
        "levels": [{"fanout": 4, "bandwidth": "100 GB/s"}],
    },
}
MINE = StackSpec(
    name="mine",
    targets=("megatron",),
    training=StackDefaults(overlap=Overlap(data=True, tensor=False), dispatch="per-node", attention="unfused"),
    pipeline_overlap=("interleaved", "1f1b"),
)

PROFILE = profile([1.0, 1.0], [2.0, 2.0], sent=1e11)
"""Two layers, and what passes between them takes a third of what they do."""

USUAL = "megatron-core"


def problem(training: dict[str, Any] | None = None, **sections: Any) -> Problem:
    return structure({**WRITTEN, "training": {**WRITTEN["training"], **(training or {})}, **sections}, Problem)


def bringing(*stacks: StackSpec) -> Registry:
    made = ModuleType("brings_stacks")

    @hook
    def nest_stacks() -> list[StackSpec]:
        return list(stacks)

    made.nest_stacks = nest_stacks  # type: ignore[attr-defined]
    return Registry([made])


def filled(asked: Problem, known: Registry | None = None, base: Path | None = None) -> Training:
    return self_contained(asked, base, known or registry()).training


def test_what_is_left_out_is_as_the_stack_has_it() -> None:
    found = filled(problem({"stack": "megatron-core"}))
    assert found.stack == "megatron-core"
    assert found.overlap == Overlap(data=True, tensor=True, pipeline=("interleaved",), experts=False)
    assert (found.overlap_reach, found.dispatch, found.accumulation) == ("domain", "per-node", "sharded")
    assert (found.attention, found.key_exchange) == (None, "ring")
    assert (found.expert_imbalance, found.gradients) == (None, None)


def test_each_key_that_is_written_wins() -> None:
    written = {"overlap": {"data": False, "experts": True}, "dispatch": "all-to-all", "context_exchange": "all_gather"}
    found = filled(problem({"stack": "megatron-core", **written}))
    assert found.overlap == Overlap(data=False, tensor=True, pipeline=("interleaved",), experts=True)
    assert (found.dispatch, found.key_exchange, found.attention) == ("all-to-all", "all_gather", None)


def test_all_keys_that_a_stack_fills_in_are_keys_of_training_that_may_be_left_out() -> None:
    whole = StackDefaults(Overlap(True, True, True, True), "domain", "per-node", 1.5, "whole", "flash", "ring", "bf16")
    whole = evolve(whole, all_ports=True, attention_kernel="flash3", graphs="layers", norms="eager")
    whole = evolve(whole, expert_products="sequential", reductions="layers", stage_split="products")
    found = filled(problem({"stack": "whole"}), bringing(StackSpec("whole", training=whole)))
    for each in fields(StackDefaults):
        assert getattr(found, each.name) == getattr(whole, each.name)


@pytest.mark.parametrize(
    ("training", "fixed", "hides"),
    [
        ({"schedule": ["interleaved"]}, None, ("interleaved",)),
        ({"schedule": ["1f1b", "interleaved"]}, None, ("interleaved",)),
        ({"schedule": ["1f1b", "interleaved"]}, {"schedule": "1f1b"}, ()),
        ({"schedule": ["interleaved"], "overlap": {"pipeline": False}}, None, ()),
        ({"schedule": ["1f1b", "interleaved"], "overlap": {"pipeline": True}}, None, ("1f1b", "interleaved")),
        ({"schedule": ["1f1b", "gpipe"], "overlap": {"pipeline": ["gpipe", "interleaved"]}}, None, ("gpipe",)),
        ({"schedule": ["1f1b", "gpipe"], "overlap": {"pipeline": "gpipe"}}, None, ("gpipe",)),
    ],
)
def test_messages_between_stages_hide_with_the_schedules_of_the_stack_or_of_the_problem(
    training: dict[str, Any], fixed: dict[str, Any] | None, hides: tuple[str, ...]
) -> None:
    asked = problem({"stack": "megatron-core", **training}, **({"fixed": fixed} if fixed else {}))
    whole = self_contained(asked, None, registry())
    decided = whole.decided.get("schedule")
    schedules = whole.training.schedule if decided is None else (str(decided),)
    assert hidden_messages(whole.training, schedules, registry()) == hides


@pytest.mark.longer
@pytest.mark.parametrize("profiled", [False, True])
def test_messages_that_hide_take_time_only_while_the_pipeline_fills_and_drains(profiled: bool) -> None:
    """With `1f1b` the slowest stage counts `M - 1` times more than the others, and messages once each."""

    def priced(hides: object) -> PlanDocument:
        asked: dict[str, Any] = {**WRITTEN, "fixed": {"pp": 2, "dp": 1, "micro_batch": 1}}
        asked["training"] = {**WRITTEN["training"], "stack": "none", "overlap": {"pipeline": hides}}
        if profiled:
            asked |= {"profile": PROFILE, "fixed": {"pp": 2, "dp": 1}}
            del asked["model"], asked["training"]["stack"], asked["training"]["micro_batch"]
        return api.evaluate(asked)

    shown, hidden = priced(False), priced("1f1b")
    assert priced(["gpipe"]).batch_time == shown.batch_time
    assert shown.batch_time is not None
    assert hidden.batch_time is not None
    slowest = [max(stage.time for stage in plan.stages or ()) for plan in (shown, hidden)]
    assert slowest[1] < slowest[0]
    assert shown.batch_time - hidden.batch_time == pytest.approx(3 * (slowest[0] - slowest[1]))


def test_an_unknown_schedule_with_which_messages_hide_is_refused() -> None:
    asked = problem({"overlap": {"pipeline": ["interleavd"]}})
    with pytest.raises(InputError, match=r"training\.overlap\.pipeline: .*'interleaved'"):
        hidden_messages(asked.training, asked.training.schedule, registry())


def test_a_target_implies_the_stack_that_runs_its_files() -> None:
    asked = problem(search={"target": "torchtitan"})
    assert filled(asked).stack == "fsdp"
    assert filled(evolve(asked, training=evolve(asked.training, stack="nanotron"))).stack == "nanotron"


def test_nothing_else_implied_the_device_does() -> None:
    described = {**WRITTEN["cluster"]["device"], "stack": "nanotron"}
    cluster = {**WRITTEN["cluster"], "device": described}
    assert filled(problem(cluster=cluster)).stack == "nanotron"
    assert filled(problem(cluster=cluster, search={"target": "maxtext"})).stack == "maxtext"
    assert filled(problem(cluster=cluster, search={"target": "galvatron"})).stack == "nanotron"


def test_zero_3_is_not_what_the_usual_stack_runs() -> None:
    cluster = {"device": "h100-sxm", "levels": [{"fanout": 8, "link": "nvlink4"}]}
    assert filled(problem(cluster=cluster, fixed={"zero": 3})).stack == "fsdp"
    assert filled(problem(cluster=cluster, fixed={"zero": 1})).stack == "megatron-core"
    assert filled(problem(cluster=cluster, fixed={"zero": 3}, search={"target": "megatron"})).stack == "megatron-core"
    described = {**WRITTEN["cluster"]["device"], "stack": "maxtext"}
    assert filled(problem(cluster={**WRITTEN["cluster"], "device": described}, fixed={"zero": 3})).stack == "maxtext"


def test_what_is_run_again_selectively_is_the_stacks() -> None:
    cluster = {"device": "h100-sxm", "levels": [{"fanout": 2, "link": "nvlink4"}]}
    fixed = {"zero": 3, "recompute": "selective"}
    attention = problem({"selective": ["attention"]}, cluster=cluster, fixed=fixed)
    usual = problem(cluster=cluster, fixed=fixed)
    assert filled(attention).selected == ("attention",) == problem().training.selected
    assert "mlp_norm" in filled(usual).selected
    plans = [api.evaluate(each) for each in (usual, attention)]
    assert plans[0].stages[0].memory < plans[1].stages[0].memory
    assert plans[0].batch_time > plans[1].batch_time


def test_a_device_in_place_implies_none_which_leaves_all_as_it_was() -> None:
    asked = problem()
    assert filled(asked) == evolve(asked.training, stack=NO_STACK)


def test_built_in_stacks_come_first_where_several_run_a_target() -> None:
    assert filled(problem(search={"target": "megatron"}), bringing(MINE)).stack == "megatron-core"


@pytest.mark.longer
def test_a_file_is_read_from_the_folder_of_the_problem_and_lies_in_the_plan(tmp_path: Path) -> None:
    text = 'name = "ours"\n[training]\nattention = "unfused"\n[training.overlap]\ndata = true\n'
    (tmp_path / "mine.toml").write_text(text)
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({**WRITTEN, "training": {**WRITTEN["training"], "stack": "mine.toml"}}))
    plan = api.solve(path)
    assert plan.problem["training"]["stack"]["name"] == "ours"
    assert plan.problem["training"]["attention"] == "unfused"
    (tmp_path / "mine.toml").unlink()
    assert api.check(plan).ok


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "mine"\n[training]\ndispatch = "per-rack"\n', r"mine\.toml:3: training\.dispatch"),
        ('name = "mine"\n[training.overlap]\ntenser = true\n', r"mine\.toml:3: training\.overlap\.tenser .* tensor"),
        ("[training]\n", r"mine\.toml.*name is missing"),
    ],
)
def test_mistakes_of_a_file_are_told_with_their_places(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=told):
        filled(problem({"stack": "./mine.toml"}), base=tmp_path)


@pytest.mark.parametrize(
    ("training", "cluster", "told"),
    [
        ({"stack": "megatron-cor"}, {}, r"training\.stack: .*'megatron-core'"),
        ({}, {"stack": "maxtex"}, r"cluster\.device\.stack: .*'maxtext'"),
        ({"stack": "there/is/none.toml"}, {}, r"training\.stack: there is no file .*`nest stacks`"),
    ],
)
def test_an_unknown_stack_is_refused_with_its_place(
    training: dict[str, Any], cluster: dict[str, Any], told: str
) -> None:
    described = {**WRITTEN["cluster"]["device"], **cluster}
    with pytest.raises(InputError, match=told):
        filled(problem(training, cluster={**WRITTEN["cluster"], "device": described}))


def test_a_stack_that_was_set_aside_is_not_replaced() -> None:
    known = bringing(evolve(MINE, training={"attention": "flash"}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"training\.stack: the plug-in of software stack 'mine' is disabled"):
        filled(problem({"stack": "mine"}), known)
    assert "is no StackDefaults" in known.warnings[0]


def test_a_profile_has_no_stack() -> None:
    written = {**WRITTEN, "profile": "profile.json"}
    del written["model"]
    assert with_stack(structure(written, Problem), device("h100-sxm"), registry()).training.stack is None
    with pytest.raises(InputError, match=r"training\.stack does not apply to a profile"):
        structure({**written, "training": {**WRITTEN["training"], "stack": "none"}}, Problem)


@pytest.mark.longer
def test_plans_of_before_there_were_stacks_are_taken_as_they_were_planned() -> None:
    plan = api.solve(problem({"stack": "none"}, cluster={**WRITTEN["cluster"], "device": "h100-sxm"}))
    before = evolve(plan, problem={**plan.problem, "training": {**plan.problem["training"]}})
    del before.problem["training"]["stack"]
    assert carried_problem(before, registry()).training.stack == NO_STACK
    assert api.check(before).ok


@pytest.mark.parametrize(
    ("training", "sections", "told"),
    [
        ({}, {}, f"{USUAL}: DP and TP communication overlaps with compute."),
        (
            {"schedule": ["1f1b", "interleaved"]},
            {},
            f"{USUAL}: DP, TP and PP (interleaved) communication overlaps with compute.",
        ),
        ({"overlap": {"tensor": False}}, {}, f"{USUAL}: no communication overlaps with compute."),
        ({"overlap": {"data": False}}, {}, f"{USUAL}: no communication overlaps with compute."),
        ({"overlap": {"data": True, "tensor": False}}, {}, f"{USUAL}: DP communication overlaps with compute."),
        ({}, {"search": {"target": "torchtitan"}}, "fsdp: DP communication overlaps with compute."),
        ({"stack": "maxtext"}, {}, None),
        ({"stack": "none"}, {}, None),
    ],
)
def test_a_stack_that_was_implied_is_told_in_one_line(
    training: dict[str, Any], sections: dict[str, Any], told: str | None
) -> None:
    cluster = {**WRITTEN["cluster"], "device": "h100-sxm"}
    asked = {**WRITTEN, "training": {**WRITTEN["training"], **training}, "cluster": cluster, **sections}
    lines: list[str] = []
    api.evaluate(asked, message=lines.append)
    assert lines == ([] if told is None else [f"Assuming {told}"])


DEVICE = evolve(
    bare("h100-sxm"),
    calibration=Coefficients(data_exposed=0.25, gathers_exposed=0.4, synchronisation=3.0, sharded_synchronisation=1.5),
)
HIDDEN = {"overlap": Overlap(data=True)}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, Exposure(1.0, False, 3.0, 1.5)),
        (HIDDEN, Exposure(0.25, True, 1.0, 1.0, 0.4)),
        ({**HIDDEN, "reductions": "layers"}, Exposure(0.4, True, 1.0, 1.0, 0.4)),
        ({**HIDDEN, "reductions": "buckets"}, Exposure(0.25, True, 1.0, 1.0, 0.4)),
        ({"reductions": "layers"}, Exposure(1.0, False, 3.0, 1.5)),
        ({"synchronisation": 2.0}, Exposure(1.0, False, 2.0, 1.0)),
        ({"sharded_synchronisation": 2.0}, Exposure(1.0, False, 3.0, 2.0)),
        ({**HIDDEN, "synchronisation": 2.0, "sharded_synchronisation": 4.0}, Exposure(0.25, True, 2.0, 4.0, 0.4)),
        ({"exposed": 0.5}, Exposure(0.5, False, 1.0, 1.0)),
        ({**HIDDEN, "exposed": 0.5}, Exposure(0.5, False, 1.0, 1.0)),
        ({**HIDDEN, "exposed": 0.5, "hiding": True}, Exposure(0.5, True, 1.0, 1.0)),
        ({**HIDDEN, "hiding": False}, Exposure(0.25, False, 1.0, 1.0, 0.4)),
        ({"hiding": True}, Exposure(1.0, True, 3.0, 1.5)),
    ],
)
def test_the_problem_comes_first_then_the_device(
    problem: Callable[..., Problem], training: dict[str, Any], expected: Exposure
) -> None:
    assert data_parallel_exposure(problem(training=training).training, DEVICE) == expected


def test_a_device_without_a_calibration_hides_all_that_fits(problem: Callable[..., Problem]) -> None:
    assert data_parallel_exposure(problem().training, bare("tpu-v4")) == Exposure(1.0, False, 1.0, 1.0)
    assert data_parallel_exposure(problem(training=HIDDEN).training, bare("tpu-v4")) == Exposure(
        0.0, True, 1.0, 1.0, 0.0
    )


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, Exposure(1.0, False, 1.0, 1.0)),
        (HIDDEN, Exposure(0.0, False, 1.0, 1.0)),
        ({"synchronisation": 2.0}, Exposure(1.0, False, 2.0, 1.0)),
    ],
)
def test_a_profile_keeps_the_constants_of_the_statement(training: dict[str, Any], expected: Exposure) -> None:
    for its in (DEVICE, None):
        assert data_parallel_exposure(Training(8, **training), its, modelled=False) == expected
