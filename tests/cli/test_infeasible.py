"""No feasible plan is an answer: exit code 1, and what is tightest by how much, for people and as JSON."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nest.cli import app
from nest.io import read_mapping

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MEASURED = read_mapping(REPOSITORY / "examples" / "measured-layers" / "problem.yaml").mapping


def problem(**sections: Any) -> dict[str, Any]:
    found = copy.deepcopy(MEASURED)
    for name, value in sections.items():
        if isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name].update(value)
        else:
            found[name] = value
    return found


def in_fours() -> dict[str, Any]:
    found = problem(training={"global_batch": 7})
    for candidate in found["profile"]["candidates"]:
        candidate["samples"] = 4
    return found


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "memory": (
        problem(cluster={"memory": "1 GB"}),
        r"Memory is tightest: .* \((\S+) bytes\).* That device has 954 MiB, (\S+) GiB less",
    ),
    "hardly any memory": (problem(cluster={"memory": 5}), r"Memory is tightest: .* That device has 5 B"),
    "reserve": (problem(cluster={"reserve": "15 GB"}), r"Memory is tightest: .* That device has 14\.9 GiB"),
    "constraint": (
        problem(constraints=["pp == 7"]),
        r"Constraint `pp == 7` is tightest: with the rest of the problem, pp can only be 1 to 5",
    ),
    "constraint of two names": (
        problem(constraints=["pp * replicas == 77"]),
        r"Constraint `pp \* replicas == 77` is tightest: it refuses all \d+ combinations",
    ),
    "constraints": (
        problem(constraints=["pp >= 4", "devices <= 2"]),
        r"Constraint `devices <= 2` is tightest: with `pp >= 4` and the rest of the problem, "
        r"devices can only be 4, 5, 8",
    ),
    "constraints of two names": (
        problem(constraints=["pp * 1 >= 3 * replicas", "devices <= 2 * replicas"]),
        r"Constraints are tightest: together they refuse all \d+ .*`pp \* 1 >= 3 \* replicas` alone refuses \d+.*",
    ),
    "replicas": (
        problem(fixed={"replicas": 3}),
        r"Constraint `replicas == 3` is tightest: 3 does not divide training.global_batch \(32\); use replicas "
        r"1, 2, 4, 8, change the batch, or set training.uneven_batch",
    ),
    "decision": (problem(fixed={"replicas": 3}), r"Constraint `replicas == 3` is tightest"),
    "batch": (
        in_fours(),
        r"No number of replicas divides 7 samples with micro-batches of 4; set training.uneven_batch",
    ),
    "layers": (
        problem(constraints=['same_stage("stem", "head")', "pp >= 3"]),
        r"allow at most 1 stages, but plans need at least 3",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_diagnosis_names_what_is_tightest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    written, told = CASES[name]
    path, output = tmp_path / "problem.json", tmp_path / "plan.json"
    path.write_text(json.dumps(written))

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["nest", *arguments])
        with pytest.raises(SystemExit) as stop:
            app.main()
        printed = capsys.readouterr()
        assert (stop.value.code, printed.err) == (1, "")
        return printed.out

    _, _, sentence, _, following = run("solve", str(path)).splitlines()
    assert sentence.startswith("No feasible plan. ")
    assert "`nest explain plan.json`" in following
    assert re.search(told, sentence)
    document = json.loads(run("solve", str(path), "--json", "--output", str(output)))
    assert document == json.loads(output.read_text())
    assert sentence == f"No feasible plan. {document['diagnosis']}"
    assert document["status"] == "infeasible"
    assert (document["batch_time"], document["lower_bound"], document["stages"]) == (None, None, [])
    assert document["fits"] is False


def test_the_missing_bytes_are_those_that_are_missing() -> None:
    import nest

    found = nest.solve(CASES["memory"][0])
    match = re.search(CASES["memory"][1], found.diagnosis or "")
    assert match is not None
    needed, missing = float(match[1]), float(match[2])
    assert needed - 1e9 == pytest.approx(missing * 2**30, rel=1e-2)
    assert nest.solve(problem(cluster={"memory": needed * (1 + 1e-5)})).status == "optimal"
    assert nest.solve(problem(cluster={"memory": needed * (1 - 1e-5)})).status == "infeasible"
