"""Modules of many kinds under many plans: what `apply` starts trains as one process does; what does not, it refuses."""

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
        place = folder / str(PLANS[key][0])
        place.mkdir(exist_ok=True)
        try:
            plan = planned(name, key)
        except InputError as error:
            rows[f"{name}-{key}"] = {"refused": str(error), "planned": False}
        except Exception as error:
            rows[f"{name}-{key}"] = {"crashed": repr(error)}
        else:
            rows[f"{name}-{key}"] = {"refused": plan.status, "planned": False}
            if plan.candidate is not None:
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
    strange = {case: rows["-".join(case)] for case, ended in seen.items() if ended in ("wrong", "crashed")}
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
