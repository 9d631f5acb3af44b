"""Modules of many kinds under many plans: what `apply` starts trains as one process does; what does not, it refuses."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

import nest_torch  # noqa: E402
import zoo  # noqa: E402
import zoo_families  # noqa: E402
from nest_torch import planning  # noqa: E402

HERE = Path(__file__).resolve().parent
TOKENS = {"tokens": torch.zeros(1, zoo.LENGTH, dtype=torch.long)}


def planned(name: str, key: str) -> Any:
    with torch.device("meta"):
        module = {**zoo.TRAINED, **zoo_families.TRAINED}[name]()
    count = 4 if "-" in key else 2
    cluster = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": count, "link": "nvlink4"}]}
    training = {"global_batch": 16, "micro_batch": [2], **({"schedule": "1f1b"} if key == "pp" else {})}
    return nest_torch.plan(module, TOKENS, cluster, training=training, fixed=zoo.PLANS[key])


def found(
    cases: list[tuple[str, str]], folder: Path, ranks: int, monkeypatch: pytest.MonkeyPatch, *more: str
) -> dict[str, Any]:
    """What came of each module and plan, which nobody but `apply` refuses."""
    monkeypatch.setattr(planning, "_strategies", lambda *_: {})
    for name, key in cases:
        (folder / f"{name}-{key}.plan.json").write_text(json.dumps(planned(name, key).to_dict()))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*launcher, str(HERE / "zoo_ranks.py"), str(folder), *more],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {path.name.partition(".")[0]: json.loads(path.read_text()) for path in folder.glob("*.found")}


def right_or_refused(rows: dict[str, Any]) -> dict[str, bool]:
    """Which cases trained; those that did trained as one process."""
    for case, row in rows.items():
        assert row.get("refused") or (row["apart"] < 1e-6 and row["kept"]), (case, row)
    return {case: "apart" in row for case, row in rows.items()}


QUICK = {
    "fused_qkv-tp": True,
    "statistics-pp": True,
    "skips-pp": True,
    "shared-pp": True,
    "literal_views-tp": True,
    "query_norms-sp": True,
    "average-zero": False,
    "noisy-zero": False,
}


def test_some_plans_train_as_one_process_does_and_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [(name, key) for name, _, key in (case.partition("-") for case in QUICK)]
    rows = found(cases, tmp_path, 2, monkeypatch)
    assert right_or_refused(rows) == QUICK
    assert "average would be saved with other numbers" in rows["average-zero"]["refused"]
    assert "draws random numbers" in rows["noisy-zero"]["refused"]


REFUSED = {
    "tp": {"without_rule", "noisy", "own_loss"},
    "pp": {"average", "without_rule", "noisy", "own_loss"},
    "zero": {"average", "without_rule", "scaled_queries", "noisy", "own_loss"},
    "recompute": {"statistics"},
    "sp": set(),
}
"""Modules that `apply` refuses with a strategy."""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_plan_of_the_zoo_trains_as_one_process_does_or_is_refused(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key for key in zoo.PLANS if ("-" in key) == (ranks == 4)]
    convolutional = ("statistics", "residual_around")  # Without heads or widths that tensor parallelism splits.
    cases = [(n, k) for n in zoo.TRAINED for k in keys if n not in convolutional or not zoo.PLANS[k].get("tp")]
    trained = right_or_refused(found(cases, tmp_path, ranks, monkeypatch))
    assert len(trained) == len(cases)
    used = {"sp": ("tp", "sp"), "recompute": ("pp", "recompute")}
    for (name, key), right in zip(cases, (trained[f"{n}-{k}"] for n, k in cases), strict=True):
        strange = any(name in REFUSED[each] for each in used.get(key, key.split("-")))
        assert right == (not strange), (name, key)


@pytest.mark.slow
def test_ranks_that_differ_and_wrong_samples_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [("plain", "tp"), ("plain", "pp"), ("fused_qkv", "tp"), ("query_norms", "sp")]
    rows = found(cases, tmp_path, 2, monkeypatch, "odd")["odd"]
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
def test_a_rank_that_fails_where_others_wait_for_it_is_heard_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = found([("plain", "tp")], tmp_path, 2, monkeypatch, "lonely")
    assert rows.keys() == {"0", "1"}
    assert all("ValueError: no memory is left" in each for each in rows.values()), rows


@pytest.mark.parametrize(("name", "key"), [("literal_views", "tp"), ("inferred_views", "sp"), ("alibi", "tp-pp")])
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


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_no_plan_trains_a_family_of_transformers_wrongly(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two plans of each family, drawn by a seed: one process's numbers, or a refusal; never a crash."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    keys = [key for key in zoo.PLANS if ("-" in key) == (ranks == 4)]
    draw = random.Random(ranks)
    cases = [(name, key) for name in zoo_families.TRAINED for key in draw.sample(keys, 2)]
    right_or_refused(found([case for case in cases if plannable(*case)], tmp_path, ranks, monkeypatch))


def plannable(name: str, key: str) -> bool:
    """Whether a module is planned so, and not refused before."""
    try:
        planned(name, key)
    except InputError:
        return False
    return True


LOOPS = [("plain", "zero"), ("plain", "pp"), ("skips", "pp"), ("plain", "tp"), ("literal_views", "tp")]


@pytest.mark.slow
def test_a_usual_loop_trains_as_one_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipping, a schedule of AdamW's rate, evaluation, a last batch of half the size, and two lengths."""
    rows = found(LOOPS, tmp_path, 2, monkeypatch, "loop")
    assert rows.keys() == {"-".join(each) for each in LOOPS}
    assert all(row["apart"] < 1e-9 for row in rows.values()), rows  # AdamW divides by small moments.
