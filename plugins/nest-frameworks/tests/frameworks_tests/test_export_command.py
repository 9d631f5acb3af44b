"""`nest export` and `nest.export`: files whole or not at all, of plans that hold."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.deployment import Limits
from nest.errors import InputError
from nest.hooks import hook
from nest.hooks.registry import Registry
from nest.spec import PlanDocument
from nest.whatif.launch_files import Exported
from tests.command_line import call

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 256}},
    "training": {"global_batch": 8, "sequence_length": 32},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "bandwidth": 4e11, "latency": 3e-6}]},
    "fixed": {"pp": 2, "tp": 2},
}


class Table:
    """An exporter with nothing but what it must have."""

    name = "table"

    def export(self, plan: PlanDocument) -> dict[str, str]:
        return {"table.csv": f"{len(plan.stages)} stages\n"}


class Several:
    """An exporter of several files, with all that is optional."""

    name = "several"
    summary = "a script and notes"

    def limits(self, problem: Any) -> Limits:
        return Limits(strategies=("tp",), zero=(0, 1), constraints={"pp <= 2": "it has two hands"})

    releases = ("2", "1.0")
    release = ""

    def for_release(self, release: str) -> "Several":
        if release not in self.releases:
            raise InputError(f"it has {' and '.join(self.releases)}")
        chosen = Several()
        chosen.release = f" of {release}"
        return chosen

    def export(self, plan: PlanDocument) -> dict[str, str]:
        return {"run.sh": "#!/bin/sh\n", "notes/one.txt": f"1{self.release}\n"}


class Stubborn:
    """An exporter that refuses every plan."""

    name = "stubborn"

    def export(self, plan: PlanDocument) -> dict[str, str]:
        raise InputError("the plan has stages, which stubborn cannot express.")


class Broken:
    """An exporter that fails."""

    name = "broken"

    def export(self, plan: PlanDocument) -> dict[str, str]:
        raise RuntimeError("oh")


class Clashing(Table):
    """An exporter of a file that another has, too."""

    name = "clashing"

    def export(self, plan: PlanDocument) -> dict[str, str]:
        return {"table.csv": "mine\n"}


class Scribbling(Table):
    """An exporter that changes the plan it is given."""

    name = "scribbling"

    def export(self, plan: PlanDocument) -> dict[str, str]:
        plan.problem.clear()
        return {"done.txt": "done\n"}


class PluginUnderTest:
    """What an installed distribution would bring."""

    @hook
    def nest_exporters(self) -> list[Any]:
        return [Table(), Several(), Stubborn(), Broken(), Clashing(), Scribbling()]


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    known = Registry([PluginUnderTest()])
    monkeypatch.setattr("nest.hooks.registry._shared", lambda *_: known)
    return known


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.evaluate(PROBLEM).to_dict()))
    return path


def test_several_files_are_printed_under_their_names(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", str(plan), "--to", "several", "--to", "table") == 0
    assert capsys.readouterr().out == (
        "==> run.sh <==\n#!/bin/sh\n\n==> notes/one.txt <==\n1\n\n==> table.csv <==\n2 stages\n"
    )


def test_files_go_into_a_folder(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out" / "there"
    assert call(monkeypatch, "export", str(plan), "--to", "several", "--output", str(folder)) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "run.sh"), str(folder / "notes/one.txt")]
    assert (folder / "notes/one.txt").read_text() == "1\n"
    assert os.access(folder / "run.sh", os.X_OK)
    assert sorted(each.name for each in folder.iterdir()) == ["notes", "run.sh"]


def test_json_has_the_files(plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "export", str(plan), "--to", "table", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"files": {"table.csv": "2 stages\n"}, "warnings": []}


def test_the_list_says_what_each_can_express(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", "--list") == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("several") and "a script and notes" in row and "strategies tp" in row for row in rows)
    assert call(monkeypatch, "export", str(plan), "--list", "--json") == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["exporters"]}
    assert listed["several"]["rules"] == {"pp <= 2": "it has two hands"}
    assert listed["table"]["limits"] == "none stated"
    assert (listed["several"]["releases"], listed["table"]["releases"]) == ("2, 1.0", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to", "tabel"], "--to: there is no exporter called 'tabel'. Did you mean 'table'?"),
        (["--to", "stubborn"], "the plan has stages, which stubborn cannot express."),
        (["--to", "broken"], "the exporter 'broken' failed and is disabled"),
        (["--to", "table", "--to", "clashing"], "'clashing' and another exporter both write 'table.csv'"),
        ([], "nest export needs a plan and --to NAME"),
    ],
)
def test_what_cannot_be_exported_is_told(
    plan: Path,
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "out"
    assert call(monkeypatch, "export", str(plan), *arguments, "--output", str(folder)) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.out == ""
    assert not folder.exists()


def test_an_edited_plan_is_refused_with_what_does_not_hold(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = json.loads(plan.read_text())
    edited["stages"][0]["zero"] = 3
    plan.write_text(json.dumps(edited))
    assert call(monkeypatch, "export", str(plan), "--to", "table") == 2
    told = capsys.readouterr().err
    assert "the plan fails its check, so nest does not export it: " in told
    assert "recomputed" in told


@pytest.mark.longer
def test_an_infeasible_plan_ends_with_its_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {**PROBLEM["cluster"], "memory": "1 MB"}
    none = nest.solve({**PROBLEM, "cluster": cluster, "fixed": {}})
    assert none.status == "infeasible"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(none.to_dict()))
    assert call(monkeypatch, "export", str(path), "--to", "table") == 1
    printed = capsys.readouterr()
    assert none.diagnosis is not None
    assert none.diagnosis in printed.err.replace("\nnest: ", "\n")
    assert printed.out == ""


def test_a_plan_that_does_not_fit_is_exported_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tight = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "memory": "1 MB"}}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.evaluate(tight).to_dict()))
    assert call(monkeypatch, "export", str(path), "--to", "table") == 0
    assert "warning: this plan may run out of memory: stage " in capsys.readouterr().err
    with pytest.warns(UserWarning, match="may run out of memory"):
        nest.export(path, "table")


@pytest.mark.longer
def test_python_gives_the_files_and_writes_them(plan: Path, tmp_path: Path) -> None:
    assert nest.export(plan, "table", output=tmp_path / "out") == {"table.csv": "2 stages\n"}
    assert (tmp_path / "out" / "table.csv").read_text() == "2 stages\n"
    assert nest.export(json.loads(plan.read_text()), "table") == nest.export(nest.evaluate(PROBLEM), "table")
    with pytest.raises(InputError, match="Did you mean 'table'"):
        nest.export(plan, "tabel")


@pytest.mark.longer
def test_an_exporter_changes_nothing_for_those_behind_it(plan: Path) -> None:
    read = nest.evaluate(PROBLEM)
    with pytest.raises(InputError, match="'scribbling' failed"):
        nest.export(read, "scribbling")
    assert nest.export(read, "table") == nest.export(plan, "table")


class Uniform(Table):
    """An exporter of a framework with one recompute policy and one ZeRO stage, 1."""

    name = "uniform"

    def limits(self, problem: Any) -> Limits:
        return Limits(zero=(0, 1), constraints={"uniform(recompute)": "it has one recompute policy for all stages"})

    def export(self, plan: PlanDocument) -> dict[str, str]:
        return {"uniform.txt": f"{plan.stages[0].recompute} {plan.stages[0].zero}\n"}


class Pipeless(Table):
    """An exporter of a framework that nothing fits."""

    name = "pipeless"

    def limits(self, problem: Any) -> Limits:
        return Limits(constraints={"pp == 3 and replicas == 3": "it is odd"})


class WithFrameworks:
    """A distribution that brings them."""

    @hook
    def nest_exporters(self) -> list[Any]:
        return [Table(), Uniform(), Pipeless()]


@pytest.fixture
def beyond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan with ZeRO 3, which is beyond the frameworks."""
    known = Registry([WithFrameworks()])
    monkeypatch.setattr("nest.hooks.registry._shared", lambda *_: known)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.evaluate({**PROBLEM, "fixed": {"pp": 2, "tp": 2, "zero": 3}}).to_dict()))
    return path


def test_a_plan_beyond_a_framework_is_refused_with_the_reason(
    beyond: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", str(beyond), "--to", "uniform") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "uniform cannot run this plan: ZeRO stage 3 is used, but uniform has 0, 1 only." in printed.err
    assert "--nearest" in printed.err
    assert "--target uniform" in printed.err


@pytest.mark.longer
def test_the_nearest_plan_is_exported_with_what_it_costs(
    beyond: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(monkeypatch, "export", str(beyond), "--to", "uniform", "--nearest", "--output", str(folder)) == 0
    printed = capsys.readouterr()
    assert "nest: zero: 3 -> " in printed.err
    assert " % slower than this plan. " in printed.err or " % faster than this plan. " in printed.err
    assert "The best plan for uniform takes" in printed.err
    assert (folder / "uniform.txt").read_text() in ("none 0\n", "none 1\n")
    written = json.loads((folder / "plan.json").read_text())
    assert written["problem"]["search"]["target"] == "uniform"
    assert nest.check(written).ok
    assert call(monkeypatch, "export", str(folder / "plan.json"), "--to", "uniform") == 0


@pytest.mark.longer
def test_the_nearest_plan_in_json(
    beyond: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", str(beyond), "--to", "uniform", "--to", "table", "--nearest", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["files"]) == {"uniform.txt", "table.csv"}
    (near,) = document["nearest"].values()
    assert "zero" in [each["name"] for each in near["changes"]]
    assert near["loss"] == pytest.approx(near["batch_time"] / json.loads(beyond.read_text())["batch_time"] - 1)
    assert near["best_batch_time"] <= near["batch_time"] * (1 + 1e-9)


def test_a_plan_within_the_limits_is_its_own_nearest(
    beyond: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", str(beyond), "--to", "table", "--nearest") == 0
    assert capsys.readouterr() == ("2 stages\n", "")


def test_plans_of_a_folder_go_by_their_numbers_and_one_refused_keeps_none_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 10):
        (tmp_path / f"plan-{number}.json").write_text("{}")
    asked = []

    def made(plan: Path, to: object, near: object, release: object) -> Exported:
        asked.append(plan.name)
        if plan.name == "plan-2.json":
            raise InputError("it has two stages.")
        return Exported({"job.sh": plan.name}, ())

    monkeypatch.setattr("nest.cli.export._made", made)
    assert call(monkeypatch, "export", str(tmp_path), "--to", "toy", "--output", str(tmp_path / "out")) == 2
    assert asked == ["plan-1.json", "plan-2.json", "plan-10.json"]
    assert capsys.readouterr().err == f"nest: {tmp_path / 'plan-2.json'}: it has two stages.\n"
    written = sorted(str(each.relative_to(tmp_path / "out")) for each in (tmp_path / "out").rglob("job.sh"))
    assert written == ["plan-1/job.sh", "plan-10/job.sh"]


def test_an_older_release_is_written_on_request(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "export", str(plan), "--to", "several", "--for", "1.0") == 0
    assert "notes/one.txt <==\n1 of 1.0\n" in capsys.readouterr().out
    assert call(monkeypatch, "export", str(plan), "--to", "several", "--for", "3") == 2
    assert "it has 2 and 1.0" in capsys.readouterr().err
    assert call(monkeypatch, "export", str(plan), "--to", "table", "--for", "1.0") == 2
    assert "'table' writes for no release of a framework." in capsys.readouterr().err
