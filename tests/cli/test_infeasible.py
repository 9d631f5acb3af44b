"""No feasible plan is an answer: exit code 1, and what is tightest by how much, for people and as JSON."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nest.cli import app
from nest.files import read_mapping
from nest.units import Bytes, parse

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
        r"Memory is tightest: .* needs .* is (\S+) (\S+) .*capacity of 953\.7 MiB, (\S+) (\S+) too many",
    ),
    "hardly any memory": (problem(cluster={"memory": 5}), r"Memory is tightest: .* capacity of 5 B,"),
    "reserve": (problem(cluster={"reserve": "15 GB"}), r"Memory is tightest: .* capacity of 14\.9 GiB,"),
    "constraint": (problem(constraints=["pp == 7"]), r"Constraint `pp == 7` is tightest: it refuses all \d+"),
    "constraints": (
        problem(constraints=["pp >= 4", "devices <= 2"]),
        r"Constraints are tightest: together they refuse all \d+ .*`pp >= 4` alone refuses \d+.*`devices <= 2`",
    ),
    "decision": (problem(fixed={"replicas": 3}), r"Constraint `replicas == 3` is tightest"),
    "batch": (in_fours(), r"The batch is tightest: 7 samples cannot be dealt evenly .* micro-batches of 4 samples"),
    "layers": (
        problem(constraints=['same_stage("stem", "head")', "pp >= 3"]),
        r"at most 1 stages remain, but plans need at least 3",
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

    sentence = run("solve", str(path))
    assert sentence.startswith("No feasible plan. ")
    assert len(sentence.splitlines()) == 1
    assert re.search(told, sentence)
    document = json.loads(run("solve", str(path), "--json", "--output", str(output)))
    assert document == json.loads(output.read_text())
    assert sentence == f"No feasible plan. {document['diagnosis']}\n"
    assert document["status"] == "infeasible"
    assert (document["batch_time"], document["lower_bound"], document["stages"]) == (None, None, [])
    assert document["fits"] is False


def test_the_missing_bytes_are_those_that_are_missing() -> None:
    import nest

    found = nest.solve(CASES["memory"][0])
    match = re.search(CASES["memory"][1], found.diagnosis or "")
    assert match is not None
    needed, missing = (parse(f"{match[number]} {match[number + 1]}", Bytes) for number in (1, 3))
    # Both are told with four digits.
    assert needed - 1e9 == pytest.approx(missing, rel=2e-3)
    assert nest.solve(problem(cluster={"memory": needed * (1 + 1e-3)})).status == "optimal"
    assert nest.solve(problem(cluster={"memory": needed * (1 - 1e-3)})).status == "infeasible"
