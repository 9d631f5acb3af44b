"""Modules of many kinds under many plans: what `apply` starts trains as one process does; what does not, it refuses."""

import copy
import inspect
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

import nest_torch  # noqa: E402
import zoo  # noqa: E402
import zoo_families  # noqa: E402
from nest_torch import planning  # noqa: E402
from nest_torch.parallel import filling  # noqa: E402
from nest_torch.parallel.layout import deployment_of  # noqa: E402
from zoo_ranks import example, make  # noqa: E402

HERE = Path(__file__).resolve().parent
TOKENS = zoo.TOKENS
PLANS = {key: each for plans in zoo.PLANS.values() for key, each in plans.items()}
SEED = os.environ.get("NEST_SEED", "0")
"""Seed of the drawn plans and modules; `tools/nightly` takes the day's number."""


@cache
def module(name: str) -> Any:
    with torch.device("meta"):
        return make(name)


def planned(name: str, key: str) -> Any:
    ranks, fixed = PLANS[key]
    cluster = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": ranks, "link": "nvlink4"}]}
    training = {"global_batch": 16, "micro_batch": [2], **{k: e for k, e in fixed.items() if k == "schedule"}}
    decided = {k: e for k, e in fixed.items() if k != "schedule"}
    return nest_torch.plan(module(name), example(name, torch.float32), cluster, training=training, fixed=decided)


def found(cases: Iterable[tuple[str, str]], folder: Path, *more: str) -> dict[str, Any]:
    """Outcome of each module and plan."""
    rows: dict[str, Any] = {}
    for name, key in cases:
        try:
            plan = planned(name, key)
        except InputError as error:
            rows[f"{name}-{key}"] = {"refused": str(error), "planned": False}
        except Exception as error:
            rows[f"{name}-{key}"] = {"crashed": repr(error)}
        else:
            rows[f"{name}-{key}"] = {"refused": plan.status, "planned": False}
            if plan.candidate is not None:
                place = folder / str(deployment_of(plan).world_size)
                place.mkdir(exist_ok=True)
                (place / f"{name}-{key}.plan.json").write_text(json.dumps(plan.to_dict()))
    for place in folder.iterdir():
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", place.name]
        while any(place.iterdir()):
            done = subprocess.run(
                [*launcher, str(HERE / "zoo_ranks.py"), str(place), *more],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            raised = [line for line in done.stderr.splitlines() if line.startswith("[rank")] or [done.stderr]
            assert done.returncode == 0 or not more, raised
            if done.returncode == 0:
                break
            left = [each for each in sorted(place.glob("*.plan.json")) if not each.with_suffix(".found").exists()]
            left[0].with_suffix(".found").write_text(json.dumps({"crashed": raised[-1]}))
        rows |= {path.name.partition(".")[0]: json.loads(path.read_text()) for path in place.glob("*.found")}
    return rows


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that nobody but `apply` refuses."""
    monkeypatch.setattr(planning, "_strategies", lambda *_: {})
    monkeypatch.setattr(planning.Rehearsal, "untrainable", lambda _: None)
    monkeypatch.setattr(planning.Rehearsal, "refused", lambda *_: None)


def verdict(row: dict[str, Any]) -> str:
    """Right, refused (by the planner: none), wrong, or crashed."""
    if "apart" not in row:
        return "crashed" if "crashed" in row else "refused" if row.get("planned", True) else "none"
    return "right" if row["apart"] < 1e-6 and row["kept"] else "wrong"


QUICK = {
    "fused_qkv-tp": "right", "statistics-pp": "right", "skips-pp": "right", "shared-pp": "right",
    "literal_views-tp": "right", "query_norms-sp": "right", "average-zero": "refused", "noisy-zero": "refused",
    "scaled_queries-zero": "right", "drawn0_0-pp": "right",
}  # fmt: skip


@pytest.mark.usefixtures("unplanned")
def test_some_plans_train_as_one_process_does_and_others_are_refused(tmp_path: Path) -> None:
    cases = [(name, key) for name, _, key in (case.partition("-") for case in QUICK)]
    rows = found(cases, tmp_path)
    assert {case: verdict(row) for case, row in rows.items()} == QUICK
    assert "average would be saved with other numbers" in rows["average-zero"]["refused"]
    assert "draws random numbers" in rows["noisy-zero"]["refused"]


def drawn() -> Iterator[tuple[str, str]]:
    """Four plans of each module and of some that are drawn: pipelines, tensor parallelism, both, and neither."""
    for name in [*zoo.TRAINED, *zoo_families.TRAINED, *(f"drawn{SEED}_{index}" for index in range(8))]:
        draw = random.Random(f"{SEED} {name}")
        positions = "position_ids" in inspect.signature(module(name).forward).parameters
        other = "context" if positions and draw.random() < 0.5 else "data"
        for kind in ("pp", "tp", "both", "experts" if name in zoo_families.ROUTED_FAMILIES else other):
            yield name, draw.choice(list(zoo.PLANS[kind]))


@pytest.mark.slow
def test_every_plan_of_the_zoo_trains_as_one_process_does(tmp_path: Path) -> None:
    """`pytest -s` prints what came of each module and plan."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    cases = list(drawn())
    rows = found(cases, tmp_path)
    seen = {case: verdict(rows["-".join(case)]) for case in cases}
    for name in dict.fromkeys(name for name, _ in cases):
        print(f"{name:18}", *(f"{key} {ended}".ljust(20) for (each, key), ended in seen.items() if each == name))
    strange = {case: rows["-".join(case)] for case, ended in seen.items() if ended not in ("right", "none")}
    right = {kind: {n for (n, k), e in seen.items() if e == "right" and k in zoo.PLANS[kind]} for kind in zoo.PLANS}
    print(Counter(seen.values()), {kind: len(names) for kind, names in right.items()})
    assert not strange, strange
    assert len(right["pp"] | right["both"]) >= 30
    assert len(right["tp"] | right["both"]) >= 25


@pytest.mark.slow
@pytest.mark.usefixtures("unplanned")
def test_ranks_that_differ_and_wrong_samples_are_refused(tmp_path: Path) -> None:
    cases = [("plain", "tp"), ("plain", "pp"), ("fused_qkv", "tp"), ("query_norms", "sp")]
    rows = found(cases, tmp_path, "odd")["odd"]
    assert "embed.weight differs between ranks; make the module from the same seed" in rows.pop("weights")
    assert "targets must have as many rows" in rows.pop("rows")
    assert "draw samples by `parallel.data_rank`" in rows.pop("samples")
    assert "save with parallel.state_dict()" in rows.pop("raw")
    assert "load with parallel.load_state_dict(state)" in rows.pop("raw load")
    assert "average would be saved with other numbers" in rows.pop("refused")
    assert "the gradient of layers." in rows.pop("shrunk and wrong")
    assert rows.pop("layers tried") == [2, 4, 2]
    assert not any(rows.values()), rows


@pytest.mark.slow
def test_a_rank_that_fails_where_others_wait_for_it_is_heard_by_all(tmp_path: Path) -> None:
    rows = found([("plain", "tp")], tmp_path, "lonely")
    assert rows.keys() == {"0", "1"}
    assert all("ValueError: no memory is left" in each for each in rows.values()), rows


@pytest.mark.parametrize(("name", "key"), [("literal_views", "tp"), ("inferred_views", "sp"), ("alibi", "tp_pp")])
def test_code_that_does_not_run_on_shares_is_planned_with_placed_tensors(name: str, key: str) -> None:
    plan = planned(name, key)
    assert plan.candidate is not None
    assert plan.candidate.degrees["tp"] == 2


def test_code_without_a_rule_for_placed_tensors_is_refused() -> None:
    with pytest.raises(InputError, match=r"fixed.tp: .* nor on placed tensors \("):
        planned("without_rule", "tp")


@pytest.mark.parametrize(("name", "axis"), [("inner_norm", "ffn"), ("query_norms", "heads")])
def test_an_axis_that_a_reduction_sums_over_stays_whole(name: str, axis: str) -> None:
    def axes(each: str) -> set[str]:
        with torch.device("meta"):
            graph = nest_torch.capture(zoo.TRAINED[each](), (TOKENS["tokens"],))
        return {a for o in graph.operators for p in o.parameters for a, _ in p.shape}

    assert axis in axes("plain")
    assert axis not in axes(name)


def test_a_plan_without_demands_leaves_out_what_the_code_has_no_room_for() -> None:
    with torch.device("meta"):
        module = zoo.WithoutRule()
    cluster = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]}
    plan = nest_torch.plan(module, TOKENS, cluster, training={"global_batch": 16})
    assert plan.candidate is not None
    assert plan.candidate.degrees.get("tp", 1) == 1


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("noisy", "zero", r"it draws random numbers, also after eval\(\) \(randn_like\)"),
        ("own_loss", "pp", "a first tensor without a row for each sample"),
        ("average", "zero", "fixed.dp: .* changes average, of which each rank would keep another"),
        ("statistics", "recompute", "fixed.recompute: .* a second forward pass of a block would change layers"),
        ("average", "pp", "fixed.pp: .* changes average, of which each stage would keep another"),
    ],
)
def test_modules_that_no_plan_trains_alike_are_refused(name: str, key: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        planned(name, key)


def test_statistics_of_one_stage_are_planned() -> None:
    assert planned("statistics", "pp").candidate is not None


def test_parts_of_a_plan_that_do_not_run_together_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any, __: Any, shape: Any) -> str | None:
        return "no rule" if shape.tp > 1 and shape.stages > 1 else None

    monkeypatch.setattr(planning.Rehearsal, "refused", refused)
    found = planned("plain", "pp4")
    assert (len(found.stages), found.candidate.degrees.get("tp", 1)) == (4, 1)
    with pytest.raises(InputError, match=r"does not run with pp > 1 and tp == 2: no rule\. Leave more open"):
        planned("plain", "tp_pp_dp")


@pytest.mark.longer
def test_biases_of_experts_are_not_planned_with_split_experts() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    with pytest.raises(InputError, match=r"with etp == 2 and tp == 2: .* would add down_proj_bias once more"):
        planned("gpt_oss", "ep_tp")


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_other_ranks_than_a_plan_has_are_refused() -> None:
    with pytest.raises(InputError, match="the plan has 2 ranks, but 1 were started; start 2"):
        nest_torch.mesh(planned("plain", "tp"), "cpu")


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", ["mask", "places", "bias"])
@pytest.mark.parametrize("made", ["", "in place", "anew"])
def test_buffers_that_no_code_makes_are_refused(name: str, made: str) -> None:
    numbers = {"mask": torch.ones(4, 4).tril().bool(), "places": torch.arange(4), "bias": torch.arange(4.0)}[name]

    class Kept(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer(name, numbers.to("meta"))

        def reset_parameters(self) -> None:
            if made == "in place":
                getattr(self, name).copy_(numbers)
            elif made:
                setattr(self, name, numbers.clone())

    module = Kept()
    if made:
        filling.fill(module, [stage := copy.deepcopy(module)], [], torch.device("cpu"))
        assert torch.equal(getattr(stage, name), numbers)
    else:
        with pytest.raises(InputError, match=f"{name} of Kept has no numbers; give it a reset_parameters"):
            filling.fill(module, [copy.deepcopy(module)], [], torch.device("cpu"))


@pytest.mark.parametrize("asked", ["zero-bubble", ["zb-v", "dualpipe-v"]])
def test_schedules_that_take_longer_than_planned_are_refused(asked: Any) -> None:
    with pytest.raises(InputError, match=r"training.schedule: .* plan with 1f1b, gpipe, interleaved"):
        nest_torch.plan(module("plain"), TOKENS, {"device": "h100-sxm"}, training={"schedule": asked})


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"training": {"schedule": []}}, "training.schedule must not be empty"),
        ({"training": {"schedule": 3}}, "training.schedule must be text, is 3"),
        ({"training": {"schedule": {}}}, "training.schedule must be a list, is a mapping"),
        ({"training": {"schedule": [{}]}}, r"training.schedule\[0\] must be text, is a mapping"),
        ({"training": 3}, "training must hold keys and values, is 3"),
        ({"strategies": None}, "strategies must hold keys and values, is None"),
        ({"search": ["target"]}, r"search must hold keys and values, is \['target'\]"),
        ({"constraints": 3}, "must be text, is 3"),
        ({"fixed": ["dp"]}, "fixed must hold keys and values, is a list"),
        ({"fixed": {"dp": None}}, "fixed.dp must be .* is nothing"),
        ({"training": {"global_batch": 16}, "fixed": {"batch": "none"}}, "fixed.batch is 'none'; it must be a whole"),
        ({"fixed": {"recompute": None}}, "fixed.recompute must be .* is nothing"),
    ],
)
def test_malformed_sections_are_refused_as_solve_refuses_them(sections: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        nest_torch.plan(module("statistics"), TOKENS, {"device": "h100-sxm"}, **sections)


def test_a_constraint_may_stand_alone() -> None:
    cluster = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]}
    plan = nest_torch.plan(module("plain"), TOKENS, cluster, training={"global_batch": 16}, constraints="pp == 2")
    assert len(plan.stages) == 2


LOOPS = [
    *[
        ("plain", "zero"),
        ("plain", "zero1"),
        ("plain", "pp"),
        ("skips", "pp"),
        ("plain", "tp"),
        ("literal_views", "tp"),
    ],
    *[("scaled_queries", "zero"), ("mixtral_family", "ep")],
]


@pytest.mark.slow
def test_a_usual_loop_trains_as_one_process_does(tmp_path: Path) -> None:
    """Clipping, a schedule of AdamW's rate, evaluation, a last batch of half the size, and two lengths."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    rows = found(LOOPS, tmp_path, "loop")
    assert rows.keys() == {"-".join(each) for each in LOOPS}
    assert all(row["apart"] < 1e-9 for row in rows.values()), rows  # AdamW divides by small moments.


@pytest.mark.slow
def test_a_checkpoint_is_read_under_other_plans_and_by_one_process(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    plans = {"tied": ("interleaved", "tp_pp", "tp_zero", "hybrid"), "mixtral_family": ("ep_pp", "ep_tp", "ep_zero")}
    rows = found([(name, key) for name, keys in plans.items() for key in keys], tmp_path, "saved")
    for name, keys in plans.items():
        assert len(rows[name]["apart"]) == len(keys) + 1, rows
        assert max(rows[name]["apart"]) < 1e-12, rows


@pytest.mark.slow
def test_a_module_on_the_meta_device_gets_the_weights_of_one_process(tmp_path: Path) -> None:
    """Weights that a module's parts make from one seed, in order; those of `plain` are its constructor's."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    plans = {"plain": ("tp_zero", "interleaved"), "gpt2_family": ("tp_pp", "hybrid"), "mixtral_family": ("ep_tp",)}
    cases = [(name, key) for name, keys in plans.items() for key in keys]
    rows = found([*cases, ("alibi", "zero1")], tmp_path, "unmade")
    assert "bias of Alibi has no numbers; give it a reset_parameters" in rows.pop("alibi-zero1")["refused"]
    assert {case: row["unlike"] for case, row in rows.items()} == {"-".join(case): [] for case in cases}
    assert all(not row["unbuilt"] for case, row in rows.items() if case.startswith("plain")), rows
