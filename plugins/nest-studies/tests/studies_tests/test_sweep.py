"""Sweeps: every point solved as alone, in the order of the study, once, whatever runs it and however often it ends."""

import csv
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest_studies.engines.local import Local
from nest_studies.sweep import point as point_module
from nest_studies.sweep.journal import Journal, journal_of
from nest_studies.sweep.monotone import contradictions
from nest_studies.sweep.point import versions
from nest_studies.sweep.points import problem_at, read_points
from nest_studies.sweep.run import run_sweep

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 2, "vocab": 4000}},
    "training": {"global_batch": 8, "sequence_length": 512, "micro_batch": [1, 2], "schedule": ["1f1b"]},
    "search": {"within": 0},
    "cluster": {
        "device": "a100-sxm-80g",
        "levels": [{"fanout": 2, "link": "nvlink3"}, {"fanout": 2, "bandwidth": "10 GB/s", "latency": "5 us"}],
    },
}
BANDWIDTH, MEMORY, BATCH = "cluster.levels[1].bandwidth", "cluster.memory", "training.global_batch"
VARIED = {BATCH: [4, 8], BANDWIDTH: ["5 GB/s", "25 GB/s"], MEMORY: ["80 GB", "8 GB", "10 MB"]}
POINTS = [{BATCH: 16, "search.zero": [0]}, {"model": "nonsense"}, {BATCH: 4, BANDWIDTH: "5 GB/s", MEMORY: "8 GB"}]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return written(tmp_path, vary=VARIED, points=POINTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of the study, found by one process in the order of the points; its journal lies beside them."""
    output = tmp_path_factory.mktemp("whole") / "rows.jsonl"
    nest.sweep(written(output.parent, vary=VARIED, points=POINTS), output=output, jobs=1)
    return output


def known(whole: Path, output: Path) -> Path:
    """`output`, of which all is known before."""
    journal_of(output).write_bytes(journal_of(whole).read_bytes())
    return output


def written(folder: Path, **keys: Any) -> Path:
    (folder / "problem.json").write_text(json.dumps(PROBLEM))
    path = folder / "study.json"
    path.write_text(json.dumps({"nest": 1, "base": "problem.json", **keys}))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_points_are_the_product_and_what_follows(study: Path) -> None:
    points = read_points(study)
    product = [
        {BATCH: batch, BANDWIDTH: bandwidth, MEMORY: memory}
        for batch in VARIED[BATCH]
        for bandwidth in VARIED[BANDWIDTH]
        for memory in VARIED[MEMORY]
    ]
    assert list(points.values) == [*product, *POINTS]
    assert points.columns == (BATCH, BANDWIDTH, MEMORY, "search.zero", "model")


def test_a_study_of_points_alone_has_no_other_rows(tmp_path: Path) -> None:
    assert read_points(written(tmp_path, points=POINTS)).values == tuple(POINTS)


def test_a_path_changes_its_key_alone() -> None:
    before = json.dumps(PROBLEM)
    changed = problem_at(PROBLEM, {BANDWIDTH: 1, "search.zero": [1], "training.micro_batch": None})
    assert json.dumps(PROBLEM) == before
    assert changed["cluster"]["levels"] == [
        PROBLEM["cluster"]["levels"][0],
        {**PROBLEM["cluster"]["levels"][1], "bandwidth": 1},
    ]
    assert changed["search"] == {"within": 0, "zero": [1]}
    assert changed["training"] == {"global_batch": 8, "sequence_length": 512, "schedule": ["1f1b"]}


def test_each_row_is_what_solving_its_problem_gives(study: Path, whole: Path) -> None:
    rows = rows_of(whole)
    points = read_points(study)
    assert [row["status"] for row in rows] == ["optimal", "optimal", "infeasible"] * 4 + [
        "optimal",
        "invalid",
        "optimal",
    ]
    for values, row in zip(points.values, rows, strict=True):
        assert {path: row[path] for path in points.columns} == {path: values.get(path) for path in points.columns}
        assert len(row["key"]) == 64
        if row["status"] == "invalid":
            assert "nonsense" in row["reason"]
            assert row["plan"] is None
            continue
        plan = nest.solve(problem_at(PROBLEM, values)).to_dict()
        # What searches did, and the other plans that they are continued for, depend on more than the problem.
        alone = {"statistics": {}, "runner_up": None, "safer": None, "simpler": None, "to_measure": []}
        unknown = [{**each, "others": {}} for each in plan["unknown"]]
        assert row["plan"] == {**plan, **alone, "unknown": unknown}
        assert row["reason"] == plan["diagnosis"]
        assert row["batch_time"] == plan["batch_time"]
    fast = rows[0]
    plan = fast["plan"]
    assert fast["dp"] * fast["pp"] * fast["tp"] * fast["cp"] == fast["devices"] == plan["summary"]["devices_used"]
    assert (fast["low"], fast["high"]) == (plan["batch_time_range"]["low"], plan["batch_time_range"]["high"])
    assert fast["zero"] == plan["stages"][0]["zero"]
    # The last point is the second again, which is not solved twice.
    assert {**rows[1], "search.zero": None} == {**rows[-1], "search.zero": None}
    assert lines(journal_of(whole)) == len({row["key"] for row in rows}) - 1


def test_every_format_holds_the_same(study: Path, whole: Path, tmp_path: Path) -> None:
    assert nest.sweep(study, output=known(whole, tmp_path / "rows.csv"), jobs=1).solved == 0
    rows = rows_of(whole)

    def text(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    with (tmp_path / "rows.csv").open(newline="") as stream:
        assert list(csv.DictReader(stream)) == [{name: text(value) for name, value in row.items()} for row in rows]


def test_parquet_without_its_extra_is_told(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow; install it with `pip install 'nest-planner\[sweep\]'`"):
        nest.sweep(study, output=tmp_path / "rows.parquet")


@pytest.mark.longer
def test_processes_give_the_same_bytes(study: Path, whole: Path, tmp_path: Path) -> None:
    nest.sweep(study, output=tmp_path / "rows.jsonl", jobs=2)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole.read_bytes()


def test_dask_gives_the_same_bytes(study: Path, whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` runs sweeps on Dask")
    nest.sweep(study, output=tmp_path / "rows.jsonl", engine="dask", jobs=2)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole.read_bytes()


class Shuffled:
    """An engine that answers in an order of its own, some points twice."""

    name, summary = "shuffled", "any order"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def submit(self, function: Any, items: Any) -> Any:
        order = [*items, *items[:2]]
        random.Random(self.seed).shuffle(order)
        yield from map(function, order)


def test_memory_in_any_order_gives_the_same_bytes(tmp_path: Path) -> None:
    """The answer of a point serves those of less memory that it fits, and no others."""

    class Ascending(Shuffled):
        def submit(self, function: Any, items: Any) -> Any:
            yield from map(function, reversed(items))

    study = written(tmp_path, vary={MEMORY: ["80 GB", "79 GB", "1.3 GB", "1.25 GB"]})
    nest.sweep(study, output=tmp_path / "rows.jsonl", jobs=1)
    point_module._here.__dict__.clear()
    run_sweep(study, tmp_path / "again.jsonl", Ascending(1), registry())
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "rows.jsonl").read_bytes()
    assert len({row["batch_time"] for row in rows_of(tmp_path / "rows.jsonl")}) > 1


@pytest.mark.longer
def test_what_is_not_answered_is_told(study: Path, tmp_path: Path) -> None:
    class Lazy(Shuffled):
        def submit(self, function: Any, items: Any) -> Any:
            yield function(items[0])

    with pytest.raises(InputError, match="it gave no answer for 12 points"):
        run_sweep(study, tmp_path / "rows.csv", Lazy(1), registry())
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.longer
@given(share=st.floats(0.3, 1), garbage=st.binary(max_size=9))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_journal_cut_anywhere_is_gone_on_with(
    study: Path, whole: Path, tmp_path_factory: pytest.TempPathFactory, share: float, garbage: bytes
) -> None:
    kept = journal_of(whole).read_bytes()
    kept = kept[: int(share * len(kept))]
    output = tmp_path_factory.mktemp("cut") / "rows.jsonl"
    journal_of(output).write_bytes(kept + garbage.replace(b"\n", b""))
    found = nest.sweep(study, output=output, jobs=1)
    assert output.read_bytes() == whole.read_bytes()
    assert found.solved == 13 - kept.count(b"\n")


@pytest.mark.longer
def test_what_is_finished_is_not_solved_again(whole: Path, tmp_path: Path) -> None:
    output = known(whole, tmp_path / "rows.jsonl")
    assert nest.sweep(written(tmp_path, vary=VARIED, points=POINTS), output=output, jobs=1).solved == 0
    assert output.read_bytes() == whole.read_bytes()
    further = {**VARIED, BANDWIDTH: ["5 GB/s"], MEMORY: ["80 GB", "8 GB", "81 GB"]}
    assert nest.sweep(written(tmp_path, vary=further), output=output, jobs=1).solved == 2
    limited = written(tmp_path, points=POINTS[:1], time_limit="1 min")
    assert nest.sweep(limited, output=output, jobs=1).solved == 1


def test_another_plug_in_file_makes_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "mine.py"
    monkeypatch.setenv("NEST_PLUGINS", str(plugin))
    seen = []
    for text in ("", "", "# changed"):
        plugin.write_text(text)
        seen.append(versions(registry()))
    assert seen[0] == seen[1] != seen[2]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_two_sweeps_do_not_write_one_journal(study: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    with Journal(journal_of(output)), pytest.raises(InputError, match="another sweep writes to it"):
        nest.sweep(study, output=output, jobs=1)


def test_what_is_no_journal_is_left_alone(study: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    journal_of(output).write_text("notes\nof mine\n")
    with pytest.raises(InputError, match="not a journal"):
        nest.sweep(study, output=output, jobs=1)
    assert journal_of(output).read_text() == "notes\nof mine\n"


@pytest.mark.longer
def test_a_worker_that_is_killed_is_told() -> None:
    with pytest.raises(InputError, match=r"a worker process ended .killed by signal 9.* run the same sweep again"):
        list(Local(jobs=2).submit(signal.raise_signal, [signal.SIGKILL] * 3))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"vary": {"cluster.levels[1].bandwith": [1]}}, r"study.json:1: .* is not a known key; did you mean bandwidth"),
        ({"vary": {"cluster.levels[2].bandwidth": [1]}}, r"cluster.levels of the base problem ends at \[1\]"),
        ({"vary": {"training[0]": [1]}}, "the base problem has no list training"),
        ({"vary": {"cluster.device.peak": [1]}}, "of the base problem is 'a100-sxm-80g', which holds no keys"),
        ({"vary": {"cluster..memory": [1]}}, "is no path of a key"),
        ({"vary": {MEMORY: []}}, "vary.cluster.memory must not be empty"),
        ({"points": [{"nonsense": 1}]}, r"points\[0\].nonsense leads to no key"),
        ({}, "vary is missing; give vary, points or both"),
        ({"vary": {BATCH: [*range(400)], "search.zero": [*range(400)]}}, "makes 160000 points"),
        ({"vary": {BATCH: [1]}, "base": "none.yaml"}, "none.yaml: there is no such file"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    study = written(tmp_path, **keys)
    with pytest.raises(InputError, match=told):
        nest.sweep(study, output=tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"output": "rows.xlsx"}, "must end with .parquet, .csv or .jsonl"),
        ({"engine": "slurm"}, "--engine"),
        ({"jobs": 0}, "--jobs is 0; it must be at least 1"),
        ({"scheduler": "tcp://here:1"}, "--scheduler needs `--engine dask`"),
        ({"engine": "dask", "jobs": 2, "scheduler": "tcp://here:1"}, "use --scheduler or --jobs"),
    ],
)
def test_options_that_cannot_be_are_told(study: Path, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    options = {"output": "rows.csv", **options}
    with pytest.raises(InputError, match=told):
        nest.sweep(study, **{**options, "output": tmp_path / options["output"]})


def test_a_problem_is_no_study(tmp_path: Path) -> None:
    written(tmp_path, vary=VARIED)
    with pytest.raises(InputError, match="this is a problem, not a study"):
        nest.sweep(tmp_path / "problem.json", output=tmp_path / "rows.csv")


def test_a_better_cluster_that_is_slower_is_told(tmp_path: Path) -> None:
    points = read_points(
        written(tmp_path, vary={BATCH: [4, 8], BANDWIDTH: ["5 GB/s", "25 GB/s"], MEMORY: ["1 GB", "2 GB"]})
    )
    times = [4.0, 3.0, 2.0, 2.0, 9.0, 9.0, 8.0, 7.0]
    rows = [
        {**values, "status": "optimal", "batch_time": time, "lower_bound": time}
        for values, time in zip(points.values, times, strict=True)
    ]
    assert list(contradictions(points, rows)) == []
    rows[3] |= {"batch_time": 3.5, "lower_bound": 3.5}  # Slower than rows 2 and 3, and faster than row 1.
    told = list(contradictions(points, rows))
    assert [sentence[:30] for sentence in told] == ["row 4 is row 2 on a better clu", "row 4 is row 3 on a better clu"]
    assert "(cluster.levels[1].bandwidth 25 GB/s for 5 GB/s), but its best plan takes 3.5 s for 3 s" in told[0]
    rows[3] |= {"status": "feasible", "lower_bound": 1.9}  # A search that was ended proves nothing of the kind.
    assert list(contradictions(points, rows)) == []
    rows[7] |= {"status": "infeasible", "batch_time": None, "lower_bound": None}
    assert [sentence[:14] for sentence in contradictions(points, rows)] == [
        "row 8 is row 5",
        "row 8 is row 6",
        "row 8 is row 7",
    ]


def test_a_worker_of_a_scheduler_that_is_lost_loses_nothing(study: Path, whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` runs sweeps on Dask")
    address, python = tmp_path / "scheduler.json", [sys.executable, "-m"]
    options = ["--no-dashboard", "--scheduler-file", str(address)]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--port", "0", *options]
    worker = [*python, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *options]
    ended = [subprocess.Popen(scheduler, stderr=subprocess.DEVNULL)]
    try:
        workers = [subprocess.Popen(worker, stderr=subprocess.DEVNULL) for _ in range(2)]
        ended += workers
        while not address.exists():
            time.sleep(0.1)
        output = tmp_path / "rows.jsonl"

        def kill_one(done: int, of: int) -> None:
            if done >= 3:
                workers[0].kill()

        where = json.loads(address.read_text())["address"]
        nest.sweep(study, output=output, engine="dask", scheduler=where, progress=kill_one)
        assert workers[0].wait(60) == -signal.SIGKILL
        assert output.read_bytes() == whole.read_bytes()
    finally:
        for process in ended:
            process.kill()
            process.wait()


def test_a_scheduler_that_does_not_answer_is_told(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` runs sweeps on Dask")
    with pytest.raises(InputError, match=r"--scheduler nowhere: no scheduler answers there"):
        nest.sweep(study, output=tmp_path / "rows.csv", engine="dask", scheduler="nowhere")


def test_dask_without_its_extra_is_told(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"needs Dask; install it with `pip install 'nest-planner\[dask\]'`"):
        nest.sweep(study, output=tmp_path / "rows.csv", engine="dask")


def test_levels_of_a_cluster_by_name_are_swept() -> None:
    base = {"nest": 1, "cluster": {"name": "dgx-h100-superpod", "price": 2.5}}
    changed = problem_at(base, {"cluster.levels[1].bandwidth": 25e9})["cluster"]
    assert "name" not in changed
    assert [level["fanout"] for level in changed["levels"]] == [8, 32, 4]
    assert (changed["levels"][1]["bandwidth"], changed["device"], changed["price"]) == (25e9, "h100-sxm", 2.5)
    assert base["cluster"] == {"name": "dgx-h100-superpod", "price": 2.5}
