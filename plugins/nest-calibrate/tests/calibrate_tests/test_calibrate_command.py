"""`nest calibrate collectives` from files to a link of the catalogue."""

import json
import tomllib
from pathlib import Path

import pytest

from nest.catalogue import Link, link
from nest.catalogue.load import entry
from tests.command_line import Caller


@pytest.fixture
def slow_gathers(tmp_path: Path) -> Path:
    """All-gathers on a link of a tenth of the usual speed."""
    rows = [
        {"nest": 1, "measurement": "collective", "kind": "all_gather", "bytes": size, "members": 4, "link": "nvlink4"}
        | {"seconds": 1e-4 + size * 0.75 / 30e9}
        for size in (2**power for power in range(10, 30))
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.longer
def test_it_prints_errors_and_writes_the_link(call: Caller, slow_gathers: Path) -> None:
    code, out, _ = call("calibrate", "collectives", str(slow_gathers), "--output", str(slow_gathers.parent))
    assert code == 0
    assert out.startswith("nvlink4: median and 90th percentile")
    written = entry("nvlink4", tomllib.loads((slow_gathers.parent / "nvlink4.toml").read_text()), Link)
    assert "own.jsonl" in written.sources[-1]
    assert written.lines[-1] == link("nvlink4").lines[-1]
    assert written.lines != link("nvlink4").lines


@pytest.mark.slow
def test_json_holds_the_same(call: Caller, slow_gathers: Path) -> None:
    code, out, _ = call("calibrate", "collectives", str(slow_gathers), "--json", "--prior", "nccl")
    found = json.loads(out)["links"]["nvlink4"]
    assert code == 0
    assert {row["table"] for row in found["errors"]} == {"own.jsonl", "all"}
    total = next(row for row in found["errors"] if (row["table"], row["kind"]) == ("all", "all"))
    assert total["after"]["median"] < 0.1 < total["before"]["median"]
    assert found["entry"]["lines"][0]["protocol"] == "LL"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["absent.txt"], "cannot be read"),
        (["{file}", "--prior", "mine"], "--prior must be catalogue or nccl"),
        (["{file}", "--output", "absent"], "there is no such folder"),
    ],
)
def test_bad_input_is_told_in_a_sentence(call: Caller, slow_gathers: Path, arguments: list[str], told: str) -> None:
    code, out, err = call("calibrate", "collectives", *(each.format(file=slow_gathers) for each in arguments))
    assert (code, out) == (2, "")
    assert told in err


def test_an_unknown_link_names_the_known_ones(call: Caller, slow_gathers: Path) -> None:
    slow_gathers.write_text(slow_gathers.read_text().replace("nvlink4", "nvlnk4"))
    code, _, err = call("calibrate", "collectives", str(slow_gathers))
    assert code == 2
    assert "nvlink4" in err
